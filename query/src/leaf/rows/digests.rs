//! What the samples of each series come to, in place of the samples: what aggregates over all of them need.
//!
//! A series has one row for each stretch of time that is asked for, and more where one float does not hold its sum: the
//! rows after the first have a term of the sum and no sample.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use telem_engine::{DigestPart, DigestRequest, SeriesDigest, SeriesId, Timestamp};

use super::engine_error;
use super::samples::ranges;
use super::{Column, RowKind, RowsRequest, column_of_names, known, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};
use crate::options::BATCH_ROWS;

pub(super) fn digests(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if request.range.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let mut selected = request.select(&context.snapshot)?;
    context.snapshot.sort_by_database(&mut selected);
    let (snapshot, series, parts) = (context.snapshot.clone(), part.of(&selected).to_vec(), parts(&request.columns));
    let read = ranges(request, context)
        .into_iter()
        .flat_map(move |range| snapshot.digests(DigestRequest { series: series.clone(), range, parts: parts.clone() }));
    Ok(Box::new(DigestBatches {
        read: Some(Box::new(read)),
        rows: Vec::new(),
        context: context.clone(),
        columns: request.columns.clone(),
        schema: Arc::clone(schema),
    }))
}

/// What must be read to answer `columns`.
fn parts(columns: &[Column]) -> Vec<DigestPart> {
    let part = |column: &Column| match column {
        Column::SampleCount => Some(DigestPart::Samples),
        Column::FirstTs | Column::FirstValue => Some(DigestPart::First),
        Column::LastTs | Column::LastValue => Some(DigestPart::Last),
        Column::Least | Column::Greatest => Some(DigestPart::Extremes),
        Column::Sum => Some(DigestPart::Sum),
        _ => None,
    };
    columns.iter().filter_map(part).collect()
}

struct DigestRow {
    series: SeriesId,
    /// None on the rows after the first.
    digest: Option<SeriesDigest>,
    sum: f64,
}

struct DigestBatches {
    /// None when it has ended.
    read: Option<Box<dyn Iterator<Item = telem_engine::Result<SeriesDigest>> + Send>>,
    rows: Vec<DigestRow>,
    context: LeafContext,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl DigestBatches {
    fn push(&mut self, digest: SeriesDigest) {
        let series = digest.series;
        let terms = if self.columns.contains(&Column::Sum) { digest.sum.terms() } else { Vec::new() };
        let (sum, others) = terms.split_first().map_or((0.0, &[][..]), |(first, others)| (*first, others));
        self.rows.push(DigestRow { series, digest: Some(digest), sum });
        self.rows.extend(others.iter().map(|sum| DigestRow { series, digest: None, sum: *sum }));
    }

    fn batch(&self, rows: &[DigestRow]) -> Result<RecordBatch> {
        let series: Vec<SeriesId> = rows.iter().map(|row| row.series).collect();
        let times = |time: fn(&SeriesDigest) -> Timestamp| {
            known::times(rows.iter().map(move |row| row.digest.as_ref().map(time)))
        };
        let values = |value: fn(&SeriesDigest) -> f64| {
            let values = rows.iter().map(|row| row.digest.as_ref().map(value));
            Arc::new(values.collect::<Float64Array>()) as ArrayRef
        };
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(match column {
                Column::SampleCount => {
                    let counts = rows.iter().map(|row| row.digest.as_ref().map_or(0, |digest| digest.samples));
                    Arc::new(counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX)).collect::<Int64Array>())
                }
                Column::FirstTs => times(|digest| digest.first.0),
                Column::LastTs => times(|digest| digest.last.0),
                Column::FirstValue => values(|digest| digest.first.1),
                Column::LastValue => values(|digest| digest.last.1),
                Column::Least => values(|digest| digest.least),
                Column::Greatest => values(|digest| digest.greatest),
                Column::Sum => Arc::new(rows.iter().map(|row| row.sum).collect::<Float64Array>()),
                name => {
                    column_of_names(&self.context, name, &series)?.ok_or_else(|| unanswerable(RowKind::Digest, name))?
                }
            });
        }
        known::batch(&self.schema, arrays, rows.len())
    }
}

impl Iterator for DigestBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(read) = &mut self.read
            && self.rows.len() < BATCH_ROWS
        {
            // The leaf says that it was stopped.
            if self.context.stop.is_asked() {
                return None;
            }
            match read.next() {
                Some(Ok(digest)) => self.push(digest),
                Some(Err(error)) => return Some(Err(engine_error(error))),
                None => self.read = None,
            }
        }
        if self.rows.is_empty() {
            return None;
        }
        let rest = self.rows.split_off(self.rows.len().min(BATCH_ROWS));
        let rows = std::mem::replace(&mut self.rows, rest);
        Some(self.batch(&rows))
    }
}
