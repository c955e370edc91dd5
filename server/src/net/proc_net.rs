//! Who holds the other end of a loopback connection: `/proc/net/tcp` and `/proc/net/tcp6`, read and understood.
//!
//! The kernel's tables name for every socket of this network namespace its two addresses, the user it belongs
//! to and its inode. A socket that nobody holds any more (TIME_WAIT, an orphan) has inode 0 and user 0, which
//! must not be taken for root.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Tables are read up to here: some 400,000 sockets.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// What the table says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// 0 when no process holds the socket.
    pub inode: u64,
}

/// The owner of the socket at `local` that is connected to `remote`; `None` when the tables do not show it.
///
/// # Errors
/// When neither table can be read.
pub fn owner_of(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Owner>> {
    // A client that speaks IPv4 through an IPv6 socket stands in the second table, with mapped addresses.
    let v4 = search("/proc/net/tcp", local, remote);
    if let Ok(Some(owner)) = v4 {
        return Ok(Some(owner));
    }
    match search("/proc/net/tcp6", local, remote) {
        Ok(found) => Ok(found),
        Err(error) => v4.map_err(|_| error),
    }
}

fn search(path: &str, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Owner>> {
    find(BufReader::new(File::open(path)?.take(TABLE_BYTES_MAX)), local, remote)
}

/// Looks for one connection in the text of a table.
///
/// # Errors
/// When `table` cannot be read. Lines that are no rows are passed over.
pub fn find(table: impl BufRead, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Owner>> {
    let (local, remote) = (canonical(local), canonical(remote));
    for line in table.lines() {
        if let Some(row) = Row::parse(&line?)
            && row.local == local
            && row.remote == remote
        {
            return Ok(Some(row.owner));
        }
    }
    Ok(None)
}

struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    owner: Owner,
}

impl Row {
    /// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...`
    fn parse(line: &str) -> Option<Row> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = address(fields.next()?)?;
        let remote = address(fields.next()?)?;
        let mut fields = fields.skip(4);
        let uid = fields.next()?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Row { local, remote, owner: Owner { uid, inode } })
    }
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
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Without flow and scope, IPv4 in IPv6 as IPv4: what two spellings of one address have in common.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
