//! The series of a process that has series of its own.

use std::time::Duration;

use telem_engine::Timestamp;

use crate::collect::series::Slot;

/// The metrics of a process.
pub const METRICS: [&str; 3] =
    ["job_process_cpu_seconds_total", "job_process_resident_memory_bytes", "job_process_threads"];

/// The series of one process under one name.
#[derive(Debug, Default)]
pub struct OwnSeries {
    pub slots: Option<[Slot; METRICS.len()]>,
    /// Ticks of the process that are counted here.
    pub ticks: u64,
    pub last: Option<Timestamp>,
}

impl OwnSeries {
    /// It goes on where `past` ends.
    pub fn follow(&mut self, past: &OwnSeries) {
        self.last = past.last;
    }

    pub fn is_alone(&self) -> bool {
        self.slots.is_some()
    }

    /// From `met` to the last tick.
    pub fn lived(&self, met: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| apart(met, last))
    }
}

pub fn apart(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(to.micros().saturating_sub(from.micros())).unwrap_or(0))
}
