//! Bounds the memory of loaded segments: run indexes, footers and open files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::{PageCache, Segment};

/// So few are looked through each time.
const TIDIED_MIN: usize = 64;

/// Of segments that were used again since they came in or were last spared, the oldest is spared once.
#[derive(Debug)]
pub struct SegmentCache {
    bytes_max: u64,
    files_max: usize,
    held: Mutex<CacheState>,
    pages: Arc<PageCache>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct CacheState {
    bytes: u64,
    evictions: u64,
    segments: VecDeque<(Weak<Segment>, u64)>,
    /// With as many, those that are gone are looked for.
    tidied_at: usize,
}

impl CacheState {
    /// Forgets segments that are no longer read.
    fn tidy(&mut self) {
        self.keep(|segment| segment.strong_count() > 0);
        // Twice as many: it costs little a segment, however many there are.
        self.tidied_at = (self.segments.len() * 2).max(TIDIED_MIN);
    }

    fn keep(&mut self, is_kept: impl Fn(&Weak<Segment>) -> bool) {
        self.segments.retain(|(segment, _)| is_kept(segment));
        self.bytes = self.segments.iter().map(|(_, bytes)| bytes).sum();
    }
}

/// How well a cache of segments does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheFigures {
    /// Questions answered from memory, and those for which a run index was read.
    pub hits: u64,
    pub misses: u64,
    /// Segments that were let go to stay within the limits.
    pub evictions: u64,
    pub segments: u64,
    /// Memory of their run indexes and footers.
    pub bytes: u64,
}

impl SegmentCache {
    /// At most `files_max` open files and `bytes_max` of their indexes and footers, and `pages_bytes_max` of their pages,
    /// besides what readers hold.
    pub fn new(bytes_max: u64, files_max: usize, pages_bytes_max: u64) -> Self {
        Self {
            bytes_max,
            files_max,
            held: Mutex::default(),
            pages: Arc::new(PageCache::new(pages_bytes_max)),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
        }
    }

    /// Those that were unpacked lately.
    pub fn pages(&self) -> &Arc<PageCache> {
        &self.pages
    }

    pub fn figures(&self) -> CacheFigures {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.tidy();
        CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: held.evictions,
            segments: held.segments.len() as u64,
            bytes: held.bytes,
        }
    }

    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets a segment that no manifest names any more: nobody else will ask for it.
    pub(super) fn forget(&self, segment: &Segment) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.keep(|kept| !std::ptr::eq(kept.as_ptr(), segment));
    }

    /// Takes in a segment that was just loaded.
    pub(super) fn add(&self, segment: &Arc<Segment>, bytes: u64) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut evicted = Vec::new();
        {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.segments.push_back((Arc::downgrade(segment), bytes));
            held.bytes += bytes;
            let is_full = |held: &CacheState| held.bytes > self.bytes_max || held.segments.len() > self.files_max;
            if is_full(&held) || held.segments.len() >= held.tidied_at {
                held.tidy();
            }
            let mut spared = held.segments.len();
            while held.segments.len() > 1 && is_full(&held) {
                let Some((oldest, bytes)) = held.segments.pop_front() else { break };
                let Some(segment) = oldest.upgrade() else {
                    held.bytes -= bytes;
                    continue;
                };
                if spared > 0 && segment.was_used_again() {
                    spared -= 1;
                    held.segments.push_back((oldest, bytes));
                    continue;
                }
                held.bytes -= bytes;
                held.evictions += 1;
                evicted.push(segment);
            }
        }
        // After the lock is released: the last reader of a segment may end here.
        for segment in evicted {
            segment.let_go();
        }
    }
}
