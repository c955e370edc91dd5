//! `/proc/pressure`: the time for which threads waited for CPUs, memory and I/O.
//!
//! The files do not exist on kernels older than 4.20, and cannot be read if pressure accounting is switched off.

use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, number};

/// Microseconds in which some thread waited, and in which all did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    pub some: Option<u64>,
    pub full: Option<u64>,
}

pub fn parse(text: &[u8]) -> WaitTimes {
    let mut waited = WaitTimes::default();
    for line in lines(text) {
        let mut fields = fields(line);
        let place = match fields.next() {
            Some(b"some") => &mut waited.some,
            Some(b"full") => &mut waited.full,
            _ => continue,
        };
        *place = fields.find_map(|field| number(field.strip_prefix(b"total=")?));
    }
    waited
}

#[derive(Debug)]
pub struct Pressure {
    resources: [Resource; 3],
}

#[derive(Debug)]
struct Resource {
    file: Source,
    waiting: Slot,
    stalled: Slot,
}

impl Pressure {
    pub fn new(tree: &Tree) -> Self {
        let resource = |file, waiting, stalled| Resource {
            file: tree.file(file),
            waiting: Slot::new(waiting),
            stalled: Slot::new(stalled),
        };
        Self {
            resources: [
                resource(
                    "proc/pressure/cpu",
                    "node_pressure_cpu_waiting_seconds_total",
                    "node_pressure_cpu_stalled_seconds_total",
                ),
                resource(
                    "proc/pressure/memory",
                    "node_pressure_memory_waiting_seconds_total",
                    "node_pressure_memory_stalled_seconds_total",
                ),
                resource(
                    "proc/pressure/io",
                    "node_pressure_io_waiting_seconds_total",
                    "node_pressure_io_stalled_seconds_total",
                ),
            ],
        }
    }
}

impl Subject for Pressure {
    fn sample(&mut self, out: &mut Out<'_>) {
        for Resource { file, waiting, stalled } in &mut self.resources {
            let Some(waited) = file.read().map(parse) else { continue };
            for (slot, micros) in [(waiting, waited.some), (stalled, waited.full)] {
                if let Some(micros) = micros {
                    // Four decimals are stored in a fifth of the bytes of six.
                    out.float(slot, (micros / 100) as f64 / 10_000.0);
                }
            }
        }
    }
}
