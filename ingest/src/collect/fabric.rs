//! Fabrics: what the cards of a cluster's network moved, lost and waited for. Each counter is a question to the card.

pub(crate) mod cxi;
pub(crate) mod infiniband;

use std::path::Path;

use super::inventory::{DeviceKind, InventoryEntry};
use super::source::Source;

/// What the directory of a card's device says of it.
fn card(name: &str, device: &Path) -> InventoryEntry {
    let uevent = word(device, "uevent");
    let line = |key| uevent.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
    InventoryEntry {
        pci: line("PCI_SLOT_NAME="),
        driver: line("DRIVER="),
        // -1 where there is one node only.
        numa: word(device, "numa_node").parse().ok(),
        ..InventoryEntry::new(DeviceKind::Nic, name)
    }
}

/// The text of a small file, nothing where it cannot be read.
fn word(dir: &Path, file: &str) -> String {
    let mut source = Source::new(dir.join(file));
    source.read().map(|text| String::from_utf8_lossy(text).trim().to_owned()).unwrap_or_default()
}
