//! Jobs that share a server: each has a slot, from its first word until a while after its last.
//!
//! Whose a sample is decides the connection that it comes over: the environment of the process at the other end of the
//! Unix socket, or the header [`HEADER`]. The number of the slot becomes a tag of its series, and the database learns
//! which job had the slot when ([`JobInterval`]). So nothing is stored with a sample, and there are no more series than
//! jobs ran at once.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use telem_engine::{Clock, Db, Durability, JobInterval, MetaChange, Timestamp};
use telem_ingest::rank;

use crate::info::rfc3339;
use crate::settings;

/// Names the job of a request that comes over TCP.
pub const HEADER: &str = "x-telem-job";
/// Most jobs at once; samples of further ones belong to no job.
pub const SLOTS_MAX: u32 = 256;
/// Longest id of a job, in bytes.
pub const JOB_ID_BYTES_MAX: usize = 256;
/// A job is over when so long no connection of it was open and no request of it came; one of the same id that begins
/// earlier is the same job.
pub const LINGER: Duration = Duration::from_secs(60);
/// How often it is looked for jobs that are over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Most words of a command that are described, and their longest.
const COMMAND_WORDS_MAX: usize = 256;
const COMMAND_BYTES_MAX: u64 = 64 << 10;
/// What a database calls the job of what no job sent.
const NO_JOB: &str = "local";
/// Tells the processes of a job which job of telem they belong to.
const TELEM_JOB: &str = "TELEM_JOB";
/// What schedulers call a job, in the environment of everything that they start for it.
const SCHEDULER_NAMES: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];

/// The name of a job among those that share a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

impl JobId {
    /// # Errors
    /// A sentence for the user.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > JOB_ID_BYTES_MAX {
            return Err(format!("the id of a job has {} bytes; expected 1 to {JOB_ID_BYTES_MAX}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("the id of a job has a control character".to_owned());
        }
        if text == NO_JOB {
            return Err(format!("no job may be called '{NO_JOB}': that is what no job sent"));
        }
        Ok(Self(text.into()))
    }

    /// The job that a process was started for, from its environment: telem's own word before the scheduler's.
    pub fn of_environment(environment: &[u8]) -> Option<Self> {
        let names = std::iter::once(TELEM_JOB).chain(SCHEDULER_NAMES);
        let mut values = names.filter_map(|name| rank::variable(environment, name)).filter(|value| !value.is_empty());
        let text = std::str::from_utf8(values.next()?).ok()?;
        Self::new(text).inspect_err(|why| tracing::debug!(why, "a process does not say its job")).ok()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The jobs that share a server, and the slots they have.
#[derive(Debug)]
pub struct JobSlots {
    db: Db,
    /// The server's own job: what it sends needs no slot.
    own: String,
    clock: Arc<dyn Clock>,
    running: Mutex<BTreeMap<JobId, RunningJob>>,
}

#[derive(Debug)]
struct RunningJob {
    slot: u32,
    begin: Timestamp,
    connections: usize,
    /// When something of it was heard, by the wall clock.
    heard: Timestamp,
    /// The same by a clock that never jumps.
    heard_at: Duration,
    /// Somebody said that it is over.
    is_ended: bool,
}

/// A connection of a job, until it is dropped.
#[derive(Debug)]
pub struct JobSeat {
    slots: Arc<JobSlots>,
    pub id: JobId,
    pub slot: u32,
}

impl Drop for JobSeat {
    fn drop(&mut self) {
        let (now, at) = self.slots.now();
        if let Some(job) = self.slots.lock().get_mut(&self.id) {
            job.connections = job.connections.saturating_sub(1);
            (job.heard, job.heard_at) = (now, at);
        }
    }
}

impl JobSlots {
    /// Jobs that no server ended go on if they are heard of soon.
    pub fn resume(db: Db, clock: Arc<dyn Clock>, own: &str) -> Arc<Self> {
        let snapshot = db.snapshot();
        let (now, at) = (clock.now(), clock.monotonic());
        let last = db.info().ok().and_then(|info| info.time_bounds).map(|(_, last)| last.min(now));
        let open = snapshot.meta().job_intervals().iter().filter(|interval| interval.end.is_none());
        let running = open.filter_map(|interval| {
            let id = JobId::new(interval.job["id"].as_str()?).ok()?;
            let heard = last.unwrap_or(interval.begin).max(interval.begin);
            let (slot, begin) = (interval.slot, interval.begin);
            Some((id, RunningJob { slot, begin, connections: 0, heard, heard_at: at, is_ended: false }))
        });
        let running = Mutex::new(running.collect());
        Arc::new(Self { db, own: own.to_owned(), clock, running })
    }

    /// As [`JobSlots::hear`], of a job that runs already; it waits for no disk.
    pub fn hear_again(&self, id: &JobId) -> Option<u32> {
        let (now, at) = self.now();
        let mut running = self.lock();
        let job = running.get_mut(id).filter(|job| !job.is_ended)?;
        (job.heard, job.heard_at) = (now, at);
        Some(job.slot)
    }

    /// Something came of a job that no connection of its own stands for: its slot, or `None` if it can have none.
    /// `describe` is asked if the job begins with it.
    pub fn hear(&self, id: &JobId, describe: impl FnOnce() -> Map<String, Json>) -> Option<u32> {
        if let Some(slot) = self.hear_again(id) {
            return Some(slot);
        }
        if *id.0 == *self.own {
            return None;
        }
        let (now, at) = self.now();
        let mut running = self.lock();
        // Another connection may have come between the two locks.
        if let Some(job) = running.get(id).filter(|job| !job.is_ended) {
            return Some(job.slot);
        }
        let interval = self.next_interval(id, &running, now)?;
        let interval = described(interval, id, describe);
        let (slot, begin) = (interval.slot, interval.begin);
        if let Err(error) = self.db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered) {
            tracing::warn!(%error, job = %id, "a job cannot be noted, and its samples belong to none");
            return None;
        }
        let connections = running.get(id).map_or(0, |job| job.connections);
        let job = RunningJob { slot, begin, connections, heard: now, heard_at: at, is_ended: false };
        running.insert(id.clone(), job);
        tracing::info!(job = %id, slot, "a job began");
        Some(slot)
    }

    /// A connection of a job, which goes on at least as long as it is open; `None` if it can have no slot.
    pub fn seat(self: &Arc<Self>, id: JobId, describe: impl FnOnce() -> Map<String, Json>) -> Option<JobSeat> {
        let slot = self.hear(&id, describe)?;
        if let Some(job) = self.lock().get_mut(&id) {
            job.connections += 1;
        }
        Some(JobSeat { slots: Arc::clone(self), id, slot })
    }

    /// What a job that begins now has: its own slot if it was there a moment ago, else the lowest that is free.
    fn next_interval(&self, id: &JobId, running: &BTreeMap<JobId, RunningJob>, now: Timestamp) -> Option<JobInterval> {
        let snapshot = self.db.snapshot();
        let mut latest: BTreeMap<u32, &JobInterval> = BTreeMap::new();
        for interval in snapshot.meta().job_intervals() {
            latest.insert(interval.slot, interval);
        }
        let is_soon = |end: Timestamp| now.micros().saturating_sub(end.micros()) <= LINGER.as_micros() as i64;
        // Connections of a job that was said to be over still write to its slot.
        let goes_on = |one: &JobInterval| running.contains_key(id) || one.end.is_none_or(is_soon);
        let own = latest.values().find(|one| one.job["id"] == *id.0 && goes_on(one));
        if let Some(own) = own {
            return Some(JobInterval { end: None, ..JobInterval::clone(own) });
        }
        let taken: BTreeSet<u32> = running.values().map(|job| job.slot).collect();
        let is_free =
            |slot: &u32| !taken.contains(slot) && latest.get(slot).is_none_or(|interval| interval.end.is_some());
        let Some(slot) = (0..SLOTS_MAX).find(is_free) else {
            tracing::warn!(job = %id, "{SLOTS_MAX} jobs run at once; what further ones send belongs to no job");
            return None;
        };
        let since = latest.get(&slot).and_then(|before| before.end).map(|end| Timestamp::from_micros(end.micros() + 1));
        let begin = since.map_or(now, |since| since.max(now));
        Some(JobInterval { slot, since, begin, end: None, job: Json::Null })
    }

    /// Says that a job is over, and how. Its slot stays its own while connections of it are open.
    ///
    /// It answers with the description, or `None` if no job of that id runs.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn end(&self, id: &JobId, how: Map<String, Json>) -> telem_engine::Result<Option<Json>> {
        let (now, at) = self.now();
        let mut running = self.lock();
        let Some(job) = running.get_mut(id).filter(|job| !job.is_ended) else { return Ok(None) };
        let told = self.note_end(job, now, how)?;
        job.is_ended = true;
        (job.heard, job.heard_at) = (now, at);
        if job.connections == 0 {
            running.remove(id);
        }
        tracing::info!(job = %id, "a job ended");
        Ok(told)
    }

    /// Changes the description of a job that runs; `None` if none of that id does.
    ///
    /// # Errors
    /// What `change` says, or the engine.
    pub fn describe<E: From<telem_engine::Error>>(
        &self,
        id: &JobId,
        change: impl FnOnce(Json) -> Result<Json, E>,
    ) -> Result<Option<Json>, E> {
        let running = self.lock();
        let Some(interval) = running.get(id).and_then(|job| self.interval(job)) else { return Ok(None) };
        let job = change(interval.job.clone())?;
        let interval = JobInterval { job: job.clone(), ..interval };
        self.db.put_meta(MetaChange::JobInterval(interval), Durability::Synced)?;
        Ok(Some(job))
    }

    /// The description of a job that runs.
    pub fn description(&self, id: &JobId) -> Option<Json> {
        self.interval(self.lock().get(id)?).map(|interval| interval.job)
    }

    /// Ends the jobs that were not heard of for a while.
    pub fn sweep(&self) {
        let (_, at) = self.now();
        let mut running = self.lock();
        running.retain(|id, job| {
            if job.connections > 0 || at.saturating_sub(job.heard_at) < LINGER {
                return true;
            }
            if !job.is_ended
                && let Err(error) = self.note_end(job, job.heard, Map::new())
            {
                tracing::warn!(%error, job = %id, "the end of a job cannot be noted yet");
                return true;
            }
            tracing::info!(job = %id, "nothing is heard of a job any more");
            false
        });
    }

    /// Ends all jobs because the server stops. Those that are heard of soon after it started again go on.
    pub fn close(&self) {
        let (now, _) = self.now();
        for (id, job) in std::mem::take(&mut *self.lock()) {
            let end = if job.connections > 0 { now } else { job.heard };
            if !job.is_ended
                && let Err(error) = self.note_end(&job, end, Map::new())
            {
                tracing::warn!(%error, job = %id, "the end of a job cannot be noted");
            }
        }
    }

    fn note_end(&self, job: &RunningJob, end: Timestamp, how: Map<String, Json>) -> telem_engine::Result<Option<Json>> {
        let Some(mut interval) = self.interval(job) else { return Ok(None) };
        let end = end.max(job.begin);
        interval.end = Some(end);
        interval.job["end"] = rfc3339(end).into();
        if let Some(fields) = interval.job.as_object_mut() {
            fields.extend(how);
        }
        let told = interval.job.clone();
        self.db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered)?;
        Ok(Some(told))
    }

    fn interval(&self, job: &RunningJob) -> Option<JobInterval> {
        let snapshot = self.db.snapshot();
        let is_its = |interval: &&JobInterval| interval.slot == job.slot && interval.begin == job.begin;
        snapshot.meta().job_intervals().iter().rev().find(is_its).cloned()
    }

    fn now(&self) -> (Timestamp, Duration) {
        (self.clock.now(), self.clock.monotonic())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, RunningJob>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for jobs that are over, for ever.
pub async fn watch(slots: Arc<JobSlots>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let slots = Arc::clone(&slots);
        // It writes to the database.
        if let Err(panic) = tokio::task::spawn_blocking(move || slots.sweep()).await {
            tracing::warn!(%panic, "jobs that are over were not looked for");
        }
    }
}

/// An interval that begins, or that goes on.
fn described(mut interval: JobInterval, id: &JobId, describe: impl FnOnce() -> Map<String, Json>) -> JobInterval {
    match interval.job.as_object_mut() {
        Some(known) => {
            for field in ["end", "exit_code", "signal"] {
                known.remove(field);
            }
        }
        None => {
            let mut fields = describe();
            fields.insert("id".to_owned(), json!(id.0));
            fields.insert("start".to_owned(), json!(rfc3339(interval.begin)));
            interval.job = Json::Object(fields);
        }
    }
    interval
}

/// What a process of this user tells of its job: the first one that is heard of stands for all.
pub fn describe_process(id: &JobId, pid: u32, environment: &[u8]) -> Map<String, Json> {
    let proc = format!("/proc/{pid}");
    let text = |name: &str| rank::variable(environment, name).map(|value| String::from_utf8_lossy(value).into_owned());
    let variables = settings::SCHEDULER_VARIABLES.iter();
    let scheduler: Map<String, Json> =
        variables.filter_map(|name| Some(((*name).to_owned(), Json::String(text(name)?)))).collect();
    let mut fields = Map::new();
    let mut add = |name: &str, value: Option<Json>| value.map(|value| fields.insert(name.to_owned(), value));
    add("parent", settings::parent(&id.0, text).map(Json::String));
    add("name", text("TELEM_NAME").map(Json::String));
    add("command", command(Path::new(&proc)));
    add("user", text("USER").or_else(|| text("LOGNAME")).map(Json::String));
    let cwd = std::fs::read_link(format!("{proc}/cwd")).ok();
    add("cwd", cwd.map(|dir| dir.to_string_lossy().into_owned().into()));
    add("pid", Some(pid.into()));
    add("scheduler", Some(Json::Object(scheduler)));
    fields
}

fn command(proc: &Path) -> Option<Json> {
    let mut text = Vec::new();
    let file = std::fs::File::open(proc.join("cmdline")).ok()?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, COMMAND_BYTES_MAX), &mut text).ok()?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|byte| *byte == 0).take(COMMAND_WORDS_MAX);
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    (!text.is_empty()).then(|| words.into())
}
