//! Where a row group ends so that the next one may have the same times.
//!
//! Rows are sorted by metric first. So where the samples of a node are taken together, but not at full seconds, the runs
//! of one metric have the times of those of the metric before, node by node. Row groups that begin at the same run of
//! such a period have the same times, which the file then states once. They are found by the runs alone: a period begins
//! with a run whose times came before.

use std::hash::{BuildHasher, Hash};

use ahash::{AHashMap, RandomState};

use crate::segment::ROW_GROUP_ROWS;

/// A period of so many rows has a row group of its own, so that its times are stated once and not once for each time
/// that it fits into a row group. Its entries take about 1 KB, and times 1.3 to 1.8 bytes each.
const OWN_GROUP_ROWS: u64 = 64 << 10;
/// Different times that are remembered.
const KNOWN_MAX: usize = 64 << 10;

/// What is known of the runs so far whose times do not tick.
pub struct Period {
    /// Where times came last, by what they hash to. Two that hash to the same do no harm: what is in a row group is
    /// compared.
    last: AHashMap<u64, u64>,
    hasher: RandomState,
    /// The times with which a period begins, and the row where it began last.
    begun: Option<(u64, u64)>,
}

impl Default for Period {
    fn default() -> Self {
        // Fixed seeds: the same samples make the same file.
        Self { last: AHashMap::new(), hasher: RandomState::with_seeds(1, 2, 3, 4), begun: None }
    }
}

impl Period {
    /// Whether the row group that has `grouped` rows ends before a run of these times, which do not tick, at `row`.
    pub fn ends_group(&mut self, times: &[i64], row: u64, grouped: u64) -> bool {
        let mut hasher = self.hasher.build_hasher();
        times.hash(&mut hasher);
        let hash = std::hash::Hasher::finish(&hasher);
        let before = self.last.get(&hash).copied();
        if before.is_some() || self.last.len() < KNOWN_MAX {
            self.last.insert(hash, row);
        }
        let Some((begins_with, began)) = self.begun else {
            self.begun = Some((hash, row));
            return false;
        };
        let Some(before) = before else { return false };
        // What began the period may never come again: then another that came again takes its place.
        let is_gone = || before >= began && row - began >= ROW_GROUP_ROWS as u64;
        if hash != begins_with && !is_gone() {
            return false;
        }
        let rows = row - before;
        self.begun = Some((hash, row));
        grouped > 0 && (rows >= OWN_GROUP_ROWS || grouped + rows > ROW_GROUP_ROWS as u64)
    }
}

#[cfg(test)]
mod tests;
