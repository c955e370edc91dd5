//! Samples as rows: the engine's scan, with names put to the numbers of series.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use telem_engine::{ScanRequest, SeriesId, Snapshot};

use super::{Column, Names, Rows, RowsRequest, column_of_names, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};
use crate::session::BATCH_ROWS;

pub(super) fn batches(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if request.range.is_empty() || request.limit == Some(0) {
        return Ok(Box::new(std::iter::empty()));
    }
    let selected = request.select(&context.snapshot)?;
    let series = part.of(&selected).to_vec();
    let batch_rows = request.limit.map_or(BATCH_ROWS, |limit| limit.min(BATCH_ROWS));
    let scan = context.snapshot.scan(ScanRequest { series, range: request.range, batch_rows });
    let named =
        Named { snapshot: context.snapshot.clone(), columns: request.columns.clone(), schema: Arc::clone(schema) };
    let mut left = request.limit.unwrap_or(usize::MAX);
    let rows = scan.map(move |batch| named.batch(&batch.map_err(engine_error)?));
    Ok(Box::new(rows.map_while(move |batch| match batch {
        Ok(batch) if left > 0 => {
            let rows = batch.num_rows().min(left);
            left -= rows;
            Some(Ok(batch.slice(0, rows)))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })))
}

/// An error of the engine on its way through DataFusion; [`crate::Error`] finds it again.
pub(super) fn engine_error(error: telem_engine::Error) -> DataFusionError {
    DataFusionError::External(Box::new(crate::Error::Engine(error)))
}

struct Named {
    snapshot: Snapshot,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Named {
    /// A batch of the request's columns from one of a scan.
    fn batch(&self, scanned: &RecordBatch) -> Result<RecordBatch> {
        let [series, ts, int, float] = scanned.columns() else {
            return internal_err!("a scan has {} columns, expected 4", scanned.num_columns());
        };
        let mut runs = None;
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(match column {
                Column::Ts => Arc::clone(ts),
                Column::Value => as_float(int, float)?,
                Column::ValueInt => Arc::clone(int),
                name => {
                    let runs = match &mut runs {
                        Some(runs) => runs,
                        none => none.insert(Runs::new(series.as_primitive::<UInt32Type>().values(), &self.snapshot)?),
                    };
                    let names = column_of_names(name, &runs.series)?;
                    let names = names.ok_or_else(|| unanswerable(Rows::Sample, name))?;
                    take(&names, &runs.rows, None)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(scanned.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// Which series the rows of a batch belong to: names are looked up once a series, and views of
/// strings copied once a row.
struct Runs {
    series: Vec<Names>,
    /// For each row, whose of `series` it is.
    rows: UInt32Array,
}

impl Runs {
    fn new(ids: &[u32], snapshot: &Snapshot) -> Result<Self> {
        let (mut series, mut rows) = (Vec::new(), Vec::with_capacity(ids.len()));
        for (run, stretch) in (0..).zip(ids.chunk_by(|a, b| a == b)) {
            let Some(names) = Names::of(snapshot, SeriesId(stretch[0])) else {
                return internal_err!("a scan answers series {}, which the index does not know", stretch[0]);
            };
            series.push(names);
            rows.extend(std::iter::repeat_n(run, stretch.len()));
        }
        Ok(Self { series, rows: UInt32Array::from(rows) })
    }
}

/// Integers become floats; where there is none the float stands as it is.
fn as_float(int: &ArrayRef, float: &ArrayRef) -> Result<ArrayRef> {
    if float.null_count() == 0 {
        return Ok(Arc::clone(float));
    }
    let ints = cast(int, &DataType::Float64)?;
    if ints.null_count() == 0 {
        return Ok(ints);
    }
    let is_int = arrow::compute::is_not_null(int)?;
    Ok(zip(&is_int, &ints, float)?)
}
