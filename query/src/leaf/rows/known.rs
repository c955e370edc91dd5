//! What is known besides samples, as rows: series, metrics, nodes.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use telem_engine::meta::MetricKind;
use telem_engine::{SeriesId, SeriesKey, Timestamp};

use super::samples::engine_error;
use super::{Column, Rows, RowsRequest, Tests, column_of_keys, unanswerable};
use crate::leaf::{Batches, LeafContext, Part, Stop};
use crate::session::BATCH_ROWS;

pub(super) fn series(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let selected = request.select(&context.snapshot)?;
    let mut series = part.of(&selected).to_vec();
    series.truncate(request.limit.unwrap_or(usize::MAX));
    let chunks: Vec<Vec<SeriesId>> = series.chunks(BATCH_ROWS).map(<[SeriesId]>::to_vec).collect();
    let (columns, schema, context) = (request.columns.clone(), Arc::clone(schema), context.clone());
    Ok(Box::new(chunks.into_iter().map(move |ids| series_batch(&ids, &columns, &schema, &context))))
}

fn series_batch(
    ids: &[SeriesId],
    columns: &[Column],
    schema: &SchemaRef,
    context: &LeafContext,
) -> Result<RecordBatch> {
    let snapshot = &context.snapshot;
    let keys: Vec<SeriesKey> = ids.iter().filter_map(|id| snapshot.index().key(*id)).collect();
    let wants = |column: Column| columns.contains(&column);
    let last = if wants(Column::LastValue) {
        let last = waited_for(ids, &context.stop).map(|id| snapshot.last(*id));
        last.collect::<Result<Vec<_>, _>>().map_err(engine_error)?
    } else {
        Vec::new()
    };
    let bounds = match wants(Column::FirstTs) || wants(Column::LastTs) {
        true => snapshot.time_bounds(ids).map_err(engine_error)?,
        false => Vec::new(),
    };
    let mut arrays = Vec::with_capacity(columns.len());
    for column in columns {
        arrays.push(match column {
            Column::Id => Arc::new(UInt32Array::from_iter_values(ids.iter().map(|id| id.0))) as ArrayRef,
            Column::FirstTs => times(bounds.iter().map(|bounds| bounds.map(|(first, _)| first))),
            Column::LastTs => times(bounds.iter().map(|bounds| bounds.map(|(_, last)| last))),
            Column::LastValue => {
                let values = last.iter().map(|last| last.map(|(_, value)| value.as_f64()));
                Arc::new(values.collect::<Float64Array>())
            }
            name => column_of_keys(name, &keys, snapshot.node())?.ok_or_else(|| unanswerable(Rows::Series, name))?,
        });
    }
    batch(schema, arrays, ids.len())
}

/// Stops early when nobody waits; the leaf then ends in an error, so the rest is never missed.
fn waited_for<'a>(ids: &'a [SeriesId], stop: &'a Stop) -> impl Iterator<Item = &'a SeriesId> {
    ids.iter().take_while(|_| !stop.is_asked())
}

fn times(times: impl Iterator<Item = Option<Timestamp>>) -> ArrayRef {
    let micros = times.map(|time| time.map(Timestamp::micros));
    Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}

pub(super) fn metrics(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let tests = Tests::new(&request.tests)?;
    let all = tests.metrics(&context.snapshot);
    let mut rows: Vec<(Arc<str>, i64)> = Vec::new();
    for metric in part.of(&all) {
        let series = context.snapshot.select(metric, &[]).len();
        if series > 0 && rows.len() < request.limit.unwrap_or(usize::MAX) {
            rows.push((Arc::clone(metric), to_i64(series)));
        }
    }
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Metric => {
                Arc::new(StringViewArray::from_iter_values(rows.iter().map(|(metric, _)| metric))) as ArrayRef
            }
            Column::Node => same_name(context.snapshot.node(), rows.len()),
            Column::SeriesCount => Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, series)| *series))),
            described => {
                let texts = rows.iter().map(|(metric, _)| {
                    let meta = context.snapshot.meta().metric(metric)?;
                    match described {
                        Column::Kind => kind_word(meta.kind),
                        Column::Unit => Some(&*meta.unit).filter(|unit| !unit.is_empty()),
                        Column::Help => Some(&*meta.help).filter(|help| !help.is_empty()),
                        _ => None,
                    }
                });
                let texts: StringViewArray = texts.collect();
                if !matches!(described, Column::Kind | Column::Unit | Column::Help) {
                    return Err(unanswerable(Rows::Metric, described));
                }
                Arc::new(texts)
            }
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, rows.len()))))
}

pub(super) fn nodes(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let tests = Tests::new(&request.tests)?;
    let accepted = tests.node.iter().all(|accepts| accepts(context.snapshot.node()));
    if part.index > 0 || !accepted || request.limit == Some(0) {
        return Ok(Box::new(std::iter::empty()));
    }
    let index = context.snapshot.index();
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Node => same_name(context.snapshot.node(), 1),
            Column::MetricCount => Arc::new(Int64Array::from(vec![to_i64(index.metrics().len())])) as ArrayRef,
            Column::SeriesCount => Arc::new(Int64Array::from(vec![to_i64(index.len())])),
            column => return Err(unanswerable(Rows::Node, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, 1))))
}

fn kind_word(kind: MetricKind) -> Option<&'static str> {
    match kind {
        MetricKind::Unknown => None,
        MetricKind::Gauge => Some("gauge"),
        MetricKind::Counter => Some("counter"),
        MetricKind::Histogram => Some("histogram"),
        MetricKind::Summary => Some("summary"),
        MetricKind::Info => Some("info"),
        MetricKind::StateSet => Some("stateset"),
    }
}

fn same_name(name: &str, rows: usize) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(name, rows)))
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn batch(schema: &SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}
