//! The groups of an answer: the series of each group, and the tags that they share.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::cast::AsArray;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use telem_engine::{SeriesId, SeriesKey, Timestamp, Value};

use crate::answer::TsGroup;
use crate::error::{Error, Result};
use crate::question::TsQuery;
use crate::question::tags::decode_tags;
use crate::selection::group_key;
use crate::view::View;

/// In canonical order of their keys.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<SeriesGroup>,
    series: usize,
    /// What the query names, under common ids.
    selected: Vec<SeriesId>,
    /// Those that are on several nodes.
    shared: Vec<SeriesKey>,
}

#[derive(Debug)]
struct SeriesGroup {
    key: String,
    /// In canonical order.
    series: Vec<SeriesKey>,
}

/// Reads what the leaves answer to [`crate::leaf::series::Yield::Groups`].
///
/// # Errors
/// What the leaves fail with.
pub(super) async fn read(query: &TsQuery, mut rows: SendableRecordBatchStream, view: &View) -> Result<Groups> {
    let mut naming = GroupNaming::default();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        for tags in batch.column(0).as_string_view().iter().flatten() {
            naming.add(query, tags, view)?;
        }
    }
    Ok(naming.groups())
}

/// Groups while their series are named, in whatever order.
#[derive(Default)]
pub(super) struct GroupNaming(BTreeMap<String, BTreeSet<SeriesKey>>);

impl GroupNaming {
    /// Takes in a series by its tags, or several by their numbers at a node.
    ///
    /// # Errors
    /// Engine, when these are not tags; Internal, when the numbers have no meaning.
    pub(super) fn add(&mut self, query: &TsQuery, named: &str, view: &View) -> Result<()> {
        let series = match view.numbered(named)? {
            Some(series) => series,
            None => vec![SeriesKey::new(&query.metric, decode_tags(named)?)?],
        };
        for series in series {
            self.0.entry(group_key(query, &series)).or_default().insert(series);
        }
        Ok(())
    }

    pub(super) fn groups(self) -> Groups {
        let group =
            |(key, series): (String, BTreeSet<SeriesKey>)| SeriesGroup { key, series: series.into_iter().collect() };
        let groups: Vec<SeriesGroup> = self.0.into_iter().map(group).collect();
        let series = groups.iter().map(|group| group.series.len()).sum();
        Groups { groups, series, ..Groups::default() }
    }
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn select(&mut self, selected: Vec<SeriesId>) {
        self.selected = selected;
    }

    pub(super) fn selected(&self) -> &[SeriesId] {
        &self.selected
    }

    pub(super) fn share(&mut self, shared: Vec<SeriesKey>) {
        self.shared = shared;
    }

    pub(super) fn shared(&self) -> &[SeriesKey] {
        &self.shared
    }

    /// Of all groups together.
    pub(super) fn series(&self) -> usize {
        self.series
    }

    /// The series behind a group, in canonical order.
    pub(super) fn series_of(&self, group: usize) -> &[SeriesKey] {
        &self.groups[group].series
    }

    /// The place of the group with this key.
    ///
    /// # Errors
    /// Internal when no series of it was announced.
    pub(super) fn find(&self, key: &str) -> Result<usize> {
        let found = self.groups.binary_search_by(|group| group.key.as_str().cmp(key));
        found.map_err(|_| Error::Internal(format!("group {key:?} has values, but none of its series was named")))
    }

    /// The place of a series in its group.
    ///
    /// # Errors
    /// Internal when it was not announced.
    pub(super) fn find_series(&self, group: usize, series: &SeriesKey) -> Result<usize> {
        let found = self.groups[group].series.binary_search(series);
        found.map_err(|_| Error::Internal(format!("series {series} has points, but was not named")))
    }

    pub(super) fn with_lines(self, lines: Vec<Vec<(Timestamp, Value)>>) -> Vec<TsGroup> {
        let groups = self.groups.into_iter().zip(lines);
        groups
            .map(|(group, points)| {
                let (tags, aggregate_tags) = common_tags(&group.series);
                TsGroup { tags, aggregate_tags, series: group.series, points }
            })
            .collect()
    }
}

/// Tags on which all series agree that carry the key, and the keys on which they differ.
fn common_tags(series: &[SeriesKey]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut tags: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (key, value) in series.iter().flat_map(|series| series.tags().iter()) {
        let agreed = tags.entry(key).or_insert(Some(value));
        if *agreed != Some(value) {
            *agreed = None;
        }
    }
    let differ = tags.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| (*key).to_owned()).collect();
    let agree = tags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    (agree, differ)
}
