//! The canonical order of series: that of their keys, by metric and then tag by tag.

use std::cmp::Ordering;

use super::IndexState;
use crate::series::SeriesId;

/// Of each kind of names, metrics, tag keys and tag values, the place of each in the order of its kind.
type Ranks = [Vec<u32>; 3];

/// Bits of the number that stands for a key.
const KEY_BITS: u32 = u128::BITS;

impl IndexState {
    /// Sorts ids in canonical order. Those without a key come last.
    pub(super) fn sort(&self, ids: &mut [SeriesId]) {
        let names = self.metrics.len() + self.tag_keys.len() + self.tag_values.len();
        if ids.len() < names / 4 {
            return ids.sort_unstable_by(|a, b| self.compare(*a, *b));
        }
        let ranks = [self.metrics.ranks(), self.tag_keys.ranks(), self.tag_values.ranks()];
        if let Some(mut keyed) = self.keyed(ids, &ranks) {
            keyed.sort_unstable_by_key(|(key, _)| *key);
            ids.iter_mut().zip(keyed).for_each(|(id, (_, sorted))| *id = sorted);
            return;
        }
        ids.sort_unstable_by(|a, b| {
            self.compare_by(*a, *b, |kind, a, b| ranks[kind][a as usize].cmp(&ranks[kind][b as usize]))
        });
    }

    /// Each id with a number that compares as its key does, where all have the same tags and differ in few enough values;
    /// comparing keys themselves looks at a dozen words each time.
    fn keyed(&self, ids: &[SeriesId], ranks: &Ranks) -> Option<Vec<(u128, SeriesId)>> {
        let first = self.keys.get(*ids.first()?)?;
        let mut differs = vec![false; first.len()];
        for id in ids {
            let words = self.keys.get(*id).filter(|words| words.len() == first.len())?;
            differs
                .iter_mut()
                .zip(words.iter().zip(first))
                .for_each(|(differs, (word, first))| *differs |= word != first);
        }
        let places: Vec<usize> = (0..first.len()).filter(|at| differs[*at]).collect();
        if places.iter().any(|at| kind_of(*at) == TAG_KEY) {
            return None;
        }
        let mut keyed: Vec<(u128, SeriesId)> = ids.iter().map(|id| (0, *id)).collect();
        let mut bits = 0;
        let mut column = Vec::with_capacity(ids.len());
        for at in places {
            let ranks = &ranks[kind_of(at)];
            column.clear();
            column.extend(ids.iter().filter_map(|id| Some(ranks[self.keys.get(*id)?[at] as usize])));
            let (least, greatest) = (column.iter().min()?, column.iter().max()?);
            let width = u32::BITS - (greatest - least).leading_zeros();
            bits += width;
            if bits > KEY_BITS {
                return None;
            }
            for ((key, _), rank) in keyed.iter_mut().zip(&column) {
                *key = *key << width | u128::from(rank - least);
            }
        }
        Some(keyed)
    }

    /// As keys compare.
    fn compare(&self, a: SeriesId, b: SeriesId) -> Ordering {
        let names = [&self.metrics, &self.tag_keys, &self.tag_values];
        self.compare_by(a, b, |kind, a, b| names[kind].text(a).cmp(names[kind].text(b)))
    }

    /// As [`IndexState::compare`], where `names` compares two names of a kind by their numbers.
    fn compare_by(&self, a: SeriesId, b: SeriesId, names: impl Fn(usize, u32, u32) -> Ordering) -> Ordering {
        let (Some(words_a), Some(words_b)) = (self.keys.get(a), self.keys.get(b)) else {
            return self.keys.get(b).is_some().cmp(&self.keys.get(a).is_some()).then(a.cmp(&b));
        };
        match words_a.iter().zip(words_b).position(|(a, b)| a != b) {
            Some(at) => names(kind_of(at), words_a[at], words_b[at]),
            None => words_a.len().cmp(&words_b.len()),
        }
    }
}

/// Kinds of names, as their tables are counted.
const METRIC: usize = 0;
const TAG_KEY: usize = 1;
const TAG_VALUE: usize = 2;

/// What the word at a place of a key is: the metric, and then keys and values of tags in turn.
fn kind_of(at: usize) -> usize {
    match at {
        0 => METRIC,
        at if at % 2 == 1 => TAG_KEY,
        _ => TAG_VALUE,
    }
}
