//! A server from start to stop: database, writer, queries, listeners, and their shutdown in reverse order.

mod head;
pub mod own_job;
pub(crate) mod parts;
pub(crate) mod room;
pub mod router;
#[cfg(test)]
mod tests;
mod upkeep;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telem_engine::{Clock, Db, Options, RecoveryReport};
use telem_ingest::collect::{CollectError, CollectOptions};
use telem_ingest::writer::{ShutdownError, Writer, WriterOptions};
use telem_query::tsq::Fidelity;
use telem_query::{Queries, QueryOptions};
use tokio::net::TcpListener;

use crate::allocator;
use crate::config::{self, FileSystem};
use crate::cors::Cors;
use crate::join::{Join, JoinError};
use crate::membership::forward::InSight;
use crate::membership::{self, NodeRoster};
use crate::net;
use crate::net::listen::{ListenError, listen_from};
use crate::net::socket::{SocketError, SocketPlace};
use crate::protocols::dragon::node::DragonPlace;
use crate::protocols::proxy::ProxyPlace;
use crate::saving::upload::Uploads;
use crate::slots;
use crate::state::ServerLimits;
use crate::tls::{Certificate, TlsError};
use crate::token::{Token, TokenError};
use parts::ServiceParts;
use router::ProtocolOptions;
use upkeep::UpkeepThread;

pub use head::HeadOptions;
pub use room::run_even_when_full;

/// How long a sample waits for its fsync on a shared file system: one node should not ask its server more often.
const SHARED_SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// Files that are open beside connections: those of the database, of queries, and of `/proc`.
pub(crate) const FILES_BESIDE: usize = 4_096;
/// Longest that files are merged when the server stops.
const MERGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest that the last flush may take when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server serves.
#[derive(Clone, Debug)]
pub enum ServiceSource {
    /// The database in the data directory, which it writes. It is made if there is none.
    Live,
    /// These databases, open as one, of which nothing is changed.
    Saved(Db),
    /// The database in the data directory, only read until its disk has room.
    NoRoom(Db),
}

/// The jobs whose samples a server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobSharing {
    /// Of one job, whoever sends them.
    #[default]
    One,
    /// Of every job whose processes say that they belong to another one.
    Several,
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    pub source: ServiceSource,
    /// The directory of the database, which exists; of saved ones the directory around them.
    pub data: PathBuf,
    pub job: String,
    pub job_sharing: JobSharing,
    pub node: String,
    /// `None`: loopback, `first_port` or the next free one.
    pub listen: Option<SocketAddr>,
    /// The port that is tried first where nothing else is said.
    pub first_port: u16,
    /// There is to be a port for clients that come through a tunnel.
    pub is_tunnelled: bool,
    /// `None`: `connection.json` in the data directory; of saved databases a file beside the socket.
    pub connection_file: Option<PathBuf>,
    /// `None`: a random one.
    pub token: Option<Token>,
    pub uid: u32,
    /// Users who need no token on loopback and on the socket, besides us and root.
    pub allowed_uids: Vec<u32>,
    /// Over TCP everybody needs the token.
    pub is_token_required: bool,
    /// Where the socket is made.
    pub socket_place: SocketPlace,
    /// 0 where nothing is taken.
    pub level: u8,
    /// What the node is asked for, where its level is 2 or higher.
    pub collect: CollectOptions,
    pub fidelity: Fidelity,
    /// Which pages of other origins may ask.
    pub cors: Cors,
    pub limits: ServerLimits,
    pub protocols: ProtocolOptions,
    pub engine: Options,
    pub writer: WriterOptions,
    pub queries: QueryOptions,
    pub clock: Arc<dyn Clock>,
    pub tls: TlsOptions,
    /// What makes it the head of a job of many nodes.
    pub head: Option<HeadOptions>,
    /// It belongs to a job with a head, and answers what that asks.
    pub is_member: bool,
    /// Of a member: its head, which is asked in its stead.
    pub head_in_sight: Option<InSight>,
    /// Set when the end must come soon: nothing is merged then, or no further.
    pub hurry: Arc<AtomicBool>,
}

/// With which certificates a service speaks TLS; with none of them it does not.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Files of a certificate and its key: the user's own.
    pub own: Option<(PathBuf, PathBuf)>,
    /// That of the job, which an agent has from its head.
    pub job: Option<Certificate>,
    /// One is made. A head that listens beyond loopback makes one anyway.
    pub is_made: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Engine(#[from] telem_engine::Error),
    #[error(transparent)]
    Query(#[from] telem_query::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("cannot write the connection file {}: {source}; choose another --connection-file", path.display())]
    Connection { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("the listener has no address: {0}")]
    Address(#[source] io::Error),
    #[error("the server stopped, but its database did not close: {0}")]
    Close(#[from] ShutdownError),
}

/// A server that is ready, and what the user is told about it.
#[derive(Clone, Debug)]
pub struct Ready {
    pub db: Db,
    pub queries: Queries,
    /// `None` where nothing is written.
    pub writer: Option<Writer>,
    /// The directory of the database.
    pub data: PathBuf,
    /// What recovery found, where it found anything.
    pub recovery: Option<String>,
    pub url: String,
    pub socket: PathBuf,
    pub connection_file: PathBuf,
    /// What agents are to be told, where this is a head.
    pub join: Option<Join>,
    /// The nodes that have joined, where this is a head.
    pub nodes: Option<NodeRoster>,
    /// How far nodes are saved, where this is a head that saves.
    pub uploads: Option<Uploads>,
    /// Whether samples are checked and none is stored: the server is of level 0.
    pub stores_nothing: bool,
    /// Where Dragon's programs find their port, where there is one.
    pub dragon: Option<DragonPlace>,
    /// Where Metric Proxy's clients find a place of their own, where there is one.
    pub proxy: Option<ProxyPlace>,
    /// The port for clients that come through a tunnel, where there is one.
    pub tunnel: Option<u16>,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(recovery) = &self.recovery {
            writeln!(f, "recovery: {recovery}")?;
        }
        if self.stores_nothing {
            writeln!(f, "level 0: samples are checked, and none is stored (--level 1 stores those of users)")?;
        }
        writeln!(f, "socket {}", self.socket.display())?;
        writeln!(f, "connection file {}", self.connection_file.display())?;
        if let Some(dragon) = &self.dragon {
            writeln!(f, "{}", dragon.sentence())?;
        }
        if let Some(proxy) = &self.proxy {
            writeln!(f, "{proxy}")?;
        }
        writeln!(f, "page {}/", self.url)?;
        // Last, so that who waits for this line finds everything in place.
        write!(f, "listening on {}", self.url)
    }
}

/// Serves until `stop`; `ready` is called once everything is in place.
///
/// # Errors
/// What keeps the server from starting; Close when what was stored is not closed in order.
pub async fn run(
    options: ServiceOptions,
    ready: impl FnOnce(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    // First, because it fails fast; clients that come early wait in the backlog.
    let tcp = listen_from(options.listen, options.first_port).await?;
    run_on(tcp, options, ready, stop).await
}

/// As [`run`], on a port that is bound already.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    tcp: TcpListener,
    options: ServiceOptions,
    ready: impl FnOnce(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let db = open(&options).await?;
    run_with(db, tcp, options, ready, stop).await
}

/// As [`run_on`], over a database that is open.
async fn run_with(
    db: Db,
    tcp: TcpListener,
    options: ServiceOptions,
    ready: impl FnOnce(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    if !matches!(options.source, ServiceSource::Live) {
        return serve(options, tcp, db, None, ready, stop).await;
    }
    allow_open_files(options.limits.connections_max + options.protocols.client.connections_max + FILES_BESIDE);
    let writer_options = WriterOptions {
        sync_interval: sync_interval(&options),
        give_back: allocator::give_back,
        ..options.writer.clone()
    };
    let writer = Writer::start(db.clone(), writer_options).map_err(ServiceError::Thread)?;
    let merge = ClosingMerge { db: db.clone(), hurry: Arc::clone(&options.hurry), clock: Arc::clone(&options.clock) };
    let upkeep = UpkeepThread::start(db.clone(), Arc::clone(&options.clock));
    let upkeep = upkeep.inspect_err(|error| tracing::warn!(%error, "no thread to merge files while the server serves"));
    let served = serve(options, tcp, db, Some(writer.clone()), ready, stop).await;
    drop(upkeep);
    if served.is_ok() {
        merge.run(&writer).await;
    }
    // Also when it could not serve: the database was open, and is to be closed in order.
    let closed = writer.shutdown(CLOSE_TIMEOUT).await;
    served.and(closed.map_err(ServiceError::Close))
}

async fn serve(
    options: ServiceOptions,
    tcp: TcpListener,
    db: Db,
    writer: Option<Writer>,
    ready: impl FnOnce(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let parts = parts::build(&options, tcp, db, writer).await?;
    run_parts(parts, ready, stop).await;
    Ok(())
}

/// Lets this process open so many files, as far as it may: mostly it was started with a limit that is meant for programs
/// of few. The command of a job is started by another process, and keeps its own.
fn allow_open_files(files: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(files).unwrap_or(u64::MAX);
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
    if limit.current.is_some_and(|current| current < most)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit })
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Serves until `stop`, and puts away what others find the service by.
async fn run_parts(parts: ServiceParts, ready: impl FnOnce(&Ready), stop: impl Future<Output = ()>) {
    ready(&parts.ready);
    let mut services = parts.services;
    let work = futures::future::join_all(std::mem::take(&mut services.work));
    let working = async {
        work.await;
        std::future::pending().await
    };
    let farewells = futures::future::join_all(std::mem::take(&mut services.farewells));
    let closings = futures::future::join_all(std::mem::take(&mut services.closings));
    let stop = async {
        stop.await;
        farewells.await;
    };
    let serving = net::serve(parts.listeners, services, parts.rules, &parts.limits, stop);
    let watching = async {
        match parts.ready.nodes {
            Some(nodes) => membership::watch_over(nodes, parts.ready.queries).await,
            None => std::future::pending().await,
        }
    };
    let sweeping = async {
        match parts.slots.clone() {
            Some(slots) => slots::watch(slots).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = serving => {}
        () = watching => {}
        () = sweeping => {}
        () = working => {}
        () = allocator::wake_workers_forever(&*parts.clock) => {}
    }
    closings.await;
    if let Some(slots) = parts.slots {
        slots.close();
    }
    if let Some(join_file) = parts.join_file {
        join_file.withdraw().await;
    }
    // Takes as long as one tick: what it sampled is to be written before the database is closed.
    if let Some(collectors) = parts.collectors {
        collectors.stop();
    }
    drop(parts.connection_file);
    drop(parts.dragon_files);
}

/// What is done to a database before it is closed: few large files are quicker to copy and to open than many.
struct ClosingMerge {
    db: Db,
    hurry: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

impl ClosingMerge {
    async fn run(self, writer: &Writer) {
        if self.hurry.load(Ordering::Relaxed) {
            return;
        }
        // Else what still waits would be a small file of its own. A writer that hangs is waited for when it closes.
        let deadline = self.clock.monotonic() + MERGE_TIMEOUT;
        let settled = tokio::time::timeout(MERGE_TIMEOUT, writer.settle()).await;
        if !matches!(settled, Ok(Ok(()))) {
            return;
        }
        match tokio::task::spawn_blocking(move || self.merge(deadline)).await {
            Ok(Ok(())) => {}
            // Closing flushes again, and says if that fails.
            Ok(Err(error)) => tracing::warn!(%error, "small files are not merged"),
            Err(panic) => tracing::error!(%panic, "merging died of a bug"),
        }
    }

    fn merge(&self, deadline: Duration) -> telem_engine::Result<()> {
        let go_on = || !self.hurry.load(Ordering::Relaxed) && self.clock.monotonic() < deadline;
        if go_on() {
            self.db.flush()?;
            self.db.compact_while(&|_| go_on())?;
        }
        Ok(())
    }
}

async fn open(options: &ServiceOptions) -> Result<Db, ServiceError> {
    let (source, data, engine) = (options.source.clone(), options.data.clone(), options.engine.clone());
    // Recovery reads all of the WAL.
    let opened = tokio::task::spawn_blocking(move || match source {
        ServiceSource::Live => Db::open(&data, engine),
        ServiceSource::Saved(db) | ServiceSource::NoRoom(db) => Ok(db),
    })
    .await;
    Ok(opened.map_err(|panic| telem_engine::Error::Internal { what: format!("opening the database: {panic}") })??)
}

/// The report, unless it says that nothing happened.
pub fn noteworthy(report: &RecoveryReport) -> Option<String> {
    let quiet = RecoveryReport { wal_files: report.wal_files, bytes: report.bytes, ..RecoveryReport::default() };
    (!report.created && *report != quiet).then(|| report.to_string())
}

/// As in the options, but for data on a file system that many nodes share; warns of a place that is not a good one.
fn sync_interval(options: &ServiceOptions) -> Duration {
    let (data, wanted) = (options.data.display(), options.writer.sync_interval);
    match config::file_system(&options.data) {
        Ok(FileSystem::Local) => {}
        Ok(FileSystem::Memory) => tracing::warn!(
            %data,
            "the data lies in memory: it takes memory from the job and is gone with the machine; choose another --data"
        ),
        Ok(FileSystem::Shared(name)) => {
            let interval = wanted.max(SHARED_SYNC_INTERVAL);
            tracing::warn!(
                %data,
                file_system = name,
                "the data lies on a shared file system: each sync asks a server that all nodes share, so there is one \
                 in {} s; choose a local --data",
                interval.as_secs()
            );
            return interval;
        }
        Err(error) => tracing::debug!(%error, "the file system of the data is unknown"),
    }
    wanted
}
