//! The translation from the series ids of one database to the common ids of several that are read as one.

use std::ops::Range;

use super::SeriesIndex;
use crate::error::{Error, Result};
use crate::series::SeriesId;

/// The tag that tells the series of several jobs apart. It is never stored.
pub const JOB_TAG: &str = "job";

/// What the ids of one database are called among several.
#[derive(Debug)]
pub struct Ids {
    /// By the id inside the database.
    pub(super) common: Vec<SeriesId>,
    /// Series that no database before this one has.
    new: Range<u32>,
    /// The others, sorted.
    shared: Vec<SeriesId>,
}

impl Ids {
    /// Gives every series of `own` its id in `common`, by its key.
    pub fn new(own: &SeriesIndex, common: &SeriesIndex) -> Result<Self> {
        let series = own.len();
        let before = count(common);
        let (mut ids, mut shared) = (Vec::with_capacity(series), Vec::new());
        for id in (0..count(own)).map(SeriesId) {
            let key = own.key(id).ok_or(Error::UnknownSeries { id: id.0 })?;
            let (id, is_new) = common.get_or_insert(&key, u32::MAX)?;
            ids.push(id);
            if !is_new {
                shared.push(id);
            }
        }
        shared.sort_unstable();
        Ok(Self { common: ids, new: before..count(common), shared })
    }

    /// The common id of a series of this database.
    pub fn translate(&self, own: SeriesId) -> Option<SeriesId> {
        self.common.get(own.0 as usize).copied()
    }

    /// Whether this database knows the series of this common id.
    pub fn hold(&self, series: SeriesId) -> bool {
        self.new.contains(&series.0) || self.shared.binary_search(&series).is_ok()
    }

    /// Of `series`, sorted, those that this database knows: looked up here, a job of many nodes asks each of its
    /// databases for what that one has, and not for what all of them have.
    pub fn known<'a, T>(&'a self, series: &'a [(SeriesId, T)]) -> impl Iterator<Item = &'a (SeriesId, T)> {
        let before = |end: u32| series.partition_point(|(series, _)| series.0 < end);
        let (from, until) = (before(self.new.start), before(self.new.end));
        // Most databases share none.
        let others = if self.shared.is_empty() { &[] } else { series };
        let shared = others.iter().filter(|(series, _)| self.shared.binary_search(series).is_ok());
        series[from..until].iter().chain(shared)
    }

    /// The first common id that was given out for this database: what comes after it, up to that of the next database, is
    /// this one's alone or was first.
    pub fn first_new(&self) -> SeriesId {
        SeriesId(self.new.start)
    }

    /// How many series this database has.
    pub fn series_count(&self) -> usize {
        self.common.len()
    }
}

fn count(index: &SeriesIndex) -> u32 {
    u32::try_from(index.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
