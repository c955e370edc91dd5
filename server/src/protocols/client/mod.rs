//! The client protocol: the frames of docs/format/client.md, over the Unix socket.
//!
//! A connection is one [`conversation`], which reads frames into its [`inbox`] and answers through its [`outbox`]. Its
//! [`series`] are numbers, so that a sample costs no search; batches go to the one writer, and nothing is read while that
//! has no room. What HTTP answers too is asked of the same handlers ([`ask`]): notes, settings, and SQL, whose rows become
//! columns in [`rows`]. What frames say of metrics, HTTP may say too ([`describe`]).

mod ask;
pub(crate) mod bounds;
mod conversation;
mod describe;
mod inbox;
mod outbox;
mod refusals;
mod rows;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::post;
use futures::future::BoxFuture;
use telem_ingest::decode::frames::FrameError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::bounds::ClientLimits;
use self::inbox::FrameMemory;
use crate::memory::MemoryBudget;
use crate::protocol::{ByteStream, FrameClient, FrameRefusal, FrameService, Protocol};
use crate::state::State;

/// What REFUSED and GOODBYE are about, by their numbers in the page of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    Version = 1,
    Shape = 2,
    Name = 3,
    ManySeries = 4,
    Time = 5,
    UnknownSeries = 6,
    NotWritten = 7,
    Stopping = 8,
    ManyConnections = 9,
    NotTaken = 10,
    Slow = 11,
}

/// Why a connection ends that we end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    code: RefusalCode,
    reason: String,
}

impl Farewell {
    fn new(code: RefusalCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl From<FrameError> for Farewell {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::Version { .. } => RefusalCode::Version,
            _ => RefusalCode::Shape,
        };
        Self::new(code, error.to_string())
    }
}

/// The client protocol, and what its connections share.
#[derive(Debug)]
pub struct ClientProtocol {
    state: Arc<State>,
    limits: ClientLimits,
    places: Arc<Semaphore>,
    frames: FrameMemory,
    names: MemoryBudget,
    /// Gives connections numbers whose processes are not known.
    connections: AtomicU64,
}

impl ClientProtocol {
    pub fn new(state: Arc<State>, limits: ClientLimits) -> Self {
        let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let frames = FrameMemory::new(limits.frames_bytes_max);
        let names = MemoryBudget::new(limits.names_bytes_max);
        Self { state, limits, places, frames, names, connections: AtomicU64::new(0) }
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    fn connection_number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    fn no_place(&self) -> Farewell {
        let most = self.limits.connections_max;
        let reason = format!("{most} connections of clients are open, or too many of all; close some or try again");
        Farewell::new(RefusalCode::ManyConnections, reason)
    }
}

impl Protocol for ClientProtocol {
    fn routes(self: Arc<Self>) -> Router {
        Router::new().route("/api/describe", post(describe::take)).with_state(Arc::clone(&self.state))
    }

    fn frames(self: Arc<Self>) -> Option<Arc<dyn FrameService>> {
        Some(self)
    }
}

impl FrameService for ClientProtocol {
    fn converse(&self, client: FrameClient) -> BoxFuture<'_, ()> {
        match self.place() {
            Some(place) => Box::pin(conversation::hold(self, client, place)),
            None => Box::pin(conversation::leave(client.stream, self.no_place())),
        }
    }

    fn refuse<'a>(&'a self, stream: Box<dyn ByteStream>, why: FrameRefusal<'a>) -> BoxFuture<'a, ()> {
        let farewell = match why {
            FrameRefusal::TooManyConnections => self.no_place(),
            FrameRefusal::OverTcp => {
                let reason = "the client protocol is spoken over the Unix socket of the service alone, which its \
                              connection file names; over TCP send HTTP";
                Farewell::new(RefusalCode::Shape, reason)
            }
            FrameRefusal::Stranger(reason) => {
                let reason = format!("a token is needed because {reason}, and frames carry none; send HTTP");
                Farewell::new(RefusalCode::Shape, reason)
            }
        };
        Box::pin(conversation::leave(stream, farewell))
    }
}
