//! The port on which the server listens: the requested one, or the first free one from the default on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use tokio::net::{TcpListener, UdpSocket};

use crate::protocol::{DatagramService, Language, LineService, OwnListener};

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
    #[error("all of 127.0.0.1:{DEFAULT_PORT} to {last} are taken; choose --listen 127.0.0.1:0 for any free port")]
    NoneFree { last: u16 },
}

/// A port of a protocol's own, bound.
#[derive(Debug)]
pub enum BoundListener {
    Http(TcpListener, Router),
    Lines(TcpListener, Arc<dyn LineService>),
    Datagrams(UdpSocket, Arc<dyn DatagramService>),
}

/// Binds all of them.
///
/// # Errors
/// When a port is not available; when datagrams are to come from other machines, because their owner is unknown.
pub async fn bind(listeners: Vec<OwnListener>) -> Result<Vec<BoundListener>, ListenError> {
    let mut bound = Vec::with_capacity(listeners.len());
    for OwnListener { address, language } in listeners {
        bound.push(match language {
            Language::Http(router) => BoundListener::Http(listen(Some(address)).await?, router),
            Language::Lines(lines) => BoundListener::Lines(listen(Some(address)).await?, lines),
            Language::Datagrams(_) if !address.ip().is_loopback() => return Err(ListenError::Open { address }),
            Language::Datagrams(service) => {
                let socket = UdpSocket::bind(address).await;
                let socket = socket.map_err(|source| ListenError::Taken { address, source })?;
                BoundListener::Datagrams(socket, service)
            }
        });
    }
    Ok(bound)
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
    if let Some(address) = wanted {
        return TcpListener::bind(address).await.map_err(|source| ListenError::Taken { address, source });
    }
    first_free(DEFAULT_PORT).await
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
    Err(ListenError::NoneFree { last })
}
