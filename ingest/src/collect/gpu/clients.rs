//! Memory that processes of the user hold on GPUs of Intel and AMD.
//!
//! The one idea: only processes know what is used of a card of Intel, by what the kernel says of their open files
//! (`/proc/PID/fdinfo`). So it is found by a walk over processes, beside the ticks of cards. A handle of a card is a
//! client; processes share it, so each counts once. Memory of AMD's compute processes is told by
//! `/sys/class/kfd/kfd/proc` instead. The keys of `fdinfo` are those of the kernel's
//! `Documentation/gpu/drm-usage-stats.rst`.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::drm::{DrmCard, cards_of, number_of};
use super::slots::{MEMORY_USED, PROCESS_LEVEL, ProcessSlots, memory_percent};
use super::{GpuRoll, GpuVendor, GpuView, PciAddress, intel};
use crate::collect::processes::{WALK_INTERVAL, read, walk};
use crate::collect::series::{Out, Slot};
use crate::collect::sleep::{Wakefulness, wakefulness};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::{fields, lines, number};

/// Most processes that are looked through, most open files of each, and most clients of all of them.
pub const CLIENT_PROCESSES_MAX: usize = 10_000;
pub const CLIENT_FILES_MAX: usize = 4_096;
pub const CLIENTS_MAX: usize = 65_536;
/// The level from which on Dragon's names are stored.
const DRAGON_LEVEL: u8 = 3;
const DRAGON_MEMORY: &str = "DeviceMemoryUtilization";

/// What `fdinfo` says of one handle of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrmClient {
    pub id: u64,
    pub pci: Option<PciAddress>,
    /// In the card's own memory.
    pub bytes: u64,
}

/// `fdinfo` of an open file; `None` where it is no handle of a card.
pub fn parse_fdinfo(text: &[u8]) -> Option<DrmClient> {
    let (mut id, mut pci) = (None, None);
    // What is there at all also holds what was moved out of the card.
    let (mut resident, mut total) = (None, None);
    for line in lines(text) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (key, mut values) = (&line[..colon], fields(&line[colon + 1..]));
        let Some(value) = values.next() else { continue };
        if key == b"drm-client-id" {
            id = number(value);
        } else if key == b"drm-pdev" {
            pci = std::str::from_utf8(value).ok().and_then(PciAddress::parse);
        } else if let Some(region) = key.strip_prefix(b"drm-resident-") {
            add(&mut resident, region, value, values.next());
        } else if let Some(region) = key.strip_prefix(b"drm-total-") {
            add(&mut total, region, value, values.next());
        }
    }
    Some(DrmClient { id: id?, pci, bytes: resident.or(total).unwrap_or(0) })
}

fn add(sum: &mut Option<u64>, region: &[u8], value: &[u8], unit: Option<&[u8]>) {
    let is_own_memory = region.starts_with(b"vram") || region.starts_with(b"local");
    let unit = match unit {
        Some(b"KiB") => 1 << 10,
        Some(b"MiB") => 1 << 20,
        None => 1,
        Some(_) => return,
    };
    if let Some(bytes) = number(value).filter(|_| is_own_memory) {
        *sum = Some(sum.unwrap_or(0).saturating_add(bytes.saturating_mul(unit)));
    }
}

/// Where a node of the topology of kfd is plugged in, by its `properties`.
pub fn parse_place(properties: &[u8]) -> Option<PciAddress> {
    let of = |name: &[u8]| {
        lines(properties).find_map(|line| {
            let mut fields = fields(line);
            (fields.next() == Some(name)).then(|| u32::try_from(number(fields.next()?)?).ok())?
        })
    };
    let [function, bus, ..] = of(b"location_id")?.to_le_bytes();
    Some(PciAddress { domain: of(b"domain").unwrap_or(0), bus, device: function >> 3, function: function & 7 })
}

/// The processes of the user, and what they hold on GPUs.
#[derive(Debug)]
pub struct GpuClients {
    view: GpuView,
    roll: GpuRoll,
    intel: Vec<DrmCard>,
    /// By the number that kfd gave them.
    amd: BTreeMap<u64, PciAddress>,
    /// Of cards of Intel, by their number.
    used: BTreeMap<usize, [Slot; 2]>,
    processes: BTreeMap<usize, ProcessSlots>,
    directory: Vec<u8>,
}

/// Process and bytes, by the place of a card.
type HeldMemory = BTreeMap<PciAddress, BTreeMap<u32, u64>>;

impl GpuClients {
    pub fn new(view: &GpuView, roll: &GpuRoll) -> Self {
        Self {
            view: view.clone(),
            roll: roll.clone(),
            intel: Vec::new(),
            amd: BTreeMap::new(),
            used: BTreeMap::new(),
            processes: BTreeMap::new(),
            directory: Vec::new(),
        }
    }

    fn sample_intel(&mut self, out: &mut Out<'_>) {
        let awake = |card: &&DrmCard| wakefulness(&card.device) == Wakefulness::Awake;
        let awake: Vec<&DrmCard> = self.intel.iter().filter(awake).collect();
        let nodes = nodes_of(&awake);
        if nodes.is_empty() {
            return;
        }
        let places: Vec<PciAddress> = awake.iter().map(|card| card.pci).collect();
        let mut held = self.held(&nodes);
        let known: BTreeMap<usize, _> = self.roll.of(GpuVendor::Intel).into_iter().collect();
        for pci in places {
            let Some(number) = self.roll.number(GpuVendor::Intel, pci) else { continue };
            let held = held.remove(&pci).unwrap_or_default();
            let bytes = held.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            let gpu = number.to_string();
            let slots = || [MEMORY_USED, DRAGON_MEMORY].map(|metric| Slot::tagged(metric, &[("gpu", &gpu)]));
            let [used, percent] = self.used.entry(number).or_insert_with(slots);
            out.int(used, bytes);
            let share = known.get(&number).and_then(|card| memory_percent(bytes, card.memory_bytes?));
            if let Some(share) = share.filter(|_| self.view.level >= DRAGON_LEVEL) {
                out.float(percent, share);
            }
            self.put_processes(number, &held, out);
        }
    }

    /// Of all clients of these nodes that our processes have.
    fn held(&mut self, nodes: &BTreeMap<PathBuf, PciAddress>) -> HeldMemory {
        let proc = self.view.tree.path("proc");
        let (mut ours, mut text) = (Vec::new(), Vec::new());
        if let Err(error) = walk(&proc, self.view.uid, &mut self.directory, &mut ours) {
            tracing::debug!(%error, "processes cannot be walked over");
        }
        let mut clients: BTreeMap<(PciAddress, u64), (u32, u64)> = BTreeMap::new();
        ours.sort_unstable();
        for pid in ours.into_iter().take(CLIENT_PROCESSES_MAX) {
            let dir = proc.join(pid.to_string());
            let files = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
            for file in files.take(CLIENT_FILES_MAX) {
                let Some(node) = fs::read_link(file.path()).ok().and_then(|target| nodes.get(&target)) else {
                    continue;
                };
                let info = dir.join("fdinfo").join(file.file_name());
                let Some(client) = read(&info, &mut text).and_then(parse_fdinfo) else { continue };
                let key = (client.pci.unwrap_or(*node), client.id);
                if clients.len() >= CLIENTS_MAX && !clients.contains_key(&key) {
                    continue;
                }
                let (_, bytes) = clients.entry(key).or_insert((pid, 0));
                *bytes = client.bytes.max(*bytes);
            }
        }
        let mut held = HeldMemory::new();
        for ((pci, _), (pid, bytes)) in clients {
            let of_process = held.entry(pci).or_default().entry(pid).or_default();
            *of_process = of_process.saturating_add(bytes);
        }
        held
    }

    fn sample_amd(&mut self, out: &mut Out<'_>) {
        if self.view.level < PROCESS_LEVEL || self.amd.is_empty() {
            return;
        }
        let mut held = HeldMemory::new();
        let processes = fs::read_dir(self.view.tree.path("sys/class/kfd/kfd/proc")).into_iter().flatten().flatten();
        for process in processes.take(CLIENT_PROCESSES_MAX) {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            for (gpu, pci) in &self.amd {
                // Partitions of a card have numbers of their own.
                if let Some(bytes) = number_of(&process.path().join(format!("vram_{gpu}"))) {
                    let of_process: &mut u64 = held.entry(*pci).or_default().entry(pid).or_default();
                    *of_process = of_process.saturating_add(bytes);
                }
            }
        }
        for (pci, held) in held {
            if let Some(number) = self.roll.number(GpuVendor::Amd, pci) {
                self.put_processes(number, &held, out);
            }
        }
    }

    fn put_processes(&mut self, number: usize, held: &BTreeMap<u32, u64>, out: &mut Out<'_>) {
        if self.view.level >= PROCESS_LEVEL {
            let held: Vec<(u32, u64)> = held.iter().map(|(pid, bytes)| (*pid, *bytes)).collect();
            let slots = self.processes.entry(number).or_default();
            slots.put(&number.to_string(), &held, &self.view.tree, self.view.uid, out);
        }
    }
}

/// The device files of cards, and whose they are. Reads names only.
fn nodes_of(cards: &[&DrmCard]) -> BTreeMap<PathBuf, PciAddress> {
    let mut nodes = BTreeMap::new();
    for card in cards {
        for node in fs::read_dir(card.device.join("drm")).into_iter().flatten().flatten() {
            nodes.insert(Path::new("/dev/dri").join(node.file_name()), card.pci);
        }
    }
    nodes
}

impl Subject for GpuClients {
    fn search(&mut self) {
        let tree = &self.view.tree;
        self.intel = cards_of(tree, GpuVendor::Intel).into_iter().filter(intel::is_read).collect();
        self.amd.clear();
        if self.view.level < PROCESS_LEVEL {
            return;
        }
        let nodes = fs::read_dir(tree.path("sys/class/kfd/kfd/topology/nodes")).into_iter().flatten().flatten();
        for node in nodes {
            // CPUs are nodes too, with the number 0.
            let gpu = number_of(&node.path().join("gpu_id")).filter(|gpu| *gpu > 0);
            let place = fs::read(node.path().join("properties")).ok().and_then(|text| parse_place(&text));
            if let (Some(gpu), Some(place)) = (gpu, place) {
                // Partitions are told apart by functions that the card does not have.
                self.amd.insert(gpu, PciAddress { function: 0, ..place });
            }
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.intel.is_empty() && self.amd.is_empty() {
            SourceState::Absent
        } else {
            SourceState::Present
        })
    }

    fn interval(&self) -> Duration {
        WALK_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        self.sample_intel(out);
        self.sample_amd(out);
    }
}
