//! The series of a part of a leaf, with their groups as numbers, in the order in which they are read: those of one
//! database together, and as many groups at a time as can be added up at once. So each group is handed out once, and
//! nobody has to put rows together by the names of groups.

use std::vec;

use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use telem_engine::SeriesId;

use super::external;
use crate::leaf::{LeafContext, Part};
use crate::question::TsQuery;
use crate::selection;

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
    pub names: Vec<String>,
    /// As they are to be read.
    pub series: Vec<SeriesId>,
    /// Of each of them the place of its group in `names`.
    places: Vec<usize>,
    /// Of the series the first that did not come yet.
    next: usize,
}

impl GroupChunk {
    /// The place of the group of a series. They come in their order; some may be left out.
    pub fn place(&mut self, series: SeriesId) -> usize {
        while self.series.get(self.next).is_some_and(|next| *next != series) {
            self.next += 1;
        }
        self.next += 1;
        self.places.get(self.next - 1).copied().unwrap_or_default()
    }
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
        SeriesSplit::ByGroup => groups.of(part),
    };
    let groups_max = groups_max.max(1);
    let mut names = groups.names;
    names.truncate(wanted.end);
    let mut names = names.into_iter().skip(wanted.start).peekable();
    let mut chunks = Vec::new();
    while names.peek().is_some() {
        let names = names.by_ref().take(groups_max).collect();
        chunks.push(GroupChunk { names, series: Vec::new(), places: Vec::new(), next: 0 });
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
