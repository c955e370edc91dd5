//! Who is connected: the places that connections take, and what is remembered of each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telem_ingest::accept::default_tags::DefaultTags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::Access;

/// How often it is told that wrong tokens come.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// Strangers (who need the token) may take a quarter of the places, so that they cannot keep the owner out.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Places {
    pub fn new(connections_max: usize) -> Self {
        let place = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { all: place(connections_max), strangers: place(connections_max / 4) }
    }

    pub fn any(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_owned().ok()
    }

    pub fn strangers(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.strangers).try_acquire_owned().ok()
    }
}

/// One connection.
#[derive(Debug)]
pub struct Guest {
    pub access: Access,
    /// `None` on the socket.
    pub peer: Option<SocketAddr>,
    /// What its samples get where they lack it.
    pub tags: DefaultTags,
    /// Something that it asked was let in.
    is_admitted: AtomicBool,
    _place: OwnedSemaphorePermit,
    /// Given back once it has shown the token: it is no stranger then.
    strangers_place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Guest {
    pub fn new(
        access: Access,
        peer: Option<SocketAddr>,
        place: OwnedSemaphorePermit,
        strangers_place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let strangers_place = Mutex::new(strangers_place);
        let tags = DefaultTags::default();
        Self { access, peer, tags, is_admitted: AtomicBool::new(false), _place: place, strangers_place }
    }

    pub fn with_tags(self, tags: DefaultTags) -> Self {
        Self { tags, ..self }
    }

    /// It asked something that it may.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed) {
            self.strangers_place.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
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

/// Says that somebody tries tokens, and does not let him fill the log.
#[derive(Debug, Default)]
pub struct WrongTokens {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl WrongTokens {
    pub fn tell(&self, guest: &Guest, path: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.last.is_some_and(|last| now.duration_since(last) < TOLD_INTERVAL) {
            told.untold += 1;
            return;
        }
        let peer = guest.peer.map_or("the socket".to_owned(), |peer| peer.to_string());
        tracing::warn!(peer, path, others_since_last = told.untold, "a wrong token was refused");
        *told = Told { last: Some(now), untold: 0 };
    }
}
