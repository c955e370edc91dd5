//! `telem sql`: runs one query and prints its rows in the chosen format.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use telem_query::QueryOptions;

use super::output::{Output, OutputFormat};
use super::pending::unless_stopped;
use super::source::{Origin, SourceBatches, StrictArg};
use super::table::{Counted, TableOptions};
use super::{CliFailure, units};
use crate::client::Client;

/// A query text beyond this is not read.
const SQL_BYTES_MAX: u64 = 16 << 20;
/// So many rows beyond those that a table shows are counted, and for no longer than this.
pub(crate) const MORE_MAX: u64 = 1_000_000;
pub(crate) const COUNT_WAIT: Duration = Duration::from_secs(1);
/// No other query waits for one in a process of its own.
const LOCAL_DEADLINE: Duration = Duration::from_secs(3_600);

/// Query databases or a running server in SQL
///
/// Tables: samples, series, metrics, nodes, and one for each metric with its tags as columns. Databases in directories
/// are read in this process and not changed, even while a server writes them. Several are read as one: equal keys are
/// one series, and of two samples of one time that of the later directory counts.
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct SqlArgs {
    /// Directories or a server, then the query
    ///
    /// Directories of databases or of saved jobs; or http://HOST:PORT of a server, or unix:PATH of its socket. Then
    /// the query, unless --file says where it is; '-' reads it from stdin.
    #[arg(value_name = "DIR|URL... SQL", required = true)]
    words: Vec<String>,
    /// Read the query from a file ('-' is stdin)
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How to write the rows [default: a table, or by the name of --output]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    /// Write to a file: .csv, .json, .ndjson, .parquet, .arrow
    ///
    /// The file gets its name when it is complete. A file with another extension needs --format.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Most rows that a table shows [default: 40 on a terminal, else all]
    #[arg(long, value_name = "N")]
    rows_max: Option<usize>,
    /// Memory that a query over a directory may use [default: 512MiB]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    query_memory: Option<usize>,
    /// Longest time of a query over a directory [default: 1h]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = units::duration)]
    query_deadline: Option<Duration>,
    #[command(flatten)]
    strict: StrictArg,
}

const USAGE: &str = "\
telem sql [OPTIONS] <DIR|URL>... <SQL>
       telem sql [OPTIONS] --file <FILE> <DIR|URL>...";

const SHORT_EXAMPLES: &str = "\
Examples:
  telem sql ./trial 'SELECT * FROM metrics'
  telem sql ./trial \"SELECT host, avg(value) FROM node_load1 GROUP BY host\"
  telem sql http://127.0.0.1:4242 \"SELECT * FROM samples WHERE ts > '5m-ago'\"
  telem sql ./trial 'SELECT * FROM samples' -o samples.parquet";

const EXAMPLES: &str = "\
Examples:
  telem sql ./trial 'SELECT metric, count(*) FROM samples GROUP BY metric'
  telem sql http://127.0.0.1:4242 'SELECT rank, last(value, ts) FROM \"train.loss\" GROUP BY rank'
  telem sql http://127.0.0.1:4242 \"SELECT count(*) FROM samples WHERE ts > '5m-ago'\"
  telem sql \"unix:$TELEM_SOCKET\" 'SELECT * FROM nodes' --format json        # inside a job
  telem sql ./trial 'SELECT * FROM samples' -o samples.parquet
  telem sql ./telem-4711 ./telem-4712 'SELECT node, metric, series FROM metrics'
  telem sql ./trial - < question.sql

Environment:
  TELEM_TOKEN   the token, if the server needs one";

/// # Errors
/// Failed for a question that cannot be answered; Usage where none is asked.
pub fn run(args: SqlArgs) -> Result<(), CliFailure> {
    let (origin, sql) = question(&args)?;
    let file = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let format = match (args.format, file) {
        (Some(format), _) => format,
        (None, Some(file)) => format_of(file)?,
        (None, None) => OutputFormat::Table,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let answer = async {
        let limits = |options: &mut QueryOptions| {
            options.deadline = args.query_deadline.unwrap_or(LOCAL_DEADLINE);
            options.memory_bytes_max = args.query_memory.unwrap_or(options.memory_bytes_max);
        };
        let mut batches = match origin {
            Origin::Server(address) => SourceBatches::of_server(&Client::new(address), args.strict, &sql).await?,
            Origin::Directories(dirs) => SourceBatches::of_directories(&dirs, args.strict, &sql, limits).await?,
        };
        let table = match file {
            Some(_) => TableOptions::of_file(args.rows_max),
            None => TableOptions::of_stdout(args.rows_max),
        };
        let mut output = Output::new(format, batches.schema(), file, table)?;
        while output.more() == 0
            && let Some(batch) = batches.next().await?
        {
            output.batch(&batch)?;
        }
        let counted = if output.more() == 0 { Counted::All } else { count_more(&mut batches, &mut output).await? };
        output.finish_counted(counted)?;
        if let Some(missing) = batches.missing() {
            writeln!(io::stderr(), "warning: nodes are missing from the answer: {missing}").unwrap_or_default();
        }
        Ok(())
    };
    // Rows on stdout end with the process.
    runtime.block_on(async { if file.is_some() { unless_stopped(answer).await } else { answer.await } })
}

/// Reads on to tell how many rows there are beyond those that are shown, as long as that takes no time.
async fn count_more(batches: &mut SourceBatches, output: &mut Output) -> Result<Counted, CliFailure> {
    let read_on = async {
        while output.more() < MORE_MAX {
            match batches.next().await {
                Ok(Some(batch)) => output.batch(&batch)?,
                Ok(None) => return Ok(Counted::All),
                Err(error) => return Err(CliFailure::from(error)),
            }
        }
        Ok(Counted::AtLeast)
    };
    tokio::time::timeout(COUNT_WAIT, read_on).await.unwrap_or(Ok(Counted::AtLeast))
}

/// The format that a file's name asks for. Tables are for people, and show the first rows: into what is to be kept they
/// come on request only.
fn format_of(file: &Path) -> Result<OutputFormat, CliFailure> {
    let is_no_file = fs::metadata(file).is_ok_and(|found| !found.is_file());
    OutputFormat::of_file(file).or_else(|| is_no_file.then_some(OutputFormat::Table)).ok_or_else(|| {
        CliFailure::Usage(format!(
            "'{}' does not tell the format: end it in .csv, .json, .ndjson, .parquet, .arrow or .arrows, or give --format",
            file.display()
        ))
    })
}

/// Where to ask, and what.
fn question(args: &SqlArgs) -> Result<(Origin, String), CliFailure> {
    let dash = Path::new("-");
    let (named, file) = match (&args.file, &*args.words) {
        (Some(file), named) => (named, Some(file)),
        (None, [named @ .., sql]) if !named.is_empty() => {
            if sql != "-" {
                return Ok((Origin::parse(named)?, checked(sql.clone())?));
            }
            (named, None)
        }
        (None, _) => {
            return Err(CliFailure::usage(
                "there is no query; write it behind the directories, or '-' for stdin, or --file FILE",
            ));
        }
    };
    let origin = Origin::parse(named)?;
    let text = match file {
        Some(path) if path != dash => fs::read_to_string(path)
            .map_err(|error| CliFailure::Failed(format!("cannot read {}: {error}", path.display())))?,
        _ => {
            let mut text = String::new();
            let read = io::stdin().lock().take(SQL_BYTES_MAX).read_to_string(&mut text);
            read.map_err(|error| CliFailure::Failed(format!("cannot read the query from stdin: {error}")))?;
            text
        }
    };
    Ok((origin, checked(text)?))
}

fn checked(sql: String) -> Result<String, CliFailure> {
    if sql.trim().is_empty() {
        return Err(CliFailure::usage("the query is empty"));
    }
    if Path::new(&sql).is_dir() {
        return Err(CliFailure::Usage(format!("'{sql}' is a directory; write the query behind the last directory")));
    }
    Ok(sql)
}
