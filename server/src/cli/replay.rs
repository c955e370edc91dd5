//! `telem replay`: the server over what was saved.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use telem_engine::DbInfo;

use super::Failure;
use super::grafana::{DASHBOARDS, Shown as Range};
use super::serve::stop_signals;
use super::service::{self as args, LimitArgs, ReachArgs, Shown};
use crate::config;
use crate::job::footprint::raise_descriptor_limit;
use crate::job::tunnel;
use crate::saved;
use crate::service::{self, Ready};

/// Serve saved databases, read-only, to Grafana and whoever else asks
///
/// The same service as that of a running job, on the same address, with the same answers. Several databases are
/// served as one: equal keys are one series, and of two samples of one time that of the later directory counts.
/// Nothing is written where they stand: the connection file lies beside the socket, and samples that are sent are
/// refused. For each dashboard of `telem grafana` there is a link that shows the time of the data.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Directories of databases or of saved jobs
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Where Grafana is, for the links
    #[arg(long, value_name = "URL", default_value = "http://localhost:3000", value_parser = web)]
    grafana_url: String,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
}

const EXAMPLES: &str = "\
Examples:
  telem replay ./telem-4711
  telem replay ./telem-4711 ./telem-4712 --listen :0     two jobs as one, on any free port
  telem replay ./telem-4711 --allow-user grafana         Grafana's server here needs no token
  ssh -NL 4242:localhost:4242 login1                     there it runs, here the browser is

Environment:
  TELEM_TOKEN   the token to ask for, instead of a random one
  TELEM_LOG     what to log, as in telem_engine=debug,info";

fn web(text: &str) -> Result<String, String> {
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(format!("'{text}' is no address of a Grafana; write http://HOST:PORT")),
    }
}

/// # Errors
/// Usage for users that are none; Failed where there is no database, and for everything else.
pub fn run(args: ReplayArgs) -> Result<(), Failure> {
    raise_descriptor_limit();
    let ReplayArgs { dirs, grafana_url, reach, limits } = args;
    let databases = saved::databases(&dirs).map_err(Failure::failed)?;
    let data = std::path::absolute(&dirs[0]).unwrap_or_else(|_| dirs[0].clone());
    let node = config::node(None, &config::host_name()).map_err(Failure::usage)?;
    let shown = Shown { data, job: "replay".to_owned(), node };
    let options = args::saved_options(databases, reach, &limits, shown)?;
    let runtime = args::runtime(|| {})?;
    runtime.block_on(async {
        let stop = stop_signals().map_err(Failure::failed)?;
        let ready = |ready: &Ready| {
            let told = told(ready, ready.db.info().ok().as_ref(), &grafana_url);
            writeln!(io::stderr(), "{told}{ready}").unwrap_or_default();
        };
        service::run(options, ready, stop).await.map_err(Failure::failed)
    })
}

/// What is served, how it is reached from elsewhere, and where it is seen: a line each.
fn told(ready: &Ready, info: Option<&DbInfo>, grafana: &str) -> String {
    let mut text = String::new();
    let range = info.and_then(|info| info.time_bounds).and_then(|(first, last)| Range::around(first, last));
    if let Some(info) = info {
        let nodes = ready.db.snapshot().nodes().len();
        text.push_str(&format!("{} samples of {} series, nodes: {nodes}\n", info.samples, info.series));
    }
    text.push_str(&format!("{}\n", tunnel(&ready.url, &config::host_name())));
    for (uid, _) in DASHBOARDS {
        let query =
            range.map_or_else(String::new, |range| format!("?from={}&to={}", range.from.millis(), range.to.millis()));
        text.push_str(&format!("dashboard {grafana}/d/{uid}{query}\n"));
    }
    text
}
