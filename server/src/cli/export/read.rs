//! The source of an export: databases in this process or a running server, queried with the same SQL.
//!
//! A server ends a query at its deadline. A metric that takes longer is queried in stretches of time, as short as
//! necessary. Rows come in a fixed order, so a query that was cut off is continued behind the last row that came.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, partition};
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit, TimestampMicrosecondType};
use arrow::error::ArrowError;
use axum::http::StatusCode;
use telem_engine::{Clock, SystemClock, TimeRange, Timestamp};
use telem_query::{Queries, QueryOptions, RowOrder};

use super::choose::ExportMetric;
use super::columns::{BEFORE_TAGS, JobColumn, answer_schema, quoted, select_list};
use crate::cli::CliFailure;
use crate::cli::cells::literal;
use crate::cli::source::{Origin, RowsError, SourceBatches, StrictArg, open_read_only};
use crate::client::{Client, ClientError};
use crate::missing::Lacking;
use crate::saving::saved;

/// An export of one's own directory may take as long as it takes.
const LOCAL_DEADLINE: Duration = Duration::from_secs(366 * 86_400);
/// So often a server may cut an answer off before a single new row has come.
const TRIES_MAX: u32 = 8;
/// How long a server that refuses for now is left alone: at first, and twice as long each time, up to the second.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The moment to which relative times are relative: of what is saved its last sample.
const NOW: &str = "SELECT CAST('now' AS TIMESTAMP)";
const BEGIN: &str = "SELECT min(first_ts) FROM series";
const METRICS: &str = "SELECT metric, map_keys(tags), count(*) FROM series GROUP BY 1, 2";

const JOBS: &str = "SELECT DISTINCT job FROM jobs ORDER BY job";
/// Databases that nobody described are no runs of their own, as those of one server.
const DESCRIBED_JOBS: &str = "SELECT DISTINCT job FROM jobs WHERE description IS NOT NULL";

/// Rows of one metric, see [`answer_schema`].
#[derive(Clone, Copy, Debug)]
pub struct ExportRows<'a> {
    pub batch: &'a RecordBatch,
    /// How many series begin in them.
    pub series: u64,
    /// The job that they all belong to, where jobs are told apart.
    pub job: Option<&'a str>,
}

/// Takes rows of one metric.
pub type Take<'a> = dyn FnMut(ExportRows<'_>) -> Result<(), CliFailure> + 'a;

pub struct ExportSource {
    asked: QueryTarget,
    /// Where there are several; equal series of two are two then.
    jobs: Vec<String>,
    /// The databases that were found, where they are in this process.
    databases: Vec<PathBuf>,
    lacking: Lacking,
    strict: StrictArg,
}

enum QueryTarget {
    Here(Queries),
    Server(Client),
}

/// A time of a metric that is still to be asked for.
#[derive(Clone, Debug)]
struct ExportStretch {
    range: TimeRange,
    /// Rows up to here came before.
    after: Option<ExportPosition>,
    tries: u32,
}

/// A row's place in the order of a metric's rows: its series, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExportPosition {
    /// By the order of keys.
    tags: Vec<Option<String>>,
    ts: i64,
}

enum Stopped {
    /// There are no more rows, perhaps only for now.
    Rows(RowsError),
    /// What came cannot be taken.
    Taking(CliFailure),
}

impl<E: Into<RowsError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Rows(error.into())
    }
}

impl ExportSource {
    /// One server, or directories.
    pub fn open(from: &[String], strict: StrictArg) -> Result<Self, CliFailure> {
        let mut databases = Vec::new();
        let asked = match Origin::parse(from)? {
            Origin::Server(address) => QueryTarget::Server(Client::new(address)),
            Origin::Directories(dirs) => {
                let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
                let opened = open_read_only(&dirs, strict)?;
                let absent = opened.absent();
                let options = QueryOptions { deadline: LOCAL_DEADLINE, absent, ..QueryOptions::new(clock) };
                let db = opened.db;
                databases = db.recoveries().iter().map(|(dir, _)| dir.to_path_buf()).collect();
                QueryTarget::Here(Queries::new(db, options).map_err(CliFailure::failed)?)
            }
        };
        Ok(Self { asked, jobs: Vec::new(), databases, lacking: Lacking::default(), strict })
    }

    /// Tells several jobs apart from now on.
    ///
    /// # Errors
    /// As [`ExportSource::samples`].
    pub async fn tell_jobs_apart(&mut self) -> Result<(), CliFailure> {
        let several = self.names(DESCRIBED_JOBS).await?.len() > 1;
        self.jobs = if several { self.names(JOBS).await? } else { Vec::new() };
        Ok(())
    }

    /// Whether rows say whose they are.
    pub fn job_column(&self) -> JobColumn {
        if self.jobs.is_empty() { JobColumn::Absent } else { JobColumn::Present }
    }

    /// Which databases are read as one, where there is more than one.
    pub fn several(&self) -> Option<String> {
        saved::several(&self.databases)
    }

    /// Whether samples may come in while it is read.
    pub fn is_live(&self) -> bool {
        matches!(self.asked, QueryTarget::Server(_))
    }

    /// The nodes that any question so far was not answered by, and why.
    pub fn lacking(&self) -> &Lacking {
        &self.lacking
    }

    /// Records the nodes that are missing from an answer.
    ///
    /// # Errors
    /// With `--strict`, if a node is missing: it may be down for good, so the export does not wait for it.
    fn note(&mut self, missing: Option<&str>) -> Result<(), CliFailure> {
        let Some(missing) = missing else { return Ok(()) };
        self.lacking.add(missing);
        match self.strict.strict {
            true => Err(CliFailure::Failed(format!(
                "these nodes would be missing from the export: {}; without --strict it covers the others",
                self.lacking
            ))),
            false => Ok(()),
        }
    }

    async fn ask(&self, sql: &str, order: RowOrder) -> Result<SourceBatches, RowsError> {
        match &self.asked {
            QueryTarget::Here(queries) => SourceBatches::of_queries(queries, sql, order).await,
            QueryTarget::Server(client) => SourceBatches::of_server_in(client, sql, order).await,
        }
    }

    /// Asks a server that refuses for now some times more.
    async fn ask_again(&self, sql: &str) -> Result<SourceBatches, RowsError> {
        let mut tries = 0;
        loop {
            match self.ask(sql, RowOrder::Any).await {
                Err(error) if is_refused(&error) && may_go_on(&error) && tries < TRIES_MAX => {
                    tries += 1;
                    tracing::info!(%error, "asked again");
                    pause(tries).await;
                }
                answer => return answer,
            }
        }
    }

    /// The moment to which relative times are relative: of a running server now, of a saved database its last sample.
    ///
    /// # Errors
    /// As [`ExportSource::samples`].
    pub async fn now(&self) -> Result<Timestamp, CliFailure> {
        let strange = "the source does not say what time it is; give --start and --end as dates";
        self.time(NOW).await?.ok_or_else(|| CliFailure::failed(strange))
    }

    /// The time of the first sample.
    ///
    /// # Errors
    /// As [`ExportSource::samples`].
    pub async fn begin(&self) -> Result<Timestamp, CliFailure> {
        Ok(self.time(BEGIN).await?.unwrap_or_default())
    }

    async fn time(&self, sql: &str) -> Result<Option<Timestamp>, CliFailure> {
        let mut batches = self.ask_again(sql).await?;
        while let Some(batch) = batches.next().await? {
            let [now] = batch.columns() else { return Err(RowsError::from(strange(&batch, 1)).into()) };
            let now = cast(now, &DataType::Timestamp(TimeUnit::Microsecond, None)).map_err(RowsError::from)?;
            if batch.num_rows() > 0 && now.null_count() == 0 {
                return Ok(Some(Timestamp::from_micros(now.as_primitive::<TimestampMicrosecondType>().value(0))));
            }
        }
        Ok(None)
    }

    /// All metrics, by name.
    ///
    /// # Errors
    /// As [`ExportSource::samples`].
    pub async fn metrics(&mut self) -> Result<Vec<ExportMetric>, CliFailure> {
        let (metrics, missing) = self.metrics_now().await?;
        self.note(missing.as_deref())?;
        Ok(metrics)
    }

    /// All metrics, by name, and the nodes that did not answer, which are of no concern where their samples came.
    pub async fn metrics_now(&self) -> Result<(Vec<ExportMetric>, Option<String>), RowsError> {
        let mut metrics: BTreeMap<String, ExportMetric> = BTreeMap::new();
        let mut batches = self.ask_again(METRICS).await?;
        let missing = batches.missing().map(str::to_owned);
        while let Some(batch) = batches.next().await? {
            let [names, keys, series] = batch.columns() else { return Err(strange(&batch, 3).into()) };
            let names = cast(names, &DataType::Utf8)?;
            let keys = cast(keys, &DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))?;
            let series = cast(series, &DataType::Int64)?;
            for row in 0..batch.num_rows() {
                let name = names.as_string::<i32>().value(row);
                let metric = metrics.entry(name.to_owned()).or_default();
                metric.name = name.to_owned();
                let keys = keys.as_list::<i32>().value(row);
                metric.keys.extend(keys.as_string::<i32>().iter().flatten().map(str::to_owned));
                metric.series += series.as_primitive::<Int64Type>().value(row).unsigned_abs();
            }
        }
        Ok((metrics.into_values().collect(), missing))
    }

    /// Hands the samples of `metric` in `range` to `take`, in the columns of [`answer_schema`]: node by node, of each job
    /// by job, series by series, each by time; or a stretch of time after the other in that order, where the server's
    /// deadline asks for it.
    ///
    /// # Errors
    /// What `take` says; what cannot be read; with `--strict`, nodes that do not answer.
    pub async fn samples(
        &mut self,
        metric: &ExportMetric,
        range: TimeRange,
        take: &mut Take<'_>,
    ) -> Result<(), CliFailure> {
        let nodes = self.nodes(metric).await?;
        // Rows have an order on each node alone.
        let nodes = if nodes.len() > 1 { nodes.into_iter().map(Some).collect() } else { vec![None] };
        let jobs: Vec<Option<String>> = match self.jobs.is_empty() {
            true => vec![None],
            false => self.jobs.iter().cloned().map(Some).collect(),
        };
        for node in &nodes {
            for job in &jobs {
                let part = ExportPart { metric, node: node.as_deref(), job: job.as_deref() };
                self.samples_of(part, range, take).await?;
            }
        }
        Ok(())
    }

    /// Which nodes of a running job have the metric.
    async fn nodes(&mut self, metric: &ExportMetric) -> Result<Vec<String>, CliFailure> {
        if !self.is_live() {
            return Ok(Vec::new());
        }
        let mut nodes =
            self.names(&format!("SELECT DISTINCT node FROM series WHERE metric = {}", literal(&metric.name))).await?;
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// The answer to a question for names.
    async fn names(&mut self, sql: &str) -> Result<Vec<String>, CliFailure> {
        let mut batches = self.ask_again(sql).await?;
        // Nodes that are not in the list get no queries, and can only be named here.
        self.note(batches.missing())?;
        let mut names = Vec::new();
        while let Some(batch) = batches.next().await? {
            let [found] = batch.columns() else { return Err(RowsError::from(strange(&batch, 1)).into()) };
            let found = cast(found, &DataType::Utf8).map_err(RowsError::from)?;
            names.extend(found.as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        Ok(names)
    }

    async fn samples_of(
        &mut self,
        part: ExportPart<'_>,
        range: TimeRange,
        take: &mut Take<'_>,
    ) -> Result<(), CliFailure> {
        let metric = part.metric;
        let mut todo = vec![ExportStretch { range, after: None, tries: 0 }];
        while let Some(stretch) = todo.pop() {
            let mut reached = stretch.after.clone();
            match self.stretch(part, &stretch, &mut reached, take).await {
                Ok(()) => {}
                Err(Stopped::Taking(failure)) => return Err(failure),
                Err(Stopped::Rows(error)) => {
                    let tries = if reached == stretch.after { stretch.tries + 1 } else { 1 };
                    if !may_go_on(&error) || tries > TRIES_MAX {
                        return Err(error.into());
                    }
                    tracing::info!(metric = metric.name, %error, "the rest is queried in shorter stretches");
                    if is_refused(&error) {
                        pause(tries).await;
                    }
                    let bounds = self.bounds(metric).await.unwrap_or_default();
                    let halves = bounds.and_then(|bounds| halves(stretch.range, bounds));
                    let ranges = halves.map_or_else(|| vec![stretch.range], |(early, late)| vec![late, early]);
                    todo.extend(ranges.into_iter().map(|range| ExportStretch { range, after: reached.clone(), tries }));
                }
            }
        }
        Ok(())
    }

    async fn stretch(
        &mut self,
        part: ExportPart<'_>,
        stretch: &ExportStretch,
        reached: &mut Option<ExportPosition>,
        take: &mut Take<'_>,
    ) -> Result<(), Stopped> {
        let mut batches = self.ask(&question(part, stretch.range), RowOrder::Stored).await?;
        // Including nodes that an earlier stretch still had: their later rows are missing.
        self.note(batches.missing()).map_err(Stopped::Taking)?;
        let mut skipping = stretch.after.as_ref();
        while let Some(batch) = batches.next().await? {
            let mut batch = typed(&batch, part.metric)?;
            if let Some(after) = skipping {
                batch = rows_after(&batch, after);
            }
            if batch.num_rows() == 0 {
                continue;
            }
            skipping = None;
            let series = series_begun(&batch, reached.as_ref())?;
            take(ExportRows { batch: &batch, series, job: part.job }).map_err(Stopped::Taking)?;
            *reached = Some(ExportPosition::of(&batch, batch.num_rows() - 1));
        }
        Ok(())
    }

    /// The times of the first and the last sample of `metric`.
    async fn bounds(&self, metric: &ExportMetric) -> Result<Option<(Timestamp, Timestamp)>, RowsError> {
        let sql = format!("SELECT min(first_ts), max(last_ts) FROM series WHERE metric = {}", literal(&metric.name));
        let mut batches = self.ask(&sql, RowOrder::Any).await?;
        while let Some(batch) = batches.next().await? {
            let [first, last] = batch.columns() else { return Err(strange(&batch, 2).into()) };
            let micros = |column: &ArrayRef| cast(column, &DataType::Int64);
            let (first, last) = (micros(first)?, micros(last)?);
            if batch.num_rows() > 0 && first.null_count() + last.null_count() == 0 {
                let at = |column: &ArrayRef| Timestamp::from_micros(column.as_primitive::<Int64Type>().value(0));
                return Ok(Some((at(&first), at(&last))));
            }
        }
        Ok(None)
    }
}

/// Samples that one question asks for: of one node or wherever they are, and of one job or of all as one.
#[derive(Clone, Copy, Debug)]
struct ExportPart<'a> {
    metric: &'a ExportMetric,
    node: Option<&'a str>,
    job: Option<&'a str>,
}

/// The SQL for samples in `range`.
fn question(part: ExportPart<'_>, range: TimeRange) -> String {
    let mut sql = format!("SELECT {} FROM metric.{}", select_list(part.metric), quoted(&part.metric.name));
    // Not as dates: they end long before microseconds do.
    let time = |time: Timestamp| format!("arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", time.micros());
    let mut word = "WHERE";
    for (column, name) in [("node", part.node), ("job", part.job)] {
        let Some(name) = name else { continue };
        sql.push_str(&format!(" {word} {column} = {}", literal(name)));
        word = "AND";
    }
    if range.start != TimeRange::ALL.start {
        sql.push_str(&format!(" {word} ts >= {}", time(range.start)));
        word = "AND";
    }
    if range.end != TimeRange::ALL.end {
        sql.push_str(&format!(" {word} ts < {}", time(range.end)));
    }
    sql
}

/// Pauses before the next request to a server that refused this many times in a row.
async fn pause(tries: u32) {
    tokio::time::sleep(PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(TRIES_MAX)).min(PAUSE_MAX)).await;
}

fn is_refused(error: &RowsError) -> bool {
    matches!(error, RowsError::Client(ClientError::Refused { .. }))
}

/// Whether an answer that ends so can be had in parts, or later.
fn may_go_on(error: &RowsError) -> bool {
    match error {
        RowsError::Client(ClientError::Broken { .. }) => true,
        RowsError::Client(ClientError::Refused { status, .. }) => *status == StatusCode::SERVICE_UNAVAILABLE,
        _ => false,
    }
}

/// `range` in two, cut in the middle of what there is of it between the first and the last sample.
fn halves(range: TimeRange, (first, last): (Timestamp, Timestamp)) -> Option<(TimeRange, TimeRange)> {
    let first = range.start.max(first).micros();
    let last = range.end.micros().min(last.micros().saturating_add(1));
    let width = last.checked_sub(first).filter(|width| *width >= 2)?;
    let middle = Timestamp::from_micros(first + width / 2);
    Some((TimeRange::new(range.start, middle), TimeRange::new(middle, range.end)))
}

fn strange(batch: &RecordBatch, expected: usize) -> ArrowError {
    ArrowError::SchemaError(format!("{} columns, expected {expected}", batch.num_columns()))
}

/// The batch in the types of [`answer_schema`], whatever it came in.
fn typed(batch: &RecordBatch, metric: &ExportMetric) -> Result<RecordBatch, ArrowError> {
    let schema = answer_schema(metric);
    if batch.num_columns() != schema.fields().len() {
        return Err(strange(batch, schema.fields().len()));
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_, _>>()?)
}

impl ExportPosition {
    /// The position of one row of a [`typed`] batch.
    fn of(batch: &RecordBatch, row: usize) -> Self {
        let tags = batch.columns()[BEFORE_TAGS..].iter().map(|column| {
            let column = column.as_string_view();
            column.is_valid(row).then(|| column.value(row).to_owned())
        });
        Self { tags: tags.collect(), ts: batch.column(0).as_primitive::<TimestampMicrosecondType>().value(row) }
    }

    /// In the canonical order of series, then by time.
    fn cmp_row(&self, batch: &RecordBatch, row: usize) -> Ordering {
        let own = self.tags.iter().enumerate().filter_map(|(at, tag)| Some((at, tag.as_deref()?)));
        let of_row = batch.columns()[BEFORE_TAGS..].iter().enumerate().filter_map(|(at, column)| {
            let column = column.as_string_view();
            column.is_valid(row).then(|| (at, column.value(row)))
        });
        own.cmp(of_row)
            .then_with(|| self.ts.cmp(&batch.column(0).as_primitive::<TimestampMicrosecondType>().value(row)))
    }
}

/// The rows behind `after`; rows are in order.
fn rows_after(batch: &RecordBatch, after: &ExportPosition) -> RecordBatch {
    let (mut low, mut high) = (0, batch.num_rows());
    while low < high {
        let middle = low + (high - low) / 2;
        if after.cmp_row(batch, middle).is_lt() { high = middle } else { low = middle + 1 }
    }
    batch.slice(low, batch.num_rows() - low)
}

/// How many series begin in `batch`, which follows the row at `before`.
fn series_begun(batch: &RecordBatch, before: Option<&ExportPosition>) -> Result<u64, ArrowError> {
    let tags = &batch.columns()[BEFORE_TAGS..];
    let here = if tags.is_empty() { 1 } else { partition(tags)?.len() };
    let goes_on = before.is_some_and(|before| before.tags == ExportPosition::of(batch, 0).tags);
    Ok(here as u64 - u64::from(goes_on))
}
