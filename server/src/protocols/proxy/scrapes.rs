//! Targets that are polled: other proxies, which are children then, and exporters of Prometheus. `/join` and `-s` add
//! them, and each has a [task](poll) of its own.
//!
//! What a target counts is a lane of the live table, below the sums that it belongs to. A [child](child) tells totals
//! that may begin anew; here they never fall. An [exporter](exporter) shows values, which are taken as they are.

mod address;
mod child;
mod exporter;
pub(crate) mod fetch;
pub(crate) mod node;
mod passed;
mod poll;
pub(super) mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::routing::any;
use serde::{Deserialize, Serialize};
use telem_ingest::counters::{CounterReading, CounterTable, CounterValue, GaugeSource, LaneTags, ScopeId, Withdrawal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::address::{PERIOD_MAX, PERIOD_MIN, TargetAddress};
pub use self::child::CHILD_JOBS_MAX;
use self::fetch::{PlaceFailure, TargetReach};
use self::records::TargetRecord;
use super::live::ProxyLive;
use super::reply::{self, RequestParams};
use super::shapes::JobDesc;
use super::tags::is_node;
use super::{JoinPolicy, ProxyOptions};
use crate::client::Client;
use crate::http::asker::{NO_TOKEN, ShownToken};
use crate::state::State;

/// Most targets.
pub const TARGETS_MAX: usize = 1_000;
/// Which database answers: one whose counters go on after a restart.
pub const LINEAGE: &str = "x-telem-lineage";
/// The period of `/join`, where none is named.
const PERIOD_OF_JOIN: Duration = Duration::from_secs(1);
/// Longest that the last poll of a target that leaves may take.
const LAST_POLL_MAX: Duration = Duration::from_secs(3);
/// How long is waited after a task died of a bug.
const BUG_PAUSE: Duration = Duration::from_secs(1);

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/join", any(join))
        .route("/join/", any(join))
        .route("/join/list", any(list))
        .route("/join/list/", any(list))
        .route("/join/multiple", any(join_multiple))
        .route("/join/multiple/", any(join_multiple))
        .route("/join/{*other}", any(reply::unknown_segment))
}

/// What a target is, as the API calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrapeKind {
    Proxy,
    Prometheus,
}

/// A row of `/join/list`. The last two are there while a target fails.
#[derive(Debug, Serialize)]
struct ScrapeRow {
    target_url: String,
    ttype: &'static str,
    /// Milliseconds.
    period: u64,
    /// Seconds since 1970.
    last_scrape: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
}

/// All targets of this server.
pub struct ProxyScrapes {
    state: Arc<State>,
    policy: JoinPolicy,
    /// By host and port.
    targets: Mutex<BTreeMap<Arc<str>, Arc<ScrapeTarget>>>,
    /// The nodes of children, by their ids.
    nodes: Mutex<BTreeMap<String, ChildNode>>,
    /// The sum of what all exporters show.
    exporters: ScopeId,
    has_exporters: AtomicBool,
    changed: Notify,
    lineage: OnceLock<Option<String>>,
}

/// `Node: x` of children.
#[derive(Debug)]
struct ChildNode {
    desc: JobDesc,
    sum: ScopeId,
    /// How many children have it.
    parts: usize,
}

impl fmt::Debug for ProxyScrapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyScrapes").field("targets", &self.targets().len()).finish_non_exhaustive()
    }
}

/// Something that is polled.
#[derive(Debug)]
pub struct ScrapeTarget {
    /// Its host and port.
    pub key: Arc<str>,
    /// Tells its gauges from those of others.
    number: u32,
    status: Mutex<TargetStatus>,
    wake: Notify,
    /// It was polled for the last time.
    left: Notify,
}

/// Where a target is asked.
#[derive(Clone, Debug)]
enum TargetPlace {
    Address(TargetAddress),
    /// A node of our own job, by name; it is asked once it has joined.
    Node(Arc<str>, Option<Client>),
}

impl fmt::Display for TargetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Node(name, _) => f.write_str(name),
        }
    }
}

#[derive(Debug)]
struct TargetStatus {
    place: TargetPlace,
    /// `None` until it was found out.
    kind: Option<ScrapeKind>,
    period: Duration,
    is_polled: bool,
    is_limited: bool,
    is_running: bool,
    /// It is to be polled once more, and then no more.
    is_leaving: bool,
    last_scrape_s: u64,
    failures: u32,
    error: Option<String>,
    lineage: Option<String>,
    /// When its jobs began.
    starts: BTreeMap<String, u64>,
    /// All that it counts, where it is a child.
    main: Option<ScopeId>,
    /// Its part of our own node, where it runs there, too.
    own_node: Option<ScopeId>,
}

impl TargetStatus {
    /// Whether it is to be asked, and can be.
    fn is_wanted(&self) -> bool {
        self.is_polled && !matches!(self.place, TargetPlace::Node(_, None))
    }
}

/// How a target is polled next.
#[derive(Debug)]
struct ScrapePlan {
    place: TargetPlace,
    kind: Option<ScrapeKind>,
    period: Duration,
    reach: TargetReach,
}

/// Held by the task of a target.
struct TargetRun<'a>(&'a ScrapeTarget);

impl Drop for TargetRun<'_> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
    }
}

impl ScrapeTarget {
    fn new(key: Arc<str>, place: TargetPlace, record: TargetRecord) -> Self {
        let status = TargetStatus {
            place,
            kind: record.kind,
            period: Duration::from_millis(record.period_ms).clamp(PERIOD_MIN, PERIOD_MAX),
            is_polled: record.is_polled,
            is_limited: record.is_limited,
            is_running: false,
            is_leaving: false,
            last_scrape_s: 0,
            failures: 0,
            error: None,
            lineage: record.lineage,
            starts: record.starts,
            main: None,
            own_node: None,
        };
        Self { key, number: record.number, status: Mutex::new(status), wake: Notify::new(), left: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, TargetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, state: &State) {
        let record = {
            let status = self.lock();
            TargetRecord {
                path: match &status.place {
                    TargetPlace::Address(address) => address.path().to_owned(),
                    TargetPlace::Node(..) => String::new(),
                },
                kind: status.kind,
                period_ms: u64::try_from(status.period.as_millis()).unwrap_or(u64::MAX),
                number: self.number,
                is_polled: status.is_polled,
                is_limited: status.is_limited,
                lineage: status.lineage.clone(),
                starts: status.starts.clone(),
            }
        };
        records::keep_target(state, &self.key, &record);
    }

    fn run(&self) -> TargetRun<'_> {
        TargetRun(self)
    }

    /// `None` where it is not to be polled any more.
    fn plan(&self) -> Option<ScrapePlan> {
        let status = self.lock();
        let reach = if status.is_limited { TargetReach::Here } else { TargetReach::Anywhere };
        let TargetStatus { place, kind, period, .. } = &*status;
        status.is_wanted().then(|| ScrapePlan { place: place.clone(), kind: *kind, period: *period, reach })
    }

    fn is_leaving(&self) -> bool {
        self.lock().is_leaving
    }

    /// It was polled for the last time.
    fn leave(&self) {
        {
            let mut status = self.lock();
            (status.is_polled, status.is_leaving) = (false, false);
        }
        self.left.notify_waiters();
    }

    async fn woken(&self) {
        self.wake.notified().await;
    }

    fn succeed(&self, now_s: u64) {
        let mut status = self.lock();
        if status.failures > 0 {
            tracing::info!(at = %status.place, "a target answers again");
        }
        (status.last_scrape_s, status.failures, status.error) = (now_s, 0, None);
    }

    /// How often it failed in a row.
    fn fail(&self, why: String) -> u32 {
        let mut status = self.lock();
        // A node of our own job may have ended since it was polled last: then it leaves before it is tried again.
        let told_at = u32::from(matches!(status.place, TargetPlace::Node(..)));
        if status.failures == told_at {
            tracing::warn!(at = %status.place, %why, "a target cannot be polled; it is tried again");
        }
        status.failures = status.failures.saturating_add(1);
        status.error = Some(why);
        status.failures
    }

    fn be(&self, state: &State, kind: ScrapeKind) {
        self.lock().kind = Some(kind);
        self.keep(state);
    }

    /// What it is will be found out again.
    fn doubt(&self) {
        let mut status = self.lock();
        // A node of our own job is one whatever it says.
        if matches!(status.place, TargetPlace::Address(_)) {
            status.kind = None;
        }
    }

    fn source(&self) -> GaugeSource {
        GaugeSource(self.number)
    }

    fn lineage(&self) -> Option<String> {
        self.lock().lineage.clone()
    }

    fn starts(&self) -> BTreeMap<String, u64> {
        self.lock().starts.clone()
    }

    /// Keeps what is known of a child.
    fn keep_child(&self, state: &State, lineage: Option<String>, starts: BTreeMap<String, u64>) {
        {
            let mut status = self.lock();
            if status.starts == starts && status.lineage == lineage {
                return;
            }
            (status.starts, status.lineage) = (starts, lineage);
        }
        self.keep(state);
    }

    fn main_lane(&self, live: &ProxyLive) -> ScopeId {
        let mut status = self.lock();
        *status.main.get_or_insert_with(|| child::open_main(live, live.child_tags(&self.key), self.source(), &[]))
    }

    fn own_node(&self, live: &ProxyLive) -> ScopeId {
        *self.lock().own_node.get_or_insert_with(|| live.table.open_part(self.source(), &[live.node]))
    }

    /// Whether it answered when it was asked last.
    fn is_well(&self) -> bool {
        let status = self.lock();
        status.is_polled && status.failures == 0 && status.last_scrape_s > 0
    }

    fn row(&self) -> Option<ScrapeRow> {
        let status = self.lock();
        let (path, ttype) = match status.kind {
            Some(ScrapeKind::Proxy) => ("/job", "Proxy"),
            Some(ScrapeKind::Prometheus) => ("/metrics", "Prometheus"),
            // It did not answer yet, or in a way that nobody understands.
            None => ("", "Unknown"),
        };
        status.is_wanted().then(|| ScrapeRow {
            target_url: match &status.place {
                TargetPlace::Address(address) => format!("http://{address}{path}"),
                TargetPlace::Node(name, client) => match client {
                    Some(client) => format!("{}{path}", client.address()),
                    None => format!("http://{name}{path}"),
                },
            },
            ttype,
            period: u64::try_from(status.period.as_millis()).unwrap_or(u64::MAX),
            last_scrape: status.last_scrape_s,
            error: status.error.clone(),
            failures: (status.failures > 0).then_some(status.failures),
        })
    }
}

/// The client that asks for something to be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAsker {
    /// It showed the token, or is the command line.
    Trusted,
    Untrusted,
}

impl JoinAsker {
    fn of(request: &Request) -> Self {
        let is_shown = request.extensions().get::<ShownToken>().is_some();
        // Handed on by a node of our own job, whose own token that is.
        match is_shown && !request.headers().contains_key(NO_TOKEN) {
            true => Self::Trusted,
            false => Self::Untrusted,
        }
    }
}

impl ProxyScrapes {
    /// With the targets that an earlier process of this database had, and those of the command line.
    pub fn start(state: &Arc<State>, options: &ProxyOptions, table: &CounterTable) -> Self {
        let mut targets = BTreeMap::new();
        for (key, record) in records::targets(state) {
            let place = match is_node(&key) {
                true => Ok(TargetPlace::Node(key.as_str().into(), None)),
                false => TargetAddress::parse(&format!("{key}{}", record.path)).map(TargetPlace::Address),
            };
            match place {
                Ok(place) => {
                    let key: Arc<str> = key.into();
                    targets.insert(Arc::clone(&key), Arc::new(ScrapeTarget::new(key, place, record)));
                }
                Err(error) => tracing::warn!(%error, at = key, "a target has no address any more"),
            }
        }
        let scrapes = Self {
            state: Arc::clone(state),
            policy: options.join,
            targets: Mutex::new(targets),
            nodes: Mutex::default(),
            exporters: table.open_sum(),
            has_exporters: AtomicBool::new(false),
            changed: Notify::new(),
            lineage: OnceLock::new(),
        };
        for (address, period) in &options.targets {
            let wanted = scrapes.add(address, *period, None, TargetReach::Anywhere);
            if let Err(error) = wanted {
                tracing::error!(%error, at = %address, "a target is not polled");
            }
        }
        scrapes
    }

    fn targets(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<ScrapeTarget>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn child_nodes(&self) -> MutexGuard<'_, BTreeMap<String, ChildNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there never was a target.
    pub fn is_empty(&self) -> bool {
        self.targets().is_empty()
    }

    pub fn has_exporters(&self) -> bool {
        self.has_exporters.load(Ordering::Relaxed)
    }

    /// What exporters show now.
    pub fn exported(&self, table: &CounterTable) -> Vec<CounterReading> {
        if self.has_exporters() { table.all(self.exporters) } else { Vec::new() }
    }

    /// The name of this database, where it is written.
    pub fn lineage(&self) -> Option<&str> {
        self.lineage.get_or_init(|| records::lineage(&self.state)).as_deref()
    }

    /// The source of the gauges of a child.
    pub fn source(&self, child: &str) -> GaugeSource {
        self.targets().get(child).map_or(GaugeSource::OWN, |target| target.source())
    }

    /// The nodes of children, as live jobs.
    pub fn nodes(&self) -> Vec<(JobDesc, ScopeId)> {
        self.child_nodes().values().map(|node| (node.desc.clone(), node.sum)).collect()
    }

    /// A part of a child's node.
    fn open_node(&self, live: &ProxyLive, desc: &JobDesc, source: GaugeSource) -> ScopeId {
        let mut nodes = self.child_nodes();
        let node = nodes.entry(desc.jobid.clone()).or_insert_with(|| ChildNode {
            desc: desc.clone(),
            sum: live.table.open_sum(),
            parts: 0,
        });
        node.parts += 1;
        live.table.open_part(source, &[node.sum])
    }

    fn close_node(&self, live: &ProxyLive, id: &str, part: ScopeId) {
        live.table.close(part);
        let mut nodes = self.child_nodes();
        let Some(node) = nodes.get_mut(id) else { return };
        node.parts -= 1;
        if node.parts == 0 {
            live.table.close(node.sum);
            nodes.remove(id);
        }
    }

    /// Counts what children counted before this process began; `stored` says what that is.
    pub fn restore(&self, live: &ProxyLive, stored: impl Fn(&str, &LaneTags) -> Vec<CounterReading>) {
        let targets: Vec<Arc<ScrapeTarget>> = self.targets().values().cloned().collect();
        for target in targets {
            if target.lock().kind == Some(ScrapeKind::Prometheus) {
                continue;
            }
            let tags = live.child_tags(&target.key);
            let mut readings = stored(&target.key, &tags);
            // Gauges are about the present.
            readings.retain(|reading| matches!(reading.value, CounterValue::Counter(_)));
            if !readings.is_empty() {
                let main = child::open_main(live, tags, target.source(), &readings);
                target.lock().main = Some(main);
            }
        }
    }

    /// A child will not go on with a job.
    pub fn forget_part(&self, live: &ProxyLive, child: &str, job: &str) {
        records::forget_offsets(&live.state, child, job);
    }

    /// Whether what answers at a target may be counted.
    ///
    /// # Errors
    /// When it is this server, or is polled at another address, too.
    fn check_lineage(&self, live: &ProxyLive, target: &ScrapeTarget, lineage: Option<&str>) -> Result<(), String> {
        let Some(lineage) = lineage else { return Ok(()) };
        if self.lineage() == Some(lineage) {
            return Err("that is this server itself, which would count everything again and again".to_owned());
        }
        let others: Vec<Arc<ScrapeTarget>> = {
            let targets = self.targets();
            let is_same =
                |other: &&Arc<ScrapeTarget>| other.key != target.key && other.lineage().as_deref() == Some(lineage);
            targets.values().filter(is_same).cloned().collect()
        };
        for other in others {
            if other.is_well() {
                return Err(format!("the same server is polled at {} already", other.key));
            }
            // It has moved here, with all that it counted there.
            tracing::info!(from = %other.key, to = %target.key, "a child answers at another address");
            let main = {
                let mut status = other.lock();
                (status.is_polled, status.lineage) = (false, None);
                status.main
            };
            other.wake.notify_one();
            if let Some(main) = main {
                live.table.withdraw(main, Withdrawal::All);
            }
            other.keep(&self.state);
        }
        Ok(())
    }

    /// Whether the server with this name is polled and counted.
    pub fn polls(&self, lineage: &[u8]) -> bool {
        let is_it = |target: &Arc<ScrapeTarget>| {
            target.is_well() && target.lineage().is_some_and(|known| known.as_bytes() == lineage)
        };
        self.targets().values().any(is_it)
    }

    /// Adds a target, or replaces how it is polled.
    fn add(
        &self,
        address: &TargetAddress,
        period: Duration,
        kind: Option<ScrapeKind>,
        reach: TargetReach,
    ) -> Result<(), String> {
        let target = {
            let mut targets = self.targets();
            let number = next_number(&targets);
            // Nodes of our own job have a limit of their own.
            let is_full = targets.keys().filter(|key| !is_node(key)).count() >= TARGETS_MAX;
            match targets.get(address.authority()) {
                Some(known) => Arc::clone(known),
                None if is_full => return Err(format!("{TARGETS_MAX} targets are polled; no more are taken")),
                None => {
                    let key: Arc<str> = address.authority().into();
                    let record = TargetRecord { number, period_ms: 1_000, ..TargetRecord::default() };
                    let target =
                        Arc::new(ScrapeTarget::new(Arc::clone(&key), TargetPlace::Address(address.clone()), record));
                    targets.insert(key, Arc::clone(&target));
                    target
                }
            }
        };
        {
            let mut status = target.lock();
            status.place = TargetPlace::Address(address.clone());
            status.period = period.clamp(PERIOD_MIN, PERIOD_MAX);
            (status.is_polled, status.is_leaving) = (true, false);
            status.is_limited = reach == TargetReach::Here;
            status.kind = kind.or(status.kind);
            (status.failures, status.error) = (0, None);
        }
        target.keep(&self.state);
        target.wake.notify_one();
        self.changed.notify_one();
        Ok(())
    }

    /// Polls a target no more; whether it was polled.
    pub fn remove(&self, key: &str) -> bool {
        let Some(target) = self.targets().get(key).cloned() else { return false };
        let was_polled = std::mem::take(&mut target.lock().is_polled);
        target.keep(&self.state);
        target.wake.notify_one();
        was_polled
    }

    /// A target goes: it is polled once more for what it counted last, and then no more. Whether it was polled.
    pub async fn leave(&self, key: &str) -> bool {
        let Some(target) = self.targets().get(key).cloned() else { return false };
        let left = target.left.notified();
        tokio::pin!(left);
        // From here on it is heard.
        left.as_mut().enable();
        let is_asked = {
            let mut status = target.lock();
            status.is_leaving = status.is_polled && status.is_running;
            status.is_leaving
        };
        if !is_asked {
            return self.remove(key);
        }
        target.wake.notify_one();
        if tokio::time::timeout(LAST_POLL_MAX, left).await.is_err() {
            tracing::warn!(at = key, "a target that left could not be polled once more");
        }
        self.remove(key);
        true
    }

    /// Whether a target answers.
    pub fn answers(&self, key: &str) -> bool {
        self.targets().get(key).is_some_and(|target| target.is_well())
    }

    /// Polls a target that is polled already, or all of them, with another period; whether there are any.
    pub fn set_period(&self, key: Option<&str>, period: Duration) -> bool {
        let targets: Vec<Arc<ScrapeTarget>> = {
            let targets = self.targets();
            targets.values().filter(|target| key.is_none_or(|key| *target.key == *key)).cloned().collect()
        };
        let polled = targets.iter().filter(|target| target.lock().is_polled && !is_node(&target.key));
        let mut has_any = false;
        for target in polled {
            target.lock().period = period.clamp(PERIOD_MIN, PERIOD_MAX);
            target.keep(&self.state);
            target.wake.notify_one();
            has_any = true;
        }
        has_any
    }

    /// Finds out what a target is, and polls it from now on.
    ///
    /// # Errors
    /// In the words of the original, or why it is not allowed.
    async fn join(&self, to: &str, period: Duration, asker: JoinAsker) -> Result<(), String> {
        let failed = |why: &str| format!("Failed to add {to} for scraping : {why}");
        let address = TargetAddress::parse(to).map_err(|why| failed(&why))?;
        let reach = match (self.policy, asker) {
            (JoinPolicy::Nobody, _) => {
                return Err(failed("this server was started with --proxy-join none, and polls what -s names alone"));
            }
            (JoinPolicy::Anywhere, _) | (JoinPolicy::Here, JoinAsker::Trusted) => TargetReach::Anywhere,
            (JoinPolicy::Here, JoinAsker::Untrusted) => TargetReach::Here,
        };
        if self.state.writer.is_none() {
            return Err(failed(self.state.refusal.message()));
        }
        if let Err(PlaceFailure::NotHere(why)) = fetch::place(&address, reach).await {
            tracing::info!(at = %address, %why, "a target was not added");
            return Err(failed(&address.censored(&why)));
        }
        let kind = fetch::probe(&address, reach).await.map_err(|why| {
            tracing::info!(at = %address, %why, "a target was not added");
            failed(&format!("Failed to determine type of {to}"))
        })?;
        self.add(&address, period, Some(kind), reach).map_err(|why| failed(&why))
    }

    /// Polls every target in a task of its own.
    pub async fn run(&self, live: &Arc<ProxyLive>) {
        if self.state.writer.is_none() {
            return;
        }
        let mut tasks = JoinSet::new();
        loop {
            let idle: Vec<Arc<ScrapeTarget>> = {
                let targets = self.targets();
                let is_idle = |target: &&Arc<ScrapeTarget>| {
                    let status = target.lock();
                    status.is_wanted() && !status.is_running
                };
                targets.values().filter(is_idle).cloned().collect()
            };
            for target in idle {
                {
                    let mut status = target.lock();
                    status.is_running = true;
                }
                tasks.spawn(poll::poll(Arc::clone(live), target));
            }
            tokio::select! {
                () = self.changed.notified() => {}
                Some(ended) = tasks.join_next() => if let Err(panic) = ended {
                    tracing::error!(%panic, "polling a target died of a bug");
                    tokio::time::sleep(BUG_PAUSE).await;
                },
            }
        }
    }

    fn rows(&self) -> Vec<ScrapeRow> {
        self.targets().values().filter_map(|target| target.row()).collect()
    }
}

/// Tells the gauges of one more target from those of others.
fn next_number(targets: &BTreeMap<Arc<str>, Arc<ScrapeTarget>>) -> u32 {
    targets.values().map(|target| target.number).max().unwrap_or(0) + 1
}

fn period(text: Option<&str>) -> Duration {
    text.and_then(|text| text.parse().ok()).map_or(PERIOD_OF_JOIN, Duration::from_millis)
}

/// What `to` must not be.
fn check_to(to: &str) -> Result<(), &'static str> {
    match to.contains("http") {
        true => Err("To should not be an URL (with http://) but host:port"),
        false => Ok(()),
    }
}

async fn join(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let (params, asker) = (reply::params(request.uri()), JoinAsker::of(&request));
    let Some(to) = params.get("to") else { return reply::refused("No to parameter passed") };
    if let Err(why) = check_to(to) {
        return reply::refused(why);
    }
    match live.scrapes.join(to, period(params.get("period")), asker).await {
        Ok(()) => reply::done(&format!("Added {to} for scraping")),
        Err(why) => reply::refused(&why),
    }
}

/// Several at once, with `&` between them.
async fn join_multiple(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let (params, asker) = (reply::params(request.uri()), JoinAsker::of(&request));
    let Some(all) = params.get("to") else { return reply::refused("No to parameter passed") };
    if let Err(why) = check_to(all) {
        return reply::refused(why);
    }
    // One that is named twice is one.
    let targets: BTreeSet<&str> = all.split('&').map(str::trim).filter(|to| !to.is_empty()).collect();
    if targets.len() > TARGETS_MAX {
        return reply::refused(&format!("{} targets are named; at most {TARGETS_MAX} are polled", targets.len()));
    }
    let period = period(params.get("period"));
    let joins = targets.iter().map(|to| live.scrapes.join(to, period, asker));
    let failed: Vec<String> = futures::future::join_all(joins).await.into_iter().filter_map(Result::err).collect();
    match failed.is_empty() {
        true => reply::done(&format!("Added {all} for scraping")),
        false => reply::refused(&failed.join("; ")),
    }
}

async fn list(Of(live): Of<Arc<ProxyLive>>, RequestParams(_): RequestParams) -> Response {
    let mut rows = vec![ScrapeRow {
        target_url: "/system".to_owned(),
        ttype: "System",
        period: u64::try_from(live.options.period.as_millis()).unwrap_or(u64::MAX),
        last_scrape: live.now_ms() / 1_000,
        error: None,
        failures: None,
    }];
    rows.extend(live.scrapes.rows());
    reply::json(&rows)
}
