//! Rows other than samples: series, metrics, nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use telem_engine::meta::MetricKind;
use telem_engine::{SeriesId, SeriesPoints, Snapshot, TimeRange, Timestamp, Value};

use super::engine_error;
use super::{Column, RowKind, RowsRequest, Tests, column_of_names, unanswerable};
use crate::leaf::{Batches, LeafContext, Part, Stop};
use crate::options::BATCH_ROWS;

pub(super) fn series(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let selected = request.select(&context.snapshot)?;
    let mut series = part.of(&selected).to_vec();
    if let Some(job) = context.job.as_ref().filter(|job| !job.is_always()) {
        series = with_points(series, context, &job.ranges)?;
    }
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
    let wants = |column: Column| columns.contains(&column);
    let wants_last = wants(Column::LastValue) || wants(Column::LastInt);
    let wants_bounds = wants(Column::FirstTs) || wants(Column::LastTs);
    let (bounds, last) = match context.job.as_ref().filter(|job| !job.is_always()) {
        Some(job) if wants_last || wants_bounds => read_ends(ids, context, &job.ranges)?,
        Some(_) => Default::default(),
        None => {
            let last = wants_last.then(|| waited_for(ids, &context.stop).map(|id| snapshot.last(*id)));
            let last = last.into_iter().flatten().collect::<Result<Vec<_>, _>>().map_err(engine_error)?;
            let bounds = wants_bounds.then(|| snapshot.time_bounds(ids)).transpose().map_err(engine_error)?;
            (bounds.unwrap_or_default(), last)
        }
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
            Column::LastInt => {
                let values = last.iter().map(|last| match last {
                    Some((_, Value::Int(int))) => Some(*int),
                    _ => None,
                });
                Arc::new(values.collect::<Int64Array>())
            }
            name => column_of_names(context, name, ids)?.ok_or_else(|| unanswerable(RowKind::Series, name))?,
        });
    }
    batch(schema, arrays, ids.len())
}

/// Those of `series` that have samples in any of `ranges`.
fn with_points(series: Vec<SeriesId>, context: &LeafContext, ranges: &[TimeRange]) -> Result<Vec<SeriesId>> {
    let mut found = Vec::with_capacity(series.len());
    for id in waited_for(&series, &context.stop) {
        for range in ranges {
            if context.snapshot.has_points(*id, *range).map_err(engine_error)? {
                found.push(*id);
                break;
            }
        }
    }
    Ok(found)
}

type SeriesEnds = (Vec<Option<(Timestamp, Timestamp)>>, Vec<Option<(Timestamp, Value)>>);

/// The first and last times of each series in `ranges`, and its last samples there. Summaries know only whole series, so
/// that its samples are read.
fn read_ends(ids: &[SeriesId], context: &LeafContext, ranges: &[TimeRange]) -> Result<SeriesEnds> {
    let mut bounds: Vec<Option<(Timestamp, Timestamp)>> = vec![None; ids.len()];
    let mut last: Vec<Option<(Timestamp, Value)>> = vec![None; ids.len()];
    let places: BTreeMap<SeriesId, usize> = ids.iter().copied().zip(0..).collect();
    for range in ranges {
        for points in context.snapshot.points(ids.to_vec(), *range) {
            let SeriesPoints { series, times, values } = points.map_err(engine_error)?;
            let (Some(at), Some(first), Some(newest)) = (places.get(&series), times.first(), times.last()) else {
                continue;
            };
            bounds[*at] = Some((bounds[*at].map_or(*first, |(known, _)| known), *newest));
            last[*at] = Some((*newest, values.get(times.len() - 1)));
        }
    }
    Ok((bounds, last))
}

/// Stops early when no client waits; the leaf then ends in an error, so the rest is never missed.
fn waited_for<'a>(ids: &'a [SeriesId], stop: &'a Stop) -> impl Iterator<Item = &'a SeriesId> {
    ids.iter().take_while(|_| !stop.is_asked())
}

pub(super) fn times(times: impl Iterator<Item = Option<Timestamp>>) -> ArrayRef {
    let micros = times.map(|time| time.map(Timestamp::micros));
    Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}

pub(super) fn metrics(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let tests = Tests::new(&request.tests)?;
    let snapshot = &context.snapshot;
    let nodes = tests.nodes(snapshot);
    let all = tests.metrics(snapshot, &nodes);
    let mut rows: Vec<(Arc<str>, Arc<str>, i64)> = Vec::new();
    for metric in part.of(&all) {
        if rows.len() >= request.limit.unwrap_or(usize::MAX) {
            break;
        }
        let mut of_node: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        for series in tests.series(snapshot, metric, &nodes) {
            *of_node.entry(snapshot.node_of(series)).or_default() += 1;
        }
        rows.extend(of_node.into_iter().map(|(node, series)| (Arc::clone(metric), node, series)));
    }
    rows.truncate(request.limit.unwrap_or(usize::MAX));
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Metric => names(rows.iter().map(|(metric, _, _)| metric)),
            Column::Node => names(rows.iter().map(|(_, node, _)| node)),
            Column::SeriesCount => Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, _, series)| *series))),
            described => {
                let texts = rows.iter().map(|(metric, _, _)| {
                    let meta = snapshot.meta().metric(metric)?;
                    match described {
                        Column::Kind => kind_word(meta.kind),
                        Column::Unit => Some(&*meta.unit).filter(|unit| !unit.is_empty()),
                        Column::Help => Some(&*meta.help).filter(|help| !help.is_empty()),
                        _ => None,
                    }
                });
                let texts: StringViewArray = texts.collect();
                if !matches!(described, Column::Kind | Column::Unit | Column::Help) {
                    return Err(unanswerable(RowKind::Metric, described));
                }
                Arc::new(texts)
            }
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, rows.len()))))
}

pub(super) fn nodes(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    let mut nodes = Tests::new(&request.tests)?.nodes(&context.snapshot);
    nodes.truncate(request.limit.unwrap_or(usize::MAX));
    if part.index > 0 || nodes.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let counts = counts(&nodes, &context.snapshot);
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Node => names(nodes.iter()),
            Column::MetricCount => Arc::new(Int64Array::from_iter_values(counts.iter().map(|(metrics, _)| *metrics))),
            Column::SeriesCount => Arc::new(Int64Array::from_iter_values(counts.iter().map(|(_, series)| *series))),
            column => return Err(unanswerable(RowKind::Node, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, nodes.len()))))
}

/// How many metrics and how many series each of `nodes`, which are sorted, has.
fn counts(nodes: &[Arc<str>], snapshot: &Snapshot) -> Vec<(i64, i64)> {
    let index = snapshot.index();
    if let [_] = snapshot.nodes() {
        return vec![(to_i64(index.metrics().len()), to_i64(index.len()))];
    }
    let mut counts = vec![(0, 0); nodes.len()];
    for metric in snapshot.metrics() {
        let mut found = BTreeSet::new();
        for series in snapshot.select(&metric, &[]) {
            if let Ok(at) = nodes.binary_search(&snapshot.node_of(series)) {
                counts[at].1 += 1;
                found.insert(at);
            }
        }
        for at in found {
            counts[at].0 += 1;
        }
    }
    counts
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

pub(super) fn names<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(names))
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn batch(schema: &SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}
