//! Flushes when the database says that a flush is due; after a failure it retries at growing intervals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::WriterOptions;
use super::store::SampleStore;
use crate::own_thread;

#[derive(Debug)]
pub(super) struct FlushScheduler {
    wait_max: Duration,
    retry_first: Duration,
    retry_max: Duration,
    give_back: fn(),
    wanted: Mutex<FlushRequest>,
    changed: Condvar,
    ended: Condvar,
    pub flushes: AtomicU64,
    pub flushes_failed: AtomicU64,
}

#[derive(Debug, Default)]
struct FlushRequest {
    flush: bool,
    stopped: bool,
    /// The last flush failed: waiting for the next one is pointless.
    failing: bool,
    /// Attempts that have ended.
    ended: u64,
}

impl FlushScheduler {
    pub fn new(options: &WriterOptions) -> Self {
        Self {
            wait_max: options.flush_wait_max,
            retry_first: options.flush_retry_first,
            retry_max: options.flush_retry_max,
            give_back: options.give_back,
            wanted: Mutex::default(),
            changed: Condvar::new(),
            ended: Condvar::new(),
            flushes: AtomicU64::new(0),
            flushes_failed: AtomicU64::new(0),
        }
    }

    /// A flush may be due. How many have ended so far.
    pub fn wake(&self) -> u64 {
        let mut wanted = self.lock();
        if !std::mem::replace(&mut wanted.flush, true) {
            self.changed.notify_one();
        }
        wanted.ended
    }

    /// How many have ended so far.
    pub fn ended(&self) -> u64 {
        self.lock().ended
    }

    /// Waits until more than `before` have ended, if flushes do not fail, but not for long.
    pub fn wait(&self, before: u64) {
        let wanted = self.lock();
        let pending = |wanted: &mut FlushRequest| wanted.ended == before && !wanted.failing && !wanted.stopped;
        // Whether it ended or took longer, waiting callers go on.
        drop(self.ended.wait_timeout_while(wanted, self.wait_max, pending));
    }

    /// Ends [`FlushScheduler::run`]; a flush that runs is finished first.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
        self.ended.notify_all();
    }

    pub fn run(&self, store: &dyn SampleStore) {
        let mut retry = None;
        while self.next(retry) {
            retry = self.flush(store, retry);
            let mut wanted = self.lock();
            wanted.failing = retry.is_some();
            wanted.ended += 1;
            self.ended.notify_all();
        }
    }

    /// Waits until a flush is wanted, and for `retry` after one that failed. False when stopped.
    fn next(&self, retry: Option<Duration>) -> bool {
        let wanted = self.lock();
        let mut wanted = match retry {
            None => {
                let idle = |wanted: &mut FlushRequest| !wanted.flush && !wanted.stopped;
                self.changed.wait_while(wanted, idle).unwrap_or_else(PoisonError::into_inner)
            }
            Some(retry) => {
                let resting = |wanted: &mut FlushRequest| !wanted.stopped;
                let rested = self.changed.wait_timeout_while(wanted, retry, resting);
                rested.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        wanted.flush = false;
        !wanted.stopped
    }

    /// How long to wait before the next attempt, if this one failed.
    fn flush(&self, store: &dyn SampleStore, before: Option<Duration>) -> Option<Duration> {
        if !store.flush_due() {
            // After a failure the database itself may ask for patience: it is asked again.
            return before;
        }
        match own_thread::run("telem-flush", self.give_back, || store.flush()) {
            Ok(()) => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
                if before.is_some() {
                    tracing::info!("flushing works again");
                }
                if store.flush_due() {
                    self.wake();
                }
                None
            }
            Err(error) => {
                self.flushes_failed.fetch_add(1, Ordering::Relaxed);
                let retry = before.map_or(self.retry_first, |before| (before * 2).min(self.retry_max));
                tracing::error!(%error, ?retry, "a flush failed; samples stay in memory and in the WAL");
                Some(retry)
            }
        }
    }

    /// No code panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, FlushRequest> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
