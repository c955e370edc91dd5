//! Group commit: one fsync for all waiting batches, and at least one per interval.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::Error;

use super::flush::FlushScheduler;
use super::store::SampleStore;
use super::{Ack, WriteError};

#[derive(Debug)]
pub(super) struct Committer {
    interval: Duration,
    pending: Mutex<PendingSync>,
    changed: Condvar,
    /// The directory of the database was not there at the last fsync.
    pub removed: AtomicBool,
    pub syncs: AtomicU64,
    pub syncs_failed: AtomicU64,
}

#[derive(Debug, Default)]
struct PendingSync {
    /// Something was appended since the last fsync began.
    unsynced: bool,
    /// Callers that wait for the next fsync.
    waiters: Vec<Ack>,
    /// Nothing more will be appended.
    stopped: bool,
    /// The last fsync failed: the interval between attempts also holds for waiters.
    failing: bool,
}

impl Committer {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            pending: Mutex::default(),
            changed: Condvar::new(),
            removed: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            syncs_failed: AtomicU64::new(0),
        }
    }

    /// Something was appended; `waiter` wants to know when it is durable.
    pub fn appended(&self, waiter: Option<Ack>) {
        let mut pending = self.lock();
        let news = !pending.unsynced || waiter.is_some();
        pending.unsynced = true;
        pending.waiters.extend(waiter);
        if news {
            self.changed.notify_one();
        }
    }

    /// Whether the last fsync failed.
    pub fn is_failing(&self) -> bool {
        self.lock().failing
    }

    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Runs until stopped, and then syncs what is left.
    pub fn run(&self, store: &dyn SampleStore, flusher: &FlushScheduler) {
        while let Some(waiters) = self.next() {
            if !self.sync(store, waiters) {
                // What cannot be made durable in the WAL can still be flushed to a segment.
                flusher.wake();
            }
        }
    }

    /// Waits until an fsync is due, and returns its waiting callers; `None` when everything is done.
    fn next(&self) -> Option<Vec<Ack>> {
        let idle = |pending: &mut PendingSync| !pending.unsynced && !pending.stopped;
        let pending = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        // From here to the fsync at most one interval passes, so no acknowledged sample waits longer.
        let patient = |pending: &mut PendingSync| (pending.waiters.is_empty() || pending.failing) && !pending.stopped;
        let (mut pending, _) =
            self.changed.wait_timeout_while(pending, self.interval, patient).unwrap_or_else(PoisonError::into_inner);
        if pending.stopped && (!pending.unsynced || pending.failing) {
            // A last attempt after a failure is made by closing the database.
            pending.waiters.clear();
            return None;
        }
        pending.unsynced = false;
        Some(std::mem::take(&mut pending.waiters))
    }

    /// Whether that worked.
    fn sync(&self, store: &dyn SampleStore, waiters: Vec<Ack>) -> bool {
        let synced = store.sync();
        self.remember(&synced);
        let answer = synced.map_err(|error| WriteError::Engine(Arc::new(error)));
        for waiter in waiters {
            // The waiting caller may be gone; then the result is not needed.
            let _ = waiter.send(answer.clone());
        }
        answer.is_ok()
    }

    /// Says once that fsync fails, and once that it works again.
    fn remember(&self, synced: &telem_engine::Result<()>) {
        let mut pending = self.lock();
        self.removed.store(matches!(synced, Err(Error::Removed { .. })), Ordering::Relaxed);
        match synced {
            Ok(()) => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                if std::mem::take(&mut pending.failing) {
                    tracing::info!("samples are made durable again");
                }
            }
            Err(error) => {
                self.syncs_failed.fetch_add(1, Ordering::Relaxed);
                pending.unsynced = true;
                if !std::mem::replace(&mut pending.failing, true) {
                    tracing::error!(%error, "samples cannot be made durable; trying again");
                }
            }
        }
    }

    /// No code panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, PendingSync> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
