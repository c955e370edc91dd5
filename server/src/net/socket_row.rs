//! A socket of TCP as the kernel describes it, and whose it is.

use std::net::SocketAddr;

/// What the kernel says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    pub uid: u32,
    pub end: SocketHold,
}

/// Whether a process holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketHold {
    Held,
    /// Its process closed it, and the kernel still knows whose it was.
    Closed,
    /// No process holds it, and its former owner is unknown: the uid says nothing.
    Unknown,
}

/// A socket as the kernel describes it, whichever way it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// As the kernel numbers the states of TCP.
    pub state: u8,
    pub uid: u32,
    pub inode: u64,
}

impl SocketRow {
    /// The owner of the socket at `local` that is connected to `remote`, where this row describes that socket.
    pub fn owner(&self, local: SocketAddr, remote: SocketAddr) -> Option<SocketOwner> {
        let same = |a: SocketAddr, b: SocketAddr| canonical(a) == canonical(b);
        let end = (same(self.local, local) && same(self.remote, remote)).then(|| self.end())??;
        Some(SocketOwner { uid: self.uid, end })
    }

    /// `None` if there is no connection yet: a process that opens one from the same port now is not the one at the
    /// other end of ours.
    fn end(&self) -> Option<SocketHold> {
        const SYN_SENT: u8 = 2;
        const SYN_RECEIVED: u8 = 3;
        const FIN_WAIT1: u8 = 4;
        const FIN_WAIT2: u8 = 5;
        const CLOSE_WAIT: u8 = 8;
        const LAST_ACK: u8 = 9;
        const LISTEN: u8 = 10;
        const CLOSING: u8 = 11;
        const NEW_SYN_RECEIVED: u8 = 12;
        match self.state {
            SYN_SENT | SYN_RECEIVED | NEW_SYN_RECEIVED | LISTEN => None,
            _ if self.inode != 0 => Some(SocketHold::Held),
            FIN_WAIT1 | CLOSE_WAIT | LAST_ACK | CLOSING => Some(SocketHold::Closed),
            // Of most in this state the kernel keeps only the addresses, and says user 0.
            FIN_WAIT2 if self.uid != 0 => Some(SocketHold::Closed),
            _ => Some(SocketHold::Unknown),
        }
    }
}

/// Without flow and scope, IPv4 in IPv6 as IPv4: what two spellings of one address have in common.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
