//! The places that connections take: how many there are, and how many of them are kept for certain clients.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

impl ConnectionPlace {
    /// Its client is no stranger any more.
    pub fn admit(&self) {
        locked(&self.stranger).take();
    }
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
