//! All subjects of a level, sampled on request, without a thread or a clock of its own.
//!
//! The one idea: each subject has a lock of its own, and a sampling thread skips a subject whose lock is taken. So a
//! subject whose file hangs costs only the thread that waits for it.
//!
//! Sources that ask different drivers stand in different parts, so that a slow driver costs the ticks of its own part
//! alone. Such a part exists only where one of its subjects found something.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telem_engine::{Clock, Db, Durability, SampleBatch, Timestamp, Value};

use super::energy::{NodePower, PmCounters, PowerBoard, PowerMeters, PowerTicks, Rapl};
use super::fabric::{cxi, infiniband};
use super::gpu::amd::amd_driver;
use super::gpu::clients::GpuClients;
use super::gpu::drm::DrmGpus;
use super::gpu::intel::intel_driver;
use super::gpu::nvidia::NvidiaGpus;
use super::gpu::{GpuRoll, GpuVendor, GpuView, VendorGpus};
use super::inventory::{InventoryBook, NodeHardware};
use super::own::Own;
use super::pace::Pace;
use super::series::{Out, Tick};
use super::source::Tree;
use super::subject::{SEARCH_INTERVAL, SourceState, Subject};
use super::{
    CollectOptions, cgroup, cores, cpu, disk, gpfs, job, load, lustre, memory, memory_errors, network, nfs, numa,
    pressure, processes, schedstat, sensors, space, tcp,
};

/// From which level on the processes of the job have series.
const JOB_LEVEL: u8 = 3;

/// What a thread samples in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All that is quick, at every tick.
    Node,
    /// Cards of InfiniBand, RoCE and Slingshot.
    Fabrics,
    /// Parallel file systems.
    FileSystems,
    /// Power meters, behind which a controller of the board may stand.
    Meters,
    /// Counters of energy, and the power of the node that is made of them.
    Energy,
    /// Temperatures, clocks, throttling and errors of memory.
    Sensors,
    /// What asks the driver of a GPU, the slowest of all.
    Gpu,
    /// The walk over all processes, which may take longer than a tick.
    Processes,
}

impl Part {
    /// Meters come before what is made of them.
    pub const ALL: [Part; 8] = [
        Part::Node,
        Part::Fabrics,
        Part::FileSystems,
        Part::Meters,
        Part::Energy,
        Part::Sensors,
        Part::Gpu,
        Part::Processes,
    ];
    /// Looks for the sources of parts that have no thread. It is the one whose ticks may take long.
    pub const SEARCHER: Part = Part::Processes;

    /// Whether it is there on every node. The others are once a source of theirs was found.
    pub fn is_on_every_node(self) -> bool {
        match self {
            Part::Node | Part::Processes => true,
            Part::Fabrics | Part::FileSystems | Part::Meters | Part::Energy | Part::Sensors | Part::Gpu => false,
        }
    }
}

#[derive(Debug)]
struct Seat {
    /// For people.
    name: &'static str,
    held: Mutex<SeatedSubject>,
}

/// A subject, and when it has its turns.
#[derive(Debug)]
struct SeatedSubject {
    subject: Box<dyn Subject>,
    searches: Pace,
    samples: Pace,
    /// As it was told last.
    found: Vec<SourceState>,
}

impl Seat {
    fn new(name: &'static str, subject: Box<dyn Subject>) -> Self {
        let (searches, samples) = (Pace::every(SEARCH_INTERVAL), Pace::every(subject.interval()));
        Self { name, held: Mutex::new(SeatedSubject { subject, searches, samples, found: Vec::new() }) }
    }
}

/// All subjects of a level.
#[derive(Debug)]
pub struct Sampler {
    db: Db,
    host: String,
    proc: PathBuf,
    /// By part.
    seats: [Vec<Seat>; Part::ALL.len()],
    follows_job: bool,
    expected: [AtomicUsize; Part::ALL.len()],
    refused: AtomicU64,
    lacks: Mutex<Lacks>,
    refusals: Mutex<Refusals>,
    inventory: Mutex<InventoryBook>,
    root: PathBuf,
}

/// What this node has and does not let us read.
#[derive(Debug, Default)]
struct Refusals {
    known: BTreeSet<(&'static str, PathBuf)>,
    untold: Vec<String>,
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
        let mut seats: [Vec<Seat>; Part::ALL.len()] = Default::default();
        let mut add = |part: Part, name, subject| seats[part as usize].push(Seat::new(name, subject));
        add(Part::Node, "CPU times", Box::new(cpu::Cpu::new(&tree, level)));
        add(Part::Node, "the load average", Box::new(load::Load::new(&tree)));
        add(Part::Node, "memory", Box::new(memory::Memory::new(&tree)));
        add(Part::Node, "pressure", Box::new(pressure::Pressure::new(&tree)));
        add(Part::Node, "disks", Box::new(disk::Disks::new(&tree, level)));
        add(Part::Node, "network interfaces", Box::new(network::Network::new(&tree, level)));
        let space = space::Space::new(&tree, Arc::clone(&options.space), Arc::clone(&clock));
        add(Part::Node, "file systems", Box::new(space));
        add(Part::Node, "the inventory", Box::new(NodeHardware::new(&tree)));
        if level >= 4 {
            add(Part::Node, "telem itself", Box::new(Own::new(options.own.clone())));
        }

        // Fabrics.
        add(Part::Fabrics, "InfiniBand", Box::new(infiniband::InfiniBand::new(&tree, level)));
        add(Part::Fabrics, "Slingshot", Box::new(cxi::Cxi::new(&tree, level)));
        // Parallel file systems; the statistics of NFS are memory of the kernel.
        add(Part::FileSystems, "Lustre", Box::new(lustre::Lustre::new(&tree, level)));
        add(Part::Node, "NFS", Box::new(nfs::Nfs::new(&tree, level)));
        add(Part::Node, "GPFS and BeeGFS", Box::new(gpfs::SilentFileSystems::new(&tree)));
        // The job, and what every node has and level 2 leaves out.
        add(Part::Node, "the job's control group", Box::new(cgroup::Cgroup::new(&tree, level)));
        if level >= 3 {
            add(Part::Node, "NUMA nodes", Box::new(numa::Numa::new(&tree)));
            add(Part::Node, "waits for CPUs", Box::new(schedstat::SchedStat::new(&tree)));
            add(Part::Node, "TCP", Box::new(tcp::Tcp::new(&tree)));
        }

        // Power, energy and heat. The power of the node comes after all that it is made of.
        let board = PowerBoard::new(options.interval);
        let rapl = Rapl::new(&tree, level, &board, Arc::clone(&clock));
        add(Part::Meters, "power meters", Box::new(PowerMeters::new(&tree, &board)));
        add(Part::Meters, "the power of the node by meters", Box::new(NodePower::new(&board, PowerTicks::Meters)));
        add(Part::Energy, "Cray's power counters", Box::new(PmCounters::new(&tree, &board)));
        add(Part::Energy, "the energy of CPUs", Box::new(rapl));
        add(Part::Energy, "the power of the node", Box::new(NodePower::new(&board, PowerTicks::Counters)));
        add(Part::Sensors, "sensors", Box::new(sensors::Sensors::new(&tree, level)));
        add(Part::Sensors, "throttled CPUs", Box::new(cores::Throttling::new(&tree, level)));
        if level >= 3 {
            add(Part::Sensors, "the clocks of CPUs", Box::new(cores::CpuClocks::new(&tree)));
        }
        add(Part::Sensors, "errors of memory", Box::new(memory_errors::MemoryErrors::new(&tree, level)));

        // GPUs, in the order in which they are numbered.
        let masks = options.gpu_masks.clone();
        let (view, roll) = (GpuView { tree: tree.clone(), uid: options.uid, level, masks }, GpuRoll::default());
        let cards = |vendor, make| Box::new(DrmGpus::new(&tree, vendor, level, make));
        let gpus = |vendor, source| Box::new(VendorGpus::new(vendor, source, &view, &roll).counted_on(&board));
        let nvidia = Box::new(NvidiaGpus::new(&tree, level, options.vendor_reader.clone(), clock));
        add(Part::Gpu, "NVIDIA's GPUs", gpus(GpuVendor::Nvidia, nvidia));
        add(Part::Gpu, "AMD's GPUs", gpus(GpuVendor::Amd, cards(GpuVendor::Amd, amd_driver)));
        add(Part::Gpu, "Intel's GPUs", gpus(GpuVendor::Intel, cards(GpuVendor::Intel, intel_driver)));
        add(Part::Gpu, "the power of the node by GPUs", Box::new(NodePower::new(&board, PowerTicks::Gpus)));

        let target = options.job.clone().filter(|_| level >= JOB_LEVEL);
        let follows_job = target.is_some();
        if let Some(target) = target {
            // Before the others: reading them at level 4 takes longer.
            let subject = job::JobProcesses::new(&tree, options.uid, target);
            add(Part::Processes, "the job's processes", Box::new(subject));
        }
        add(Part::Processes, "processes", Box::new(processes::Processes::new(&tree, options.uid, level)));
        add(Part::Processes, "memory of GPUs", Box::new(GpuClients::new(&view, &roll)));
        let stored = {
            let snapshot = db.snapshot();
            let ours = snapshot.meta().inventory().into_iter().filter(|(node, _)| node == snapshot.node());
            ours.map(|(_, entry)| entry).collect()
        };
        Self {
            db,
            host: options.host.clone(),
            proc: tree.path("proc"),
            seats,
            follows_job,
            expected: Default::default(),
            refused: AtomicU64::new(0),
            lacks: Mutex::default(),
            refusals: Mutex::default(),
            inventory: Mutex::new(InventoryBook::new(stored)),
            root: options.sysroot.clone(),
        }
    }

    /// Whether processes are looked for at every tick.
    pub(super) fn follows_job(&self) -> bool {
        self.follows_job
    }

    /// The samples of all parts at one tick, of the processes last.
    pub fn sample(&mut self, time: Timestamp, ours: &[(&'static str, Value)]) -> SampleBatch {
        let parts = Part::ALL.map(|part| self.sample_part(part, Tick::regular(time), ours, &mut |_| true));
        let mut all = SampleBatch::default();
        parts.iter().flatten().flat_map(SampleBatch::iter).for_each(|(id, time, value)| all.push(id, time, value));
        all
    }

    /// Looks for the sources of a part that has no thread, where that is due; whether one is there. `enter` as in
    /// [`Sampler::sample_part`].
    pub(super) fn search_part(
        &self,
        part: Part,
        time: Timestamp,
        enter: &mut dyn FnMut(&'static str) -> bool,
    ) -> Option<bool> {
        let mut is_there = false;
        for Seat { name, held } in &self.seats[part as usize] {
            let Ok(mut seated) = held.try_lock() else { continue };
            if seated.searches.is_due_at(time) {
                if !enter(name) {
                    return None;
                }
                seated.subject.search();
                self.take_news(name, &mut seated);
                is_there |= seated.found.contains(&SourceState::Present);
            }
        }
        Some(is_there)
    }

    /// Takes what a subject knows of its sources and its devices, where that is not what it said before.
    fn take_news(&self, name: &'static str, seated: &mut SeatedSubject) {
        let SeatedSubject { subject, found: told, .. } = seated;
        let found = subject.found();
        if *found != **told {
            if let Some(kind) = subject.device_kind() {
                self.book().tell_found(name, kind, &found, &self.root);
            }
            self.tell_refused(name, &found);
            *told = found.into_owned();
        }
        if let Some(devices) = seated.subject.inventory() {
            self.book().tell(name, devices);
        }
    }

    fn tell_refused(&self, name: &'static str, found: &[SourceState]) {
        for one in found {
            let SourceState::Refused { path, why, remedy } = one else { continue };
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if refusals.known.insert((name, path.clone())) {
                refusals.untold.push(format!("{name} cannot be read: {}: {why}; {remedy}", path.display()));
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, InventoryBook> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores what changed in the inventory. `time`: of the newest tick.
    pub fn store_inventory(&self, time: Timestamp) {
        let changed = {
            let mut book = self.book();
            book.settle(time);
            book.take_unstored()
        };
        if changed.is_empty() {
            return;
        }
        let node = self.db.snapshot().node().to_owned();
        for entry in changed {
            // The disk may be full for a while; the samples say so.
            if let Err(error) = self.db.put_meta(entry.change(&node), Durability::Buffered) {
                tracing::debug!(%error, "a device of the inventory is not stored yet");
                self.book().keep(&entry);
            }
        }
    }

    /// Seats one more subject.
    #[cfg(test)]
    pub(super) fn add(&mut self, part: Part, name: &'static str, subject: Box<dyn Subject>) {
        self.seats[part as usize].push(Seat::new(name, subject));
    }

    /// What the subjects of a part know of their sources.
    #[cfg(test)]
    pub(super) fn found(&self, part: Part) -> Vec<(&'static str, Vec<SourceState>)> {
        self.seats[part as usize]
            .iter()
            .map(|seat| (seat.name, seat.held.lock().unwrap().subject.found().into_owned()))
            .collect()
    }

    /// The samples of one tick. `ours`: what the collectors tell of themselves at level 4. `enter` hears the name of
    /// each subject before it is sampled; when it says no, the rest is left out and there are no samples.
    pub(super) fn sample_part(
        &self,
        part: Part,
        tick: Tick,
        ours: &[(&'static str, Value)],
        enter: &mut dyn FnMut(&'static str) -> bool,
    ) -> Option<SampleBatch> {
        let (seats, expected) = (&self.seats[part as usize], &self.expected[part as usize]);
        let out = Out::new(&self.db, &self.host, tick.time, expected.load(Ordering::Relaxed));
        let mut out = out.of_kind(tick.kind).telling(ours);
        for Seat { name, held } in seats {
            // Taken by a thread that hangs in it, or that panicked in it.
            let Ok(mut seated) = held.try_lock() else { continue };
            if !enter(name) {
                return None;
            }
            let is_searched = seated.searches.is_due_at(tick.time);
            if is_searched {
                seated.subject.search();
            }
            let is_sampled = seated.samples.is_due(&out);
            if is_sampled {
                seated.subject.sample(&mut out);
            }
            if is_searched || is_sampled {
                self.take_news(name, &mut seated);
            }
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

    /// Reads, between two ticks, what would go around before the next one. `enter` as in [`Sampler::sample_part`].
    pub(super) fn refresh_part(&self, part: Part, enter: &mut dyn FnMut(&'static str) -> bool) {
        for Seat { name, held } in &self.seats[part as usize] {
            let Ok(mut seated) = held.try_lock() else { continue };
            if !enter(name) {
                return;
            }
            seated.subject.refresh();
        }
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

    /// Which sources of this node cannot be read, why, and what helps, each once.
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.refusals.lock().unwrap_or_else(PoisonError::into_inner).untold)
    }
}
