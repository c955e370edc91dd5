//! How processes of a job connect to each other's workers: with TLS if the job has a certificate, else without.

use std::io;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use rustls::ClientConfig;
use telem_query::cluster::{Dial, DialTcp, NodeConnection, Wire};
use url::Url;

use crate::tls::{self, TlsError, Trust};
use crate::token::Token;

/// The wire of a job.
///
/// # Errors
/// When its certificate is invalid.
pub fn wire(token: &Token, certificate: Option<&str>) -> Result<Wire, TlsError> {
    let dial: Arc<dyn Dial> = match certificate {
        Some(certificate) => {
            let trust = Trust::Job(certificate.to_owned());
            // Questions travel over gRPC, which needs HTTP/2.
            let config = trust.config(&[b"h2"])?;
            Arc::new(DialTls { trust, config })
        }
        None => Arc::new(DialTcp),
    };
    Ok(Wire::new(token.secret().to_owned(), dial))
}

/// TLS with the certificate of the job.
#[derive(Debug)]
struct DialTls {
    trust: Trust,
    config: Arc<ClientConfig>,
}

impl Dial for DialTls {
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>> {
        let (plain, config) = (DialTcp.dial(url), Arc::clone(&self.config));
        let name = self.trust.name(url.host_str().unwrap_or_default());
        async move { Ok(Box::new(tls::connect(config, name?, plain.await?).await?) as Box<dyn NodeConnection>) }.boxed()
    }
}
