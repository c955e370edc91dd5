//! Which GPUs a job was given, by the masks that its programs obey.
//!
//! The one idea: a mask names GPUs by a UUID or by their place in an order that the vendor documents, and the number
//! that telem gave is neither. Masks bind programs and not telem, which records every GPU that it can read; so they are
//! a note in the inventory. Where an order is not known, nothing is said: that of CUDA among GPUs that are not alike,
//! and those of AMD and Intel. Their programs count only what the job's control group lets them open, which is more
//! often than not a part of what `/sys` shows.

use std::collections::BTreeSet;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::drm::numbered;
use super::{DeviceStatus, GpuIdentity, GpuVendor};
use crate::collect::source::Tree;

/// Whether a job was given a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuGiven {
    Yes,
    No {
        why: String,
    },
    /// It cannot be told.
    Unknown,
}

impl GpuGiven {
    pub fn in_job(&self) -> Option<bool> {
        match self {
            GpuGiven::Yes => Some(true),
            GpuGiven::No { .. } => Some(false),
            GpuGiven::Unknown => None,
        }
    }
}

/// Whether the job may open a GPU of AMD or Intel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GpuDoor {
    Open,
    /// The control group forbids it, or the container has no such device.
    Closed,
    Unknown,
}

impl GpuDoor {
    /// Asks the kernel without opening the device, so that it is not woken: `access` asks the control group too.
    fn of(tree: &Tree, card: &GpuIdentity) -> Self {
        if card.vendor == GpuVendor::Nvidia {
            // Its library was asked already.
            return if card.status == DeviceStatus::Refused { GpuDoor::Closed } else { GpuDoor::Open };
        }
        let devices = tree.path(format!("sys/bus/pci/devices/{}/drm", card.pci));
        let [render] = &*numbered(&devices, "renderD") else { return GpuDoor::Unknown };
        let Some(name) = render.file_name() else { return GpuDoor::Unknown };
        match access(tree.path("dev/dri").join(name), Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => GpuDoor::Open,
            Err(Errno::PERM | Errno::NOENT) => GpuDoor::Closed,
            // Mode bits concern the user, and not the job.
            Err(_) => GpuDoor::Unknown,
        }
    }
}

/// Whether places in a mask name as many GPUs as there are, in whatever order they stand.
fn names_all(mask: &str, count: usize) -> bool {
    let places = mask.split(',').map_while(|entry| entry.trim().split('.').next()?.parse::<usize>().ok());
    let places: BTreeSet<usize> = places.filter(|place| *place < count).collect();
    count > 0 && places.len() == count
}

/// The masks of a job, as its environment has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMasks {
    pub nvidia: Option<String>,
    pub amd: Option<String>,
    pub intel: Option<String>,
    /// `PCI_BUS_ID`, or by speed.
    pub nvidia_order: Option<String>,
}

impl GpuMasks {
    /// By what an environment says of names.
    pub fn of(environment: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            nvidia: environment("CUDA_VISIBLE_DEVICES"),
            amd: environment("ROCR_VISIBLE_DEVICES"),
            intel: environment("ZE_AFFINITY_MASK"),
            nvidia_order: environment("CUDA_DEVICE_ORDER"),
        }
    }

    /// Of each card, which are all of one vendor: whether the job was given it.
    pub fn given(&self, tree: &Tree, cards: &[GpuIdentity]) -> Vec<GpuGiven> {
        let doors: Vec<GpuDoor> = cards.iter().map(|card| GpuDoor::of(tree, card)).collect();
        // Where none is open, the way to all of them is closed to telem, and that says nothing of the job.
        let some_open = doors.contains(&GpuDoor::Open);
        let is_usable = |door: &GpuDoor| !some_open || *door == GpuDoor::Open;
        let usable: Vec<GpuIdentity> =
            cards.iter().zip(&doors).filter(|(_, door)| is_usable(door)).map(|(card, _)| card.clone()).collect();
        let of_card = |(card, door): (&GpuIdentity, &GpuDoor)| match door {
            GpuDoor::Closed if some_open => GpuGiven::No { why: "its device may not be opened".to_owned() },
            GpuDoor::Unknown if some_open => GpuGiven::Unknown,
            _ => self.by_mask(card, &usable, some_open),
        };
        cards.iter().zip(&doors).map(of_card).collect()
    }

    /// By the mask of its vendor. `usable` are those that programs can count, if that `is_known`.
    fn by_mask(&self, card: &GpuIdentity, usable: &[GpuIdentity], is_known: bool) -> GpuGiven {
        let (variable, mask) = match card.vendor {
            GpuVendor::Nvidia => ("CUDA_VISIBLE_DEVICES", &self.nvidia),
            GpuVendor::Amd => ("ROCR_VISIBLE_DEVICES", &self.amd),
            GpuVendor::Intel => ("ZE_AFFINITY_MASK", &self.intel),
        };
        // NVIDIA's library knows only those that the job may open.
        let is_known = is_known || card.vendor == GpuVendor::Nvidia;
        let Some(mask) = mask else { return if is_known { GpuGiven::Yes } else { GpuGiven::Unknown } };
        if is_known && names_all(mask, usable.len()) {
            return GpuGiven::Yes;
        }
        match self.names(mask, card, usable) {
            Some(true) => GpuGiven::Yes,
            Some(false) => GpuGiven::No { why: format!("{variable} leaves it out") },
            None => GpuGiven::Unknown,
        }
    }

    fn names(&self, mask: &str, card: &GpuIdentity, cards: &[GpuIdentity]) -> Option<bool> {
        let mut place = None;
        for entry in mask.split(',').map(str::trim) {
            // The tile of a GPU is not told apart here.
            let number = entry.split('.').next().unwrap_or(entry);
            if let Ok(number) = number.parse::<usize>() {
                if place.is_none() {
                    place = Some(self.place_of(card, cards)?);
                }
                if place == Some(number) {
                    return Some(true);
                }
            } else if entry.len() > "GPU-".len() && entry.starts_with("GPU-") {
                if is_named(card, entry) {
                    return Some(true);
                }
            } else if entry.starts_with("MIG-") {
                // It names a part of a GPU by a UUID of its own.
                return None;
            } else {
                // Nothing after an entry that means nothing is seen.
                return Some(false);
            }
        }
        Some(false)
    }

    /// Where it stands in CUDA's order, which is that of addresses where all GPUs are alike. NVIDIA's library, like
    /// CUDA, knows only those that the job may open.
    fn place_of(&self, card: &GpuIdentity, cards: &[GpuIdentity]) -> Option<usize> {
        if card.vendor != GpuVendor::Nvidia {
            return None;
        }
        let opened = || cards.iter().filter(|other| other.status != DeviceStatus::Refused);
        let are_alike = opened().all(|other| other.model == card.model);
        let by_address = self.nvidia_order.as_deref() == Some("PCI_BUS_ID");
        (are_alike || by_address).then(|| opened().filter(|other| other.pci < card.pci).count())
    }
}

/// NVIDIA takes the beginning of a UUID too; AMD has the number of sysfs in it.
fn is_named(card: &GpuIdentity, entry: &str) -> bool {
    match card.vendor {
        GpuVendor::Amd => entry.strip_prefix("GPU-").is_some_and(|id| id.eq_ignore_ascii_case(&card.uuid)),
        GpuVendor::Nvidia | GpuVendor::Intel => card.uuid.starts_with(entry),
    }
}
