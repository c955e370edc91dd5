//! The last value of every series, in memory.
//!
//! Appends keep it up to date. After an open the samples in segments are not known yet: the first query of a series
//! reads them, once. The same holds for series whose newest sample may have been dropped.

use std::sync::{PoisonError, RwLock};

use crate::paged::PagedTable;
use crate::sample::SampleBatch;
use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::{Value, ValueType};

/// How often each series comes in a batch, on average, that is worth a look at which were there already.
const REPEATS_MIN: usize = 4;

/// A sample of the latest time that is known.
type Newest = Option<(Timestamp, Value)>;

#[derive(Debug)]
pub struct LastValues {
    known: RwLock<LastTable>,
}

#[derive(Debug, Default)]
struct LastTable {
    /// Series below this id may have samples in segments that were there at the open.
    unread_below: u32,
    /// How often something was forgotten.
    forgotten: u64,
    entries: PagedTable<LastEntry>,
}

/// Segments must be asked: what [`LastValues::fill`] wants to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    forgotten: u64,
}

/// 19 bytes: the state of the sample, if there is one, beside its time and the bits of its value.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed)]
struct LastEntry {
    time: i64,
    bits: u64,
    is_known: bool,
    is_int: bool,
    /// Whether segments were asked.
    read: bool,
}

impl LastEntry {
    fn newest(&self) -> Newest {
        self.is_known
            .then(|| (Timestamp::from_micros(self.time), Value::from_bits(self.bits, ValueType::of_bit(self.is_int))))
    }

    fn set(&mut self, time: Timestamp, value: Value) {
        (self.time, self.bits) = (time.micros(), value.to_bits());
        (self.is_known, self.is_int) = (true, value.is_int());
    }
}

impl LastValues {
    pub fn new(unread_below: u32) -> Self {
        Self { known: RwLock::new(LastTable { unread_below, ..LastTable::default() }) }
    }

    /// What they take in memory, with room for more.
    pub fn bytes(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).entries.bytes()
    }

    /// Callers hold the append lock, so that equal times come in the order of writing.
    pub fn update(&self, batch: &SampleBatch) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let series_end = batch.highest_series().map_or(0, |id| id.0 as usize + 1);
        known.entries.grow_to(series_end);
        let mut update = |(series, time, value): (SeriesId, Timestamp, Value)| {
            let entry = &mut known.entries[series.0 as usize];
            if !entry.is_known || entry.time <= time.micros() {
                entry.set(time, value);
            }
        };
        if batch.len() / REPEATS_MIN <= series_end || !batch.times().is_sorted() {
            return batch.iter().for_each(update);
        }
        // Many ticks: of each series only what comes last counts.
        let (mut seen, mut unseen) = (vec![false; series_end], series_end);
        for sample in batch.iter().rev() {
            if !std::mem::replace(&mut seen[sample.0.0 as usize], true) {
                update(sample);
                unseen -= 1;
                if unseen == 0 {
                    break;
                }
            }
        }
    }

    /// # Errors
    /// Segments must be asked first, see [`LastValues::fill`].
    pub fn get(&self, series: SeriesId) -> Result<Newest, Unread> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entries.get(series.0 as usize).copied().unwrap_or_default();
        if entry.read || series.0 >= known.unread_below {
            return Ok(entry.newest());
        }
        Err(Unread { forgotten: known.forgotten })
    }

    /// Takes in what a snapshot found that was taken after `unread`. What was appended since is newer where times are
    /// equal.
    pub fn fill(&self, series: SeriesId, unread: Unread, found: Newest) -> Newest {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.forgotten != unread.forgotten {
            // It may have been dropped since.
            return found;
        }
        let entry = slot(&mut known.entries, series);
        entry.read = true;
        if let Some((time, value)) = found
            && entry.newest().is_none_or(|(newest, _)| newest < time)
        {
            entry.set(time, value);
        }
        entry.newest()
    }

    /// Samples up to `last` were dropped, and snapshots do not see them any more.
    pub fn forget_until(&self, last: Timestamp) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.unread_below as usize;
        for (at, entry) in known.entries.iter_mut().enumerate() {
            let gone = entry.newest().is_some_and(|(time, _)| time <= last);
            if gone {
                *entry = LastEntry::default();
            } else if at >= before {
                // What it has was all there ever was.
                entry.read = true;
            }
        }
        known.forgotten += 1;
        known.unread_below = known.unread_below.max(u32::try_from(known.entries.len()).unwrap_or(u32::MAX));
    }
}

fn slot(entries: &mut PagedTable<LastEntry>, series: SeriesId) -> &mut LastEntry {
    let at = series.0 as usize;
    entries.grow_to(at + 1);
    &mut entries[at]
}

#[cfg(test)]
mod tests;
