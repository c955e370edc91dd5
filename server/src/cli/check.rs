//! `telem check`: every checksum and every invariant of databases, and nothing changed.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use telem_engine::Options;
use telem_engine::check::{CheckReport, Finding, Severity, check};

use super::Failure;
use crate::info::grouped;
use crate::saved;

/// Verify every checksum and invariant of databases, changing nothing
///
/// Safe beside a server that writes them. Warnings name what the next open tidies up: nothing is lost. Exit code 0
/// when nothing is lost, 1 when something is or the check cannot be made, 2 when used wrongly.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Directories of databases or of saved jobs
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem check ./trial
  telem check ./telem-4711                  every node of a saved job
  telem check ./trial --json | jq '.findings[]'";

/// # Errors
/// BadNews when something is lost; Failed when there is no database to check, or one cannot be.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let dirs = saved::databases(&args.dirs).map_err(Failure::failed)?;
    let mut reports = Vec::with_capacity(dirs.len());
    let mut out = io::stdout().lock();
    for dir in dirs {
        let bar = progress_bar();
        let report = check(&dir, &Options::default(), &mut |progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes_done);
            bar.set_message(progress.file.file_name().unwrap_or_default().to_string_lossy().into_owned());
        });
        bar.finish_and_clear();
        let report = report.map_err(Failure::failed)?;
        if !args.json {
            out.write_all(as_text(&dir, &report).as_bytes())?;
        }
        reports.push((dir, report));
    }
    if args.json {
        out.write_all(as_json(&reports).as_bytes())?;
    }
    out.flush()?;
    if reports.iter().all(|(_, report)| report.is_sound()) { Ok(()) } else { Err(Failure::BadNews) }
}

fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {msg}");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn as_text(dir: &Path, report: &CheckReport) -> String {
    let mut text: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let verdict = match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => "sound".to_owned(),
        (0, warnings) => format!("sound, {warnings} warnings"),
        (errors, warnings) => format!("DAMAGED: errors: {errors}, warnings: {warnings}"),
    };
    text.push_str(&format!(
        "{}: {verdict}; {} samples of {} series in {} segments, {} files, {} bytes\n",
        dir.display(),
        grouped(report.samples),
        grouped(report.series),
        grouped(report.segments),
        grouped(report.files),
        grouped(report.bytes)
    ));
    text
}

/// Of one database what is found in it; of several the sum, and each under `databases`.
fn as_json(reports: &[(PathBuf, CheckReport)]) -> String {
    let json = match reports {
        [(dir, report)] => one_as_json(dir, report),
        several => {
            let sum = |of: fn(&CheckReport) -> u64| several.iter().map(|(_, report)| of(report)).sum::<u64>();
            json!({
                "sound": several.iter().all(|(_, report)| report.is_sound()),
                "files": sum(|report| report.files),
                "bytes": sum(|report| report.bytes),
                "series": sum(|report| report.series),
                "segments": sum(|report| report.segments),
                "samples": sum(|report| report.samples),
                "databases": several.iter().map(|(dir, report)| one_as_json(dir, report)).collect::<Vec<_>>(),
            })
        }
    };
    format!("{json:#}\n")
}

fn one_as_json(dir: &Path, report: &CheckReport) -> serde_json::Value {
    let findings = report.findings.iter().map(|Finding { severity, file, what, found, expected }| {
        let severity = match severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        json!({"severity": severity, "file": file, "what": what, "found": found, "expected": expected})
    });
    json!({
        "data": dir,
        "sound": report.is_sound(),
        "findings": findings.collect::<Vec<_>>(),
        "files": report.files,
        "bytes": report.bytes,
        "series": report.series,
        "segments": report.segments,
        "samples": report.samples,
    })
}
