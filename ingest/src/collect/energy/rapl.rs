//! `/sys/class/powercap/intel-rapl:*`: energy of packages, their cores and their memory, which Intel's and AMD's CPUs
//! count in microjoules. The counters go around after some minutes of full load, so they must be read every few minutes.
//!
//! The zones of `intel-rapl-mmio` are the same packages once more. Since Linux 5.10 only root may read them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{PowerBoard, joules};
use crate::collect::sampler::{Found, Subject};
use crate::collect::series::{Out, Slot};
use crate::collect::source::{Source, Tree};
use crate::collect::text::{fields, number};
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
    each: bool,
    zones: Vec<RaplZone>,
    refused: Option<(PathBuf, String)>,
    sums: [Slot; RaplDomain::ALL.len()],
}

#[derive(Debug)]
struct RaplZone {
    directory: PathBuf,
    domain: RaplDomain,
    energy: Source,
    counter: Unwrapped,
    /// The last one in microjoules: a zone that misses a tick takes nothing from the sum.
    last: Option<u64>,
    slot: Slot,
}

impl Rapl {
    pub fn new(tree: &Tree, level: u8, board: &PowerBoard) -> Self {
        let sums = RaplDomain::ALL.map(|domain| Slot::new(domain.metric()));
        let (tree, board) = (tree.clone(), board.clone());
        Self { tree, board, each: level >= 3, zones: Vec::new(), refused: None, sums }
    }

    fn zone(directory: PathBuf, domain: RaplDomain, index: &str) -> RaplZone {
        let text = fs::read(directory.join("max_energy_range_uj")).unwrap_or_default();
        let range = fields(&text).next().and_then(number);
        RaplZone {
            domain,
            energy: Source::new(directory.join("energy_uj")),
            counter: Unwrapped::new(range),
            last: None,
            slot: Slot::tagged(domain.metric(), &[("index", index)]),
            directory,
        }
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
        self.refused = None;
        for (name, directory) in found {
            if self.zones.iter().any(|zone| zone.directory == directory) {
                continue;
            }
            let text = fs::read_to_string(directory.join("name")).unwrap_or_default();
            let Some(domain) = RaplDomain::of(text.trim()) else { continue };
            // `intel-rapl:0:1` is a part of the package 0.
            let index = name.trim_start_matches("intel-rapl:").split(':').next().unwrap_or_default().to_owned();
            let path = directory.join("energy_uj");
            match fs::read(&path) {
                Ok(_) => self.zones.push(Self::zone(directory, domain, &index)),
                Err(error) => drop(self.refused.get_or_insert((path, error.to_string()))),
            }
        }
        if !self.zones.is_empty() {
            self.board.expect_devices();
        }
    }

    fn found(&self) -> Vec<Found> {
        let mut found = Vec::new();
        if !self.zones.is_empty() {
            found.push(Found::Present);
        }
        if let Some((path, why)) = &self.refused {
            found.push(Found::Refused { path: path.clone(), why: why.clone(), remedy: REMEDY });
        }
        if found.is_empty() { vec![Found::Absent] } else { found }
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for zone in &mut self.zones {
            let Some(reading) = zone.energy.read().and_then(|text| number(fields(text).next()?)) else { continue };
            let total = zone.counter.next(reading);
            zone.last = Some(total);
            if self.each {
                out.float(&mut zone.slot, joules(total));
            }
        }
        let sum = |domain: RaplDomain| {
            let of_domain = self.zones.iter().filter(|zone| zone.domain == domain).filter_map(|zone| zone.last);
            of_domain.reduce(u64::saturating_add)
        };
        let sums = RaplDomain::ALL.map(sum);
        if !self.each {
            for (slot, sum) in self.sums.iter_mut().zip(sums) {
                if let Some(sum) = sum {
                    out.float(slot, joules(sum));
                }
            }
        }
        let [packages, memory, ..] = sums;
        if let Some(packages) = packages {
            self.board.put_rapl(out.time(), joules(packages.saturating_add(memory.unwrap_or(0))));
        }
    }
}
