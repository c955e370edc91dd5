//! The connected clients: the places that connections take, and what is known about each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_ingest::default_tags::DefaultTags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::Access;
use crate::http::asker::Asker;
use crate::slots::{JobTie, ProcessMark};

/// How often the log reports wrong tokens.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// One of this many places is kept for the owner and the socket.
pub(crate) const KEPT_SHARE: usize = 32;
/// Most places that are kept.
pub(crate) const KEPT_MAX: usize = 16;
/// Strangers may take one of this many places, and each source of them one of this many of those.
pub(crate) const STRANGERS_SHARE: usize = 4;

/// The kind of client that takes a place. It must be known before a place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceFor {
    /// A client of the Unix socket.
    Socket,
    /// A process of our own user, or of root.
    Owner,
    /// A process of a user that was allowed by name.
    Allowed,
    /// A client that must show the token, and has not done so yet.
    Stranger(StrangerSource),
}

/// Where strangers come from, as far as that can be known: no source can take the places of all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StrangerSource {
    User(u32),
    Address(IpAddr),
    Unknown,
}

/// The places for connections.
///
/// Strangers may take a quarter of them, a quarter of that for each source. A few are kept for the owner, and half of
/// these for the Unix socket: connections that a job opens by mistake must not prevent queries about its state.
#[derive(Debug)]
pub struct ConnectionPlaces {
    common: Arc<Semaphore>,
    owner: Arc<Semaphore>,
    socket: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    of_sources: Arc<Mutex<HashMap<StrangerSource, usize>>>,
    of_one_source_max: usize,
}

impl ConnectionPlaces {
    /// `connections_max` places in all.
    pub fn new(connections_max: usize) -> Self {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        let kept = (connections_max / KEPT_SHARE).min(KEPT_MAX);
        let of_socket = kept / 2;
        let strangers = (connections_max / STRANGERS_SHARE).max(1);
        let places = |count: usize| Arc::new(Semaphore::new(count));
        Self {
            common: places(connections_max - kept),
            owner: places(kept - of_socket),
            socket: places(of_socket),
            strangers: places(strangers),
            of_sources: Arc::default(),
            of_one_source_max: (strangers / STRANGERS_SHARE).max(1),
        }
    }

    /// A place, if there is one for such a connection.
    pub fn take(&self, whom: PlaceFor) -> Option<ConnectionPlace> {
        let of = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let (permit, stranger) = match whom {
            PlaceFor::Socket => (of(&self.common).or_else(|| of(&self.owner)).or_else(|| of(&self.socket))?, None),
            PlaceFor::Owner => (of(&self.common).or_else(|| of(&self.owner))?, None),
            PlaceFor::Allowed => (of(&self.common)?, None),
            PlaceFor::Stranger(source) => {
                let share = self.share_of(source)?;
                let stranger = StrangersPlace { _permit: of(&self.strangers)?, _share: share };
                (of(&self.common)?, Some(stranger))
            }
        };
        Some(ConnectionPlace { _permit: permit, stranger: Mutex::new(stranger) })
    }

    fn share_of(&self, source: StrangerSource) -> Option<SourceShare> {
        let mut of_sources = locked(&self.of_sources);
        let taken = of_sources.entry(source).or_default();
        if *taken >= self.of_one_source_max {
            return None;
        }
        *taken += 1;
        Some(SourceShare { source, of_sources: Arc::clone(&self.of_sources) })
    }
}

/// The place of one connection; given back when it is dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
    /// Released once the token was shown: the client is no stranger then.
    stranger: Mutex<Option<StrangersPlace>>,
}

#[derive(Debug)]
struct StrangersPlace {
    _permit: OwnedSemaphorePermit,
    _share: SourceShare,
}

/// One of the places that a source of strangers has taken.
#[derive(Debug)]
struct SourceShare {
    source: StrangerSource,
    of_sources: Arc<Mutex<HashMap<StrangerSource, usize>>>,
}

impl Drop for SourceShare {
    fn drop(&mut self) {
        let mut of_sources = locked(&self.of_sources);
        if let Entry::Occupied(mut taken) = of_sources.entry(self.source) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

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
    /// Whom its requests are for.
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
            locked(&place.stranger).take();
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
