//! Targets that are polled: other proxies, which are children then, nodes of our own job, and exporters of Prometheus.
//! Here stands which there are, where each is, how it is [asked](fetch), and how its last polls went;
//! [`scrapes`](super::scrapes) polls them.

mod address;
pub(crate) mod fetch;
pub(crate) mod node;
pub(super) mod records;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telem_ingest::counters::{CounterReading, CounterTable, GaugeSource, ScopeId, Withdrawal};
use tokio::sync::Notify;

pub use self::address::{PERIOD_MAX, PERIOD_MIN, TargetAddress};
use self::fetch::TargetReach;
use self::records::TargetRecord;
use super::ProxyOptions;
use super::shapes::JobDesc;
use super::tags::is_node;
use crate::client::Client;
use crate::state::State;

/// Most targets.
pub const TARGETS_MAX: usize = 1_000;
/// Which database answers: one whose counters go on after a restart.
pub const LINEAGE: &str = "x-telem-lineage";
/// Longest that the last poll of a target that leaves may take.
const LAST_POLL_MAX: Duration = Duration::from_secs(3);

/// What a target is, as the API calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrapeKind {
    Proxy,
    Prometheus,
}

/// A row of `/join/list`. The last two are there while a target fails.
#[derive(Debug, Serialize)]
pub struct ScrapeRow {
    pub target_url: String,
    pub ttype: &'static str,
    /// Milliseconds.
    pub period: u64,
    /// Seconds since 1970.
    pub last_scrape: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
}

/// All targets of this server.
pub struct ProxyTargets {
    state: Arc<State>,
    /// By host and port.
    targets: Mutex<BTreeMap<Arc<str>, Arc<ScrapeTarget>>>,
    /// The nodes of children, by their ids.
    nodes: Mutex<BTreeMap<String, ChildNode>>,
    /// The sum of what all exporters show.
    pub exporters: ScopeId,
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

impl fmt::Debug for ProxyTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTargets").field("targets", &self.targets().len()).finish_non_exhaustive()
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
pub enum TargetPlace {
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
pub struct ScrapePlan {
    pub place: TargetPlace,
    pub kind: Option<ScrapeKind>,
    pub period: Duration,
    pub reach: TargetReach,
}

/// Held by the task of a target.
pub struct TargetRun<'a>(&'a ScrapeTarget);

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

    /// Its task runs for as long as this is held.
    pub fn run(&self) -> TargetRun<'_> {
        TargetRun(self)
    }

    /// `None` where it is not to be polled any more.
    pub fn plan(&self) -> Option<ScrapePlan> {
        let status = self.lock();
        let reach = if status.is_limited { TargetReach::Here } else { TargetReach::Anywhere };
        let TargetStatus { place, kind, period, .. } = &*status;
        status.is_wanted().then(|| ScrapePlan { place: place.clone(), kind: *kind, period: *period, reach })
    }

    /// Whether it is to be polled for the last time.
    pub fn is_leaving(&self) -> bool {
        self.lock().is_leaving
    }

    /// It was polled for the last time.
    pub fn leave(&self) {
        {
            let mut status = self.lock();
            (status.is_polled, status.is_leaving) = (false, false);
        }
        self.left.notify_waiters();
    }

    /// Until it is to be asked at once, or no more.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// It answered.
    pub fn succeed(&self, now_s: u64) {
        let mut status = self.lock();
        if status.failures > 0 {
            tracing::info!(at = %status.place, "a target answers again");
        }
        (status.last_scrape_s, status.failures, status.error) = (now_s, 0, None);
    }

    /// It did not answer; how often that was so in a row.
    pub fn fail(&self, why: String) -> u32 {
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

    /// It was found out what it is.
    pub fn be(&self, state: &State, kind: ScrapeKind) {
        self.lock().kind = Some(kind);
        self.keep(state);
    }

    /// What it is will be found out again.
    pub fn doubt(&self) {
        let mut status = self.lock();
        // A node of our own job is one whatever it says.
        if matches!(status.place, TargetPlace::Address(_)) {
            status.kind = None;
        }
    }

    /// Whose its gauges are.
    pub fn source(&self) -> GaugeSource {
        GaugeSource(self.number)
    }

    /// Which database counts there, where it is one of ours.
    pub fn lineage(&self) -> Option<String> {
        self.lock().lineage.clone()
    }

    /// When its jobs began.
    pub fn starts(&self) -> BTreeMap<String, u64> {
        self.lock().starts.clone()
    }

    /// Keeps what is known of a child.
    pub fn keep_child(&self, state: &State, lineage: Option<String>, starts: BTreeMap<String, u64>) {
        {
            let mut status = self.lock();
            if status.starts == starts && status.lineage == lineage {
                return;
            }
            (status.starts, status.lineage) = (starts, lineage);
        }
        self.keep(state);
    }

    /// Whether it was found out to be an exporter.
    pub fn is_exporter(&self) -> bool {
        self.lock().kind == Some(ScrapeKind::Prometheus)
    }

    /// All that it counts, which stands here for as long as the server runs.
    pub fn main_lane(&self, open: impl FnOnce() -> ScopeId) -> ScopeId {
        *self.lock().main.get_or_insert_with(open)
    }

    /// Its part of our own node, likewise.
    pub fn own_node(&self, open: impl FnOnce() -> ScopeId) -> ScopeId {
        *self.lock().own_node.get_or_insert_with(open)
    }

    /// Whether it answered when it was asked last.
    pub fn is_well(&self) -> bool {
        let status = self.lock();
        status.is_polled && status.failures == 0 && status.last_scrape_s > 0
    }

    /// What is told of it, where it is polled.
    pub fn row(&self) -> Option<ScrapeRow> {
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

impl ProxyTargets {
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
        let known = Self {
            state: Arc::clone(state),
            targets: Mutex::new(targets),
            nodes: Mutex::default(),
            exporters: table.open_sum(),
            has_exporters: AtomicBool::new(false),
            changed: Notify::new(),
            lineage: OnceLock::new(),
        };
        for (address, period) in &options.targets {
            let wanted = known.add(address, *period, None, TargetReach::Anywhere);
            if let Err(error) = wanted {
                tracing::error!(%error, at = %address, "a target is not polled");
            }
        }
        known
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

    /// From now on there is one.
    pub fn note_exporter(&self) {
        self.has_exporters.store(true, Ordering::Relaxed);
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
    pub fn open_node(&self, table: &CounterTable, desc: &JobDesc, source: GaugeSource) -> ScopeId {
        let mut nodes = self.child_nodes();
        let node = nodes.entry(desc.jobid.clone()).or_insert_with(|| ChildNode {
            desc: desc.clone(),
            sum: table.open_sum(),
            parts: 0,
        });
        node.parts += 1;
        table.open_part(source, &[node.sum])
    }

    /// It is not live there any more.
    pub fn close_node(&self, table: &CounterTable, id: &str, part: ScopeId) {
        table.close(part);
        let mut nodes = self.child_nodes();
        let Some(node) = nodes.get_mut(id) else { return };
        node.parts -= 1;
        if node.parts == 0 {
            table.close(node.sum);
            nodes.remove(id);
        }
    }

    /// A child will not go on with a job.
    pub fn forget_part(&self, child: &str, job: &str) {
        records::forget_offsets(&self.state, child, job);
    }

    /// Whether what answers at a target may be counted.
    ///
    /// # Errors
    /// When it is this server, or is polled at another address, too.
    pub fn check_lineage(
        &self,
        table: &CounterTable,
        target: &ScrapeTarget,
        lineage: Option<&str>,
    ) -> Result<(), String> {
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
                table.withdraw(main, Withdrawal::All);
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

    /// Whether another path of its host and port is polled, which is no server that joins anew under another one.
    pub fn has_another_path(&self, address: &TargetAddress, kind: ScrapeKind) -> bool {
        let Some(known) = self.targets().get(address.authority()).cloned() else { return false };
        let status = known.lock();
        let is_other = match &status.place {
            TargetPlace::Address(known) => known.path() != address.path(),
            TargetPlace::Node(..) => false,
        };
        let is_exporter = kind == ScrapeKind::Prometheus && status.kind == Some(kind);
        is_exporter && is_other && status.is_polled
    }

    /// Adds a target, or replaces how it is polled.
    ///
    /// # Errors
    /// When there are [`TARGETS_MAX`].
    pub fn add(
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

    /// By host and port.
    pub fn all(&self) -> Vec<Arc<ScrapeTarget>> {
        self.targets().values().cloned().collect()
    }

    /// Those that are to be polled and have no task, which get one now.
    pub fn take_idle(&self) -> Vec<Arc<ScrapeTarget>> {
        let takes = |target: &&Arc<ScrapeTarget>| {
            let mut status = target.lock();
            let is_idle = status.is_wanted() && !status.is_running;
            status.is_running |= is_idle;
            is_idle
        };
        self.targets().values().filter(takes).cloned().collect()
    }

    /// Until there is another one, or one is polled again.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is told of those that are polled.
    pub fn rows(&self) -> Vec<ScrapeRow> {
        self.targets().values().filter_map(|target| target.row()).collect()
    }
}

/// Tells the gauges of one more target from those of others.
fn next_number(targets: &BTreeMap<Arc<str>, Arc<ScrapeTarget>>) -> u32 {
    targets.values().map(|target| target.number).max().unwrap_or(0) + 1
}
