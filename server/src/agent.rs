//! The agent of one node from start to end: storage, collectors and service of the node, as a member of a job.
//!
//! An agent runs in rounds: if its head comes back with other secrets, everything is closed in order and opened again
//! with the new ones. Samples do not wait for a head. If there is no head at the start, the agent waits a moment,
//! because the head may have a name for the node; then it begins without one.

mod keeper;
pub(crate) mod member;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use telem_engine::{Clock, Db, Options};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use self::keeper::Keeper;
use self::member::{AgentMember, MemberPast, MemberVerdict, Retry};
use crate::join::{self, Join, Lifeline};
use crate::membership::link::{Identity, Link, LinkError};
use crate::membership::{self, forward};
use crate::net::listen::{ListenError, listen, listen_everywhere};
use crate::protocols::dragon::node::DragonPort;
use crate::protocols::proxy::keeping;
use crate::saving::save::Saved;
use crate::service::own_job::{Former, name_job};
use crate::service::{self, Ready, ServiceError, ServiceOptions};
use crate::token::TokenError;

/// How long the head may take to give a name to a node that has none yet.
pub(crate) const NAME_WAIT: Duration = Duration::from_secs(5);
/// How long it may take to refuse a node that has one.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// Longest that an agent which ends waits until its head, which looks every second, has what its clients counted last. They
/// are hung up on before, which may take a second.
const LAST_LOOK_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Longest time to stop everything after a signal, without that look and the farewell.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);
/// The same at the end of a job, without hurry: the database is merged first.
const END_TIMEOUT: Duration = Duration::from_secs(90);
/// By which a directory is known to hold a database.
const MANIFEST: &str = "MANIFEST";

/// Where the data of a node stand, by its name.
pub type PlaceOf = Box<dyn Fn(&Join, &str) -> Result<PathBuf, String> + Send + Sync>;
/// The service of a node, by its name and the place of its data.
pub type PrepareNode = Box<dyn Fn(&Join, &str, &Path) -> Result<ServiceOptions, String> + Send + Sync>;

/// What an agent is started with.
pub struct AgentOptions {
    /// The join file, or `-`.
    pub source: PathBuf,
    pub join: Join,
    /// The sign that the process that started it is gone, or the connection to it.
    pub lifeline: Lifeline,
    /// The name that it wants.
    pub node: String,
    /// The machine and what tells agents on it apart.
    pub home: String,
    pub host: String,
    /// `None`: any free port; on loopback where the head is there, else everywhere.
    pub listen: Option<SocketAddr>,
    pub advertise: Option<String>,
    /// Dragon's port, where there is one.
    pub dragon: Option<DragonPort>,
    pub place: PlaceOf,
    /// The live data was not asked to stay: it is removed when it is saved.
    pub is_passing: bool,
    pub prepare: PrepareNode,
    /// Called when a life has begun.
    pub ready: Box<dyn Fn(&Ready) + Send + Sync>,
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentOptions").field("join", &self.join).field("node", &self.node).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{0}")]
    Place(String),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("the listener has no address: {0}")]
    Address(#[source] std::io::Error),
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The head does not want this node.
    #[error(transparent)]
    Refused(LinkError),
    #[error("the database in {} cannot be opened: {source}", dir.display())]
    Database { dir: PathBuf, source: telem_engine::Error },
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("the service ended unexpectedly")]
    Ended,
    #[error("closing took more than {} s; unflushed samples are in the WAL and are there at the next start", STOP_TIMEOUT.as_secs())]
    Slow,
}

/// Why an agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEnd {
    /// It was told to, by a signal.
    Stopped,
    /// The head said that the job is over.
    JobOver,
    /// There had been no head for so long.
    HeadGone(Duration),
    /// The process that started it is gone, and there is no head.
    Orphaned,
}

impl std::fmt::Display for AgentEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::JobOver => f.write_str("the job is over"),
            Self::Orphaned => f.write_str("the head that started this agent is gone"),
            Self::HeadGone(after) => write!(f, "there has been no head for {} s", after.as_secs()),
        }
    }
}

/// Runs until `stop` is true, the job is over, or its head has been gone for too long.
///
/// # Errors
/// [`AgentError`].
pub async fn run(mut options: AgentOptions, mut stop: watch::Receiver<bool>) -> Result<AgentEnd, AgentError> {
    let mut port = options.listen;
    loop {
        match live(&options, &mut port, &mut stop).await? {
            AfterLife::End(ended) => return Ok(ended),
            AfterLife::Again(join) => {
                tracing::info!(head = ?join.head, "a head came back elsewhere or with other secrets; starting again for it");
                options.join = *join;
            }
        }
    }
}

/// What follows a life.
enum AfterLife {
    End(AgentEnd),
    Again(Box<Join>),
}

async fn live(
    options: &AgentOptions,
    port: &mut Option<SocketAddr>,
    stop: &mut watch::Receiver<bool>,
) -> Result<AfterLife, AgentError> {
    let tcp = listener(&options.join, *port).await?;
    let listens = tcp.local_addr().map_err(AgentError::Address)?;
    // In the next life too: others may know it.
    *port = Some(listens);
    let (mut identity, mut data) = identify(options, listens).await?;
    let named = tokio::select! {
        named = name(options, &identity) => named?,
        _ = stop.wait_for(|stop| *stop) => return Ok(AfterLife::End(AgentEnd::Stopped)),
    };
    if let Some(link) = &named
        && link.joined.node != identity.node
    {
        identity.node.clone_from(&link.joined.node);
        data = (options.place)(&options.join, &identity.node).map_err(AgentError::Place)?;
        identity.data.clone_from(&data);
    }
    // From now on the database has that name.
    identity.is_fixed = true;
    let mut service = (options.prepare)(&options.join, &identity.node, &data).map_err(AgentError::Place)?;
    let hurry = Arc::new(AtomicBool::new(false));
    service.hurry = Arc::clone(&hurry);
    let (in_sight, seen) = watch::channel(None);
    service.head_in_sight = Some(seen);
    let member = AgentMember {
        source: options.source.clone(),
        join: options.join.clone(),
        lifeline: options.lifeline.clone(),
        identity,
        clock: Arc::clone(&options.clock),
        in_sight,
        question_max: service.queries.deadline + forward::GRACE,
        link: named,
        past: MemberPast::default(),
    };
    serve(options, tcp, service, member, &hurry, stop).await
}

async fn serve(
    options: &AgentOptions,
    tcp: TcpListener,
    service: ServiceOptions,
    member: AgentMember,
    hurry: &AtomicBool,
    stop: &mut watch::Receiver<bool>,
) -> Result<AfterLife, AgentError> {
    let (stop_service, stopped) = oneshot::channel();
    let (tell_queries, queries) = oneshot::channel();
    let (tell_keeper, db_to_keep) = oneshot::channel::<Db>();
    let opened = OnceLock::new();
    let (proxy, head) = (&service.protocols.proxy, service.head_in_sight.clone());
    let (looks, clients) = (Arc::clone(&proxy.looks), Arc::clone(&proxy.clients));
    let job = member.join.job.clone();
    let ready = |ready: &Ready| {
        (options.ready)(ready);
        // What ran is known to the head, which describes the job.
        name_job(ready.db.clone(), job, Former::Replaced);
        // Its waiting callers live as long as the service.
        let tallies = ready.writer.as_ref().map(|writer| Arc::clone(writer.tallies())).unwrap_or_default();
        let _ = tell_queries.send((ready.queries.clone(), tallies));
        let _ = tell_keeper.send(ready.db.clone());
        opened.get_or_init(|| ready.db.clone());
    };
    let data = service.data.clone();
    let (join, source, node) = (member.join.clone(), member.source.clone(), member.identity.node.clone());
    let keeping = tokio::spawn(async move { Keeper::start(db_to_keep.await.ok()?, join, source, node).await });
    let served = service::run_on(tcp, service, ready, async { stopped.await.unwrap_or(()) });
    tokio::pin!(served);
    let (tell_verdict, verdict) = oneshot::channel();
    let (leave, left) = oneshot::channel();
    let staying = tokio::spawn(async move {
        if let Ok((queries, tallies)) = queries.await {
            member.stay(queries, tallies, tell_verdict, left).await;
        }
    });
    let next = tokio::select! {
        biased;
        served = &mut served => {
            staying.abort();
            keeping.abort();
            return served.map_err(AgentError::from).and(Err(AgentError::Ended));
        }
        _ = stop.wait_for(|stop| *stop) => AfterLife::End(AgentEnd::Stopped),
        Ok(verdict) = verdict => match verdict {
            MemberVerdict::Ended => AfterLife::End(AgentEnd::JobOver),
            MemberVerdict::HeadGone(after) => AfterLife::End(AgentEnd::HeadGone(after)),
            MemberVerdict::Orphaned => AfterLife::End(AgentEnd::Orphaned),
            MemberVerdict::Anew(join) => AfterLife::Again(join),
        },
    };
    let is_calm = matches!(next, AfterLife::End(AgentEnd::JobOver | AgentEnd::HeadGone(_) | AgentEnd::Orphaned));
    hurry.store(!is_calm, Ordering::Relaxed);
    let has_head = head.is_some_and(|head| head.borrow().is_some());
    if has_head && opened.get().is_some_and(keeping::is_used) {
        // Else the sums of the job would lack what came since its last look, for good if this node does not return.
        tokio::select! {
            biased;
            served = &mut served => {
                staying.abort();
                keeping.abort();
                return served.map_err(AgentError::from).and(Err(AgentError::Ended));
            }
            () = async {
                // What they count is final then.
                clients.dismiss().await;
                let _ = tokio::time::timeout(LAST_LOOK_TIMEOUT, looks.next()).await;
            } => {}
        }
    }
    // The service listens to it as long as it runs.
    let _ = stop_service.send(());
    let begun = options.clock.monotonic();
    let closed = close(&mut served, is_calm, hurry, stop).await;
    let keeper = keeping.await.ok().flatten();
    // In the next life too: it goes on with the copy, whose lock is given back now.
    if let (Ok(()), Some(keeper)) = (&closed, keeper) {
        let is_passing = options.is_passing && matches!(next, AfterLife::End(_));
        let left = STOP_TIMEOUT.saturating_sub(options.clock.monotonic().saturating_sub(begun));
        let patience = if is_calm { options.join.save_timeout } else { left };
        finish(keeper, patience, is_passing.then_some(&*data), stop).await;
    }
    let reason = match &next {
        AfterLife::End(ended) => ended.to_string(),
        AfterLife::Again(_) => "starting again".to_owned(),
    };
    // Only now, so that the head knows: what this node has is stored.
    let _ = leave.send(reason);
    let _ = staying.await;
    closed.map(|()| next)
}

/// Saves the rest; what was live is removed once that is done, if it was to be. A signal leaves it a moment more.
async fn finish(keeper: Keeper, patience: Duration, passing: Option<&Path>, stop: &mut watch::Receiver<bool>) {
    let was_told = *stop.borrow();
    let hurried = async {
        if was_told {
            std::future::pending::<()>().await;
        }
        let _ = stop.wait_for(|stop| *stop).await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    let saved = tokio::select! {
        saved = keeper.finish(patience) => saved,
        () = hurried => None,
    };
    match saved {
        Some(Saved { failed: None, dir, .. }) => {
            tracing::info!(dir = %dir.display(), "saved");
            if let Some(live) = passing {
                discard(live.to_path_buf()).await;
            }
        }
        Some(Saved { failed: Some(why), dir, .. }) => {
            tracing::error!(dir = %dir.display(), why, "the copy is not complete; the missing samples are in the live data");
        }
        None => tracing::error!("saving took too long; the missing samples are in the live data"),
    }
}

async fn discard(live: PathBuf) {
    let discarded = tokio::task::spawn_blocking(move || {
        let removed = std::fs::remove_dir_all(&live);
        // Other nodes of the job may have data beside it.
        let _ = live.parent().map(std::fs::remove_dir);
        removed.map_err(|error| (live, error))
    });
    if let Ok(Err((live, error))) = discarded.await {
        tracing::warn!(dir = %live.display(), %error, "the live data stay");
    }
}

/// Waits until the service has closed its database; hurries once it is told to.
async fn close(
    served: &mut (impl Future<Output = Result<(), ServiceError>> + Unpin),
    is_calm: bool,
    hurry: &AtomicBool,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), AgentError> {
    if is_calm {
        tokio::select! {
            biased;
            served = &mut *served => return Ok(served?),
            _ = stop.wait_for(|stop| *stop) => {}
            () = tokio::time::sleep(END_TIMEOUT) => {}
        }
        hurry.store(true, Ordering::Relaxed);
    }
    let closed = tokio::time::timeout(STOP_TIMEOUT, served).await;
    Ok(closed.map_err(|_| AgentError::Slow)??)
}

/// Where this agent listens: not beyond loopback if its head does not.
async fn listener(join: &Join, wanted: Option<SocketAddr>) -> Result<TcpListener, AgentError> {
    let heads = join.heads().unwrap_or_default();
    match wanted {
        Some(address) => Ok(listen(Some(address)).await?),
        None if heads.iter().all(join::is_loopback) => Ok(listen(Some(([127, 0, 0, 1], 0).into())).await?),
        None => Ok(listen_everywhere().await?),
    }
}

/// The identity of this agent before a head changes it, and the place of its data.
async fn identify(options: &AgentOptions, listens: SocketAddr) -> Result<(Identity, PathBuf), AgentError> {
    let data = (options.place)(&options.join, &options.node).map_err(AgentError::Place)?;
    let found = tokio::task::spawn_blocking({
        let data = data.clone();
        move || name_of(&data)
    });
    let named = found.await.unwrap_or(Ok(None));
    let named = named.map_err(|source| AgentError::Database { dir: data.clone(), source })?;
    let identity = Identity {
        is_fixed: named.is_some(),
        node: named.unwrap_or_else(|| options.node.clone()),
        home: options.home.clone(),
        incarnation: membership::random_id()?,
        host: options.host.clone(),
        data: data.clone(),
        listens,
        advertise: options.advertise.clone(),
        dragon_moved: options.dragon.as_ref().and_then(|port| Some((port.wanted(), port.moved()?.to_owned()))),
    };
    Ok((identity, data))
}

/// The name of the node whose database is in `dir`, if there is one.
fn name_of(dir: &Path) -> telem_engine::Result<Option<String>> {
    if !dir.join(MANIFEST).exists() {
        return Ok(None);
    }
    let db = Db::open_read_only(dir, Options::default())?;
    Ok(Some(db.info()?.node))
}

/// The head's word on the name, if it says one soon.
async fn name(options: &AgentOptions, identity: &Identity) -> Result<Option<Link>, AgentError> {
    let mut retry = Retry::new(&identity.incarnation);
    let asking = async {
        loop {
            match Link::join(&options.join, identity, &options.clock).await {
                Ok(link) => return Ok(link),
                Err(error @ LinkError::Refused { .. }) => return Err(AgentError::Refused(error)),
                Err(error) => tracing::debug!(%error, "no head yet"),
            }
            tokio::time::sleep(retry.next()).await;
        }
    };
    let patience = if identity.is_fixed { REFUSAL_WAIT } else { NAME_WAIT };
    match tokio::time::timeout(patience, asking).await {
        Ok(link) => link.map(Some),
        Err(_) => {
            tracing::warn!(head = ?options.join.head, "the head does not answer; this node begins without it");
            Ok(None)
        }
    }
}
