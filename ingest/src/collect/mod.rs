//! Samples the node, its processes and telem itself, on aligned ticks.
//!
//! The one idea: a subject (`subject.rs`; one file here each) reads its files again at every tick and puts values into slots, which are
//! series whose ids were looked up once. [`Sampler`] is all subjects, without a thread or a clock; [`Collectors`] are
//! the threads that run it.

pub mod catalog;
pub(crate) mod cgroup;
pub(crate) mod cores;
pub mod cpu;
pub(crate) mod devices;
pub mod disk;
pub(crate) mod energy;
pub(crate) mod fabric;
mod gpfs;
pub(crate) mod gpu;
pub mod inventory;
pub(crate) mod job;
pub mod load;
pub(crate) mod lustre;
pub mod memory;
pub(crate) mod memory_errors;
pub(crate) mod mounts;
pub mod network;
pub(crate) mod nfs;
pub(crate) mod numa;
mod own;
mod pace;
pub mod pressure;
pub mod processes;
mod sampler;
mod schedstat;
pub(crate) mod sensors;
mod series;
mod sleep;
pub(crate) mod source;
pub mod space;
mod subject;
mod tcp;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod threads;
mod unwrapped;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use telem_engine::{Clock, Db, Durability, MetaChange};

pub use self::catalog::{Described, catalog, describe, is_tag_key};
pub use self::gpu::mask::GpuMasks;
pub use self::gpu::nvidia::{VendorReader, read_for_parent as read_gpus_for_parent};
pub use self::job::JobTarget;
pub use self::own::OwnMetrics;
pub use self::sampler::Sampler;
use self::threads::{CollectRun, CollectState, whole_millis};
use crate::schedule::{IntervalError, Schedule};
use crate::writer::Writer;

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
    pub space: space::SpaceProbe,
    /// The job whose own processes are followed from level 3 on.
    pub job: Option<JobTarget>,
    /// What others tell of themselves at level 4.
    pub own: OwnMetrics,
    /// The process that calls the libraries of vendors of GPUs; none by default.
    pub vendor_reader: VendorReader,
    /// Which GPUs the job was given.
    pub gpu_masks: GpuMasks,
    /// Whether samples are also taken at the start and at the end: what is recorded may be shorter than an interval.
    pub at_ends: bool,
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
            job: None,
            own: OwnMetrics::default(),
            vendor_reader: VendorReader::Nobody,
            gpu_masks: GpuMasks::default(),
            at_ends: false,
        }
    }
}

impl CollectOptions {
    /// Follows the processes of a job, unless what is read is not this system: there its processes have other numbers.
    pub fn follow(&mut self, job: JobTarget) {
        let is_this_system = self.sysroot == Path::new("/");
        self.job = is_this_system.then_some(job);
        if is_this_system {
            // The recorder of a job was started in the environment of its command.
            self.gpu_masks = GpuMasks::of(|name| std::env::var(name).ok());
        }
    }

    /// Lets a program read GPUs by the libraries of their vendors: it calls [`read_gpus_for_parent`] when it is started
    /// with `words`. Not where what is read is a recording and this system has such GPUs: a library knows those only.
    pub fn read_gpus_by(&mut self, program: impl Into<PathBuf>, words: &[&str]) {
        let driver = |root: &Path| std::fs::read(root.join(gpu::nvidia::GATE)).ok();
        let ours = driver(Path::new("/"));
        // A container sees the host's root elsewhere, and the same driver. Without a driver here, the library cannot tell
        // of GPUs of ours.
        let is_possible = self.sysroot == Path::new("/") || ours.is_none() || driver(&self.sysroot) == ours;
        if is_possible {
            let words = words.iter().map(Into::into).collect();
            self.vendor_reader = VendorReader::Program { program: program.into(), words, library: None };
        }
    }
}

impl std::fmt::Debug for CollectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { level, interval, sysroot, host, uid, job, own, vendor_reader, gpu_masks, at_ends, space: _ } = self;
        f.debug_struct("CollectOptions")
            .field("level", level)
            .field("interval", interval)
            .field("sysroot", sysroot)
            .field("host", host)
            .field("uid", uid)
            .field("job", job)
            .field("own", own)
            .field("vendor_reader", vendor_reader)
            .field("gpu_masks", gpu_masks)
            .field("at_ends", at_ends)
            .finish_non_exhaustive()
    }
}

/// Why the collectors could not be started.
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
    /// Ticks that parts of hardware missed, each by itself, because their drivers were slow.
    pub device_ticks_skipped: u64,
    pub samples: u64,
    /// Samples that found no room: of the queue, or for their series in the database.
    pub samples_refused: u64,
    /// Threads that were left behind in a source that hangs.
    pub hanging: u64,
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
            db.put_meta(MetaChange::Metric { name: metric.name.into(), meta }, Durability::Buffered)?;
        }
    }
    Ok(())
}

/// The running collectors. Dropped, they stop by themselves; [`Collectors::stop`] also waits for that.
#[derive(Debug)]
pub struct Collectors {
    shared: Arc<CollectState>,
    /// Where there is a tick at the end.
    end: Option<Arc<dyn Clock>>,
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
        let sampler = Sampler::new(options, db.clone(), Arc::clone(&clock));
        Self::start_sampler(options, sampler, db, writer, clock)
    }

    fn start_sampler(
        options: &CollectOptions,
        sampler: Sampler,
        db: Db,
        writer: Writer,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Collectors>, CollectError> {
        if options.level < 2 {
            return Ok(None);
        }
        let schedule = Schedule::new(options.interval, clock.now(), clock.monotonic())?;
        describe_all(&db, options.level).map_err(CollectError::Describe)?;
        let shared = Arc::new(CollectState::default());
        let (at_ends, full) = (options.at_ends, AtomicBool::new(false));
        let end = at_ends.then(|| Arc::clone(&clock));
        CollectRun { sampler, writer, clock, shared: Arc::clone(&shared), at_ends, full }.start(schedule)?;
        Ok(Some(Collectors { shared, end }))
    }

    pub fn stats(&self) -> CollectStats {
        self.shared.stats()
    }

    /// Stops after the tick that is being sampled or, at the ends, is due now, whose samples are then with the writer. Waits for that,
    /// but no longer than [`STOP_TIMEOUT`]: reading a file of the system may hang.
    pub fn stop(self) {
        self.shared.stop_after(self.end.as_ref().map(|clock| whole_millis(clock.now())));
        if let Err(hanging) = self.shared.wait_for_end(STOP_TIMEOUT) {
            tracing::warn!("reading {} hangs, and is left behind", hanging.join(" and "));
        }
    }
}

impl Drop for Collectors {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// A percentage to 0.01: more digits are noise, and take eight times the space.
fn two_decimals(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}
