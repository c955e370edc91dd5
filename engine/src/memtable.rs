//! The newest samples, in memory, by series in the order in which they arrived.
//!
//! Every sample carries its row: the how-manieth sample of this memtable it is. A snapshot
//! remembers how many rows there were and sees exactly those, so it costs nothing to take and
//! readers never see half a batch. Order by time and last-write-wins are made when reading.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;

use crate::sample::SampleBatch;
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::together::Ids;
use crate::value::Value;

/// Readers of one series wait for a writer of another only within a shard.
const SHARDS: usize = 16;
/// What a sample costs: time, value, row and type.
pub const SAMPLE_BYTES: u64 = 8 + 8 + 4;
/// What an empty series costs besides, by measure of its three vectors and its map entry.
const SERIES_BYTES: u64 = 128;
/// The row number's top bit holds the type of the value.
const INT_BIT: u32 = 1 << 31;
/// Most samples in one memtable; the limit in bytes is reached long before.
pub const ROWS_MAX: u32 = INT_BIT - 1;

/// How much of a memtable a snapshot may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows(u32);

#[derive(Debug)]
pub struct Memtable {
    shards: [Mutex<AHashMap<SeriesId, Buffer>>; SHARDS],
    /// Written by the one appender, after the samples stand in their buffers.
    rows: AtomicU32,
    bytes: AtomicU64,
    /// Earliest and latest time, microseconds; crossed while there is no sample.
    first: AtomicI64,
    last: AtomicI64,
}

impl Default for Memtable {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            rows: AtomicU32::default(),
            bytes: AtomicU64::default(),
            first: AtomicI64::new(i64::MAX),
            last: AtomicI64::new(i64::MIN),
        }
    }
}

#[derive(Debug, Default)]
struct Buffer {
    times: Vec<i64>,
    bits: Vec<u64>,
    /// Ascending in the low 31 bits, because samples arrive one after another.
    rows: Vec<u32>,
}

impl Memtable {
    /// Callers hold the database's append lock: there is one appender at a time.
    pub fn append(&self, batch: &SampleBatch) {
        let mut row = self.rows.load(Ordering::Relaxed);
        let mut new_series = 0;
        for (series, time, value) in batch.iter() {
            let mut shard = self.shard(series);
            let buffer = shard.entry(series).or_insert_with(|| {
                new_series += 1;
                Buffer::default()
            });
            buffer.times.push(time.micros());
            buffer.bits.push(value.to_bits());
            buffer.rows.push(row | if value.is_int() { INT_BIT } else { 0 });
            row += 1;
        }
        if let (Some(first), Some(last)) = (batch.times().iter().min(), batch.times().iter().max()) {
            self.first.fetch_min(first.micros(), Ordering::Relaxed);
            self.last.fetch_max(last.micros(), Ordering::Relaxed);
        }
        let bytes = batch.len() as u64 * SAMPLE_BYTES + new_series * SERIES_BYTES;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.rows.store(row, Ordering::Release);
    }

    pub fn rows(&self) -> Rows {
        Rows(self.rows.load(Ordering::Acquire))
    }

    pub fn len(&self) -> usize {
        self.rows().0 as usize
    }

    /// Whether `samples` more have a row number left.
    pub fn has_room(&self, samples: usize) -> bool {
        self.len() + samples <= ROWS_MAX as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The times of the earliest and the latest sample.
    pub fn time_bounds(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        (first <= last).then(|| (Timestamp::from_micros(first), Timestamp::from_micros(last)))
    }

    /// Which buckets of `width` microseconds, counted from the epoch, hold samples; `None` when more than `max` do.
    pub fn time_buckets(&self, width: i64, max: usize) -> Option<BTreeSet<i64>> {
        let mut buckets = BTreeSet::new();
        for shard in &self.shards {
            for buffer in lock(shard).values() {
                let mut before = None;
                for time in &buffer.times {
                    let bucket = time.div_euclid(width);
                    // Neighbours are mostly in one bucket.
                    if before != Some(bucket) {
                        before = Some(bucket);
                        buckets.insert(bucket);
                        if buckets.len() > max {
                            return None;
                        }
                    }
                }
            }
        }
        Some(buckets)
    }

    /// Every series with a sample, in the order of ids.
    pub fn series(&self) -> Vec<SeriesId> {
        let mut ids: Vec<SeriesId> = Vec::new();
        for shard in &self.shards {
            ids.extend(lock(shard).keys().copied());
        }
        ids.sort_unstable();
        ids
    }

    /// The same samples under other ids: as several databases that are open as one call them.
    ///
    /// # Errors
    /// The series that `ids` do not know.
    pub fn renamed(self, ids: &Ids) -> Result<Self, SeriesId> {
        let mut shards: [Mutex<AHashMap<SeriesId, Buffer>>; SHARDS] = Default::default();
        for shard in self.shards {
            for (series, buffer) in shard.into_inner().unwrap_or_else(PoisonError::into_inner) {
                let series = ids.translate(series).ok_or(series)?;
                let shard = shards[series.0 as usize % SHARDS].get_mut().unwrap_or_else(PoisonError::into_inner);
                shard.insert(series, buffer);
            }
        }
        let Self { rows, bytes, first, last, .. } = self;
        Ok(Self { shards, rows, bytes, first, last })
    }

    /// How many samples of `series` it holds, each write counted.
    pub fn count(&self, series: SeriesId) -> u64 {
        self.shard(series).get(&series).map_or(0, |buffer| buffer.times.len() as u64)
    }

    /// The visible samples of one series in `range`, sorted by time, the last write of each time.
    pub fn read(&self, series: SeriesId, range: TimeRange, visible: Rows) -> Vec<(Timestamp, Value)> {
        let mut samples: Vec<(Timestamp, Value)> = Vec::new();
        {
            let shard = self.shard(series);
            let Some(buffer) = shard.get(&series) else { return samples };
            let end = buffer.rows.partition_point(|row| row & !INT_BIT < visible.0);
            for at in 0..end {
                let time = Timestamp::from_micros(buffer.times[at]);
                if range.contains(time) {
                    samples.push((time, Value::from_bits(buffer.bits[at], buffer.rows[at] & INT_BIT != 0)));
                }
            }
        }
        keep_last_writes(&mut samples);
        samples
    }
}

impl Memtable {
    /// Whether a visible sample of `series` lies in `range`.
    pub fn has(&self, series: SeriesId, range: TimeRange, visible: Rows) -> bool {
        let shard = self.shard(series);
        let Some(buffer) = shard.get(&series) else { return false };
        let end = buffer.rows.partition_point(|row| row & !INT_BIT < visible.0);
        buffer.times[..end].iter().any(|time| range.contains(Timestamp::from_micros(*time)))
    }

    /// The earliest and the latest time of the visible samples of `series`.
    pub fn bounds_of(&self, series: SeriesId, visible: Rows) -> Option<(Timestamp, Timestamp)> {
        let shard = self.shard(series);
        let buffer = shard.get(&series)?;
        let end = buffer.rows.partition_point(|row| row & !INT_BIT < visible.0);
        let times = &buffer.times[..end];
        Some((Timestamp::from_micros(*times.iter().min()?), Timestamp::from_micros(*times.iter().max()?)))
    }

    /// The visible sample of the latest time of `series`; of those the one that arrived last.
    pub fn last(&self, series: SeriesId, visible: Rows) -> Option<(Timestamp, Value)> {
        let shard = self.shard(series);
        let buffer = shard.get(&series)?;
        let end = buffer.rows.partition_point(|row| row & !INT_BIT < visible.0);
        // The last of equal maxima.
        let at = (0..end).max_by_key(|at| buffer.times[*at])?;
        let value = Value::from_bits(buffer.bits[at], buffer.rows[at] & INT_BIT != 0);
        Some((Timestamp::from_micros(buffer.times[at]), value))
    }

    fn shard(&self, series: SeriesId) -> MutexGuard<'_, AHashMap<SeriesId, Buffer>> {
        lock(&self.shards[series.0 as usize % SHARDS])
    }
}

/// A push that panicked for want of memory leaves three vectors of unequal length, but the
/// process is then past saving; nothing else panics under this lock.
fn lock(shard: &Mutex<AHashMap<SeriesId, Buffer>>) -> MutexGuard<'_, AHashMap<SeriesId, Buffer>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sorts samples in order of arrival by time; of those with one time only the last stays.
pub fn keep_last_writes(samples: &mut Vec<(Timestamp, Value)>) {
    let in_order = samples.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if in_order {
        return;
    }
    // Stable: equal times keep the order in which they arrived.
    samples.sort_by_key(|(time, _)| *time);
    let mut kept = 0;
    for at in 0..samples.len() {
        if kept > 0 && samples[kept - 1].0 == samples[at].0 {
            samples[kept - 1] = samples[at];
        } else {
            samples[kept] = samples[at];
            kept += 1;
        }
    }
    samples.truncate(kept);
}
