//! `telem diff`: what differs between runs. [`read`] asks each run in SQL, [`compare`] compares without any input or
//! output, and [`text`], [`json`] and [`html`] show it.

mod compare;
mod counter;
mod goal;
mod html;
mod json;
mod read;
mod stats;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::compare::{Alignment, DiffRun, RunsDiff};
use self::goal::MetricGoal;
use self::read::{GoalReached, RunReader, common_steps};
use super::CliFailure;
use super::glob::Glob;
use super::source::StrictArg;
use super::table::terminal_width;
use crate::footprint::raise_descriptor_limit;

/// Into how many stretches the longest run is divided.
const STRETCHES: i64 = 200;
const STRETCH_US_MIN: i64 = 1_000;

/// Compare runs: which settings differ, and which metrics changed
///
/// Each run is compared with the first. First comes what differs of the descriptions, then the metrics, those that
/// changed most at the top: by the median difference at equal times, relative to the amounts, times the share by which
/// one direction prevails. Of metrics that changed by about as much, the program's own come before those of telem.
/// Counters are compared by their rate. Curves are means over series, so runs of different numbers of nodes compare.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct DiffArgs {
    /// Directories of saved runs, or servers, two at least
    ///
    /// A server is http://HOST:PORT, or unix:PATH of its socket. One run among several in one place is DIR#JOB or
    /// URL#JOB.
    #[arg(value_name = "DIR|URL", required = true, num_args = 2..)]
    runs: Vec<String>,
    /// Only metrics of this name, such as 'train.*'
    ///
    /// * stands for any text and ? for one character; may be repeated.
    #[arg(long = "metric", value_name = "GLOB")]
    metrics: Vec<Glob>,
    /// How many metrics to show; --json has all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// What is compared with what
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = DiffBy::Time)]
    by: DiffBy,
    /// When a metric first got to a value: 'loss<=0.1', 'acc>=0.9'
    ///
    /// Since the start of its run; may be repeated.
    #[arg(long, value_name = "GOAL")]
    until: Vec<MetricGoal>,
    /// As JSON, with every metric and its curves
    #[arg(long)]
    json: bool,
    /// Write a page with curves to a file, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    strict: StrictArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DiffBy {
    /// The time since the start of each run
    Time,
    /// The steps that both runs have, of metrics that were logged with steps
    Step,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem diff ./telem-4711 ./telem-4712
  telem diff ./telem-4711 ./telem-4712 --by step --metric 'loss*'";

const EXAMPLES: &str = "\
Examples:
  telem diff ./telem-4711 ./telem-4712
  telem diff ./telem-4711 ./telem-4712 --by step --metric 'loss*'
  telem diff ./telem-4711 http://127.0.0.1:4242 --until 'loss<=0.1'     # saved, and running
  telem diff ./telem-4711 ./telem-4712 --html diff.html
  telem diff ./telem-4711 ./telem-4712 --json | jq -r '.metrics[].metric'

Environment:
  TELEM_TOKEN   the token, if a server needs one";

/// What is shown: the comparison, and what was asked beside it.
struct DiffReport {
    runs: Vec<String>,
    alignment: Alignment,
    /// Of a stretch of time.
    width_us: i64,
    diff: RunsDiff,
    goals: Vec<(MetricGoal, Vec<Option<GoalReached>>)>,
    /// Joules by metric, of each run.
    energy: BTreeMap<String, Vec<Option<f64>>>,
}

impl DiffReport {
    /// Of the places of curves: seconds, or steps.
    fn axis(&self, place: i64) -> f64 {
        match self.alignment {
            Alignment::Time => place as f64 * self.width_us as f64 / 1e6,
            Alignment::Step => place as f64,
        }
    }
}

/// The short name of a run in tables: A, B, ..., Z, R27, ...
fn letter(at: usize) -> String {
    match u8::try_from(at) {
        Ok(small @ 0..26) => char::from(b'A' + small).to_string(),
        _ => format!("R{}", at + 1),
    }
}

/// # Errors
/// Failed for a run that cannot be read, and where no metric is chosen.
pub fn run(args: &DiffArgs) -> Result<(), CliFailure> {
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let report = runtime.block_on(report(args))?;
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&report, args.top))
            .map_err(|error| CliFailure::Failed(format!("cannot write {}: {error}", file.display())))?;
    }
    let text = match args.json {
        true => json::text(&report).map_err(CliFailure::failed)?,
        false => text::tables(&report, args.top, terminal_width()),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

async fn report(args: &DiffArgs) -> Result<DiffReport, CliFailure> {
    let (mut readers, mut runs) = (Vec::new(), Vec::new());
    for named in &args.runs {
        let (reader, run) = RunReader::open(named, args.strict).await?;
        readers.push(reader);
        runs.push(run);
    }
    known_goals(&args.until, &readers)?;
    let longest = readers.iter().map(RunReader::duration_us).max().unwrap_or(0);
    let width_us = (longest / STRETCHES).max(STRETCH_US_MIN);
    for (reader, run) in readers.iter_mut().zip(&mut runs) {
        run.metrics = match args.by {
            DiffBy::Time => reader.by_time(&args.metrics, width_us).await,
            DiffBy::Step => reader.by_step(&args.metrics).await,
        }
        .map_err(|failure| of_run(reader.label(), failure))?;
    }
    if runs.iter().all(|run| run.metrics.is_empty()) {
        let none = match args.by {
            DiffBy::Step => "no metric of these runs that is chosen was logged with steps; leave --by step out",
            DiffBy::Time => "no run has a metric of such a name; `telem info` lists their metrics",
        };
        return Err(CliFailure::failed(none));
    }
    let alignment = match args.by {
        DiffBy::Time => Alignment::Time,
        DiffBy::Step => {
            series_means_by_step(&mut readers, &mut runs).await?;
            Alignment::Step
        }
    };
    let mut goals = Vec::new();
    for goal in &args.until {
        let mut reached = Vec::new();
        for reader in &mut readers {
            reached.push(reader.reached(goal).await?);
        }
        goals.push((goal.clone(), reached));
    }
    let mut energy: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for (at, reader) in readers.iter_mut().enumerate() {
        for one in reader.energy().await? {
            energy.entry(one.metric).or_insert_with(|| vec![None; runs.len()])[at] = Some(one.joules);
        }
    }
    for reader in readers.iter().filter(|reader| !reader.lacking().is_empty()) {
        let (label, lacking) = (reader.label(), reader.lacking());
        match args.strict.strict {
            true => return Err(CliFailure::Failed(format!("nodes of '{label}' are missing: {lacking}"))),
            false => writeln!(io::stderr(), "warning: nodes of '{label}' are missing: {lacking}").unwrap_or_default(),
        }
    }
    let diff = compare::compare(&runs, alignment);
    let runs = runs.into_iter().map(|run| run.label).collect();
    Ok(DiffReport { runs, alignment, width_us, diff, goals, energy })
}

fn of_run(label: &str, failure: CliFailure) -> CliFailure {
    CliFailure::Failed(format!("cannot read the run '{label}': {}", failure.into_message()))
}

/// A goal for a metric that no run has is a slip of the pen.
fn known_goals(goals: &[MetricGoal], readers: &[RunReader]) -> Result<(), CliFailure> {
    let known: BTreeSet<&String> = readers.iter().flat_map(RunReader::metrics).collect();
    match goals.iter().find(|goal| !known.contains(&goal.metric)) {
        Some(goal) => {
            let metric = &goal.metric;
            Err(CliFailure::Failed(format!(
                "--until: no run has a metric '{metric}'; `telem info` lists their metrics"
            )))
        }
        None => Ok(()),
    }
}

/// Of the steps that all runs with the metric span, so that a run that got further does not differ by that alone.
async fn series_means_by_step(readers: &mut [RunReader], runs: &mut [DiffRun]) -> Result<(), CliFailure> {
    let names: BTreeSet<String> = runs.iter().flat_map(|run| run.metrics.keys().cloned()).collect();
    for name in names {
        let curves: Vec<_> = runs.iter().filter_map(|run| Some(&run.metrics.get(&name)?.curve)).collect();
        let Some(steps) = (curves.len() > 1).then(|| common_steps(&curves)).flatten() else { continue };
        for (reader, run) in readers.iter_mut().zip(&mut *runs) {
            if let Some(metric) = run.metrics.get_mut(&name) {
                metric.series_means = reader.series_means(&name, steps.clone()).await?;
                metric.figures.series = metric.series_means.len();
            }
        }
    }
    Ok(())
}
