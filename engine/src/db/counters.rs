//! Counters of a writer's work since the open, from which the cost of storing is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use super::upkeep::DropReport;
use crate::compact::CompactReport;
use crate::flush::FlushReport;
use crate::info::WrittenFigures;

/// Sums that are read one by one: each is right, and together they are of about one moment.
#[derive(Debug, Default)]
pub(super) struct DbCounters {
    flush_bytes: AtomicU64,
    merge_bytes: AtomicU64,
    merges: AtomicU64,
    segments_merged: AtomicU64,
    segments_dropped: AtomicU64,
    samples_dropped: AtomicU64,
    bytes_dropped: AtomicU64,
    /// Of segments that left the manifest and are kept for a while.
    removed_bytes: AtomicU64,
}

impl DbCounters {
    pub fn flushed(&self, flush: &FlushReport) {
        add(&self.flush_bytes, flush.bytes);
    }

    /// Counts one merge.
    pub fn merged(&self, merge: &CompactReport) {
        add(&self.merge_bytes, merge.bytes_after);
        add(&self.merges, merge.segments_after);
        add(&self.segments_merged, merge.segments_before);
    }

    pub fn dropped(&self, dropped: &DropReport) {
        add(&self.segments_dropped, dropped.segments);
        add(&self.samples_dropped, dropped.rows);
        add(&self.bytes_dropped, dropped.bytes);
    }

    pub fn set_removed(&self, bytes: u64) {
        self.removed_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn removed(&self) -> u64 {
        get(&self.removed_bytes)
    }

    pub fn figures(&self, wal_bytes: u64) -> WrittenFigures {
        WrittenFigures {
            wal_bytes,
            flush_bytes: get(&self.flush_bytes),
            merge_bytes: get(&self.merge_bytes),
            merges: get(&self.merges),
            segments_merged: get(&self.segments_merged),
            segments_dropped: get(&self.segments_dropped),
            samples_dropped: get(&self.samples_dropped),
            bytes_dropped: get(&self.bytes_dropped),
        }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
