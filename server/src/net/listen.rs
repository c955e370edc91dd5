//! The port on which the server listens: the requested one, or the first free one from the default on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use tokio::net::{TcpListener, UdpSocket, UnixStream};

use super::socket::{Socket, SocketError};
use crate::protocol::{DatagramService, Language, LineService, ListenerPlace, OwnListener, ValueService};

/// The port of OpenTSDB, which Grafana suggests.
pub const DEFAULT_PORT: u16 = 4242;
/// How many ports are tried when the default is taken.
const PORTS_TRIED_MAX: u16 = 200;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}: {source}; choose another --listen ADDR:PORT (port 0 takes any free one)")]
    Taken { address: SocketAddr, source: io::Error },
    #[error(
        "datagrams carry no token, so they are accepted only on loopback, and {address} is not loopback; use 127.0.0.1"
    )]
    Open { address: SocketAddr },
    #[error("all of 127.0.0.1:{first} to {last} are taken; choose --listen 127.0.0.1:0 for any free port")]
    NoneFree { first: u16, last: u16 },
    #[error("a port that was taken for a protocol cannot be served: {0}")]
    Bound(#[source] io::Error),
    #[error("a port that is taken already has no datagrams: name an address")]
    NoDatagrams,
    #[error("JSON values are taken at a Unix socket, and HTTP, lines and datagrams at ports")]
    OtherPlace,
    #[error("{} is served by {server} already; end it, or take another place with telem proxy -u PATH", path.display())]
    Served { path: PathBuf, server: String },
    #[error("{} is no socket, and in the way of one; take another place with telem proxy -u PATH", path.display())]
    InTheWay { path: PathBuf },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// A port of a protocol's own, bound.
#[derive(Debug)]
pub enum BoundListener {
    Http(TcpListener, Router),
    Lines(TcpListener, Arc<dyn LineService>),
    Datagrams(UdpSocket, Arc<dyn DatagramService>),
    /// What the common port speaks, to clients that all need the token: who they are is not known here.
    Tunnel(TcpListener),
    Values(Socket, Arc<dyn ValueService>),
}

/// Binds all of them for the user `uid`.
///
/// # Errors
/// When a port is not available; when datagrams are to come from other machines, because their owner is unknown.
pub async fn bind(listeners: Vec<OwnListener>, uid: u32) -> Result<Vec<BoundListener>, ListenError> {
    let mut bound = Vec::with_capacity(listeners.len());
    for OwnListener { place, language } in listeners {
        bound.push(match (language, place) {
            (Language::Http(router), place) => BoundListener::Http(at(place).await?, router),
            (Language::Lines(lines), place) => BoundListener::Lines(at(place).await?, lines),
            (Language::Values(values), ListenerPlace::Path(path)) => {
                BoundListener::Values(among_others(&path, uid).await?, values)
            }
            (Language::Values(_), _) | (Language::Datagrams(_), ListenerPlace::Path(_)) => {
                return Err(ListenError::OtherPlace);
            }
            (Language::Datagrams(_), ListenerPlace::Bound(_)) => return Err(ListenError::NoDatagrams),
            (Language::Datagrams(_), ListenerPlace::Address(address)) if !address.ip().is_loopback() => {
                return Err(ListenError::Open { address });
            }
            (Language::Datagrams(service), ListenerPlace::Address(address)) => {
                let socket = UdpSocket::bind(address).await;
                let socket = socket.map_err(|source| ListenError::Taken { address, source })?;
                BoundListener::Datagrams(socket, service)
            }
        });
    }
    Ok(bound)
}

/// A socket in a place that somebody named.
async fn among_others(path: &Path, uid: u32) -> Result<Socket, ListenError> {
    match Socket::bind_among_others(path, uid) {
        Ok(socket) => Ok(socket),
        Err(SocketError::InTheWay { path }) => Err(ListenError::InTheWay { path }),
        Err(SocketError::Alive { path }) => {
            let owner = UnixStream::connect(&path).await.and_then(|stream| stream.peer_cred());
            let pid = owner.ok().and_then(|owner| owner.pid());
            let server = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
            Err(ListenError::Served { path, server })
        }
        Err(other) => Err(other.into()),
    }
}

async fn at(place: ListenerPlace) -> Result<TcpListener, ListenError> {
    match place {
        ListenerPlace::Address(address) => listen(Some(address)).await,
        ListenerPlace::Path(_) => Err(ListenError::OtherPlace),
        ListenerPlace::Bound(socket) => socket.try_clone().and_then(TcpListener::from_std).map_err(ListenError::Bound),
    }
}

/// Listens on any free port at all addresses, those of IPv6 included where there are any.
///
/// # Errors
/// When no port is free.
pub async fn listen_everywhere() -> Result<TcpListener, ListenError> {
    if let Ok(listener) = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).await {
        return Ok(listener);
    }
    listen(Some((Ipv4Addr::UNSPECIFIED, 0).into())).await
}

/// Listens on `wanted`, or without it on loopback at the default port or the next one that is free.
///
/// # Errors
/// When `wanted` cannot be had; when no port is free.
pub async fn listen(wanted: Option<SocketAddr>) -> Result<TcpListener, ListenError> {
    listen_from(wanted, DEFAULT_PORT).await
}

/// As [`listen`], with another default port.
///
/// # Errors
/// As [`listen`].
pub async fn listen_from(wanted: Option<SocketAddr>, first: u16) -> Result<TcpListener, ListenError> {
    if let Some(address) = wanted {
        return TcpListener::bind(address).await.map_err(|source| ListenError::Taken { address, source });
    }
    first_free(first).await
}

pub(super) async fn first_free(from: u16) -> Result<TcpListener, ListenError> {
    let last = from.saturating_add(PORTS_TRIED_MAX - 1);
    for port in from..=last {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(source) => return Err(ListenError::Taken { address, source }),
        }
    }
    Err(ListenError::NoneFree { first: from, last })
}
