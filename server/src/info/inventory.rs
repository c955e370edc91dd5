//! The devices of nodes: as JSON, and in lines for people, equal ones together.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use telem_engine::{DeviceStatus, InventoryEntry, Meta};

use super::{grouped, human, shown};

/// Lines on a terminal; `--json` and SQL have all.
const LINES_MAX: usize = 24;

/// A device, in the words of the columns of SQL. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    pub node: String,
    pub kind: String,
    pub device: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial_or_uuid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pci: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_watts: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_job: Option<bool>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl DeviceFacts {
    /// Those that the metadata has, by node.
    pub fn all(meta: &Meta) -> Vec<Self> {
        meta.inventory().into_iter().map(|(node, entry)| Self::of(node, entry)).collect()
    }

    fn of(node: String, entry: InventoryEntry) -> Self {
        Self {
            node,
            kind: entry.kind.name().to_owned(),
            device: entry.device,
            vendor: entry.vendor,
            model: entry.model,
            serial_or_uuid: entry.serial_or_uuid,
            pci: entry.pci,
            numa: entry.numa,
            memory_bytes: entry.memory_bytes,
            limit_watts: entry.limit_watts,
            driver: entry.driver,
            firmware: entry.firmware,
            status: entry.status.name().to_owned(),
            in_job: entry.in_job,
            reason: entry.reason,
        }
    }

    fn is_ok(&self) -> bool {
        self.status == DeviceStatus::Ok.name()
    }

    /// What equal devices have in common.
    fn text(&self) -> String {
        // Many models begin with their vendor.
        let vendor = if self.model.starts_with(&*self.vendor) { "" } else { &*self.vendor };
        let mut words: Vec<String> = [vendor, &self.model].map(shown).to_vec();
        words.retain(|word| !word.is_empty());
        let mut facts = vec![words.join(" ")];
        facts.extend(self.memory_bytes.map(|bytes| human::bytes(bytes as f64)));
        facts.extend(self.limit_watts.map(|watts| format!("{} W", human::short(watts))));
        if !self.driver.is_empty() {
            facts.push(format!("driver {}", shown(&self.driver)));
        }
        if !self.is_ok() {
            facts.push(self.status.to_uppercase());
            facts.push(shown(&self.reason));
        } else if self.in_job == Some(false) {
            facts.push("not in the job".to_owned());
        }
        facts.retain(|fact| !fact.is_empty());
        facts.join(", ")
    }
}

/// A line for equal devices, those that are not ok by name. Interfaces and disks that are ok are left out: there may be
/// many, and their samples tell of them.
pub fn lines(devices: &[DeviceFacts]) -> Vec<String> {
    // In the order of their lines: how many there are, and on which nodes.
    let mut groups: BTreeMap<(bool, usize, String), (usize, BTreeSet<&str>)> = BTreeMap::new();
    let order = ["gpu", "energy", "nic", "filesystem", "cpu", "memory", "disk"];
    for device in devices.iter().filter(|one| !(one.is_ok() && ["nic", "disk"].contains(&&*one.kind))) {
        let place = order.iter().position(|kind| *kind == device.kind).unwrap_or(order.len());
        let name = if device.is_ok() { String::new() } else { format!(" {}", shown(&device.device)) };
        let key = (device.is_ok(), place, format!("{}{name}: {}", device.kind, device.text()));
        let (count, nodes) = groups.entry(key).or_default();
        *count += 1;
        nodes.insert(&device.node);
    }
    let others = groups.len().saturating_sub(LINES_MAX);
    let mut lines: Vec<String> = groups
        .into_iter()
        .take(LINES_MAX)
        .map(|((_, _, text), (count, nodes))| {
            let text = text.trim_end_matches([':', ' ']).to_owned();
            let times = if count > 1 { format!("{} x ", grouped(count as u64)) } else { String::new() };
            let on =
                if nodes.len() > 1 { format!(" (on {} nodes)", grouped(nodes.len() as u64)) } else { String::new() };
            format!("{times}{text}{on}")
        })
        .collect();
    if others > 0 {
        lines.push(format!("and {} more: --json", grouped(others as u64)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_devices_stand_in_one_line_and_what_is_not_ok_comes_first() {
        let gpu = |node: &str, device: &str| DeviceFacts {
            node: node.to_owned(),
            kind: "gpu".to_owned(),
            device: device.to_owned(),
            vendor: "NVIDIA".to_owned(),
            model: "H200".to_owned(),
            memory_bytes: Some(150_754_820_096),
            limit_watts: Some(700.0),
            status: "ok".to_owned(),
            ..DeviceFacts::default()
        };
        let refused = DeviceFacts {
            node: "n1".to_owned(),
            kind: "energy".to_owned(),
            device: "/sys/energy_uj".to_owned(),
            status: "refused".to_owned(),
            reason: "Permission denied; an administrator can open it".to_owned(),
            ..DeviceFacts::default()
        };
        let disk = DeviceFacts { kind: "disk".to_owned(), status: "ok".to_owned(), ..DeviceFacts::default() };
        let not_given = DeviceFacts {
            in_job: Some(false),
            reason: "not in the job: CUDA_VISIBLE_DEVICES leaves it out".to_owned(),
            ..gpu("n2", "2")
        };
        let lost = DeviceFacts { status: "lost".to_owned(), reason: "it is gone".to_owned(), ..gpu("n2", "1") };
        assert_eq!(
            lines(&[gpu("n1", "0"), gpu("n1", "1"), gpu("n2", "0"), not_given, lost, disk, refused]),
            [
                "gpu 1: NVIDIA H200, 151 GB, 700 W, LOST, it is gone",
                "energy /sys/energy_uj: REFUSED, Permission denied; an administrator can open it",
                "3 x gpu: NVIDIA H200, 151 GB, 700 W (on 2 nodes)",
                "gpu: NVIDIA H200, 151 GB, 700 W, not in the job",
            ]
        );
        assert_eq!(lines(&[]), [""; 0]);
    }
}
