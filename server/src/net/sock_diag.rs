//! Asks the kernel about one connection over netlink (sock_diag(7)). The kernel looks the connection up as it would for
//! a packet, so the cost does not grow with the number of sockets.
//!
//! The kernel answers before the request call has returned, so nothing ever waits. The answer itself describes the
//! socket that was found: if there is no such connection, the kernel may return the socket that listens there.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use super::socket_row::SocketRow;

/// Numbers of the kernel's interface (linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h), the same on every machine.
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const ENOENT: i32 = 2;
/// The interface of loopback, in every network namespace. A client may have bound its socket to it.
const LOOPBACK_INDEX: u32 = 1;
/// Any generation of a socket.
const NO_COOKIE: [u8; 8] = [0xFF; 8];

/// Of a message: its length, type, flags, number and sender.
const HEAD_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEAD_BYTES + 56;
/// Of a description of a socket, up to its inode; what follows is optional.
const ROW_BYTES: usize = 72;
/// Room for a description with all that the kernel adds unasked.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Answers to questions that were given up, of which there should be none.
const STALE_ANSWERS_MAX: usize = 8;

/// An open way to ask.
#[derive(Debug)]
pub struct SockDiag(Mutex<Netlink>);

#[derive(Debug)]
struct Netlink {
    socket: Socket,
    /// Of the last question. Begins anywhere: no other process can answer in the kernel's place.
    number: u32,
}

impl SockDiag {
    /// Opens a way and tries it out on the socket that listens at `listening`. A kernel that lacks the part which
    /// knows TCP answers as if there were no sockets.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn open(listening: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
        socket.set_nonblocking(true)?;
        let number = getrandom::u32().map_err(io::Error::other)?;
        let opened = Self(Mutex::new(Netlink { socket, number }));
        let nobody = match listening {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        match opened.find(listening, nobody)? {
            Some(row) if row.local.port() == listening.port() => Ok(opened),
            _ => Err(io::Error::other("it does not know the socket that listens")),
        }
    }

    /// The socket at `local` that is connected to `remote`, or another one that would be given what comes from there.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketRow>> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        line.number = line.number.wrapping_add(1);
        let number = line.number;
        line.socket.send(&question(number, local, remote))?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        for _ in 0..=STALE_ANSWERS_MAX {
            let bytes = line.socket.read(&mut answer)?;
            if let Some(found) = understood(number, &answer[..bytes]) {
                return found;
            }
        }
        Err(io::Error::other("it answers other questions"))
    }
}

fn question(number: u32, local: SocketAddr, remote: SocketAddr) -> [u8; QUESTION_BYTES] {
    // Two ends of one connection are of one family; IPv4 in IPv6 is found as IPv4.
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = if local_ip.is_ipv4() { AF_INET } else { AF_INET6 };
    let parts: [&[u8]; 13] = [
        &(QUESTION_BYTES as u32).to_ne_bytes(),
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &NLM_F_REQUEST.to_ne_bytes(),
        &number.to_ne_bytes(),
        // To the kernel.
        &[0; 4],
        &[family, IPPROTO_TCP, 0, 0],
        // Of the states none is excluded.
        &u32::MAX.to_ne_bytes(),
        &local.port().to_be_bytes(),
        &remote.port().to_be_bytes(),
        &in_16_bytes(local_ip),
        &in_16_bytes(remote_ip),
        &LOOPBACK_INDEX.to_ne_bytes(),
        &NO_COOKIE,
    ];
    let mut question = [0; QUESTION_BYTES];
    let mut rest = question.as_mut_slice();
    for part in parts {
        let (here, after) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = after;
    }
    question
}

fn in_16_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// `None` if this is not an answer to that request.
fn understood(number: u32, answer: &[u8]) -> Option<io::Result<Option<SocketRow>>> {
    let (kind, answered) = (u16_at(answer, 4)?, u32_at(answer, 8)?);
    let body = answer.get(HEAD_BYTES..)?;
    if answered != number {
        return None;
    }
    match kind {
        SOCK_DIAG_BY_FAMILY => Some(match row(body) {
            Some(row) => Ok(Some(row)),
            None => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }),
        NLMSG_ERROR => match i32::from_ne_bytes(array_at(body, 0)?).wrapping_neg() {
            ENOENT => Some(Ok(None)),
            code => Some(Err(io::Error::from_raw_os_error(code))),
        },
        _ => None,
    }
}

/// What the kernel says of a socket, after the head of its message.
pub fn row(body: &[u8]) -> Option<SocketRow> {
    let body = body.get(..ROW_BYTES)?;
    let (family, state) = (body[0], body[1]);
    let ip = |at: usize| {
        Some(match family {
            AF_INET => IpAddr::V4(Ipv4Addr::from(array_at::<4>(body, at)?)),
            AF_INET6 => IpAddr::V6(Ipv6Addr::from(array_at::<16>(body, at)?)),
            _ => return None,
        })
    };
    let port = |at: usize| array_at(body, at).map(u16::from_be_bytes);
    Some(SocketRow {
        local: SocketAddr::new(ip(8)?, port(4)?),
        remote: SocketAddr::new(ip(24)?, port(6)?),
        state,
        uid: u32_at(body, 64)?,
        inode: u32_at(body, 68)?.into(),
    })
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}
