//! `telem info`: what is in databases.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use super::Failure;
use super::source::{Origin, StrictArg, open_read_only};
use crate::client::{Address, Client, ClientError};
use crate::info::{Info, duckdb, grouped};

/// The answer of a server is read up to here.
const INFO_BYTES_MAX: usize = 64 << 20;
/// A server that has not answered by then hangs.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Show what is in databases: nodes, metrics, series, samples, bytes, time range, the job
///
/// Of several all together, and then each in a line. Samples that are in two databases count twice.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// Directories of databases or of saved jobs; or http://HOST:PORT of a server, or unix:PATH of its socket
    #[arg(value_name = "DIR|URL", required = true)]
    named: Vec<String>,
    /// As JSON, with the names of all Parquet files
    #[arg(long)]
    json: bool,
    /// As SQL that gives DuckDB the table `samples` straight from the Parquet files
    #[arg(long, conflicts_with = "json")]
    duckdb: bool,
    #[command(flatten)]
    strict: StrictArg,
}

const EXAMPLES: &str = "\
Examples:
  telem info ./trial
  telem info ./telem-4711                  a saved job, with all its nodes
  telem info http://127.0.0.1:4242 --json
  telem info ./trial --duckdb > trial.sql && duckdb -init trial.sql

Environment:
  TELEM_TOKEN   the token of a server that asks for one";

/// # Errors
/// Failed when there is no such database or server.
pub fn run(args: &InfoArgs) -> Result<(), Failure> {
    let info = match Origin::parse(&args.named)? {
        Origin::Server(address) => of_server(address)?,
        Origin::Directories(dirs) => {
            let opened = open_read_only(&dirs, args.strict)?;
            Info::of(&opened.db).map_err(Failure::failed)?.without(&opened.unopened)
        }
    };
    let text = if args.duckdb {
        if info.samples_unflushed > 0 {
            let unseen = grouped(info.samples_unflushed);
            let notice = format!("warning: the view does not see {unseen} samples, which are in no Parquet file yet");
            writeln!(io::stderr(), "{notice}; `telem export` has them").unwrap_or_default();
        }
        duckdb::view(&info)
    } else if args.json {
        let mut text = serde_json::to_string_pretty(&info).map_err(Failure::failed)?;
        text.push('\n');
        text
    } else {
        format!("{info}\n")
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn of_server(address: Address) -> Result<Info, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let client = Client::new(address);
    let ask = async { client.get("/api/info").await?.read(INFO_BYTES_MAX).await };
    let answer = runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, ask).await });
    let silent = || ClientError::Silent { address: client.address().clone(), after: ANSWER_MAX };
    let answer = answer.unwrap_or_else(|_| Err(silent())).map_err(Failure::failed)?;
    serde_json::from_slice(&answer)
        .map_err(|error| Failure::Failed(format!("{} gave no info that we understand: {error}", client.address())))
}
