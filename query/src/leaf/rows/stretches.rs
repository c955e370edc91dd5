//! Stretches of time in which a series has samples without a gap: their first and their last sample.
//!
//! Two stretches of one series may touch, as where the samples of a job are in two ranges of time; whoever looks for
//! gaps joins them. So any number of parts of a series, on one node or on several, tell where its gaps are.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType, UInt32Type};
use datafusion::common::internal_err;
use datafusion::error::Result;
use telem_engine::{ScanColumn, ScanRequest, SeriesId, ValueRange};

use super::samples::ranges;
use super::{Column, RowKind, RowsRequest, column_of_names, engine_error, known, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};
use crate::options::BATCH_ROWS;

pub(super) fn stretches(
    request: &RowsRequest,
    context: &LeafContext,
    schema: &SchemaRef,
    part: Part,
    apart: i64,
) -> Result<Batches> {
    if request.range.is_empty() || request.limit == Some(0) {
        return Ok(Box::new(std::iter::empty()));
    }
    let selected = request.select(&context.snapshot)?;
    let (snapshot, series) = (context.snapshot.clone(), part.of(&selected).to_vec());
    let scan = ranges(request, context).into_iter().flat_map(move |range| {
        let (series, columns) = (series.clone(), vec![ScanColumn::Series, ScanColumn::Ts]);
        snapshot.scan(ScanRequest {
            series,
            range,
            columns,
            values: ValueRange::ALL,
            batch_rows: BATCH_ROWS,
            limit: None,
        })
    });
    Ok(Box::new(StretchBatches {
        scan: Some(Box::new(scan)),
        open: None,
        closed: Vec::new(),
        apart,
        context: context.clone(),
        columns: request.columns.clone(),
        schema: Arc::clone(schema),
    }))
}

/// Times in microseconds.
#[derive(Clone, Copy)]
struct CoveredStretch {
    series: u32,
    first: i64,
    last: i64,
}

struct StretchBatches {
    /// None when it has ended.
    scan: Option<Box<dyn Iterator<Item = telem_engine::Result<RecordBatch>> + Send>>,
    open: Option<CoveredStretch>,
    closed: Vec<CoveredStretch>,
    apart: i64,
    context: LeafContext,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl StretchBatches {
    fn take_in(&mut self, samples: &RecordBatch) -> Result<()> {
        let [series, times] = samples.columns() else {
            return internal_err!("a scan of two columns has {}", samples.num_columns());
        };
        let (series, times) = (series.as_primitive::<UInt32Type>(), times.as_primitive::<TimestampMicrosecondType>());
        for (series, time) in series.values().iter().zip(times.values()) {
            match &mut self.open {
                Some(open) if open.series == *series && is_near(open.last, *time, self.apart) => open.last = *time,
                open => self.closed.extend(open.replace(CoveredStretch { series: *series, first: *time, last: *time })),
            }
        }
        Ok(())
    }

    fn batch(&self, stretches: &[CoveredStretch]) -> Result<RecordBatch> {
        let series: Vec<SeriesId> = stretches.iter().map(|stretch| SeriesId(stretch.series)).collect();
        let times = |time: fn(&CoveredStretch) -> i64| {
            let times = TimestampMicrosecondArray::from_iter_values(stretches.iter().map(time));
            Arc::new(times.with_timezone("UTC")) as ArrayRef
        };
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(match column {
                Column::FirstTs => times(|stretch| stretch.first),
                Column::LastTs => times(|stretch| stretch.last),
                name => column_of_names(&self.context, name, &series)?
                    .ok_or_else(|| unanswerable(RowKind::Stretch { apart: self.apart }, name))?,
            });
        }
        known::batch(&self.schema, arrays, stretches.len())
    }
}

/// Whether two times, in microseconds, are at most so far apart.
fn is_near(before: i64, after: i64, apart: i64) -> bool {
    // Further apart than any number says is far.
    after.checked_sub(before).is_some_and(|between| between <= apart)
}

impl Iterator for StretchBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(scan) = &mut self.scan
            && self.closed.len() < BATCH_ROWS
        {
            // The leaf says that it was stopped.
            if self.context.stop.is_asked() {
                return None;
            }
            match scan.next() {
                Some(Ok(samples)) => {
                    if let Err(error) = self.take_in(&samples) {
                        return Some(Err(error));
                    }
                }
                Some(Err(error)) => return Some(Err(engine_error(error))),
                None => {
                    self.scan = None;
                    self.closed.extend(self.open.take());
                }
            }
        }
        if self.closed.is_empty() {
            return None;
        }
        let rest = self.closed.split_off(self.closed.len().min(BATCH_ROWS));
        let stretches = std::mem::replace(&mut self.closed, rest);
        Some(self.batch(&stretches))
    }
}
