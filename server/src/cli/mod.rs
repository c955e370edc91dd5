//! The command line: one file per command.
//!
//! Exit codes are 0 for success, 1 for failure, 2 for wrong usage. An error is one line on stderr. If a reader of our
//! output closes it early (`telem sql ... | head`), that is not an error.

mod agreement;
mod aligned;
mod cells;
mod check;
mod collect;
mod compact;
mod diff;
mod dragon;
mod export;
mod glob;
mod grafana;
pub(crate) mod import;
pub(crate) mod info;
mod live;
mod log;
mod ls;
mod mv;
pub(crate) mod node;
mod nodes;
mod one_job;
mod open;
mod output;
mod page;
mod pending;
mod progress;
pub(crate) mod proxy;
mod proxy_data;
mod proxy_options;
mod proxy_run;
mod put;
mod recover;
mod replay;
mod report;
mod rm;
mod run;
mod saved_run;
mod serve;
pub(crate) mod service;
mod source;
pub(crate) mod sql;
pub(crate) mod table;
mod tail;
mod tensorboard;
#[cfg(test)]
mod tests;
mod tfrecord;
mod times;
mod top;
mod units;
mod watch;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// A telemetry database for HPC and AI jobs
///
/// One binary, no root, no services to install.
#[derive(Debug, Parser)]
#[command(name = "telem", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    /// Certificates (PEM) to trust of servers with https://
    ///
    /// A server is trusted if its certificate is in this file, or is signed by an authority in it [default: the
    /// connection file's, else the machine's authorities].
    #[arg(long, global = true, env = "TELEM_TLS_CA", value_name = "FILE", hide_short_help = true)]
    tls_ca: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

/// The whole command line, for those who hold a page against it.
pub fn command() -> clap::Command {
    let mut command = <Cli as clap::CommandFactory>::command();
    command.build();
    command
}

const EXAMPLES: &str = "\
Examples:
  telem run -- python train.py        # telem COMMAND --help has more";

const READ_GPUS_EXAMPLES: &str = "\
Examples:
  telem read-gpus < /dev/null         # nobody asks, so it ends";

/// How much is logged on stderr.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Verbosity {
    /// Log more: -v what happens, -vv details
    ///
    /// TELEM_LOG (such as `telem_engine=debug`) sets the level of each module.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Log less: -q errors only, -qq nothing
    #[arg(short, long, action = clap::ArgAction::Count, global = true, conflicts_with = "verbose")]
    quiet: u8,
}

impl Verbosity {
    fn is_quiet(self) -> bool {
        self.quiet > 0
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    /// The process of `telem run` that records; it is started by that one
    #[command(hide = true)]
    Record(Box<run::RunArgs>),
    /// The process that asks the libraries of vendors of GPUs; it is started by collectors, and ends with them
    #[command(hide = true, after_help = READ_GPUS_EXAMPLES)]
    ReadGpus,
    Serve(Box<serve::ServeArgs>),
    Replay(replay::ReplayArgs),
    Sql(sql::SqlArgs),
    Info(info::InfoArgs),
    Ls(ls::LsArgs),
    Diff(diff::DiffArgs),
    Report(report::ReportArgs),
    Top(top::TopArgs),
    Tail(tail::TailArgs),
    Mv(mv::MvArgs),
    Rm(rm::RmArgs),
    Check(check::CheckArgs),
    Compact(compact::CompactArgs),
    Recover(recover::RecoverArgs),
    Grafana(grafana::GrafanaArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Put(put::PutArgs),
    Proxy(Box<proxy::ProxyCommandArgs>),
    ProxyRun(proxy_run::ProxyRunArgs),
    Node(Box<node::NodeArgs>),
    Nodes(nodes::NodesArgs),
    Open(open::OpenArgs),
}

/// The exit code where there are warnings.
const WARNED: u8 = 3;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum CliFailure {
    /// The command was used wrongly.
    Usage(String),
    /// It failed.
    Failed(String),
    /// It worked, and what it reports is bad news. Nothing more to print.
    BadNews,
    /// The same, for whoever tells it apart from a failure: there are warnings.
    Warned,
    /// Our output has no reader any more.
    ReaderGone,
}

impl CliFailure {
    fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    fn usage(error: impl std::fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// Says it on stderr; what to exit with.
    fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Self::ReaderGone => return ExitCode::SUCCESS,
            Self::BadNews => return ExitCode::FAILURE,
            Self::Warned => return ExitCode::from(WARNED),
            Self::Usage(message) => (message, 2),
            Self::Failed(message) => (message, 1),
        };
        complain(message);
        ExitCode::from(code)
    }

    /// What is to be said about it.
    fn into_message(self) -> String {
        match self {
            Self::ReaderGone | Self::BadNews | Self::Warned => String::new(),
            Self::Usage(message) | Self::Failed(message) => message,
        }
    }
}

/// For answers that are not what was asked for.
impl From<arrow::error::ArrowError> for CliFailure {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Failed(format!("an unexpected answer: {error}"))
    }
}

/// For output to stdout.
impl From<io::Error> for CliFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }
}

/// What a link to telem may be called, and the command that it is then.
const LINKS: [(&str, &str); 2] = [("proxy_run", "proxy-run"), ("proxy_v2", "proxy")];

/// The words of a command line. A query may begin with a comment of SQL, `-- such as this`, which is not an option. What
/// a link to telem is called may be a command.
fn words(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = args.collect();
    let own = words.first().and_then(|own| Path::new(own).file_name());
    let linked = LINKS.iter().find(|(name, _)| own.is_some_and(|own| own == *name));
    if let Some((_, command)) = linked {
        words.insert(1, command.into());
        return words;
    }
    let command = words.iter().skip(1).find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    if command.is_some_and(|command| command == "sql") {
        for word in &mut words {
            if let [b'-', b'-', after, ..] = word.as_encoded_bytes()
                && after.is_ascii_whitespace()
            {
                let mut query = OsString::from("\n");
                query.push(&*word);
                *word = query;
            }
        }
    }
    words
}

pub fn main() -> ExitCode {
    crate::allocator::give_back_soon();
    let cli = Cli::parse_from(words(std::env::args_os()));
    if matches!(cli.command, Command::ReadGpus) {
        telem_ingest::collect::read_gpus_for_parent();
        return ExitCode::SUCCESS;
    }
    let style = if matches!(cli.command, Command::Run(_) | Command::Record(_) | Command::ProxyRun(_)) {
        log::Style::Named
    } else {
        log::Style::Stamped
    };
    log::start(cli.verbosity, style);
    // A run has its own way with signals, all of which concern its command.
    if !matches!(cli.command, Command::Run(_) | Command::Record(_) | Command::ProxyRun(_)) {
        crate::job::signals::outlive_file_limit();
    }
    if let Some(file) = cli.tls_ca {
        crate::client::trust_authorities(file);
    }
    let outcome = match cli.command {
        Command::Run(args) => return run::run(*args, cli.verbosity),
        Command::Record(args) => return run::record(*args, cli.verbosity),
        Command::ReadGpus => return ExitCode::SUCCESS,
        Command::Serve(args) => serve::run(*args),
        Command::Replay(args) => replay::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Info(args) => info::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Mv(args) => mv::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Grafana(args) => grafana::run(args),
        Command::Export(args) => export::run(&args, cli.verbosity),
        Command::Import(args) => import::run(&args, cli.verbosity),
        Command::Put(args) => put::run(args),
        Command::Proxy(args) => proxy::run(*args),
        Command::ProxyRun(args) => return proxy_run::run(args, cli.verbosity),
        Command::Node(args) => node::run(*args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Open(args) => open::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn complain(message: &str) {
    let (bold, plain) = if io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    // There is nowhere to say that stderr is closed.
    writeln!(io::stderr(), "{bold}error:{plain} {message}").unwrap_or_default();
}
