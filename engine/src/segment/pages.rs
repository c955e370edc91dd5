//! Keeps pages that were unpacked lately, so that who asks about the same hour again unpacks nothing.
//!
//! Differences stay packed ([`DeltaPage`]), so a page takes about as much as in its file. Of pages that were used again
//! since they came in or were last spared, the oldest is spared once: a question over everything, which uses each page
//! once, does not take the place of what dashboards ask again and again before it has gone through twice as much.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;

use super::delta::DeltaPage;

/// What a page takes here beside its own memory.
const ENTRY_BYTES: u64 = 128;

/// Which file, and where in it.
type PageKey = (u64, u64);

#[derive(Debug)]
pub struct PageCache {
    bytes_max: u64,
    files: AtomicU64,
    held: Mutex<HeldPages>,
}

#[derive(Debug, Default)]
struct HeldPages {
    bytes: u64,
    pages: AHashMap<PageKey, HeldPage>,
    /// The oldest first.
    order: VecDeque<PageKey>,
}

#[derive(Debug)]
struct HeldPage {
    page: Arc<DeltaPage>,
    used_again: bool,
}

impl PageCache {
    /// Holds pages of at most `bytes_max`, besides those that are read.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, files: AtomicU64::default(), held: Mutex::default() }
    }

    /// What its pages take.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// The pages of one more file.
    pub fn file(self: &Arc<Self>) -> FilePages {
        FilePages { cache: Arc::clone(self), file: self.files.fetch_add(1, Ordering::Relaxed) }
    }

    fn get(&self, key: PageKey) -> Option<Arc<DeltaPage>> {
        let mut held = self.lock();
        let found = held.pages.get_mut(&key)?;
        found.used_again = true;
        Some(Arc::clone(&found.page))
    }

    fn add(&self, key: PageKey, page: Arc<DeltaPage>) {
        let bytes = memory_of(&page);
        if bytes > self.bytes_max {
            return;
        }
        let mut held = self.lock();
        if held.pages.insert(key, HeldPage { page, used_again: false }).is_some() {
            // Two readers unpacked the same.
            return;
        }
        held.order.push_back(key);
        held.bytes += bytes;
        let mut spared = held.order.len();
        while held.bytes > self.bytes_max {
            let Some(oldest) = held.order.pop_front() else { break };
            let used_again = held.pages.get_mut(&oldest).is_some_and(|page| std::mem::take(&mut page.used_again));
            if used_again && spared > 0 {
                spared -= 1;
                held.order.push_back(oldest);
            } else if let Some(gone) = held.pages.remove(&oldest) {
                held.bytes -= memory_of(&gone.page);
            }
        }
    }

    fn forget(&self, file: u64) {
        let mut held = self.lock();
        held.order.retain(|(of, _)| *of != file);
        held.pages.retain(|(of, _), _| *of != file);
        held.bytes = held.pages.values().map(|held| memory_of(&held.page)).sum();
    }

    fn lock(&self) -> MutexGuard<'_, HeldPages> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn memory_of(page: &DeltaPage) -> u64 {
    page.memory_bytes() as u64 + ENTRY_BYTES
}

/// The pages of one file. They stay until others take their place, or it is [forgotten](FilePages::forget).
#[derive(Clone, Debug)]
pub struct FilePages {
    cache: Arc<PageCache>,
    file: u64,
}

impl FilePages {
    pub fn get(&self, at: u64) -> Option<Arc<DeltaPage>> {
        self.cache.get((self.file, at))
    }

    pub fn add(&self, at: u64, page: &Arc<DeltaPage>) {
        self.cache.add((self.file, at), Arc::clone(page));
    }

    /// Lets all of them go: the file is not asked any more.
    pub fn forget(&self) {
        self.cache.forget(self.file);
    }
}

#[cfg(test)]
mod tests;
