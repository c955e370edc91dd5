//! The keys of all series, as ordinals of names one after another: 4 bytes for the metric and 8 for each tag.

use ahash::RandomState;

use super::numbers::NumberTable;
use crate::series::{SeriesId, TAGS_MAX};

/// Words of the longest key.
pub const WORDS_MAX: usize = 1 + 2 * TAGS_MAX;
/// Keys of a page: a power of two, so that places are found by shifts.
const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;
/// The words of a page are counted by 16 bits.
const _: () = assert!(PAGE * WORDS_MAX <= u16::MAX as usize);

#[derive(Debug, Default)]
pub struct KeyTable {
    rows: KeyPages,
    ids: NumberTable,
    hasher: RandomState,
}

/// In pages, so that few words more than those of the keys are held, and none is moved but within a page.
#[derive(Debug, Default)]
struct KeyPages {
    /// All but the last have [`PAGE`] keys.
    pages: Vec<KeyPage>,
}

#[derive(Debug, Default)]
struct KeyPage {
    /// Metric, then key and value of each tag in their order; series after series.
    words: Vec<u32>,
    /// Where the words of each series end.
    ends: Vec<u16>,
}

impl KeyPages {
    fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.ends.len())
    }

    #[inline]
    fn get(&self, at: usize) -> Option<&[u32]> {
        let KeyPage { words, ends } = self.pages.get(at >> PAGE_BITS)?;
        let at = at & (PAGE - 1);
        let end = *ends.get(at)?;
        let start = if at == 0 { 0 } else { ends[at - 1] };
        Some(&words[usize::from(start)..usize::from(end)])
    }

    fn push(&mut self, key: &[u32]) {
        let page = match self.pages.last_mut() {
            Some(last) if last.ends.len() < PAGE => last,
            full => {
                let like = full.map_or(0, |full| {
                    full.words.shrink_to_fit();
                    full.ends.shrink_to_fit();
                    full.words.len()
                });
                // Mostly keys are about as long as those before them.
                let ends = if like == 0 { 0 } else { PAGE };
                self.pages.push(KeyPage { words: Vec::with_capacity(like), ends: Vec::with_capacity(ends) });
                let last = self.pages.len() - 1;
                &mut self.pages[last]
            }
        };
        page.words.extend_from_slice(key);
        page.ends.push(page.words.len() as u16);
    }
}

impl KeyTable {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn get(&self, id: SeriesId) -> Option<&[u32]> {
        self.rows.get(id.0 as usize)
    }

    pub fn find(&self, words: &[u32]) -> Option<SeriesId> {
        self.ids.find(self.hasher.hash_one(words), |id| self.get(SeriesId(id)) == Some(words)).map(SeriesId)
    }

    /// What the keys take, with room for more.
    pub fn bytes(&self) -> usize {
        let page = |page: &KeyPage| size_of::<KeyPage>() + 4 * page.words.capacity() + 2 * page.ends.capacity();
        self.rows.pages.iter().map(page).sum::<usize>() + self.ids.bytes()
    }

    /// Adds a key that is not there.
    pub fn push(&mut self, words: &[u32]) {
        let id = self.len() as u32;
        self.rows.push(words);
        let Self { rows, ids, hasher } = self;
        ids.insert(hasher.hash_one(words), id, |id| hash_of(hasher, rows, id));
    }

    /// Makes room for this many more.
    pub fn reserve(&mut self, more: usize) {
        let (len, Self { rows, ids, hasher }) = (self.len() + more, self);
        ids.make_room(len, |id| hash_of(hasher, rows, id));
    }
}

fn hash_of(hasher: &RandomState, rows: &KeyPages, id: u32) -> u64 {
    hasher.hash_one(rows.get(id as usize).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_are_found_by_number_and_by_words_and_few_words_are_spare() {
        let mut table = KeyTable::default();
        let key =
            |id: usize| -> Vec<u32> { (0..1 + 2 * (id * 7 % 5)).map(|word| (id * 1_000 + word) as u32).collect() };
        let keys: Vec<Vec<u32>> = (0..3 * PAGE + 5).map(key).chain([vec![7; WORDS_MAX]]).collect();
        for (id, key) in keys.iter().enumerate() {
            assert_eq!((table.len(), table.find(key)), (id, None));
            table.push(key);
        }
        for (id, key) in keys.iter().enumerate() {
            let id = SeriesId(id as u32);
            assert_eq!((table.get(id), table.find(key)), (Some(&**key), Some(id)));
        }
        assert_eq!(table.get(SeriesId(keys.len() as u32)), None);
        let full = &table.rows.pages[..3];
        assert!(full.iter().all(|page| page.words.capacity() == page.words.len() && page.ends.capacity() == PAGE));
    }

    #[test]
    fn a_page_of_the_longest_keys_has_room() {
        let mut table = KeyTable::default();
        for id in 0..PAGE as u32 + 1 {
            table.push(&[id; WORDS_MAX]);
        }
        assert_eq!(table.get(SeriesId(PAGE as u32 - 1)), Some(&[PAGE as u32 - 1; WORDS_MAX][..]));
    }
}
