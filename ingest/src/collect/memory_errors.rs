//! `/sys/devices/system/edac/mc`: errors of the memory that its controllers corrected, or could not.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use super::unwrapped::{Unwrapped, sum_of};

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
    counters: [MemoryCounter; 2],
}

#[derive(Debug)]
struct MemoryCounter {
    source: Source,
    slot: Slot,
    /// For the sum over all controllers.
    counter: Unwrapped,
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
        // One that is gone still counts in the sum, as it did last, and may come back.
        if self.controllers.len() + found.len() > 2 * CONTROLLERS_MAX {
            self.controllers.retain(|known| found.iter().any(|(_, path)| *path == known.directory));
        }
        for (number, directory) in found {
            if self.controllers.iter().all(|known| known.directory != directory) {
                let counters = METRICS.map(|(file, metric)| {
                    let slot = Slot::tagged(metric, &[("controller", &number.to_string())]);
                    MemoryCounter { source: Source::new(directory.join(file)), slot, counter: Unwrapped::new(None) }
                });
                self.controllers.push(MemoryController { directory, counters });
            }
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.controllers.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for (which, sum) in self.sums.iter_mut().enumerate() {
            let members = self.controllers.iter_mut().map(|controller| {
                let MemoryCounter { source, slot, counter } = &mut controller.counters[which];
                let count = source.number();
                if let Some(count) = count.filter(|_| self.each) {
                    out.int(slot, count);
                }
                counter.next_or_last(count)
            });
            if let Some(count) = sum_of(members).filter(|_| !self.each) {
                out.int(sum, count);
            }
        }
    }
}
