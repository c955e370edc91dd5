//! `telem check`: every checksum and every invariant of a database, and nothing changed.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use telem_engine::Options;
use telem_engine::check::{CheckReport, Finding, Severity, check};

use super::Failure;
use crate::info::grouped;

/// Verify every checksum and invariant of a database, changing nothing
///
/// Safe beside a server that writes it. Warnings name what the next open tidies up: nothing is lost. Exit code 0
/// when nothing is lost, 1 when something is or the check cannot be made, 2 when used wrongly.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Directory of a database
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem check ./trial
  telem check ./trial --json | jq '.findings[]'";

/// # Errors
/// BadNews when something is lost; Failed when there is no database to check.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let bar = progress_bar();
    let report = check(&args.dir, &Options::default(), &mut |progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(progress.file.file_name().unwrap_or_default().to_string_lossy().into_owned());
    });
    bar.finish_and_clear();
    let report = report.map_err(Failure::failed)?;
    let mut out = io::stdout().lock();
    let text = if args.json { as_json(&args.dir, &report) } else { as_text(&args.dir, &report) };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    if report.is_sound() { Ok(()) } else { Err(Failure::BadNews) }
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

fn as_json(dir: &Path, report: &CheckReport) -> String {
    let findings = report.findings.iter().map(|Finding { severity, file, what, found, expected }| {
        let severity = match severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        json!({"severity": severity, "file": file, "what": what, "found": found, "expected": expected})
    });
    let json = json!({
        "data": dir,
        "sound": report.is_sound(),
        "findings": findings.collect::<Vec<_>>(),
        "files": report.files,
        "bytes": report.bytes,
        "series": report.series,
        "segments": report.segments,
        "samples": report.samples,
    });
    format!("{json:#}\n")
}
