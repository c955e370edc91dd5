//! GPUs of NVIDIA, by NVML: who is asked when, and what its answers are in base units.
//!
//! The one idea: nothing of NVIDIA is touched unless its kernel module is loaded, which [`GATE`] tells, and a GPU is
//! awake. A library that is loaded without need may start a setuid program, and a GPU of a laptop whose driver is asked
//! does not sleep. Formats are those of NVIDIA's NVML reference and of its driver's `/proc` interface.

mod answers;
mod frames;
mod library;
mod reader;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;

pub use self::answers::read_for_parent;
use self::frames::{CARDS_MAX, GpmProfile, NvidiaCard, NvidiaReading, OffCause, Throttled, XIDS_MAX};
pub use self::reader::VendorReader;
use self::reader::{Reader, ReaderState};
use crate::collect::pace::Pace;
use crate::collect::sampler::Found;
use crate::collect::series::Out;
use crate::collect::source::Tree;
use crate::collect::two_decimals;

/// What is bounded, for the page of limits.
pub mod limits {
    pub use super::frames::{CARD_PROCESSES_MAX, CARDS_MAX};
    pub use super::reader::{ANSWER_WAIT, CALL_DEADLINE};
}

/// The kernel module is loaded where this file is.
pub const GATE: &str = "proc/driver/nvidia/version";
/// How often limits, memory errors and partitions are asked for.
const RARE_INTERVAL: Duration = Duration::from_secs(5);
/// A GPU that may sleep is let go when it did nothing for so long. It sleeps some seconds later.
const QUIET_FOR: Duration = Duration::from_secs(30);

/// All GPUs of NVIDIA of this node.
#[derive(Debug)]
pub struct NvidiaGpus {
    tree: Tree,
    clock: Arc<dyn Clock>,
    reader: Reader,
    rare: Pace,
    /// Rare values were due at a tick at which nothing could be asked.
    rare_waits: bool,
    is_open: bool,
    power: PowerManagement,
    /// Since when no GPU does anything.
    quiet_since: Option<Duration>,
    /// All that were ever seen, by their number in the library.
    gpus: BTreeMap<u32, NvidiaGpu>,
}

/// What the kernel does with GPUs that nobody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PowerManagement {
    /// They stay awake, as in any server.
    #[default]
    StaysOn,
    MaySleep,
    /// All of them do now.
    Asleep,
}

#[derive(Debug, Default)]
struct NvidiaGpu {
    about: NvidiaCard,
    totals: NvidiaTotals,
}

/// What is told since the answer before, added up. It outlives a reader.
#[derive(Debug, Default)]
struct NvidiaTotals {
    throttled_micros: [u64; 3],
    link_bytes: [Option<u64>; 2],
    xids: BTreeMap<u64, u64>,
}

/// What one GPU tells at one tick, in base units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvidiaSample {
    pub up: bool,
    pub utilization_percent: Option<f64>,
    pub memory_activity_percent: Option<f64>,
    /// Used, and all.
    pub memory_bytes: Option<[u64; 2]>,
    /// Of each instance of a partitioned GPU: its number, used, and all.
    pub instances: Vec<(u32, [u64; 2])>,
    pub power_watts: Option<f64>,
    pub energy_joules: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub sm_hertz: Option<u64>,
    pub memory_hertz: Option<u64>,
    pub memory_temperature_celsius: Option<f64>,
    pub limit_watts: Option<f64>,
    /// By power, heat and hardware.
    pub throttled_seconds: [Option<f64>; 3],
    /// Corrected and not.
    pub memory_errors: [Option<u64>; 2],
    pub replays: Option<u64>,
    /// Received and transmitted.
    pub link_bytes: [Option<u64>; 2],
    pub sm_active_percent: Option<f64>,
    pub sm_occupancy_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    pub memory_bandwidth_percent: Option<f64>,
    pub xids: Vec<(u64, u64)>,
    /// Process and bytes, of all users.
    pub processes: Vec<(u32, u64)>,
}

impl NvidiaGpus {
    pub fn new(tree: &Tree, level: u8, reader: VendorReader, clock: Arc<dyn Clock>) -> Self {
        Self {
            tree: tree.clone(),
            reader: Reader::new(reader, level, Arc::clone(&clock)),
            clock,
            rare: Pace::every(RARE_INTERVAL),
            rare_waits: false,
            is_open: false,
            power: PowerManagement::default(),
            quiet_since: None,
            gpus: BTreeMap::new(),
        }
    }

    /// Whether the kernel module is loaded, and what it lets sleep. Neither opens nor wakes a GPU.
    pub fn search(&mut self) {
        self.is_open = self.reader.is_possible() && self.tree.path(GATE).is_file();
        if self.is_open {
            self.power = self.power_management();
        } else {
            self.reader.rest();
        }
    }

    fn power_management(&self) -> PowerManagement {
        let gpus = fs::read_dir(self.tree.path("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
        let states = gpus.take(CARDS_MAX).map(|gpu| {
            let power = self.tree.path("sys/bus/pci/devices").join(gpu.file_name()).join("power");
            let says = |file| fs::read_to_string(power.join(file)).unwrap_or_default();
            match (says("control").trim(), says("runtime_status").trim()) {
                (_, "suspended" | "suspending" | "resuming") => PowerManagement::Asleep,
                ("auto", "active") => PowerManagement::MaySleep,
                _ => PowerManagement::StaysOn,
            }
        });
        let states: Vec<PowerManagement> = states.collect();
        // One that is awake for good is asked, and with it all others: the library knows only all of them.
        let all = |state| !states.is_empty() && states.iter().all(|one| *one == state);
        if all(PowerManagement::Asleep) {
            PowerManagement::Asleep
        } else if states.is_empty() || states.contains(&PowerManagement::StaysOn) {
            PowerManagement::StaysOn
        } else {
            PowerManagement::MaySleep
        }
    }

    pub fn found(&self) -> Vec<Found> {
        if !self.is_open {
            return vec![Found::Absent];
        }
        if let ReaderState::Off { why, cause } = self.reader.state() {
            return vec![Found::Refused { path: self.tree.path(GATE), why: why.clone(), remedy: remedy(*cause) }];
        }
        let mut found = vec![Found::Present];
        for gpu in self.gpus.values().filter(|gpu| !gpu.about.refused.is_empty()) {
            found.push(Found::Refused {
                path: self.tree.path("sys/bus/pci/devices").join(&gpu.about.pci),
                why: format!("no permission to ask for {}", gpu.about.refused.join(", ")),
                remedy: "an administrator can load the module nvidia with NVreg_RestrictProfilingToAdminUsers=0",
            });
        }
        found
    }

    /// The driver's version; empty until it was asked.
    pub fn driver(&self) -> &str {
        self.reader.driver()
    }

    #[cfg(test)]
    pub fn reader_pid(&self) -> Option<u32> {
        self.reader.pid()
    }

    /// What is known of the GPUs that were seen.
    pub fn cards(&self) -> impl Iterator<Item = &NvidiaCard> {
        self.gpus.values().map(|gpu| &gpu.about)
    }

    /// What each GPU told since the tick before, by its number in the library. One that sleeps, or that has not answered
    /// yet, is not among them.
    pub fn sample(&mut self, out: &Out<'_>) -> Vec<(u32, NvidiaSample)> {
        if !self.is_open || (self.power == PowerManagement::Asleep && !self.reader.is_running()) {
            return Vec::new();
        }
        let rare = self.rare.is_due(out) || self.rare_waits;
        let answers = self.reader.ask(rare);
        self.rare_waits = rare && !answers.asked;
        for about in answers.cards.into_iter().flatten().take(CARDS_MAX) {
            let gpu = self.gpus.entry(about.index).or_default();
            if gpu.about.uuid != about.uuid {
                // Another GPU has its number now.
                gpu.totals = NvidiaTotals::default();
            }
            gpu.about = about;
        }
        self.let_go(&answers.readings);
        let mut samples = Vec::new();
        for reading in answers.readings {
            if let Some(gpu) = self.gpus.get_mut(&reading.card) {
                samples.push((reading.card, gpu.totals.sample(reading)));
            }
        }
        let in_vain: Vec<u32> = match self.reader.state() {
            ReaderState::Failed | ReaderState::Off { .. } => self.gpus.keys().copied().collect(),
            ReaderState::Running => self.reader.left_out().filter(|card| self.gpus.contains_key(card)).collect(),
            ReaderState::Resting => Vec::new(),
        };
        for card in in_vain {
            if samples.iter().all(|(known, _)| *known != card) {
                samples.push((card, NvidiaSample::default()));
            }
        }
        samples.sort_by_key(|(card, _)| *card);
        samples
    }

    /// Ends the reader where all GPUs may sleep and none does anything: it holds them awake.
    fn let_go(&mut self, readings: &[NvidiaReading]) {
        let now = self.clock.monotonic();
        let works = |reading: &NvidiaReading| reading.utilization != Some(0);
        if self.power != PowerManagement::MaySleep || readings.iter().any(works) {
            self.quiet_since = None;
        } else if !readings.is_empty() {
            let since = *self.quiet_since.get_or_insert(now);
            if now.saturating_sub(since) >= QUIET_FOR {
                self.quiet_since = None;
                self.reader.rest();
            }
        }
    }
}

fn remedy(cause: OffCause) -> &'static str {
    match cause {
        OffCause::NoLibrary => {
            "libnvidia-ml.so.1 comes with the driver; a container must mount it, and a telem that is linked statically \
             cannot load it"
        }
        OffCause::NoDriver => "an administrator can load the module nvidia",
        OffCause::Mismatch => "the driver was upgraded: it matches again after its module is loaded anew, or a reboot",
        OffCause::NoPermission => "an administrator can open /dev/nvidiactl and /dev/nvidia0 and so on to this user",
        OffCause::Other => "nvidia-smi may tell more",
    }
}

impl NvidiaTotals {
    fn sample(&mut self, reading: NvidiaReading) -> NvidiaSample {
        let mega = |mega: u32| u64::from(mega) * 1_000_000;
        let milli = |milli: u32| f64::from(milli) / 1_000.0;
        let GpmProfile { sm_active, sm_occupancy, tensor_active, memory_bandwidth, link_bytes } =
            reading.profile.unwrap_or_default();
        for (total, more) in self.link_bytes.iter_mut().zip(link_bytes) {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        }
        for (xid, times) in reading.xids {
            if self.xids.len() < XIDS_MAX || self.xids.contains_key(&xid) {
                let total = self.xids.entry(xid).or_default();
                *total = total.saturating_add(times);
            }
        }
        NvidiaSample {
            up: reading.up,
            utilization_percent: reading.utilization.map(f64::from),
            memory_activity_percent: reading.memory_activity.map(f64::from),
            memory_bytes: reading.memory,
            instances: reading.instances.unwrap_or_default(),
            power_watts: reading.power_milliwatts.map(milli),
            energy_joules: reading.energy_millijoules.map(|millis| millis as f64 / 1_000.0),
            temperature_celsius: reading.temperature.map(f64::from),
            sm_hertz: reading.sm_megahertz.map(mega),
            memory_hertz: reading.memory_megahertz.map(mega),
            memory_temperature_celsius: reading.memory_temperature.map(f64::from),
            limit_watts: reading.limit_milliwatts.map(milli),
            throttled_seconds: self.throttled(reading.throttled.unwrap_or_default()),
            memory_errors: reading.memory_errors.unwrap_or_default(),
            replays: reading.replays.map(u64::from),
            link_bytes: if reading.up { self.link_bytes } else { [None; 2] },
            sm_active_percent: sm_active.map(two_decimals),
            sm_occupancy_percent: sm_occupancy.map(two_decimals),
            tensor_active_percent: tensor_active.map(two_decimals),
            memory_bandwidth_percent: memory_bandwidth.map(two_decimals),
            xids: self.xids.iter().map(|(xid, times)| (*xid, *times)).collect(),
            processes: reading.processes.unwrap_or_default(),
        }
    }

    fn throttled(&mut self, throttled: [Throttled; 3]) -> [Option<f64>; 3] {
        let mut seconds = [None; 3];
        for ((place, throttled), total) in seconds.iter_mut().zip(throttled).zip(&mut self.throttled_micros) {
            // Four decimals are stored in a fifth of the bytes of nine.
            *place = match throttled {
                Throttled::Unknown => None,
                Throttled::Nanos(nanos) => Some((nanos / 100_000) as f64 / 10_000.0),
                Throttled::MoreMicros(more) => {
                    *total = total.saturating_add(more);
                    Some((*total / 100) as f64 / 10_000.0)
                }
            };
        }
        seconds
    }
}
