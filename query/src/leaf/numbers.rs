//! Series that the head already knows by name. A node sends their numbers instead, so that the answers of many nodes do
//! not consist mostly of names that the head has.
//!
//! A number is the series' id in the node's own database. It is valid for a head that was told the names of all series
//! up to it, by the same edition of the node's index ([`KnownSeries`] in the request states that).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use telem_engine::{SeriesId, SeriesIndex};

/// Stands before the node and before the numbers: no name has it.
const MARK: char = '\u{1}';

/// What a head knows of the node that it asks: the names of its first `count` series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSeries {
    /// See [`SeriesIndex::edition`].
    pub edition: u64,
    pub count: u32,
}

impl KnownSeries {
    /// Of a head with this index: all that are in it.
    pub(crate) fn of(index: &SeriesIndex) -> Self {
        Self { edition: index.edition(), count: u32::try_from(index.len()).unwrap_or(u32::MAX) }
    }

    pub(crate) fn knows(self, series: SeriesId, index: &SeriesIndex) -> bool {
        series.0 < self.count && self.edition == index.edition()
    }
}

/// Series of `node` as one word. Their order is lost.
pub(crate) fn encode(node: &str, mut series: Vec<SeriesId>) -> String {
    series.sort_unstable();
    let runs = series.chunk_by(|a, b| b.0 - a.0 <= 1);
    let run = |run: &[SeriesId]| Some(format!("{}-{}", run.first()?.0, run.last()?.0));
    let runs: Vec<String> = runs.filter_map(run).collect();
    format!("{MARK}{node}{MARK}{}", runs.join(","))
}

/// What [`encode`] encoded, in runs; `None` for what is something else.
pub(crate) fn decode(text: &str) -> Option<(&str, Vec<RangeInclusive<u32>>)> {
    let (node, runs) = text.strip_prefix(MARK)?.split_once(MARK)?;
    let run = |run: &str| {
        let (first, last) = run.split_once('-')?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    Some((node, runs.split(',').map(run).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests;
