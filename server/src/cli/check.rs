//! `telem check`: verifies every checksum and every invariant of databases; changes nothing unless told to.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use telem_engine::Options;
use telem_engine::check::{CheckReport, Finding, Severity, check};
use telem_engine::progress::Progress;
use telem_engine::repair::{RepairReport, look, repair};

use super::{CliFailure, progress};
use crate::info::{counted, grouped};
use crate::saving::saved;

/// Verify every checksum and invariant of databases
///
/// The check says what a repair would do. It changes nothing without --repair, and is safe beside a server that writes.
/// Warnings name things that the next open cleans up: nothing is lost.
///
/// A repair keeps everything that can still be read. It moves unreadable files, and the originals of files that it
/// writes anew, into DIR/damaged, and reports each loss there too. It refuses a database that another process writes,
/// asks nothing, and may be run again after an interruption. It reads every file twice and needs room for new copies of
/// damaged files.
///
/// The exit code is 0 if nothing is lost; 1 if something is (with --repair: if something could not be kept), or if the
/// check or repair failed; 2 for wrong usage.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Directories of databases or of saved jobs
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Repair damaged databases so that they open again
    #[arg(long)]
    repair: bool,
    /// Repair even if another host, or a live process, seems to write
    #[arg(long, requires = "repair")]
    take_over: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem check ./trial
  telem check ./telem-4711             # every node of a saved job
  telem check ./trial --json | jq '.findings[]'
  telem check ./trial --repair         # after damage: keeps what can be read";

/// What is known of one database.
struct DatabaseLook {
    dir: PathBuf,
    /// After the repair, if there was one.
    report: CheckReport,
    /// What a repair did, or would do to one that is not sound; or why there can be none.
    repair: Option<Result<RepairReport, String>>,
}

impl DatabaseLook {
    fn was_repaired(&self) -> bool {
        self.repair.iter().flatten().any(|repair| repair.done)
    }

    fn is_well(&self) -> bool {
        let lost = |repair: &RepairReport| repair.done && !repair.losses.is_empty();
        self.report.is_sound() && !self.repair.iter().flatten().any(lost)
    }
}

/// # Errors
/// BadNews when something is lost, or one of several databases cannot be checked; Failed when there is no database to
/// check, or it cannot be.
pub fn run(args: &CheckArgs) -> Result<(), CliFailure> {
    let dirs = saved::databases_even_damaged(&args.dirs).map_err(CliFailure::failed)?;
    let mut all = Vec::with_capacity(dirs.len());
    let mut failed = Vec::new();
    let mut out = io::stdout().lock();
    let is_one = dirs.len() == 1;
    look_at_all(&dirs, args, |dir, looked| {
        match looked {
            Ok(one) => {
                if !args.json {
                    out.write_all(as_text(&one).as_bytes())?;
                }
                all.push(one);
            }
            Err(why) if is_one => return Err(CliFailure::Failed(why)),
            // The others are checked all the same.
            Err(why) => {
                if !args.json {
                    writeln!(out, "{}: NOT CHECKED: {why}", dir.display())?;
                }
                failed.push((dir.to_path_buf(), why));
            }
        }
        Ok(())
    })?;
    if args.json {
        out.write_all(as_json(&all, &failed).as_bytes())?;
    } else if !is_one || !all.iter().all(DatabaseLook::is_well) {
        writeln!(out, "{}", summary(&all, failed.len()))?;
    }
    out.flush()?;
    if failed.is_empty() && all.iter().all(DatabaseLook::is_well) { Ok(()) } else { Err(CliFailure::BadNews) }
}

/// Looks at several databases at a time, and hands over what there is in their order.
fn look_at_all(
    dirs: &[PathBuf],
    args: &CheckArgs,
    mut take: impl FnMut(&Path, Result<DatabaseLook, String>) -> Result<(), CliFailure>,
) -> Result<(), CliFailure> {
    let bar = Bar::new(dirs.len());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(dirs.len()).max(1);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, looked) = sync_channel(threads);
    let done = thread::scope(|scope| {
        for _ in 0..threads {
            let (send, bar, next, stop) = (send.clone(), &bar, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(dir) = dirs.get(at)
                {
                    let one = look_at(dir.clone(), args, bar).map_err(|error| error.to_string());
                    bar.done_one();
                    if send.send((at, one)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut early = BTreeMap::new();
        let mut expected = 0;
        let taken = looked.iter().try_for_each(|(at, one)| {
            early.insert(at, one);
            while let Some(one) = early.remove(&expected) {
                bar.suspend(|| take(&dirs[expected], one))?;
                expected += 1;
            }
            Ok(())
        });
        // The output has no reader any more: this database is the last.
        stop.store(true, Ordering::Relaxed);
        drop(looked);
        taken
    });
    bar.finish();
    done
}

/// Bytes of a single database; of several, databases.
struct Bar {
    bar: ProgressBar,
    is_one: bool,
    bytes: AtomicU64,
}

impl Bar {
    fn new(databases: usize) -> Self {
        let is_one = databases == 1;
        let bar = match is_one {
            true => progress::bar("{bar:40} {bytes}/{total_bytes} {msg}"),
            false => progress::bar("{bar:40} {pos}/{len} databases, {msg}"),
        };
        bar.set_length(databases as u64);
        Self { bar, is_one, bytes: AtomicU64::new(0) }
    }

    /// `before`: bytes of this database that were reported.
    fn show(&self, progress: &Progress<'_>, before: &mut u64) {
        let file = progress.file.file_name().unwrap_or_default().to_string_lossy();
        if self.is_one {
            self.bar.set_length(progress.bytes_total);
            self.bar.set_position(progress.bytes_done);
            self.bar.set_message(file.into_owned());
            return;
        }
        // A check that starts over because of a writer counts from 0 again.
        let more = progress.bytes_done.saturating_sub(*before);
        *before = (*before).max(progress.bytes_done);
        let bytes = self.bytes.fetch_add(more, Ordering::Relaxed) + more;
        self.bar.set_message(format!("{} bytes", grouped(bytes)));
    }

    fn done_one(&self) {
        if !self.is_one {
            self.bar.inc(1);
        }
    }

    /// Prints something without a bar in it.
    fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn look_at(dir: PathBuf, args: &CheckArgs, bar: &Bar) -> telem_engine::Result<DatabaseLook> {
    let options = Options { take_over: args.take_over, ..Options::default() };
    let mut told = 0;
    let mut show = |progress: Progress<'_>| bar.show(&progress, &mut told);
    let mut repaired = if args.repair { Some(Ok(repair(&dir, &options, &mut show)?)) } else { None };
    let report = check(&dir, &options, &mut show)?;
    if repaired.is_none() && !report.is_sound() {
        repaired = Some(look(&dir, &options, &mut show).map_err(|error| error.to_string()));
    }
    Ok(DatabaseLook { dir, report, repair: repaired })
}

fn as_text(one: &DatabaseLook) -> String {
    let DatabaseLook { dir, report, repair } = one;
    let mut text = repair.as_ref().filter(|_| one.was_repaired()).map_or(String::new(), repair_as_text);
    text.extend(report.findings.iter().map(|finding| format!("{finding}\n")));
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let verdict = match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => "sound".to_owned(),
        (0, warnings) => format!("sound, {}", counted(warnings as u64, "warning")),
        (errors, warnings) => format!("DAMAGED: errors: {errors}, warnings: {warnings}"),
    };
    text.push_str(&format!(
        "{}: {verdict}; {} of {} series in {}, {}, {}\n",
        dir.display(),
        counted(report.samples, "sample"),
        grouped(report.series),
        counted(report.segments, "segment"),
        counted(report.files, "file"),
        counted(report.bytes, "byte")
    ));
    if let Some(would) = repair.as_ref().filter(|_| !one.was_repaired()) {
        text.push_str(&repair_as_text(would));
    }
    text
}

/// All of it in one line, the last: what a reader of it alone must know.
fn summary(all: &[DatabaseLook], not_checked: usize) -> String {
    let findings = |severity| {
        let of_one =
            |one: &DatabaseLook| one.report.findings.iter().filter(|finding| finding.severity == severity).count();
        all.iter().map(of_one).sum::<usize>() as u64
    };
    let sound = all.iter().filter(|one| one.report.is_sound()).count();
    let sum = |of: fn(&CheckReport) -> u64, what| counted(all.iter().map(|one| of(&one.report)).sum::<u64>(), what);
    let losses: Vec<_> =
        all.iter().filter_map(|one| one.repair.as_ref()?.as_ref().ok()).flat_map(|one| &one.losses).collect();
    let lost = match losses.len() as u64 {
        0 if sound == all.len() && not_checked == 0 => "nothing is lost".to_owned(),
        0 => "nothing is known to be lost".to_owned(),
        count => {
            let samples = losses.iter().filter_map(|loss| loss.samples).sum::<u64>();
            let uncounted = losses.iter().filter(|loss| loss.samples.is_none()).count() as u64;
            let times = if count == 1 { "1 loss".to_owned() } else { format!("{} losses", grouped(count)) };
            let uncounted = match uncounted {
                0 => String::new(),
                some => format!(", and an unknown number in {} of them", grouped(some)),
            };
            format!("{times}: {}{uncounted}", counted(samples, "sample"))
        }
    };
    format!(
        "in all: databases: {} sound, {} damaged, {} not checked; errors: {}, warnings: {}; {}, {}, {}; {lost}",
        grouped(sound as u64),
        grouped((all.len() - sound) as u64),
        grouped(not_checked as u64),
        grouped(findings(Severity::Error)),
        grouped(findings(Severity::Warning)),
        sum(|report| report.samples, "sample"),
        sum(|report| report.files, "file"),
        sum(|report| report.bytes, "byte"),
    )
}

fn repair_as_text(repair: &Result<RepairReport, String>) -> String {
    let repair = match repair {
        Ok(repair) => repair,
        Err(why) => return format!("cannot be repaired: {why}\n"),
    };
    if repair.is_nothing() {
        return "nothing to repair\n".to_owned();
    }
    let (did, lost) = if repair.done { ("repaired", "lost") } else { ("--repair would", "would be lost") };
    let mut text = String::new();
    text.extend(repair.actions.iter().map(|action| format!("{did}: {action}\n")));
    text.extend(repair.losses.iter().map(|loss| format!("{lost}: {loss}\n")));
    text.extend(repair.unproven.iter().map(|what| format!("unproven: {what}\n")));
    if let Some(file) = &repair.report_file {
        text.push_str(&format!("all of this is in {}\n", file.display()));
    }
    text
}

/// Of one database what is found in it; of several the sum, and each under `databases`.
fn as_json(all: &[DatabaseLook], failed: &[(PathBuf, String)]) -> String {
    let json = match (all, failed) {
        ([one], []) => one_as_json(one),
        (several, failed) => {
            let sum = |of: fn(&CheckReport) -> u64| several.iter().map(|one| of(&one.report)).sum::<u64>();
            json!({
                "sound": failed.is_empty() && several.iter().all(|one| one.report.is_sound()),
                "unchecked": failed.iter().map(|(dir, why)| json!({"data": dir, "why": why})).collect::<Vec<_>>(),
                "files": sum(|report| report.files),
                "bytes": sum(|report| report.bytes),
                "series": sum(|report| report.series),
                "segments": sum(|report| report.segments),
                "samples": sum(|report| report.samples),
                "databases": several.iter().map(one_as_json).collect::<Vec<_>>(),
            })
        }
    };
    format!("{json:#}\n")
}

fn one_as_json(one: &DatabaseLook) -> serde_json::Value {
    let DatabaseLook { dir, report, repair } = one;
    let findings = report.findings.iter().map(|Finding { severity, file, what, found, expected }| {
        let severity = match severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        json!({"severity": severity, "file": file, "what": what, "found": found, "expected": expected})
    });
    let mut json = json!({
        "data": dir,
        "sound": report.is_sound(),
        "findings": findings.collect::<Vec<_>>(),
        "files": report.files,
        "bytes": report.bytes,
        "series": report.series,
        "segments": report.segments,
        "samples": report.samples,
    });
    match repair {
        Some(Ok(repair)) => json["repair"] = json!(repair),
        Some(Err(why)) => json["repair"] = json!({ "impossible": why }),
        None => {}
    }
    json
}
