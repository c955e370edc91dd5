//! Runs of jobs: each has a lane of the live table while clients of it are connected, and leaves a profile.
//!
//! The end of a run's last connection is the end of the run. A client that comes within [`RETURN_MAX`] of it goes on with
//! the same run; a later one begins another, and the older one's profile stays. Where more than [`RETURNING_MAX`] runs
//! wait for that, or more than [`RETURNING_MIN`] with more than [`RETURNING_COUNTERS_MAX`] counters, those that ended
//! first do not go on either: their slots, and with them their series, are the next runs', so that many short jobs have no
//! more series than few. A child that has the job is one of its
//! connections, with a lane of its own: what children count is in `main` by their own sums ([`scrapes`](super::scrapes)),
//! so a run adds nothing of it there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::Timestamp;
use telem_ingest::counters::{CounterReading, CounterRefusal, GaugeSource, LaneTags, ScopeId};
use telem_ingest::decode::proxy::DescribedJob;
use telem_ingest::default_tags::DefaultTags;

use super::keeping;
use super::live::{MAIN, NODE, ProxyLive, TARGET_TAG};
use super::scrapes::node::prefix_of;
use super::shapes::JobDesc;
use crate::slots::{JOB_ID_BYTES_MAX, JobCaller, JobId, JobTie};

/// A client that comes so soon after a run's end goes on with it.
pub const RETURN_MAX: Duration = Duration::from_secs(60);
/// Most runs that wait for a client to come back.
pub const RETURNING_MAX: usize = 32;
/// Most counters that those have together; but so many runs wait however many they have.
pub const RETURNING_COUNTERS_MAX: usize = 1_000;
pub const RETURNING_MIN: usize = 8;
/// The tag of jobs where a database has samples of one job alone.
pub const JOB_TAG: &str = "proxy.job";

/// A run that is over.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// What its record is called.
    pub key: Arc<str>,
    pub desc: JobDesc,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// The slot of its samples, where jobs share the database.
    pub slot: Option<u32>,
    /// It ran under another server, and counts in no sum of this one.
    pub is_imported: bool,
    /// It was the job of its server, whose samples say no job.
    pub is_servers_own: bool,
}

impl FinishedRun {
    /// The node whose samples it has.
    pub fn node(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(node, _)| node)
    }

    /// The tags of its samples.
    pub fn tags(&self) -> LaneTags {
        if self.is_imported {
            return imported_tags(self.node(), &self.desc.jobid, self.slot);
        }
        let named = (self.slot.is_none() && !self.is_servers_own).then_some(&*self.desc.jobid);
        job_tags(self.node().into(), self.slot, named)
    }
}

/// A run that is live, or was a moment ago.
struct LiveRun {
    key: Arc<str>,
    desc: JobDesc,
    begin: Timestamp,
    end: Option<Timestamp>,
    /// By a clock that never jumps.
    ended_at: Duration,
    lane: ScopeId,
    sum: ScopeId,
    slot: Option<u32>,
    /// Of clients here, and children that have the job.
    connections: usize,
    /// Clients were here, and not only those of children.
    is_here: bool,
    /// What children count for it. Then its sum is above them and its lane.
    parts: Vec<RunPart>,
    /// Holds its slot.
    tie: Option<(JobCaller, Arc<JobTie>)>,
}

/// What a child counts for a run.
#[derive(Clone, Debug)]
pub struct RunPart {
    pub child: Arc<str>,
    pub lane: ScopeId,
}

impl LiveRun {
    /// The lane of what a child counts; as it was left, where the child was there before.
    fn part(&mut self, live: &ProxyLive, child: &Arc<str>, source: GaugeSource) -> ScopeId {
        if let Some(part) = self.parts.iter().find(|part| part.child == *child) {
            return part.lane;
        }
        let sum = self.open_sum(live);
        let tags = part_tags(live, &self.desc.jobid, self.slot, child);
        let lane = live.table.open_lane(tags, source, &[sum]);
        self.parts.push(RunPart { child: Arc::clone(child), lane });
        lane
    }

    /// The sum of its lane and of what children count.
    fn open_sum(&mut self, live: &ProxyLive) -> ScopeId {
        if self.sum == self.lane {
            self.sum = live.table.open_sum();
            live.table.put_above(self.lane, self.sum);
        }
        self.sum
    }

    fn finished(&self, live: &ProxyLive, end: Timestamp) -> FinishedRun {
        let (key, desc) = (Arc::clone(&self.key), self.desc.clone());
        let is_servers_own = is_servers_own(live, &desc.jobid, self.slot);
        FinishedRun { key, desc, begin: self.begin, end, slot: self.slot, is_imported: false, is_servers_own }
    }
}

/// All runs of this server.
#[derive(Default)]
pub struct ProxyRuns {
    runs: Mutex<RunTable>,
    /// Held while a run begins or ends, so that one does not begin while it ends.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct RunTable {
    /// Runs that end from then on are told as live ones: this server leaves its tree, and its parent polls once more.
    told_since: Option<Timestamp>,
    /// By id; those that ended within [`RETURN_MAX`] too.
    recent: BTreeMap<String, LiveRun>,
    /// By begin.
    finished: Vec<Arc<FinishedRun>>,
}

impl fmt::Debug for ProxyRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.lock();
        f.debug_struct("ProxyRuns").field("recent", &runs.recent.len()).field("finished", &runs.finished.len()).finish()
    }
}

/// A connection's place in a run.
#[derive(Debug)]
pub struct RunSeat {
    pub id: String,
    pub lane: ScopeId,
}

impl RunTable {
    /// What is told of as live.
    fn live(&self) -> impl Iterator<Item = &LiveRun> {
        let told_since = self.told_since;
        let is_told = move |run: &&LiveRun| run.end.is_none_or(|end| told_since.is_some_and(|since| end >= since));
        self.recent.values().filter(is_told)
    }
}

impl ProxyRuns {
    fn lock(&self) -> MutexGuard<'_, RunTable> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs with clients, each with its sum.
    pub fn live(&self) -> Vec<(JobDesc, ScopeId)> {
        let runs = self.lock();
        runs.live().map(|run| (run.desc.clone(), run.sum)).collect()
    }

    /// Those, and runs that ended within [`RETURN_MAX`], whose descriptions have an end.
    pub fn recent(&self) -> Vec<(JobDesc, ScopeId)> {
        let runs = self.lock();
        runs.recent.values().map(|run| (run.desc.clone(), run.sum)).collect()
    }

    /// One of them.
    pub fn live_one(&self, id: &str) -> Option<(JobDesc, ScopeId)> {
        let runs = self.lock();
        runs.live().find(|run| run.desc.jobid == *id).map(|run| (run.desc.clone(), run.sum))
    }

    /// Runs that end from now on are told as live ones until the server has stopped.
    pub fn go_on_telling(&self, now: Timestamp) {
        self.lock().told_since = Some(now);
    }

    /// Whether a live run with this sum has clients here.
    pub fn is_here(&self, sum: ScopeId) -> bool {
        self.lock().recent.values().any(|run| run.sum == sum && run.is_here)
    }

    /// Whether a child may still go on with a run.
    pub fn has_part(&self, id: &str, child: &str) -> bool {
        let runs = self.lock();
        runs.recent.get(id).is_some_and(|run| run.parts.iter().any(|part| *part.child == *child))
    }

    /// The slot of a live run, and since when it is live.
    pub fn place(&self, id: &str) -> Option<(Option<u32>, Timestamp)> {
        self.lock().recent.get(id).map(|run| (run.slot, run.begin))
    }

    /// The lane of a live run: its series hold the run's samples.
    pub fn lane(&self, id: &str) -> Option<ScopeId> {
        self.lock().recent.get(id).map(|run| run.lane)
    }

    /// Runs that are over, by begin.
    pub fn finished(&self) -> Vec<Arc<FinishedRun>> {
        self.lock().finished.clone()
    }

    /// The latest run of a job that is over, or the one that began at `start_ms`.
    pub fn finished_one(&self, id: &str, start_ms: Option<u64>) -> Option<Arc<FinishedRun>> {
        let runs = self.lock();
        let is_meant = |run: &FinishedRun| {
            run.desc.jobid == id && start_ms.is_none_or(|start| run.desc.start_time == start || ms(run.begin) == start)
        };
        runs.finished.iter().rev().find(|run| is_meant(run)).cloned()
    }

    /// Adds a run that is over.
    pub fn add_finished(&self, run: FinishedRun) {
        let mut runs = self.lock();
        runs.finished.retain(|known| known.key != run.key);
        let at = runs.finished.partition_point(|known| known.begin <= run.begin);
        runs.finished.insert(at, Arc::new(run));
    }

    /// Forgets one.
    pub fn remove_finished(&self, key: &str) {
        self.lock().finished.retain(|known| *known.key != *key);
    }

    /// A connection joins the job that it describes, which begins if it does not run.
    ///
    /// # Errors
    /// Job, for an id that no job can have.
    pub async fn join(&self, live: &Arc<ProxyLive>, told: DescribedJob) -> Result<RunSeat, CounterRefusal> {
        check_id(&told.jobid, &live.node_id())?;
        let _changing = self.changing.lock().await;
        let id = told.jobid.clone();
        self.open(live, JobDesc::from(told)).await;
        let mut runs = self.lock();
        let Some(run) = runs.recent.get_mut(&id) else { return Err(vanished(&id)) };
        run.is_here = true;
        Ok(RunSeat { id, lane: run.lane })
    }

    /// A child has a job, which begins if it does not run. The lane is that of the child.
    ///
    /// # Errors
    /// Job, for an id that no job can have.
    pub async fn join_part(
        &self,
        live: &Arc<ProxyLive>,
        told: JobDesc,
        child: &Arc<str>,
        source: GaugeSource,
    ) -> Result<(RunSeat, ScopeId), CounterRefusal> {
        check_id(&told.jobid, &live.node_id())?;
        let _changing = self.changing.lock().await;
        let id = told.jobid.clone();
        self.open(live, told).await;
        let mut runs = self.lock();
        let Some(run) = runs.recent.get_mut(&id) else { return Err(vanished(&id)) };
        let lane = run.part(live, child, source);
        Ok((RunSeat { id, lane }, run.sum))
    }

    /// One more has a job.
    async fn open(&self, live: &Arc<ProxyLive>, mut desc: JobDesc) {
        let id = desc.jobid.clone();
        let known = self.lock().recent.get_mut(&id).map(|run| {
            run.connections += 1;
            let has_ended = run.end.take().is_some();
            run.desc.end_time = 0;
            let record = has_ended.then(|| keeping::open_record(&run.key, &run.desc, run.begin, run.slot));
            (Arc::clone(&run.key), record)
        });
        if let Some((key, record)) = known {
            if let Some(record) = record {
                // It goes on: what it left is no end.
                live.keep(record);
                self.remove_finished(&key);
            }
            return;
        }
        let free = self.forget_surplus(live);
        let begin = live.state.clock.now();
        if desc.start_time == 0 {
            desc.start_time = ms(begin);
        }
        desc.end_time = 0;
        let tie = tie(live, &id);
        let slot = match &tie {
            Some((caller, _)) => caller.slot_once_free(free).await,
            None => {
                free_slots(live, free).await;
                None
            }
        };
        let tags = lane_tags(live, &id, slot);
        let lane = live.table.open_lane(tags, GaugeSource::OWN, &[live.node, live.main]);
        let key: Arc<str> = format!("{}/{}/{id}", live.state.node, begin.micros()).into();
        live.keep(keeping::open_record(&key, &desc, begin, slot));
        let run = LiveRun {
            key,
            desc,
            begin,
            end: None,
            ended_at: Duration::ZERO,
            lane,
            sum: lane,
            slot,
            connections: 1,
            is_here: false,
            parts: Vec::new(),
            tie,
        };
        self.lock().recent.insert(id.clone(), run);
        tracing::info!(job = %id, "a job of Metric Proxy began");
    }

    /// A connection or a child leaves its job, which ends with its last one; whether it did.
    pub async fn leave(&self, live: &Arc<ProxyLive>, seat: RunSeat) -> bool {
        let _changing = self.changing.lock().await;
        let (now, at) = (live.state.clock.now(), live.state.clock.monotonic());
        let ended = {
            let mut runs = self.lock();
            let Some(run) = runs.recent.get_mut(&seat.id) else { return true };
            run.connections = run.connections.saturating_sub(1);
            if run.connections > 0 {
                return false;
            }
            run.end = Some(now);
            run.ended_at = at;
            run.desc.end_time = ms(now);
            let parts: Vec<ScopeId> = run.parts.iter().map(|part| part.lane).collect();
            (run.finished(live, now), run.lane, parts, run.sum, run.tie.clone())
        };
        let (finished, lane, parts, sum, tie) = ended;
        for lane in std::iter::once(lane).chain(parts.iter().copied()) {
            if let Err(error) = live.store_lane(lane).await {
                tracing::warn!(%error, job = %seat.id, "the last values of a job are not among its samples");
            }
        }
        let profile = live.options.has_profiles.then(|| {
            let is_mixed = !parts.is_empty() || live.scrapes.has_exporters();
            (profile_readings(live, sum), is_mixed.then(|| with_data(live.table.all(lane))))
        });
        let keeper = Arc::clone(live);
        // It may wait for a disk. Each thread for that takes memory, so one does all.
        let kept = tokio::task::spawn_blocking(move || {
            let job = finished.desc.jobid.clone();
            match profile {
                Some((readings, own)) => {
                    keeping::keep_profile(&keeper, &finished, &readings, own.as_deref());
                    keeper.runs.add_finished(finished);
                }
                None => keeper.keep(keeping::no_record(&finished.key)),
            }
            let Some((caller, _)) = tie else { return };
            if let Err(error) = caller.slots().end(caller.id(), serde_json::Map::new()) {
                tracing::warn!(%error, %job, "the end of a job cannot be noted");
            }
        });
        if let Err(panic) = kept.await {
            tracing::error!(%panic, job = %seat.id, "the end of a job was not kept");
        }
        for scope in parts.into_iter().chain([lane, sum]) {
            live.table.shrink(scope);
        }
        tracing::info!(job = %seat.id, "a job of Metric Proxy ended");
        true
    }

    /// Gives back what runs hold that will not go on, and forgets profiles that are old.
    pub async fn forget_old(&self, live: &ProxyLive) {
        let _changing = self.changing.lock().await;
        let at = live.state.clock.monotonic();
        let is_old = |run: &LiveRun| run.end.is_some() && at.saturating_sub(run.ended_at) >= RETURN_MAX;
        let old: Vec<LiveRun> = {
            let mut runs = self.lock();
            let ids: Vec<String> =
                runs.recent.iter().filter(|(_, run)| is_old(run)).map(|(id, _)| id.clone()).collect();
            ids.iter().filter_map(|id| runs.recent.remove(id)).collect()
        };
        for run in old {
            give_back(live, run);
        }
        keeping::forget_old_profiles(live);
    }

    /// Gives back what runs hold that ended first, where many wait for a client to come back; whose slots are free. Not while
    /// somebody polls, who is to learn their last values, and not of what children count, who may be silent for a moment
    /// all at once.
    fn forget_surplus(&self, live: &ProxyLive) -> Vec<JobId> {
        if live.tree.is_polled(live.state.clock.monotonic(), RETURN_MAX) {
            return Vec::new();
        }
        let surplus: Vec<LiveRun> = {
            let mut runs = self.lock();
            let is_over = |run: &LiveRun| run.end.is_some() && run.parts.is_empty() && live.table.is_stored(run.lane);
            let over = runs.recent.iter().filter(|(_, run)| is_over(run));
            let mut over: Vec<_> = over.map(|(id, run)| (run.ended_at, id.clone(), live.table.len(run.lane))).collect();
            let mut surplus = Vec::new();
            while !may_wait(over.len(), over.iter().map(|(_, _, counters)| counters).sum()) {
                let first = over.iter().enumerate().min_by_key(|(_, (ended_at, ..))| *ended_at).map(|(at, _)| at);
                let Some((_, id, _)) = first.map(|at| over.swap_remove(at)) else { break };
                surplus.extend(runs.recent.remove(&id));
            }
            surplus
        };
        let of_run = |mut run: LiveRun| {
            // What holds the job's connection goes.
            let id = run.tie.take().map(|(caller, _)| caller.id().clone());
            give_back(live, run);
            id
        };
        surplus.into_iter().filter_map(of_run).collect()
    }

    /// A run that ended a moment before this process began goes on if its job comes back. What children counted for it
    /// is `told`, by child.
    pub(super) fn resume(
        &self,
        live: &Arc<ProxyLive>,
        run: &FinishedRun,
        lane: ScopeId,
        ended_before: Duration,
        told: &BTreeMap<Arc<str>, Vec<CounterReading>>,
    ) {
        let at = live.state.clock.monotonic();
        let id = run.desc.jobid.clone();
        let tie = tie(live, &id);
        let mut resumed = LiveRun {
            key: Arc::clone(&run.key),
            desc: run.desc.clone(),
            begin: run.begin,
            end: Some(run.end),
            ended_at: at.saturating_sub(ended_before),
            lane,
            sum: lane,
            slot: run.slot,
            connections: 0,
            is_here: told.is_empty() || !live.table.is_empty(lane),
            parts: Vec::new(),
            tie,
        };
        for (child, readings) in told {
            let part = resumed.part(live, child, live.scrapes.source(child));
            for refusal in live.table.tell(part, readings) {
                live.refuse(&refusal);
            }
        }
        self.lock().recent.insert(id, resumed);
    }
}

/// The slots of jobs that are over are free, where no other job begins with that.
async fn free_slots(live: &ProxyLive, over: Vec<JobId>) {
    let Some(slots) = live.state.slots.clone().filter(|_| !over.is_empty()) else { return };
    // The thread that writes intervals may wait for a disk.
    let freed = tokio::task::spawn_blocking(move || over.iter().for_each(|id| slots.release(id)));
    if let Err(panic) = freed.await {
        tracing::error!(%panic, "a job that is over keeps its slot");
    }
}

/// Whether so many runs that are over, with so many counters, may wait for a client to come back.
fn may_wait(runs: usize, counters: usize) -> bool {
    runs <= RETURNING_MIN || (runs <= RETURNING_MAX && counters <= RETURNING_COUNTERS_MAX)
}

/// What a run holds in the live table.
fn give_back(live: &ProxyLive, run: LiveRun) {
    live.table.close(run.lane);
    if run.sum != run.lane {
        live.table.close(run.sum);
    }
    for part in run.parts {
        live.table.close(part.lane);
        live.scrapes.forget_part(live, &part.child, &run.desc.jobid);
    }
}

fn vanished(id: &str) -> CounterRefusal {
    CounterRefusal::Job { id: id.chars().take(64).collect(), why: "it ended at this moment" }
}

/// What a profile has: the job's counters, and what the node was like.
fn profile_readings(live: &ProxyLive, sum: ScopeId) -> Vec<CounterReading> {
    let beside = live.beside(sum);
    let mut readings = live.table.all(sum);
    readings.retain(|reading| !beside.has(&reading.name));
    readings.extend(beside.readings);
    with_data(readings)
}

fn with_data(mut readings: Vec<CounterReading>) -> Vec<CounterReading> {
    readings.retain(|reading| reading.value.has_data());
    readings
}

/// The tags of what a child counts for a job.
pub(super) fn part_tags(live: &ProxyLive, id: &str, slot: Option<u32>, child: &str) -> LaneTags {
    let LaneTags { mut more, .. } = lane_tags(live, id, slot);
    let default = DefaultTags::of_process(live.host_of_target(child), None).in_slot(slot);
    more.push((TARGET_TAG.into(), child.into()));
    more.sort();
    LaneTags { default, more, prefix: prefix_of(child) }
}

/// The tags of a job's samples on this node.
pub(super) fn lane_tags(live: &ProxyLive, id: &str, slot: Option<u32>) -> LaneTags {
    let named = (slot.is_none() && !is_servers_own(live, id, slot)).then_some(id);
    job_tags(Arc::clone(&live.state.node), slot, named)
}

/// Whether that is the job of the server, whose samples are those of no other.
pub(super) fn is_servers_own(live: &ProxyLive, id: &str, slot: Option<u32>) -> bool {
    slot.is_none() && *id == *live.state.job
}

/// The tags of what another server of a node counted for a job.
pub fn imported_tags(node: &str, id: &str, slot: Option<u32>) -> LaneTags {
    // No tag has an empty value: such a job is none.
    job_tags(node.into(), slot, Some(id).filter(|id| !id.is_empty()))
}

fn job_tags(node: Arc<str>, slot: Option<u32>, named: Option<&str>) -> LaneTags {
    let default = DefaultTags::of_process(node, None).in_slot(slot);
    let more = named.map(|id| (JOB_TAG.into(), id.escape_debug().to_string().into())).into_iter().collect();
    LaneTags { default, more, prefix: "" }
}

/// Whether an id is that of a sum, which is no job.
pub fn is_sum(id: &str) -> bool {
    id == MAIN || id.starts_with(NODE)
}

/// What holds the slot of a job, where jobs share the server and it is another than the server's own.
fn tie(live: &ProxyLive, id: &str) -> Option<(JobCaller, Arc<JobTie>)> {
    let slots = live.state.slots.as_ref()?;
    // A slot's job has no control characters.
    let id = JobId::new(&id.escape_debug().to_string()).ok().flatten()?;
    let tie = Arc::new(JobTie::new(id, None));
    let caller = JobCaller::tied(slots, &tie);
    (!caller.is_servers_own()).then_some((caller, tie))
}

fn check_id(id: &str, node: &str) -> Result<(), CounterRefusal> {
    let why = match id {
        MAIN => "that is the sum of all jobs, which no job may write",
        id if id == node || id.starts_with(NODE) => "that is the sum of a node, which no job may write",
        id if id.escape_debug().to_string().len() > JOB_ID_BYTES_MAX => "an id has 256 bytes at most",
        _ => return Ok(()),
    };
    Err(CounterRefusal::Job { id: id.chars().take(64).collect(), why })
}

/// Milliseconds since 1970.
pub fn ms(time: Timestamp) -> u64 {
    u64::try_from(time.micros() / 1_000).unwrap_or(0)
}
