//! Finds the owner of the client end of a loopback connection.
//!
//! The kernel is asked about this one connection ([`sock_diag`](super::sock_diag)). That costs the same however many
//! sockets the machine has, and is done before the client can be gone. If that call is not permitted (gVisor, a filter
//! of system calls), the kernel's tables are read ([`proc_net`](super::proc_net)), which takes longer the more sockets
//! there are. Nothing is cached from one connection to the next: a port may have another owner a moment later.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::proc_net;
use super::sock_diag::SockDiag;
use super::socket_row::{SocketHold, SocketOwner};

/// From this version on the kernel is known to name the user of a socket that its process closed: seen on 6.18, with
/// clients of another user.
const KERNEL_KEEPS_USERS: (u32, u32) = (6, 18);
/// Readers of the tables at once: each costs a processor some milliseconds.
pub(crate) const TABLE_READERS_MAX: usize = 2;
/// The kernel's tables can miss a row while they change; this often they are read at most.
const TABLE_LOOKS_MAX: usize = 3;

/// Asks the kernel for owners.
#[derive(Debug)]
pub struct OwnerLookup {
    /// `None` where the tables are all there is.
    diag: Option<SockDiag>,
    table_readers: Arc<Semaphore>,
    kernel_keeps_users: bool,
}

impl OwnerLookup {
    /// For the connections of a socket that listens at `listening`.
    pub fn new(listening: SocketAddr) -> Self {
        let diag = SockDiag::open(listening);
        if let Err(error) = &diag {
            tracing::debug!(%error, "sock_diag is not available; /proc/net/tcp is read for every connection");
        }
        Self { diag: diag.ok(), ..Self::of_tables() }
    }

    /// Only reads tables.
    pub fn of_tables() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            diag: None,
            table_readers: Arc::new(Semaphore::new(TABLE_READERS_MAX)),
            // One that does not say is not new enough.
            kernel_keeps_users: version(&release).is_some_and(|version| version >= KERNEL_KEEPS_USERS),
        }
    }

    /// The owner of the socket at `local` that is connected to `remote`, where that takes no time: some microseconds.
    /// No owner, if the kernel has no such connection.
    ///
    /// # Errors
    /// When the kernel may not be asked; its tables say more.
    pub fn at_once(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
        let diag = self.diag.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let row = diag.find(local, remote)?;
        Ok(row.and_then(|row| row.owner(local, remote)).map(|owner| self.known(owner)))
    }

    /// The same out of the tables, for which few are read at a time and the others wait.
    ///
    /// # Errors
    /// When neither table can be read.
    pub async fn in_tables(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
        let place = Arc::clone(&self.table_readers).acquire_owned().await.map_err(io::Error::other)?;
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            look(local, remote)
        });
        let owner = reading.await.map_err(io::Error::other)??;
        Ok(owner.map(|owner| self.known(owner)))
    }

    /// An older kernel reports user 0 for every closed socket.
    fn known(&self, owner: SocketOwner) -> SocketOwner {
        let unsure = owner.end == SocketHold::Closed && owner.uid == 0 && !self.kernel_keeps_users;
        if unsure { SocketOwner { end: SocketHold::Unknown, ..owner } } else { owner }
    }
}

fn look(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    for _ in 1..TABLE_LOOKS_MAX {
        if let Some(owner) = proc_net::owner_of(local, remote)? {
            return Ok(Some(owner));
        }
    }
    proc_net::owner_of(local, remote)
}

/// Of `6.18.44-fc` the first two numbers.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
