//! The steps of samples. A client that logs the values of a step logs the step too: as one more metric, with the same
//! time and the same tags. So a step costs a sample for each call and not for each value, and every reader of the
//! format understands it. A row finds its step here, by its time.

#[cfg(test)]
mod tests;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::common::internal_err;
use datafusion::error::Result;
use telem_engine::{ScanColumn, ScanRequest, SeriesId, SeriesIndex, SeriesKey, Snapshot, TimeRange, Timestamp};

use super::samples::engine_error;
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
    let mut steps = Vec::with_capacity(ids.len());
    let mut times = times;
    for stretch in ids.chunk_by(|a, b| a == b) {
        let Some((of_series, rest)) = times.split_at_checked(stretch.len()) else {
            return internal_err!("a scan answers fewer times than series");
        };
        times = rest;
        let Some(key) = snapshot.index().key(SeriesId(stretch[0])) else {
            return internal_err!("a scan answers series {}, which the index does not know", stretch[0]);
        };
        match counter_of(snapshot.index(), &key) {
            Some(counter) => of_times(snapshot, counter, of_series, &mut steps)?,
            None => steps.resize(steps.len() + stretch.len(), None),
        }
    }
    Ok(Int64Array::from(steps))
}

/// Appends what `counter` said at each of these times, which ascend.
fn of_times(snapshot: &Snapshot, counter: SeriesId, times: &[i64], steps: &mut Vec<Option<i64>>) -> Result<()> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let range = TimeRange::new(Timestamp::from_micros(*first), Timestamp::from_micros(last.saturating_add(1)));
    let columns = vec![ScanColumn::Ts, ScanColumn::Value, ScanColumn::Int];
    let (series, batch_rows, limit) = (vec![counter], BATCH_ROWS, None);
    let mut left = times.iter().copied().peekable();
    for batch in snapshot.scan(ScanRequest { series, range, columns, batch_rows, limit }) {
        let batch = batch.map_err(engine_error)?;
        let counted = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
        for (row, counted) in counted.iter().enumerate() {
            while left.next_if(|time| time < counted).is_some() {
                steps.push(None);
            }
            if left.next_if_eq(counted).is_some() {
                steps.push(step(&batch, row));
            }
        }
    }
    steps.extend(left.map(|_| None));
    Ok(())
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
