//! Jobs that share a server: whose the samples of a connection are, when each job began, and when it ended.
//!
//! A job is named by the environment of the process at the other end of the Unix socket, or by the header
//! `X-Telem-Job`. It begins when something of it is written, never when it is asked. From then on it has a slot, which
//! its samples carry as a tag, and an interval in the database. It is over when it says so. One that says nothing for
//! [`LINGER`] has an end too, and goes on as the same job if it is heard of again within [`RETURN_MAX`].
//!
//! Two locks keep this from waiting for disks: [`JobSlots::jobs`] is held for moments, also on threads of the network;
//! whoever changes the database holds [`JobSlots::writing`] besides, on a thread that may wait.

#[cfg(test)]
mod tests;

mod caller;
mod process;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use telem_engine::{Clock, Db, Durability, JobInterval, MetaChange, Timestamp};
use telem_ingest::rank;

pub use self::caller::{JobCaller, JobTie, tags_of};
pub use self::process::ProcessMark;
use self::process::describe_process;
use crate::config;
use crate::info::rfc3339;

/// The header that names the job of a request.
pub const HEADER: &str = "x-telem-job";
/// Most jobs that run at once; what others send belongs to no job.
pub const SLOTS_MAX: u32 = 256;
/// Longest id of a job.
pub const JOB_ID_BYTES_MAX: usize = 256;
/// A job has an end when so long no connection of it was open, no request of it came, and the process that wrote last
/// is gone.
pub const LINGER: Duration = Duration::from_secs(60);
/// Longest silence after which a job goes on that did not say that it was over.
pub const RETURN_MAX: Duration = Duration::from_secs(3600);
/// How often it is looked for jobs that fell silent.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Tells the processes of a job which job of telem they belong to.
const TELEM_JOB: &str = "TELEM_JOB";
/// Fields of a description that say how a job ended.
const END: &str = "end";
const END_REASON: &str = "end_reason";
const OF_AN_END: [&str; 4] = [END, END_REASON, "exit_code", "signal"];

/// The name of a job among those that share a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

impl JobId {
    /// `None` for what stands for no job.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() || text.len() > JOB_ID_BYTES_MAX {
            return Err(format!("the id of a job has {} bytes; expected 1 to {JOB_ID_BYTES_MAX}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("the id of a job has a control character".to_owned());
        }
        Ok((text != config::NO_JOB).then(|| Self(text.into())))
    }

    /// The job that a process was started for, from its environment: telem's own word before the scheduler's.
    pub fn of_environment(environment: &[u8]) -> Option<Self> {
        let names = std::iter::once(TELEM_JOB).chain(config::SCHEDULED_JOBS);
        let mut values = names.filter_map(|name| rank::variable(environment, name)).filter(|value| !value.is_empty());
        let text = std::str::from_utf8(values.next()?).ok()?;
        Self::new(text).inspect_err(|why| tracing::debug!(why, "a process does not say its job")).ok()?
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
    jobs: Mutex<BTreeMap<JobId, SharedJob>>,
    /// Held while the database is changed.
    writing: Mutex<()>,
    /// It was said that there are too many.
    told_full: AtomicBool,
}

/// A job that has a slot.
#[derive(Clone, Debug)]
struct SharedJob {
    /// As the database has it.
    interval: JobInterval,
    phase: JobPhase,
    connections: usize,
    /// When something of it was heard, by the wall clock.
    heard: Timestamp,
    /// The same by a clock that never jumps.
    heard_at: Duration,
    /// How long it had been silent then, where this server was not there to hear it.
    silent_before: Duration,
    /// The process that wrote last, if it is one of this machine.
    process: Option<ProcessMark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    Running,
    /// Nothing was heard of it for a while.
    Silent,
    /// Somebody said that it is over. What comes late still has its slot.
    Over,
}

/// Why a job has an end, in the words of its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndReason {
    Told,
    Silence,
    /// The server stopped.
    Stop,
}

impl EndReason {
    fn name(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Silence => "silence",
            Self::Stop => "stop",
        }
    }
}

impl SharedJob {
    fn silence(&self, at: Duration) -> Duration {
        at.saturating_sub(self.heard_at).saturating_add(self.silent_before)
    }

    fn touch(&mut self, (now, at): (Timestamp, Duration)) {
        (self.heard, self.heard_at, self.silent_before) = (now, at, Duration::ZERO);
    }

    fn is_quiet(&self, at: Duration, longest: Duration) -> bool {
        self.connections == 0 && self.silence(at) >= longest
    }

    /// Whether somebody who names it still means this run.
    fn lasts(&self, at: Duration) -> bool {
        match self.phase {
            JobPhase::Running => true,
            JobPhase::Silent => self.silence(at) < RETURN_MAX,
            JobPhase::Over => self.silence(at) < LINGER,
        }
    }
}

impl JobSlots {
    /// Jobs that did not say that they were over go on if they are heard of soon.
    pub fn resume(db: Db, clock: Arc<dyn Clock>, own: &str) -> Arc<Self> {
        let snapshot = db.snapshot();
        let (now, at) = (clock.now(), clock.monotonic());
        let last = db.info().ok().and_then(|info| info.time_bounds).map(|(_, last)| last.min(now));
        let mut jobs = BTreeMap::new();
        let mut forgotten = Vec::new();
        for interval in latest(snapshot.meta().job_intervals()).into_values() {
            let Some(Ok(Some(id))) = interval.job["id"].as_str().map(JobId::new) else { continue };
            let heard = interval.end.or(last).unwrap_or(interval.begin).clamp(interval.begin, now.max(interval.begin));
            let age = Duration::from_micros(u64::try_from(now.micros().saturating_sub(heard.micros())).unwrap_or(0));
            let phase = match (interval.end, interval.job[END_REASON].as_str()) {
                (None, _) => JobPhase::Running,
                (Some(_), Some(reason)) if reason == EndReason::Told.name() => JobPhase::Over,
                (Some(_), _) => JobPhase::Silent,
            };
            let longest = if phase == JobPhase::Over { LINGER } else { RETURN_MAX };
            if age >= longest {
                forgotten.extend(interval.end.is_none().then(|| (interval.clone(), heard)));
                continue;
            }
            let (interval, connections, process) = (interval.clone(), 0, None);
            let job = SharedJob { interval, phase, connections, heard, heard_at: at, silent_before: age, process };
            jobs.insert(id, job);
        }
        let (jobs, writing, told_full) = (Mutex::new(jobs), Mutex::default(), AtomicBool::new(false));
        let slots = Arc::new(Self { db, own: own.to_owned(), clock, jobs, writing, told_full });
        for (interval, heard) in forgotten {
            if let Err(error) = slots.note_end(&interval, heard, EndReason::Silence, Map::new()) {
                tracing::warn!(%error, "the end of a job cannot be noted");
            }
        }
        slots
    }

    /// Something came of a job that runs: its slot. `None` of any other, which [`JobSlots::begin`] may begin.
    pub fn hear(&self, id: &JobId) -> Option<u32> {
        let (now, at) = self.now();
        let mut jobs = self.lock();
        let job = jobs.get_mut(id)?;
        match job.phase {
            JobPhase::Running => job.touch((now, at)),
            // What was under way when it ended is its own, and changes nothing else.
            JobPhase::Over if job.lasts(at) => {}
            JobPhase::Silent | JobPhase::Over => return None,
        }
        Some(job.interval.slot)
    }

    /// As [`JobSlots::hear`]; a job that does not run begins, or goes on. It writes to the database. `process` sends, where
    /// that is known.
    pub fn begin(&self, id: &JobId, process: Option<ProcessMark>) -> Option<u32> {
        if self.is_own(id) {
            return None;
        }
        // Before any lock: the kernel may keep who asks for a process's command waiting.
        let fields = match process {
            Some(process) if self.hear(id).is_none() => describe_process(id, process.pid()),
            _ => Map::new(),
        };
        let _writing = self.write();
        if let Some(slot) = self.hear(id) {
            return Some(slot);
        }
        let (now, at) = self.now();
        let known = self.lock().get(id).cloned();
        let connections = known.as_ref().map_or(0, |known| known.connections);
        let interval = match known {
            Some(mut known) if known.phase == JobPhase::Silent && known.lasts(at) => {
                known.interval.end = None;
                remove_end(&mut known.interval.job);
                known.interval
            }
            known => {
                let mut fields = fields;
                let slot = known.map(|known| known.interval.slot).or_else(|| self.free_slot(at));
                let Some(slot) = slot else {
                    if !self.told_full.swap(true, Ordering::Relaxed) {
                        tracing::warn!(job = %id, "{SLOTS_MAX} jobs run at once; what further ones send belongs to no job");
                    }
                    return None;
                };
                let (since, begin) = self.since(slot, now);
                fields.insert("id".to_owned(), json!(id.0));
                fields.insert("start".to_owned(), json!(rfc3339(begin)));
                JobInterval { slot, since, begin, end: None, job: Arc::new(Json::Object(fields)) }
            }
        };
        if let Err(error) = self.db.put_meta(MetaChange::JobInterval(interval.clone()), Durability::Buffered) {
            tracing::warn!(%error, job = %id, "a job cannot be noted, and its samples belong to none");
            return None;
        }
        let slot = interval.slot;
        let phase = JobPhase::Running;
        let silent_before = Duration::ZERO;
        let job = SharedJob { interval, phase, connections, heard: now, heard_at: at, silent_before, process };
        self.lock().insert(id.clone(), job);
        tracing::info!(job = %id, slot, "a job began");
        Some(slot)
    }

    /// The lowest slot that is nobody's, else that of the job that was silent for longest, which is then forgotten.
    fn free_slot(&self, at: Duration) -> Option<u32> {
        let mut jobs = self.lock();
        jobs.retain(|_, job| job.connections > 0 || job.lasts(at));
        let mut is_taken = [false; SLOTS_MAX as usize];
        for job in jobs.values() {
            if let Some(is_taken) = is_taken.get_mut(job.interval.slot as usize) {
                *is_taken = true;
            }
        }
        if let Some(slot) = (0..SLOTS_MAX).zip(is_taken).find(|(_, is_taken)| !is_taken).map(|(slot, _)| slot) {
            return Some(slot);
        }
        let idle = jobs.iter().filter(|(_, job)| job.phase != JobPhase::Running && job.connections == 0);
        let longest = idle.max_by_key(|(_, job)| job.silence(at)).map(|(id, _)| id.clone())?;
        jobs.remove(&longest).map(|job| job.interval.slot)
    }

    /// From when on the samples of a slot are those of a job that begins now, and when it begins.
    fn since(&self, slot: u32, now: Timestamp) -> (Option<Timestamp>, Timestamp) {
        let snapshot = self.db.snapshot();
        let before = snapshot.meta().job_intervals().iter().rfind(|interval| interval.slot == slot);
        let after = |end: Timestamp| Timestamp::from_micros(end.micros().saturating_add(1));
        match before {
            Some(before) => {
                let since = after(before.end.unwrap_or(before.begin));
                (Some(since), now.max(since))
            }
            // Somebody may have had the slot who is forgotten.
            None => (snapshot.meta().has_forgotten_jobs().then_some(now), now),
        }
    }

    /// Says that a job is over, and how; answers with its description, or `None` if none of that id has a slot. What was
    /// said of its end before stays.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn end(&self, id: &JobId, how: Map<String, Json>) -> telem_engine::Result<Option<Json>> {
        let _writing = self.write();
        let (now, at) = self.now();
        let Some(job) = self.lock().get(id).filter(|job| job.lasts(at)).cloned() else { return Ok(None) };
        let end = if job.phase == JobPhase::Running { now } else { job.interval.end.unwrap_or(job.heard) };
        let interval = self.note_end(&job.interval, end, EndReason::Told, how)?;
        let told = Json::clone(&interval.job);
        if let Some(job) = self.lock().get_mut(id) {
            if job.phase != JobPhase::Over {
                job.touch((now, at));
            }
            (job.interval, job.phase) = (interval, JobPhase::Over);
        }
        tracing::info!(job = %id, "a job ended");
        Ok(Some(told))
    }

    /// Nothing comes any more of a job that is over and has no connection: its slot is free.
    pub fn release(&self, id: &JobId) {
        let _writing = self.write();
        let mut jobs = self.lock();
        if jobs.get(id).is_some_and(|job| job.phase == JobPhase::Over && job.connections == 0) {
            jobs.remove(id);
        }
    }

    /// Changes the description of a job that has a slot; `None` if none of that id has one. It is durable then.
    ///
    /// # Errors
    /// What `change` says, or the engine.
    pub fn describe<E: From<telem_engine::Error>>(
        &self,
        id: &JobId,
        change: impl FnOnce(Json) -> Result<Json, E>,
    ) -> Result<Option<Json>, E> {
        let _writing = self.write();
        let Some(interval) = self.lock().get(id).map(|job| job.interval.clone()) else { return Ok(None) };
        let job = change(Json::clone(&interval.job))?;
        let interval = JobInterval { job: Arc::new(job.clone()), ..interval };
        self.db.put_meta(MetaChange::JobInterval(interval.clone()), Durability::Synced)?;
        if let Some(known) = self.lock().get_mut(id) {
            known.interval = interval;
        }
        Ok(Some(job))
    }

    /// The description of the last job of that id.
    pub fn description(&self, id: &JobId) -> Option<Json> {
        if let Some(job) = self.lock().get(id) {
            return Some(Json::clone(&job.interval.job));
        }
        let snapshot = self.db.snapshot();
        let mut of_id = snapshot.meta().job_intervals().iter().rev().filter(|interval| interval.job["id"] == *id.0);
        of_id.next().map(|interval| Json::clone(&interval.job))
    }

    /// Gives an end to jobs of which nothing was heard for a while, and forgets those that would not go on.
    pub fn sweep(&self) {
        let _writing = self.write();
        let (now, at) = self.now();
        let is_quiet = |job: &SharedJob| job.phase == JobPhase::Running && job.is_quiet(at, LINGER);
        let quiet: Vec<(JobId, SharedJob)> =
            self.lock().iter().filter(|(_, job)| is_quiet(job)).map(|(id, job)| (id.clone(), job.clone())).collect();
        for (id, job) in quiet {
            let is_alive = job.process.is_some_and(ProcessMark::is_alive);
            {
                let mut jobs = self.lock();
                // Something may have come meanwhile.
                let Some(job) = jobs.get_mut(&id).filter(|known| is_quiet(known)) else { continue };
                if is_alive {
                    job.touch((now, at));
                    continue;
                }
                // Before its end is written: what comes from here on waits for that, and takes the end back.
                job.phase = JobPhase::Silent;
            }
            let ended = self.note_end(&job.interval, job.heard, EndReason::Silence, Map::new());
            let mut jobs = self.lock();
            let Some(job) = jobs.get_mut(&id) else { continue };
            match ended {
                Ok(interval) => {
                    job.interval = interval;
                    tracing::info!(job = %id, "nothing is heard of a job any more");
                }
                Err(error) => {
                    job.phase = JobPhase::Running;
                    tracing::warn!(%error, job = %id, "the end of a job cannot be noted yet");
                }
            }
        }
        let mut jobs = self.lock();
        jobs.retain(|_, job| job.connections > 0 || job.lasts(at));
        if jobs.len() < SLOTS_MAX as usize {
            self.told_full.store(false, Ordering::Relaxed);
        }
    }

    /// Ends all jobs because the server stops. Those that are heard of soon after it started again go on.
    pub fn close(&self) {
        let _writing = self.write();
        let (now, _) = self.now();
        let jobs = std::mem::take(&mut *self.lock());
        for (id, job) in jobs.into_iter().filter(|(_, job)| job.phase == JobPhase::Running) {
            let end = if job.connections > 0 { now } else { job.heard };
            if let Err(error) = self.note_end(&job.interval, end, EndReason::Stop, Map::new()) {
                tracing::warn!(%error, job = %id, "the end of a job cannot be noted");
            }
        }
    }

    /// The interval with an end; a field that says how stays as it was if it was there.
    fn note_end(
        &self,
        interval: &JobInterval,
        end: Timestamp,
        reason: EndReason,
        how: Map<String, Json>,
    ) -> telem_engine::Result<JobInterval> {
        let end = end.max(interval.begin);
        let mut job = Json::clone(&interval.job);
        if let Some(fields) = job.as_object_mut() {
            fields.insert(END.to_owned(), rfc3339(end).into());
            fields.insert(END_REASON.to_owned(), reason.name().into());
            for (name, value) in how {
                fields.entry(name).or_insert(value);
            }
            // It is held for long: without room for more.
            *fields = std::mem::take(fields).into_iter().collect();
        }
        let ended = JobInterval { end: Some(end), job: Arc::new(job), ..interval.clone() };
        self.db.put_meta(MetaChange::JobInterval(ended.clone()), Durability::Buffered)?;
        Ok(ended)
    }

    fn is_own(&self, id: &JobId) -> bool {
        *id.0 == *self.own || config::plain_job(&id.0) == self.own
    }

    fn now(&self) -> (Timestamp, Duration) {
        (self.clock.now(), self.clock.monotonic())
    }

    /// For moments: nothing that waits is done under it.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, SharedJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last interval of each slot.
fn latest(intervals: &[JobInterval]) -> BTreeMap<u32, &JobInterval> {
    intervals.iter().map(|interval| (interval.slot, interval)).collect()
}

fn remove_end(job: &mut Arc<Json>) {
    if let Some(fields) = Arc::make_mut(job).as_object_mut() {
        for field in OF_AN_END {
            fields.shift_remove(field);
        }
    }
}

/// Says in a description that its job is over, as somebody told.
pub fn told_end(job: &mut Json, end: Timestamp) {
    job[END] = rfc3339(end).into();
    job[END_REASON] = EndReason::Told.name().into();
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
