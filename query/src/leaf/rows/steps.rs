//! The steps of samples. A client that logs the values of a step logs the step too: as one more metric, with the same
//! time and the same tags. So a step costs a sample for each call and not for each value, and every reader of the
//! format understands it. A row finds its step here, by its time.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};
use datafusion::common::internal_err;
use datafusion::error::Result;
use telem_engine::{
    ScanColumn, ScanRequest, SeriesId, SeriesIndex, SeriesKey, Snapshot, TimeRange, Timestamp, ValueRange,
};

use super::engine_error;
use crate::options::BATCH_ROWS;

/// The metric of the steps of a program; of those of a group it is the last word of the name, as in `train/step`.
const STEP: &str = "step";
/// Floats up to here are counted without a gap: 2^53.
const WHOLE_FLOATS: f64 = 9_007_199_254_740_992.0;

/// The metrics that may count the steps of `metric`: that of its own group, as `train/step` of `train/loss`, then that
/// of the program. None counts its own.
fn counters(metric: &str) -> impl Iterator<Item = String> {
    // Clients join words by a slash, the line protocol measurement and field by a dot.
    let of_group = metric.rfind(['/', '.']).map(|end| format!("{}{STEP}", &metric[..=end]));
    let metric = metric.to_owned();
    of_group.into_iter().chain([STEP.to_owned()]).filter(move |counter| *counter != metric)
}

/// The series that counts the steps of `key`: it has the same tags.
fn counter_of(index: &SeriesIndex, key: &SeriesKey) -> Option<SeriesId> {
    // A metric that breaks the rule of names has no series.
    counters(key.metric()).find_map(|counter| index.id(&SeriesKey::new(&counter, key.tags().clone()).ok()?))
}

/// Whether some series of `metric` has steps.
pub fn has_steps(index: &SeriesIndex, metric: &str) -> bool {
    counters(metric).any(|counter| {
        let mut series = index.select(&counter, &[]).into_iter().filter_map(|series| index.key(series));
        series.any(|key| SeriesKey::new(metric, key.tags().clone()).is_ok_and(|key| index.id(&key).is_some()))
    })
}

/// For each row the step of its sample; NULL where nothing was logged of that time, or where it is no integer. `ids`
/// and `times` are those of the rows, series after series, each in the order of time.
pub(super) fn of_rows(snapshot: &Snapshot, ids: &[u32], times: &[i64]) -> Result<Int64Array> {
    if ids.len() != times.len() {
        return internal_err!("a scan answers fewer times than series");
    }
    let mut steps = vec![None; ids.len()];
    let (mut group, mut at) = (CountedRows::default(), 0);
    for stretch in ids.chunk_by(|a, b| a == b) {
        let rows = at..at + stretch.len();
        at = rows.end;
        let Some(key) = snapshot.index().key(SeriesId(stretch[0])) else {
            return internal_err!("a scan answers series {}, which the index does not know", stretch[0]);
        };
        let Some(counter) = counter_of(snapshot.index(), &key) else { continue };
        let (first, last) = (times[rows.start], times[rows.end - 1]);
        if !group.has_room(first, last) {
            std::mem::take(&mut group).fill(snapshot, times, &mut steps)?;
        }
        group.add(counter, rows, (first, last));
    }
    group.fill(snapshot, times, &mut steps)?;
    Ok(Int64Array::from(steps))
}

/// Rows whose counters are read in one pass, because they are of about the same time.
#[derive(Default)]
struct CountedRows {
    /// The rows of each counter, series after series.
    of_counter: BTreeMap<SeriesId, Vec<Range<usize>>>,
    series: i64,
    /// The times of the first and the last row of all.
    bounds: Option<(i64, i64)>,
    /// Of each series by itself, in microseconds.
    lengths: i64,
}

impl CountedRows {
    /// Whether those of another series come along without making the pass read much that nobody asks for: of a batch
    /// with the end of one long series and the beginning of the next, both would be read whole.
    fn has_room(&self, first: i64, last: i64) -> bool {
        let (all_first, all_last) = self.joined(first, last);
        let read = length(all_first, all_last).saturating_mul(self.series + 1);
        self.bounds.is_none() || read <= self.lengths.saturating_add(length(first, last)).saturating_mul(2)
    }

    fn joined(&self, first: i64, last: i64) -> (i64, i64) {
        self.bounds.map_or((first, last), |(all_first, all_last)| (all_first.min(first), all_last.max(last)))
    }

    fn add(&mut self, counter: SeriesId, rows: Range<usize>, (first, last): (i64, i64)) {
        self.bounds = Some(self.joined(first, last));
        self.lengths = self.lengths.saturating_add(length(first, last));
        self.series += 1;
        self.of_counter.entry(counter).or_default().push(rows);
    }

    /// Puts what the counters said at the times of the rows into `steps`.
    fn fill(self, snapshot: &Snapshot, times: &[i64], steps: &mut [Option<i64>]) -> Result<()> {
        let Some((first, last)) = self.bounds else { return Ok(()) };
        let range = TimeRange::new(Timestamp::from_micros(first), Timestamp::from_micros(last.saturating_add(1)));
        let columns = vec![ScanColumn::Ts, ScanColumn::Value, ScanColumn::Int, ScanColumn::Series];
        let (series, batch_rows, limit) = (self.of_counter.keys().copied().collect(), BATCH_ROWS, None);
        for batch in snapshot.scan(ScanRequest { series, range, columns, values: ValueRange::ALL, batch_rows, limit }) {
            let batch = batch.map_err(engine_error)?;
            let counted = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
            let counters = batch.column(3).as_primitive::<UInt32Type>().values();
            let mut from = 0;
            for stretch in counters.chunk_by(|a, b| a == b) {
                let found = from..from + stretch.len();
                from = found.end;
                for rows in self.of_counter.get(&SeriesId(stretch[0])).into_iter().flatten() {
                    for (row, at) in equal_times(&times[rows.clone()], &counted[found.clone()]) {
                        steps[rows.start + row] = step(&batch, found.start + at);
                    }
                }
            }
        }
        Ok(())
    }
}

/// From the first to the last, in microseconds; no less than a minute, which costs nothing to read.
fn length(first: i64, last: i64) -> i64 {
    last.saturating_sub(first).max(60_000_000)
}

/// The places at which both have the same time. Both ascend.
fn equal_times(one: &[i64], other: &[i64]) -> Vec<(usize, usize)> {
    let (mut equal, mut at) = (Vec::new(), 0);
    let mut place = other.first().map_or(0, |first| one.partition_point(|time| time < first));
    while let Some(time) = one.get(place) {
        at += other[at..].partition_point(|other| other < time);
        match other.get(at) {
            Some(other) if other == time => equal.push((place, at)),
            Some(_) => {}
            None => break,
        }
        place += 1;
    }
    equal
}

/// The step in a row of times, values and integers.
fn step(batch: &RecordBatch, row: usize) -> Option<i64> {
    let integers = batch.column(2).as_primitive::<Int64Type>();
    if integers.is_valid(row) {
        return Some(integers.value(row));
    }
    // Some protocols have no integers.
    let float = batch.column(1).as_primitive::<Float64Type>().value(row);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
    (float.fract() == 0.0 && float.abs() <= WHOLE_FLOATS).then_some(float as i64)
}
