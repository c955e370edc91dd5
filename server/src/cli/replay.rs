//! `telem replay`: runs the server over saved databases.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use telem_engine::SystemClock;

use super::CliFailure;
use super::dragon::DragonHost;
use super::grafana::{DASHBOARDS, DashboardRange};
use super::serve::stop_signals;
use super::service::{self as args, LimitArgs, ReachArgs};
use super::source::StrictArg;
use crate::config;
use crate::footprint::raise_descriptor_limit;
use crate::info::{Info, counted, grouped};
use crate::job::tunnel;
use crate::saving::saved;
use crate::service::{self, Ready};
use crate::shell::quoted;

/// The address that `telem grafana` expects by default.
const DEFAULT_URL: &str = "http://127.0.0.1:4242";
/// Jobs that are named, where there are many.
const JOBS_MAX: usize = 8;

/// Serve saved databases read-only, to Grafana and other clients
///
/// This is the service of a running job, on the same address, with the same answers. Several databases are served as
/// one: equal keys are one series, and of two samples of one time that of the later directory counts. Served is the
/// data that was there at the start; the job may still be saving, or may have been killed. Nothing is written in the
/// directories: the connection file is beside the socket, and samples are refused. For each dashboard of
/// `telem grafana` a link to the time of the data is printed.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Directories of databases or of saved jobs
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Address of Grafana, for the links
    #[arg(long, value_name = "URL", default_value = "http://localhost:3000", value_parser = web)]
    grafana_url: String,
    #[command(flatten)]
    strict: StrictArg,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem replay ./telem-4711
  telem replay ./telem-4711 ./telem-4712 --listen :0     # two jobs as one";

const EXAMPLES: &str = "\
Examples:
  telem replay ./telem-4711                              # all nodes of a job
  telem replay ./telem-4711/n1                           # one of them
  telem replay ./telem-4711 ./telem-4712 --listen :0     # two jobs as one, on any free port
  telem replay ./telem-4711 --allow-user grafana         # the user grafana needs no token
  ssh -NL 4242:localhost:4242 login1                     # telem runs there, the browser here

Environment:
  TELEM_TOKEN   the token to require, instead of a random one
  TELEM_LOG     what to log, as in telem_engine=debug,info";

fn web(text: &str) -> Result<String, String> {
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(format!("'{text}' is not an address of a Grafana; write http://HOST:PORT")),
    }
}

/// # Errors
/// Usage for unknown users; Failed without a database, and for everything else.
pub fn run(args: ReplayArgs) -> Result<(), CliFailure> {
    raise_descriptor_limit();
    let ReplayArgs { dirs, grafana_url, strict, mut reach, limits } = args;
    for note in reach.settle(DragonHost::Replay)? {
        writeln!(io::stderr(), "{note}").unwrap_or_default();
    }
    let databases = saved::databases(&dirs).map_err(CliFailure::failed)?;
    let data = std::path::absolute(&dirs[0]).unwrap_or_else(|_| dirs[0].clone());
    let node = config::node(None, &config::host_name()).map_err(CliFailure::usage)?;
    let several = saved::several(&databases);
    let clock = Arc::new(SystemClock::new());
    let opened = saved::open(&databases, strict.unsound(), clock).map_err(CliFailure::failed)?;
    let warnings: Vec<String> = opened.warnings().iter().map(|warning| format!("warning: {warning}\n")).collect();
    let default_port = reach.listen.is_none();
    let shown = args::ServiceSummary { data, job: "replay".to_owned(), node };
    let options = args::saved_options(opened, reach, &limits, shown)?;
    let runtime = args::runtime(|| {})?;
    runtime.block_on(async {
        let stop = stop_signals().map_err(CliFailure::failed)?;
        let ready = |ready: &Ready| {
            let told = told(ready, &dirs, &grafana_url);
            let several = several.as_ref().map_or_else(String::new, |several| format!("{several}\n"));
            let moved = if default_port { moved(&ready.url) } else { String::new() };
            let warnings = warnings.concat();
            writeln!(io::stderr(), "{warnings}{several}{told}{moved}{ready}").unwrap_or_default();
        };
        service::run(options, ready, stop).await.map_err(CliFailure::failed)
    })
}

/// Says that the usual port was taken: dashboards that query it show another server's data.
fn moved(url: &str) -> String {
    if url == DEFAULT_URL {
        return String::new();
    }
    format!("{DEFAULT_URL} was taken, perhaps by another telem, so dashboards that ask there do not show this\n")
}

/// What is served, how it is reached from elsewhere, and where it is seen: a line each.
fn told(ready: &Ready, dirs: &[PathBuf], grafana: &str) -> String {
    let mut text = String::new();
    let mut line = |said: fmt::Arguments<'_>| writeln!(text, "{said}").unwrap_or_default();
    let mut range = String::new();
    if let (Ok(sum), Ok(info)) = (ready.db.info(), Info::of(&ready.db)) {
        let nodes = ready.db.snapshot().nodes().len() as u64;
        let (samples, series, nodes) = (counted(info.samples, "sample"), grouped(info.series), grouped(nodes));
        line(format_args!("{samples} of {series} series, nodes: {nodes}"));
        let jobs = info.jobs();
        for job in jobs.iter().take(JOBS_MAX) {
            line(format_args!("job {job}"));
        }
        if jobs.len() > JOBS_MAX {
            line(format_args!("and {}, which `telem info` names", counted((jobs.len() - JOBS_MAX) as u64, "more job")));
        }
        if let (Some(first), Some(last)) = (&info.first, &info.last) {
            line(format_args!("time {first} to {last}"));
        }
        let shown = sum.time_bounds.and_then(|(first, last)| DashboardRange::around(first, last));
        range = shown.map(|shown| shown.in_a_link()).unwrap_or_default();
    }
    line(format_args!("{}", tunnel(&ready.url, &config::host_name())));
    for (uid, _) in DASHBOARDS {
        line(format_args!("dashboard {grafana}/d/{uid}{range}"));
    }
    let saved: Vec<String> = dirs.iter().map(|dir| quoted(&dir.to_string_lossy())).collect();
    let url = if ready.url == DEFAULT_URL { String::new() } else { format!(" --url {}", ready.url) };
    line(format_args!("to start a Grafana with them: telem grafana ./grafana --db {}{url}", saved.join(" ")));
    text
}
