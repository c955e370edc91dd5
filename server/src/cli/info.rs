//! `telem info`: shows the contents of databases.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use axum::http::StatusCode;
use clap::Args;
use serde::Serialize;
use telem_engine::SystemClock;

use super::CliFailure;
use super::source::{Origin, StrictArg, open_read_only};
use super::table::terminal_width;
use crate::client::{Address, Client, ClientError};
use crate::info::{Info, MetricLines, counted, duckdb, grouped, human};
use crate::membership::messages::{LIST, Listed};

/// The answer of a server is read up to here.
const INFO_BYTES_MAX: usize = 64 << 20;
/// Metrics that are listed on a terminal: about a screen.
pub(crate) const TERMINAL_METRICS: usize = 30;
/// A server that has not answered by then hangs.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Show the contents of databases: the job, its nodes, every metric
///
/// Metrics that the job sent come before those that telem measures. Times are in UTC. Several databases are shown
/// together, and then each in one line; samples that are in two databases count twice. For the server of a running job
/// its own data is shown; the other nodes follow in one line each, as they last reported.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct InfoArgs {
    /// Directories of databases or saved jobs, or a server
    ///
    /// A server is http://HOST:PORT, or unix:PATH of its socket.
    #[arg(value_name = "DIR|URL", required = true)]
    named: Vec<String>,
    /// Also the cost of storage: bytes per sample, segments, merges, caches
    #[arg(long, conflicts_with_all = ["json", "duckdb"])]
    storage: bool,
    /// Of a server: what it holds in memory, part by part
    #[arg(long, conflicts_with_all = ["json", "duckdb"])]
    memory: bool,
    /// As JSON, with all details and the names of all files
    #[arg(long)]
    json: bool,
    /// As SQL that gives DuckDB the table `samples`
    ///
    /// It reads the Parquet files of the database directly, without an export.
    #[arg(long, conflicts_with = "json")]
    duckdb: bool,
    #[command(flatten)]
    strict: StrictArg,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem info ./telem-4711
  telem info http://127.0.0.1:4242";

const EXAMPLES: &str = "\
Examples:
  telem info ./trial
  telem info ./telem-4711                  # a saved job, with all its nodes
  telem info http://127.0.0.1:4242 --json
  telem info http://127.0.0.1:4242 --memory
  telem info ./trial --duckdb > trial.sql && duckdb -init trial.sql

Environment:
  TELEM_TOKEN   the token, if the server needs one";

/// # Errors
/// Failed when there is no such database or server.
pub fn run(args: &InfoArgs) -> Result<(), CliFailure> {
    let shown = match Origin::parse(&args.named)? {
        Origin::Server(address) => of_server(address)?,
        Origin::Directories(_) if args.memory => {
            return Err(CliFailure::Usage(
                "--memory tells what a server holds: name one, such as http://HOST:4242".to_owned(),
            ));
        }
        Origin::Directories(dirs) => {
            let opened = open_read_only(&dirs, args.strict)?;
            let looked = match args.duckdb {
                true => Info::of(&opened.db),
                false => Info::with_metrics(&opened.db, &SystemClock::new(), &|| false),
            };
            let info = looked.map_err(CliFailure::failed)?.without(&opened.unopened);
            NodesInfo { info, other_nodes: Vec::new() }
        }
    };
    let NodesInfo { info, other_nodes } = &shown;
    let text = if args.duckdb {
        if info.samples_unflushed > 0 {
            let unseen = counted(info.samples_unflushed, "sample");
            let notice = format!("warning: the view does not see {unseen} that no Parquet file has yet");
            writeln!(io::stderr(), "{notice}; `telem export` has all").unwrap_or_default();
        }
        if !other_nodes.is_empty() {
            writeln!(
                io::stderr(),
                "warning: the view covers only the samples of {}; `telem export` has all",
                info.node
            )
            .unwrap_or_default();
        }
        duckdb::view(info)
    } else if args.json {
        let mut text = serde_json::to_string_pretty(&shown).map_err(CliFailure::failed)?;
        text.push('\n');
        text
    } else {
        shown.text(args)
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The contents of a database, and the other nodes if the server is one of several.
#[derive(Debug, Serialize)]
struct NodesInfo {
    #[serde(flatten)]
    info: Info,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_nodes: Vec<Listed>,
}

impl NodesInfo {
    fn text(&self, args: &InfoArgs) -> String {
        let Self { info, .. } = self;
        let mut text = format!("{self}\n");
        if let (Some(memory), false) = (&info.memory, args.memory) {
            text.push_str(&format!("memory     {}\n", memory.short()));
        }
        if args.storage {
            text.push_str(&format!("\n{}\n", info.storage_lines()));
        }
        if args.memory {
            match &info.memory {
                Some(memory) => text.push_str(&format!("\n{memory}\n")),
                None => text.push_str("\nmemory     this server does not say what it holds\n"),
            }
        }
        if !info.by_metric.is_empty() {
            let metrics_max = if terminal_width().is_some() { TERMINAL_METRICS } else { usize::MAX };
            text.push_str(&format!("{}\n", MetricLines { metrics: &info.by_metric, metrics_max }));
        }
        text
    }
}

impl fmt::Display for NodesInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { info, other_nodes } = self;
        write!(f, "{info}")?;
        if other_nodes.is_empty() {
            return Ok(());
        }
        write!(f, "\n\nThat is what {} itself has. Other nodes, as they last reported:", info.node)?;
        let (mut samples, mut series, mut bytes) = (info.samples, info.series, info.bytes);
        for Listed { node, state, figures, .. } in other_nodes {
            let (its_samples, its_series) = (counted(figures.samples, "sample"), grouped(figures.series));
            let its_bytes = human::bytes(figures.bytes as f64);
            write!(f, "\n  {node}: {state}, {its_samples}, {its_series} series, {its_bytes}")?;
            samples += figures.samples;
            series += figures.series;
            bytes += figures.bytes;
        }
        let (nodes, series) = (grouped(other_nodes.len() as u64 + 1), grouped(series));
        let samples = counted(samples, "sample");
        let bytes = human::bytes(bytes as f64);
        // No node knows which series others have too.
        write!(f, "\nAll {nodes} nodes: {samples}, {series} series (one of two nodes twice), {bytes}")
    }
}

fn of_server(address: Address) -> Result<NodesInfo, CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let client = Client::new(address);
    let silent = || ClientError::Silent { address: client.address().clone(), after: ANSWER_MAX };
    let get = async |path: &str| {
        let ask = async { client.get(path).await?.read(INFO_BYTES_MAX).await };
        tokio::time::timeout(ANSWER_MAX, ask).await.unwrap_or_else(|_| Err(silent()))
    };
    let strange = |error| CliFailure::Failed(format!("{} gave no info that we understand: {error}", client.address()));
    let answer = runtime.block_on(get("/api/info?by_metric=true&memory=true")).map_err(CliFailure::failed)?;
    let info: Info = serde_json::from_slice(&answer).map_err(strange)?;
    let mut other_nodes: Vec<Listed> = match runtime.block_on(get(LIST)) {
        Ok(answer) => serde_json::from_slice(&answer).map_err(strange)?,
        // It is not a node of a job.
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Vec::new(),
        Err(error) => return Err(CliFailure::failed(error)),
    };
    if let [_] = &*other_nodes {
        // The server itself, whatever its database calls it.
        other_nodes.clear();
    }
    other_nodes.retain(|node| node.node != info.node);
    Ok(NodesInfo { info, other_nodes })
}
