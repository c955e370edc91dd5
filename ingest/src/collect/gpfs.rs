//! GPFS and BeeGFS: file systems that tell their statistics to root only, by commands. No series, but the reason why there
//! are none.

use super::inventory::{DeviceKind, InventoryEntry};
use super::mounts;
use super::series::Out;
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use std::borrow::Cow;

const REMEDY: &str = "the exporter of the site can be scraped; --level 4 tells what your processes read and wrote by \
                      system calls (process_io_read_chars_total)";

/// Kinds of mounts, and why they are silent.
const KINDS: [(&str, &str); 2] = [
    ("gpfs", "GPFS tells its statistics to root only (mmpmon)"),
    ("beegfs", "BeeGFS tells its statistics to root only (beegfs-ctl)"),
];

#[derive(Debug)]
pub struct SilentFileSystems {
    mounts: Source,
    /// As of the last search, until they are told.
    told: Option<Vec<InventoryEntry>>,
}

impl SilentFileSystems {
    pub fn new(tree: &Tree) -> Self {
        Self { mounts: tree.file_of_view("mounts"), told: None }
    }
}

impl Subject for SilentFileSystems {
    fn search(&mut self) {
        let mounts = self.mounts.read().map(mounts::parse).unwrap_or_default();
        let refused = |mount: mounts::Mount| {
            let (_, why) = KINDS.iter().find(|(kind, _)| *kind == mount.kind)?;
            let entry = InventoryEntry::refused(DeviceKind::Filesystem, mount.device, why, REMEDY);
            Some(InventoryEntry { driver: mount.kind, ..entry })
        };
        self.told = Some(mounts.into_iter().filter_map(refused).collect());
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.told.take()
    }

    /// Nothing that could be sampled.
    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(SourceState::Absent)
    }

    fn sample(&mut self, _: &mut Out<'_>) {}
}
