//! What is known of series on any node: that they exist, and the newest sample of each.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, AsArray, MapArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, Schema, TimestampMicrosecondType};
use datafusion::execution::TaskContext;
use futures::StreamExt;
use telem_engine::{SeriesId, SeriesKey, TagSet, TimeRange, Timestamp, Value, ValueRange};

use crate::answer::LastAnswer;
use crate::error::Result;
use crate::leaf::Request;
use crate::leaf::names::{NameSubject, NameTest};
use crate::leaf::rows::{Column, RowKind, RowsRequest};
use crate::view::View;

const COLUMNS: [Column; 5] = [Column::Metric, Column::Tags, Column::LastTs, Column::LastValue, Column::LastInt];

/// Asks the nodes that have these series for those of their metrics.
///
/// # Errors
/// What reading fails with.
pub(crate) async fn last(series: &[SeriesId], view: &View, task: Arc<TaskContext>) -> Result<LastAnswer> {
    if !view.has_others() {
        return of_ours(series, view).await;
    }
    let keys: Vec<SeriesKey> = series.iter().filter_map(|id| view.index().key(*id)).collect();
    let metrics: BTreeSet<&str> = keys.iter().map(SeriesKey::metric).collect();
    let names = metrics.into_iter().map(str::to_owned).collect();
    let request = RowsRequest {
        rows: RowKind::Series,
        columns: COLUMNS.to_vec(),
        tests: vec![(NameSubject::Metric, NameTest::In { names, negated: false })],
        range: TimeRange::ALL,
        values: ValueRange::ALL,
        limit: None,
        sorted_by: None,
    };
    let schema =
        Arc::new(Schema::new(COLUMNS.iter().map(|column| column.field(&column.to_string())).collect::<Vec<_>>()));
    let leaf = view.leaf(Request::Rows(request), schema, Some(series), &|_| true);
    let mut rows = view.execute(Arc::new(leaf), task).await?;
    let wanted: BTreeSet<&SeriesKey> = keys.iter().collect();
    let mut found: HashMap<SeriesKey, (Timestamp, Value)> = HashMap::new();
    while let Some(batch) = rows.next().await {
        for (key, time, value) in samples(&batch?)? {
            if wanted.contains(&key) && found.get(&key).is_none_or(|(before, _)| *before < time) {
                found.insert(key, (time, value));
            }
        }
    }
    let newest = |key: SeriesKey| found.get(&key).map(|(time, value)| (key.clone(), *time, *value));
    Ok(LastAnswer { samples: keys.into_iter().filter_map(newest).collect(), missing: view.missing() })
}

/// Without a request to another node.
async fn of_ours(series: &[SeriesId], view: &View) -> Result<LastAnswer> {
    let (series, snapshot) = (series.to_vec(), view.snapshot.clone());
    // The first question after a start reads segments.
    let found = tokio::task::spawn_blocking(move || -> telem_engine::Result<Vec<_>> {
        let mut samples = Vec::with_capacity(series.len());
        for id in series {
            if let (Some((time, value)), Some(key)) = (snapshot.last(id)?, snapshot.index().key(id)) {
                samples.push((key, time, value));
            }
        }
        Ok(samples)
    });
    let samples = found.await.map_err(|error| crate::Error::Internal(error.to_string()))??;
    Ok(LastAnswer { samples, missing: Vec::new() })
}

/// Asks all nodes for the series of a metric, and records those that they have not reported yet; returns how many nodes
/// have any.
///
/// # Errors
/// What reading fails with.
pub(crate) async fn find(metric: &str, view: &View, task: Arc<TaskContext>) -> Result<usize> {
    let columns = [Column::Node, Column::Tags];
    let request = RowsRequest {
        rows: RowKind::Series,
        columns: columns.to_vec(),
        tests: vec![(NameSubject::Metric, NameTest::In { names: vec![metric.to_owned()], negated: false })],
        range: TimeRange::ALL,
        values: ValueRange::ALL,
        limit: None,
        sorted_by: None,
    };
    let schema = Schema::new(columns.iter().map(|column| column.field(&column.to_string())).collect::<Vec<_>>());
    let leaf = view.leaf(Request::Rows(request), Arc::new(schema), None, &|_| true);
    let mut rows = view.execute(Arc::new(leaf), task).await?;
    let mut found = BTreeSet::new();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let (nodes, tags) = (batch.column(0).as_string_view(), batch.column(1).as_map());
        for row in 0..batch.num_rows() {
            view.find(nodes.value(row), &SeriesKey::new(metric, tags_of(tags, row)?)?);
            found.insert(nodes.value(row).to_owned());
        }
    }
    Ok(found.len())
}

fn tags_of(tags: &MapArray, row: usize) -> Result<TagSet> {
    let entries = tags.value(row);
    let (names, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
    Ok(TagSet::new((0..entries.len()).map(|at| (names.value(at), values.value(at))))?)
}

/// Those of a batch of [`COLUMNS`].
fn samples(batch: &RecordBatch) -> Result<Vec<(SeriesKey, Timestamp, Value)>> {
    let metrics = batch.column(0).as_string_view();
    let tags = batch.column(1).as_map();
    let times = batch.column(2).as_primitive::<TimestampMicrosecondType>();
    let (floats, ints) = (batch.column(3).as_primitive::<Float64Type>(), batch.column(4).as_primitive::<Int64Type>());
    let mut samples = Vec::with_capacity(batch.num_rows());
    for row in (0..batch.num_rows()).filter(|row| times.is_valid(*row)) {
        let value = if ints.is_valid(row) { Value::Int(ints.value(row)) } else { Value::Float(floats.value(row)) };
        samples.push((
            SeriesKey::new(metrics.value(row), tags_of(tags, row)?)?,
            Timestamp::from_micros(times.value(row)),
            value,
        ));
    }
    Ok(samples)
}
