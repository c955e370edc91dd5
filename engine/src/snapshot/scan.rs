//! Samples as Arrow batches with the requested columns. Pages are decoded directly into the batches, and data that no
//! requested column needs (times, values, or both) is not read.
//!
//! Where only some values are asked for, a run whose summary says that it has none of them is not read, and of a run that
//! has none the times are not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBufferBuilder, Float64Array, Int64Array, RecordBatchOptions, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;

use super::sources::Sources;
use super::stretches::{Stretch, Stretches};
use super::{READ_ROWS, Snapshot};
use crate::error::{Error, Result};
use crate::segment::decimal;
use crate::segment::read::{LoadedSegment, Need, Numbers, RunRows};
use crate::segment::times::Ticks;
use crate::series::SeriesId;
use crate::time::TimeRange;
use crate::value::{Value, ValueRange};

/// What a scan reads: these series, in this order, within `range`.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    pub series: Vec<SeriesId>,
    pub range: TimeRange,
    /// Of each batch, in this order; with none, batches tell only how many samples there are.
    pub columns: Vec<ScanColumn>,
    /// Only samples whose values are in it.
    pub values: ValueRange,
    /// Rows in a batch, at most.
    pub batch_rows: usize,
    /// Rows in all, at most.
    pub limit: Option<usize>,
}

/// What a scan tells of each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanColumn {
    /// `series`, UInt32: whose it is.
    Series,
    /// `ts`, Timestamp in microseconds, UTC.
    Ts,
    /// `value`, Float64: of an integer the nearest float.
    Value,
    /// `int`, Int64: the integer as it was appended, NULL of a float.
    Int,
}

impl ScanColumn {
    /// All that there are.
    pub const ALL: [ScanColumn; 4] = [ScanColumn::Series, ScanColumn::Ts, ScanColumn::Value, ScanColumn::Int];

    fn field(self) -> Field {
        let utc = || DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")));
        match self {
            ScanColumn::Series => Field::new("series", DataType::UInt32, false),
            ScanColumn::Ts => Field::new("ts", utc(), false),
            ScanColumn::Value => Field::new("value", DataType::Float64, false),
            ScanColumn::Int => Field::new("int", DataType::Int64, true),
        }
    }
}

/// See [`Snapshot::scan`]. Where much was read of which no value is wanted, a batch is empty, so that whoever reads on can
/// stop.
#[derive(Debug)]
pub struct Scan {
    stretches: Stretches,
    columns: Vec<ScanColumn>,
    /// Where not all values are wanted.
    tested: Option<ValueRange>,
    schema: SchemaRef,
    batch_rows: usize,
    rows_left: usize,
    ready: VecDeque<RecordBatch>,
}

impl Scan {
    pub(super) fn new(snapshot: &Snapshot, request: ScanRequest) -> Self {
        let ScanRequest { series, range, columns, values, batch_rows, limit } = request;
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        Self {
            stretches: Stretches::new(Sources::new(snapshot, series, range)),
            columns,
            tested: (values != ValueRange::ALL).then_some(values),
            schema: Arc::new(Schema::new(fields)),
            batch_rows: batch_rows.max(1),
            rows_left: limit.unwrap_or(usize::MAX),
            ready: VecDeque::new(),
        }
    }

    /// Makes batches of the next stretches: of several series, so that a page that holds many is decoded once.
    fn read(&mut self) -> Result<()> {
        // How many of the rows have such values is not known before these are read.
        let rows_left = if self.tested.is_some() { usize::MAX } else { self.rows_left };
        let rows_max = (READ_ROWS as usize).min(rows_left);
        let (mut seen, mut is_end) = (0, true);
        let mut out = ScanBatches::new(&self.columns, self.tested, self.batch_rows);
        let mut unread: Vec<Vec<UnreadRows>> = vec![Vec::new(); self.stretches.sources.segments.len()];
        while seen < rows_max
            && let Some((series, stretch)) = self.stretches.next(rows_max - seen)?
        {
            is_end = false;
            seen += stretch.len();
            if self.has_none(&stretch)? {
                continue;
            }
            // What was merged may be a little more than was asked for, and only a limit cuts it off.
            let at = out.add(series, stretch.len().min(rows_left - out.rows));
            match stretch {
                Stretch::Rows { segment, run, rows } => {
                    let rows = run.row as usize + rows.start..run.row as usize + rows.end;
                    unread[segment].push(UnreadRows { wanted: RunRows { run, rows }, at });
                }
                Stretch::Read(piece) => {
                    out.put_times(at, Ticks::List(&piece.times), piece.times.len());
                    out.put_values(at, Numbers::from(&piece.values));
                }
            }
        }
        for (segment, mut unread) in self.stretches.sources.segments.iter().zip(unread) {
            if unread.is_empty() || !out.wants_ts && !out.wants_value() {
                continue;
            }
            let loaded = segment.load()?;
            unread.sort_unstable_by_key(|one| one.wanted.rows.start);
            while !unread.is_empty() {
                // A series that is asked for twice is read twice.
                let mut end = 0;
                let (now, later) = unread.into_iter().partition(|one: &UnreadRows| {
                    let is_apart = end <= one.wanted.rows.start;
                    end = if is_apart { one.wanted.rows.end } else { end };
                    is_apart
                });
                out.read(&loaded, now)?;
                unread = later;
            }
        }
        if let Some(values) = self.tested {
            out = out.kept(values, self.rows_left);
        }
        self.rows_left -= out.rows;
        self.ready = out.finish(&self.schema)?;
        if self.ready.is_empty() && !is_end {
            self.ready.push_back(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        Ok(())
    }

    /// Whether it is known without reading the rows that they have no value that is wanted.
    fn has_none(&self, stretch: &Stretch) -> Result<bool> {
        let (Some(values), Stretch::Rows { segment, run, .. }) = (self.tested, stretch) else { return Ok(false) };
        let summary = self.stretches.sources.segments[*segment].load()?.summary(run);
        Ok(summary.is_some_and(|summary| !values.overlaps(summary.min.as_f64(), summary.max.as_f64())))
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && self.rows_left > 0
            && let Err(error) = self.read()
        {
            self.stretches.clear();
            self.rows_left = 0;
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}

/// Rows of a segment, and where they go: the place of the first.
#[derive(Clone, Debug)]
struct UnreadRows {
    wanted: RunRows,
    at: usize,
}

/// Batches in the making. Rows are counted through all of them.
struct ScanBatches<'a> {
    columns: &'a [ScanColumn],
    /// Whose values are kept in the end; the others are read as well.
    tested: Option<ValueRange>,
    batch_rows: usize,
    wants_ts: bool,
    wants_float: bool,
    wants_int: bool,
    rows: usize,
    /// How many rows of which series follow each other.
    series: Vec<(SeriesId, usize)>,
    batches: Vec<Batch>,
}

/// Columns that are not wanted stay empty.
struct Batch {
    rows: usize,
    ts: Vec<i64>,
    floats: Vec<f64>,
    ints: Vec<i64>,
    /// Which rows are integers.
    is_int: BooleanBufferBuilder,
}

impl<'a> ScanBatches<'a> {
    fn new(columns: &'a [ScanColumn], tested: Option<ValueRange>, batch_rows: usize) -> Self {
        let wants = |column: ScanColumn| columns.contains(&column);
        Self {
            columns,
            tested,
            batch_rows,
            wants_ts: wants(ScanColumn::Ts),
            wants_float: wants(ScanColumn::Value) || tested.is_some(),
            wants_int: wants(ScanColumn::Int),
            rows: 0,
            series: Vec::new(),
            batches: Vec::new(),
        }
    }

    fn wants_value(&self) -> bool {
        self.wants_float || self.wants_int
    }

    /// Makes room for rows of `series`; the place of the first.
    fn add(&mut self, series: SeriesId, rows: usize) -> usize {
        let at = self.rows;
        self.rows += rows;
        self.series.push((series, rows));
        let mut left = rows;
        while left > 0 {
            if self.batches.last().is_none_or(|batch| batch.rows == self.batch_rows) {
                self.batches.push(Batch::new());
            }
            let Some(batch) = self.batches.last_mut() else { return at };
            let more = left.min(self.batch_rows - batch.rows);
            batch.rows += more;
            left -= more;
            let room = |wanted: bool| if wanted { batch.rows } else { 0 };
            batch.ts.resize(room(self.wants_ts), 0);
            batch.floats.resize(room(self.wants_float), 0.0);
            batch.ints.resize(room(self.wants_int), 0);
            batch.is_int.resize(room(self.wants_int));
        }
        at
    }

    /// Puts rows of one segment, which are sorted and apart, in their places.
    fn read(&mut self, loaded: &LoadedSegment, mut unread: Vec<UnreadRows>) -> Result<()> {
        if self.wants_value() {
            let (wanted, places) = apart(&unread);
            loaded.visit_values(&wanted, Need::Values, &mut |at, from, numbers| {
                self.put_values(places[at] + from, numbers);
            })?;
        }
        if let Some(values) = self.tested {
            unread.retain(|one| self.has_any(values, one.at, one.wanted.rows.len()));
        }
        if self.wants_ts {
            let (wanted, places) = apart(&unread);
            loaded.visit_times(&wanted, &mut |at, from, ticks, len| self.put_times(places[at] + from, ticks, len))?;
        }
        Ok(())
    }

    /// Whether any of these rows has such a value.
    fn has_any(&self, values: ValueRange, at: usize, rows: usize) -> bool {
        self.places(at, rows)
            .any(|(batch, rows, _)| self.batches[batch].floats[rows].iter().any(|value| values.contains(*value)))
    }

    /// The rows with such values, the first `rows_max` of them.
    fn kept(self, values: ValueRange, rows_max: usize) -> Self {
        let all = || self.batches.iter().flat_map(|batch| &batch.floats).all(|value| values.contains(*value));
        if self.rows <= rows_max && all() {
            return self;
        }
        let mut kept = ScanBatches { rows: 0, series: Vec::new(), batches: Vec::new(), ..self };
        let (mut at, mut rows_kept) = (0, Vec::new());
        for (series, rows) in &self.series {
            for (batch, rows, _) in places(self.batch_rows, at, *rows) {
                let from = &self.batches[batch];
                rows_kept.clear();
                rows_kept.extend(rows.filter(|row| values.contains(from.floats[*row])).take(rows_max - kept.rows));
                kept.copy(*series, from, &rows_kept);
            }
            at += rows;
        }
        kept
    }

    /// Adds rows of `series` that another batch has.
    fn copy(&mut self, series: SeriesId, from: &Batch, rows: &[usize]) {
        if rows.is_empty() {
            return;
        }
        let at = self.add(series, rows.len());
        for (batch, to, part) in self.places(at, rows.len()) {
            let Batch { ts, floats, ints, is_int, .. } = &mut self.batches[batch];
            let rows = &rows[part];
            if self.wants_ts {
                fill(&mut ts[to.clone()], rows, |row| from.ts[row]);
            }
            fill(&mut floats[to.clone()], rows, |row| from.floats[row]);
            if self.wants_int {
                fill(&mut ints[to.clone()], rows, |row| from.ints[row]);
                to.zip(rows).for_each(|(to, row)| is_int.set_bit(to, from.is_int.get_bit(*row)));
            }
        }
    }

    fn put_times(&mut self, at: usize, ticks: Ticks<'_>, len: usize) {
        if !self.wants_ts {
            return;
        }
        for (batch, rows, part) in self.places(at, len) {
            let out = &mut self.batches[batch].ts[rows];
            match ticks.from(part.start) {
                Ticks::Regular { first, step } => {
                    // The step of a single tick means nothing.
                    let mut time = first;
                    for (at, out) in out.iter_mut().enumerate() {
                        time = if at == 0 { first } else { time + step };
                        *out = time;
                    }
                }
                Ticks::List(times) => out.copy_from_slice(&times[..part.len()]),
            }
        }
    }

    fn put_values(&mut self, at: usize, numbers: Numbers<'_>) {
        for (batch, rows, part) in self.places(at, numbers.count()) {
            let Batch { floats, ints, is_int, .. } = &mut self.batches[batch];
            if self.wants_float {
                let out = &mut floats[rows.clone()];
                match numbers {
                    Numbers::Ints(values) => fill(out, &values[part.clone()], |int| int as f64),
                    Numbers::Scaled(values, scale) => decimal::fill_floats(out, &values[part.clone()], scale),
                    Numbers::Floats(values) => out.copy_from_slice(&values[part.clone()]),
                    Numbers::Mixed(values) => fill(out, &values[part.clone()], Value::as_f64),
                    Numbers::Same(value, _) => out.fill(value.as_f64()),
                }
            }
            if self.wants_int {
                let mut put = |at: usize, int: i64| {
                    ints[rows.start + at] = int;
                    is_int.set_bit(rows.start + at, true);
                };
                match numbers {
                    Numbers::Ints(values) => values[part].iter().enumerate().for_each(|(at, int)| put(at, *int)),
                    Numbers::Same(Value::Int(int), _) => (0..part.len()).for_each(|at| put(at, int)),
                    Numbers::Mixed(values) => {
                        for (at, value) in values[part].iter().enumerate() {
                            if let Value::Int(int) = value {
                                put(at, *int);
                            }
                        }
                    }
                    Numbers::Scaled(..) | Numbers::Floats(_) | Numbers::Same(Value::Float(_), _) => {}
                }
            }
        }
    }

    /// Where `len` rows from `at` on are: of each batch its place, the rows in it, and which of them these are.
    fn places(&self, at: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + use<> {
        // More than there is room for is what a limit leaves out.
        places(self.batch_rows, at, len.min(self.rows - at))
    }

    fn finish(self, schema: &SchemaRef) -> Result<VecDeque<RecordBatch>> {
        let mut series = self.series.into_iter();
        let mut now = (SeriesId(0), 0);
        let mut made = VecDeque::with_capacity(self.batches.len());
        for mut batch in self.batches {
            let mut ids = Vec::new();
            if self.columns.contains(&ScanColumn::Series) {
                ids.reserve(batch.rows);
                while ids.len() < batch.rows {
                    if now.1 == 0 {
                        let Some(next) = series.next() else { break };
                        now = next;
                    }
                    let count = now.1.min(batch.rows - ids.len());
                    ids.extend(std::iter::repeat_n(now.0.0, count));
                    now.1 -= count;
                }
            }
            let mut ids = Some(ids);
            let arrays = self.columns.iter().map(|column| -> ArrayRef {
                match column {
                    ScanColumn::Series => Arc::new(UInt32Array::from(ids.take().unwrap_or_default())),
                    ScanColumn::Ts => {
                        Arc::new(TimestampMicrosecondArray::from(std::mem::take(&mut batch.ts)).with_timezone("UTC"))
                    }
                    ScanColumn::Value => Arc::new(Float64Array::from(std::mem::take(&mut batch.floats))),
                    ScanColumn::Int => {
                        let nulls = NullBuffer::new(batch.is_int.finish());
                        Arc::new(Int64Array::new(std::mem::take(&mut batch.ints).into(), Some(nulls)))
                    }
                }
            });
            let arrays: Vec<ArrayRef> = arrays.collect();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
            let made_now = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options);
            made.push_back(
                made_now.map_err(|error| Error::Internal { what: format!("a scan built a wrong batch: {error}") })?,
            );
        }
        Ok(made)
    }
}

impl Batch {
    fn new() -> Self {
        Self { rows: 0, ts: Vec::new(), floats: Vec::new(), ints: Vec::new(), is_int: BooleanBufferBuilder::new(0) }
    }
}

/// Rows to read, and the places of the first of each.
fn apart(unread: &[UnreadRows]) -> (Vec<RunRows>, Vec<usize>) {
    unread.iter().map(|one| (one.wanted.clone(), one.at)).unzip()
}

/// Where `len` rows from `at` on are in batches of so many rows.
fn places(
    batch_rows: usize,
    at: usize,
    len: usize,
) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + use<> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (batch, row) = ((at + done) / batch_rows, (at + done) % batch_rows);
        let count = (len - done).min(batch_rows - row);
        let part = done..done + count;
        done = part.end;
        (count > 0).then_some((batch, row..row + count, part))
    })
}

fn fill<T: Copy, U>(out: &mut [U], from: &[T], make: impl Fn(T) -> U) {
    for (out, from) in out.iter_mut().zip(from) {
        *out = make(*from);
    }
}
