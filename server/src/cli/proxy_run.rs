//! `telem proxy-run`: starts a command so that it and its exporters report to a Metric Proxy, or to telem in its place.
//!
//! The launcher becomes the command: same process, same streams, same exit status.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use telem_engine::SystemClock;

use super::{CliFailure, Verbosity};
use crate::job::child;
use crate::job::exporters::{self, Exporter, ExporterError, ExporterShelf};
use crate::job::notes::Notes;
use crate::launch::Patience;

/// How often clients send, where nobody says otherwise.
const PERIOD_MS: &str = "1000";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Run a command with metrics for a Metric Proxy
///
/// The options are those of `proxy_run`; a link of that name to telem does the same. telem becomes the command, so the
/// exit status is the command's, also where a signal ends it. Programs of the client library find the server by
/// PROXY_PATH and the job by PROXY_JOB_ID, or by the number of this launcher's parent, which all ranks below one mpirun
/// share.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "telem proxy-run [OPTIONS] -- COMMAND [ARG]...")]
pub struct ProxyRunArgs {
    /// List the exporters
    #[arg(short, long)]
    listexporters: bool,
    /// What is counted: mpi, strace, finstrument
    ///
    /// Several with commas. Without it nothing is but what the program counts itself. mpi=FILE names the compiler wrapper
    /// of another MPI than that of `mpicc`. An exporter is built when it is used first, and kept in
    /// ~/.cache/telem/exporters; the command runs without one that cannot be built.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME")]
    exporter: Vec<String>,
    /// Name of the job: sets PROXY_JOB_ID [default: the scheduler's]
    #[arg(short, long, value_name = "ID")]
    jobid: Option<OsString>,
    /// The server's socket: sets PROXY_PATH [default: /tmp/metric-proxy-UID.socket]
    #[arg(short, long, value_name = "PATH")]
    unixsocket: Option<OsString>,
    /// Milliseconds between two flushes: sets PROXY_PERIOD [default: 1000]
    #[arg(short = 'S', long, value_name = "MS")]
    period: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  telem proxy-run -l
  telem proxy-run -j job-1 -- true
  telem proxy-run -j job-1 -e strace -S 500 -- ls /";

/// The time that building takes is the user's, who waits for it.
struct Unhurried;

impl Patience for Unhurried {
    fn ask(&self, _: Duration) {}

    fn is_over(&self) -> bool {
        false
    }
}

/// Returns only where the command does not run.
pub fn run(args: ProxyRunArgs, verbosity: Verbosity) -> ExitCode {
    let notes = Notes { quiet: verbosity.is_quiet() };
    match prepare(args, notes) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(launch)) => {
            let error = child::replace_this_process(&launch.command, &launch.environment);
            notes.error(&error);
            ExitCode::from(error.exit_code())
        }
        Err(failure) => failure.report(),
    }
}

/// What this process is to become.
struct ProxyLaunch {
    command: Vec<OsString>,
    environment: Vec<(String, OsString)>,
}

fn prepare(args: ProxyRunArgs, notes: Notes) -> Result<Option<ProxyLaunch>, CliFailure> {
    let clock = SystemClock::new();
    let shelf = ExporterShelf::own(&clock);
    if args.listexporters {
        let mut out = std::io::stdout().lock();
        for name in shelf.names() {
            writeln!(out, " - {name}")?;
        }
        return Ok(None);
    }
    if args.command.is_empty() {
        return Err(CliFailure::Failed(
            "no command; write it after --, as in `telem proxy-run -- ./solver input`".to_owned(),
        ));
    }
    let mut attachments = Vec::new();
    for text in &args.exporter {
        let exporter: Exporter = text.parse().unwrap_or_else(|never| match never {});
        let _working = notes.at_work(format!("building the exporter {exporter}"));
        match shelf.attachment(&exporter, &Unhurried) {
            Ok(attachment) => attachments.push(attachment),
            Err(error @ ExporterError::Unknown { .. }) => return Err(CliFailure::failed(error)),
            Err(error) => notes.warn(format_args!("the command runs without it: {error}")),
        }
    }
    let inherited = std::env::var_os(PRELOAD_VARIABLE);
    let (command, preloaded) = exporters::attach(&attachments, args.command, inherited.as_deref());
    let mut environment: Vec<(String, OsString)> = preloaded.into_iter().collect();
    let mut say = |name: &str, value: OsString| environment.push((name.to_owned(), value));
    if let Some(id) = args.jobid {
        say("PROXY_JOB_ID", id);
    }
    if let Some(parent) = rustix::process::getppid() {
        say("METRIC_PROXY_LAUNCHER_PPID", parent.as_raw_nonzero().to_string().into());
    }
    if let Some(socket) = args.unixsocket {
        say("PROXY_PATH", socket);
    }
    match args.period {
        Some(period) => say("PROXY_PERIOD", period.to_string().into()),
        None if std::env::var_os("PROXY_PERIOD").is_none() => say("PROXY_PERIOD", PERIOD_MS.into()),
        // Of a job around this one.
        None => {}
    }
    Ok(Some(ProxyLaunch { command, environment }))
}

/// The command of a job with exporters: telem once more, which attaches them and becomes the command.
pub fn attaching(exporters: &[String], command: Vec<OsString>) -> Vec<OsString> {
    if exporters.is_empty() {
        return command;
    }
    let telem = std::env::current_exe().map_or_else(|_| OsString::from("telem"), std::path::PathBuf::into_os_string);
    let mut words = vec![telem, "proxy-run".into(), "-e".into(), exporters.join(",").into(), "--".into()];
    words.extend(command);
    words
}
