//! The series of a part of a leaf, with their groups as numbers, in the order in which they are read: those of one
//! database together, and as many groups at a time as can be added up at once. So each group is handed out once, and
//! nobody has to put rows together by the names of groups.

use std::ops::Range;
use std::sync::Arc;
use std::vec;

use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use telem_engine::SeriesId;

use super::external;
use crate::leaf::{LeafContext, Part};
use crate::question::TsQuery;
use crate::selection::{self, GroupsOfSeries};

/// How the series of a leaf are divided among its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeriesSplit {
    /// As many series for each.
    Evenly,
    /// All series of a group for one of them.
    ByGroup,
}

/// Some groups, and all series of the part that fall into them.
#[derive(Debug)]
pub(super) struct GroupChunk {
    pub names: Arc<[String]>,
    /// The places in `names` of its groups: of a piece of a chunk some.
    pub groups: Range<usize>,
    /// As they are to be read.
    pub series: Vec<SeriesId>,
    /// Of each of them the place of its group in `names`.
    places: Vec<usize>,
    /// Of the series the first that did not come yet.
    next: usize,
}

impl GroupChunk {
    /// Of each of `series` the place of its group in `names`.
    #[cfg(test)]
    pub fn of(names: Vec<String>, series: Vec<SeriesId>, places: Vec<usize>) -> Self {
        Self { groups: 0..names.len(), names: names.into(), series, places, next: 0 }
    }

    /// The place of the group of a series. They come in their order; some may be left out.
    pub fn place(&mut self, series: SeriesId) -> usize {
        while self.series.get(self.next).is_some_and(|next| *next != series) {
            self.next += 1;
        }
        self.next += 1;
        self.places.get(self.next - 1).copied().unwrap_or_default()
    }

    /// Whether series that follow each other are of one group, until the next group begins.
    pub fn is_together(&self) -> bool {
        self.places.is_sorted()
    }

    /// The same series in their order, in `count` pieces, of about as many each.
    pub fn cut(self, count: usize, at: ChunkCut) -> Vec<GroupChunk> {
        let length = self.series.len();
        let bound = |piece: usize| {
            let near = length * piece / count.max(1);
            let is_bound = |at: &usize| at.checked_sub(1).is_none_or(|before| self.places[before] != self.places[*at]);
            match at {
                ChunkCut::Anywhere => near,
                ChunkCut::BetweenGroups => (near..length).find(is_bound).unwrap_or(length),
            }
        };
        let bounds: Vec<usize> = (0..=count.max(1)).map(bound).collect();
        let pieces = bounds.windows(2).filter(|bounds| bounds[0] < bounds[1]);
        let piece = |bounds: &[usize]| {
            let (series, places) = (&self.series[bounds[0]..bounds[1]], &self.places[bounds[0]..bounds[1]]);
            let (first, last) =
                places.iter().fold((usize::MAX, 0), |(first, last), at| (first.min(*at), last.max(*at)));
            let (names, series, places) = (Arc::clone(&self.names), series.to_vec(), places.to_vec());
            GroupChunk { names, groups: first..last + 1, series, places, next: 0 }
        };
        pieces.map(piece).collect()
    }
}

/// Where a chunk is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkCut {
    Anywhere,
    /// No group is in two pieces, of a chunk that is together.
    BetweenGroups,
}

/// The groups of a part, at most `groups_max` at a time.
pub(super) fn chunks(
    query: &TsQuery,
    split: SeriesSplit,
    groups_max: usize,
    part: Part,
    context: &LeafContext,
    selected: &[SeriesId],
) -> Result<vec::IntoIter<GroupChunk>, DataFusionError> {
    let index = context.snapshot.index();
    let of_part = match split {
        SeriesSplit::Evenly => part.of(selected),
        SeriesSplit::ByGroup => selected,
    };
    let groups = selection::group(query, index, of_part).map_err(|error| external(error.into()))?;
    let wanted = match split {
        SeriesSplit::Evenly => 0..groups.names.len(),
        SeriesSplit::ByGroup => groups_of(part, &groups),
    };
    let groups_max = groups_max.max(1);
    let mut names = groups.names;
    names.truncate(wanted.end);
    let mut names = names.into_iter().skip(wanted.start).peekable();
    let mut chunks = Vec::new();
    while names.peek().is_some() {
        let names: Arc<[String]> = names.by_ref().take(groups_max).collect();
        let groups = 0..names.len();
        chunks.push(GroupChunk { names, groups, series: Vec::new(), places: Vec::new(), next: 0 });
    }
    for (series, group) in of_part.iter().zip(&groups.of_series) {
        let group = *group as usize;
        if wanted.contains(&group) {
            let after = group - wanted.start;
            let chunk = &mut chunks[after / groups_max];
            chunk.series.push(*series);
            chunk.places.push(after % groups_max);
        }
    }
    Ok(chunks.into_iter())
}

/// The places of the groups of a part: all parts together have each group once, and about as many series each.
fn groups_of(part: Part, groups: &GroupsOfSeries) -> Range<usize> {
    let mut sizes = vec![0_usize; groups.names.len()];
    groups.of_series.iter().for_each(|group| sizes[*group as usize] += 1);
    let mut before = 0;
    // A group belongs to the part into which the middle of its series falls.
    let part_of = |size: &usize| {
        let middle = 2 * before + size;
        before += size;
        middle * part.count / (2 * groups.of_series.len()).max(1)
    };
    let parts: Vec<usize> = sizes.iter().map(part_of).collect();
    parts.partition_point(|of| *of < part.index)..parts.partition_point(|of| *of <= part.index)
}
