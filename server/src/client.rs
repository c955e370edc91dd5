//! A small HTTP client: asks a running server over TCP or its Unix socket.
//!
//! One connection a request, no redirects, no cookies, no TLS yet. Answers are read as a stream.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::uri::Scheme;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config;
use crate::connection::Connection;

/// Longest that a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server, unless said otherwise: more than the longest query deadline that makes sense.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// An error answer is read up to here.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp {
        /// `host:port`.
        authority: String,
        /// What stands before `/api/...`, without a slash at its end.
        prefix: String,
    },
    Unix(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("'{text}' is no address of a server ({why}); write http://HOST:PORT or unix:PATH")]
    BadAddress { text: String, why: String },
    #[error("cannot reach {address}: {source}; is the server running?")]
    Unreachable { address: Address, source: io::Error },
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
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad("only http is spoken"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Address::Tcp { authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)), prefix })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { authority, prefix } => write!(f, "http://{authority}{prefix}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Asks one server, with the token where there is one.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    token: Option<HeaderValue>,
    silence_max: Duration,
}

impl Client {
    /// With the token of `TELEM_TOKEN`, else that of the connection file which `TELEM_CONNECTION` names if it
    /// is this server's: a token goes to nobody but the server it belongs to.
    pub fn new(address: Address) -> Client {
        let of_file = || {
            let connection = Connection::read(&PathBuf::from(config::environment("TELEM_CONNECTION")?)).ok()?;
            let same = match &address {
                Address::Tcp { .. } => Address::parse(&connection.url).is_ok_and(|own| own == address),
                Address::Unix(path) => connection.socket.as_ref() == Some(path),
            };
            same.then_some(connection.token)
        };
        let token = config::environment("TELEM_TOKEN").or_else(of_file);
        Client::with_token(address, token.as_deref())
    }

    pub fn with_token(address: Address, token: Option<&str>) -> Client {
        let token = token.and_then(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Client { address, token, silence_max: SILENCE_MAX }
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
    pub async fn get(&self, path: &str) -> Result<Body, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// # Errors
    /// [`ClientError`]; Refused for every status but 2xx.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Body, ClientError> {
        self.ask(Method::POST, path, body).await
    }

    /// As [`Client::post`], but an answer of any status is an answer.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused.
    pub async fn exchange(&self, path: &str, body: Bytes) -> Result<Body, ClientError> {
        self.send(Method::POST, path, body).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Body, ClientError> {
        let body = self.send(method, path, body).await?;
        if body.response.status().is_success() { Ok(body) } else { Err(body.into_refusal().await) }
    }

    /// An answer of any status is an answer.
    ///
    /// # Errors
    /// [`ClientError`], but never Refused.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Body, ClientError> {
        let request = self.request(method, path, body)?;
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        let connect = async {
            Ok::<Box<dyn Stream>, io::Error>(match &self.address {
                Address::Tcp { authority, .. } => Box::new(TcpStream::connect(authority).await?),
                Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
        let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|source| self.broken(source))?;
        // Ends with the answer: its errors come out of the answer's body too.
        let connection = tokio::spawn(connection);
        let response = tokio::time::timeout(self.silence_max, sender.send_request(request)).await;
        let response = response
            .map_err(|_| ClientError::Silent { address: self.address.clone(), after: self.silence_max })?
            .map_err(|source| self.broken(source))?;
        let (address, connection) = (self.address.clone(), connection.abort_handle());
        Ok(Body { address, response, connection, silence_max: self.silence_max })
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let (host, prefix) = match &self.address {
            Address::Tcp { authority, prefix } => (authority.as_str(), prefix.as_str()),
            Address::Unix(_) => ("localhost", ""),
        };
        let mut request = Request::builder().method(method).uri(format!("{prefix}{path}")).header(header::HOST, host);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        Ok(request.body(Full::new(body))?)
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Broken { address: self.address.clone(), source }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The answer of a server; dropping it hangs up.
#[derive(Debug)]
pub struct Body {
    address: Address,
    response: Response<Incoming>,
    connection: tokio::task::AbortHandle,
    silence_max: Duration,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Body {
    pub fn status(&self) -> StatusCode {
        self.response.status()
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
    /// As [`Body::chunk`].
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

    /// Our own error answers carry a message; of others the first line is shown.
    async fn into_refusal(self) -> ClientError {
        let (address, status) = (self.address.clone(), self.response.status());
        let body = self.read(ERROR_BYTES_MAX).await.unwrap_or_default();
        let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let message = json.as_ref().and_then(|json| json["error"]["message"].as_str()).map(str::to_owned);
        let first_line = || String::from_utf8_lossy(&body).lines().next().unwrap_or("").to_owned();
        ClientError::Refused { address, status, message: message.unwrap_or_else(first_line) }
    }
}
