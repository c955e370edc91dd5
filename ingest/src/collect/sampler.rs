//! All subjects of a level, sampled on request, without a thread or a clock of its own.
//!
//! The one idea: each subject has a lock of its own, and a sampling thread skips a subject whose lock is taken. So a
//! subject whose file hangs costs only the thread that waits for it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use telem_engine::{Clock, Db, SampleBatch, Timestamp, Value};

use super::own::Own;
use super::series::Out;
use super::source::Tree;
use super::{CollectOptions, cpu, disk, infiniband, job, load, memory, network, pressure, processes, space};

/// From which level on the processes of the job have series.
const JOB_LEVEL: u8 = 3;

/// What a thread samples in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All that is quick, at every tick.
    Node,
    /// The walk over all processes, which may take longer than a tick.
    Processes,
}

impl Part {
    pub const ALL: [Part; 2] = [Part::Node, Part::Processes];
}

/// What one file of this folder samples; [`Sampler::new`] lists them.
pub trait Subject: std::fmt::Debug + Send {
    fn sample(&mut self, out: &mut Out<'_>);
}

#[derive(Debug)]
struct Seat {
    /// For people.
    name: &'static str,
    subject: Mutex<Box<dyn Subject>>,
}

/// All subjects of a level.
#[derive(Debug)]
pub struct Sampler {
    db: Db,
    host: String,
    proc: PathBuf,
    node: Vec<Seat>,
    processes: Vec<Seat>,
    follows_job: bool,
    expected: [AtomicUsize; Part::ALL.len()],
    refused: AtomicU64,
    lacks: Mutex<Lacks>,
}

/// What the node does not tell.
#[derive(Debug, Default)]
struct Lacks {
    known: BTreeSet<&'static str>,
    untold: Vec<&'static str>,
}

impl Sampler {
    pub fn new(options: &CollectOptions, db: Db, clock: Arc<dyn Clock>) -> Self {
        let tree = Tree::new(&options.sysroot);
        let level = options.level;
        let seat = |name, subject: Box<dyn Subject>| Seat { name, subject: Mutex::new(subject) };
        let mut node = vec![
            seat("CPU times", Box::new(cpu::Cpu::new(&tree, level))),
            seat("the load average", Box::new(load::Load::new(&tree))),
            seat("memory", Box::new(memory::Memory::new(&tree))),
            seat("pressure", Box::new(pressure::Pressure::new(&tree))),
            seat("disks", Box::new(disk::Disks::new(&tree, level))),
            seat("network interfaces", Box::new(network::Network::new(&tree, level))),
            seat("InfiniBand", Box::new(infiniband::InfiniBand::new(&tree, level))),
            seat("file systems", Box::new(space::Space::new(&tree, Arc::clone(&options.space), clock))),
        ];
        if level >= 4 {
            node.push(seat("telem itself", Box::new(Own::new(options.own.clone()))));
        }
        let mut processes = vec![seat("processes", Box::new(processes::Processes::new(&tree, options.uid, level)))];
        let target = options.job.clone().filter(|_| level >= JOB_LEVEL);
        let follows_job = target.is_some();
        if let Some(target) = target {
            // Before the others: reading them at level 4 takes longer.
            let subject = job::JobProcesses::new(&tree, options.uid, target);
            processes.insert(0, seat("the job's processes", Box::new(subject)));
        }
        Self {
            db,
            host: options.host.clone(),
            proc: tree.path("proc"),
            node,
            processes,
            follows_job,
            expected: Default::default(),
            refused: AtomicU64::new(0),
            lacks: Mutex::default(),
        }
    }

    /// Whether processes are looked for at every tick.
    pub(super) fn follows_job(&self) -> bool {
        self.follows_job
    }

    /// The samples of all parts at one tick, of the processes last.
    pub fn sample(&mut self, time: Timestamp, ours: &[(&'static str, Value)]) -> SampleBatch {
        let parts = Part::ALL.map(|part| self.sample_part(part, time, ours, &mut |_| true));
        let mut all = SampleBatch::default();
        parts.iter().flatten().flat_map(SampleBatch::iter).for_each(|(id, time, value)| all.push(id, time, value));
        all
    }

    /// The samples of one tick. `ours`: what the collectors tell of themselves at level 4. `enter` hears the name of
    /// each subject before it is sampled; when it says no, the rest is left out and there are no samples.
    pub(super) fn sample_part(
        &self,
        part: Part,
        time: Timestamp,
        ours: &[(&'static str, Value)],
        enter: &mut dyn FnMut(&'static str) -> bool,
    ) -> Option<SampleBatch> {
        let (seats, expected) = match part {
            Part::Node => (&self.node, &self.expected[0]),
            Part::Processes => (&self.processes, &self.expected[1]),
        };
        let mut out = Out::new(&self.db, &self.host, time, expected.load(Ordering::Relaxed)).telling(ours);
        for Seat { name, subject } in seats {
            // Taken by a thread that hangs in it, or that panicked in it.
            let Ok(mut subject) = subject.try_lock() else { continue };
            if !enter(name) {
                return None;
            }
            subject.sample(&mut out);
        }
        let sampled = out.finish();
        self.refused.fetch_add(sampled.refused, Ordering::Relaxed);
        // A little more, so that a few more series take no second piece of memory.
        expected.store(sampled.batch.len() + 16, Ordering::Relaxed);
        if !sampled.lacks.is_empty() {
            let mut lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
            let Lacks { known, untold } = &mut *lacks;
            untold.extend(sampled.lacks.into_iter().filter(|lack| known.insert(lack)));
        }
        Some(sampled.batch)
    }

    /// Samples since the last call whose series found no room in the database.
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// What every node should tell and this one does not, in words, each thing once.
    pub fn take_lacks(&self) -> Option<String> {
        let untold = std::mem::take(&mut self.lacks.lock().unwrap_or_else(PoisonError::into_inner).untold);
        let list = untold.iter().map(|lack| format!("no {lack}")).collect::<Vec<_>>().join(", ");
        (!untold.is_empty()).then(|| format!("{list} in {}", self.proc.display()))
    }
}
