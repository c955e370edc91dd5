//! What Metric Proxy's clients count now: the live table with its sums, and the lanes of what belongs to no job.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telem_engine::{Durability, MetaChange, StateRecord, Timestamp};
use telem_ingest::counters::{
    CounterReading, CounterRefusal, CounterStore, CounterTable, CounterValue, GaugeSource, LaneTags, ScopeId,
};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::WriteError;

use super::ProxyOptions;
use super::clients::ProxyClients;
use super::program::Programs;
use super::runs::ProxyRuns;
use super::shapes::JobDesc;
use super::system::{FrequencyUnit, SystemReadings};
use super::tags::{self, CHILD_LANE, HTTP_LANE, JOBLESS_LANE, LANE_TAG, MAIN, NODE, TARGET_TAG, is_node, prefix_of};
use super::targets::ProxyTargets;
use super::told::ToldAbove;
use super::tree::ProxyTree;
use crate::config;
use crate::state::State;

/// The kind and the key of the record that says that clients without a job counted something.
pub const JOBLESS_RECORD: (&str, &str) = ("proxy.lane", JOBLESS_LANE);
/// The longest time for which values are not stored while the writer is busy.
const RETRY: Duration = Duration::from_millis(100);
/// How often it is looked which names nobody has, within the time for which they stay.
const IDLE_LOOKS: u8 = 4;
/// Longest that the last values are written for.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long a change waits until it outlives this process, where it is no sample before. With the write that is less than
/// 100 ms.
const KEEP_AFTER: Duration = Duration::from_millis(80);
/// So many times as long as keeping took is waited before it is done again, up to [`KEEP_PAUSE_MAX`]: of very many
/// counters it takes a tenth of one processor.
const KEEP_PAUSES: u32 = 9;
const KEEP_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Readings that belong to a live job beside those of its own scope.
#[derive(Debug, Default)]
pub struct BesideReadings {
    pub readings: Vec<CounterReading>,
    /// Those in which what the scope has is told already.
    names: HashSet<Arc<str>>,
}

impl BesideReadings {
    /// Whether what a scope has under this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// What all of Metric Proxy's API stands on.
#[derive(Debug)]
pub struct ProxyLive {
    pub state: Arc<State>,
    pub options: ProxyOptions,
    pub table: CounterTable,
    /// `None` where nothing is written.
    pub store: Option<CounterStore>,
    /// The nodes whose samples there are: this one, or those of saved databases.
    pub stored_nodes: Arc<[Arc<str>]>,
    /// What came through this server's socket.
    pub node: ScopeId,
    /// Everything.
    pub main: ScopeId,
    pub http: ScopeId,
    pub jobless: ScopeId,
    pub runs: ProxyRuns,
    pub clients: Arc<ProxyClients>,
    /// What is polled.
    pub targets: ProxyTargets,
    /// The parent of each proxy that joined.
    pub tree: ProxyTree,
    /// What originals that poll this server were told.
    pub told: ToldAbove,
    pub system: SystemReadings,
    /// Programs of others that are asked.
    pub programs: Programs,
    /// When this process began.
    pub started: Timestamp,
    /// The machine's name as the original tells it.
    pub host: String,
    /// Messages that were refused, by reason.
    refusals: [AtomicU64; CounterRefusal::REASONS.len()],
    /// Messages that were taken.
    taken: AtomicU64,
    /// When it was looked which names nobody has, by a clock that never jumps.
    idle_looked_at: Mutex<Duration>,
    /// It was noted that clients without a job counted something.
    has_jobless: AtomicBool,
}

impl ProxyLive {
    /// What counters reached before an earlier process died becomes samples first.
    pub fn start(state: Arc<State>, options: ProxyOptions) -> Arc<Self> {
        let table = CounterTable::default();
        let (node, main) = (table.open_sum(), table.open_sum());
        let lane = |name: &str, above: &[ScopeId]| {
            table.open_lane(tags::jobless_tags(&state.node, name), GaugeSource::OWN, above)
        };
        let (http, jobless) = (lane(HTTP_LANE, &[main]), lane(JOBLESS_LANE, &[node, main]));
        let store =
            state.writer.clone().map(|writer| CounterStore::new(state.db.clone(), writer, Arc::clone(&state.clock)));
        let stored_nodes = match &store {
            Some(_) => Arc::new([Arc::clone(&state.node)]) as Arc<[Arc<str>]>,
            None => state.db.snapshot().nodes().into(),
        };
        let host = config::host_name();
        let unit = if options.is_exact { FrequencyUnit::Megahertz } else { FrequencyUnit::Gigahertz };
        let system =
            SystemReadings::new(&host, options.period, Arc::clone(&state.clock), unit).below(options.sysroot.clone());
        let (runs, clients) = (ProxyRuns::default(), Arc::clone(&options.clients));
        let (targets, tree) = (ProxyTargets::start(&state, &options, &table), ProxyTree::start(&state, &options));
        let (refusals, taken, has_jobless, told) = Default::default();
        let programs = Programs::new(Arc::clone(&state.clock), options.search_path.clone());
        let (started, looked_at) = (state.clock.now(), state.clock.monotonic());
        let live = Arc::new(Self {
            state,
            options,
            table,
            store,
            stored_nodes,
            node,
            main,
            http,
            jobless,
            runs,
            clients,
            targets,
            tree,
            told,
            system,
            programs,
            started,
            host,
            refusals,
            taken,
            idle_looked_at: Mutex::new(looked_at),
            has_jobless,
        });
        match live.store.as_ref().map(CounterStore::recover) {
            Some(Ok(1..)) => tracing::info!("what counters reached before the last server died are samples now"),
            Some(Err(error)) => {
                tracing::warn!(%error, "what counters reached before the last server died stays as it is")
            }
            Some(Ok(0)) | None => {}
        }
        live
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.state.clock.now().micros() / 1_000).unwrap_or(0)
    }

    /// The id of this node.
    pub fn node_id(&self) -> String {
        format!("{NODE}{}", self.host)
    }

    /// The descriptions of the sums, which look like jobs.
    pub fn sums(&self) -> [(JobDesc, ScopeId); 2] {
        let desc = |jobid: String, command: String, nodelist: String| JobDesc {
            jobid,
            command,
            nodelist,
            ..JobDesc::default()
        };
        let node_command = format!("Sum of all Jobs running on {}", self.host);
        [
            (desc(MAIN.to_owned(), "Sum of all Jobs".to_owned(), String::new()), self.main),
            (desc(self.node_id(), node_command, self.host.clone()), self.node),
        ]
    }

    /// Everything that looks like a job and is live, with its sum.
    pub fn live_jobs(&self) -> Vec<(JobDesc, ScopeId)> {
        self.sums().into_iter().chain(self.targets.nodes()).chain(self.runs.live()).collect()
    }

    /// The same, and jobs that ended a moment ago.
    pub fn recent_jobs(&self) -> Vec<(JobDesc, ScopeId)> {
        self.sums().into_iter().chain(self.targets.nodes()).chain(self.runs.recent()).collect()
    }

    /// One of them.
    pub fn live_job(&self, id: &str) -> Option<(JobDesc, ScopeId)> {
        let sums = self.sums().into_iter().chain(self.targets.nodes());
        let mut sums = sums.filter(|(desc, _)| desc.jobid == id);
        sums.next().or_else(|| self.runs.live_one(id))
    }

    /// One counter or gauge of a live job, system metrics included.
    pub fn reading(&self, scope: ScopeId, name: &str) -> Option<CounterReading> {
        let beside = self.beside(scope).readings.into_iter().find(|reading| *reading.name == *name);
        beside.or_else(|| self.table.find(scope, name))
    }

    /// What belongs to a live job beside what its clients count: what its node is like, and what exporters show there.
    /// Nothing, of what is live at children only.
    pub fn beside(&self, scope: ScopeId) -> BesideReadings {
        let is_sum = scope == self.main || scope == self.node;
        if !is_sum && !self.runs.is_here(scope) {
            return BesideReadings::default();
        }
        let mut readings = self.node_readings();
        if !is_sum {
            readings.extend(self.targets.exported(&self.table));
        }
        if self.targets.is_empty() {
            return BesideReadings { readings, names: HashSet::new() };
        }
        // Children have the same metrics of their nodes.
        for reading in &mut readings {
            if let Some(known) = self.table.find(scope, &reading.name) {
                reading.value = reading.value.with(known.value);
            }
        }
        let names = readings.iter().map(|reading| Arc::clone(&reading.name)).collect();
        BesideReadings { readings, names }
    }

    /// The tag `host` of what came from a target: this node, where that is a port of it.
    pub fn host_of_target(&self, target: &str) -> Arc<str> {
        if is_node(target) {
            return target.into();
        }
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        let is_here = host == "localhost" || host == self.host || ip.is_ok_and(|ip| ip.is_loopback());
        if is_here { Arc::clone(&self.state.node) } else { host.into() }
    }

    /// Whether that is the job of the server, whose samples are those of no other.
    pub fn is_servers_own(&self, id: &str, slot: Option<u32>) -> bool {
        slot.is_none() && *id == *self.state.job
    }

    /// The tags of a job's samples on this node.
    pub fn job_tags(&self, id: &str, slot: Option<u32>) -> LaneTags {
        let named = (slot.is_none() && !self.is_servers_own(id, slot)).then_some(id);
        tags::job_tags(Arc::clone(&self.state.node), slot, named)
    }

    /// The tags of what a child counts for a job.
    pub fn part_tags(&self, id: &str, slot: Option<u32>, child: &str) -> LaneTags {
        let LaneTags { mut more, .. } = self.job_tags(id, slot);
        let default = DefaultTags::of_process(self.host_of_target(child), None).in_slot(slot);
        more.push((TARGET_TAG.into(), child.into()));
        more.sort();
        LaneTags { default, more, prefix: prefix_of(child) }
    }

    /// The tags of all that a child counts.
    pub fn child_tags(&self, child: &Arc<str>) -> LaneTags {
        let default = DefaultTags::of_process(self.host_of_target(child), None);
        let more = vec![(LANE_TAG.into(), CHILD_LANE.into()), (TARGET_TAG.into(), Arc::clone(child))];
        LaneTags { default, more, prefix: prefix_of(child) }
    }

    /// What the node is like, and what became of clients' messages.
    pub fn node_readings(&self) -> Vec<CounterReading> {
        let mut readings = self.system.readings().to_vec();
        let mut add = |name: String, value: u64| {
            let doc = self.system.doc(&name).unwrap_or_default().into();
            readings.push(CounterReading { name: name.into(), doc, value: CounterValue::Counter(value as f64) });
        };
        add("proxy_messages_total".to_owned(), self.taken.load(Ordering::Relaxed));
        for (reason, count) in CounterRefusal::REASONS.into_iter().zip(&self.refusals) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                add(format!("proxy_messages_refused_total{{reason=\"{reason}\"}}"), count);
            }
        }
        readings
    }

    /// Counts a message that was refused, and says so the first time.
    pub fn refuse(&self, refusal: &CounterRefusal) {
        let before = self.refusals[refusal.reason()].fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            tracing::warn!(%refusal, "a message of a client of Metric Proxy was refused; further ones are counted");
        }
    }

    /// Counts messages that were taken.
    pub fn count(&self, taken: u64) {
        self.taken.fetch_add(taken, Ordering::Relaxed);
    }

    /// Keeps what changes until the next tick, and writes it then.
    pub async fn tick(&self) {
        self.keep_until_tick().await;
        while let Err(WriteError::Busy { .. }) = self.store_changes().await {
            tokio::time::sleep(RETRY).await;
            self.keep_changes().await;
        }
    }

    /// Names that only jobs had which are over leave the live table after some time, and their values stay in the sums.
    /// Not while a parent polls that would count them anew when they come back.
    pub fn let_idle_names_go(&self) {
        let (now, keep) = (self.state.clock.monotonic(), self.options.idle_names_keep);
        {
            let mut looked_at = self.idle_looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            if now.saturating_sub(*looked_at) < keep / u32::from(IDLE_LOOKS) {
                return;
            }
            *looked_at = now;
        }
        if self.tree.is_polled_by_others(now, keep) {
            return;
        }
        // The first look may come right after the last lane went.
        let gone = self.table.let_idle_names_go(IDLE_LOOKS + 1);
        if gone > 0 {
            tracing::debug!(names = gone, "names of counters that no job has left the live table");
        }
    }

    /// Nothing is done while nothing changes.
    async fn keep_until_tick(&self) {
        let tick = tokio::time::sleep(self.options.period);
        tokio::pin!(tick);
        let (is_seldom, clock) = (self.options.period > KEEP_AFTER, &self.state.clock);
        let mut pause = KEEP_AFTER;
        loop {
            tokio::select! {
                () = &mut tick => return,
                () = self.table.changed(), if is_seldom => {}
            }
            // What else changes meanwhile is kept with it.
            tokio::select! {
                () = &mut tick => return,
                () = tokio::time::sleep(pause) => {}
            }
            let began = clock.monotonic();
            self.keep_changes().await;
            let took = clock.monotonic().saturating_sub(began);
            pause = took.saturating_mul(KEEP_PAUSES).clamp(KEEP_AFTER, KEEP_PAUSE_MAX);
        }
    }

    /// What changed outlives this process.
    pub async fn keep_changes(&self) {
        let Some(store) = &self.store else { return };
        self.note_jobless();
        if let Err(error) = store.keep(&self.table).await {
            tracing::debug!(%error, "values wait");
        }
    }

    /// Writes a sample of everything that changed.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn store_changes(&self) -> Result<(), WriteError> {
        let Some(store) = &self.store else { return Ok(()) };
        self.note_jobless();
        store.store(&self.table, None).await.inspect_err(|error| tracing::debug!(%error, "values wait"))
    }

    /// Writes what changed in a lane, and waits until that outlives this process.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn store_lane(&self, lane: ScopeId) -> Result<(), WriteError> {
        let Some(store) = &self.store else { return Ok(()) };
        loop {
            match store.store(&self.table, Some(lane)).await {
                Ok(()) => return Ok(()),
                Err(WriteError::Busy { .. }) => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what clients without a job counted.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn store_jobless(&self) -> Result<(), WriteError> {
        self.note_jobless();
        self.store_lane(self.jobless).await
    }

    /// The next process looks for what clients without a job counted.
    fn note_jobless(&self) {
        if !self.table.is_empty(self.jobless) && !self.has_jobless.swap(true, Ordering::Relaxed) {
            let (kind, key) = JOBLESS_RECORD;
            self.keep(StateRecord::new(kind, key, "{}"));
        }
    }

    /// Nobody is served any more.
    pub async fn close(&self) {
        let stored = tokio::time::timeout(CLOSE_MAX, self.store_changes()).await;
        if !matches!(stored, Ok(Ok(()))) {
            // They wait beside the samples then.
            let kept = tokio::time::timeout(CLOSE_MAX, self.keep_changes()).await;
            let fate = if kept.is_ok() { "the next server has them" } else { "some may be lost" };
            tracing::warn!("the last values of Metric Proxy's counters are not among the samples; {fate}");
        }
    }

    /// Writes a record; whether it outlives this process then.
    pub fn keep(&self, record: StateRecord) -> bool {
        let kind = record.kind.clone();
        let kept = self.state.db.put_meta(MetaChange::Record(record), Durability::Buffered);
        let kept = kept.inspect_err(|error| {
            tracing::warn!(%error, kind, "what a client of Metric Proxy sent will not outlive this process");
        });
        kept.is_ok()
    }
}
