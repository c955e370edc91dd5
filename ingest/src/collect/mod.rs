//! What the node, its processes and telem itself are doing, sampled on aligned ticks.
//!
//! The one idea: a subject (one file here) reads its files again at every tick and puts values
//! into slots, series whose ids were asked for once. [`Sampler`] is all subjects without a thread or
//! a clock; [`Collectors`] is the thread that runs it.

pub mod catalog;
pub mod cpu;
mod devices;
pub mod disk;
mod infiniband;
pub mod load;
pub mod memory;
mod mounts;
pub mod network;
mod own;
pub mod pressure;
pub mod processes;
mod series;
mod source;
pub mod space;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::{Clock, Db, Durability, MetaChange, SampleBatch, Timestamp, Value};

pub use self::catalog::{Described, catalog, describe, is_tag_key};
use self::own::Own;
pub use self::own::OwnMetrics;
use self::series::Out;
use self::source::Tree;
use crate::schedule::{Due, IntervalError, Schedule};
use crate::writer::Writer;

/// Collectors give way to the job.
const NICENESS: i32 = 10;
/// How often the wall clock is looked at while waiting for a tick: it may have been set.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Longest that [`Collectors::stop`] waits.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What is collected, and where from.
#[derive(Clone)]
pub struct CollectOptions {
    /// Below 2 nothing is collected.
    pub level: u8,
    /// From [`crate::schedule::INTERVAL_MIN`] to [`crate::schedule::INTERVAL_MAX`]. 1 s by default.
    pub interval: Duration,
    /// Where `proc` and `sys` stand; `/` by default.
    pub sysroot: PathBuf,
    /// The tag `host` of every series.
    pub host: String,
    /// Whose processes are counted.
    pub uid: u32,
    /// How a file system is asked for its space.
    pub space: space::Ask,
    /// What others tell of themselves at level 4.
    pub own: OwnMetrics,
}

impl CollectOptions {
    pub fn new(level: u8, host: &str) -> Self {
        Self {
            level,
            interval: Duration::from_secs(1),
            sysroot: PathBuf::from("/"),
            host: host.to_owned(),
            uid: rustix::process::getuid().as_raw(),
            space: space::ask_system(),
            own: OwnMetrics::default(),
        }
    }
}

impl std::fmt::Debug for CollectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { level, interval, sysroot, host, uid, own, space: _ } = self;
        f.debug_struct("CollectOptions")
            .field("level", level)
            .field("interval", interval)
            .field("sysroot", sysroot)
            .field("host", host)
            .field("uid", uid)
            .field("own", own)
            .finish_non_exhaustive()
    }
}

/// Why there are no collectors.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error(transparent)]
    Interval(#[from] IntervalError),
    #[error("cannot start the thread of the collectors: {0}")]
    Thread(#[source] std::io::Error),
    #[error("cannot describe the collected metrics in the database: {0}")]
    Describe(#[source] telem_engine::Error),
}

/// What the collectors did since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectStats {
    pub ticks: u64,
    /// Ticks that came too late.
    pub ticks_skipped: u64,
    pub samples: u64,
    /// Samples that found no room: of the queue, or for their series in the database.
    pub samples_refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    ticks: AtomicU64,
    ticks_skipped: AtomicU64,
    samples: AtomicU64,
    samples_refused: AtomicU64,
}

/// All subjects of a level, sampled when told to.
#[derive(Debug)]
pub struct Sampler {
    db: Db,
    host: String,
    cpu: cpu::Cpu,
    load: load::Load,
    memory: memory::Memory,
    pressure: pressure::Pressure,
    disks: disk::Disks,
    network: network::Network,
    infiniband: infiniband::InfiniBand,
    space: space::Space,
    processes: processes::Processes,
    own: Option<Own>,
    expected: usize,
    refused: u64,
}

impl Sampler {
    pub fn new(options: &CollectOptions, db: Db, clock: Arc<dyn Clock>) -> Self {
        let tree = Tree::new(&options.sysroot);
        let level = options.level;
        Self {
            db,
            host: options.host.clone(),
            cpu: cpu::Cpu::new(&tree, level),
            load: load::Load::new(&tree),
            memory: memory::Memory::new(&tree),
            pressure: pressure::Pressure::new(&tree),
            disks: disk::Disks::new(&tree, level),
            network: network::Network::new(&tree, level),
            infiniband: infiniband::InfiniBand::new(&tree, level),
            space: space::Space::new(&tree, Arc::clone(&options.space), clock),
            processes: processes::Processes::new(&tree, options.uid, level),
            own: (level >= 4).then(|| Own::new(options.own.clone())),
            expected: 0,
            refused: 0,
        }
    }

    /// The samples of one tick. `ours`: what the collectors tell of themselves at level 4.
    pub fn sample(&mut self, time: Timestamp, ours: &[(&'static str, Value)]) -> SampleBatch {
        let mut out = Out::new(&self.db, &self.host, time, self.expected);
        self.cpu.sample(&mut out);
        self.load.sample(&mut out);
        self.memory.sample(&mut out);
        self.pressure.sample(&mut out);
        self.disks.sample(&mut out);
        self.network.sample(&mut out);
        self.infiniband.sample(&mut out);
        self.space.sample(&mut out);
        self.processes.sample(&mut out);
        if let Some(own) = &mut self.own {
            own.sample(ours, self.processes.skipped(), &mut out);
        }
        let (batch, refused) = out.finish();
        self.refused += refused;
        // A little more, so that a few more series take no second piece of memory.
        self.expected = batch.len() + 16;
        batch
    }

    /// Samples since the last call whose series found no room in the database.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }
}

/// Describes in the database every metric of `level` and below, where it does not say the same already.
///
/// # Errors
/// As [`Db::put_meta`].
pub fn describe_all(db: &Db, level: u8) -> telem_engine::Result<()> {
    let snapshot = db.snapshot();
    for metric in catalog().iter().filter(|metric| metric.level <= level) {
        let meta = metric.meta();
        if snapshot.meta().metric(metric.name) != Some(&meta) {
            db.put_meta(MetaChange::Metric { name: metric.name.to_owned(), meta }, Durability::Buffered)?;
        }
    }
    Ok(())
}

/// The running collectors. Dropped, they stop by themselves; [`Collectors::stop`] also waits for that.
#[derive(Debug)]
pub struct Collectors {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    counters: Counters,
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Running,
    /// They are asked to stop.
    Stopping,
    Ended,
}

impl Collectors {
    /// Starts the collectors of `options.level`; `None` where there is nothing to collect.
    ///
    /// # Errors
    /// An impossible interval, no thread, or a database that takes no metadata.
    pub fn start(
        options: &CollectOptions,
        db: Db,
        writer: Writer,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Collectors>, CollectError> {
        if options.level < 2 {
            return Ok(None);
        }
        let schedule = Schedule::new(options.interval, clock.now(), clock.monotonic())?;
        describe_all(&db, options.level).map_err(CollectError::Describe)?;
        let shared = Arc::new(Shared::default());
        let run = Run {
            sampler: Sampler::new(options, db, Arc::clone(&clock)),
            schedule,
            writer,
            clock,
            shared: Arc::clone(&shared),
            took: Duration::ZERO,
            full: false,
        };
        let thread = std::thread::Builder::new().name("telem-collect".to_owned());
        thread.spawn(move || run.run()).map_err(CollectError::Thread)?;
        Ok(Some(Collectors { shared }))
    }

    pub fn stats(&self) -> CollectStats {
        self.shared.counters.read()
    }

    /// Stops after the tick that is being sampled, whose samples are then with the writer. Waits for that,
    /// but no longer than [`STOP_TIMEOUT`]: reading a file of the system may hang.
    pub fn stop(self) {
        self.shared.stop();
        let stage = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(stage, STOP_TIMEOUT, |stage| *stage != Stage::Ended);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 != Stage::Ended {
            tracing::warn!(waited = ?STOP_TIMEOUT, "the collectors hang and are left behind");
        }
    }
}

impl Drop for Collectors {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    fn stop(&self) {
        let mut stage = self.lock();
        if *stage == Stage::Running {
            *stage = Stage::Stopping;
            self.changed.notify_all();
        }
    }

    /// Waits at most that long; whether to go on.
    fn wait(&self, longest: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), longest, |stage| *stage == Stage::Running);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == Stage::Running
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    fn read(&self) -> CollectStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CollectStats {
            ticks: load(&self.ticks),
            ticks_skipped: load(&self.ticks_skipped),
            samples: load(&self.samples),
            samples_refused: load(&self.samples_refused),
        }
    }
}

/// What the thread holds.
struct Run {
    sampler: Sampler,
    schedule: Schedule,
    writer: Writer,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    /// How long the tick before took.
    took: Duration,
    /// The writer had no room at the tick before.
    full: bool,
}

/// Also when the thread panics: nobody waits for an end that was.
impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the thread of the collectors panicked; the node is not sampled any more");
        }
        *self.shared.lock() = Stage::Ended;
        self.shared.changed.notify_all();
    }
}

impl Run {
    fn run(mut self) {
        // Of this thread only: that is what "this process" means to Linux here. Where it is refused
        // collecting is merely less polite.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            let wait = match self.schedule.ask(self.clock.now(), self.clock.monotonic()) {
                Due::In(wait) => wait,
                Due::Now(time) => {
                    self.tick(time);
                    Duration::ZERO
                }
            };
            self.shared.counters.ticks_skipped.store(self.schedule.skipped(), Ordering::Relaxed);
            if !self.shared.wait(wait.min(WAIT_MAX)) {
                return;
            }
        }
    }

    fn tick(&mut self, time: Timestamp) {
        let began = self.clock.monotonic();
        let counters = &self.shared.counters;
        counters.ticks.fetch_add(1, Ordering::Relaxed);
        let ours = self.ours();
        let batch = self.sampler.sample(time, &ours);
        let samples = batch.len() as u64;
        let mut refused = self.sampler.take_refused();
        match self.writer.offer(batch) {
            Ok(()) => {
                counters.samples.fetch_add(samples, Ordering::Relaxed);
                self.full = false;
            }
            Err(error) => {
                refused += samples;
                if !std::mem::replace(&mut self.full, true) {
                    tracing::warn!(%error, "samples of the collectors are lost");
                }
            }
        }
        counters.samples_refused.fetch_add(refused, Ordering::Relaxed);
        self.took = self.clock.monotonic().saturating_sub(began);
    }

    fn ours(&self) -> [(&'static str, Value); 3] {
        let stats = self.shared.counters.read();
        let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        [
            ("telem_ingest_ticks_total", int(stats.ticks)),
            ("telem_ingest_ticks_skipped_total", int(stats.ticks_skipped)),
            ("telem_ingest_tick_seconds", Value::Float((self.took.as_micros() / 100) as f64 / 10_000.0)),
        ]
    }
}

/// A percentage to 0.01: more digits are noise, and take eight times the space.
fn two_decimals(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}
