//! `/sys/devices/system/edac/mc`: errors of the memory that its controllers corrected, or could not.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::sampler::{Found, Subject};
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::text::{fields, number};

/// Most controllers that are read; those beyond it are left out.
pub const CONTROLLERS_MAX: usize = 256;
const READ_INTERVAL: Duration = Duration::from_secs(5);
const METRICS: [(&str, &str); 2] =
    [("ce_count", "node_edac_correctable_errors_total"), ("ue_count", "node_edac_uncorrectable_errors_total")];

#[derive(Debug)]
pub struct MemoryErrors {
    tree: Tree,
    each: bool,
    controllers: Vec<MemoryController>,
    sums: [Slot; 2],
}

#[derive(Debug)]
struct MemoryController {
    directory: PathBuf,
    counters: [(Source, Slot); 2],
}

impl MemoryErrors {
    pub fn new(tree: &Tree, level: u8) -> Self {
        let sums = METRICS.map(|(_, metric)| Slot::new(metric));
        Self { tree: tree.clone(), each: level >= 3, controllers: Vec::new(), sums }
    }
}

impl Subject for MemoryErrors {
    fn search(&mut self) {
        let entries = fs::read_dir(self.tree.path("sys/devices/system/edac/mc")).into_iter().flatten().flatten();
        let mut found: Vec<(usize, PathBuf)> = entries
            .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix("mc")?.parse().ok()?, entry.path())))
            .collect();
        found.sort();
        found.truncate(CONTROLLERS_MAX);
        self.controllers.retain(|known| found.iter().any(|(_, path)| *path == known.directory));
        for (number, directory) in found {
            if self.controllers.iter().all(|known| known.directory != directory) {
                let counters = METRICS.map(|(file, metric)| {
                    let slot = Slot::tagged(metric, &[("controller", &number.to_string())]);
                    (Source::new(directory.join(file)), slot)
                });
                self.controllers.push(MemoryController { directory, counters });
            }
        }
    }

    fn found(&self) -> Vec<Found> {
        vec![if self.controllers.is_empty() { Found::Absent } else { Found::Present }]
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut sums = [None::<u64>; 2];
        for MemoryController { counters, .. } in &mut self.controllers {
            for ((source, slot), sum) in counters.iter_mut().zip(&mut sums) {
                let Some(count) = source.read().and_then(|text| number(fields(text).next()?)) else { continue };
                *sum = Some(sum.unwrap_or(0).saturating_add(count));
                if self.each {
                    out.int(slot, count);
                }
            }
        }
        for (slot, sum) in self.sums.iter_mut().zip(sums) {
            if let Some(sum) = sum.filter(|_| !self.each) {
                out.int(slot, sum);
            }
        }
    }
}
