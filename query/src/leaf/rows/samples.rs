//! Samples as rows: the engine's scan, with names in place of the numbers of series.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType, UInt32Type};
use datafusion::error::{DataFusionError, Result};
use telem_engine::{ScanColumn, ScanRequest, SeriesId, TimeRange};

use super::{Column, RowKind, RowsRequest, column_of_names, engine_error, sorted, steps, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};
use crate::options::BATCH_ROWS;

pub(super) fn batches(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if request.range.is_empty() || request.values.is_empty() || request.limit == Some(0) {
        return Ok(Box::new(std::iter::empty()));
    }
    let selected = request.select(&context.snapshot)?;
    let columns = scanned(&request.columns);
    let ranges = ranges(request, context);
    let (seamless, values, limit) = (ranges.len() == 1, request.values, request.limit);
    let (snapshot, scan_columns) = (context.snapshot.clone(), columns.clone());
    let named = Arc::new(SampleRows {
        context: context.clone(),
        columns: request.columns.clone(),
        scanned: columns,
        schema: Arc::clone(schema),
    });
    let scan = move |series: Vec<SeriesId>, batch_rows: usize| -> Batches {
        let (snapshot, columns, named) = (snapshot.clone(), scan_columns.clone(), Arc::clone(&named));
        let scan = ranges.clone().into_iter().flat_map(move |range| {
            let (series, columns) = (series.clone(), columns.clone());
            snapshot.scan(ScanRequest { series, range, columns, values, batch_rows, limit })
        });
        Box::new(scan.map(move |batch| named.batch(&batch.map_err(engine_error)?)))
    };
    match &request.sorted_by {
        Some(by) => {
            sorted::batches(request, sorted::groups(by, &selected, context.snapshot.index()), part, seamless, scan)
        }
        None => {
            let mut selected = selected;
            // All of them in whatever order; the first few are those that come first by name.
            if limit.is_none() {
                context.snapshot.sort_by_database(&mut selected);
            }
            Ok(scan(part.of(&selected).to_vec(), BATCH_ROWS))
        }
    }
}

/// When samples are looked for.
pub(super) fn ranges(request: &RowsRequest, context: &LeafContext) -> Vec<TimeRange> {
    context.job.as_ref().map_or(vec![request.range], |of| {
        of.ranges.iter().map(|own| own.intersect(request.range)).filter(|range| !range.is_empty()).collect()
    })
}

/// What must be scanned to answer `columns`.
fn scanned(columns: &[Column]) -> Vec<ScanColumn> {
    let needed = |column: &ScanColumn| {
        columns.iter().any(|of| source(of) == *column || (*of == Column::Step && *column == ScanColumn::Ts))
    };
    ScanColumn::ALL.into_iter().filter(needed).collect()
}

/// The column of a scan from which `column` is made; a step is found by the time as well.
fn source(column: &Column) -> ScanColumn {
    match column {
        Column::Ts => ScanColumn::Ts,
        Column::Value => ScanColumn::Value,
        Column::ValueInt => ScanColumn::Int,
        // Names are those of the series.
        _ => ScanColumn::Series,
    }
}

struct SampleRows {
    context: LeafContext,
    columns: Vec<Column>,
    /// What the scan answers.
    scanned: Vec<ScanColumn>,
    schema: SchemaRef,
}

impl SampleRows {
    /// A batch of the request's columns from one of a scan.
    fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let scanned = |wanted: ScanColumn| {
            let at = self.scanned.iter().position(|column| *column == wanted);
            at.and_then(|at| batch.columns().get(at))
                .ok_or_else(|| DataFusionError::Internal(format!("a scan without the column {wanted:?}")))
        };
        let mut runs = None;
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let found = scanned(source(column))?;
            arrays.push(match column {
                Column::Ts | Column::Value | Column::ValueInt => Arc::clone(found),
                Column::Step => {
                    let (ids, times) = (found.as_primitive::<UInt32Type>(), scanned(ScanColumn::Ts)?);
                    let times = times.as_primitive::<TimestampMicrosecondType>();
                    Arc::new(steps::of_rows(&self.context.snapshot, ids.values(), times.values())?)
                }
                name => {
                    let runs = match &mut runs {
                        Some(runs) => runs,
                        none => none.insert(Runs::new(found.as_primitive::<UInt32Type>().values())),
                    };
                    let names = column_of_names(&self.context, name, &runs.series)?;
                    let names = names.ok_or_else(|| unanswerable(RowKind::Sample, name))?;
                    take(&names, &runs.rows, None)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// Which series the rows of a batch belong to: names are looked up once a series, and views of
/// strings copied once a row.
struct Runs {
    series: Vec<SeriesId>,
    /// For each row, whose of `series` it is.
    rows: UInt32Array,
}

impl Runs {
    fn new(ids: &[u32]) -> Self {
        let (mut series, mut rows) = (Vec::new(), Vec::with_capacity(ids.len()));
        for (run, stretch) in (0..).zip(ids.chunk_by(|a, b| a == b)) {
            series.push(SeriesId(stretch[0]));
            rows.extend(std::iter::repeat_n(run, stretch.len()));
        }
        Self { series, rows: UInt32Array::from(rows) }
    }
}
