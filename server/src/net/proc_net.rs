//! Finds the owner of the other end of a loopback connection in `/proc/net/tcp` and `/proc/net/tcp6`.
//!
//! For every socket of this network namespace the kernel's tables list its two addresses, its state, its user and its
//! inode. A socket that no process holds any more has inode 0. While data that it sent is on its way, newer kernels
//! still name its user. Older kernels, and every kernel for a socket that only waits (TIME_WAIT), name user 0, which
//! must not be taken for root.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::socket_row::{SocketOwner, SocketRow};

/// Tables are read up to here: some 400,000 sockets.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// The owner of the socket at `local` that is connected to `remote`; `None` when the tables do not show it.
///
/// # Errors
/// When neither table can be read.
pub fn owner_of(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    // A client that uses IPv4 through an IPv6 socket is in the second table, with mapped addresses.
    let v4 = search("/proc/net/tcp", local, remote);
    if let Ok(Some(owner)) = v4 {
        return Ok(Some(owner));
    }
    match search("/proc/net/tcp6", local, remote) {
        Ok(found) => Ok(found),
        Err(error) => v4.map_err(|_| error),
    }
}

/// The users of the sockets that a datagram from `sender` may have come from: those of its port, at its address or at
/// all of them.
///
/// # Errors
/// When neither table can be read.
pub fn users_of_udp(sender: SocketAddr) -> io::Result<Vec<u32>> {
    let (v4, v6) = (users("/proc/net/udp", sender), users("/proc/net/udp6", sender));
    match (v4, v6) {
        (Err(error), Err(_)) => Err(error),
        (v4, v6) => Ok(v4.into_iter().chain(v6).flatten().collect()),
    }
}

fn users(path: &str, sender: SocketAddr) -> io::Result<Vec<u32>> {
    let mut users = Vec::new();
    for line in BufReader::new(File::open(path)?.take(TABLE_BYTES_MAX)).lines() {
        let Some(row) = row(&line?) else { continue };
        let ip = row.local.ip().to_canonical();
        let is_there = ip.is_unspecified() || ip == sender.ip().to_canonical();
        if row.local.port() == sender.port() && is_there {
            users.push(row.uid);
        }
    }
    Ok(users)
}

fn search(path: &str, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    find(BufReader::new(File::open(path)?.take(TABLE_BYTES_MAX)), local, remote)
}

/// Looks for one connection in the text of a table.
///
/// # Errors
/// When `table` cannot be read. Lines that are not rows are skipped.
pub fn find(table: impl BufRead, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    for line in table.lines() {
        if let Some(owner) = row(&line?).and_then(|row| row.owner(local, remote)) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...`
fn row(line: &str) -> Option<SocketRow> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = address(fields.next()?)?;
    let remote = address(fields.next()?)?;
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let mut fields = fields.skip(3);
    let uid = fields.next()?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(SocketRow { local, remote, state, uid, inode })
}

/// `0100007F:1092`: 32-bit words of the address as this machine's integers, a colon, the port.
fn address(field: &str) -> Option<SocketAddr> {
    let (ip, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}
