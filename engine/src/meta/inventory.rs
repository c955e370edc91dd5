//! What hardware a node has, and what of it cannot be read and why.
//!
//! The one idea: a device is an annotation that begins at the epoch and belongs to no series but to a name of our own,
//! [`PREFIX`]. So the WAL and the metadata files are as they were, and versions of telem that know nothing of devices
//! keep them all the same.

use std::collections::BTreeMap;

use super::{Annotation, Meta, MetaChange};
use crate::time::Timestamp;

/// What the subjects of devices begin with, where others have the id of a series.
const PREFIX: &str = "inventory:";
/// Longest text of a device, in bytes; longer ones are cut.
pub const DEVICE_TEXT_BYTES_MAX: usize = 512;

/// What kind of hardware it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    Cpu,
    Memory,
    Gpu,
    Nic,
    Disk,
    Filesystem,
    /// What tells power, energy or temperatures.
    Energy,
}

impl DeviceKind {
    pub const ALL: [DeviceKind; 7] = [
        DeviceKind::Cpu,
        DeviceKind::Memory,
        DeviceKind::Gpu,
        DeviceKind::Nic,
        DeviceKind::Disk,
        DeviceKind::Filesystem,
        DeviceKind::Energy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Memory => "memory",
            DeviceKind::Gpu => "gpu",
            DeviceKind::Nic => "nic",
            DeviceKind::Disk => "disk",
            DeviceKind::Filesystem => "filesystem",
            DeviceKind::Energy => "energy",
        }
    }
}

/// How a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceStatus {
    #[default]
    Ok,
    /// It sleeps, and is not woken.
    Asleep,
    /// It was there, and is not or does not answer any more.
    Lost,
    /// It is there, and may not or cannot be read.
    Refused,
}

impl DeviceStatus {
    pub const ALL: [DeviceStatus; 4] =
        [DeviceStatus::Ok, DeviceStatus::Asleep, DeviceStatus::Lost, DeviceStatus::Refused];

    pub fn name(self) -> &'static str {
        match self {
            DeviceStatus::Ok => "ok",
            DeviceStatus::Asleep => "asleep",
            DeviceStatus::Lost => "lost",
            DeviceStatus::Refused => "refused",
        }
    }
}

/// A device of a node. Texts that are not known are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct InventoryEntry {
    pub kind: DeviceKind,
    /// The value of the tag that its samples have; of what cannot be read its path.
    pub device: String,
    pub vendor: String,
    pub model: String,
    pub serial_or_uuid: String,
    pub pci: String,
    /// The NUMA node that it is attached to.
    pub numa: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// The power that it may draw.
    pub limit_watts: Option<f64>,
    pub driver: String,
    pub firmware: String,
    pub status: DeviceStatus,
    /// Of a GPU: whether the job that recorded it was given it. `None` where nothing says so.
    pub in_job: Option<bool>,
    /// Why it is not ok or not the job's, and what helps.
    pub reason: String,
}

impl InventoryEntry {
    /// One that is ok, and of which nothing else is known.
    pub fn new(kind: DeviceKind, device: impl Into<String>) -> Self {
        Self {
            kind,
            device: device.into(),
            vendor: String::new(),
            model: String::new(),
            serial_or_uuid: String::new(),
            pci: String::new(),
            numa: None,
            memory_bytes: None,
            limit_watts: None,
            driver: String::new(),
            firmware: String::new(),
            status: DeviceStatus::Ok,
            in_job: None,
            reason: String::new(),
        }
    }

    /// A source that is there and cannot be read: why, and what somebody can do about it.
    pub fn refused(kind: DeviceKind, source: impl Into<String>, why: &str, remedy: &str) -> Self {
        let reason = [why, remedy].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        Self { status: DeviceStatus::Refused, reason, ..Self::new(kind, source) }
    }

    /// With texts that are not too long and hold no control characters: devices choose them.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let Self { device, vendor, model, serial_or_uuid, pci, driver, firmware, reason, .. } = &mut self;
        for text in [device, vendor, model, serial_or_uuid, pci, driver, firmware, reason] {
            if text.chars().any(char::is_control) {
                *text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            }
            text.truncate(text.floor_char_boundary(DEVICE_TEXT_BYTES_MAX));
        }
        self
    }

    /// What stores it as a device of `node`, in the place of what was known of the same one.
    pub fn change(&self, node: &str) -> MetaChange {
        let entry = self.clone().bounded();
        let number = |number: Option<String>| number.unwrap_or_default();
        let fields = [
            ("node", node.to_owned()),
            ("kind", entry.kind.name().to_owned()),
            ("numa", number(entry.numa.map(|numa| numa.to_string()))),
            ("memory_bytes", number(entry.memory_bytes.map(|bytes| bytes.to_string()))),
            ("limit_watts", number(entry.limit_watts.filter(|watts| watts.is_finite()).map(|watts| watts.to_string()))),
            ("status", entry.status.name().to_owned()),
            ("in_job", number(entry.in_job.map(|in_job| in_job.to_string()))),
            ("device", entry.device),
            ("vendor", entry.vendor),
            ("model", entry.model),
            ("serial_or_uuid", entry.serial_or_uuid),
            ("pci", entry.pci),
            ("driver", entry.driver),
            ("firmware", entry.firmware),
            ("reason", entry.reason),
        ];
        let subject = format!("{PREFIX}{node}:{}:{}", fields[1].1, fields[7].1);
        let known = fields.into_iter().filter(|(_, value)| !value.is_empty());
        MetaChange::Annotate(Annotation {
            tsuid: Some(subject),
            start: Timestamp::from_micros(0),
            custom: known.map(|(key, value)| (key.to_owned(), value)).collect(),
            ..Annotation::default()
        })
    }

    /// The node and the device that an annotation is, if it is one.
    fn of(annotation: &Annotation) -> Option<(&str, Self)> {
        if !is_device(annotation) {
            return None;
        }
        let text = |key: &str| annotation.custom.get(key).map_or("", |value| &**value);
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.name() == text("kind"))?;
        let status = DeviceStatus::ALL.into_iter().find(|status| status.name() == text("status"))?;
        let entry = Self {
            vendor: text("vendor").to_owned(),
            model: text("model").to_owned(),
            serial_or_uuid: text("serial_or_uuid").to_owned(),
            pci: text("pci").to_owned(),
            numa: text("numa").parse().ok(),
            memory_bytes: text("memory_bytes").parse().ok(),
            limit_watts: text("limit_watts").parse().ok(),
            driver: text("driver").to_owned(),
            firmware: text("firmware").to_owned(),
            status,
            in_job: text("in_job").parse().ok(),
            reason: text("reason").to_owned(),
            ..Self::new(kind, text("device"))
        };
        Some((text("node"), entry))
    }
}

/// Whether an annotation is a device, and so nothing that graphs show.
pub(super) fn is_device(annotation: &Annotation) -> bool {
    annotation.tsuid.as_ref().is_some_and(|subject| subject.starts_with(PREFIX))
}

impl Meta {
    /// The devices of every node, by node, kind and device; numbers in their order.
    pub fn inventory(&self) -> Vec<(String, InventoryEntry)> {
        let devices = self.annotations.iter().filter_map(InventoryEntry::of);
        let order = |(node, entry): &(&str, InventoryEntry)| {
            let number = entry.device.parse::<u64>().unwrap_or(u64::MAX);
            ((*node).to_owned(), entry.kind, number, entry.device.clone())
        };
        let sorted: BTreeMap<_, _> = devices.map(|device| (order(&device), device)).collect();
        sorted.into_values().map(|(node, entry)| (node.to_owned(), entry)).collect()
    }
}
