//! The names of one kind, each stored once, with a number; they are sorted on demand.

use std::sync::{Arc, Mutex, PoisonError};

use ahash::RandomState;

use super::numbers::NumberTable;
use crate::paged::PagedTable;

#[derive(Debug, Default)]
pub struct NameTable {
    /// By ordinal: the number of a name among those of its kind, in the order of first sight, from 0.
    texts: PagedTable<Arc<str>>,
    ordinals: NumberTable,
    hasher: RandomState,
    /// Ordinals in the order of their names, of those that existed at the last lookup.
    sorted: Mutex<Vec<u32>>,
}

impl NameTable {
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// What the names take, with room for more; a text is taken to be held by nobody else.
    pub fn bytes(&self) -> usize {
        let texts = self.texts.iter().map(|text| 2 * size_of::<usize>() + text.len());
        let sorted = self.sorted.lock().unwrap_or_else(PoisonError::into_inner).capacity() * size_of::<u32>();
        self.texts.bytes() + self.ordinals.bytes() + texts.sum::<usize>() + sorted
    }

    pub fn text(&self, ordinal: u32) -> &Arc<str> {
        &self.texts[ordinal as usize]
    }

    pub fn ordinal(&self, text: &str) -> Option<u32> {
        self.ordinals.find(self.hasher.hash_one(text), |ordinal| *self.texts[ordinal as usize] == *text)
    }

    /// The ordinal of a name, given out now if it is new; then this copy of it is the one that is kept.
    pub fn intern(&mut self, name: &Arc<str>) -> u32 {
        let hash = self.hasher.hash_one(&**name);
        if let Some(known) = self.ordinals.find(hash, |ordinal| self.texts[ordinal as usize] == *name) {
            return known;
        }
        let ordinal = u32::try_from(self.texts.len())
            .expect("names are fewer than series times tags, and series_max bounds those");
        self.texts.push(Arc::clone(name));
        self.ordinals.insert(hash, ordinal, |ordinal| self.hasher.hash_one(&*self.texts[ordinal as usize]));
        ordinal
    }

    /// The names with these ordinals, sorted by bytes.
    pub fn in_order(&self, ordinals: impl Iterator<Item = u32>) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = ordinals.map(|ordinal| Arc::clone(self.text(ordinal))).collect();
        names.sort_unstable();
        names
    }

    /// Hands over all ordinals in the order of their names.
    pub fn sorted<R>(&self, look: impl FnOnce(&[u32]) -> R) -> R {
        // Nothing panics between two changes that belong together.
        let mut sorted = self.sorted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sorted.len();
        if known < self.texts.len() {
            sorted.extend(known as u32..self.texts.len() as u32);
            let text = |ordinal: &u32| &*self.texts[*ordinal as usize];
            sorted[known..].sort_unstable_by(|a, b| text(a).cmp(text(b)));
            // Two sorted stretches: a stable sort sees them and merges.
            sorted.sort_by(|a, b| text(a).cmp(text(b)));
        }
        look(&sorted)
    }

    /// Of each ordinal the place of its name in the order of names.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.texts.len()];
        self.sorted(|sorted| (0..).zip(sorted).for_each(|(rank, ordinal)| ranks[*ordinal as usize] = rank));
        ranks
    }
}
