//! Pages of memtables that were flushed, for those that come next.
//!
//! Memory that goes back to the system and is asked for anew is filled with zeros page by page: under load, when a
//! memtable is full several times a second, that would be a tenth of what a sample costs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::page::ChainPage;

/// At most as many pages as one memtable has.
#[derive(Debug)]
pub struct SparePages {
    pages_max: usize,
    state: Mutex<SpareState>,
}

#[derive(Debug, Default)]
struct SpareState {
    pages: Vec<ChainPage>,
    /// Whether any was taken or given since [`SparePages::release_unused`] last looked.
    used: bool,
}

impl SparePages {
    /// Of a memtable of so many bytes.
    pub fn new(memtable_bytes: u64) -> Self {
        let pages_max = usize::try_from(memtable_bytes).unwrap_or(usize::MAX) / ChainPage::BYTES + 1;
        Self { pages_max, state: Mutex::default() }
    }

    /// An empty page.
    pub fn take(&self) -> Option<ChainPage> {
        let mut state = self.lock();
        state.used = true;
        state.pages.pop()
    }

    pub fn give(&self, pages: impl Iterator<Item = ChainPage>) {
        let mut state = self.lock();
        state.used = true;
        let room = self.pages_max.saturating_sub(state.pages.len());
        state.pages.extend(pages.take(room).map(ChainPage::emptied));
    }

    /// Frees them if nobody used any since the last call: samples come slowly now, or not at all.
    pub fn release_unused(&self) {
        let mut state = self.lock();
        if !std::mem::take(&mut state.used) {
            state.pages = Vec::new();
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.lock().pages.len() * ChainPage::BYTES) as u64
    }

    /// Nothing panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, SpareState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
