//! `telem serve`: the server without a job.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, Options, SystemClock};
use telem_ingest::writer::WriterOptions;
use telem_query::QueryOptions;
use telem_query::tsq::Fidelity;
use tokio::signal::unix::{SignalKind, signal};

use super::collect::CollectArgs;
use super::{Failure, units};
use crate::config;
use crate::http::body::BodyBudget;
use crate::net::socket;
use crate::service::{self, ServiceOptions};
use crate::state::ServerLimits;
use crate::token::Token;

/// Threads for connections; queries have their own.
const IO_THREADS: usize = 2;
/// Threads for decoding bodies and looking up clients.
const BLOCKING_THREADS_MAX: usize = 32;

/// Take samples and answer queries until stopped
///
/// Listens on loopback and on a Unix socket. Processes of your user and of root need no token there; others,
/// and everybody beyond loopback, send `Authorization: Bearer TOKEN` with the token of the connection file
/// (`connection.json` in the data directory). SIGTERM and Ctrl-C finish running requests, flush and close.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Directory of the database, made if there is none [default: ${TELEM_DATA:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}/telem-UID/JOB/NODE]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Highest level of samples to keep, 0 to 4: 0 nothing, 1 user metrics, 2 + the node's hardware, 3 + detail, 4 + processes
    #[arg(long, visible_alias = "telemetry-level", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u8).range(0..=4))]
    level: u8,
    #[command(flatten)]
    collect: CollectArgs,
    /// Where to listen; port 0 takes any free one [default: 127.0.0.1:4242, or the next free port]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Answer like OpenTSDB 2.4 also where that misleads
    #[arg(long)]
    opentsdb_exact: bool,
    /// The job these samples belong to [default: SLURM_JOB_ID, or 'local']
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// The node that these samples belong to [default: the short host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// A user (name or number) whose processes need no token, as Grafana's on this machine; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_user: Vec<String>,
    /// Where to write URL, socket and token, readable by you alone [default: connection.json in the data directory]
    #[arg(long, value_name = "FILE")]
    connection_file: Option<PathBuf>,
    /// Take the database over from a writer that seems to run, or ran on another machine
    #[arg(long)]
    take_over: bool,
    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
}

const EXAMPLES: &str = "\
Examples:
  telem serve --data ./trial
  telem serve --data ./trial --level 2                 also samples this node, every second
  telem serve --data ./trial --listen :0               any free port, told on stderr
  telem serve --data ./trial --listen 0.0.0.0:4242     everybody needs the token
  telem serve --data ./trial --allow-user grafana      Grafana's server here does not
  curl http://127.0.0.1:4242/api/put \\
    -d '{\"metric\":\"loss\",\"timestamp\":1767225600,\"value\":2.3,\"tags\":{\"rank\":\"0\"}}'

Environment:
  TELEM_TOKEN   the token to ask for, instead of a random one
  TELEM_LOG     what to log, as in telem_engine=debug,info";

/// Amounts; each has a default that serves.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Memory that all queries share [default: 512MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    query_memory: Option<usize>,
    /// Longest that one query may take [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    query_deadline: Option<Duration>,
    /// Most queries that run at once [default: 16]
    #[arg(long, value_name = "N", value_parser = count)]
    queries_max: Option<usize>,
    /// Largest body of a request, decompressed [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    body_bytes_max: Option<usize>,
    /// Memory that the bodies of all requests share [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    bodies_bytes_max: Option<usize>,
    /// Most connections that are open at once [default: 512]
    #[arg(long, value_name = "N", value_parser = count)]
    connections_max: Option<usize>,
    /// Most samples that wait to be written [default: 1048576]
    #[arg(long, value_name = "N", value_parser = count)]
    queue_samples_max: Option<usize>,
    /// Most batches that wait to be written [default: 16384]
    #[arg(long, value_name = "N", value_parser = count)]
    queue_batches_max: Option<usize>,
    /// Most series in the database [default: 10000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    series_max: Option<u32>,
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("'{text}' is no number above 0"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: &str| format!("'{text}' is no ADDR:PORT ({why}); write 127.0.0.1:4242, or :4242 for loopback");
    let text = text.strip_prefix(':').map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let mut addresses = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("no such host"))
}

/// # Errors
/// Usage for names that are none; Failed for everything else.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    raise_descriptor_limit();
    let options = options(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("telem-io")
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    runtime.block_on(async {
        let stop = stop_signals().map_err(Failure::failed)?;
        let ready = |ready: &service::Ready| writeln!(io::stderr(), "{ready}").unwrap_or_default();
        service::run(options, ready, stop).await.map_err(Failure::failed)
    })
}

fn options(args: ServeArgs) -> Result<ServiceOptions, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let uid = rustix::process::getuid().as_raw();
    let job = config::job(args.job.as_deref(), config::environment).map_err(Failure::usage)?;
    let node = config::node(args.node.as_deref(), &config::host_name()).map_err(Failure::usage)?;
    let allowed_uids = args.allow_user.iter().map(|user| config::uid_of(user));
    let allowed_uids = allowed_uids.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let token = config::environment("TELEM_TOKEN").map(|text| Token::chosen(&text)).transpose();
    let data = data_directory(args.data, &job, &node, uid)?;
    let runtime_dir = config::environment("XDG_RUNTIME_DIR").map(PathBuf::from);
    let LimitArgs { series_max, .. } = args.limits;
    let engine = Options::default();
    let engine = Options {
        node: node.clone(),
        take_over: args.take_over,
        series_max: series_max.unwrap_or(engine.series_max),
        clock: Arc::clone(&clock),
        ..engine
    };
    let collect = args.collect.options(args.level, &node)?;
    Ok(ServiceOptions {
        data,
        job,
        node,
        listen: args.listen,
        connection_file: args.connection_file,
        token: token.map_err(Failure::usage)?,
        uid,
        allowed_uids,
        socket_dir: socket::directory(runtime_dir.as_deref(), uid),
        level: args.level,
        collect,
        fidelity: if args.opentsdb_exact { Fidelity::OpenTsdb } else { Fidelity::Sensible },
        limits: server_limits(&args.limits),
        engine,
        writer: writer_options(&args.limits, &clock),
        queries: query_options(&args.limits, &clock),
        clock,
    })
}

fn server_limits(args: &LimitArgs) -> ServerLimits {
    let default = ServerLimits::default();
    ServerLimits {
        body_bytes_max: args.body_bytes_max.unwrap_or(default.body_bytes_max),
        bodies: args.bodies_bytes_max.map_or(default.bodies, BodyBudget::new),
        connections_max: args.connections_max.unwrap_or(default.connections_max),
        ..default
    }
}

fn writer_options(args: &LimitArgs, clock: &Arc<dyn Clock>) -> WriterOptions {
    let default = WriterOptions::default();
    WriterOptions {
        queue_samples_max: args.queue_samples_max.unwrap_or(default.queue_samples_max),
        queue_batches_max: args.queue_batches_max.unwrap_or(default.queue_batches_max),
        clock: Arc::clone(clock),
        ..default
    }
}

fn query_options(args: &LimitArgs, clock: &Arc<dyn Clock>) -> QueryOptions {
    let default = QueryOptions::new(Arc::clone(clock));
    QueryOptions {
        memory_bytes_max: args.query_memory.unwrap_or(default.memory_bytes_max),
        deadline: args.query_deadline.unwrap_or(default.deadline),
        queries_max: args.queries_max.unwrap_or(default.queries_max),
        ..default
    }
}

/// The directory, made if there is none: as asked for, or the default one below a directory that is ours alone.
fn data_directory(wanted: Option<PathBuf>, job: &str, node: &str, uid: u32) -> Result<PathBuf, Failure> {
    let make = |dir: &Path, mode: u32| {
        let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
        made.map_err(|error| Failure::Failed(format!("cannot create the data directory {}: {error}", dir.display())))
    };
    if let Some(dir) = wanted {
        // The connection file names it to processes that run elsewhere.
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        make(&dir, 0o777)?;
        return Ok(dir);
    }
    let default = config::default_data(job, node, uid, config::environment);
    if let Some(base) = default.private.parent() {
        make(base, 0o777)?;
    }
    socket::own_directory(&default.private, uid).map_err(Failure::failed)?;
    make(&default.dir, 0o700)?;
    Ok(default.dir)
}

/// The first SIGTERM or SIGINT; a second one ends the process at once.
fn stop_signals() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (first, stop) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut first = Some(first);
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match first.take() {
                Some(first) => first.send(()).unwrap_or_default(),
                None => std::process::exit(1),
            }
        }
    });
    Ok(async { stop.await.unwrap_or_default() })
}

/// As many descriptors as we may have: connections and segments need them.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
