//! The last value of every series, in memory.
//!
//! Appends keep it up to date. After an open the samples in segments are not known yet; the first
//! question about a series reads them, once.

use std::sync::{PoisonError, RwLock};

use crate::sample::SampleBatch;
use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::Value;

/// A sample of the latest time that is known.
type Newest = Option<(Timestamp, Value)>;

#[derive(Debug)]
pub struct LastValues {
    /// Series below this id may have samples in segments that were there at the open.
    unread_below: u32,
    entries: RwLock<Vec<Entry>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    newest: Newest,
    /// Whether segments were asked.
    read: bool,
}

impl LastValues {
    pub fn new(unread_below: u32) -> Self {
        Self { unread_below, entries: RwLock::default() }
    }

    /// Callers hold the append lock, so that equal times come in the order of writing.
    pub fn update(&self, batch: &SampleBatch) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for (series, time, value) in batch.iter() {
            let entry = slot(&mut entries, series);
            if entry.newest.is_none_or(|(newest, _)| newest <= time) {
                entry.newest = Some((time, value));
            }
        }
    }

    /// The outer `None`: segments must be asked first, see [`LastValues::fill`].
    pub fn get(&self, series: SeriesId) -> Option<Newest> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(series.0 as usize).copied().unwrap_or_default();
        (entry.read || series.0 >= self.unread_below).then_some(entry.newest)
    }

    /// Takes in what a snapshot found. What was appended since is newer where times are equal.
    pub fn fill(&self, series: SeriesId, found: Newest) -> Newest {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = slot(&mut entries, series);
        entry.read = true;
        if let Some((time, _)) = found
            && entry.newest.is_none_or(|(newest, _)| newest < time)
        {
            entry.newest = found;
        }
        entry.newest
    }
}

fn slot(entries: &mut Vec<Entry>, series: SeriesId) -> &mut Entry {
    let at = series.0 as usize;
    if entries.len() <= at {
        entries.resize(at + 1, Entry::default());
    }
    &mut entries[at]
}
