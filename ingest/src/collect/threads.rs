//! The collecting threads: one that keeps the time, and one for each [`Part`] that samples when told to.
//!
//! The one idea: the thread with the clock reads no file of the system, so nothing can hang it. A tick that finds its
//! part still busy is skipped. If a part is busy with one subject for [`HANG_AFTER`], it goes on without that subject
//! on a new thread; the old thread keeps the subject's lock, and ends when the subject returns. So at most as many
//! threads hang as there are subjects.
//!
//! A part of hardware that this node may lack has no thread until one of its sources was found. [`Part::SEARCHER`]
//! looks for them, beside the ticks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::{Clock, Timestamp, Value};

use super::processes::WALK_INTERVAL;
use super::sampler::{Part, Sampler};
use super::series::{Tick, TickKind};
use super::subject::REFRESH_INTERVAL;
use super::{CollectError, CollectStats};
use crate::schedule::{Due, Schedule, first_of};
use crate::writer::Writer;

/// How long one subject may take before the others go on without it.
pub const HANG_AFTER: Duration = Duration::from_secs(5);
/// Collectors give way to the job.
const NICENESS: i32 = 10;
/// How often the wall clock is looked at while waiting for a tick: it may have been set.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A sample at the start or at the end is worth taking when no tick is nearer than this.
const APART: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct CollectCounters {
    ticks: AtomicU64,
    ticks_skipped: AtomicU64,
    device_ticks_skipped: AtomicU64,
    samples: AtomicU64,
    samples_refused: AtomicU64,
    hanging: AtomicU64,
    /// How long the tick before took.
    tick_micros: AtomicU64,
}

/// What the threads and their owner share.
#[derive(Debug, Default)]
pub struct CollectState {
    counters: CollectCounters,
    state: Mutex<CollectProgress>,
    /// The owner wants an end, or a part has ended.
    changed: Condvar,
    /// A part got a tick, or is to end.
    handed: [Condvar; Part::ALL.len()],
}

#[derive(Debug, Default)]
struct CollectProgress {
    stopping: bool,
    /// The time of the newest tick.
    last: Option<Timestamp>,
    parts: [Work; Part::ALL.len()],
}

/// What one part is doing.
#[derive(Debug, Default)]
struct Work {
    /// Which of its threads is in charge; those before it were left behind.
    worker: u64,
    wanted: Option<Tick>,
    /// The tick that its thread took last.
    taken: Option<Timestamp>,
    /// With which subject, and since when (monotonic).
    busy: Option<(&'static str, Duration)>,
    stage: Stage,
}

/// How far a part is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It has no thread.
    #[default]
    Unstarted,
    Running,
    Ended,
}

/// What became of a tick for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartTickOutcome {
    Taken,
    /// It was still sampling, and has missed the tick.
    Missed,
    /// It has no thread.
    Nobody,
}

impl Work {
    fn is_free(&self) -> bool {
        self.stage == Stage::Running && self.wanted.is_none() && self.busy.is_none()
    }
}

impl CollectState {
    pub fn stats(&self) -> CollectStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        CollectStats {
            ticks: load(&counters.ticks),
            ticks_skipped: load(&counters.ticks_skipped),
            device_ticks_skipped: load(&counters.device_ticks_skipped),
            samples: load(&counters.samples),
            samples_refused: load(&counters.samples_refused),
            hanging: load(&counters.hanging),
        }
    }

    pub fn stop(&self) {
        self.stop_after(None);
    }

    /// Stops, after a last tick at `end`, unless there was one just before.
    pub fn stop_after(&self, end: Option<Timestamp>) {
        let mut state = self.lock();
        let apart =
            |end: &Timestamp| state.last.is_none_or(|last| end.micros() - last.micros() > APART.as_micros() as i64);
        if let Some(end) = end
            && !state.stopping
        {
            let is_apart = apart(&end);
            // What the job's last processes used is reaped only now.
            let is_later = state.last.is_none_or(|last| end > last);
            for part in Part::ALL.into_iter().filter(|part| is_apart || (is_later && *part == Part::Processes)) {
                let work = &mut state.parts[part as usize];
                if work.is_free() {
                    work.wanted = Some(Tick { time: end, kind: TickKind::Last });
                }
            }
        }
        state.stopping = true;
        drop(state);
        self.changed.notify_all();
        self.handed.iter().for_each(Condvar::notify_all);
    }

    /// Waits until no part samples any more; the subjects that hang when that took too long.
    pub fn wait_for_end(&self, longest: Duration) -> Result<(), Vec<&'static str>> {
        let goes_on = |state: &mut CollectProgress| state.parts.iter().any(|work| work.stage == Stage::Running);
        let waited = self.changed.wait_timeout_while(self.lock(), longest, goes_on);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let going = state.parts.iter().filter(|work| work.stage == Stage::Running);
        let names: Vec<&'static str> = going.map(|work| work.busy.map_or("samples", |(name, _)| name)).collect();
        if names.is_empty() { Ok(()) } else { Err(names) }
    }

    /// Whether some thread in charge is in that subject now.
    #[cfg(test)]
    pub fn is_in(&self, subject: &str) -> bool {
        self.lock().parts.iter().any(|work| work.busy.is_some_and(|(name, _)| name == subject))
    }

    /// Which parts have a thread.
    #[cfg(test)]
    pub fn running(&self) -> Vec<Part> {
        let state = self.lock();
        Part::ALL.into_iter().filter(|part| state.parts[*part as usize].stage == Stage::Running).collect()
    }

    /// Whether the newest tick of a part is that of that second.
    #[cfg(test)]
    pub fn has_taken(&self, part: Part, second: i64) -> bool {
        self.lock().parts[part as usize].taken == Some(Timestamp::from_seconds(second))
    }

    /// Whether a part is done with the tick of that second, which is its newest.
    #[cfg(test)]
    pub fn has_sampled(&self, part: Part, second: i64) -> bool {
        let work = &self.lock().parts[part as usize];
        work.is_free() && work.taken == Some(Timestamp::from_seconds(second))
    }

    /// Waits at most that long; whether to go on.
    fn wait(&self, longest: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), longest, |state| !state.stopping);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    fn lock(&self) -> MutexGuard<'_, CollectProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What every thread holds.
pub struct CollectRun {
    pub sampler: Sampler,
    pub writer: Writer,
    pub clock: Arc<dyn Clock>,
    pub shared: Arc<CollectState>,
    /// Whether there is a tick at the start.
    pub at_ends: bool,
    /// The writer had no room at the tick before.
    pub full: AtomicBool,
}

impl CollectRun {
    /// Starts all threads.
    ///
    /// # Errors
    /// When no thread can be started; those that were started end.
    pub fn start(self, schedule: Schedule) -> Result<(), CollectError> {
        let run = Arc::new(self);
        let start = || -> std::io::Result<()> {
            for part in Part::ALL.into_iter().filter(|part| part.is_on_every_node()) {
                run.shared.lock().parts[part as usize].stage = Stage::Running;
                run.spawn(part, 0)?;
            }
            let keeper = Arc::clone(&run);
            let thread = std::thread::Builder::new().name("telem-collect".to_owned());
            thread.spawn(move || keeper.keep_time(schedule)).map(drop)
        };
        start().map_err(|error| {
            run.shared.stop();
            CollectError::Thread(error)
        })
    }

    fn spawn(self: &Arc<Self>, part: Part, number: u64) -> std::io::Result<()> {
        let run = Arc::clone(self);
        let thread = std::thread::Builder::new().name("telem-sample".to_owned());
        thread.spawn(move || run.work(part, number)).map(drop)
    }

    fn keep_time(self: Arc<Self>, mut schedule: Schedule) {
        let (mut walked, mut busy) = (None, 0);
        let mut refreshed = self.clock.monotonic();
        let now = self.clock.now();
        if self.at_ends
            && let Due::In(wait) = schedule.ask(now, self.clock.monotonic())
            && wait > APART
        {
            for part in Part::ALL {
                self.hand(part, Tick::regular(whole_millis(now)));
            }
        }
        loop {
            let wait = match schedule.ask(self.clock.now(), self.clock.monotonic()) {
                Due::In(wait) => {
                    let now = self.clock.monotonic();
                    if now.saturating_sub(refreshed) >= REFRESH_INTERVAL && wait > WAIT_MAX {
                        refreshed = now;
                        let time = whole_millis(self.clock.now());
                        self.hand(Part::Energy, Tick { time, kind: TickKind::Between });
                    }
                    wait.min(WAIT_MAX)
                }
                Due::Now(time) => {
                    refreshed = self.clock.monotonic();
                    let walks = self.sampler.follows_job() || first_of(WALK_INTERVAL, time, walked);
                    for part in Part::ALL.into_iter().filter(|part| walks || *part != Part::Processes) {
                        let handed = self.hand(part, Tick::regular(time));
                        // Ticks that other parts miss are theirs alone.
                        if part == Part::Node {
                            busy += u64::from(handed != PartTickOutcome::Taken);
                        } else if !part.is_on_every_node() && handed == PartTickOutcome::Missed {
                            self.shared.counters.device_ticks_skipped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if walks {
                        walked = Some(time);
                    }
                    Duration::ZERO
                }
            };
            self.shared.counters.ticks_skipped.store(schedule.skipped() + busy, Ordering::Relaxed);
            self.leave_behind();
            if !self.shared.wait(wait) {
                return;
            }
        }
    }

    fn hand(&self, part: Part, tick: Tick) -> PartTickOutcome {
        let mut state = self.shared.lock();
        let work = &mut state.parts[part as usize];
        if work.stage != Stage::Running {
            return PartTickOutcome::Nobody;
        }
        if !work.is_free() {
            return PartTickOutcome::Missed;
        }
        work.wanted = Some(tick);
        if tick.kind != TickKind::Between {
            state.last = Some(tick.time);
        }
        self.shared.handed[part as usize].notify_one();
        PartTickOutcome::Taken
    }

    /// Starts the parts whose sources are found now, with this tick; whether this thread is still in charge.
    fn start_found(self: &Arc<Self>, tick: Tick, enter: &mut dyn FnMut(&'static str) -> bool) -> bool {
        for part in Part::ALL {
            if self.shared.lock().parts[part as usize].stage != Stage::Unstarted {
                continue;
            }
            match self.sampler.search_part(part, tick.time, enter) {
                None => return false,
                Some(false) => {}
                Some(true) => self.start_part(part, tick),
            }
        }
        true
    }

    fn start_part(self: &Arc<Self>, part: Part, tick: Tick) {
        let mut state = self.shared.lock();
        let is_newest = state.last == Some(tick.time);
        let stopping = state.stopping;
        let work = &mut state.parts[part as usize];
        if stopping || work.stage != Stage::Unstarted {
            return;
        }
        match self.spawn(part, 0) {
            Ok(()) => {
                work.stage = Stage::Running;
                // Else a newer tick comes too soon after it.
                work.wanted = is_newest.then_some(tick);
            }
            Err(error) => tracing::debug!(%error, "no thread for the part {part:?}"),
        }
    }

    /// Gives parts that hang another thread.
    fn leave_behind(self: &Arc<Self>) {
        let now = self.clock.monotonic();
        for part in Part::ALL {
            let mut state = self.shared.lock();
            let work = &mut state.parts[part as usize];
            let Some((name, since)) = work.busy else { continue };
            if now.saturating_sub(since) <= HANG_AFTER {
                continue;
            }
            match self.spawn(part, work.worker + 1) {
                Ok(()) => {
                    work.worker += 1;
                    work.busy = None;
                    drop(state);
                    self.shared.counters.hanging.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("reading {name} takes more than {HANG_AFTER:?}; collecting goes on without it");
                }
                Err(error) => tracing::debug!(%error, "no thread to go on without {name}"),
            }
        }
    }

    fn work(self: &Arc<Self>, part: Part, number: u64) {
        // Of this thread only: that is what "this process" means to Linux here. Where it is refused
        // collecting is merely less polite.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        while let Some(tick) = self.next(part, number) {
            let began = self.clock.monotonic();
            let mut hangs_in = None;
            let mut enter = |name| {
                hangs_in = Some(name);
                self.enter(part, number, Some(name))
            };
            if tick.kind == TickKind::Between {
                self.sampler.refresh_part(part, &mut enter);
                if self.enter(part, number, None) {
                    continue;
                }
                self.shared.counters.hanging.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            let in_charge = part != Part::SEARCHER || self.start_found(tick, &mut enter);
            let batch = if in_charge { self.sampler.sample_part(part, tick, &self.ours(), &mut enter) } else { None };
            // Not in charge any more: what was read is too old for its time.
            let Some(batch) = batch.filter(|_| self.enter(part, number, Some("the writer"))) else {
                self.shared.counters.hanging.fetch_sub(1, Ordering::Relaxed);
                if let Some(name) = hangs_in {
                    tracing::info!("{name} can be read again");
                }
                return;
            };
            self.offer(batch);
            if let Some(lacks) = self.sampler.take_lacks() {
                tracing::warn!("{lacks}; these metrics are not recorded");
            }
            for refusal in self.sampler.take_refusals() {
                tracing::warn!("{refusal}");
            }
            self.sampler.store_inventory(tick.time);
            let took = self.clock.monotonic().saturating_sub(began);
            let in_charge = self.enter(part, number, None);
            let counters = &self.shared.counters;
            if part == Part::Node {
                counters.tick_micros.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
                counters.ticks.fetch_add(1, Ordering::Relaxed);
            }
            if !in_charge {
                counters.hanging.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// The next tick; `None` when this thread is to end.
    fn next(&self, part: Part, number: u64) -> Option<Tick> {
        let waits = |state: &mut CollectProgress| {
            let work = &state.parts[part as usize];
            !state.stopping && work.worker == number && work.wanted.is_none()
        };
        let handed = &self.shared.handed[part as usize];
        let mut state = handed.wait_while(self.shared.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        let work = &mut state.parts[part as usize];
        if work.worker != number {
            return None;
        }
        let tick = work.wanted.take();
        if let Some(tick) = tick {
            if tick.kind != TickKind::Between {
                work.taken = Some(tick.time);
            }
            work.busy = Some(("samples", self.clock.monotonic()));
        } else {
            work.stage = Stage::Ended;
            self.shared.changed.notify_all();
        }
        tick
    }

    /// Tells what this thread does now; whether it is still in charge.
    fn enter(&self, part: Part, number: u64, doing: Option<&'static str>) -> bool {
        let mut state = self.shared.lock();
        let work = &mut state.parts[part as usize];
        let in_charge = work.worker == number;
        if in_charge {
            work.busy = doing.map(|name| (name, self.clock.monotonic()));
        }
        in_charge
    }

    fn offer(&self, batch: telem_engine::SampleBatch) {
        let counters = &self.shared.counters;
        let samples = batch.len() as u64;
        let mut refused = self.sampler.take_refused();
        if samples > 0 {
            match self.writer.offer(batch) {
                Ok(()) => {
                    counters.samples.fetch_add(samples, Ordering::Relaxed);
                    self.full.store(false, Ordering::Relaxed);
                }
                Err(error) => {
                    refused += samples;
                    if !self.full.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "samples of the collectors are lost");
                    }
                }
            }
        }
        counters.samples_refused.fetch_add(refused, Ordering::Relaxed);
    }

    fn ours(&self) -> [(&'static str, Value); 5] {
        let stats = self.shared.stats();
        let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        let tick_micros = self.shared.counters.tick_micros.load(Ordering::Relaxed);
        [
            ("telem_ingest_ticks_total", int(stats.ticks)),
            ("telem_ingest_ticks_skipped_total", int(stats.ticks_skipped)),
            ("telem_ingest_device_ticks_skipped_total", int(stats.device_ticks_skipped)),
            ("telem_ingest_tick_seconds", Value::Float((tick_micros / 100) as f64 / 10_000.0)),
            ("telem_ingest_sources_hanging", int(stats.hanging)),
        ]
    }
}

/// Times of processes that ended are no more exact than others.
pub fn whole_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millis(time.millis())
}
