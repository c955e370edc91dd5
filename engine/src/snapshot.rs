//! What a reader holds: every sample that was appended before it was taken, and none after.
//!
//! Owned and cheap: nothing is copied, and what it needs lives until it is dropped.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;

use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::memtable::{Memtable, Rows};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Rows of one batch of a [`Scan`], unless asked otherwise.
pub const SCAN_BATCH_ROWS: usize = 8_192;

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) node: Arc<str>,
    pub(crate) index: Arc<SeriesIndex>,
    /// Oldest first.
    pub(crate) memtables: Vec<(Arc<Memtable>, Rows)>,
}

/// The samples of one series, sorted by time, every time once. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoints {
    pub series: SeriesId,
    pub times: Vec<Timestamp>,
    pub values: Values,
}

/// Values of one series, as long as its times.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    /// Both types in one series.
    Mixed(Vec<Value>),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Values::Int(ints) => ints.len(),
            Values::Float(floats) => floats.len(),
            Values::Mixed(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> Value {
        match self {
            Values::Int(ints) => Value::Int(ints[at]),
            Values::Float(floats) => Value::Float(floats[at]),
            Values::Mixed(values) => values[at],
        }
    }

    pub fn into_f64s(self) -> Vec<f64> {
        match self {
            Values::Int(ints) => ints.into_iter().map(|int| int as f64).collect(),
            Values::Float(floats) => floats,
            Values::Mixed(values) => values.into_iter().map(Value::as_f64).collect(),
        }
    }
}

impl FromIterator<Value> for Values {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let values: Vec<Value> = values.into_iter().collect();
        let ints = values.iter().filter(|value| value.is_int()).count();
        if ints == values.len() {
            Values::Int(values.iter().map(|value| value.to_bits().cast_signed()).collect())
        } else if ints == 0 {
            Values::Float(values.iter().map(|value| value.as_f64()).collect())
        } else {
            Values::Mixed(values)
        }
    }
}

/// What a scan reads: these series, in this order, within `range`.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    pub series: Vec<SeriesId>,
    pub range: TimeRange,
    /// Rows in a batch, at most.
    pub batch_rows: usize,
}

impl Snapshot {
    /// The node that owns these samples.
    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn index(&self) -> &Arc<SeriesIndex> {
        &self.index
    }

    /// The samples of every series that has any in `range`, in the order of `series`.
    pub fn points(&self, series: Vec<SeriesId>, range: TimeRange) -> Points {
        Points { snapshot: self.clone(), series: series.into_iter(), range }
    }

    /// Whether `series` has a sample in `range`; reads as little as that takes.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn has_points(&self, series: SeriesId, range: TimeRange) -> Result<bool> {
        Ok(self.memtables.iter().any(|(memtable, rows)| !memtable.read(series, range, *rows).is_empty()))
    }

    /// The newest sample (by time) of a series.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn last(&self, series: SeriesId) -> Result<Option<(Timestamp, Value)>> {
        let Some(points) = self.points(vec![series], TimeRange::ALL).next().transpose()? else { return Ok(None) };
        let at = points.times.len() - 1;
        Ok(Some((points.times[at], points.values.get(at))))
    }

    /// The samples as Arrow batches of [`scan_schema`], sorted by the order of the request and time.
    pub fn scan(&self, request: ScanRequest) -> Scan {
        let batch_rows = request.batch_rows.max(1);
        Scan { points: self.points(request.series, request.range), batch_rows, schema: scan_schema(), pending: None }
    }
}

/// See [`Snapshot::points`].
#[derive(Debug)]
pub struct Points {
    snapshot: Snapshot,
    series: std::vec::IntoIter<SeriesId>,
    range: TimeRange,
}

impl Iterator for Points {
    type Item = Result<SeriesPoints>;

    fn next(&mut self) -> Option<Self::Item> {
        for series in self.series.by_ref() {
            let mut samples = Vec::new();
            for (memtable, rows) in &self.snapshot.memtables {
                samples.extend(memtable.read(series, self.range, *rows));
            }
            crate::memtable::keep_last_writes(&mut samples);
            if !samples.is_empty() {
                let times = samples.iter().map(|(time, _)| *time).collect();
                let values = samples.into_iter().map(|(_, value)| value).collect();
                return Some(Ok(SeriesPoints { series, times, values }));
            }
        }
        None
    }
}

/// Columns of a scan: `series`, `ts`, and of `int` and `float` exactly the one that the sample is.
pub fn scan_schema() -> SchemaRef {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")));
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        Field::new("ts", utc, false),
        Field::new("int", DataType::Int64, true),
        Field::new("float", DataType::Float64, true),
    ]))
}

/// See [`Snapshot::scan`].
#[derive(Debug)]
pub struct Scan {
    points: Points,
    batch_rows: usize,
    schema: SchemaRef,
    /// The series being handed out and how many of its rows are out.
    pending: Option<(SeriesPoints, usize)>,
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut series, mut times, mut ints, mut floats) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        while series.len() < self.batch_rows {
            let (points, from) = match self.pending.take() {
                Some(pending) => pending,
                None => match self.points.next() {
                    Some(Ok(points)) => (points, 0),
                    Some(Err(error)) => return Some(Err(error)),
                    None => break,
                },
            };
            let to = points.times.len().min(from + self.batch_rows - series.len());
            for at in from..to {
                series.push(points.series.0);
                times.push(points.times[at].micros());
                let (int, float) = match points.values.get(at) {
                    Value::Int(int) => (Some(int), None),
                    Value::Float(float) => (None, Some(float)),
                };
                ints.push(int);
                floats.push(float);
            }
            if to < points.times.len() {
                self.pending = Some((points, to));
            }
        }
        if series.is_empty() {
            return None;
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(series)),
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
            Arc::new(Int64Array::from(ints)),
            Arc::new(Float64Array::from(floats)),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        Some(batch.map_err(|error| Error::Internal { what: format!("a scan built a wrong batch: {error}") }))
    }
}
