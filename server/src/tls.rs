//! TLS: certificates that a job makes for itself or that a user supplies, and which of them clients trust.
//!
//! All processes of a job serve one certificate and trust only that one, under a name that no host has ([`JOB_NAME`]).
//! So their security depends on the key, not on name resolution. A user's own certificate is served beside it, for
//! browsers, under its own names.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The name under which a job's own certificate is asked for.
pub const JOB_NAME: &str = "telem-job";
/// What is spoken inside: gRPC needs HTTP/2, everybody else may have either.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Where Linux distributions keep the certificates of authorities.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{from} holds no certificate in PEM: {why}")]
    NoCertificate { from: String, why: String },
    #[error("{from} holds no private key in PEM: {why}")]
    NoKey { from: String, why: String },
    #[error("no file of certificates of authorities was found ({}); name one with --tls-ca FILE", SYSTEM_FILES.join(", "))]
    NoAuthorities,
    #[error("the certificate of {from} cannot be used: {source}")]
    Unusable { from: String, source: rustls::Error },
    #[error("cannot create a certificate: {0}")]
    Making(#[from] rcgen::Error),
    #[error("cannot use TLS: {0}")]
    Protocol(#[from] rustls::Error),
}

/// A certificate, those that vouch for it, and its key. Never shows the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// PEM.
    pub chain: String,
    /// PEM.
    pub key: String,
    /// Where it comes from, for errors.
    pub from: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Certificate {
    /// A new one, which vouches for itself: for [`JOB_NAME`], this machine as it calls itself, and `names`.
    ///
    /// # Errors
    /// Making, for a name that cannot stand in a certificate.
    pub fn made(names: impl IntoIterator<Item = String>) -> Result<Self, TlsError> {
        let always = [JOB_NAME, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut all: Vec<String> = always.into_iter().chain(names).collect();
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|name| seen.insert(name.clone()));
        let key = rcgen::KeyPair::generate()?;
        let mut about = rcgen::CertificateParams::new(all)?;
        about.distinguished_name = rcgen::DistinguishedName::new();
        about.distinguished_name.push(rcgen::DnType::CommonName, JOB_NAME);
        let certificate = about.self_signed(&key)?;
        Ok(Self { chain: certificate.pem(), key: key.serialize_pem(), from: "this job".to_owned() })
    }

    /// # Errors
    /// Read; what is wrong with them comes out when they are used.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| TlsError::Read { path: path.to_path_buf(), source })
        };
        Ok(Self { chain: read(chain)?, key: read(key)?, from: chain.display().to_string() })
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.from, self.chain.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| TlsError::NoKey { from: self.from.clone(), why: error.to_string() })?;
        CertifiedKey::from_der(chain, key, provider)
            .map_err(|source| TlsError::Unusable { from: self.from.clone(), source })
    }
}

fn certificates(from: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = |why: String| TlsError::NoCertificate { from: from.to_owned(), why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| none(error.to_string()))?;
    if found.is_empty() { Err(none("there is no block CERTIFICATE".to_owned())) } else { Ok(found) }
}

/// How a server is spoken to, as its address says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlScheme {
    Http,
    Https,
}

impl UrlScheme {
    /// That of a server with this certificate.
    pub fn of<T>(certificate: Option<&T>) -> Self {
        if certificate.is_some() { Self::Https } else { Self::Http }
    }
}

impl fmt::Display for UrlScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// What a listener serves.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// For those who ask for [`JOB_NAME`].
    pub job: Option<Certificate>,
    /// For everybody else; without it they get the job's.
    pub own: Option<Certificate>,
}

impl Served {
    /// How a listener speaks TLS; `None` where there is no certificate.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn config(&self) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let certified = |certificate: &Option<Certificate>| {
            certificate.as_ref().map(|certificate| certificate.certified(&provider).map(Arc::new)).transpose()
        };
        let (job, own) = (certified(&self.job)?, certified(&self.own)?);
        let Some(usual) = own.or_else(|| job.clone()) else { return Ok(None) };
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::new(ByName { job, usual }));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Some(Arc::new(config)))
    }
}

/// Chooses by the name that is asked for.
#[derive(Debug)]
struct ByName {
    job: Option<Arc<CertifiedKey>>,
    usual: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let job = self.job.as_ref().filter(|_| hello.server_name() == Some(JOB_NAME));
        Some(Arc::clone(job.unwrap_or(&self.usual)))
    }
}

/// The certificates that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificate of a job, in PEM, and nobody else.
    Job(String),
    /// The authorities in a file.
    File(PathBuf),
    /// The authorities that this machine trusts.
    System,
}

impl Trust {
    /// How a client speaks TLS to whom it trusts: `h2` or HTTP/1.1 as `protocols` say.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Job(pem) => add_all(&mut roots, "the job", pem.as_bytes())?,
            Self::File(path) => add_all(&mut roots, &path.display().to_string(), &read(path)?)?,
            Self::System => {
                let path = SYSTEM_FILES.iter().map(Path::new).find(|path| path.is_file());
                // Among so many there may be some that nobody can use.
                roots.add_parsable_certificates(certificates(
                    "the system",
                    &read(path.ok_or(TlsError::NoAuthorities)?)?,
                )?);
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// The name that the certificate of `host` must have.
    pub fn name(&self, host: &str) -> io::Result<ServerName<'static>> {
        let name = if matches!(self, Self::Job(_)) { JOB_NAME } else { host.trim_matches(['[', ']']) };
        ServerName::try_from(name.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_path_buf(), source })
}

fn add_all(roots: &mut RootCertStore, from: &str, pem: &[u8]) -> Result<(), TlsError> {
    for certificate in certificates(from, pem)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable { from: from.to_owned(), source })?;
    }
    Ok(())
}

/// Speaks TLS over `stream`.
///
/// # Errors
/// Those of the connection; InvalidData where the other side is not who it should be.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: S,
) -> io::Result<TlsStream<S>> {
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        // What `openssl req -x509` makes unless it is told otherwise.
        match error.to_string().contains("CaUsedAsEndEntity") {
            true => io::Error::new(io::ErrorKind::InvalidData, AN_AUTHORITYS),
            false => error,
        }
    })
}

const AN_AUTHORITYS: &str = "its certificate is an authority's, not a server's (openssl makes a server's with -addext \
                             basicConstraints=critical,CA:FALSE)";
