//! A small HTTP client: sends requests to a running server over TCP, with or without TLS, or over its Unix socket.
//!
//! Each request has a connection of its own, unless many requests share a [`ClientConnection`]. There are no redirects
//! and no cookies. Answers are read as a stream. A server with TLS is trusted if its certificate is that of the
//! connection file or of the job, or if an authority vouches for it: one of `--tls-ca FILE`, else one that the machine
//! trusts.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config;
use crate::connection::Connection;
use crate::tls::{self, TlsError, Trust};

/// Longest that a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server, unless said otherwise: more than the longest query deadline that makes sense.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// What to do where something else answers.
pub const NAME_ANOTHER: &str = "name the address that telem prints behind 'listening on'";
/// An error answer is read up to here.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp {
        /// Over TLS.
        tls: bool,
        /// `host:port`.
        authority: String,
        /// The part before `/api/...`, without a trailing slash.
        prefix: String,
    },
    Unix(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("'{text}' is not the address of a server ({why}); write http://HOST:PORT, https://HOST:PORT or unix:PATH")]
    BadAddress { text: String, why: String },
    #[error("cannot reach {address}: {source}; is the server running?")]
    Unreachable { address: Address, source: io::Error },
    #[error("{address} is not trusted: {source}; name its certificate, or that of its authority, with --tls-ca FILE")]
    Untrusted { address: Address, source: io::Error },
    #[error("{address} speaks no TLS; if it is a telem that you trust, write http:// in place of https://")]
    NoTls { address: Address },
    #[error("cannot speak TLS with {address}: {source}")]
    Tls { address: Address, source: Box<TlsError> },
    #[error("{address} did not answer within {} s", after.as_secs())]
    Silent { address: Address, after: Duration },
    #[error("the connection to {address} broke: {source}; its log may say why")]
    Broken { address: Address, source: hyper::Error },
    #[error("{message} ({address} answered {status})")]
    Refused { address: Address, status: StatusCode, message: String },
    #[error("bug in telem: a request that cannot be sent: {0}")]
    Request(#[from] axum::http::Error),
}

impl Address {
    /// Whether `text` means a server, not a directory.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("unix:") || text.contains("://")
    }

    /// # Errors
    /// BadAddress.
    pub fn parse(text: &str) -> Result<Address, ClientError> {
        let bad = |why: &str| ClientError::BadAddress { text: text.to_owned(), why: why.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(bad("no path")) } else { Ok(Address::Unix(PathBuf::from(path))) };
        }
        let uri: Uri = text.parse().map_err(|error| bad(&format!("{error}")))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(bad("only http and https are spoken")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Address::Tcp { tls, authority: format!("{host}:{port}"), prefix })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { tls, authority, prefix } => {
                write!(f, "{}://{authority}{prefix}", if *tls { "https" } else { "http" })
            }
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The file of `--tls-ca`: what the command line says is one for all of a process.
static AUTHORITIES: OnceLock<PathBuf> = OnceLock::new();

/// From now on servers are trusted if this file vouches for them, or if they are known otherwise.
pub fn trust_authorities(file: PathBuf) {
    // There is one command line.
    AUTHORITIES.get_or_init(|| file);
}

/// Asks one server, with the token where there is one.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    token: Option<HeaderValue>,
    trust: Trust,
    connect_timeout: Duration,
    silence_max: Duration,
}

impl Client {
    /// With the token of `TELEM_TOKEN`, else that of the connection file which `TELEM_CONNECTION` names if it is this
    /// server's: a token is sent only to the server that it belongs to. The certificate of that file is trusted
    /// likewise.
    pub fn new(address: Address) -> Client {
        let of_file = || {
            let connection = Connection::read(&PathBuf::from(config::environment("TELEM_CONNECTION")?)).ok()?;
            let same = match &address {
                Address::Tcp { .. } => Address::parse(&connection.url).is_ok_and(|own| own == address),
                Address::Unix(path) => connection.socket.as_ref() == Some(path),
            };
            same.then_some(connection)
        };
        let (token, certificate) = of_file().map_or((None, None), |file| (Some(file.token), file.certificate));
        let token = config::environment("TELEM_TOKEN").or(token);
        let client = Client::with_token(address, token.as_deref());
        match certificate.filter(|_| AUTHORITIES.get().is_none()) {
            Some(certificate) => client.trusting(Trust::Job(certificate)),
            None => client,
        }
    }

    pub fn with_token(address: Address, token: Option<&str>) -> Client {
        let token = token.and_then(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let trust = AUTHORITIES.get().map_or(Trust::System, |file| Trust::File(file.clone()));
        Client { address, token, trust, connect_timeout: CONNECT_TIMEOUT, silence_max: SILENCE_MAX }
    }

    /// Trusts `trust`, where the server speaks TLS.
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Client {
        Client { trust, ..self }
    }

    /// Waits no longer than this for a connection; 10 s otherwise.
    #[must_use]
    pub fn with_connect_timeout(self, connect_timeout: Duration) -> Client {
        Client { connect_timeout, ..self }
    }

    /// Gives up after this silence, for what a server answers at once; 15 minutes otherwise.
    #[must_use]
    pub fn with_silence(self, silence_max: Duration) -> Client {
        Client { silence_max, ..self }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// # Errors
    /// [`ClientError`]; Refused for every status but 2xx.
    pub async fn get(&self, path: &str) -> Result<AnswerBody, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// # Errors
    /// [`ClientError`]; Refused for every status but 2xx.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<AnswerBody, ClientError> {
        self.ask(Method::POST, path, body).await
    }

    /// As [`Client::post`], but an answer of any status is an answer.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused.
    pub async fn exchange(&self, path: &str, body: Bytes) -> Result<AnswerBody, ClientError> {
        self.send(Method::POST, path, body).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<AnswerBody, ClientError> {
        let body = self.send(method, path, body).await?;
        if body.response.status().is_success() { Ok(body) } else { Err(body.into_refusal().await) }
    }

    /// An answer of any status is an answer.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<AnswerBody, ClientError> {
        self.pass(method, path, std::iter::empty(), body).await
    }

    /// As [`Client::send`], with headers besides.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused.
    pub async fn pass(
        &self,
        method: Method,
        path: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<AnswerBody, ClientError> {
        let mut request = self.request(method, path, body)?;
        request.headers_mut().extend(headers);
        let mut line = self.open().await?;
        let response = line.send(request).await?;
        let (address, connection) = (self.address.clone(), line.keep());
        Ok(AnswerBody { address, response, connection, silence_max: self.silence_max })
    }

    /// A connection for many requests, one after another.
    ///
    /// # Errors
    /// Unreachable, Untrusted, NoTls, Tls.
    pub async fn open(&self) -> Result<ClientConnection, ClientError> {
        let stream = tokio::time::timeout(self.connect_timeout, self.connect()).await;
        let late = |_| self.unreachable(io::ErrorKind::TimedOut.into());
        let (stream, local) = stream.map_err(late)??;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|source| self.broken(source))?;
        // Ends with the line or its last answer: its errors come out of the answer's body too.
        let connection = tokio::spawn(connection).abort_handle();
        Ok(ClientConnection { client: self.clone(), sender, connection: Some(connection), local })
    }

    async fn connect(&self) -> Result<(Box<dyn ClientStream>, Option<IpAddr>), ClientError> {
        let (tls, authority) = match &self.address {
            Address::Tcp { tls, authority, .. } => (*tls, authority),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|source| self.unreachable(source))?;
                return Ok((Box::new(stream), None));
            }
        };
        let stream = TcpStream::connect(authority).await.map_err(|source| self.unreachable(source))?;
        // A request is one write: it is not to wait for another.
        stream.set_nodelay(true).unwrap_or_default();
        let local = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        if !tls {
            return Ok((Box::new(stream), local));
        }
        let cannot = |source| ClientError::Tls { address: self.address.clone(), source: Box::new(source) };
        let config = self.trust.config(&[b"http/1.1"]).map_err(cannot)?;
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        let name = self.trust.name(host).map_err(|source| self.unreachable(source))?;
        let stream = tls::connect(config, name, stream).await.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData if is_no_tls(&source) => ClientError::NoTls { address: self.address.clone() },
            io::ErrorKind::InvalidData => ClientError::Untrusted { address: self.address.clone(), source },
            _ => self.unreachable(source),
        })?;
        Ok((Box::new(stream), local))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let (host, prefix) = match &self.address {
            Address::Tcp { authority, prefix, .. } => (authority.as_str(), prefix.as_str()),
            Address::Unix(_) => ("localhost", ""),
        };
        let mut request = Request::builder().method(method).uri(format!("{prefix}{path}")).header(header::HOST, host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        Ok(request.body(Full::new(body))?)
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable { address: self.address.clone(), source }
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Broken { address: self.address.clone(), source }
    }
}

trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for S {}

/// An open connection; dropping it hangs up.
#[derive(Debug)]
pub struct ClientConnection {
    client: Client,
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once an answer has it.
    connection: Option<tokio::task::AbortHandle>,
    local: Option<IpAddr>,
}

impl ClientConnection {
    /// What opened it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Our end of it, where it has an address.
    pub fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Asks, and reads the whole answer, whatever its status, where it has at most `bytes_max`.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused: after any of them the line is of no use.
    pub async fn post(
        &mut self,
        path: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let request = self.client.request(Method::POST, path, body)?;
        let response = self.send(request).await?;
        let status = response.status();
        let whole = http_body_util::Limited::new(response.into_body(), bytes_max).collect();
        let whole = tokio::time::timeout(self.client.silence_max, whole).await.map_err(|_| self.silent())?;
        let whole = whole.map_err(|error| self.client.unreachable(io::Error::other(error.to_string())))?;
        Ok((status, whole.to_bytes().to_vec()))
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let exchange = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = tokio::time::timeout(self.client.silence_max, exchange).await;
        response.map_err(|_| self.silent())?.map_err(|source| self.client.broken(source))
    }

    fn silent(&self) -> ClientError {
        ClientError::Silent { address: self.client.address.clone(), after: self.client.silence_max }
    }

    /// Leaves the connection to an answer.
    fn keep(mut self) -> Option<tokio::task::AbortHandle> {
        self.connection.take()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

/// The answer of a server; dropping it hangs up.
#[derive(Debug)]
pub struct AnswerBody {
    address: Address,
    response: Response<Incoming>,
    connection: Option<tokio::task::AbortHandle>,
    silence_max: Duration,
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

impl AnswerBody {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next bytes; `None` at the end of a whole answer.
    ///
    /// # Errors
    /// Broken when the server ends the answer before its end; Silent.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(self.silence_max, self.response.body_mut().frame()).await;
            let silent = |_| ClientError::Silent { address: self.address.clone(), after: self.silence_max };
            let Some(frame) = frame.map_err(silent)? else { return Ok(None) };
            let frame = frame.map_err(|source| ClientError::Broken { address: self.address.clone(), source })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The whole answer, where it has at most `bytes_max`; what is beyond is left out.
    ///
    /// # Errors
    /// As [`AnswerBody::chunk`].
    pub async fn read(mut self, bytes_max: usize) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max
            && let Some(chunk) = self.chunk().await?
        {
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(bytes_max);
        Ok(bytes)
    }

    /// Our own error answers carry a message; of others the first line is shown, and they are no telem's.
    async fn into_refusal(self) -> ClientError {
        let (address, status) = (self.address.clone(), self.response.status());
        let body = self.read(ERROR_BYTES_MAX).await.unwrap_or_default();
        let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let message = json.as_ref().and_then(|json| json["error"]["message"].as_str()).map(str::to_owned);
        let foreign = || match String::from_utf8_lossy(&body).lines().next() {
            None => format!("it is no telem; {NAME_ANOTHER}"),
            Some(line) => format!("it says '{line}', which no telem does; {NAME_ANOTHER}"),
        };
        ClientError::Refused { address, status, message: message.unwrap_or_else(foreign) }
    }
}

/// Whether what came in answer to a greeting in TLS was something else.
fn is_no_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(_)))
}
