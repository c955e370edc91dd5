//! `telem export`: writes samples as files for other tools, from saved databases or a running server.
//!
//! It exports metric by metric, and the rows of each as they come. Nothing is sorted, and only a few batches and one
//! row group are in memory. [`read`] queries, [`columns`] lays out the rows, and [`place`] keeps unfinished output out
//! of sight. [`events`] writes for TensorBoard, with the steps of all series in memory.

mod choose;
mod columns;
mod events;
mod names;
mod place;
mod progress;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use telem_engine::{TimeRange, Timestamp};

use super::glob::Glob;
use super::output::{Output, OutputFormat};
use super::pending::unless_stopped;
use super::source::StrictArg;
use super::table::{TableColumns, TableOptions};
use super::times::{self, When};
use super::{CliFailure, Verbosity};
use choose::ExportMetric;
use columns::Columns;
use events::{EventFiles, StepsByTime};
use place::{ExportPlace, OtherFiles, Written};
use progress::ExportProgress;
use read::{ExportRows, ExportSource};

/// Write samples to Parquet, CSV, Arrow or TensorBoard files
///
/// OUT is a file (out.parquet, out.csv, out.arrow) with all metrics, or a directory (OUT/) with one file per metric.
/// Columns: metric, host, node, one for every other tag, ts (microseconds, UTC), value (double), and value_int (the
/// exact integer, if the sample is one); of several jobs also job. Rows are ordered by metric, job, series and time. Files get their names when they
/// are complete: an export that fails leaves earlier files untouched.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct ExportArgs {
    /// Directories of databases or saved jobs, or a server
    ///
    /// A server is http://HOST:PORT, or unix:PATH of its socket.
    #[arg(value_name = "DIR|URL", required = true)]
    from: Vec<String>,
    /// File to write, or directory (OUT/) for one file per metric
    ///
    /// A directory ends in a slash, or exists. An earlier export in it is replaced completely.
    #[arg(long, short, value_name = "OUT", required_unless_present = "tensorboard")]
    output: Option<PathBuf>,
    /// Write event files of TensorBoard instead, a directory for each set of tags
    ///
    /// Values are 32-bit floats there. Steps are those of the metric step with the same time and tags, else seconds since
    /// the first sample. DIR must be new or empty.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "format", "force"])]
    tensorboard: Option<PathBuf>,
    /// Format of the files [default: by the name of OUT, else Parquet]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<ExportFormat>,
    /// Only metrics of this name, such as 'train.*'
    ///
    /// * stands for any text and ? for one character; may be repeated.
    #[arg(long = "metric", value_name = "GLOB")]
    metrics: Vec<Glob>,
    /// Leave these metrics out, even if --metric selects them; may be repeated
    #[arg(long, hide_short_help = true, value_name = "GLOB")]
    exclude: Vec<Glob>,
    /// Only samples from this time on: RFC 3339, seconds, 5m-ago
    ///
    /// Also a number with ms or us, or now.
    #[arg(long, value_name = "T", value_parser = times::when, allow_hyphen_values = true)]
    start: Option<When>,
    /// Only samples before this time
    #[arg(long, value_name = "T", value_parser = times::when, allow_hyphen_values = true)]
    end: Option<When>,
    /// Write even into a directory that holds files other than an export
    #[arg(long, hide_short_help = true)]
    force: bool,
    #[command(flatten)]
    strict: StrictArg,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem export ./telem-4711 -o job.parquet
  telem export ./telem-4711 -o job/ --metric 'train.*' --metric node_load1
  telem export http://127.0.0.1:4242 -o last.csv --start 10m-ago";

const EXAMPLES: &str = "\
Examples:
  telem export ./telem-4711 -o job.parquet
  telem export ./telem-4711 -o job/ --metric 'train.*' --metric node_load1
  telem export ./telem-4711 ./telem-4712 -o both.parquet --start 2026-07-27T12:00:00Z
  telem export ./telem-4711 --tensorboard logs && ls logs     # tensorboard --logdir logs
  telem export http://127.0.0.1:4242 -o last.csv --start 10m-ago

Then:
  duckdb -c \"SELECT metric, host, avg(value) FROM 'job.parquet' GROUP BY ALL\"
  duckdb -c \"FROM read_parquet('job/*.parquet', union_by_name = true)\"
  python -c \"import pandas; print(pandas.read_parquet('job.parquet'))\"
  python -c \"import polars; print(polars.scan_parquet('job.parquet').collect())\"

Environment:
  TELEM_TOKEN   the token, if the server needs one";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Compressed columns: the smallest, and what most tools read fastest
    Parquet,
    /// Text with a header line
    Csv,
    /// An Arrow IPC file (Feather), compressed
    Arrow,
}

impl ExportFormat {
    fn output(self) -> OutputFormat {
        match self {
            Self::Parquet => OutputFormat::Parquet,
            Self::Csv => OutputFormat::Csv,
            Self::Arrow => OutputFormat::Arrow,
        }
    }

    /// The end of a file's name.
    fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
        }
    }
}

/// # Errors
/// Failed when a source cannot be read or a file not be written, and when no sample is chosen.
pub fn run(args: &ExportArgs, verbosity: Verbosity) -> Result<(), CliFailure> {
    let (place, format) = match (&args.output, &args.tensorboard) {
        (Some(output), _) => ExportPlace::of(output, args.format)?,
        (None, Some(dir)) => (ExportPlace::Events(dir.clone()), ExportFormat::Parquet),
        (None, None) => return Err(CliFailure::usage("name what to write with -o OUT or --tensorboard DIR")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    runtime.block_on(unless_stopped(export(args, place, format, ExportProgress::start(verbosity))))
}

/// From `--start` to `--end`. Relative times count from the source's own now.
async fn range(args: &ExportArgs, source: &ExportSource) -> Result<TimeRange, CliFailure> {
    let is_relative = |when: Option<When>| matches!(when, Some(When::Ago(_)));
    let now = match is_relative(args.start) || is_relative(args.end) {
        true => source.now().await?,
        false => Timestamp::default(),
    };
    let time = |when: Option<When>, otherwise: Timestamp| when.map_or(otherwise, |when| when.at(now));
    let range = TimeRange::new(time(args.start, TimeRange::ALL.start), time(args.end, TimeRange::ALL.end));
    match range.is_empty() {
        true => Err(CliFailure::usage("--end is not after --start, so no sample can be between them")),
        false => Ok(range),
    }
}

async fn export(
    args: &ExportArgs,
    place: ExportPlace,
    format: ExportFormat,
    mut progress: ExportProgress,
) -> Result<(), CliFailure> {
    let mut source = ExportSource::open(&args.from, args.strict)?;
    let range = range(args, &source).await?;
    if let Some(several) = source.several() {
        progress.say(&several);
    }
    let written = write(args, place, format, range, &mut source, &mut progress).await;
    // Also where it failed, as for want of a metric that only they have; with --strict that itself says so.
    if !source.lacking().is_empty() && !args.strict.strict {
        progress.warn(&format!("the export lacks nodes: {}", source.lacking()));
    }
    let to = args.output.as_ref().or(args.tensorboard.as_ref());
    progress.finish(&written?, to.map_or(Path::new("."), PathBuf::as_path));
    Ok(())
}

/// Writes what is chosen, and keeps it.
async fn write(
    args: &ExportArgs,
    place: ExportPlace,
    format: ExportFormat,
    range: TimeRange,
    source: &mut ExportSource,
    progress: &mut ExportProgress,
) -> Result<Written, CliFailure> {
    let known = source.metrics().await?;
    let (chosen, unmatched) = choose::choose(&known, &args.metrics, &args.exclude).map_err(CliFailure::failed)?;
    for glob in unmatched {
        progress.warn(&format!("no metric matches '{glob}'"));
    }
    source.tell_jobs_apart().await?;
    progress.begin(&chosen);
    let written = match place {
        ExportPlace::File(path) => one_file(source, &chosen, range, path.as_deref(), format, progress).await?,
        ExportPlace::Directory(path) => {
            // A metric that no file can hold is reported before the others are written, which may take hours.
            for metric in &chosen {
                Columns::of(&[metric], source.job_column()).map_err(CliFailure::failed)?;
            }
            let others = if args.force { OtherFiles::Left } else { OtherFiles::Refused };
            let mut directory = place::Unfinished::create(&path, format, others)?;
            for metric in &chosen {
                one_metric(source, metric, range, &mut directory, progress).await?;
            }
            if directory.written().samples == 0 {
                return Err(nothing_in(range));
            }
            directory.keep(&args.from, range)?
        }
        ExportPlace::Events(path) => events(source, &known, &chosen, range, &path, progress).await?,
    };
    for warning in tags_that_came_later(source, &chosen).await? {
        progress.warn(&warning);
    }
    Ok(written)
}

/// Rows beyond what a table shows are of no concern here.
const NO_TABLE: TableOptions = TableOptions { rows_max: 0, width: None, columns: TableColumns::OF_A_QUERY };

async fn one_file(
    source: &mut ExportSource,
    metrics: &[&ExportMetric],
    range: TimeRange,
    path: Option<&Path>,
    format: ExportFormat,
    progress: &mut ExportProgress,
) -> Result<Written, CliFailure> {
    let columns = Columns::of(metrics, source.job_column()).map_err(CliFailure::failed)?;
    let mut output = Output::new(format.output(), columns.schema(), path, NO_TABLE)?;
    let mut samples = 0;
    for metric in metrics {
        let mut rows = columns.rows_of(metric);
        let mut write = |found: ExportRows<'_>| {
            samples += found.batch.num_rows() as u64;
            progress.add(metric, found.batch.num_rows(), found.series);
            output.batch(&rows.of(found.batch, found.job).map_err(CliFailure::failed)?)
        };
        source.samples(metric, range, &mut write).await?;
        progress.done(metric);
    }
    if samples == 0 {
        return Err(nothing_in(range));
    }
    output.finish()?;
    Ok(Written { samples, metrics: metrics.len() as u64, files: 1, bytes: path.and_then(place::bytes_of), removed: 0 })
}

/// Writes the metrics as scalars, each with the step of its time.
async fn events(
    source: &mut ExportSource,
    known: &[ExportMetric],
    metrics: &[&ExportMetric],
    range: TimeRange,
    path: &Path,
    progress: &mut ExportProgress,
) -> Result<Written, CliFailure> {
    let mut steps = StepsByTime::default();
    if let Some(metric) = known.iter().find(|metric| metric.name == events::STEP) {
        let mut take = |found: ExportRows<'_>| steps.add(metric, found);
        source.samples(metric, range, &mut take).await?;
        steps.sort();
    }
    let mut files = EventFiles::create(path, source.begin().await?, steps)?;
    let mut written = 0;
    // It goes with every other metric.
    for metric in metrics.iter().filter(|metric| metric.name != events::STEP) {
        let mut take = |found: ExportRows<'_>| {
            progress.add(metric, found.batch.num_rows(), found.series);
            files.batch(metric, found)
        };
        source.samples(metric, range, &mut take).await?;
        progress.done(metric);
        written += 1;
    }
    match files.is_empty() {
        true => Err(nothing_in(range)),
        false => files.keep(written),
    }
}

/// A metric without samples in `range` gets no file.
async fn one_metric(
    source: &mut ExportSource,
    metric: &ExportMetric,
    range: TimeRange,
    directory: &mut place::Unfinished,
    progress: &mut ExportProgress,
) -> Result<(), CliFailure> {
    let columns = Columns::of(&[metric], source.job_column()).map_err(CliFailure::failed)?;
    let mut rows = columns.rows_of(metric);
    let mut file = None;
    let mut write = |found: ExportRows<'_>| {
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(directory.file(&metric.name, columns.schema())?),
        };
        progress.add(metric, found.batch.num_rows(), found.series);
        file.batch(&rows.of(found.batch, found.job).map_err(CliFailure::failed)?)
    };
    source.samples(metric, range, &mut write).await?;
    progress.done(metric);
    file.map_or(Ok(()), |file| directory.add(file))
}

fn nothing_in(range: TimeRange) -> CliFailure {
    let text = |time: Timestamp| crate::info::rfc3339(time);
    let when = match (range.start == TimeRange::ALL.start, range.end == TimeRange::ALL.end) {
        (true, true) => String::new(),
        (false, true) => format!(" from {} on", text(range.start)),
        (true, false) => format!(" before {}", text(range.end)),
        (false, false) => format!(" from {} to {}", text(range.start), text(range.end)),
    };
    CliFailure::Failed(format!(
        "these metrics have no samples{when}, so nothing was written; `telem info` tells of what time there are any"
    ))
}

/// A running server may meet series with new tags while it is exported; the files have no columns for them.
async fn tags_that_came_later(source: &ExportSource, chosen: &[&ExportMetric]) -> Result<Vec<String>, CliFailure> {
    if !source.is_live() {
        return Ok(Vec::new());
    }
    let (now, _) = source.metrics_now().await?;
    let now: BTreeMap<String, BTreeSet<String>> = now.into_iter().map(|metric| (metric.name, metric.keys)).collect();
    let warnings = chosen.iter().filter_map(|metric| {
        let new = now.get(&metric.name)?.difference(&metric.keys).next()?;
        Some(format!("{} got the tag '{new}' while it was exported, which has no column; export again", metric.name))
    });
    Ok(warnings.collect())
}
