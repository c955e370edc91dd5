//! The connected clients: what is known about each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_ingest::default_tags::DefaultTags;
use tokio::time::Instant;

use super::access::Access;
use super::places::ConnectionPlace;
use crate::http::asker::Asker;
use crate::slots::{JobTie, ProcessMark};

/// How often the log reports wrong tokens.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// What is known of the process at the other end of a connection.
#[derive(Debug, Default)]
pub struct GuestProcess {
    pub tags: DefaultTags,
    pub job: Option<JobTie>,
    pub mark: Option<ProcessMark>,
}

/// One connection.
#[derive(Debug)]
pub struct Guest {
    pub access: Access,
    /// `None` on the socket.
    pub peer: Option<SocketAddr>,
    /// The client that its requests are for.
    pub asker: Asker,
    /// What its samples get where they lack it.
    pub tags: DefaultTags,
    /// Where jobs share the server.
    pub job: Option<Arc<JobTie>>,
    /// The process itself.
    pub mark: Option<ProcessMark>,
    /// Something that it asked was let in.
    is_admitted: AtomicBool,
    place: Mutex<Option<ConnectionPlace>>,
}

impl Guest {
    pub fn new(access: Access, peer: Option<SocketAddr>, place: ConnectionPlace, asker: Asker) -> Self {
        let tags = DefaultTags::default();
        Self {
            access,
            peer,
            asker,
            tags,
            job: None,
            mark: None,
            is_admitted: AtomicBool::new(false),
            place: Mutex::new(Some(place)),
        }
    }

    pub fn with_process(self, process: GuestProcess) -> Self {
        Self { tags: process.tags, job: process.job.map(Arc::new), mark: process.mark, ..self }
    }

    /// It asked something that it may.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed)
            && let Some(place) = &*locked(&self.place)
        {
            place.admit();
        }
    }

    /// Gives its place to others: it has another one, which its protocol counts.
    pub fn leave_place(&self) {
        locked(&self.place).take();
    }

    /// Whether it comes from this machine.
    pub fn is_here(&self) -> bool {
        self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// When a stranger has been there for `limit` without asking anything that it may; never for others.
    pub async fn has_outstayed(&self, limit: Duration) {
        tokio::time::sleep(limit).await;
        if !matches!(self.access, Access::Stranger { .. }) || self.is_admitted.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs that a client tries tokens, without letting it fill the log.
#[derive(Debug, Default)]
pub struct WrongTokens {
    told: Mutex<Warnings>,
}

#[derive(Debug, Default)]
struct Warnings {
    last: Option<Instant>,
    untold: u64,
}

impl WrongTokens {
    pub fn tell(&self, guest: &Guest, path: &str) {
        let mut told = locked(&self.told);
        let now = Instant::now();
        if told.last.is_some_and(|last| now.duration_since(last) < TOLD_INTERVAL) {
            told.untold += 1;
            return;
        }
        let peer = guest.peer.map_or("the socket".to_owned(), |peer| peer.to_string());
        tracing::warn!(peer, path, others_since_last = told.untold, "a wrong token was refused");
        *told = Warnings { last: Some(now), untold: 0 };
    }
}
