//! GPUs of NVIDIA, by NVML: when they are asked, and what their answers are in base units.
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
use self::reader::{NvidiaReader, QuestionExtent, ReaderState};
use super::{DeviceStatus, GpuIdentity, GpuPart, GpuPartKind, GpuReading, GpuSource, GpuVendor, PciAddress};
use crate::collect::pace::Pace;
use crate::collect::series::Out;
use crate::collect::source::Tree;
use crate::collect::subject::SourceState;
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
/// The same, when it did not sleep the time before: it is held by somebody else, and letting go costs samples only.
const QUIET_FOR_HELD: Duration = Duration::from_secs(600);

/// All GPUs of NVIDIA of this node.
#[derive(Debug)]
pub struct NvidiaGpus {
    tree: Tree,
    clock: Arc<dyn Clock>,
    reader: NvidiaReader,
    rare: Pace,
    /// Rare values were due at a tick at which nothing could be asked.
    rare_waits: bool,
    is_open: bool,
    power: PowerManagement,
    /// Its version, once it was told.
    driver: String,
    /// Since when no GPU does anything.
    quiet_since: Option<Duration>,
    /// They were let go, and this is how it went.
    release: Release,
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

/// Whether it helps that GPUs are let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Release {
    #[default]
    Untried,
    /// They were let go, and have not slept since.
    Tried,
    /// They were still awake when they could be asked again: somebody else holds them.
    InVain,
}

#[derive(Debug, Default)]
struct NvidiaGpu {
    about: NvidiaCard,
    /// It did not answer when it was asked last.
    is_down: bool,
    totals: NvidiaTotals,
}

/// What is told since the answer before, added up. It outlives a reader.
#[derive(Debug, Default)]
struct NvidiaTotals {
    throttled_micros: [u64; 3],
    link_bytes: [Option<u64>; 2],
    xids: BTreeMap<u64, u64>,
}

impl NvidiaGpus {
    pub fn new(tree: &Tree, level: u8, reader: VendorReader, clock: Arc<dyn Clock>) -> Self {
        Self {
            tree: tree.clone(),
            reader: NvidiaReader::new(reader, level, Arc::clone(&clock)),
            clock,
            rare: Pace::every(RARE_INTERVAL),
            rare_waits: false,
            is_open: false,
            power: PowerManagement::default(),
            driver: String::new(),
            quiet_since: None,
            release: Release::default(),
            gpus: BTreeMap::new(),
        }
    }

    /// The GPUs that the kernel module knows.
    fn plugged(&self) -> Vec<PciAddress> {
        let gpus = fs::read_dir(self.tree.path("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
        let mut found: Vec<PciAddress> =
            gpus.take(CARDS_MAX).filter_map(|gpu| PciAddress::parse(gpu.file_name().to_str()?)).collect();
        found.sort();
        found
    }

    /// Gives places to GPUs of which the library knows a number alone. It numbers them in the order of their places, so
    /// where it counts as many as the kernel module has, or where as many places are left, nothing is guessed.
    fn place(&mut self) {
        for index in self.reader.left_out() {
            let unknown = NvidiaCard { index, ..NvidiaCard::default() };
            self.gpus.entry(index).or_insert_with(|| NvidiaGpu { about: unknown, ..NvidiaGpu::default() });
        }
        let is_placed = |gpu: &NvidiaGpu| !gpu.about.pci.is_empty();
        if self.gpus.values().all(is_placed) {
            return;
        }
        let plugged = self.plugged();
        let taken: Vec<PciAddress> = self.gpus.values().filter_map(|gpu| PciAddress::parse(&gpu.about.pci)).collect();
        let free: Vec<PciAddress> = plugged.iter().copied().filter(|pci| !taken.contains(pci)).collect();
        let are_all_counted = plugged.len() == self.gpus.len();
        let unplaced: Vec<&mut NvidiaGpu> = self.gpus.values_mut().filter(|gpu| !is_placed(gpu)).collect();
        let are_as_many = free.len() == unplaced.len();
        for (at, gpu) in unplaced.into_iter().enumerate() {
            let by_number = plugged.get(gpu.about.index as usize).filter(|pci| are_all_counted && free.contains(pci));
            if let Some(pci) = by_number.or_else(|| free.get(at).filter(|_| are_as_many)) {
                gpu.about.pci = pci.to_string();
            }
        }
    }

    fn power_management(&self) -> PowerManagement {
        let states = self.plugged().into_iter().map(|pci| {
            let power = self.tree.path(format!("sys/bus/pci/devices/{pci}/power"));
            let says = |file| fs::read_to_string(power.join(file)).unwrap_or_default();
            match (says("control").trim(), says("runtime_status").trim()) {
                (_, "suspended" | "suspending" | "resuming") => PowerManagement::Asleep,
                ("auto", "active") if self.may_sleep(pci) => PowerManagement::MaySleep,
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

    /// Not where the driver says that it lets this GPU never sleep, whatever the kernel is told: so it is with most GPUs
    /// of servers, whose power management a distribution sets to `auto` all the same. Asked of the driver's memory.
    fn may_sleep(&self, pci: PciAddress) -> bool {
        let path = self.tree.path(format!("proc/driver/nvidia/gpus/{pci}/power"));
        let says = fs::read_to_string(path).unwrap_or_default();
        let status = says.lines().find_map(|line| line.strip_prefix("Runtime D3 status:")).unwrap_or_default().trim();
        !["Disabled", "Not supported", "Not Supported"].iter().any(|word| status.starts_with(word))
    }

    #[cfg(test)]
    pub fn reader_pid(&self) -> Option<u32> {
        self.reader.pid()
    }

    /// Where a GPU that was seen is plugged in.
    fn address(&self, card: u32) -> Option<PciAddress> {
        PciAddress::parse(&self.gpus.get(&card)?.about.pci)
    }

    /// GPUs of which nothing may be asked now, or was asked in vain.
    fn in_vain(&self) -> Vec<u32> {
        let is_ours = |card: &u32| self.gpus.get(card).is_some_and(|gpu| !gpu.about.is_closed);
        match self.reader.state() {
            ReaderState::Failed | ReaderState::Off { .. } => self.gpus.keys().copied().filter(is_ours).collect(),
            ReaderState::Running => self.reader.left_out().filter(is_ours).collect(),
            ReaderState::Resting => Vec::new(),
        }
    }

    fn identity(&self, gpu: &NvidiaGpu) -> Option<GpuIdentity> {
        let NvidiaCard { uuid, serial, name, vbios, memory_bytes, limit_milliwatts, .. } = &gpu.about;
        let pci = PciAddress::parse(&gpu.about.pci)?;
        let numa = fs::read_to_string(self.tree.path(format!("sys/bus/pci/devices/{pci}/numa_node"))).ok();
        Some(GpuIdentity {
            model: name.clone(),
            uuid: if uuid.is_empty() { serial.clone() } else { uuid.clone() },
            // Without nodes the kernel says -1.
            numa: numa.and_then(|node| node.trim().parse().ok()),
            memory_bytes: *memory_bytes,
            limit_watts: limit_milliwatts.map(|milli| f64::from(milli) / 1_000.0),
            driver: format!("nvidia {}", self.driver).trim_end().to_owned(),
            firmware: vbios.clone(),
            status: match self.reader.state() {
                ReaderState::Off { .. } => DeviceStatus::Refused,
                ReaderState::Resting => DeviceStatus::Asleep,
                _ if gpu.about.is_closed => DeviceStatus::Refused,
                _ if gpu.is_down => DeviceStatus::Lost,
                _ => DeviceStatus::Ok,
            },
            ..GpuIdentity::new(GpuVendor::Nvidia, pci)
        })
    }

    /// Whether the library may be asked now. Its first call wakes a GPU that sleeps, so right before each start and, of
    /// GPUs that may sleep, before each question it is seen whether they do.
    fn may_ask(&mut self) -> bool {
        let is_due = self.reader.is_due();
        if is_due || (self.reader.is_running() && self.power == PowerManagement::MaySleep) {
            self.power = self.power_management();
        }
        if self.power == PowerManagement::Asleep {
            self.release = Release::Untried;
            self.quiet_since = None;
            self.reader.rest();
            return false;
        }
        if is_due && self.release == Release::Tried {
            self.release = Release::InVain;
        }
        true
    }

    /// Ends the reader where all GPUs may sleep and none does anything: it holds them awake.
    fn let_go(&mut self, readings: &[NvidiaReading]) {
        let now = self.clock.monotonic();
        let works = |reading: &NvidiaReading| reading.utilization != Some(0);
        if self.power != PowerManagement::MaySleep || readings.iter().any(works) {
            self.quiet_since = None;
        } else if !readings.is_empty() {
            let since = *self.quiet_since.get_or_insert(now);
            let longest = if self.release == Release::InVain { QUIET_FOR_HELD } else { QUIET_FOR };
            if now.saturating_sub(since) >= longest {
                self.quiet_since = None;
                self.release = Release::Tried;
                self.reader.rest();
            }
        }
    }
}

impl GpuSource for NvidiaGpus {
    /// Whether the kernel module is loaded, and what it lets sleep. Neither opens nor wakes a GPU.
    fn search(&mut self) {
        self.is_open = self.reader.is_possible() && self.tree.path(GATE).is_file();
        if self.is_open {
            self.power = self.power_management();
        } else {
            self.reader.rest();
        }
    }

    fn found(&self) -> Vec<SourceState> {
        if !self.is_open {
            return vec![SourceState::Absent];
        }
        if let ReaderState::Off { why, cause } = self.reader.state() {
            return vec![SourceState::Refused { path: self.tree.path(GATE), why: why.clone(), remedy: remedy(*cause) }];
        }
        let mut found = vec![SourceState::Present];
        for gpu in self.gpus.values().filter(|gpu| !gpu.about.refused.is_empty()) {
            found.push(SourceState::Refused {
                path: self.tree.path("sys/bus/pci/devices").join(&gpu.about.pci),
                why: format!("no permission to ask for {}", gpu.about.refused.join(", ")),
                remedy: "an administrator can load the module nvidia with NVreg_RestrictProfilingToAdminUsers=0",
            });
        }
        found
    }

    fn cards(&self) -> Vec<GpuIdentity> {
        let mut cards: Vec<GpuIdentity> = self.gpus.values().filter_map(|gpu| self.identity(gpu)).collect();
        // Of those that sleep since before we came, only where they are is known.
        if self.is_open && self.power == PowerManagement::Asleep {
            for pci in self.plugged() {
                if cards.iter().all(|card| card.pci != pci) {
                    let driver = "nvidia".to_owned();
                    let asleep = GpuIdentity::new(GpuVendor::Nvidia, pci);
                    cards.push(GpuIdentity { driver, status: DeviceStatus::Asleep, ..asleep });
                }
            }
        }
        cards
    }

    fn sample(&mut self, out: &Out<'_>) -> Vec<(PciAddress, GpuReading)> {
        if !self.is_open || !self.may_ask() {
            return Vec::new();
        }
        let rare = self.rare.is_due(out) || self.rare_waits;
        let extent = if rare { QuestionExtent::WithRare } else { QuestionExtent::Usual };
        let answers = self.reader.ask(extent);
        self.rare_waits = rare && !answers.asked;
        if let Some(cards) = answers.cards {
            self.driver = self.reader.driver().to_owned();
            for about in cards.into_iter().take(CARDS_MAX) {
                let gpu = self.gpus.entry(about.index).or_default();
                if about.pci.is_empty() && !gpu.about.pci.is_empty() {
                    // One that is lost tells nothing of itself.
                    gpu.about.is_closed = about.is_closed;
                    continue;
                }
                if gpu.about.uuid != about.uuid {
                    // Another GPU has its number now.
                    gpu.totals = NvidiaTotals::default();
                }
                gpu.about = about;
            }
            self.place();
        }
        self.let_go(&answers.readings);
        let mut samples: BTreeMap<u32, GpuReading> =
            self.in_vain().into_iter().map(|card| (card, GpuReading::default())).collect();
        for reading in answers.readings {
            if let Some(gpu) = self.gpus.get_mut(&reading.card) {
                samples.insert(reading.card, gpu.totals.reading(reading));
            }
        }
        for (card, sample) in &samples {
            if let Some(gpu) = self.gpus.get_mut(card) {
                gpu.is_down = !sample.up;
            }
        }
        samples.into_iter().filter_map(|(card, sample)| Some((self.address(card)?, sample))).collect()
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
    fn reading(&mut self, reading: NvidiaReading) -> GpuReading {
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
        let part = |(number, [used, size]): (u32, [u64; 2])| GpuPart {
            kind: GpuPartKind::Mig,
            number,
            utilization_percent: None,
            memory_used_bytes: Some(used),
            memory_size_bytes: Some(size),
        };
        GpuReading {
            up: reading.up,
            utilization_percent: reading.utilization.map(f64::from),
            memory_used_bytes: reading.memory.map(|[used, _]| used),
            memory_size_bytes: reading.memory.map(|[_, size]| size),
            power_watts: reading.power_milliwatts.map(milli),
            energy_joules: reading.energy_millijoules.map(|millis| millis as f64 / 1_000.0),
            temperature_celsius: reading.temperature.map(f64::from),
            memory_activity_percent: reading.memory_activity.map(f64::from),
            sm_clock_hertz: reading.sm_megahertz.map(mega),
            memory_clock_hertz: reading.memory_megahertz.map(mega),
            memory_temperature_celsius: reading.memory_temperature.map(f64::from),
            power_limit_watts: reading.limit_milliwatts.map(milli),
            throttled_seconds: self.throttled(reading.throttled.unwrap_or_default()),
            ecc_errors: reading.memory_errors.unwrap_or_default(),
            pcie_replays: reading.replays.map(u64::from),
            link_bytes: if reading.up { self.link_bytes } else { [None; 2] },
            sm_active_percent: sm_active.map(two_decimals),
            sm_occupancy_percent: sm_occupancy.map(two_decimals),
            tensor_active_percent: tensor_active.map(two_decimals),
            memory_bandwidth_percent: memory_bandwidth.map(two_decimals),
            xids: self.xids.iter().map(|(xid, times)| (*xid, *times)).collect(),
            processes: reading.processes.unwrap_or_default(),
            parts: reading.instances.unwrap_or_default().into_iter().map(part).collect(),
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
