//! `/sys/class/powercap/intel-rapl:*`: energy of packages, their cores and their memory, which Intel's and AMD's CPUs
//! count in microjoules. The counters go around after some minutes of full load, so they are also read between ticks
//! where those are further apart.
//!
//! The zones of `intel-rapl-mmio` are the same packages once more. Since Linux 5.10 only root may read them.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;

use super::meters::{try_word, word};
use super::{PowerBoard, joules};
use crate::collect::inventory::DeviceKind;
use crate::collect::series::{Out, Slot};
use crate::collect::source::{Source, Tree};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::number;
use crate::collect::unwrapped::Unwrapped;

/// Most zones that are read; those beyond it are left out.
pub const ZONES_MAX: usize = 128;
const READ_INTERVAL: Duration = Duration::from_secs(1);
const REMEDY: &str = "an administrator can let users read it (chmod a+r energy_uj by a rule of udev), or give telem the \
                      capability CAP_DAC_READ_SEARCH";

/// What a zone covers. Cores and the uncore are parts of the package, memory lies beside it, and the platform is above
/// all: each has a name of its own, and nothing is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RaplDomain {
    Package,
    Dram,
    Core,
    Uncore,
    Psys,
}

impl RaplDomain {
    const ALL: [RaplDomain; 5] = [Self::Package, Self::Dram, Self::Core, Self::Uncore, Self::Psys];

    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "dram" => Self::Dram,
            "core" => Self::Core,
            "uncore" => Self::Uncore,
            "psys" => Self::Psys,
            name if name.starts_with("package-") => Self::Package,
            _ => return None,
        })
    }

    fn metric(self) -> &'static str {
        match self {
            Self::Package => "node_rapl_package_joules_total",
            Self::Dram => "node_rapl_dram_joules_total",
            Self::Core => "node_rapl_core_joules_total",
            Self::Uncore => "node_rapl_uncore_joules_total",
            Self::Psys => "node_rapl_psys_joules_total",
        }
    }
}

#[derive(Debug)]
pub struct Rapl {
    tree: Tree,
    board: PowerBoard,
    clock: Arc<dyn Clock>,
    each: bool,
    zones: Vec<RaplZone>,
    /// Zones that may not be read, with the reason.
    refused: Vec<(PathBuf, RaplDomain, String)>,
    sums: [Slot; RaplDomain::ALL.len()],
}

#[derive(Debug)]
struct RaplZone {
    directory: PathBuf,
    domain: RaplDomain,
    energy: Source,
    counter: Unwrapped,
    slot: Slot,
}

impl Rapl {
    pub fn new(tree: &Tree, level: u8, board: &PowerBoard, clock: Arc<dyn Clock>) -> Self {
        let sums = RaplDomain::ALL.map(|domain| Slot::new(domain.metric()));
        let (tree, board) = (tree.clone(), board.clone());
        Self { tree, board, clock, each: level >= 3, zones: Vec::new(), refused: Vec::new(), sums }
    }

    fn zone(directory: PathBuf, domain: RaplDomain, index: &str) -> RaplZone {
        let text = word(&directory.join("max_energy_range_uj")).unwrap_or_default();
        let range = number(text.as_bytes());
        RaplZone {
            domain,
            energy: Source::new(directory.join("energy_uj")),
            counter: Unwrapped::new(range),
            slot: Slot::tagged(domain.metric(), &[("index", index)]),
            directory,
        }
    }
}

impl RaplZone {
    /// Its counter now.
    fn read(&mut self) -> Option<u64> {
        let reading = self.energy.number();
        reading.map(|reading| self.counter.next(reading))
    }
}

impl Subject for Rapl {
    fn search(&mut self) {
        let entries = fs::read_dir(self.tree.path("sys/class/powercap")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        let mut found: Vec<(String, PathBuf)> = named.filter(|(name, _)| name.starts_with("intel-rapl:")).collect();
        found.sort();
        found.truncate(ZONES_MAX);
        self.zones.retain(|zone| found.iter().any(|(_, path)| *path == zone.directory));
        self.refused.clear();
        for (name, directory) in found {
            let Some(domain) = RaplDomain::of(&word(&directory.join("name")).unwrap_or_default()) else { continue };
            // `intel-rapl:0:1` is a part of the package 0.
            let index = name.trim_start_matches("intel-rapl:").split(':').next().unwrap_or_default().to_owned();
            let path = directory.join("energy_uj");
            match try_word(&path) {
                Ok(_) if self.zones.iter().any(|zone| zone.directory == directory) => {}
                Ok(_) => self.zones.push(Self::zone(directory, domain, &index)),
                // It may have been readable before.
                Err(error) => {
                    self.zones.retain(|zone| zone.directory != directory);
                    self.refused.push((path, domain, error.to_string()));
                }
            }
        }
        if !self.zones.is_empty() {
            self.board.expect_counters();
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        let mut found = Vec::new();
        if !self.zones.is_empty() {
            found.push(SourceState::Present);
        }
        if let Some((path, _, why)) = self.refused.first() {
            found.push(SourceState::Refused { path: path.clone(), why: why.clone(), remedy: REMEDY });
        }
        if found.is_empty() { SourceState::alone(SourceState::Absent) } else { Cow::Owned(found) }
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Energy)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn refresh(&mut self) {
        for zone in &mut self.zones {
            zone.read();
        }
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut totals: Vec<(RaplDomain, Option<u64>)> = Vec::with_capacity(self.zones.len());
        for zone in &mut self.zones {
            let total = zone.read();
            totals.push((zone.domain, total));
            if let Some(total) = total.filter(|_| self.each) {
                out.float(&mut zone.slot, joules(total));
            }
        }
        let read = self.clock.monotonic();
        // A part of the zones is no sum.
        let sum = |domain: RaplDomain| {
            let mut of_domain = totals.iter().filter(|(of, _)| *of == domain).map(|(_, total)| *total);
            let first = of_domain.next()??;
            of_domain.try_fold(first, |sum, total| Some(sum.saturating_add(total?)))
        };
        let sums = RaplDomain::ALL.map(sum);
        if !self.each {
            for (slot, sum) in self.sums.iter_mut().zip(sums) {
                if let Some(sum) = sum {
                    out.float(slot, joules(sum));
                }
            }
        }
        let is_whole = |domain: RaplDomain| {
            let is_read = totals.iter().all(|(of, total)| *of != domain || total.is_some());
            is_read && self.refused.iter().all(|(_, of, _)| *of != domain)
        };
        let [packages, memory, ..] = sums;
        if let Some(packages) = packages.filter(|_| is_whole(RaplDomain::Package) && is_whole(RaplDomain::Dram)) {
            self.board.put_rapl(out.time(), read, joules(packages.saturating_add(memory.unwrap_or(0))));
        }
    }
}
