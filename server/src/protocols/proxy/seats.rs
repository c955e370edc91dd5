//! Seats in the [runs](super::runs) of jobs: who takes the first one begins a run, and who leaves the last one ends it.
//!
//! A client that comes within [`RETURN_MAX`] of the end of a run goes on with it; a later one begins another, and the
//! older one's profile stays. A child that has the job is one of its connections, with a lane of its own: what children
//! count is in `main` by their own sums ([`scrapes`](super::scrapes)), so a run adds nothing of it there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Timestamp;
use telem_ingest::counters::{CounterReading, CounterRefusal, GaugeSource, ScopeId};
use telem_ingest::decode::proxy::DescribedJob;

use super::forgetting;
use super::keeping;
use super::live::ProxyLive;
use super::runs::{FinishedRun, LiveRun, RETURN_MAX, RunPart, RunSeat, ms};
use super::shapes::JobDesc;
use super::tags::{MAIN, NODE};
use crate::slots::{JOB_ID_BYTES_MAX, JobCaller, JobId, JobTie};

/// A connection joins the job that it describes, which begins if it does not run.
///
/// # Errors
/// Job, for an id that no job can have.
pub async fn join(live: &Arc<ProxyLive>, told: DescribedJob) -> Result<RunSeat, CounterRefusal> {
    check_id(&told.jobid, &live.node_id())?;
    let _changing = live.runs.changing.lock().await;
    let id = told.jobid.clone();
    open(live, JobDesc::from(told)).await;
    let mut runs = live.runs.lock();
    let Some(run) = runs.recent.get_mut(&id) else { return Err(vanished(&id)) };
    run.is_here = true;
    Ok(RunSeat { id, lane: run.lane })
}

/// A child has a job, which begins if it does not run. The lane is that of the child.
///
/// # Errors
/// Job, for an id that no job can have.
pub async fn join_part(
    live: &Arc<ProxyLive>,
    told: JobDesc,
    child: &Arc<str>,
    source: GaugeSource,
) -> Result<(RunSeat, ScopeId), CounterRefusal> {
    check_id(&told.jobid, &live.node_id())?;
    let _changing = live.runs.changing.lock().await;
    let id = told.jobid.clone();
    open(live, told).await;
    let mut runs = live.runs.lock();
    let Some(run) = runs.recent.get_mut(&id) else { return Err(vanished(&id)) };
    let lane = open_part(live, run, child, source);
    Ok((RunSeat { id, lane }, run.sum))
}

/// One more has a job.
async fn open(live: &Arc<ProxyLive>, mut desc: JobDesc) {
    let id = desc.jobid.clone();
    let known = live.runs.lock().recent.get_mut(&id).map(|run| {
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
            live.runs.remove_finished(&key);
        }
        return;
    }
    let free = forget_surplus(live).await;
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
    let tags = live.job_tags(&id, slot);
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
    live.runs.lock().recent.insert(id.clone(), run);
    tracing::info!(job = %id, "a job of Metric Proxy began");
}

/// A connection or a child leaves its job, which ends with its last one; whether it did.
pub async fn leave(live: &Arc<ProxyLive>, seat: RunSeat) -> bool {
    let _changing = live.runs.changing.lock().await;
    let (now, at) = (live.state.clock.now(), live.state.clock.monotonic());
    let ended = {
        let mut runs = live.runs.lock();
        let Some(run) = runs.recent.get_mut(&seat.id) else { return true };
        run.connections = run.connections.saturating_sub(1);
        if run.connections > 0 {
            return false;
        }
        run.end = Some(now);
        run.ended_at = at;
        run.desc.end_time = ms(now);
        let parts: Vec<ScopeId> = run.parts.iter().map(|part| part.lane).collect();
        (finished(live, run, now), run.lane, parts, run.sum, run.tie.clone())
    };
    let (finished, lane, parts, sum, tie) = ended;
    for lane in std::iter::once(lane).chain(parts.iter().copied()) {
        if let Err(error) = live.store_lane(lane).await {
            tracing::warn!(%error, job = %seat.id, "the last values of a job are not among its samples");
        }
    }
    let is_mixed = !parts.is_empty() || live.targets.has_exporters();
    let (profile, own) = (profile_readings(live, sum), is_mixed.then(|| with_data(live.table.all(lane))));
    let keeper = Arc::clone(live);
    // It may wait for a disk. Each thread for that takes memory, so one does all.
    let kept = tokio::task::spawn_blocking(move || {
        let job = finished.desc.jobid.clone();
        keeping::keep_profile(&keeper, &finished, &profile, own.as_deref());
        if keeper.options.has_profiles {
            keeper.runs.add_finished(finished);
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
pub async fn forget_old(live: &Arc<ProxyLive>) {
    let _changing = live.runs.changing.lock().await;
    let over = live.runs.take_old(live.state.clock.monotonic());
    let mut unwanted: Vec<_> = over.into_iter().filter_map(|run| give_back(live, run)).collect();
    let old = keeping::old_runs(live);
    for run in &old {
        // Who comes back begins another one: what this one counted is kept apart from its lane now.
        if let Some(recent) = live.runs.take_over(&run.desc.jobid, &run.key) {
            give_back(live, recent);
        }
    }
    for run in &old {
        live.runs.remove_finished(&run.key);
    }
    unwanted.extend(old);
    forget(live, unwanted).await;
}

/// Forgets what runs left, beside: it reads and writes much.
async fn forget(live: &Arc<ProxyLive>, runs: Vec<Arc<FinishedRun>>) {
    if runs.is_empty() {
        return;
    }
    let keeper = Arc::clone(live);
    if let Err(panic) = tokio::task::spawn_blocking(move || forgetting::forget(&keeper, &runs)).await {
        tracing::error!(%panic, "jobs that are over were not forgotten");
    }
}

/// Gives back what runs hold that ended first, where many wait for a client to come back; whose slots are free. Not while
/// somebody polls, who is to learn their last values.
async fn forget_surplus(live: &Arc<ProxyLive>) -> Vec<JobId> {
    if live.tree.is_polled(live.state.clock.monotonic(), RETURN_MAX) {
        return Vec::new();
    }
    let (mut free, mut unwanted) = (Vec::new(), Vec::new());
    for mut run in live.runs.take_surplus(&live.table) {
        // What holds the job's connection goes.
        free.extend(run.tie.take().map(|(caller, _)| caller.id().clone()));
        unwanted.extend(give_back(live, run));
    }
    forget(live, unwanted).await;
    free
}

/// A run that ended a moment before this process began goes on if its job comes back. What children counted for it
/// is `told`, by child.
pub fn resume(
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
        let part = open_part(live, &mut resumed, child, live.targets.source(child));
        for refusal in live.table.tell(part, readings) {
            live.refuse(&refusal);
        }
    }
    live.runs.lock().recent.insert(id, resumed);
}

/// The lane of what a child counts for a run; as it was left, where the child was there before.
fn open_part(live: &ProxyLive, run: &mut LiveRun, child: &Arc<str>, source: GaugeSource) -> ScopeId {
    if let Some(part) = run.parts.iter().find(|part| part.child == *child) {
        return part.lane;
    }
    let sum = run.open_sum(&live.table);
    let tags = live.part_tags(&run.desc.jobid, run.slot, child);
    let lane = live.table.open_lane(tags, source, &[sum]);
    run.parts.push(RunPart { child: Arc::clone(child), lane });
    lane
}

fn finished(live: &ProxyLive, run: &LiveRun, end: Timestamp) -> FinishedRun {
    let (key, desc) = (Arc::clone(&run.key), run.desc.clone());
    let is_servers_own = live.is_servers_own(&desc.jobid, run.slot);
    FinishedRun { key, desc, begin: run.begin, end, slot: run.slot, is_imported: false, is_servers_own }
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

/// What a run holds in the live table. The run, where no profile of it is wanted: it is to be forgotten.
fn give_back(live: &ProxyLive, run: LiveRun) -> Option<Arc<FinishedRun>> {
    let is_unwanted = !live.options.has_profiles && !live.runs.is_finished(&run.key);
    let unwanted = is_unwanted.then(|| Arc::new(finished(live, &run, run.end.unwrap_or(run.begin))));
    live.table.close(run.lane);
    if run.sum != run.lane {
        live.table.close(run.sum);
    }
    for part in run.parts {
        live.table.close(part.lane);
        live.targets.forget_part(&part.child, &run.desc.jobid);
    }
    unwanted
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
