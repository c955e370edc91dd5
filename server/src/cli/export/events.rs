//! Event files of TensorBoard: the samples of a metric as scalars of that tag, in a directory for each set of tags, which
//! TensorBoard shows as a run.
//!
//! The step of a value is that of the metric `step` with the same time and tags, as clients write it; where these tags
//! have no step it is the number of seconds since the first sample.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::partition;
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use prost::Message;
use telem_engine::{JOB_TAG, Timestamp};

use super::choose::ExportMetric;
use super::columns::BEFORE_TAGS;
use super::names::{FileNames, encoded};
use super::place::{Written, beside, bytes_of};
use super::read::ExportRows;
use crate::cli::CliFailure;
use crate::cli::tensorboard::{EventSummary, LogEvent, SummaryContent, SummaryValue};
use crate::cli::tfrecord;

/// The metric of steps.
pub const STEP: &str = "step";
/// The tag that names a run already, as an import of logs keeps it.
const RUN: &str = "run";
/// Most steps that are held: 16 bytes each.
const STEPS_MAX: usize = 32 << 20;
/// What readers of event files want to find first: with it they never drop values whose steps go back.
const VERSION: &str = "brain.Event:2";

/// The tags of a series, by key.
type SeriesTags = Vec<(String, String)>;

/// Steps by time, of each set of tags.
#[derive(Debug, Default)]
pub struct StepsByTime {
    by_tags: HashMap<SeriesTags, Vec<(i64, i64)>>,
    count: usize,
}

impl StepsByTime {
    /// Adds samples of the metric of steps.
    ///
    /// # Errors
    /// Failed when they are too many.
    pub fn add(&mut self, metric: &ExportMetric, found: ExportRows<'_>) -> Result<(), CliFailure> {
        let batch = found.batch;
        self.count += batch.num_rows();
        if self.count > STEPS_MAX {
            return Err(CliFailure::Failed(format!(
                "more than {STEPS_MAX} steps, which are held in memory; choose a time with --start and --end"
            )));
        }
        for rows in series_in(batch)? {
            let steps = self.by_tags.entry(tags_of(metric, found, rows.start)).or_default();
            steps.extend(rows.map(|row| {
                let (ts, value) = sample(batch, row);
                (ts, value.round() as i64)
            }));
        }
        Ok(())
    }

    /// Puts them in order: rows of several nodes came one after the other.
    pub fn sort(&mut self) {
        for steps in self.by_tags.values_mut() {
            steps.sort_by_key(|(ts, _)| *ts);
        }
    }

    fn of(&self, tags: &SeriesTags) -> Option<&[(i64, i64)]> {
        self.by_tags.get(tags).map(Vec::as_slice)
    }
}

/// The step at a time: that of this very time, else of the time before it, else the first.
fn step_at(steps: &[(i64, i64)], ts: i64) -> Option<i64> {
    let after = steps.partition_point(|(time, _)| *time <= ts);
    steps.get(after.saturating_sub(1)).map(|(_, step)| *step)
}

/// A directory of event files that is not whole yet. Dropped before [`EventFiles::keep`], it goes.
#[derive(Debug)]
pub struct EventFiles {
    path: PathBuf,
    until_then: PathBuf,
    kept: bool,
    begin: Timestamp,
    steps: StepsByTime,
    names: FileNames,
    /// The directory of each set of tags.
    dirs: HashMap<SeriesTags, PathBuf>,
    written: Written,
}

impl EventFiles {
    /// Begins the directory `path`; steps without a metric of them count from `begin`.
    ///
    /// # Errors
    /// Failed when it holds files, or cannot be written.
    pub fn create(path: &Path, begin: Timestamp, steps: StepsByTime) -> Result<Self, CliFailure> {
        match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(false) => {}
            Ok(true) => {
                let why = format!("{} holds files; name another directory", path.display());
                return Err(CliFailure::Failed(why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("list", path)(error)),
        }
        let until_then = beside(path, &format!(".telem-export.{}.part", std::process::id()));
        fs::create_dir_all(&until_then).map_err(failed("create", &until_then))?;
        Ok(Self {
            path: path.to_path_buf(),
            until_then,
            kept: false,
            begin,
            steps,
            names: FileNames::default(),
            dirs: HashMap::new(),
            written: Written::default(),
        })
    }

    /// Adds samples of a metric.
    pub fn batch(&mut self, metric: &ExportMetric, found: ExportRows<'_>) -> Result<(), CliFailure> {
        let batch = found.batch;
        for rows in series_in(batch)? {
            let tags = tags_of(metric, found, rows.start);
            let path = self.file(&tags)?;
            // One file is open at a time: there may be more series than this process may open files.
            let file = File::options().append(true).open(&path).map_err(failed("open", &path))?;
            let mut out = BufWriter::new(file);
            let steps = self.steps.of(&tags);
            for row in rows {
                let (ts, value) = sample(batch, row);
                let seconds = (i128::from(ts) - i128::from(self.begin.micros())).div_euclid(1_000_000);
                let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
                let step = steps.and_then(|steps| step_at(steps, ts)).unwrap_or(seconds);
                let event = scalar(&metric.name, ts, step, value);
                tfrecord::write(&mut out, &event.encode_to_vec()).map_err(failed("write", &path))?;
                self.written.samples += 1;
            }
            out.flush().map_err(failed("write", &path))?;
        }
        Ok(())
    }

    /// The file of a set of tags, which is begun if it is new.
    fn file(&mut self, tags: &SeriesTags) -> Result<PathBuf, CliFailure> {
        if let Some(known) = self.dirs.get(tags) {
            return Ok(known.clone());
        }
        let dir = self.until_then.join(self.names.run(tags));
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        let path = dir.join(format!("events.out.tfevents.{:010}.telem", self.begin.seconds().max(0)));
        let version = LogEvent {
            wall_time: seconds_of(self.begin.micros()),
            file_version: Some(VERSION.to_owned()),
            ..LogEvent::default()
        };
        let mut file = File::create(&path).map_err(failed("create", &path))?;
        tfrecord::write(&mut file, &version.encode_to_vec()).map_err(failed("write", &path))?;
        self.dirs.insert(tags.clone(), path.clone());
        Ok(path)
    }

    pub fn is_empty(&self) -> bool {
        self.written.samples == 0
    }

    /// Puts everything in its place.
    pub fn keep(mut self, metrics: u64) -> Result<Written, CliFailure> {
        self.written.metrics = metrics;
        self.written.files = self.dirs.len() as u64;
        self.written.bytes = Some(self.dirs.values().filter_map(|path| bytes_of(path)).sum());
        fs::rename(&self.until_then, &self.path).map_err(failed("create", &self.path))?;
        self.kept = true;
        Ok(self.written)
    }
}

impl Drop for EventFiles {
    fn drop(&mut self) {
        if !self.kept {
            // The failure that leads here is the one to report.
            fs::remove_dir_all(&self.until_then).unwrap_or_default();
        }
    }
}

/// An event with one scalar. TensorBoard has them as 32-bit floats.
fn scalar(tag: &str, ts: i64, step: i64, value: f64) -> LogEvent {
    let value = Some(SummaryContent::SimpleValue(value as f32));
    let summary = EventSummary { value: vec![SummaryValue { tag: tag.to_owned(), metadata: None, value }] };
    LogEvent { wall_time: seconds_of(ts), step, file_version: None, summary: Some(summary) }
}

fn seconds_of(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// The rows of each series in a batch; those of one come one after the other.
fn series_in(batch: &RecordBatch) -> Result<Vec<Range<usize>>, CliFailure> {
    match &batch.columns()[BEFORE_TAGS..] {
        [] => Ok(std::iter::once(0..batch.num_rows()).collect()),
        tags => Ok(partition(tags).map_err(CliFailure::failed)?.ranges()),
    }
}

/// The tags of a row; the job, where jobs are told apart, is one of them.
fn tags_of(metric: &ExportMetric, found: ExportRows<'_>, row: usize) -> SeriesTags {
    let columns = metric.keys.iter().zip(&found.batch.columns()[BEFORE_TAGS..]);
    let tags = columns.filter_map(|(key, column)| {
        let column = column.as_string_view();
        column.is_valid(row).then(|| (key.clone(), column.value(row).to_owned()))
    });
    found.job.map(|job| (JOB_TAG.to_owned(), job.to_owned())).into_iter().chain(tags).collect()
}

/// Time and value of a row.
fn sample(batch: &RecordBatch, row: usize) -> (i64, f64) {
    let [ts, value, exact] = [0, 1, 2].map(|at| batch.column(at));
    let exact = exact.as_primitive::<Int64Type>();
    let value = match exact.is_valid(row) {
        true => exact.value(row) as f64,
        false => value.as_primitive::<Float64Type>().value(row),
    };
    (ts.as_primitive::<TimestampMicrosecondType>().value(row), value)
}

impl FileNames {
    /// The directory of a run with these tags: its tag `run`, then the others. Without tags it is the whole directory.
    fn run(&mut self, tags: &SeriesTags) -> PathBuf {
        let run = tags.iter().find(|(key, _)| key == RUN).map(|(_, value)| value.split('/'));
        let mut parts: Vec<String> = run.into_iter().flatten().map(plain).collect();
        let others: Vec<String> =
            tags.iter().filter(|(key, _)| key != RUN).map(|(key, value)| plain(&format!("{key}={value}"))).collect();
        if !others.is_empty() {
            parts.push(others.join(","));
        }
        if parts.is_empty() {
            return PathBuf::new();
        }
        let path = parts.join("/");
        let is_long = parts.iter().any(|part| part.len() > PART_BYTES_MAX || part.is_empty());
        match !is_long && self.take(&path) {
            true => PathBuf::from(path),
            // Too long, or equal to another where case does not count.
            false => PathBuf::from(self.name(&path)),
        }
    }
}

/// Longest name of a directory that stays as it is.
const PART_BYTES_MAX: usize = 180;

const FIRST_OF_A_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_');
const IN_A_PART: &AsciiSet = &FIRST_OF_A_PART.remove(b'-').remove(b'.').remove(b'=').remove(b',');

/// `text` as a part of a path on every file system: what is neither a letter, a digit nor one of `_-.=,` is encoded.
fn plain(text: &str) -> String {
    encoded(text, FIRST_OF_A_PART, IN_A_PART)
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CliFailure + use<'a> {
    move |error| CliFailure::Failed(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
