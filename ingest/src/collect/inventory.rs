//! The inventory: what hardware this node has, and what of it cannot be read and why.
//!
//! The one idea: subjects tell what they know of their devices whenever that may have changed
//! ([`Subject::inventory`]), and this file compares it with what was told before. Only differences are stored, in the
//! metadata of the database. A device that is not told any more was not removed: it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use telem_engine::Timestamp;
pub use telem_engine::{DeviceKind, DeviceStatus, InventoryEntry};

use super::series::Out;
use super::source::Tree;
use super::subject::{SEARCH_INTERVAL, SourceState, Subject};
use super::text::lines;

/// Most devices of a node that the inventory has; those beyond it are left out.
pub const INVENTORY_MAX: usize = 1_024;

/// Which device of a node it is.
type DeviceName = (DeviceKind, String);

/// What is known of the devices of this node, and what of that is not stored yet.
#[derive(Debug, Default)]
pub struct InventoryBook {
    known: BTreeMap<DeviceName, InventoryEntry>,
    /// What each subject told last: its devices, then its sources that cannot be read.
    told: BTreeMap<(&'static str, Telling), BTreeSet<DeviceName>>,
    unstored: BTreeSet<DeviceName>,
    /// Of an earlier run, and not told in this one.
    unclaimed: BTreeSet<DeviceName>,
    first: Option<Timestamp>,
}

/// How a subject told of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    Device,
    Refusal,
}

impl InventoryBook {
    /// With what the database knows of this node from an earlier run.
    pub fn new(stored: Vec<InventoryEntry>) -> Self {
        let known: BTreeMap<DeviceName, InventoryEntry> =
            stored.into_iter().map(|entry| ((entry.kind, entry.device.clone()), entry)).collect();
        Self { unclaimed: known.keys().cloned().collect(), known, ..Self::default() }
    }

    /// Takes what a subject knows of all its devices.
    pub fn tell(&mut self, subject: &'static str, devices: Vec<InventoryEntry>) {
        self.take(subject, Telling::Device, devices);
    }

    /// Takes what a subject found of its sources.
    pub fn tell_found(&mut self, subject: &'static str, kind: DeviceKind, found: &[SourceState], root: &Path) {
        let refused = found.iter().filter_map(|found| match found {
            SourceState::Refused { path, why, remedy } => {
                // As it is called on the machine that a recording is of.
                let path = path.strip_prefix(root).map_or_else(|_| path.clone(), |path| Path::new("/").join(path));
                Some(InventoryEntry::refused(kind, path.display().to_string(), why, remedy))
            }
            SourceState::Absent | SourceState::Present => None,
        });
        let refused = refused.collect();
        self.take(subject, Telling::Refusal, refused);
    }

    fn take(&mut self, subject: &'static str, telling: Telling, devices: Vec<InventoryEntry>) {
        let before = self.told.remove(&(subject, telling)).unwrap_or_default();
        let mut now = BTreeSet::new();
        for entry in devices.into_iter().map(InventoryEntry::bounded) {
            let name = (entry.kind, entry.device.clone());
            self.unclaimed.remove(&name);
            if self.put(name.clone(), entry) {
                now.insert(name);
            }
        }
        for gone in before.difference(&now) {
            self.lose(gone, telling);
        }
        self.told.insert((subject, telling), now);
    }

    /// Whether there is room for it.
    fn put(&mut self, name: DeviceName, entry: InventoryEntry) -> bool {
        match self.known.get(&name) {
            Some(known) if *known == entry => return true,
            None if self.known.len() >= INVENTORY_MAX => return false,
            Some(_) | None => {}
        }
        self.unstored.insert(name.clone());
        self.known.insert(name, entry);
        true
    }

    fn lose(&mut self, name: &DeviceName, telling: Telling) {
        let Some(known) = self.known.get(name) else { return };
        let (status, reason) = match telling {
            Telling::Device => (DeviceStatus::Lost, "it is not there any more"),
            // What is refused no longer is read now, or its device is told of as lost.
            Telling::Refusal => (DeviceStatus::Ok, ""),
        };
        let gone = InventoryEntry { status, reason: reason.to_owned(), ..known.clone() };
        self.put(name.clone(), gone);
    }

    /// Once every subject had its turn to tell of devices that an earlier run knew, those that none did are lost.
    pub fn settle(&mut self, time: Timestamp) {
        let first = *self.first.get_or_insert(time);
        // The second search, by then also of what another process tells.
        let settled = i64::try_from(SEARCH_INTERVAL.as_micros()).unwrap_or(i64::MAX).saturating_mul(2);
        if self.unclaimed.is_empty() || time.micros().saturating_sub(first.micros()) < settled {
            return;
        }
        for name in std::mem::take(&mut self.unclaimed) {
            let is_refusal = self.known.get(&name).is_some_and(|known| known.status == DeviceStatus::Refused);
            self.lose(&name, if is_refusal { Telling::Refusal } else { Telling::Device });
        }
    }

    /// What is to be stored, each device once; it comes again if [`InventoryBook::keep`] says so.
    pub fn take_unstored(&mut self) -> Vec<InventoryEntry> {
        let unstored = std::mem::take(&mut self.unstored);
        unstored.iter().filter_map(|name| self.known.get(name)).cloned().collect()
    }

    /// What could not be stored is stored later.
    pub fn keep(&mut self, entry: &InventoryEntry) {
        self.unstored.insert((entry.kind, entry.device.clone()));
    }
}

/// The processors and the memory of the node. They are looked at once: they do not change while telem runs.
#[derive(Debug)]
pub struct NodeHardware {
    tree: Tree,
    found: Option<Vec<InventoryEntry>>,
    searched: bool,
}

impl NodeHardware {
    pub fn new(tree: &Tree) -> Self {
        Self { tree: tree.clone(), found: None, searched: false }
    }
}

impl Subject for NodeHardware {
    fn sample(&mut self, _: &mut Out<'_>) {}

    fn search(&mut self) {
        if std::mem::replace(&mut self.searched, true) {
            return;
        }
        let read = |path: &str| self.tree.file(path).read().map(<[u8]>::to_vec).unwrap_or_default();
        let mut devices = processors(&read("proc/cpuinfo"));
        devices.extend(plugged(&self.tree));
        self.found = Some(devices);
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.found.take()
    }
}

/// `KEY : VALUE`, as `/proc/cpuinfo` has it.
fn pair(line: &[u8]) -> Option<(&str, &str)> {
    let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// The sockets that `/proc/cpuinfo` tells of. Where it numbers none, as on Arm, there is one.
pub(crate) fn processors(cpuinfo: &[u8]) -> Vec<InventoryEntry> {
    let mut sockets: BTreeMap<u32, InventoryEntry> = BTreeMap::new();
    let (mut vendor, mut model, mut microcode, mut socket) = (String::new(), String::new(), String::new(), None);
    let mut is_in_one = false;
    let end = [b"".as_slice()];
    for line in lines(cpuinfo).chain(end) {
        match pair(line) {
            Some(("processor", _)) => is_in_one = true,
            Some(("vendor_id" | "CPU implementer", value)) => vendor = value.to_owned(),
            Some(("model name" | "CPU part", value)) => model = value.to_owned(),
            Some(("microcode", value)) => microcode = value.to_owned(),
            Some(("physical id", value)) => socket = value.parse().ok(),
            _ if line.is_empty() && is_in_one => {
                is_in_one = false;
                let number = socket.take().unwrap_or(0);
                if sockets.len() < INVENTORY_MAX {
                    sockets.entry(number).or_insert_with(|| InventoryEntry {
                        vendor: std::mem::take(&mut vendor),
                        model: std::mem::take(&mut model),
                        firmware: std::mem::take(&mut microcode),
                        ..InventoryEntry::new(DeviceKind::Cpu, number.to_string())
                    });
                }
            }
            _ => {}
        }
    }
    sockets.into_values().collect()
}

/// Network interfaces and disks that have a device: not those that the kernel makes up.
fn plugged(tree: &Tree) -> Vec<InventoryEntry> {
    let classes = [(DeviceKind::Nic, "sys/class/net"), (DeviceKind::Disk, "sys/block")];
    let mut found = Vec::new();
    for (kind, class) in classes {
        let Ok(entries) = fs::read_dir(tree.path(class)) else { continue };
        let names = entries.take(INVENTORY_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        for name in names {
            let dir = format!("{class}/{name}");
            if tree.path(format!("{dir}/device")).is_dir() {
                found.push(device(tree, kind, &name, &dir));
            }
        }
    }
    found
}

fn device(tree: &Tree, kind: DeviceKind, name: &str, dir: &str) -> InventoryEntry {
    // Never a file that asks the device: these the kernel has in memory.
    let text = |file: &str| {
        let read =
            tree.file(format!("{dir}/{file}")).read().map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        read.unwrap_or_default()
    };
    let link = |file: &str| {
        let target = fs::read_link(tree.path(format!("{dir}/{file}"))).ok();
        target.and_then(|target| Some(target.file_name()?.to_str()?.to_owned())).unwrap_or_default()
    };
    let pci = link("device");
    InventoryEntry {
        model: text("device/model"),
        pci: if pci.contains(':') && pci.contains('.') { pci } else { String::new() },
        // -1 where there is only one.
        numa: text("device/numa_node").parse().ok(),
        driver: link("device/driver"),
        ..InventoryEntry::new(kind, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: &str) -> InventoryEntry {
        InventoryEntry { model: "H200".to_owned(), ..InventoryEntry::new(DeviceKind::Gpu, number) }
    }

    fn statuses(entries: &[InventoryEntry]) -> Vec<(&str, DeviceStatus)> {
        entries.iter().map(|entry| (&*entry.device, entry.status)).collect()
    }

    #[test]
    fn what_is_told_twice_is_stored_once() {
        let mut book = InventoryBook::default();
        book.tell("GPUs", vec![gpu("0"), gpu("1")]);
        assert_eq!(book.take_unstored(), [gpu("0"), gpu("1")]);
        book.tell("GPUs", vec![gpu("0"), gpu("1")]);
        assert_eq!(book.take_unstored(), []);
    }

    #[test]
    fn a_device_that_is_not_told_any_more_is_lost_and_may_come_back() {
        let mut book = InventoryBook::default();
        book.tell("GPUs", vec![gpu("0"), gpu("1")]);
        book.take_unstored();
        book.tell("GPUs", vec![gpu("0")]);
        let lost = book.take_unstored();
        assert_eq!(statuses(&lost), [("1", DeviceStatus::Lost)]);
        assert_eq!((&*lost[0].model, &*lost[0].reason), ("H200", "it is not there any more"));
        book.tell("GPUs", vec![gpu("0"), gpu("1")]);
        assert_eq!(book.take_unstored(), [gpu("1")]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_until_it_can() {
        let mut book = InventoryBook::default();
        let refused = SourceState::Refused {
            path: "/tree/sys/energy_uj".into(),
            why: "Permission denied".to_owned(),
            remedy: "an administrator can open it",
        };
        book.tell_found("RAPL", DeviceKind::Energy, &[refused], Path::new("/tree"));
        let told = book.take_unstored();
        assert_eq!(statuses(&told), [("/sys/energy_uj", DeviceStatus::Refused)]);
        assert_eq!(told[0].reason, "Permission denied; an administrator can open it");
        book.tell_found("RAPL", DeviceKind::Energy, &[SourceState::Present], Path::new("/tree"));
        let told = book.take_unstored();
        assert_eq!((statuses(&told), &*told[0].reason), (vec![("/sys/energy_uj", DeviceStatus::Ok)], ""));
    }

    #[test]
    fn a_device_of_an_earlier_run_is_lost_once_all_had_time_to_tell_of_it() {
        let mut book = InventoryBook::new(vec![gpu("0"), gpu("1")]);
        book.settle(Timestamp::from_seconds(1_000));
        book.tell("GPUs", vec![gpu("0")]);
        book.settle(Timestamp::from_seconds(1_119));
        assert_eq!(book.take_unstored(), []);
        book.settle(Timestamp::from_seconds(1_120));
        assert_eq!(statuses(&book.take_unstored()), [("1", DeviceStatus::Lost)]);
    }

    #[test]
    fn what_could_not_be_stored_is_stored_later() {
        let mut book = InventoryBook::default();
        book.tell("GPUs", vec![gpu("0")]);
        for entry in book.take_unstored() {
            book.keep(&entry);
        }
        assert_eq!(book.take_unstored(), [gpu("0")]);
    }

    #[test]
    fn there_are_as_many_devices_as_there_is_room_for() {
        let mut book = InventoryBook::default();
        book.tell("GPUs", (0..=INVENTORY_MAX).map(|number| gpu(&number.to_string())).collect());
        assert_eq!(book.take_unstored().len(), INVENTORY_MAX);
    }

    #[test]
    fn sockets_are_told_once_each() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nmicrocode\t: 0x2b\nphysical id\t: 0\n\n\
                       processor\t: 1\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nphysical id\t: 1\n\n\
                       processor\t: 2\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nphysical id\t: 0\n";
        let found = processors(cpuinfo.as_bytes());
        let texts: Vec<_> = found.iter().map(|cpu| (&*cpu.device, &*cpu.vendor, &*cpu.model)).collect();
        assert_eq!(texts, [("0", "GenuineIntel", "Xeon"), ("1", "GenuineIntel", "Xeon")]);
        assert_eq!(found[0].firmware, "0x2b");
        assert_eq!(processors(b"processor: 0\nCPU implementer: 0x41\nCPU part: 0xd4f\n\n").len(), 1);
        assert_eq!(processors(b""), []);
    }
}
