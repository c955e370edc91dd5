//! The tree of proxies: those that joined below this server and the parent of each, and where this server stands itself.
//! Children are given their places by [`pivot`](super::pivot), and by [`climb`](super::climb) this server gets its own.
//!
//! All children stand below the server that they ask, unless `--proxy-branches` says otherwise, and each address stands
//! once. A child that does not answer is lost until it does, and one that leaves is gone.

mod placement;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::{Durability, MetaChange, StateRecord};
use tokio::sync::Notify;

pub use self::placement::{TreeEntry, TreeShape, key_of};
use super::ProxyOptions;
use super::targets::TargetAddress;
use crate::state::State;

/// The record of all children that asked for a place.
const TREE: &str = "proxy.tree";
const ENTRIES: &str = "entries";
/// Most children.
pub const CHILDREN_MAX: usize = 10_000;

/// A server that polls this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poller {
    /// It is telem.
    Ours,
    /// It is Metric Proxy.
    Original,
}

/// Where this server stands in a tree.
#[derive(Clone, Debug)]
pub struct TreePlace {
    pub root: TargetAddress,
    pub parent: TargetAddress,
    /// How it is called there, as a part of a query.
    pub own: String,
    /// How often it is polled.
    pub period: Duration,
    /// The parent is an original, which is told what was counted since the join.
    pub is_below_original: bool,
}

/// The children that asked for a place here, and who polls this server.
pub struct ProxyTree {
    state: Arc<State>,
    shape: TreeShape,
    entries: Mutex<Vec<TreeEntry>>,
    /// When somebody polled us last, in milliseconds of a clock that never jumps.
    polled_ms: AtomicU64,
    /// Who did that is one of ours.
    is_polled_by_ours: AtomicBool,
    /// When it was another one; `u64::MAX` where it never was.
    polled_by_others_ms: AtomicU64,
    polled: Notify,
    /// Where this server stands, once it does.
    standing: Mutex<Option<TreePlace>>,
}

impl fmt::Debug for ProxyTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTree").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl ProxyTree {
    pub fn start(state: &Arc<State>, options: &ProxyOptions) -> Self {
        let snapshot = state.db.snapshot();
        let entries = snapshot.meta().record(TREE, ENTRIES).map_or_else(Vec::new, |text| {
            serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, "who stood below this server cannot be read"))
                .unwrap_or_default()
        });
        Self {
            state: Arc::clone(state),
            shape: options.shape,
            entries: Mutex::new(entries),
            polled_ms: AtomicU64::new(0),
            is_polled_by_ours: AtomicBool::new(false),
            polled_by_others_ms: AtomicU64::new(u64::MAX),
            polled: Notify::new(),
            standing: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TreeEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Children, in the order in which they came.
    pub fn entries(&self) -> Vec<TreeEntry> {
        self.lock().clone()
    }

    fn keep(&self, entries: &[TreeEntry]) {
        if self.state.writer.is_none() {
            return;
        }
        let text = serde_json::to_string(entries).unwrap_or_default();
        let record = StateRecord::new(TREE, ENTRIES, text);
        if let Err(error) = self.state.db.put_meta(MetaChange::Record(record), Durability::Buffered) {
            tracing::warn!(%error, "who stands below this server will not outlive this process");
        }
    }

    /// Somebody polls us.
    pub fn note_poll(&self, now: Duration, poller: Poller) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.is_polled_by_ours.store(poller == Poller::Ours, Ordering::Relaxed);
        if poller == Poller::Original {
            self.polled_by_others_ms.store(now_ms, Ordering::Relaxed);
        }
        self.polled_ms.store(now_ms, Ordering::Relaxed);
        self.polled.notify_waiters();
    }

    /// It was asked for a poll, which is waited for from now on.
    pub fn note_join(&self, now: Duration) {
        self.polled_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether one that is none of ours polled within this time: an original, or whoever else asks for all jobs.
    pub fn is_polled_by_others(&self, now: Duration, within: Duration) -> bool {
        match self.polled_by_others_ms.load(Ordering::Relaxed) {
            u64::MAX => false,
            polled_ms => now.saturating_sub(Duration::from_millis(polled_ms)) < within,
        }
    }

    /// Whether anybody polled within this time, or was asked to.
    pub fn is_polled(&self, now: Duration, within: Duration) -> bool {
        let polled_at = self.polled_at();
        !polled_at.is_zero() && now.saturating_sub(polled_at) < within
    }

    /// Where this server stands from now on.
    pub fn stand(&self, standing: Option<TreePlace>) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Where this server stands.
    pub fn standing(&self) -> Option<TreePlace> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When somebody polled it last, or was asked to; 0 where nobody did.
    pub fn polled_at(&self) -> Duration {
        Duration::from_millis(self.polled_ms.load(Ordering::Relaxed))
    }

    /// Whether the last one that polled is one of ours.
    pub fn is_polled_by_ours(&self) -> bool {
        self.is_polled_by_ours.load(Ordering::Relaxed)
    }

    /// Until somebody polled at `time` or later.
    pub async fn polled_since(&self, time: Duration) {
        loop {
            let polled = self.polled.notified();
            tokio::pin!(polled);
            // From here on it is heard.
            polled.as_mut().enable();
            if self.polled_at() > time {
                return;
            }
            polled.await;
        }
    }

    /// The parent of a child that comes; `None` where that is this server.
    ///
    /// # Errors
    /// When there are [`CHILDREN_MAX`].
    pub fn place(&self, from: &str) -> Result<Option<String>, String> {
        let mut entries = self.lock();
        if entries.len() >= CHILDREN_MAX && !entries.iter().any(|entry| entry.key() == key_of(from)) {
            return Err(format!("{CHILDREN_MAX} proxies stand below this one; no more are taken"));
        }
        let before = entries.clone();
        let parent = placement::place(&mut entries, from, self.shape);
        if *entries != before {
            self.keep(&entries);
        }
        Ok(parent)
    }

    /// A child does not answer.
    pub fn lose(&self, key: &str) {
        self.mark(key, true);
    }

    /// It answers.
    pub fn find_again(&self, key: &str) {
        self.mark(key, false);
    }

    fn mark(&self, key: &str, is_lost: bool) {
        let mut entries = self.lock();
        let Some(entry) = entries.iter_mut().find(|entry| entry.key() == key) else { return };
        if entry.is_lost != is_lost {
            entry.is_lost = is_lost;
            self.keep(&entries);
        }
    }

    /// A child is none any more; whether it was one.
    pub fn remove(&self, key: &str) -> bool {
        let mut entries = self.lock();
        let was_there = placement::remove(&mut entries, key);
        if was_there {
            self.keep(&entries);
        }
        was_there
    }
}
