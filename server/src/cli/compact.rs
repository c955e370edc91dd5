//! `telem compact`: merges a database as the end of `telem run` does, for databases that never had such an end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use telem_engine::{CompactProgress, CompactReport, Db, DbInfo, Options};
use tokio::signal::unix::{SignalKind, signal};

use super::{CliFailure, progress};
use crate::info::{counted, grouped};
use crate::saving::saved;
use crate::service::noteworthy;

/// Merge the files of databases that no process writes
///
/// Every day becomes one file, as at the end of `telem run`. Use it for databases that `telem serve` wrote (it merges
/// while it runs, and stops at once when it is told to) and for killed jobs. Samples that only the WAL holds are
/// flushed first; of samples that were overwritten the later ones stay. Nothing else changes: every answer is the same
/// before and after.
///
/// A database that another process writes is refused. A process that reads one meanwhile may miss files, and opens the
/// database again; a `telem replay` must be restarted. The merge needs about as much extra room as the largest day. It
/// may be stopped at any moment: finished merges stay.
///
/// The exit code is 0 if everything is merged, 1 if something could not be, or if it was stopped, 2 for wrong usage.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    /// Directories of databases or of saved jobs
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Merge even if another host, or a live process, seems to write
    #[arg(long)]
    take_over: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem compact ./trial
  telem compact ./telem-4711                # every node of a saved job
  telem compact ./trial --json | jq .after.bytes_a_sample";

/// What a database takes on disk.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Files with samples, and those with the names of series.
    files: u64,
    bytes: u64,
    samples: u64,
}

impl Size {
    fn of(info: &DbInfo) -> Self {
        let files = info.segment_files.len() + info.series_files.len();
        Self { files: files as u64, bytes: info.bytes, samples: info.samples }
    }

    fn bytes_a_sample(self) -> Option<f64> {
        (self.samples > 0).then(|| self.bytes as f64 / self.samples as f64)
    }

    fn text(self) -> String {
        let each = self.bytes_a_sample().map_or_else(String::new, |bytes| format!(", {bytes:.2} a sample"));
        format!("{}, {}{each}", counted(self.files, "file"), counted(self.bytes, "byte"))
    }

    fn json(self) -> serde_json::Value {
        let each = self.bytes_a_sample().map(|bytes| (bytes * 1_000.0).round() / 1_000.0);
        json!({"files": self.files, "bytes": self.bytes, "samples": self.samples, "bytes_a_sample": each})
    }
}

/// What became of one database.
#[derive(Debug)]
struct CompactOutcome {
    dir: PathBuf,
    before: Size,
    after: Size,
    /// Samples that only the log had.
    flushed: u64,
    report: CompactReport,
}

/// # Errors
/// Failed when there is no such database, another process writes it, the disk fails or a file is damaged; BadNews when
/// it was stopped.
pub fn run(args: &CompactArgs) -> Result<(), CliFailure> {
    let dirs = saved::databases(&args.dirs).map_err(CliFailure::failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(CliFailure::failed)?;
    runtime.spawn(watch(Arc::clone(&stop)));
    let mut all = Vec::with_capacity(dirs.len());
    let mut out = io::stdout().lock();
    for dir in dirs {
        let options = Options { take_over: args.take_over, ..Options::default() };
        let one = compact(&dir, options, &stop).map_err(CliFailure::failed)?;
        if !args.json {
            out.write_all(as_text(&one).as_bytes())?;
            out.flush()?;
        }
        all.push(one);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if args.json {
        out.write_all(as_json(&all).as_bytes())?;
    }
    out.flush()?;
    if stop.load(Ordering::Relaxed) { Err(CliFailure::BadNews) } else { Ok(()) }
}

/// Until Ctrl-C or SIGTERM comes: then the merge that runs is left, and the database closed.
async fn watch(stop: Arc<AtomicBool>) {
    let (Ok(mut interrupted), Ok(mut terminated)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    stop.store(true, Ordering::Relaxed);
}

fn compact(dir: &Path, options: Options, stop: &AtomicBool) -> telem_engine::Result<CompactOutcome> {
    let bar = progress::bar("{bar:40} {percent:>3} % {wide_msg}");
    bar.set_message(dir.display().to_string());
    let db = Db::open(dir, options)?;
    if let Some(found) = noteworthy(db.recovery()) {
        bar.suspend(|| writeln!(io::stderr(), "{}: {found}", dir.display()).unwrap_or_default());
    }
    let before = Size::of(&db.info()?);
    let merged = merge(&db, &bar, stop);
    // Also where a file is damaged: the writer lock is given back, and what was merged counts.
    let closed = db.close();
    bar.finish_and_clear();
    let (flushed, report) = merged?;
    closed?;
    Ok(CompactOutcome { dir: dir.to_path_buf(), before, after: Size::of(&db.info()?), flushed, report })
}

/// How many samples came out of the log, and what was merged.
fn merge(db: &Db, bar: &ProgressBar, stop: &AtomicBool) -> telem_engine::Result<(u64, CompactReport)> {
    // Else what still waits would be a small file of its own.
    let flushed = db.flush()?.samples;
    let report = db.compact_while(&|CompactProgress { rows_done, rows_total }| {
        bar.set_length(rows_total);
        bar.set_position(rows_done);
        !stop.load(Ordering::Relaxed)
    })?;
    Ok((flushed, report))
}

fn as_text(one: &CompactOutcome) -> String {
    let CompactOutcome { dir, before, after, flushed, report } = one;
    let again = match report.rows_before - report.rows_after {
        0 => String::new(),
        1 => "; 1 sample had been overwritten".to_owned(),
        rows => format!("; {} samples had been overwritten", grouped(rows)),
    };
    let stopped = if report.stopped { "; stopped before the end" } else { "" };
    let did = match report.segments_before {
        0 => "nothing to merge".to_owned(),
        _ => format!("merged {} into {}", counted(report.segments_before, "segment"), grouped(report.segments_after)),
    };
    let did = match flushed {
        0 => did,
        samples => format!("{} flushed from the log, {did}", counted(*samples, "sample")),
    };
    format!("{}: {did}{again}{stopped}\n  before  {}\n  after   {}\n", dir.display(), before.text(), after.text())
}

/// Of one database what became of it; of several a list under `databases`.
fn as_json(all: &[CompactOutcome]) -> String {
    let of_one = |one: &CompactOutcome| {
        json!({
            "data": one.dir,
            "before": one.before.json(),
            "after": one.after.json(),
            "segments_merged": one.report.segments_before,
            "samples_replaced": one.report.rows_before - one.report.rows_after,
            "stopped": one.report.stopped,
        })
    };
    let json = match all {
        [one] => of_one(one),
        several => json!({"databases": several.iter().map(of_one).collect::<Vec<_>>()}),
    };
    format!("{json:#}\n")
}
