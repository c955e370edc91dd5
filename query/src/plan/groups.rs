//! The groups of an answer: the series of each group, and the tags that they share.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::cast::AsArray;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use telem_engine::{SeriesId, SeriesKey, TagSet, Timestamp, Value};

use crate::answer::TsGroup;
use crate::error::{Error, Result};
use crate::question::TsQuery;
use crate::question::tags::decode_tags;
use crate::selection::{self, GroupsOfSeries, group_key};
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
    naming.groups(query, view)
}

/// Groups while their series are named, in whatever order.
#[derive(Default)]
pub(super) struct GroupNaming {
    /// Those whose names came.
    named: BTreeMap<String, BTreeSet<SeriesKey>>,
    /// Those that the index knows.
    known: Vec<SeriesId>,
}

impl GroupNaming {
    /// Takes in a series by its tags, or several by their numbers at a node.
    ///
    /// # Errors
    /// Engine, when these are not tags; Internal, when the numbers have no meaning.
    pub(super) fn add(&mut self, query: &TsQuery, named: &str, view: &View) -> Result<()> {
        match view.numbered(named)? {
            Some(series) => self.known.extend(series),
            None => {
                let series = SeriesKey::new(&query.metric, decode_tags(named)?)?;
                self.named.entry(group_key(query, &series)).or_default().insert(series);
            }
        }
        Ok(())
    }

    /// # Errors
    /// Engine, for series that are not in the index.
    pub(super) fn groups(self, query: &TsQuery, view: &View) -> Result<Groups> {
        let Self { named, mut known } = self;
        let group =
            |(key, series): (String, BTreeSet<SeriesKey>)| SeriesGroup { key, series: series.into_iter().collect() };
        let mut groups: Vec<SeriesGroup> = named.into_iter().map(group).collect();
        // Several nodes may have one series.
        known.sort_unstable();
        known.dedup();
        let GroupsOfSeries { of_series, names } = selection::group(query, view.index(), &known)?;
        let first = groups.len();
        groups.extend(names.into_iter().map(|key| SeriesGroup { key, series: Vec::new() }));
        for (series, group) in known.into_iter().zip(of_series) {
            let key = view.index().key(series).ok_or(telem_engine::Error::UnknownSeries { id: series.0 })?;
            groups[first + group as usize].series.push(key);
        }
        groups.sort_by(|one, other| one.key.cmp(&other.key));
        // Of one group some may have come by name, and others by number.
        groups.dedup_by(|later, before| {
            let same = later.key == before.key;
            if same {
                before.series.append(&mut later.series);
            }
            same
        });
        for group in &mut groups {
            group.series.sort_unstable();
            group.series.dedup();
        }
        let series = groups.iter().map(|group| group.series.len()).sum();
        Ok(Groups { groups, series, ..Groups::default() })
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
                let (tags, differ) = TagSet::in_common(group.series.iter().map(SeriesKey::tags));
                let aggregate_tags = differ.iter().map(ToString::to_string).collect();
                TsGroup { tags, aggregate_tags, series: group.series, points }
            })
            .collect()
    }
}
