//! What the kernel counts of CPUs that ran slower than they could, and their clocks.
//!
//! Threads of a core share its counters, and cores of a package those of the package: each is read once. A clock is asked
//! of the CPU itself on some machines, which interrupts it, so clocks are read every ten seconds, at level 3.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::energy::word;
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use super::unwrapped::{Unwrapped, sum_of};

/// Most CPUs that are looked at; those beyond it are left out.
pub const CPU_DIRECTORIES_MAX: usize = 4_096;
const THROTTLE_INTERVAL: Duration = Duration::from_secs(5);
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);

const CORE: &str = "node_cpu_core_throttles_total";
const PACKAGE: &str = "node_cpu_package_throttles_total";
const CLOCK: &str = "node_cpu_scaling_frequency_hertz";

/// The directories of CPUs by number.
fn cpus(tree: &Tree) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(tree.path("sys/devices/system/cpu")).into_iter().flatten().flatten();
    let mut found: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    found.truncate(CPU_DIRECTORIES_MAX);
    found
}

#[derive(Debug)]
struct CpuCounter {
    source: Source,
    slot: Slot,
    /// For the sum over all of them.
    counter: Unwrapped,
}

impl CpuCounter {
    fn new(file: PathBuf, slot: Slot) -> Self {
        Self { source: Source::new(file), slot, counter: Unwrapped::new(None) }
    }
}

/// How often cores and packages were throttled.
#[derive(Debug)]
pub struct Throttling {
    tree: Tree,
    each: bool,
    cores: Vec<CpuCounter>,
    packages: Vec<CpuCounter>,
    sums: [Slot; 2],
}

impl Throttling {
    pub fn new(tree: &Tree, level: u8) -> Self {
        let sums = [CORE, PACKAGE].map(Slot::new);
        Self { tree: tree.clone(), each: level >= 3, cores: Vec::new(), packages: Vec::new(), sums }
    }
}

impl Subject for Throttling {
    fn search(&mut self) {
        // CPUs hardly come and go.
        if !self.packages.is_empty() || !self.tree.path("sys/devices/system/cpu/cpu0/thermal_throttle").is_dir() {
            return;
        }
        let (mut cores, mut packages) = (BTreeSet::new(), BTreeSet::new());
        for (_, directory) in cpus(&self.tree) {
            let id = |file: &str| word(&directory.join("topology").join(file));
            let (Some(package), Some(core)) = (id("physical_package_id"), id("core_id")) else { continue };
            let file = |name: &str| directory.join("thermal_throttle").join(name);
            if packages.insert(package.clone()) {
                let slot = Slot::tagged(PACKAGE, &[("package", &package)]);
                self.packages.push(CpuCounter::new(file("package_throttle_count"), slot));
            }
            if cores.insert((package.clone(), core.clone())) {
                let slot = Slot::tagged(CORE, &[("package", &package), ("core", &core)]);
                self.cores.push(CpuCounter::new(file("core_throttle_count"), slot));
            }
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.packages.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        THROTTLE_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for (counters, sum_slot) in [&mut self.cores, &mut self.packages].into_iter().zip(&mut self.sums) {
            let members = counters.iter_mut().map(|CpuCounter { source, slot, counter }| {
                let count = source.number();
                if let Some(count) = count.filter(|_| self.each) {
                    out.int(slot, count);
                }
                counter.next_or_last(count)
            });
            if let Some(sum) = sum_of(members).filter(|_| !self.each) {
                out.int(sum_slot, sum);
            }
        }
    }
}

/// The clock of each CPU.
#[derive(Debug)]
pub struct CpuClocks {
    tree: Tree,
    clocks: Vec<CpuCounter>,
}

impl CpuClocks {
    pub fn new(tree: &Tree) -> Self {
        Self { tree: tree.clone(), clocks: Vec::new() }
    }
}

impl Subject for CpuClocks {
    fn search(&mut self) {
        if !self.clocks.is_empty() || !self.tree.path("sys/devices/system/cpu/cpu0/cpufreq").is_dir() {
            return;
        }
        for (number, directory) in cpus(&self.tree) {
            let file = directory.join("cpufreq/scaling_cur_freq");
            if file.is_file() {
                let slot = Slot::tagged(CLOCK, &[("cpu", &number.to_string())]);
                self.clocks.push(CpuCounter::new(file, slot));
            }
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.clocks.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        CLOCK_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for CpuCounter { source, slot, .. } in &mut self.clocks {
            if let Some(kilohertz) = source.number() {
                out.int(slot, kilohertz.saturating_mul(1_000));
            }
        }
    }
}
