//! `telem import`: makes a saved database of files that other programs wrote.
//!
//! Readers of tables ([`text`], [`columns`], [`json`]) turn a file into rows of cells; [`table`] decides once what each
//! column means and turns rows into samples. Readers of logs ([`tensorboard`], [`wandb`]) have values by step, which
//! [`steps`] turns into samples. [`dragon`] has databases with points of many nodes. Of Metric Proxy's jobs [`profile`] has
//! last values and [`trace`] those by time, and [`proxied`] makes one run of both. [`store`] writes them where they appear
//! as a whole or not at all. [`report`] has what was said, refused and counted.

mod cell;
mod columns;
pub mod dragon;
mod file;
mod input;
mod json;
mod leveldb;
mod names;
mod profile;
mod proxied;
mod report;
mod steps;
mod store;
mod table;
mod tensorboard;
mod text;
mod times;
pub mod trace;
mod wandb;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value as Json, json};
use telem_engine::Timestamp;
use telem_engine::limits::count;
use tokio::signal::unix::{SignalKind, signal};

use super::glob::Glob;
use super::{CliFailure, Verbosity};
use crate::config;
use crate::info::rfc3339;
use crate::settings::{self, RunLabels};
use crate::state::VERSION;
use file::{ImportFile, ImportFormat};
use names::CleanNames;
use proxied::ProxiedRuns;
use report::{ImportReport, WrongRows};
pub use store::FILLED;
use store::ImportStore;
use table::TableRules;
use tensorboard::EventRuns;
use times::ImportTimeUnit;

/// Make a saved run of files of other programs
///
/// Every other column with numbers becomes a metric and every text a tag, unless one column has names of metrics and
/// another their values (--metric, --value). What `telem export` wrote comes back sample for sample. Of TensorBoard's logs
/// come the scalars with their steps, of an offline run of wandb its history, figures and settings, of Dragon's databases
/// every point of every node, of Metric Proxy's traces the values and of its profiles the last ones, for `telem proxy` to
/// list. DIR appears when it is complete: an import that fails leaves nothing behind. Rows that cannot be taken are named
/// with their reason.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct ImportArgs {
    /// Files, or a directory of logs or of an export; - is stdin
    ///
    /// Of TensorBoard's logs each directory below is a run, kept apart by the tag run.
    #[arg(value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// Where to save it, as DIR/NODE; a new directory
    #[arg(short = 'o', long, visible_alias = "output", value_name = "DIR")]
    save: PathBuf,
    /// Format of the files [default: by what is in them]
    #[arg(long, value_enum, value_name = "FORMAT", hide_short_help = true)]
    format: Option<ImportFormat>,
    /// Column with the times [default: ts, time, ...]
    ///
    /// RFC 3339, or a number: see --time-unit. Without a time zone it is UTC.
    #[arg(long, value_name = "COL")]
    time: Option<String>,
    /// Unit of times that are numbers since 1970 [default: by their size]
    #[arg(long, value_enum, value_name = "UNIT", hide_short_help = true)]
    time_unit: Option<ImportTimeUnit>,
    /// Column with names of metrics, or the one name
    ///
    /// The table is then long: a row a sample. --value is the column with the values. A text that is no column is the name
    /// of all values.
    #[arg(long, value_name = "COL|NAME")]
    metric: Option<String>,
    /// Column with the values of --metric [default: value]
    #[arg(long, value_name = "COL")]
    value: Option<String>,
    /// Columns that are tags [default: all texts]
    ///
    /// With commas between. Columns with numbers called host, rank or pid are tags too. An empty list is no tags.
    #[arg(long, value_name = "A,B")]
    tags: Option<String>,
    /// Only metrics of this name, such as 'train.*'
    ///
    /// * stands for any text and ? for one character; may be repeated.
    #[arg(long = "metrics", value_name = "GLOB")]
    metrics: Vec<Glob>,
    /// What to call the run [default: as the file]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// A setting of the run, or a file of them; may be repeated
    #[arg(long, value_name = "KEY=VALUE|FILE", hide_short_help = true)]
    config: Vec<String>,
    /// A word to find the run by; may be repeated
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true)]
    tag: Vec<String>,
    /// Node that the samples are of [default: what the file says, or imported]
    #[arg(long, value_name = "NODE", hide_short_help = true)]
    node: Option<String>,
    /// Fail at the first row that cannot be taken
    #[arg(long)]
    strict: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem import log.csv --save runs/a
  telem import lightning_logs --save runs/b       # TensorBoard
  telem import wandb/latest-run --save runs/c
  telem import long.parquet --metric name --tags rank --save runs/d
  telem import ts_*.db -o runs/e                  # Dragon";

const EXAMPLES: &str = "\
Examples:
  telem import log.csv --save runs/a --name 'lr 3e-4' --config lr=3e-4
  telem import log.csv --save runs/b --time ts --time-unit s --tags rank
  telem import log.jsonl --save runs/c --metrics 'train.*'
  telem import long.csv --metric name --value value --tags host --save runs/d
  telem export ./trial -o trial.parquet && telem import trial.parquet --save runs/e
  telem import lightning_logs --save runs/f       # TensorBoard
  telem import wandb/latest-run --save runs/g     # an offline run of wandb
  telem import ts_*.db -o runs/h                  # Dragon's databases, of all nodes
  telem import ~/.proxyprofiles -o runs/i         # profiles and traces of Metric Proxy

Then:
  telem ls runs
  telem sql runs/a 'SELECT * FROM loss ORDER BY ts LIMIT 5'";

/// The node of samples that say nothing of one.
const NODE: &str = "imported";

/// How long a reader may take to notice that the user ended it.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What every reader gets.
pub struct Importing {
    pub store: ImportStore,
    pub report: ImportReport,
    pub names: CleanNames,
    pub run: FileRun,
    pub rules: TableRules,
    pub proxied: ProxiedRuns,
}

/// What files say of the run itself.
#[derive(Debug, Default)]
pub struct FileRun {
    pub name: Option<String>,
    pub node: Option<String>,
    pub settings: Map<String, Json>,
    pub tags: Map<String, Json>,
    pub exit_code: Option<i64>,
}

/// # Errors
/// Failed when a file cannot be read, nothing in it can be taken, or the directory cannot be written; then there is no
/// directory.
pub fn run(args: &ImportArgs, verbosity: Verbosity) -> Result<(), CliFailure> {
    let labels = labels(args)?;
    let files = input::files(&args.from, args.format)?;
    let wrong = if args.strict { WrongRows::EndIt } else { WrongRows::Counted };
    let report = ImportReport::start(verbosity, wrong, files.iter().map(|file| file.bytes).sum());
    let Importing { store, mut report, run, .. } = import(args, &files, report, watch)?;
    if store.accepted() == 0 {
        return Err(CliFailure::Failed(format!("no sample was found, so nothing was saved{}", report.refused())));
    }
    let bounds = store.bounds();
    let description = describe(args, labels, run, &files, bounds, &report)?;
    let stored = store.finish(&description, &mut report)?;
    report.finish(&stored, &args.save);
    Ok(())
}

/// Saves all that Metric Proxy left in directories as `save/node`, for a server to go on with at `place`. Where that is
/// nothing, there is no directory. Signals end the process at once.
///
/// # Errors
/// Failed when a file cannot be read, or `save` is there or cannot be made.
pub fn take_over(left: &[PathBuf], save: &Path, node: &str, place: &Path) -> Result<(), CliFailure> {
    let (files, refused) = input::proxied(left)?;
    let args = ImportArgs {
        from: left.to_vec(),
        save: save.to_path_buf(),
        format: None,
        time: None,
        time_unit: None,
        metric: None,
        value: None,
        tags: None,
        metrics: Vec::new(),
        name: None,
        config: Vec::new(),
        tag: Vec::new(),
        node: Some(node.to_owned()),
        strict: false,
    };
    let unwatched = |_| Ok(Arc::default());
    let bytes = files.iter().map(|file| file.bytes).sum();
    let report = ImportReport::start(Verbosity::default(), WrongRows::Counted, bytes).brief();
    for why in refused {
        report.say(&format!("left out: {why}"));
    }
    let Importing { store, mut report, .. } = import(&args, &files, report, unwatched)?;
    if store.accepted() > 0 {
        // A run that goes on has no end.
        let stored = store.finish(&json!({ "id": config::NO_JOB }), &mut report)?;
        report.say(&format!("what Metric Proxy left in {} files is taken over", count(files.len())));
        report.finish(&stored, place);
    }
    Ok(())
}

/// Reads all files. `watch` is as of [`ImportStore::create`].
fn import(
    args: &ImportArgs,
    files: &[ImportFile],
    report: ImportReport,
    watch: impl FnOnce(PathBuf) -> Result<Arc<AtomicBool>, CliFailure>,
) -> Result<Importing, CliFailure> {
    let node = args.node.clone();
    let mut importing = Importing {
        store: ImportStore::create(&args.save, node.as_deref().unwrap_or(NODE), watch)?,
        report,
        names: CleanNames::default(),
        run: FileRun { node, ..FileRun::default() },
        rules: rules(args)?,
        proxied: ProxiedRuns::default(),
    };
    let mut events = EventRuns::default();
    let (databases, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.format == ImportFormat::Dragon);
    let (traces, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|file| file.format == ImportFormat::Trace);
    // A profile completes what the trace of its run says.
    for file in traces.into_iter().chain(others) {
        match file.format {
            ImportFormat::Csv => text::read(&mut importing, file)?,
            ImportFormat::Parquet => columns::parquet(&mut importing, file)?,
            ImportFormat::Arrow => columns::arrow(&mut importing, file)?,
            ImportFormat::Jsonl => json::read(&mut importing, file)?,
            ImportFormat::Tensorboard => events.read(&mut importing, file)?,
            ImportFormat::Wandb => wandb::read(&mut importing, file)?,
            ImportFormat::Proxy => profile::read(&mut importing, file)?,
            ImportFormat::Trace => trace::read(&mut importing, file)?,
            ImportFormat::Dragon => {}
        }
        importing.report.done(file.bytes);
    }
    dragon::read(&mut importing, &databases)?;
    proxied::finish(&mut importing)?;
    importing.run.settings.extend(events.settings());
    Ok(importing)
}

fn labels(args: &ImportArgs) -> Result<RunLabels, CliFailure> {
    Ok(RunLabels {
        name: args.name.clone(),
        tags: settings::tags(&args.tag).map_err(CliFailure::usage)?,
        settings: settings::settings(&args.config).map_err(CliFailure::usage)?,
    })
}

fn rules(args: &ImportArgs) -> Result<TableRules, CliFailure> {
    let tags = args.tags.as_ref().map(|tags| {
        let names = tags.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    Ok(TableRules {
        time: args.time.clone(),
        unit: args.time_unit,
        metric: args.metric.clone(),
        value: args.value.clone(),
        tags,
        metrics: args.metrics.clone(),
    })
}

/// Watches for Ctrl-C and SIGTERM: then nothing is saved, and what was begun is removed. Readers look at the switch. One
/// that waits for a pipe does not, and is left behind.
fn watch(store: PathBuf) -> Result<Arc<AtomicBool>, CliFailure> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let (mut interrupted, mut terminated) = {
        let _entered = runtime.enter();
        let watched = |kind| signal(kind).map_err(CliFailure::failed);
        (watched(SignalKind::interrupt())?, watched(SignalKind::terminate())?)
    };
    let flag = Arc::clone(&stop);
    // It ends with the process.
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            flag.store(true, Ordering::Relaxed);
            tokio::time::sleep(STOP_GRACE).await;
        });
        std::fs::remove_dir_all(store).unwrap_or_default();
        CliFailure::failed(store::STOPPED).report();
        std::process::exit(1);
    });
    Ok(stop)
}

/// The description of the run, as `telem run` stores one. How its command ended is known of few files.
fn describe(
    args: &ImportArgs,
    labels: RunLabels,
    found: FileRun,
    files: &[ImportFile],
    bounds: Option<(Timestamp, Timestamp)>,
    report: &ImportReport,
) -> Result<Json, CliFailure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command: Vec<&str> = std::iter::once("telem").chain(words.iter().map(String::as_str)).collect();
    let id = args.save.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = found.name.or_else(|| files.first().map(|file| file.title.clone()));
    let env = |name: &str| std::env::var(name).ok();
    let mut description = json!({
        "id": id,
        "name": name,
        "tags": {},
        "settings": {},
        "command": command,
        "user": env("USER").or_else(|| env("LOGNAME")),
        "uid": rustix::process::getuid().as_raw(),
        "cwd": std::env::current_dir().ok().map(|dir| dir.to_string_lossy().into_owned()),
        "telem": VERSION,
        "imported_from": files.iter().map(|file| &file.name).collect::<Vec<_>>(),
    });
    if let Some((first, last)) = bounds {
        description["start"] = rfc3339(first).into();
        description["end"] = rfc3339(last).into();
    }
    if let Some(code) = found.exit_code {
        description["exit_code"] = code.into();
    }
    // One that is too long is no reason to lose a run.
    let settings = found.settings.into_iter().map(|(name, value)| {
        let settings = Map::from_iter([(name.clone(), value)]);
        (name, RunLabels { settings, ..RunLabels::default() })
    });
    let tags = found.tags.into_iter().map(|(name, value)| {
        (name.clone(), RunLabels { tags: Map::from_iter([(name, value)]), ..RunLabels::default() })
    });
    for (name, one) in settings.chain(tags) {
        match one.onto(description.clone()) {
            Ok(more) => description = more,
            Err(why) => report.say(&format!("warning: the setting '{}' is left out: {why}", name.escape_debug())),
        }
    }
    labels.onto(description).map_err(CliFailure::usage)
}

#[cfg(test)]
mod tests;
