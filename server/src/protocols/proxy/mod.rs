//! What clients of Metric Proxy v2 talk to: its socket, and its HTTP API. docs/proxy.md says what is the same, what is
//! better and what is refused.
//!
//! Clients keep counters and gauges by name. Their [`socket`] brings values into the [`live`] table, which answers every
//! question about the present; at each tick it is written as samples. A job is a [`run`](runs): it has a lane of the
//! table while clients of it have [`seats`], and leaves a profile. What must outlive this process beside samples is
//! [`kept`](keeping) as records of the database, of which the next one makes its [`revival`].
//!
//! [`runs`], [`targets`] and the [`tree`] are what is known, and [`live`] holds them together. What acts on that or answers
//! stands above it, and keeps itself what it alone knows, as [`alarms`] does.

pub(crate) mod alarms;
pub mod calls;
pub mod clients;
mod climb;
mod forgetting;
pub(crate) mod ftio;
mod jobs;
pub(crate) mod keeping;
pub(crate) mod live;
mod metrics;
pub(crate) mod models;
pub(crate) mod own;
mod pages;
mod pivot;
mod profiles;
pub(crate) mod program;
mod push;
pub(crate) mod queue;
pub(crate) mod reply;
mod revival;
pub(crate) mod runs;
pub(crate) mod scrapes;
mod seats;
pub(crate) mod shapes;
pub(crate) mod socket;
mod system;
pub(crate) mod tags;
pub(crate) mod targets;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod told;
pub(crate) mod traces;
pub(crate) mod tree;

use std::ffi::OsString;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::{Router, middleware};
use futures::future::BoxFuture;
use telem_ingest::decode::proxy::DescribedJob;

use self::alarms::ProxyAlarms;
use self::clients::ProxyClients;
use self::ftio::FtioCache;
use self::live::ProxyLive;
use self::models::ModelCache;
use self::own::OwnSeat;
use self::queue::QueueCache;
use self::targets::TargetAddress;
use self::targets::node::{HeadLooks, PolledNodes};
use self::tree::TreeShape;
use crate::missing;
use crate::protocol::{Language, ListenerPlace, OwnListener, PartName, Protocol, ValueService};
use crate::state::State;
use crate::token::Token;

/// The port of the original.
pub const DEFAULT_PORT: u16 = 1337;
/// The live table, among what a server holds.
const COUNTERS: PartName = ("counters", "what Metric Proxy's clients count");
/// How often values become samples, where nothing else is said.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(1);

/// What a server is told about Metric Proxy.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// A port of its own, where it is wanted. It does not block.
    pub port: Option<Arc<TcpListener>>,
    /// A socket of its own, where it is wanted.
    pub socket: Option<PathBuf>,
    /// How often values become samples.
    pub period: Duration,
    /// `/metrics` is written as the original does, even where that misleads.
    pub is_exact: bool,
    /// Jobs leave profiles.
    pub has_profiles: bool,
    /// How long names stay in the live table that only jobs have which are over.
    pub idle_names_keep: Duration,
    /// How long profiles are kept.
    pub profiles_keep: Duration,
    /// What a shell runs when an alarm is raised or ends.
    pub on_alarm: Option<String>,
    /// How often FTIO is asked, where it is.
    pub ftio_interval: Duration,
    /// Where squeue, Extra-P and FTIO are looked for, with colons between; `None` is the PATH.
    pub search_path: Option<OsString>,
    /// What is polled, and how often.
    pub targets: Vec<(TargetAddress, Duration)>,
    /// The proxy that this one is to stand below, and how often that is to poll it.
    pub root: Option<(TargetAddress, Duration)>,
    /// What clients may let this server poll.
    pub join: JoinPolicy,
    pub shape: TreeShape,
    /// A path may begin with the token.
    pub has_token_path: bool,
    /// Also where others can read it.
    pub is_plain: bool,
    /// The job that the server was started for.
    pub own_job: Option<DescribedJob>,
    /// Where others find this server; `None` until it listens.
    pub reach: Option<ProxyReach>,
    /// What its head, where it has one, looked at.
    pub looks: Arc<HeadLooks>,
    /// The clients that are connected to its sockets.
    pub clients: Arc<ProxyClients>,
    /// The nodes of its job, where it is the head of one.
    pub nodes: Option<PolledNodes>,
    /// Where proc and sys of the node are.
    pub sysroot: PathBuf,
}

/// What clients may let a server poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPolicy {
    Anywhere,
    /// What is on this machine, unless they show the token.
    #[default]
    Here,
    Nobody,
}

/// Where others find a server, and what they must show.
#[derive(Clone, Debug)]
pub struct ProxyReach {
    pub address: SocketAddr,
    pub token: Token,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            port: None,
            socket: None,
            period: DEFAULT_PERIOD,
            is_exact: false,
            has_profiles: true,
            idle_names_keep: Duration::from_secs(3600),
            profiles_keep: Duration::from_secs(365 * 24 * 3600),
            on_alarm: None,
            ftio_interval: ftio::FTIO_INTERVAL,
            search_path: None,
            targets: Vec::new(),
            root: None,
            join: JoinPolicy::default(),
            shape: TreeShape::default(),
            has_token_path: true,
            is_plain: false,
            own_job: None,
            reach: None,
            looks: Arc::default(),
            clients: Arc::default(),
            nodes: None,
            sysroot: "/".into(),
        }
    }
}

/// Where clients of Metric Proxy find a server of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyPlace {
    pub port: Option<u16>,
    pub socket: Option<PathBuf>,
}

impl fmt::Display for ProxyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metric Proxy's")?;
        if let Some(port) = self.port {
            write!(f, " API at http://127.0.0.1:{port}")?;
        }
        if let Some(socket) = &self.socket {
            write!(f, " socket at {}", socket.display())?;
        }
        Ok(())
    }
}

impl ProxyOptions {
    /// The place, where there is one of its own.
    pub fn place(&self) -> Option<ProxyPlace> {
        let port = self.port.as_ref().and_then(|port| port.local_addr().ok()).map(|address| address.port());
        (port.is_some() || self.socket.is_some()).then(|| ProxyPlace { port, socket: self.socket.clone() })
    }
}

/// Metric Proxy, as far as others speak to it: what is live, and what parts know of their own beside.
#[derive(Debug)]
pub struct MetricProxy {
    live: Arc<ProxyLive>,
    alarms: Arc<ProxyAlarms>,
    models: Arc<ModelCache>,
    rhythms: Arc<FtioCache>,
    queue: Arc<QueueCache>,
    own_seat: OwnSeat,
}

impl MetricProxy {
    /// With everything that an earlier process of this database kept.
    pub fn new(state: Arc<State>, options: ProxyOptions) -> Self {
        let live = ProxyLive::start(state, options);
        revival::restore(&live);
        climb::assume_told(&live);
        let alarms = Arc::new(ProxyAlarms::restored(&live));
        let (models, rhythms, queue, own_seat) = Default::default();
        Self { live, alarms, models, rhythms, queue, own_seat }
    }

    /// Every path of the original.
    fn paths(&self) -> Router {
        let live = &self.live;
        Router::new()
            .merge(jobs::routes())
            .merge(metrics::routes())
            .merge(push::routes())
            .merge(scrapes::routes())
            .merge(pivot::routes())
            .merge(pages::routes())
            .merge(alarms::routes(live, &self.alarms))
            .merge(profiles::routes())
            .merge(models::routes(live, &self.models))
            .merge(traces::routes())
            .merge(ftio::routes(&self.rhythms))
            .merge(queue::routes(live, &self.queue))
            .layer(middleware::map_response_with_state(Arc::clone(live), with_silent_nodes))
            .with_state(Arc::clone(live))
    }
}

impl Protocol for MetricProxy {
    fn routes(self: Arc<Self>) -> Router {
        self.paths()
    }

    fn values(self: Arc<Self>) -> Option<Arc<dyn ValueService>> {
        Some(Arc::new(socket::ProxySocket::new(Arc::clone(&self.live))))
    }

    fn work(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        let live = Arc::clone(&self.live);
        Some(Box::pin(async move {
            own::begin(&live, &self.own_seat).await;
            let alarms = alarms::watch(Arc::clone(&live), Arc::clone(&self.alarms));
            let rhythms = ftio::watch(Arc::clone(&live), Arc::clone(&self.rhythms));
            let (polling, meeting) = (scrapes::run(&live), meet_nodes(&live));
            tokio::join!(tick_forever(&live), polling, meeting, climb::climb(&live), alarms, rhythms);
        }))
    }

    fn farewell(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        let live = Arc::clone(&self.live);
        live.options
            .root
            .is_some()
            .then(|| -> BoxFuture<'static, ()> { Box::pin(async move { climb::leave(&live).await }) })
    }

    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        let live = Arc::clone(&self.live);
        Some(Box::pin(async move {
            own::end(&live, &self.own_seat).await;
            live.close().await;
        }))
    }

    fn held(&self) -> Vec<(PartName, u64)> {
        vec![(COUNTERS, (self.live.table.bytes() + self.live.told.bytes()) as u64)]
    }

    fn listeners(self: Arc<Self>) -> Vec<OwnListener> {
        let options = &self.live.options;
        let port = options.port.clone().map(|port| OwnListener {
            place: ListenerPlace::Bound(port),
            language: Language::Http(self.paths().merge(pages::root()).fallback(unknown)),
        });
        let socket = options.socket.clone().map(|path| OwnListener {
            place: ListenerPlace::Path(path),
            language: Language::Values(Arc::new(socket::ProxySocket::new(Arc::clone(&self.live)))),
        });
        port.into_iter().chain(socket).collect()
    }
}

/// Writes what changed at every tick, and lets go what is over.
async fn tick_forever(live: &Arc<ProxyLive>) {
    if live.store.is_none() {
        return;
    }
    loop {
        live.tick().await;
        seats::forget_old(live).await;
        live.let_idle_names_go();
    }
}

/// Names the nodes of its job of which an answer has what they told before.
async fn with_silent_nodes(Of(live): Of<Arc<ProxyLive>>, mut answer: Response) -> Response {
    if live.options.nodes.is_some()
        && let Some(names) = missing::header(&live.targets.silent_nodes())
    {
        answer.headers_mut().insert(missing::NAME, names);
    }
    answer
}

/// Has the nodes of its job polled, where this is the head of one.
async fn meet_nodes(live: &ProxyLive) {
    if let Some(nodes) = &live.options.nodes {
        live.targets.follow_nodes(nodes, live.options.period).await;
    }
}

/// What the original answers at paths that it does not know.
async fn unknown(_: Request) -> Response {
    reply::nothing_there()
}
