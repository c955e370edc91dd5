//! `/proc/schedstat`: how long threads that could run waited for each CPU.
//!
//! Two threads that are pinned to one CPU show here: the CPU is busy, and so is its queue.

use std::time::Duration;

use super::cpu::CPUS_MAX;
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, number};

/// A node with many CPUs has a long file, most of which is about the balance between them.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// CPUs, and nanoseconds that threads waited for them.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        let cpu = number(fields.next()?.strip_prefix(b"cpu")?)?;
        Some((usize::try_from(cpu).ok()?, number(fields.nth(7)?)?))
    })
}

#[derive(Debug)]
pub struct SchedStat {
    file: Source,
    slots: Vec<Option<Slot>>,
}

impl SchedStat {
    pub fn new(tree: &Tree) -> Self {
        Self { file: tree.file("proc/schedstat"), slots: Vec::new() }
    }
}

impl Subject for SchedStat {
    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let Some(text) = self.file.read() else { return };
        for (cpu, nanos) in parse(text).filter(|(cpu, _)| *cpu < CPUS_MAX) {
            if self.slots.len() <= cpu {
                self.slots.resize_with(cpu + 1, || None);
            }
            let made = || Slot::tagged("node_schedstat_waiting_seconds_total", &[("cpu", &cpu.to_string())]);
            // To 0.1 ms, as pressure.
            out.float(self.slots[cpu].get_or_insert_with(made), (nanos / 100_000) as f64 / 10_000.0);
        }
    }
}
