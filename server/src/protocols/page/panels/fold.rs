//! Average, least and greatest of all samples of a column, in one pass where the samples are: the engine folds each series,
//! and lines are put together here. A value that is not a number is no sample. Few samples come as they are, in SQL.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, SecondsFormat};
use futures::StreamExt;
use telem_engine::{ErrorKind, ExactSum, JOB_TAG, Timestamp};
use telem_query::table::tag_column;
use telem_query::{Aggregator, FoldSink, FoldedRows};

use super::lines::{LineName, PanelLines, RawLine};
use super::question::{PanelFilters, TagWish};
use super::{LineFunction, PanelTask, series};
use crate::http::ApiError;
use crate::protocols::page::millis;
use crate::protocols::page::nodes::AbsentNode;

/// # Errors
/// Those of the query; those of [`PanelLines::place`].
pub async fn fill(task: &PanelTask, filters: &PanelFilters, lines: PanelLines) -> Result<PanelLines, ApiError> {
    let query = series::query(task, filters, lines.grid, Aggregator::Avg);
    let (sink, missing) = task.state.queries.fold(query, FoldedLines::new(task, lines)).await?;
    let mut lines = sink.finish()?;
    lines.lack(missing.iter().map(AbsentNode::from));
    Ok(lines)
}

/// As [`fill`], in SQL: tables have a column of the job where series have no such tag.
///
/// # Errors
/// As [`fill`].
pub async fn fill_by_table(
    task: &PanelTask,
    filters: &PanelFilters,
    mut lines: PanelLines,
) -> Result<PanelLines, ApiError> {
    let (keys, grid) = (LineKeys::of(task), lines.grid);
    let sql = format!(
        "SELECT {}(CAST(ts AS BIGINT) - {}) / {} AS \"at\", sum(CAST(value AS DOUBLE)), count(value), min(value), max(value) \
         FROM {} WHERE {} GROUP BY {}\"at\"",
        keys.columns(),
        grid.start.micros(),
        grid.step.micros(),
        table(&task.panel.metric),
        conditions(&TagColumns::of(task), filters, grid.start, grid.end()),
        keys.columns(),
    );
    let mut rows = RawRows::ask(task, &sql, &mut lines).await?;
    let (mut sink, first) = (FoldedLines::new(task, lines), keys.known.len());
    while let Some(batch) = rows.next().await? {
        let names = keys.names(&batch)?;
        let (at, sums, counts) = (floats(&batch, first)?, floats(&batch, first + 1)?, floats(&batch, first + 2)?);
        let (least, greatest) = (floats(&batch, first + 3)?, floats(&batch, first + 4)?);
        for row in 0..batch.num_rows() {
            let place = sink.lines.place(&names.of(row))?;
            let folded = FoldedRows {
                tags: &[],
                times: &[grid.at(at[row] as usize)],
                sums: &[sums[row]],
                counts: &[counts[row] as u64],
                least: &[least[row]],
                greatest: &[greatest[row]],
            };
            sink.add(place, &folded);
        }
    }
    sink.finish()
}

/// Lines while their columns come in. Until the end the average of a column is the sum of its samples.
struct FoldedLines {
    keys: Vec<String>,
    function: LineFunction,
    lines: PanelLines,
    /// Of each line the number of samples in each column.
    counts: Vec<Vec<u32>>,
    /// Sums that come in several parts, by line and column: nearly none where a line is one series.
    sums: HashMap<(usize, usize), ExactSum>,
    /// Why no more is taken.
    refused: Option<ApiError>,
}

impl FoldSink for FoldedLines {
    fn clear(&mut self) {
        self.lines.clear();
        self.counts.clear();
        self.sums.clear();
        self.refused = None;
    }

    fn take(&mut self, rows: &FoldedRows<'_>) -> bool {
        let value = |key: &String| rows.tags.iter().find(|(known, _)| known == key).and_then(|(_, value)| *value);
        let name: LineName = self.keys.iter().map(|key| value(key).map(str::to_owned)).collect();
        match self.lines.place(&name) {
            Ok(place) => self.add(place, rows),
            Err(error) => self.refused = Some(error),
        }
        self.refused.is_none()
    }
}

impl FoldedLines {
    fn new(task: &PanelTask, lines: PanelLines) -> Self {
        let (keys, function) = (task.panel.by.clone(), task.panel.function);
        Self { keys, function, lines, counts: Vec::new(), sums: HashMap::new(), refused: None }
    }

    fn add(&mut self, place: usize, rows: &FoldedRows<'_>) {
        let grid = self.lines.grid;
        if self.counts.len() <= place {
            self.counts.resize_with(place + 1, || vec![0; grid.columns]);
        }
        let (line, counts) = (&mut self.lines.lines[place], &mut self.counts[place]);
        for (row, time) in rows.times.iter().enumerate() {
            let Some(column) = grid.column(*time) else { continue };
            match counts[column] {
                0 => line.avg[column] = rows.sums[row],
                _ => {
                    let before = line.avg[column];
                    let sum = self.sums.entry((place, column)).or_insert_with(|| {
                        let mut sum = ExactSum::default();
                        sum.add(before);
                        sum
                    });
                    sum.add(rows.sums[row]);
                }
            }
            line.samples = line.samples.saturating_add(rows.counts[row]);
            counts[column] = counts[column].saturating_add(u32::try_from(rows.counts[row]).unwrap_or(u32::MAX));
            line.min[column] = line.min[column].min(rows.least[row]);
            line.max[column] = line.max[column].max(rows.greatest[row]);
        }
    }

    /// # Errors
    /// Why not all was taken.
    fn finish(mut self) -> Result<PanelLines, ApiError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        for ((place, column), sum) in self.sums {
            self.lines.lines[place].avg[column] = sum.value();
        }
        for (line, counts) in self.lines.lines.iter_mut().zip(&self.counts) {
            match self.function {
                LineFunction::Min => line.avg.copy_from_slice(&line.min),
                LineFunction::Max => line.avg.copy_from_slice(&line.max),
                LineFunction::Avg | LineFunction::Sum => {
                    for (value, count) in line.avg.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
                        *value /= f64::from(*count);
                    }
                }
            }
        }
        Ok(self.lines)
    }
}

/// The samples themselves, of the lines at these places.
///
/// # Errors
/// Those of the query.
pub async fn fill_raw(
    task: &PanelTask,
    filters: &PanelFilters,
    lines: &mut PanelLines,
    places: &[usize],
) -> Result<(), ApiError> {
    let mut raw = vec![RawLine::default(); lines.lines.len()];
    if places.is_empty() {
        lines.raw = Some(raw);
        return Ok(());
    }
    let (keys, grid) = (LineKeys::of(task), lines.grid);
    let filters: PanelFilters = filters.iter().cloned().chain(only(task, lines, places)).collect();
    let sql = format!(
        "SELECT {}ts, value FROM {} WHERE {} ORDER BY ts",
        keys.columns(),
        table(&task.panel.metric),
        conditions(&TagColumns::of(task), &filters, grid.start, grid.end())
    );
    let mut rows = RawRows::ask(task, &sql, lines).await?;
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

/// What the tags of these lines are, key by key: of lines of several keys more may match, and none of them is missed.
fn only(task: &PanelTask, lines: &PanelLines, places: &[usize]) -> PanelFilters {
    let of_key = |(at, key): (usize, &String)| {
        let values = places.iter().map(|place| lines.lines[*place].name[at].clone());
        // Where a line lacks the key there is no such condition.
        let values: BTreeSet<String> = values.collect::<Option<_>>()?;
        Some((key.clone(), TagWish::OneOf(values.into_iter().collect())))
    };
    task.panel.by.iter().enumerate().filter_map(of_key).collect()
}

/// The rows of an answer, batch by batch.
struct RawRows {
    batches: futures::stream::BoxStream<'static, Result<RecordBatch, telem_query::Error>>,
}

impl RawRows {
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
    /// As columns.
    known: Vec<String>,
    /// Of every key of the question, its column.
    places: Vec<Option<usize>>,
}

impl LineKeys {
    fn of(task: &PanelTask) -> Self {
        let columns = TagColumns::of(task);
        let mut known: Vec<String> = Vec::new();
        let place = |key: &String| {
            let column = columns.column(key)?;
            Some(known.iter().position(|known| *known == column).unwrap_or_else(|| {
                known.push(column);
                known.len() - 1
            }))
        };
        let places = task.panel.by.iter().map(place).collect();
        Self { known, places }
    }

    /// As they are selected, before what follows.
    fn columns(&self) -> String {
        self.known.iter().map(|column| format!("{column}, ")).collect()
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

/// The columns of the tags of a metric.
struct TagColumns(Vec<std::sync::Arc<str>>);

impl TagColumns {
    fn of(task: &PanelTask) -> Self {
        Self(task.state.index().tag_keys(&task.panel.metric))
    }

    /// `None` where no series has the tag. The job is a column, unless there is a tag of that name.
    fn column(&self, key: &str) -> Option<String> {
        if self.0.iter().any(|known| **known == *key) {
            return Some(quoted(&tag_column(key)));
        }
        (key == JOB_TAG).then(|| quoted(JOB_TAG))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn conditions(columns: &TagColumns, filters: &PanelFilters, start: Timestamp, end: Timestamp) -> String {
    let time = |time: Timestamp| {
        let time = DateTime::from_timestamp_micros(time.micros()).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Micros, true)
    };
    let mut text = format!("ts >= '{}' AND ts < '{}' AND NOT isnan(value)", time(start), time(end));
    for (key, wish) in filters {
        let Some(column) = columns.column(key) else { continue };
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
