//! The client that waits for an answer, as far as long work needs to know it: whether it still waits, and that one
//! connection does not request much of that work at once.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Requests carry it whose client showed the token.
#[derive(Clone, Copy, Debug)]
pub struct ShownToken;

/// A node sends it to its head with the request of a client that showed no token: the token is the node's then.
pub const NO_TOKEN: &str = "x-telem-no-token";
/// A node sends it to its head: where its client asked it, and what stood before the path.
pub const ASKED_AT: &str = "x-telem-asked-at";

/// What stood before the path of a request whose path begins with the token. Never printed by `{:?}`.
#[derive(Clone)]
pub struct PathPrefix(pub std::sync::Arc<str>);

impl Debug for PathPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathPrefix(...)")
    }
}

/// Whether the client is still at the other end of a connection.
pub trait Presence: Debug + Send + Sync {
    /// When the client is gone, or has said that it sends nothing more: to a server of HTTP that is the same.
    fn gone(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The client of a connection. Every request carries the one that it came from; clones are the same client.
#[derive(Clone, Debug)]
pub struct Asker {
    /// `None` where there is no connection, as in tests.
    presence: Option<Arc<dyn Presence>>,
    walk: Arc<Semaphore>,
}

impl Asker {
    pub fn new(presence: Option<Arc<dyn Presence>>) -> Self {
        Self { presence, walk: Arc::new(Semaphore::new(1)) }
    }

    /// The client that sent this request.
    pub fn of(request: &Request) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(|| Self::new(None))
    }

    /// When it is gone. A client that has sent more requests already is not noticed by their reader.
    pub async fn gone(&self) {
        match &self.presence {
            Some(presence) => presence.gone().await,
            None => std::future::pending().await,
        }
    }

    /// Its turn: one walk of a connection at a time.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.walk).acquire_owned().await
    }
}
