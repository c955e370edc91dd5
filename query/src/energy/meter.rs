//! From the readings of a counter or of a power to joules, and from those of a utilisation to idle minutes. No input and
//! no output.
//!
//! The one idea: two readings make a span, and only spans are known. A counter tells the energy of any span, unless it
//! began anew in it; a power tells it of a span that is no longer than three intervals, as the area below the line
//! between the two. What a span has outside of the job is cut off in proportion.

use std::collections::BTreeMap;
use std::ops::Range;

/// Readings further apart than so many intervals have a gap between them.
const GAP_INTERVALS: i64 = 3;
/// No source answers with something new more often.
const INTERVAL_MIN_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60_000_000;
/// Counter and power that differ by more cannot both be right.
const DOUBT: f64 = 0.15;
/// A GPU that computes for less of a minute is idle, in percent.
const IDLE_BELOW: f64 = 1.0;
/// An idle GPU with more memory in use is held.
const HELD_ABOVE_BYTES: f64 = 1_073_741_824.0;

/// The interval of readings at these times: the median distance.
pub fn interval_us(times: &[i64]) -> i64 {
    let mut apart: Vec<i64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    apart.sort_unstable();
    apart.get(apart.len() / 2).copied().unwrap_or(0).max(INTERVAL_MIN_US)
}

/// What joules are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterReading {
    /// Joules since some time.
    Counter,
    /// Watts.
    Power,
}

/// Adds up one series of readings.
#[derive(Clone, Debug)]
pub struct EnergyMeter {
    reading: MeterReading,
    /// The job's time, in microseconds.
    range: Range<i64>,
    gap_us: i64,
    before: Option<(i64, f64)>,
    pub joules: f64,
    pub covered_us: i64,
    pub peak_watts: Option<f64>,
    /// By minute since the epoch: joules, and microseconds of it that are covered.
    minutes: BTreeMap<i64, (f64, i64)>,
}

impl EnergyMeter {
    pub fn new(reading: MeterReading, range: Range<i64>, interval_us: i64) -> Self {
        Self {
            reading,
            range,
            gap_us: interval_us.saturating_mul(GAP_INTERVALS),
            before: None,
            joules: 0.0,
            covered_us: 0,
            peak_watts: None,
            minutes: BTreeMap::new(),
        }
    }

    /// Readings come by time.
    pub fn add(&mut self, time: i64, value: f64) {
        if !value.is_finite() || value < 0.0 {
            return;
        }
        if self.reading == MeterReading::Power && self.range.contains(&time) {
            self.reach(value);
        }
        let Some((from, before)) = self.before.replace((time, value)) else { return };
        let (start, end) = (from.max(self.range.start), time.min(self.range.end));
        if start >= end {
            return;
        }
        let whole = (time - from) as f64;
        let joules = match self.reading {
            // It began anew: what it counted before that is not known.
            MeterReading::Counter if value < before => return,
            MeterReading::Counter => (value - before) * ((end - start) as f64 / whole),
            MeterReading::Power if time - from > self.gap_us => return,
            MeterReading::Power => {
                let at = |time: i64| before + (value - before) * ((time - from) as f64 / whole);
                (at(start) + at(end)) / 2.0 * ((end - start) as f64 / 1e6)
            }
        };
        let seconds = (end - start) as f64 / 1e6;
        if self.reading == MeterReading::Counter && end - start >= INTERVAL_MIN_US / 2 {
            self.reach(joules / seconds);
        }
        self.joules += joules;
        self.covered_us += end - start;
        // Of a long span nobody knows how its energy is spread.
        if end - start <= MINUTE_US {
            each_minute(start..end, |minute, covered| {
                let known = self.minutes.entry(minute).or_default();
                known.0 += joules * (covered as f64 / (end - start) as f64);
                known.1 += covered;
            });
        }
    }

    fn reach(&mut self, watts: f64) {
        self.peak_watts = Some(self.peak_watts.map_or(watts, |peak| peak.max(watts)));
    }

    /// With what another one of the same source counted beside it, such as that of another GPU.
    pub fn join(&mut self, other: &EnergyMeter) {
        self.joules += other.joules;
        self.covered_us = self.covered_us.max(other.covered_us);
        self.peak_watts = match (self.peak_watts, other.peak_watts) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        for (minute, (joules, covered)) in &other.minutes {
            let known = self.minutes.entry(*minute).or_insert((0.0, *covered));
            *known = (known.0 + joules, known.1.min(*covered));
        }
    }

    /// What speaks against a counter: the power that was told in the same whole minutes.
    pub fn doubt(&self, power: &EnergyMeter) -> Option<String> {
        let mut sums = (0.0, 0.0);
        let mut minutes = 0;
        for (minute, (counted, covered)) in &self.minutes {
            let Some((integrated, also)) = power.minutes.get(minute) else { continue };
            if (*covered, *also) == (MINUTE_US, MINUTE_US) {
                sums = (sums.0 + counted, sums.1 + integrated);
                minutes += 1;
            }
        }
        let (counted, integrated) = sums;
        let apart = (counted - integrated).abs() / counted.max(integrated);
        (apart > DOUBT).then(|| {
            format!(
                "its counter says {counted:.0} J and its power {integrated:.0} J over the same {minutes} min: {:.0} % apart",
                apart * 100.0
            )
        })
    }
}

/// The minutes of a span, each with how much of it lies in the span.
fn each_minute(span: Range<i64>, mut tell: impl FnMut(i64, i64)) {
    let mut start = span.start;
    while start < span.end {
        let minute = start.div_euclid(MINUTE_US);
        let end = (minute + 1).saturating_mul(MINUTE_US).min(span.end);
        if end <= start {
            return;
        }
        tell(minute, end - start);
        start = end;
    }
}

/// What is known of one GPU in one minute.
#[derive(Clone, Copy, Debug, Default)]
struct GpuMinute {
    covered_us: i64,
    busiest: Option<f64>,
    least_memory: Option<f64>,
}

/// Adds up how long a GPU was there, and how long it idled.
#[derive(Clone, Debug)]
pub struct IdleMeter {
    range: Range<i64>,
    minutes: BTreeMap<i64, GpuMinute>,
    pub covered_us: i64,
}

impl IdleMeter {
    pub fn new(range: Range<i64>) -> Self {
        Self { range, minutes: BTreeMap::new(), covered_us: 0 }
    }

    /// The utilisation of the GPU, or of one of its parts, by time.
    pub fn utilization(&mut self, readings: impl Iterator<Item = (i64, f64)>, interval_us: i64) {
        let gap_us = interval_us.saturating_mul(GAP_INTERVALS);
        let mut covered: BTreeMap<i64, i64> = BTreeMap::new();
        let mut before: Option<i64> = None;
        let mut all = 0;
        for (time, percent) in readings.filter(|(_, percent)| percent.is_finite()) {
            if self.range.contains(&time) {
                let minute = self.minutes.entry(time.div_euclid(MINUTE_US)).or_default();
                minute.busiest = Some(minute.busiest.map_or(percent, |busiest| busiest.max(percent)));
            }
            let from = before.replace(time).filter(|from| time - from <= gap_us);
            let span = from.unwrap_or(time).max(self.range.start)..time.min(self.range.end);
            all += (span.end - span.start).max(0);
            each_minute(span, |minute, us| *covered.entry(minute).or_default() += us);
        }
        // Parts of a GPU tell of the same time.
        self.covered_us = self.covered_us.max(all);
        for (minute, us) in covered {
            let known = self.minutes.entry(minute).or_default();
            known.covered_us = known.covered_us.max(us);
        }
    }

    /// The memory of the GPU in use, by time.
    pub fn memory(&mut self, readings: impl Iterator<Item = (i64, f64)>) {
        let mut least: BTreeMap<i64, f64> = BTreeMap::new();
        for (time, bytes) in readings.filter(|(time, bytes)| self.range.contains(time) && bytes.is_finite()) {
            let known = least.entry(time.div_euclid(MINUTE_US)).or_insert(bytes);
            *known = known.min(bytes);
        }
        for (minute, bytes) in least {
            let known = self.minutes.entry(minute).or_default();
            known.least_memory = Some(known.least_memory.map_or(bytes, |memory| memory.max(bytes)));
        }
    }

    /// Whole minutes without work, and those of them in which memory was held.
    pub fn idle_minutes(&self) -> (u64, u64) {
        let is_idle = |minute: &&GpuMinute| {
            minute.covered_us == MINUTE_US && minute.busiest.is_some_and(|busiest| busiest < IDLE_BELOW)
        };
        let is_held = |minute: &&GpuMinute| minute.least_memory.is_some_and(|bytes| bytes > HELD_ABOVE_BYTES);
        let idle = || self.minutes.values().filter(is_idle);
        (idle().count() as u64, idle().filter(is_held).count() as u64)
    }
}
