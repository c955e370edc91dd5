//! Which GPUs a job was given, by the masks that its programs obey.
//!
//! The one idea: a mask names GPUs by a UUID or by their place in an order that the vendor documents, and the number
//! that telem gave is neither. Masks bind programs and not telem, which records every GPU that it can read; so they are
//! a note in the inventory. Where an order is not known, nothing is said: that of CUDA among GPUs that are not alike,
//! and those of AMD and Intel. Their programs count only what the job's control group lets them open, which is more
//! often than not a part of what `/sys` shows.

use super::{DeviceStatus, GpuIdentity, GpuVendor};

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

    /// The variable that leaves a GPU out; `None` where none does, or it cannot be told. `cards` are all of its vendor.
    pub fn leaves_out(&self, card: &GpuIdentity, cards: &[GpuIdentity]) -> Option<&'static str> {
        let (variable, mask) = match card.vendor {
            GpuVendor::Nvidia => ("CUDA_VISIBLE_DEVICES", &self.nvidia),
            GpuVendor::Amd => ("ROCR_VISIBLE_DEVICES", &self.amd),
            GpuVendor::Intel => ("ZE_AFFINITY_MASK", &self.intel),
        };
        let given = self.names(mask.as_deref()?, card, cards)?;
        (!given).then_some(variable)
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
