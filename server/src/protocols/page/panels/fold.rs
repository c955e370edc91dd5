//! Average, least and greatest of all samples of a column, in one pass where the samples are: a question in SQL, whose
//! aggregates nodes make in parts. A value that is not a number is no sample.

use std::fmt::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, SecondsFormat};
use futures::StreamExt;
use telem_engine::{ErrorKind, Timestamp};

use super::lines::{LineName, LinePart, PanelLines, RawLine};
use super::question::{PanelFilters, TagWish};
use super::{LineFunction, PanelTask};
use crate::http::ApiError;
use crate::protocols::page::start::{AbsentNode, millis};

/// Columns of a metric's table that are no tags; a tag of such a name has another there.
const TAKEN: [&str; 5] = ["ts", "value", "value_int", "node", "job"];

/// # Errors
/// Those of the query; those of [`PanelLines::place`].
pub async fn fill(task: &PanelTask, filters: &PanelFilters, lines: &mut PanelLines) -> Result<(), ApiError> {
    let (keys, grid) = (LineKeys::of(task), lines.grid);
    let groups = keys.columns();
    let numbers: Vec<String> = (1..=keys.known.len() + 1).map(|number| number.to_string()).collect();
    let sql = format!(
        "SELECT {groups}time_bucket('{} milliseconds', ts), avg(value), min(value), max(value), count(value) \
         FROM {} WHERE {} GROUP BY {}",
        grid.step_millis(),
        table(&task.panel.metric),
        conditions(filters, grid.start, grid.end()),
        numbers.join(", ")
    );
    let function = task.panel.function;
    let mut rows = FoldedRows::ask(task, &sql, lines).await?;
    while let Some(batch) = rows.next().await? {
        let names = keys.names(&batch)?;
        let from = keys.known.len();
        let times = micros(&batch, from)?;
        let [avg, min, max] = [floats(&batch, from + 1)?, floats(&batch, from + 2)?, floats(&batch, from + 3)?];
        let counts = cast(batch.column(from + 4), &DataType::Int64).map_err(bug)?;
        let counts = counts.as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let place = lines.place(&names.of(row))?;
            lines.lines[place].samples += u64::try_from(counts.value(row)).unwrap_or(0);
            let time = Timestamp::from_micros(times[row]);
            let shown = match function {
                LineFunction::Min => min[row],
                LineFunction::Max => max[row],
                LineFunction::Avg | LineFunction::Sum => avg[row],
            };
            lines.set(place, LinePart::Avg, time, shown);
            lines.set(place, LinePart::Min, time, min[row]);
            lines.set(place, LinePart::Max, time, max[row]);
        }
    }
    Ok(())
}

/// The samples themselves, of lines that are there.
///
/// # Errors
/// Those of the query.
pub async fn fill_raw(task: &PanelTask, filters: &PanelFilters, lines: &mut PanelLines) -> Result<(), ApiError> {
    let (keys, grid) = (LineKeys::of(task), lines.grid);
    let sql = format!(
        "SELECT {}ts, value FROM {} WHERE {} ORDER BY ts",
        keys.columns(),
        table(&task.panel.metric),
        conditions(filters, grid.start, grid.end())
    );
    let mut raw = vec![RawLine::default(); lines.lines.len()];
    let mut rows = FoldedRows::ask(task, &sql, lines).await?;
    while let Some(batch) = rows.next().await? {
        let names = keys.names(&batch)?;
        let (times, values) = (micros(&batch, keys.known.len())?, floats(&batch, keys.known.len() + 1)?);
        for row in 0..batch.num_rows() {
            // One that came meanwhile has no bucket yet.
            let Some(line) = lines.known(&names.of(row)).and_then(|place| raw.get_mut(place)) else { continue };
            line.times.push(millis(Timestamp::from_micros(times[row])));
            line.values.push(values[row]);
        }
    }
    lines.raw = Some(raw);
    Ok(())
}

/// The rows of an answer, batch by batch.
struct FoldedRows {
    batches: futures::stream::BoxStream<'static, Result<RecordBatch, telem_query::Error>>,
}

impl FoldedRows {
    async fn ask(task: &PanelTask, sql: &str, lines: &mut PanelLines) -> Result<Self, ApiError> {
        let answer = task.state.queries.sql(sql).await?;
        lines.lack(answer.missing.iter().map(AbsentNode::from));
        Ok(Self { batches: answer.batches.map(|batch| batch.map_err(telem_query::Error::from)).boxed() })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, ApiError> {
        Ok(self.batches.next().await.transpose()?)
    }
}

/// The keys that make lines: where each stands among the columns, if series of the metric have it.
struct LineKeys {
    known: Vec<String>,
    /// Of every key of the question, its column.
    places: Vec<Option<usize>>,
}

impl LineKeys {
    fn of(task: &PanelTask) -> Self {
        let of_metric = task.state.index().tag_keys(&task.panel.metric);
        let mut known: Vec<String> = Vec::new();
        let place = |key: &String| {
            let is_known = of_metric.iter().any(|there| **there == **key);
            is_known.then(|| {
                known.iter().position(|known| known == key).unwrap_or_else(|| {
                    known.push(key.clone());
                    known.len() - 1
                })
            })
        };
        let places = task.panel.by.iter().map(place).collect();
        Self { known, places }
    }

    /// As they are selected, before what follows.
    fn columns(&self) -> String {
        self.known.iter().map(|key| format!("{}, ", column(key))).collect()
    }

    fn names(&self, batch: &RecordBatch) -> Result<RowNames<'_>, ApiError> {
        let columns = (0..self.known.len()).map(|at| cast(batch.column(at), &DataType::Utf8).map_err(bug));
        Ok(RowNames { keys: self, columns: columns.collect::<Result<_, _>>()? })
    }
}

/// The names of the lines of a batch's rows.
struct RowNames<'a> {
    keys: &'a LineKeys,
    columns: Vec<arrow::array::ArrayRef>,
}

impl RowNames<'_> {
    fn of(&self, row: usize) -> LineName {
        let value = |at: usize| {
            let texts = self.columns[at].as_string::<i32>();
            texts.is_valid(row).then(|| texts.value(row).to_owned())
        };
        self.keys.places.iter().map(|place| place.and_then(value)).collect()
    }
}

fn micros(batch: &RecordBatch, at: usize) -> Result<Vec<i64>, ApiError> {
    let times = cast(batch.column(at), &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))).map_err(bug)?;
    Ok(times.as_primitive::<TimestampMicrosecondType>().values().to_vec())
}

/// Nothing is NaN.
fn floats(batch: &RecordBatch, at: usize) -> Result<Vec<f64>, ApiError> {
    let values = cast(batch.column(at), &DataType::Float64).map_err(bug)?;
    let values = values.as_primitive::<Float64Type>();
    Ok(values.iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

fn bug(error: arrow::error::ArrowError) -> ApiError {
    ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: columns of a panel: {error}"))
}

/// The table of a metric, whatever its name.
fn table(metric: &str) -> String {
    format!("metric.{}", quoted(metric))
}

fn column(key: &str) -> String {
    if TAKEN.contains(&key) { quoted(&format!("tag_{key}")) } else { quoted(key) }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn conditions(filters: &PanelFilters, start: Timestamp, end: Timestamp) -> String {
    let time = |time: Timestamp| {
        let time = DateTime::from_timestamp_micros(time.micros()).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Micros, true)
    };
    let mut text = format!("ts >= '{}' AND ts < '{}' AND NOT isnan(value)", time(start), time(end));
    for (key, wish) in filters {
        let column = column(key);
        match wish {
            TagWish::Any => write!(text, " AND {column} IS NOT NULL").unwrap_or_default(),
            TagWish::OneOf(values) => {
                let values: Vec<String> =
                    values.iter().map(|value| format!("'{}'", value.replace('\'', "''"))).collect();
                write!(text, " AND {column} IN ({})", values.join(", ")).unwrap_or_default();
            }
        }
    }
    text
}
