//! The port of Dragon's node server: the one that programs expect, or the next free one.
//!
//! Programs ask at `localhost`, which is an address of IPv4 and one of IPv6. The port is taken at both, so that nobody
//! else is asked in our place.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;

/// Where Dragon's class sends to unless a YAML says otherwise.
pub const DEFAULT_PORT: u16 = 4243;
/// How many ports are tried when it is taken.
pub const PORTS_TRIED_MAX: u16 = 200;
/// How often any free port is asked for after that.
const ANY_TRIED_MAX: u16 = 8;

#[derive(Debug, thiserror::Error)]
#[error("Dragon's port {wanted} cannot be had on loopback, nor any other: {source}")]
pub struct DragonPortError {
    wanted: u16,
    source: io::Error,
}

/// A port that is ours: who connects waits until it is served.
#[derive(Clone, Debug)]
pub struct DragonPort {
    wanted: u16,
    number: u16,
    /// Why it is another than the wanted one.
    moved: Option<String>,
    sockets: Vec<Arc<TcpListener>>,
}

impl DragonPort {
    /// Takes `wanted`, or the next free one, or any at all: a job must not stay without it. For 0 any free one.
    ///
    /// # Errors
    /// When there is none.
    pub fn claim(wanted: u16) -> Result<Self, DragonPortError> {
        let next = wanted..=wanted.saturating_add(PORTS_TRIED_MAX - 1);
        // Of 0 the system chooses for IPv4 what may be taken for IPv6.
        let ports = next.filter(|_| wanted > 0).chain(std::iter::repeat_n(0, usize::from(ANY_TRIED_MAX)));
        let mut first = None;
        for port in ports {
            match bind(port) {
                Ok((number, sockets)) => {
                    let moved = first.map(|error: io::Error| match error.kind() {
                        io::ErrorKind::AddrInUse => "was taken".to_owned(),
                        _ => format!("cannot be had ({error})"),
                    });
                    return Ok(Self { wanted, number, moved, sockets });
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        let source = first.unwrap_or_else(|| io::ErrorKind::AddrInUse.into());
        Err(DragonPortError { wanted, source })
    }

    /// The one that was asked for; 0 for any.
    pub fn wanted(&self) -> u16 {
        self.wanted
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Why it is another than programs expect, if it is.
    pub fn moved(&self) -> Option<&str> {
        self.moved.as_deref().filter(|_| self.number != self.wanted)
    }

    pub fn sockets(&self) -> impl Iterator<Item = Arc<TcpListener>> + '_ {
        self.sockets.iter().map(Arc::clone)
    }
}

fn bind(port: u16) -> io::Result<(u16, Vec<Arc<TcpListener>>)> {
    let v4 = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), port))?;
    let number = v4.local_addr()?.port();
    let mut sockets = vec![v4];
    match TcpListener::bind((IpAddr::from(Ipv6Addr::LOCALHOST), number)) {
        Ok(v6) => sockets.push(v6),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        Err(error) => tracing::debug!(%error, "Dragon's port is not on ::1"),
    }
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    Ok((number, sockets.into_iter().map(Arc::new).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_gives_way_to_the_next_free_one() {
        let first = DragonPort::claim(0).unwrap();
        let second = DragonPort::claim(first.number()).unwrap();
        assert_eq!((first.moved(), second.moved()), (None, Some("was taken")));
        assert!(second.number() > first.number() && second.wanted() == first.number());
    }

    #[test]
    fn a_port_that_is_taken_on_one_of_both_addresses_is_taken() {
        let Ok(stranger) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else { return };
        let port = stranger.local_addr().unwrap().port();
        assert_eq!(DragonPort::claim(port).unwrap().moved(), Some("was taken"));
    }

    #[test]
    fn where_no_port_follows_any_free_one_is_taken() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 65_535));
        let port = DragonPort::claim(65_535).unwrap();
        assert!(taken.is_err() || port.moved() == Some("was taken") && port.number() > 0);
    }
}
