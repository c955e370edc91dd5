//! Where a row group ends so that the next one may have the same times.
//!
//! Rows are sorted by metric first. So the runs of one metric have the times of those of the metric before, node by node.
//! Row groups that begin at the same run of such a period have the same times, which the file then states once. Where
//! all nodes are sampled at full seconds, each run is a period. A period begins with a run whose times came before.

use ahash::AHashMap;

use super::group::TimesPart;
use crate::segment::ROW_GROUP_ROWS;

/// A period of so many rows that do not all tick has a row group of its own: their times take 1.2 bytes each when no
/// other times are beside them, and more where they come several times in a row group. The entries of a row group take
/// 1 KB.
const OWN_GROUP_ROWS: usize = 64 << 10;
/// Different times that are remembered.
const KNOWN_MAX: usize = 64 << 10;

/// What is known of the runs so far.
#[derive(Default)]
pub struct Period {
    /// The rows before which times came last. What only the column tells may be taken for something else, which does no
    /// harm.
    last: AHashMap<TimesPart, usize>,
    /// The times with which a period begins, and the row where it began last.
    begun: Option<(TimesPart, usize)>,
    /// Whether some that came since do not tick.
    is_late: bool,
}

impl Period {
    /// Whether the row group that has `grouped` rows ends before a run of these times at `row`.
    pub fn ends_group(&mut self, times: TimesPart, ticks: bool, row: usize, grouped: usize) -> bool {
        let before = self.last.get(&times).copied();
        if before.is_some() || self.last.len() < KNOWN_MAX {
            self.last.insert(times, row);
        }
        let was_late = self.is_late;
        self.is_late |= !ticks;
        let Some((begins_with, began)) = self.begun else {
            self.begun = Some((times, row));
            return false;
        };
        let Some(before) = before else { return false };
        // What began the period may never come again. Then another that came again takes its place, but not one that
        // several series of a node share.
        let is_gone = || before >= began && before + times.rows < row && (row - before) * 2 >= row - began;
        if times != begins_with && !is_gone() {
            return false;
        }
        self.begun = Some((times, row));
        self.is_late = !ticks;
        let rows = row - before;
        grouped > 0 && (was_late && rows >= OWN_GROUP_ROWS || grouped + rows > ROW_GROUP_ROWS)
    }
}

#[cfg(test)]
mod tests;
