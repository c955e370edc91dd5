//! Connections: accepts them, finds out whose they are and what they speak ([`sniff`]), and hands their requests to the
//! router, or all they say to the telnet protocol.
//!
//! Every connection has a place, and places are limited. Who may ask what is decided here ([`access`])
//! before a request reaches a handler, so no protocol can forget it.

pub mod access;
pub mod listen;
pub mod proc_net;
mod sniff;
pub mod socket;
pub(crate) mod stall;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

use self::access::{Access, Rules};
use self::sniff::{Protocol, Whole};
use self::socket::Socket;
use self::stall::StallGuard;
use crate::protocols::opentsdb::telnet::Telnet;
use crate::state::ServerLimits;

/// How long accepting rests after the operating system had no descriptor for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What a connection beyond the limit is told.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=UTF-8\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 94\r\n\r\n\
    {\"error\":{\"code\":503,\"message\":\"too many connections are open; close some or try again soon\"}}";

/// Where requests come from.
#[derive(Debug)]
pub struct Listeners {
    pub tcp: TcpListener,
    pub socket: Option<Socket>,
}

/// Who answers what comes.
#[derive(Clone, Debug)]
pub struct Protocols {
    pub http: Router,
    /// `None`: everything is taken for HTTP.
    pub telnet: Option<Arc<Telnet>>,
}

enum Incoming {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Serves `protocols` until `stop` comes; then finishes the requests that run, within the limit for that.
pub async fn serve(
    listeners: Listeners,
    protocols: Protocols,
    rules: Rules,
    limits: &ServerLimits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Places::new(limits.connections_max));
    let (stopping, stopped) = watch::channel(false);
    let door = Arc::new(Door { protocols, rules, limits: limits.clone(), stopped });
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let incoming = tokio::select! {
            () = &mut stop => break,
            accepted = listeners.tcp.accept() => accepted.map(|(stream, _)| Incoming::Tcp(stream)),
            accepted = accept_unix(listeners.socket.as_ref()) => accepted.map(Incoming::Unix),
            Some(_) = connections.join_next() => continue,
        };
        match incoming {
            Ok(incoming) => {
                let (door, places, watcher) = (Arc::clone(&door), Arc::clone(&places), graceful.watcher());
                connections.spawn(async move { door.welcome(incoming, &places, watcher).await });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    stopping.send_replace(true);
    if tokio::time::timeout(limits.shutdown_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(waited = ?limits.shutdown_timeout, "requests that still ran were cut off");
    }
    connections.shutdown().await;
}

async fn accept_unix(socket: Option<&Socket>) -> io::Result<UnixStream> {
    match socket {
        Some(socket) => Ok(socket.listener().accept().await?.0),
        None => std::future::pending().await,
    }
}

/// Strangers (who need the token) may take a quarter of the places, so that they cannot keep the owner out.
#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Places {
    fn new(connections_max: usize) -> Self {
        let place = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { all: place(connections_max), strangers: place(connections_max / 4) }
    }

    fn any(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_owned().ok()
    }

    fn strangers(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.strangers).try_acquire_owned().ok()
    }
}

/// What every connection needs.
struct Door {
    protocols: Protocols,
    rules: Rules,
    limits: ServerLimits,
    /// True once the server stops.
    stopped: watch::Receiver<bool>,
}

impl Door {
    async fn welcome(&self, incoming: Incoming, places: &Places, watcher: Watcher) {
        let Some(_place) = places.any() else { return turn_away(incoming).await };
        let access = match &incoming {
            Incoming::Tcp(stream) => self.rules.of_tcp(stream).await,
            Incoming::Unix(stream) => self.rules.of_unix(stream),
        };
        let stranger = matches!(access, Access::Stranger { .. });
        let place = if stranger { places.strangers() } else { None };
        if stranger && place.is_none() {
            return turn_away(incoming).await;
        }
        match incoming {
            Incoming::Tcp(stream) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection keeps Nagle's algorithm");
                }
                self.converse(stream, access, watcher).await;
            }
            Incoming::Unix(stream) => self.converse(stream, access, watcher).await,
        }
    }

    async fn converse<S>(&self, mut stream: S, access: Access, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Some(telnet) = &self.protocols.telnet else { return self.speak_http(stream, access, watcher).await };
        let mut stopped = self.stopped.clone();
        let first = tokio::select! {
            biased;
            first = tokio::time::timeout(self.limits.header_timeout, sniff::first_bytes(&mut stream)) => first,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let Ok(Ok(first)) = first else { return };
        let Some(byte) = first.first() else { return };
        match (sniff::protocol(*byte), &access) {
            (Protocol::Http, _) => self.speak_http(Whole::new(first, stream), access, watcher).await,
            (Protocol::Telnet, Access::Socket | Access::Loopback) => {
                telnet.converse(stream, first, stopped).await;
                // Only now: whoever stops the server waits for what this client sent.
                drop(watcher);
            }
            (Protocol::Telnet, Access::Stranger { reason }) => {
                let what = format!(
                    "a token is needed because {reason}, and telnet cannot carry one; send to /api/put over HTTP with \
                     'Authorization: Bearer TOKEN' and the token of the connection file"
                );
                telnet.refuse(stream, &what).await;
            }
        }
    }

    async fn speak_http<S>(&self, stream: S, access: Access, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let io = TokioIo::new(StallGuard::new(stream, self.limits.write_idle_timeout));
        let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            let access = &access;
            async move { Ok::<Response, Infallible>(self.answer(request.map(Body::new), access).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .serve_connection(io, service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended in the middle");
        }
    }

    async fn answer(&self, request: axum::extract::Request, access: &Access) -> Response {
        let (method, headers) = (request.method(), request.headers());
        if let Err(refusal) = self.rules.admit(headers, access)
            && !self.rules.is_preflight(method, headers)
        {
            return refusal.into_response();
        }
        match self.protocols.http.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Says why before it hangs up; a peer that does not read is not waited for.
async fn turn_away(incoming: Incoming) {
    tracing::debug!("a connection beyond the limit was turned away");
    let told = async {
        match incoming {
            Incoming::Tcp(mut stream) => stream.write_all(NO_PLACE).await,
            Incoming::Unix(mut stream) => stream.write_all(NO_PLACE).await,
        }
    };
    if let Ok(Err(error)) = tokio::time::timeout(ACCEPT_PAUSE, told).await {
        tracing::debug!(%error, "a connection beyond the limit was already gone");
    }
}
