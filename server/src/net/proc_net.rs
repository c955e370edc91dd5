//! Who holds the other end of a loopback connection: `/proc/net/tcp` and `/proc/net/tcp6`, read and understood.
//!
//! The kernel's tables name for every socket of this network namespace its two addresses, its state, the user it
//! belongs to and its inode. A socket that nobody holds any more has inode 0. While what it sent is on its way, newer
//! kernels still name its user; older ones, and every kernel of one that only waits (TIME_WAIT), name user 0, which
//! must not be taken for root.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Tables are read up to here: some 400,000 sockets.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// From this version on the kernel is known to name the user of a socket that its process closed: seen on 6.18, with
/// clients of another user.
const KERNEL_KEEPS_USERS: (u32, u32) = (6, 18);

/// What the table says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub end: End,
}

/// Whether anybody holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Held,
    /// Its process closed it, and the kernel still knows whose it was.
    Closed,
    /// Nobody holds it, and nobody knows who did: the uid says nothing.
    Unknown,
}

/// The owner of the socket at `local` that is connected to `remote`; `None` when the tables do not show it.
///
/// # Errors
/// When neither table can be read.
pub fn owner_of(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Owner>> {
    let owner = in_either_table(local, remote)?;
    // User 0 is what an older kernel says of everybody's.
    let unsure = |owner: &Owner| owner.end == End::Closed && owner.uid == 0 && !kernel_keeps_users();
    Ok(owner.map(|owner| if unsure(&owner) { Owner { end: End::Unknown, ..owner } } else { owner }))
}

fn in_either_table(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Owner>> {
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

/// Whether this kernel is new enough; one that does not say is not.
fn kernel_keeps_users() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|version| version >= KERNEL_KEEPS_USERS)
}

/// Of `6.18.44-fc` the first two numbers.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
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
        let state = u8::from_str_radix(fields.next()?, 16).ok()?;
        let mut fields = fields.skip(3);
        let uid = fields.next()?.parse().ok()?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        Some(Row { local, remote, owner: Owner { uid, end: end(state, uid, inode)? } })
    }
}

/// States of TCP as the kernel numbers them. `None` where there is no connection yet: whoever opens one from the
/// same port now is not who holds the other end of ours.
fn end(state: u8, uid: u32, inode: u64) -> Option<End> {
    const SYN_SENT: u8 = 2;
    const SYN_RECEIVED: u8 = 3;
    const FIN_WAIT1: u8 = 4;
    const FIN_WAIT2: u8 = 5;
    const CLOSE_WAIT: u8 = 8;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    const NEW_SYN_RECEIVED: u8 = 12;
    match state {
        SYN_SENT | SYN_RECEIVED | NEW_SYN_RECEIVED => None,
        _ if inode != 0 => Some(End::Held),
        FIN_WAIT1 | CLOSE_WAIT | LAST_ACK | CLOSING => Some(End::Closed),
        // Of most in this state the kernel keeps only the addresses, and says user 0.
        FIN_WAIT2 if uid != 0 => Some(End::Closed),
        _ => Some(End::Unknown),
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
