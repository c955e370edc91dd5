//! GPUs of all vendors under one set of names.
//!
//! The one idea: a vendor's source tells readings in base units, and only this file knows what they are called, at which
//! level they are stored, and which number a GPU has. A source need not have asked when it is sampled: what another
//! process told since the tick before is a reading too. Each vendor has a seat of its own, so that a driver that hangs
//! costs no samples of the others.

pub mod amd;
pub mod clients;
pub mod drm;
pub mod intel;
pub mod mask;
pub mod nvidia;
mod slots;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::mask::{GpuGiven, GpuMasks};
use self::slots::GpuSlots;
use super::energy::PowerBoard;
use super::inventory::{DeviceKind, DeviceStatus, InventoryEntry};
use super::series::Out;
use super::source::Tree;
use super::subject::{SourceState, Subject};

/// Most GPUs of a node that get a number, those that went included; others have no series.
pub const GPUS_MAX: usize = 256;
/// No GPU answers with something new more often.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The maker of a GPU, in the order in which GPUs are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuVendor {
    Nvidia,
    Amd,
    Intel,
}

impl fmt::Display for GpuVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GpuVendor::Nvidia => "NVIDIA",
            GpuVendor::Amd => "AMD",
            GpuVendor::Intel => "Intel",
        })
    }
}

/// Where a device is plugged in, `0000:07:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    pub domain: u32,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl PciAddress {
    /// Domains have 4 digits in the kernel's names and 8 in NVIDIA's; without one it is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |digits: &str| u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        let (front, function) = text.trim().rsplit_once('.')?;
        let (front, device) = front.rsplit_once(':')?;
        let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
        let device = u8::try_from(hex(device)?).ok().filter(|device| *device < 32)?;
        let function = u8::try_from(hex(function)?).ok().filter(|function| *function < 8)?;
        Some(Self { domain: hex(domain)?, bus: u8::try_from(hex(bus)?).ok()?, device, function })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// What a GPU is. Unknown texts are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuIdentity {
    pub vendor: GpuVendor,
    pub pci: PciAddress,
    pub model: String,
    /// A UUID, else a serial number.
    pub uuid: String,
    pub numa: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// The power that it may draw.
    pub limit_watts: Option<f64>,
    /// The kernel's driver, with its version where it has one.
    pub driver: String,
    pub firmware: String,
    pub status: DeviceStatus,
}

impl GpuIdentity {
    pub fn new(vendor: GpuVendor, pci: PciAddress) -> Self {
        Self {
            vendor,
            pci,
            model: String::new(),
            uuid: String::new(),
            numa: None,
            memory_bytes: None,
            limit_watts: None,
            driver: String::new(),
            firmware: String::new(),
            status: DeviceStatus::Ok,
        }
    }

    fn entry(&self, number: usize) -> InventoryEntry {
        let Self { vendor, pci, model, uuid, numa, memory_bytes, limit_watts, driver, firmware, status } = self.clone();
        let reason = match status {
            DeviceStatus::Ok => "",
            DeviceStatus::Asleep => "it sleeps, and is not woken",
            DeviceStatus::Lost => "it does not answer any more",
            DeviceStatus::Refused if vendor == GpuVendor::Nvidia => "it may not be opened",
            DeviceStatus::Refused => "its files may not be read",
        };
        InventoryEntry {
            vendor: vendor.to_string(),
            model,
            serial_or_uuid: uuid,
            pci: pci.to_string(),
            numa,
            memory_bytes,
            limit_watts,
            driver,
            firmware,
            status,
            reason: reason.to_owned(),
            ..InventoryEntry::new(DeviceKind::Gpu, number.to_string())
        }
    }
}

/// What a GPU tells at one tick; nothing of what it does not know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// It answered. One that did not, is lost or needs a reset tells nothing else.
    pub up: bool,
    /// Time in which it computed, from 0 to 100.
    pub utilization_percent: Option<f64>,
    pub memory_used_bytes: Option<u64>,
    pub memory_size_bytes: Option<u64>,
    pub power_watts: Option<f64>,
    /// A counter.
    pub energy_joules: Option<f64>,
    pub temperature_celsius: Option<f64>,
    /// Time in which the memory was read or written, from 0 to 100.
    pub memory_activity_percent: Option<f64>,
    pub sm_clock_hertz: Option<u64>,
    pub memory_clock_hertz: Option<u64>,
    pub memory_temperature_celsius: Option<f64>,
    pub power_limit_watts: Option<f64>,
    /// Counters: by power, heat and hardware.
    pub throttled_seconds: [Option<f64>; 3],
    /// Counters: corrected and not.
    pub ecc_errors: [Option<u64>; 2],
    /// A counter.
    pub pcie_replays: Option<u64>,
    /// Counters over all links to other GPUs: received and transmitted.
    pub link_bytes: [Option<u64>; 2],
    /// These four from 0 to 100.
    pub sm_active_percent: Option<f64>,
    pub sm_occupancy_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    pub memory_bandwidth_percent: Option<f64>,
    /// The number of an Xid, and a counter.
    pub xids: Vec<(u64, u64)>,
    /// Process and bytes, of all users.
    pub processes: Vec<(u32, u64)>,
    /// Where it is partitioned. What they tell takes the place of what the whole GPU tells of the same.
    pub parts: Vec<GpuPart>,
}

/// What a part of a partitioned GPU tells.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPart {
    pub kind: GpuPartKind,
    pub number: u32,
    pub utilization_percent: Option<f64>,
    pub memory_used_bytes: Option<u64>,
    pub memory_size_bytes: Option<u64>,
}

/// How a vendor calls parts of a GPU: the key of their tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuPartKind {
    /// NVIDIA.
    Mig,
    /// AMD.
    Partition,
}

impl GpuPartKind {
    pub fn tag(self) -> &'static str {
        match self {
            GpuPartKind::Mig => "mig",
            GpuPartKind::Partition => "partition",
        }
    }
}

/// The GPUs of one vendor, however they are asked.
pub trait GpuSource: fmt::Debug + Send {
    /// As [`Subject::search`].
    fn search(&mut self);

    /// As [`Subject::found`].
    fn found(&self) -> Vec<SourceState>;

    /// The GPUs that are known now, those that sleep too.
    fn cards(&self) -> Vec<GpuIdentity>;

    /// What GPUs told since the tick before, at most one reading each. One that sleeps, or that has not answered yet, is
    /// not among them; one that is lost or was asked in vain is, without [`GpuReading::up`].
    fn sample(&mut self, out: &Out<'_>) -> Vec<(PciAddress, GpuReading)>;
}

/// The numbers of GPUs, which all vendors share. A number is never given twice while telem runs; a GPU that comes back
/// has the one it had.
#[derive(Clone, Debug, Default)]
pub struct GpuRoll(Arc<Mutex<NumberedGpus>>);

#[derive(Debug, Default)]
struct NumberedGpus {
    /// By number.
    cards: Vec<GpuIdentity>,
    /// The number of the last one at each place.
    plugged: BTreeMap<(GpuVendor, PciAddress), usize>,
}

impl GpuRoll {
    /// Numbers those that are new, in the order of their addresses, and takes over what is known of the others.
    pub fn enter(&self, mut cards: Vec<GpuIdentity>) {
        cards.sort_by_key(|card| (card.vendor, card.pci));
        let NumberedGpus { cards: known, plugged } = &mut *self.lock();
        for card in cards {
            let place = (card.vendor, card.pci);
            let last = plugged.get(&place).copied();
            // While it sleeps, its identity may be unknown.
            let is_last = |last: &usize| card.uuid.is_empty() || known[*last].uuid.is_empty();
            let is_old = |old: &GpuIdentity| (old.vendor, old.pci) == place && old.uuid == card.uuid;
            match last.filter(is_last).or_else(|| known.iter().position(is_old)) {
                Some(number) => {
                    let old = &mut known[number];
                    let uuid = if card.uuid.is_empty() { std::mem::take(&mut old.uuid) } else { card.uuid.clone() };
                    *old = GpuIdentity { uuid, ..card };
                    plugged.insert(place, number);
                }
                None if known.len() < GPUS_MAX => {
                    plugged.insert(place, known.len());
                    known.push(card);
                }
                None => drop(plugged.remove(&place)),
            }
        }
    }

    /// The number of the GPU that is plugged in there, or was last.
    pub fn number(&self, vendor: GpuVendor, pci: PciAddress) -> Option<usize> {
        self.lock().plugged.get(&(vendor, pci)).copied()
    }

    /// Those of a vendor that were ever seen, by number.
    pub fn of(&self, vendor: GpuVendor) -> Vec<(usize, GpuIdentity)> {
        let numbered = self.lock();
        numbered.cards.iter().cloned().enumerate().filter(|(_, card)| card.vendor == vendor).collect()
    }

    fn lock(&self) -> MutexGuard<'_, NumberedGpus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The GPUs of one vendor as a subject.
#[derive(Debug)]
pub struct VendorGpus {
    vendor: GpuVendor,
    source: Box<dyn GpuSource>,
    roll: GpuRoll,
    tree: Tree,
    uid: u32,
    level: u8,
    masks: GpuMasks,
    /// More is known of GPUs after their first answer than after a search.
    searched: bool,
    /// Those that did not answer at the tick before.
    down: Vec<PciAddress>,
    /// By number.
    slots: BTreeMap<usize, GpuSlots>,
    /// Where their power counts towards that of the node.
    power: Option<PowerBoard>,
    /// The inventory has not heard of it yet.
    is_news: bool,
}

/// Whose processes are told of, from which tree, at which level, and what their job was given.
#[derive(Clone, Debug)]
pub struct GpuView {
    pub tree: Tree,
    pub uid: u32,
    pub level: u8,
    pub masks: GpuMasks,
}

impl VendorGpus {
    pub fn new(vendor: GpuVendor, source: Box<dyn GpuSource>, view: &GpuView, roll: &GpuRoll) -> Self {
        let GpuView { tree, uid, level, masks } = view.clone();
        Self {
            vendor,
            source,
            roll: roll.clone(),
            tree,
            uid,
            level,
            masks,
            searched: false,
            down: Vec::new(),
            slots: BTreeMap::new(),
            power: None,
            is_news: false,
        }
    }

    /// The same, whose power counts towards that of the node.
    pub fn counted_on(self, board: &PowerBoard) -> Self {
        Self { power: Some(board.clone()), ..self }
    }

    fn enter(&mut self) {
        let cards = self.source.cards();
        // Nothing is to be waited for of those that sleep.
        let should_answer = cards.iter().any(|card| card.status == DeviceStatus::Ok);
        if let Some(board) = self.power.as_ref().filter(|_| should_answer) {
            board.expect_gpus();
        }
        self.roll.enter(cards);
        self.is_news = true;
    }
}

impl Subject for VendorGpus {
    fn search(&mut self) {
        self.source.search();
        self.enter();
        self.searched = true;
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        Cow::Owned(self.source.found())
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let (numbers, cards): (Vec<usize>, Vec<GpuIdentity>) = self.roll.of(self.vendor).into_iter().unzip();
        let given = self.masks.given(&self.tree, &cards);
        let entry = |((number, card), given): ((usize, &GpuIdentity), GpuGiven)| {
            let mut entry = card.entry(number);
            entry.in_job = given.in_job();
            if let GpuGiven::No { why } = given
                && entry.reason.is_empty()
            {
                entry.reason = format!("not in the job: {why}");
            }
            entry
        };
        Some(numbers.into_iter().zip(&cards).zip(given).map(entry).collect())
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Gpu)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let readings = self.source.sample(out);
        let down: Vec<PciAddress> = readings.iter().filter(|(_, reading)| !reading.up).map(|(pci, _)| *pci).collect();
        let is_new = readings.iter().any(|(pci, _)| self.roll.number(self.vendor, *pci).is_none());
        if std::mem::take(&mut self.searched) || is_new || down != self.down {
            self.enter();
        }
        self.down = down;
        for (pci, reading) in &readings {
            let Some(number) = self.roll.number(self.vendor, *pci) else { continue };
            let slots = self.slots.entry(number).or_insert_with(|| GpuSlots::new(number, self.level));
            slots.put(reading, out);
            if let Some(board) = &self.power {
                board.put_gpu(number, out.time(), reading.power_watts, reading.energy_joules);
            }
            if self.level >= slots::PROCESS_LEVEL {
                slots.put_processes(&reading.processes, &self.tree, self.uid, out);
            }
        }
    }
}
