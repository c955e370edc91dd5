//! Datagrams of senders on this machine. A datagram carries no token, so its sender is identified by the port from
//! which it came.
//!
//! The kernel's tables name the user of that port. They are read at most once a second for each sender; a port that
//! passes to another user within that second keeps its rights for that time. A sender that is gone before the tables
//! are read has no identity, as on the common port.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;

use super::access::{Access, Rules};
use super::proc_net;
use super::socket_row::{SocketHold, SocketOwner};
use crate::protocol::DatagramService;

/// Largest datagram that UDP has.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// How long the identity of a sender is remembered.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Most senders that are remembered; with more all are asked about again.
pub(crate) const SENDERS_MAX: usize = 1_024;
/// How often the log reports refused datagrams.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);
/// Most datagrams that are still taken when the server stops: more than a socket holds by default.
pub(crate) const LAST_DATAGRAMS_MAX: usize = 4_096;
/// How long reading rests after it failed.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// The senders that are admitted.
#[derive(Debug)]
pub struct Admission {
    rules: Rules,
    senders: HashMap<SocketAddr, (Instant, bool)>,
    told: Option<Instant>,
    refused: u64,
}

impl Admission {
    pub fn new(rules: Rules) -> Self {
        Self { rules, senders: HashMap::new(), told: None, refused: 0 }
    }

    async fn admits(&mut self, sender: SocketAddr) -> bool {
        let now = Instant::now();
        if let Some((asked, admitted)) = self.senders.get(&sender)
            && now.duration_since(*asked) < KNOWN_FOR
        {
            return *admitted;
        }
        let looked = tokio::task::spawn_blocking(move || proc_net::users_of_udp(sender)).await;
        let admitted = matches!(&looked, Ok(Ok(users)) if self.are_admitted(users));
        if self.senders.len() >= SENDERS_MAX {
            self.senders.clear();
        }
        self.senders.insert(sender, (now, admitted));
        admitted
    }

    /// Whether all of them may send: several sockets may share a port, and the kernel does not say which of them sent.
    pub(super) fn are_admitted(&self, users: &[u32]) -> bool {
        let may = |uid: &u32| {
            let owner = SocketOwner { uid: *uid, end: SocketHold::Held };
            matches!(self.rules.of_owner(Some(owner)), Access::Loopback { .. })
        };
        !users.is_empty() && users.iter().all(may)
    }

    fn refuse(&mut self, sender: SocketAddr) {
        self.refused += 1;
        let now = Instant::now();
        if self.told.is_none_or(|told| now.duration_since(told) >= TOLD_INTERVAL) {
            self.told = Some(now);
            tracing::warn!(%sender, refused = self.refused, "datagrams of a sender without permission are dropped");
        }
    }
}

/// Hands datagrams to `service` until the server stops, and then those that came before.
pub async fn receive(
    socket: UdpSocket,
    service: Arc<dyn DatagramService>,
    mut admission: Admission,
    mut stopped: watch::Receiver<bool>,
) {
    let mut room = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let came = tokio::select! {
            came = socket.recv_from(&mut room) => came,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        match came {
            Ok((bytes, sender)) => take(&*service, &mut admission, &room[..bytes], sender).await,
            Err(error) => {
                tracing::warn!(%error, "datagrams cannot be read");
                tokio::time::sleep(READ_PAUSE).await;
            }
        }
    }
    // Datagrams that tokio does not know of yet count too.
    let Ok(socket) = socket.into_std() else { return };
    for _ in 0..LAST_DATAGRAMS_MAX {
        let Ok((bytes, sender)) = socket.recv_from(&mut room) else { break };
        take(&*service, &mut admission, &room[..bytes], sender).await;
    }
}

async fn take(service: &dyn DatagramService, admission: &mut Admission, datagram: &[u8], sender: SocketAddr) {
    if admission.admits(sender).await {
        service.receive(datagram).await;
    } else {
        admission.refuse(sender);
    }
}
