//! What was refused and not told yet: a client that sends nonsense a thousand times a second is told once a second.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::RefusalCode;
use super::outbox::{NO_SERIES, Outbox};

/// Refusals of one connection.
#[derive(Debug)]
pub struct Refusals {
    interval: Duration,
    max: usize,
    waiting: BTreeMap<(u32, RefusalCode), RefusedSamples>,
    /// When some were told last.
    told: Option<Instant>,
}

#[derive(Debug)]
struct RefusedSamples {
    sequence: u64,
    samples: u64,
    reason: String,
}

impl Refusals {
    pub fn new(interval: Duration, max: usize) -> Self {
        Self { interval, max, waiting: BTreeMap::new(), told: None }
    }

    /// Of several for one series and reason the last words count, and all samples.
    pub fn add(&mut self, sequence: u64, series: u32, samples: u64, code: RefusalCode, reason: String) {
        let is_full = self.waiting.len() >= self.max && !self.waiting.contains_key(&(series, code));
        let series = if is_full { NO_SERIES } else { series };
        let waiting = self.waiting.entry((series, code)).or_insert(RefusedSamples {
            sequence,
            samples: 0,
            reason: String::new(),
        });
        waiting.sequence = sequence;
        waiting.samples = waiting.samples.saturating_add(samples);
        waiting.reason = reason;
    }

    /// When they are to be told; `None` when there are none.
    pub fn due(&self) -> Option<Instant> {
        let at = self.told.map_or_else(Instant::now, |told| told + self.interval);
        (!self.waiting.is_empty()).then_some(at)
    }

    /// Tells them if it is time.
    pub fn tell(&mut self, out: &mut Outbox) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.tell_all(out);
        }
    }

    /// Tells them.
    pub fn tell_all(&mut self, out: &mut Outbox) {
        for ((series, code), RefusedSamples { sequence, samples, reason }) in std::mem::take(&mut self.waiting) {
            out.refused(sequence, series, samples, code, &reason);
            self.told = Some(Instant::now());
        }
    }
}
