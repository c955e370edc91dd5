//! The keys of all series, as ordinals of names one after another: 4 bytes for the metric and 8 for each tag.

use ahash::RandomState;

use super::numbers::NumberTable;
use crate::series::{SeriesId, TAGS_MAX};

/// Words of the longest key.
pub const WORDS_MAX: usize = 1 + 2 * TAGS_MAX;

#[derive(Debug, Default)]
pub struct KeyTable {
    /// Metric, then key and value of each tag in their order; series after series.
    words: Vec<u32>,
    /// Where the words of each series end.
    ends: Vec<usize>,
    ids: NumberTable,
    hasher: RandomState,
}

impl KeyTable {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, id: SeriesId) -> Option<&[u32]> {
        let at = id.0 as usize;
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.words[start..end])
    }

    pub fn find(&self, words: &[u32]) -> Option<SeriesId> {
        self.ids.find(self.hasher.hash_one(words), |id| self.get(SeriesId(id)) == Some(words)).map(SeriesId)
    }

    /// Adds a key that is not there.
    pub fn push(&mut self, words: &[u32]) {
        let id = self.ends.len() as u32;
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
        let Self { words: all, ends, ids, hasher } = self;
        let words_of = |id: u32| {
            let start = if id == 0 { 0 } else { ends[id as usize - 1] };
            &all[start..ends[id as usize]]
        };
        ids.insert(hasher.hash_one(words), id, |id| hasher.hash_one(words_of(id)));
    }

    /// Makes room for this many more.
    pub fn reserve(&mut self, more: usize) {
        self.ends.reserve(more);
        let (len, Self { words, ends, ids, hasher }) = (self.ends.len() + more, self);
        ids.make_room(len, |id| {
            let start = if id == 0 { 0 } else { ends[id as usize - 1] };
            hasher.hash_one(&words[start..ends[id as usize]])
        });
    }
}
