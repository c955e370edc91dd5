//! The newest samples, in memory, by series in the order in which they arrived.
//!
//! Every sample carries its row, which counts the samples of this memtable in order of arrival. A snapshot remembers
//! how many rows there were and sees exactly those. So a snapshot costs nothing to take, and readers never see half a
//! batch. Sorting by time and last-write-wins happen when samples are read.
//!
//! The samples of a series are stored in a chain of small blocks, see [`chain`]. An append touches only the end of each
//! chain, and a series with few samples takes little memory.

mod chain;
mod page;
mod spare;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

pub use self::chain::ChainColumns;
use self::chain::{Chains, Sample, TICKS_AT_ONCE};
pub use self::spare::SparePages;
use crate::index::Ids;
use crate::sample::SampleBatch;
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// What a sample costs, besides its share of a block's head and of what is empty in its series' last block.
pub const SAMPLE_BYTES: u64 = size_of::<page::ChainEntry>() as u64;
/// Most samples in one memtable; the limit in bytes is reached long before.
pub const ROWS_MAX: u32 = chain::ROWS_MAX;
/// Places that samples are moved before they are sorted as any others.
const MOVES_PER_SAMPLE: usize = 4;
/// Samples that are appended before waiting readers get their turn.
const APPENDED_AT_ONCE: usize = 8 << 10;

/// Most samples of ticks that are added together.
const TICKS_SAMPLES_MAX: usize = 64 << 10;

/// How much of a memtable a snapshot may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows(u32);

#[derive(Debug)]
pub struct Memtable {
    chains: RwLock<Chains>,
    /// Written by the one appender, after the samples are in their chains.
    rows: AtomicU32,
    bytes: AtomicU64,
    /// Earliest and latest time, microseconds; crossed while there is no sample.
    first: AtomicI64,
    last: AtomicI64,
}

impl Default for Memtable {
    fn default() -> Self {
        Self {
            chains: RwLock::default(),
            rows: AtomicU32::default(),
            bytes: AtomicU64::default(),
            first: AtomicI64::new(i64::MAX),
            last: AtomicI64::new(i64::MIN),
        }
    }
}

impl Memtable {
    /// An empty one, whose pages come from `spare` and go there.
    pub fn with_spare(spare: &Arc<SparePages>) -> Self {
        Self { chains: RwLock::new(Chains::with_spare(Arc::clone(spare))), ..Self::default() }
    }

    /// Callers hold the database's append lock: there is one appender at a time.
    pub fn append(&self, batch: &SampleBatch) {
        let mut row = self.rows.load(Ordering::Relaxed);
        let (mut first, mut last) = (Timestamp::MAX, Timestamp::MIN);
        let tick = tick_of(batch);
        let ticks = tick.len() * TICKS_AT_ONCE;
        let at_once = if ticks > 0 { APPENDED_AT_ONCE.next_multiple_of(ticks) } else { APPENDED_AT_ONCE };
        let parts = batch.series().chunks(at_once).zip(batch.times().chunks(at_once));
        for ((series, times), values) in parts.zip(batch.values().chunks(at_once)) {
            let mut chains = self.chains.write().unwrap_or_else(PoisonError::into_inner);
            let mut at = 0;
            while ticks > 0 && at + ticks <= series.len() {
                chains.extend_ticks(tick, &times[at..], &values[at..], row + at as u32);
                at += ticks;
            }
            chains.extend(&series[at..], &times[at..], &values[at..], row + at as u32);
            row += series.len() as u32;
            self.bytes.store(chains.bytes(), Ordering::Relaxed);
        }
        // Samples of a tick have one time.
        for ticks in batch.times().chunk_by(|a, b| a == b) {
            (first, last) = (first.min(ticks[0]), last.max(ticks[0]));
        }
        if !batch.is_empty() {
            self.first.fetch_min(first.micros(), Ordering::Relaxed);
            self.last.fetch_max(last.micros(), Ordering::Relaxed);
        }
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
        let Some((first, last)) = self.time_bounds() else { return Some(BTreeSet::new()) };
        let bucket_of = |time: Timestamp| time.micros().div_euclid(width);
        // Samples come as they are taken: mostly all lie in one bucket or two neighbours, and both have one then.
        if bucket_of(last) - bucket_of(first) <= 1 && max >= 2 {
            return Some(BTreeSet::from([bucket_of(first), bucket_of(last)]));
        }
        let mut buckets = BTreeSet::new();
        // Neighbours are mostly in one bucket.
        let mut before: Option<i64> = None;
        for sample in self.read_chains().all() {
            let bucket = bucket_of(sample.time);
            if before != Some(bucket) {
                before = Some(bucket);
                buckets.insert(bucket);
                if buckets.len() > max {
                    return None;
                }
            }
        }
        Some(buckets)
    }

    /// Every series with a sample, in the order of ids.
    pub fn series(&self) -> Vec<SeriesId> {
        let mut ids: Vec<SeriesId> = self.read_chains().series().collect();
        ids.sort_unstable();
        ids
    }

    /// The same samples under other ids: as several databases that are open as one call them.
    ///
    /// # Errors
    /// The series that `ids` do not know.
    pub fn renamed(self, ids: &Ids) -> Result<Self, SeriesId> {
        let Self { chains, rows, bytes, first, last } = self;
        let mut chains = chains.into_inner().unwrap_or_else(PoisonError::into_inner);
        chains.rename(|series| ids.translate(series))?;
        Ok(Self { chains: RwLock::new(chains), rows, bytes, first, last })
    }

    /// How many samples of `series` it holds, each write counted.
    pub fn count(&self, series: SeriesId) -> u64 {
        self.read_chains().count(series)
    }

    /// The visible samples of one series in `range`, sorted by time, the last write of each time.
    pub fn read(&self, series: SeriesId, range: TimeRange, visible: Rows) -> Vec<(Timestamp, Value)> {
        let mut samples: Vec<(Timestamp, Value)> = Vec::new();
        self.read_into(series, range, visible, &mut samples);
        samples
    }

    /// [`Memtable::read`] into a vector whose room is used again.
    pub fn read_into(&self, series: SeriesId, range: TimeRange, visible: Rows, samples: &mut Vec<(Timestamp, Value)>) {
        samples.clear();
        let wanted = |sample: &Sample| range.contains(sample.time);
        samples
            .extend(self.read_chains().of(series, visible.0).filter(wanted).map(|sample| (sample.time, sample.value)));
        keep_last_writes(samples);
    }

    /// All visible samples of one series as columns, if they arrived in the order of their times, each time once, and are
    /// of one type, as nearly all do; false if not: [`Memtable::read_into`] is for the others.
    pub fn read_columns(&self, series: SeriesId, visible: Rows, columns: &mut ChainColumns) -> bool {
        let same = self.read_chains().fill(series, visible.0, columns);
        same && columns.times.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Prepares for reading `series`, few of them, one after the other.
    pub fn bring_near(&self, series: &[SeriesId]) {
        self.read_chains().bring_near(series);
    }

    /// Whether a visible sample of `series` lies in `range`.
    pub fn has(&self, series: SeriesId, range: TimeRange, visible: Rows) -> bool {
        self.read_chains().of(series, visible.0).any(|sample| range.contains(sample.time))
    }

    /// The earliest and the latest time of the visible samples of `series`.
    pub fn bounds_of(&self, series: SeriesId, visible: Rows) -> Option<(Timestamp, Timestamp)> {
        let chains = self.read_chains();
        let bounds = |(first, last): (Timestamp, Timestamp), time: Timestamp| (first.min(time), last.max(time));
        let mut times = chains.of(series, visible.0).map(|sample| sample.time);
        let first = times.next()?;
        Some(times.fold((first, first), bounds))
    }

    /// The visible sample of the latest time of `series`; of those the one that arrived last.
    pub fn last(&self, series: SeriesId, visible: Rows) -> Option<(Timestamp, Value)> {
        // The last of equal maxima.
        let last = self.read_chains().of(series, visible.0).max_by_key(|sample| sample.time)?;
        Some((last.time, last.value))
    }

    /// A push that panicked for want of memory leaves a chain that ends early, and the process is past saving;
    /// nothing else panics under this lock.
    fn read_chains(&self) -> RwLockReadGuard<'_, Chains> {
        self.chains.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sorts samples in order of arrival by time; of those with one time only the last stays.
pub fn keep_last_writes(samples: &mut Vec<(Timestamp, Value)>) {
    let in_order = samples.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if in_order {
        return;
    }
    sort_by_arrival(samples);
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

/// Sorts by time; equal times keep the order in which they arrived. Samples that came over several connections are a few
/// places off, and then moving each costs less than a sort that knows nothing of that.
/// The series of each tick of a batch that are added together; none where it has too few ticks, or they are too large.
fn tick_of(batch: &SampleBatch) -> &[SeriesId] {
    let tick = &batch.series()[..batch.period()];
    let ticks = tick.len() * TICKS_AT_ONCE;
    if ticks > batch.len().min(TICKS_SAMPLES_MAX) {
        return &[];
    }
    // Of a series that comes twice in a tick the samples would change places.
    let mut sorted = tick.to_vec();
    sorted.sort_unstable();
    if sorted.windows(2).all(|pair| pair[0] < pair[1]) { tick } else { &[] }
}

fn sort_by_arrival(samples: &mut [(Timestamp, Value)]) {
    let mut moves_left = samples.len() * MOVES_PER_SAMPLE;
    for at in 1..samples.len() {
        let sample = samples[at];
        let mut to = at;
        while to > 0 && samples[to - 1].0 > sample.0 {
            if moves_left == 0 {
                samples[to] = sample;
                samples.sort_by_key(|(time, _)| *time);
                return;
            }
            moves_left -= 1;
            samples[to] = samples[to - 1];
            to -= 1;
        }
        samples[to] = sample;
    }
}
