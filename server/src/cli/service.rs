//! The options of commands that start a service, and how they become options of the service.

use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, Options, Retention, SystemClock};
use telem_ingest::accept::Limits;
use telem_ingest::collect::{CollectOptions, JobTarget};
use telem_ingest::schedule::check_interval;
use telem_ingest::writer::{WhenRemoved, WriterOptions};
use telem_query::QueryOptions;
use telem_query::tsq::Fidelity;

use super::collect::CollectArgs;
use super::dragon::{self, DragonArgs, DragonHost};
use super::proxy_options::ProxyArgs;
use super::{CliFailure, units};
use crate::allocator;
use crate::config::{self, FileSystem};
use crate::cors::Cors;
use crate::http::body::{BodyBudget, BodyLimits};
use crate::join::Join;
use crate::net::listen::DEFAULT_PORT;
use crate::net::socket::SocketPlace;
use crate::private_dir::{self, Privacy};
use crate::saving::saved::OpenedDatabases;
use crate::service::router::ProtocolOptions;
use crate::service::{JobSharing, ServiceOptions, ServiceSource, TlsOptions};
use crate::state::ServerLimits;
use crate::tls::Certificate;
use crate::token::Token;

/// Threads for connections; queries have their own.
const IO_THREADS: usize = 2;
/// Threads for decoding bodies and looking up clients.
const BLOCKING_THREADS_MAX: usize = 32;
/// How long a thread that may wait for disks stays without work. Each has a stack and memory that was freed, and a new one
/// takes a tenth of a millisecond; one that is asked every second stays.
const IDLE_THREAD_KEEP: Duration = Duration::from_millis(1_500);

/// Most bytes of a database that lies in memory: it is the job's.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// The contents of a private directory, for a warning that they are elsewhere.
pub const LIVE_DATA: &str = "the live data are";

/// A service that takes samples.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Directory of the live database
    ///
    /// It is created if it does not exist [default: ${TELEM_DATA:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}/telem-UID/JOB/NODE;
    /// if that cannot be used, `run` takes /tmp, /dev/shm, or a place beside --save].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Name of this node [default: the short host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Take the database over from a writer that seems to run, or that ran on another machine
    #[arg(long, hide_short_help = true)]
    take_over: bool,
    #[command(flatten)]
    collect: CollectArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten, next_help_heading = "Retention")]
    retention: RetentionArgs,
    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
    #[command(flatten, next_help_heading = "Limits")]
    write_limits: WriteLimitArgs,
}

/// What is dropped, a file at a time: here, and with it from the copy of `--save`.
#[derive(Debug, Args)]
struct RetentionArgs {
    /// Drop samples this much older than the newest one, such as 30d, and reject older ones [default: keep all]
    ///
    /// Only whole segments are dropped, so some samples stay a quarter of that longer, or an hour.
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = units::age)]
    retention_age: Option<Duration>,
    /// Drop the oldest samples while the files of the database are larger than this, such as 10GiB
    /// [default: keep all]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    retention_bytes: Option<usize>,
}

/// Where a service listens, which clients it admits, and how it answers.
#[derive(Debug, Args)]
pub struct ReachArgs {
    /// Where to listen [default: 127.0.0.1:4242]
    ///
    /// If the default port is taken, the next free one is used. Port 0 is any free port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Answer like OpenTSDB 2.4 even where that misleads
    #[arg(long, hide_short_help = true)]
    pub opentsdb_exact: bool,
    /// Origins (SCHEME://HOST[:PORT], separated by commas) whose pages may send requests from a browser. With * any
    /// page that you open can read and write everything that you may [default: none]
    #[arg(long, hide_short_help = true, value_name = "LIST", value_parser = Cors::parse)]
    pub cors_domains: Option<Cors>,
    /// A user (name or number) whose processes need no token
    ///
    /// Such as Grafana's on this machine; may be repeated.
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub allow_user: Vec<String>,
    /// Require the token over TCP of your own processes, too
    ///
    /// A tunnel that begins on a machine which others use lets all of them in as you: this closes that. The Unix socket
    /// needs no token. Lines of OpenTSDB's telnet and datagrams cannot carry one, and are refused.
    #[arg(long, hide_short_help = true)]
    pub require_token: bool,
    /// Where to write URL, socket and token, readable by you alone [default: connection.json in the data directory; of `replay`, beside the socket]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub connection_file: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub dragon: DragonArgs,
    #[command(flatten)]
    pub proxy: ProxyArgs,
}

impl ReachArgs {
    /// Reads Dragon's YAML, if there is one. What its user is told of it.
    ///
    /// # Errors
    /// Usage for a file that says something else than it should.
    pub fn settle(&mut self, host: DragonHost) -> Result<Vec<String>, CliFailure> {
        let config = self.dragon.read()?;
        let notes = config.as_ref().map(|config| dragon::notes(config, host)).unwrap_or_default();
        self.dragon.settle(config);
        Ok(notes)
    }

    /// The port that is tried first where none is named.
    pub fn first_port(&self) -> Option<u16> {
        self.dragon.config()?.aggregator_port
    }
}

/// With which certificate a service speaks TLS.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// Serve HTTPS with this certificate (PEM, with its chain); on loopback HTTP is served as well
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve HTTPS with a certificate made for this run, which the connection file names
    #[arg(long, hide_short_help = true, conflicts_with = "tls_cert")]
    pub tls: bool,
}

impl TlsArgs {
    fn options(&self) -> TlsOptions {
        TlsOptions { own: self.tls_cert.clone().zip(self.tls_key.clone()), job: None, is_made: self.tls }
    }
}

/// Limits of queries; each has a sensible default.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Memory that all queries share [default: 512MiB; of `node` what its head says, else 128MiB]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    query_memory: Option<usize>,
    /// Longest time of one query [default: 60s]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = units::duration)]
    query_deadline: Option<Duration>,
    /// Most queries running at once [default: 16]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    queries_max: Option<usize>,
    /// Largest body of a request, decompressed [default: 64MiB]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    body_bytes_max: Option<usize>,
    /// Memory that the bodies of all requests share [default: 256MiB]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    bodies_bytes_max: Option<usize>,
    /// Most connections that are open at once [default: 512]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    connections_max: Option<usize>,
}

/// Limits of ingest; each has a sensible default.
#[derive(Debug, Args)]
struct WriteLimitArgs {
    /// Most samples that wait to be written [default: 1048576]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    queue_samples_max: Option<usize>,
    /// Most batches that wait to be written [default: 16384]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    queue_batches_max: Option<usize>,
    /// Largest size of all files of the database [default: 1GiB if they are in memory, else no limit]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = units::bytes)]
    data_bytes_max: Option<usize>,
    /// Most series in the database [default: 10000000]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    series_max: Option<u32>,
}

/// Reads a level.
pub fn level(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|level| *level <= 4).ok_or_else(|| format!("'{text}' is not a level; there are 0 to 4"))
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("'{text}' is not a number above 0"))
}

pub fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong =
        |why: &str| format!("'{text}' is not an ADDR:PORT ({why}); write 127.0.0.1:4242, or :4242 for loopback");
    let text = text.strip_prefix(':').map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let mut addresses = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("no such host"))
}

/// The threads of a service; each calls `on_start` first.
///
/// # Errors
/// Failed when the operating system gives no thread.
pub fn runtime(on_start: fn()) -> Result<tokio::runtime::Runtime, CliFailure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(IDLE_THREAD_KEEP)
        .thread_name("telem-io")
        .on_thread_start(on_start)
        .on_thread_park(allocator::give_back_at_rest)
        .enable_all()
        .build()
        .map_err(CliFailure::failed)
}

/// What [`ServiceArgs`] alone do not say.
#[derive(Debug)]
pub struct Purpose {
    pub job: String,
    /// Highest level of samples to keep.
    pub level: u8,
}

impl ServiceArgs {
    /// # Errors
    /// Usage for an invalid name.
    pub fn node(&self) -> Result<String, CliFailure> {
        config::node(self.node.as_deref(), &config::host_name()).map_err(CliFailure::usage)
    }

    /// How often the node is sampled.
    pub fn interval(&self) -> Duration {
        self.collect.interval()
    }

    /// Reads Dragon's YAML, if there is one, and takes from it what the command line does not say. What its user is told
    /// of it.
    ///
    /// # Errors
    /// Usage for a file that says something else than it should.
    pub fn settle(&mut self, host: DragonHost) -> Result<Vec<String>, CliFailure> {
        let notes = self.reach.settle(host)?;
        let Some(config) = self.reach.dragon.config() else { return Ok(notes) };
        if let Some(interval) = config.collector_rate {
            if check_interval(interval).is_err() {
                return Err(CliFailure::usage(format!(
                    "the telemetry config {}: collector_rate is {}: expected seconds from 0.1 to 3600",
                    config.path.display(),
                    interval.as_secs_f64()
                )));
            }
            self.collect.suggest_interval(interval);
        }
        // What a run saves is not cut because of a default that somebody copied.
        if host == DragonHost::Serve {
            self.retention.retention_age = self.retention.retention_age.or(config.default_tmdb_window);
        }
        Ok(notes)
    }

    /// Below which live data are, where Dragon's YAML says it.
    pub fn data_base(&self) -> Option<PathBuf> {
        self.reach.dragon.config()?.default_tmdb_dir.clone()
    }

    /// The options of a service. `default_data` is asked, with the job and the node, unless `--data` says where.
    ///
    /// # Errors
    /// Usage for invalid names; Failed when the directory cannot be created.
    pub fn options(
        self,
        purpose: Purpose,
        default_data: impl FnOnce(&str, &str) -> Result<PathBuf, CliFailure>,
    ) -> Result<ServiceOptions, CliFailure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let node = self.node()?;
        let collect = self.collect.options(purpose.level, &node)?;
        let data = match self.data {
            Some(dir) => wanted_data(&dir)?,
            None => default_data(&purpose.job, &node)?,
        };
        let retention = Retention {
            age: self.retention.retention_age,
            bytes: self.retention.retention_bytes.map(|bytes| bytes as u64),
        };
        let engine = engine_options(&self.write_limits, self.take_over, retention, &data, &node, &clock);
        let writer = writer_options(&self.write_limits, self.retention.retention_age, &clock);
        let options = options(self.reach, &self.limits, ServiceSummary { data, job: purpose.job, node }, clock)?;
        Ok(ServiceOptions { level: purpose.level, collect, engine, writer, ..options })
    }
}

/// The service of a node of a job: what the job does not say.
#[derive(Debug, Args)]
pub struct NodeServiceArgs {
    /// Where proc and sys are read: the host's root as a container sees it, or a recording
    #[arg(long, hide_short_help = true, value_name = "DIR", default_value = "/")]
    sysroot: PathBuf,
    /// Take the database over from a writer that seems to run, or that ran on another machine
    #[arg(long, hide_short_help = true)]
    take_over: bool,
    #[command(flatten)]
    reach: ReachOfNode,
    #[command(flatten, next_help_heading = "Limits")]
    limits: LimitArgs,
    #[command(flatten, next_help_heading = "Limits")]
    write_limits: WriteLimitArgs,
}

/// Which clients a node admits, besides its job.
#[derive(Debug, Args)]
struct ReachOfNode {
    /// A user (name or number) whose processes on this node need no token; may be repeated
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    allow_user: Vec<String>,
    /// Where to write URL, socket and token, readable by you alone [default: connection.json in the data directory]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    connection_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Memory that all queries of a node share: the job's processes need it more.
pub(crate) const NODE_QUERY_MEMORY: usize = 128 << 20;
/// Longest that requests which still run are waited for when a node ends.
const NODE_REQUESTS_TIMEOUT: Duration = Duration::from_secs(1);

impl NodeServiceArgs {
    /// The options of the service of `node`, whose data is in `data`.
    ///
    /// # Errors
    /// Usage for an invalid user or token.
    pub fn options(&self, join: &Join, node: &str, data: &Path) -> Result<ServiceOptions, CliFailure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut collect = CollectArgs::of(join.interval, self.sysroot.clone()).options(join.level, node)?;
        collect.follow(JobTarget::of_node(&join.job));
        let reach = ReachArgs {
            listen: None,
            opentsdb_exact: false,
            cors_domains: None,
            allow_user: self.reach.allow_user.clone(),
            require_token: false,
            connection_file: self.reach.connection_file.clone(),
            tls: self.reach.tls.clone(),
            dragon: DragonArgs::default(),
            proxy: ProxyArgs::default(),
        };
        let shown = ServiceSummary { data: data.to_path_buf(), job: join.job.clone(), node: node.to_owned() };
        let options = options(reach, &self.limits, shown, Arc::clone(&clock))?;
        let mut tls = options.tls.clone();
        tls.job = join.certificate.clone().zip(join.key.clone()).map(|(chain, key)| Certificate {
            chain,
            key,
            from: "the join file".to_owned(),
        });
        let mut queries = options.queries.clone();
        if self.limits.query_memory.is_none() {
            let memory = join.query_memory.and_then(|bytes| usize::try_from(bytes).ok());
            queries.memory_bytes_max = memory.unwrap_or(NODE_QUERY_MEMORY);
        }
        let limits = ServerLimits { shutdown_timeout: NODE_REQUESTS_TIMEOUT, ..options.limits.clone() };
        Ok(ServiceOptions {
            level: join.level,
            collect: CollectOptions { at_ends: true, ..collect },
            engine: engine_options(&self.write_limits, self.take_over, Retention::default(), data, node, &clock),
            writer: WriterOptions {
                // Where a node is saved, that is done from memory if its live data are gone.
                when_removed: if join.save.is_some() { WhenRemoved::KeepInMemory } else { WhenRemoved::Refuse },
                ..writer_options(&self.write_limits, None, &clock)
            },
            token: Some(Token::chosen(&join.token).map_err(CliFailure::usage)?),
            // A head beyond loopback tells its command one path for all nodes.
            socket_place: if tls.job.is_some() { SocketPlace::Common } else { options.socket_place },
            tls,
            is_member: true,
            queries,
            limits,
            ..options
        })
    }
}

/// How the database of a live service is opened.
fn engine_options(
    args: &WriteLimitArgs,
    take_over: bool,
    retention: Retention,
    data: &Path,
    node: &str,
    clock: &Arc<dyn Clock>,
) -> Options {
    let bytes_max = match (args.data_bytes_max, config::file_system(data)) {
        (Some(bytes), _) => bytes as u64,
        (None, Ok(FileSystem::Memory)) => MEMORY_BYTES_MAX,
        (None, _) => u64::MAX,
    };
    let engine = Options::default();
    Options {
        node: node.to_owned(),
        take_over,
        bytes_max,
        retention,
        series_max: args.series_max.unwrap_or(engine.series_max),
        clock: Arc::clone(clock),
        ..engine
    }
}

/// What a service says of itself.
#[derive(Debug)]
pub struct ServiceSummary {
    pub data: PathBuf,
    pub job: String,
    pub node: String,
}

/// The options of a service over saved databases, which their writers may still write.
///
/// # Errors
/// Usage for an invalid user or token.
pub fn saved_options(
    opened: OpenedDatabases,
    reach: ReachArgs,
    limits: &LimitArgs,
    shown: ServiceSummary,
) -> Result<ServiceOptions, CliFailure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut options = options(reach, limits, shown, clock)?;
    options.queries.absent = opened.absent();
    Ok(ServiceOptions { source: ServiceSource::Saved(opened.db), ..options })
}

/// A live service of level 0, with what `reach` and `limits` say.
fn options(
    reach: ReachArgs,
    limits: &LimitArgs,
    shown: ServiceSummary,
    clock: Arc<dyn Clock>,
) -> Result<ServiceOptions, CliFailure> {
    let allowed_uids = reach.allow_user.iter().map(|user| config::uid_of(user));
    let allowed_uids = allowed_uids.collect::<Result<_, _>>().map_err(CliFailure::usage)?;
    let token = config::environment("TELEM_TOKEN").map(|text| Token::chosen(&text)).transpose();
    let runtime_dir = config::environment("XDG_RUNTIME_DIR").map(PathBuf::from);
    let uid = rustix::process::getuid().as_raw();
    let ServiceSummary { data, job, node } = shown;
    let dragon = reach.dragon.options()?;
    let proxy = reach.proxy.options()?;
    Ok(ServiceOptions {
        source: ServiceSource::Live,
        data,
        job,
        job_sharing: JobSharing::One,
        collect: CollectOptions::new(0, &node),
        node,
        listen: reach.listen,
        first_port: reach.first_port().unwrap_or(DEFAULT_PORT),
        is_tunnelled: false,
        connection_file: reach.connection_file,
        token: token.map_err(CliFailure::usage)?,
        uid,
        allowed_uids,
        is_token_required: reach.require_token,
        socket_place: SocketPlace::OfUser { xdg_runtime_dir: runtime_dir },
        level: 0,
        fidelity: if reach.opentsdb_exact { Fidelity::OpenTsdb } else { Fidelity::Sensible },
        cors: reach.cors_domains.unwrap_or_default(),
        limits: server_limits(limits),
        protocols: ProtocolOptions { dragon, proxy, ..ProtocolOptions::default() },
        engine: Options { clock: Arc::clone(&clock), ..Options::default() },
        writer: WriterOptions { clock: Arc::clone(&clock), ..WriterOptions::default() },
        queries: query_options(limits, &clock),
        clock,
        tls: reach.tls.options(),
        head: None,
        is_member: false,
        head_in_sight: None,
        // A server that is told to stop must stop soon; a run, whose database must be complete then, sets its own.
        hurry: Arc::new(AtomicBool::new(true)),
    })
}

fn server_limits(args: &LimitArgs) -> ServerLimits {
    let default = ServerLimits::default();
    ServerLimits {
        bodies: BodyLimits {
            bytes_max: args.body_bytes_max.unwrap_or(default.bodies.bytes_max),
            budget: args.bodies_bytes_max.map_or(default.bodies.budget, BodyBudget::new),
            ..default.bodies
        },
        connections_max: args.connections_max.unwrap_or(default.connections_max),
        ..default
    }
}

fn writer_options(args: &WriteLimitArgs, age_max: Option<Duration>, clock: &Arc<dyn Clock>) -> WriterOptions {
    let default = WriterOptions::default();
    WriterOptions {
        limits: Limits { age_max, ..default.limits },
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

/// # Errors
/// Failed.
pub fn wanted_data(dir: &Path) -> Result<PathBuf, CliFailure> {
    // The connection file names it to processes that run elsewhere.
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    make(&dir, 0o777)?;
    Ok(dir)
}

/// The environment with another TELEM_DATA, if `base` names one.
pub fn with_data_base(base: Option<&Path>) -> impl Fn(&str) -> Option<String> {
    let base = base.map(|base| base.to_string_lossy().into_owned());
    move |name| match (&base, name) {
        (Some(base), "TELEM_DATA") => Some(base.clone()),
        _ => config::environment(name),
    }
}

/// The directory of a service that goes on where the last one of that job stopped; below `base`, if that is named.
///
/// # Errors
/// Failed when it cannot be made.
pub fn standing_data(job: &str, node: &str, base: Option<&Path>) -> Result<PathBuf, CliFailure> {
    let dir = private_data(job, base)?.join(node);
    make(&dir, 0o700)?;
    Ok(dir)
}

/// Where the default directories of a job stand, below a directory that is ours alone.
fn private_data(job: &str, base: Option<&Path>) -> Result<PathBuf, CliFailure> {
    let uid = rustix::process::getuid().as_raw();
    let bases = config::data_bases(with_data_base(base));
    let base = bases.first().map_or(Path::new("/tmp"), |base| &base.path);
    make(base, 0o777)?;
    let found = private_dir::below(base, &config::private_name(uid), uid, Privacy::Closed).map_err(|error| {
        let base = base.display();
        CliFailure::Failed(format!("no live data in {base}: {error}; name another directory with --data DIR"))
    })?;
    found.tell_passed(LIVE_DATA);
    Ok(found.path.join(job))
}

/// # Errors
/// Failed.
pub fn make(dir: &Path, mode: u32) -> Result<(), CliFailure> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.map_err(|error| cannot_make(dir, &error))
}

fn cannot_make(dir: &Path, error: &io::Error) -> CliFailure {
    CliFailure::Failed(format!("cannot create the data directory {}: {error}", dir.display()))
}
