//! Runs of jobs: each has a lane of the live table while clients of it are connected, and leaves a profile. Here stands
//! which there are; [`seats`](super::seats) lets them begin and end.
//!
//! A run that is over stays beside the live ones for [`RETURN_MAX`], as a client may come back. Where more than
//! [`RETURNING_MAX`] runs wait for that, or more than [`RETURNING_MIN`] with more than [`RETURNING_COUNTERS_MAX`]
//! counters, those that ended first do not go on either: their slots, and with them their series, are the next runs', so
//! that many short jobs have no more series than few.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::Timestamp;
use telem_ingest::counters::{CounterTable, LaneTags, ScopeId};

use super::shapes::JobDesc;
use super::tags::{imported_tags, job_tags};
use crate::slots::{JobCaller, JobTie};

/// A client that comes so soon after a run's end goes on with it.
pub const RETURN_MAX: Duration = Duration::from_secs(60);
/// Most runs that wait for a client to come back.
pub const RETURNING_MAX: usize = 32;
/// Most counters that those have together; but so many runs wait however many they have.
pub const RETURNING_COUNTERS_MAX: usize = 1_000;
pub const RETURNING_MIN: usize = 8;

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
pub struct LiveRun {
    pub key: Arc<str>,
    pub desc: JobDesc,
    pub begin: Timestamp,
    pub end: Option<Timestamp>,
    /// By a clock that never jumps.
    pub ended_at: Duration,
    pub lane: ScopeId,
    pub sum: ScopeId,
    pub slot: Option<u32>,
    /// Of clients here, and children that have the job.
    pub connections: usize,
    /// Clients were here, and not only those of children.
    pub is_here: bool,
    /// What children count for it. Then its sum is above them and its lane.
    pub parts: Vec<RunPart>,
    /// Holds its slot.
    pub tie: Option<(JobCaller, Arc<JobTie>)>,
}

/// What a child counts for a run.
#[derive(Clone, Debug)]
pub struct RunPart {
    pub child: Arc<str>,
    pub lane: ScopeId,
}

impl LiveRun {
    /// The sum of its lane and of what children count.
    pub fn open_sum(&mut self, table: &CounterTable) -> ScopeId {
        if self.sum == self.lane {
            self.sum = table.open_sum();
            table.put_above(self.lane, self.sum);
        }
        self.sum
    }
}

/// All runs of this server.
#[derive(Default)]
pub struct ProxyRuns {
    runs: Mutex<RunTable>,
    /// Held while a run begins or ends, so that one does not begin while it ends.
    pub changing: tokio::sync::Mutex<()>,
}

/// Runs, as they stand at a moment.
#[derive(Default)]
pub struct RunTable {
    /// Runs that end from then on are told as live ones: this server leaves its tree, and its parent polls once more.
    told_since: Option<Timestamp>,
    /// By id; those that ended within [`RETURN_MAX`] too.
    pub recent: BTreeMap<String, LiveRun>,
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
    pub fn lock(&self) -> MutexGuard<'_, RunTable> {
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

    /// When the run of a job began that is live, or was a moment ago.
    pub fn begin(&self, id: &str) -> Option<Timestamp> {
        self.place(id).map(|(_, begin)| begin)
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

    /// Takes out a run that is over and might go on.
    pub fn take_over(&self, id: &str, key: &str) -> Option<LiveRun> {
        let mut runs = self.lock();
        let is_meant = runs.recent.get(id).is_some_and(|run| run.end.is_some() && *run.key == *key);
        if is_meant { runs.recent.remove(id) } else { None }
    }

    /// Whether a run is over and has a profile.
    pub fn is_finished(&self, key: &str) -> bool {
        self.lock().finished.iter().any(|run| *run.key == *key)
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

    /// Takes out those that ended too long ago to go on.
    pub fn take_old(&self, at: Duration) -> Vec<LiveRun> {
        let is_old = |run: &LiveRun| run.end.is_some() && at.saturating_sub(run.ended_at) >= RETURN_MAX;
        let mut runs = self.lock();
        let ids: Vec<String> = runs.recent.iter().filter(|(_, run)| is_old(run)).map(|(id, _)| id.clone()).collect();
        ids.iter().filter_map(|id| runs.recent.remove(id)).collect()
    }

    /// Takes out those that ended first, where many wait for a client to come back; but not what children count, who may
    /// be silent for a moment all at once.
    pub fn take_surplus(&self, table: &CounterTable) -> Vec<LiveRun> {
        let mut runs = self.lock();
        let is_over = |run: &LiveRun| run.end.is_some() && run.parts.is_empty() && table.is_stored(run.lane);
        let over = runs.recent.iter().filter(|(_, run)| is_over(run));
        let mut over: Vec<_> = over.map(|(id, run)| (run.ended_at, id.clone(), table.len(run.lane))).collect();
        let mut surplus = Vec::new();
        while !may_wait(over.len(), over.iter().map(|(_, _, counters)| counters).sum()) {
            let first = over.iter().enumerate().min_by_key(|(_, (ended_at, ..))| *ended_at).map(|(at, _)| at);
            let Some((_, id, _)) = first.map(|at| over.swap_remove(at)) else { break };
            surplus.extend(runs.recent.remove(&id));
        }
        surplus
    }
}

/// Whether so many runs that are over, with so many counters, may wait for a client to come back.
fn may_wait(runs: usize, counters: usize) -> bool {
    runs <= RETURNING_MIN || (runs <= RETURNING_MAX && counters <= RETURNING_COUNTERS_MAX)
}

/// Milliseconds since 1970.
pub fn ms(time: Timestamp) -> u64 {
    u64::try_from(time.micros() / 1_000).unwrap_or(0)
}
