//! What sources say of the power of this node, and the best of it.
//!
//! From the best to the least: Cray's counters and power meters measure the whole node; then packages, memory and GPUs
//! together, GPUs alone, and packages and memory alone. The tag `source` says which it is, and so what the figure covers.
//! A better source that appears is taken at once. One that is silent is given up after a while ([`SILENCE_MIN`]), so that a
//! missed reading starts no other series.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::Timestamp;

use crate::collect::series::{Out, Slot};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::unwrapped::Unwrapped;

/// How long a source may say nothing, at the least.
const SILENCE_MIN: Duration = Duration::from_secs(15);
/// Power is integrated over so many intervals between two readings; over longer gaps it is unknown.
const GAP_INTERVALS: u32 = 3;
const READ_INTERVAL: Duration = Duration::from_secs(1);

const WATTS: &str = "node_power_watts";
const JOULES: &str = "node_energy_joules_total";

/// Where the power of the node is known from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PowerSource {
    PmCounters,
    Meter,
    RaplAndGpus,
    Gpus,
    Rapl,
}

impl PowerSource {
    const ALL: [PowerSource; 5] = [Self::PmCounters, Self::Meter, Self::RaplAndGpus, Self::Gpus, Self::Rapl];

    /// The value of the tag.
    fn name(self) -> &'static str {
        match self {
            Self::PmCounters => "pm_counters",
            Self::Meter => "acpi_power_meter",
            Self::RaplAndGpus => "rapl_gpu",
            Self::Gpus => "gpu",
            Self::Rapl => "rapl",
        }
    }
}

/// The latest of one source.
#[derive(Clone, Copy, Debug)]
struct PowerReading {
    time: Timestamp,
    watts: Option<f64>,
    /// A counter.
    joules: Option<f64>,
}

/// The energy of a source that tells its power alone: trapezoids between readings.
#[derive(Clone, Copy, Debug, Default)]
struct EnergyIntegral {
    last: Option<(Timestamp, f64)>,
    joules: f64,
}

impl EnergyIntegral {
    fn next(&mut self, time: Timestamp, watts: f64, gap_max: Duration) -> f64 {
        if let Some((before, from)) = self.last.replace((time, watts)) {
            let micros = time.micros().saturating_sub(before.micros());
            if (0..=i64::try_from(gap_max.as_micros()).unwrap_or(i64::MAX)).contains(&micros) {
                self.joules += (from + watts) / 2.0 * (micros as f64 / 1e6);
            }
        }
        self.joules
    }
}

/// What is known of the power of this node. Clones share it.
#[derive(Clone, Debug)]
pub struct PowerBoard {
    shared: Arc<Mutex<PowerReadings>>,
    gap_max: Duration,
    silence_max: Duration,
}

#[derive(Debug, Default)]
struct PowerReadings {
    /// Counters of energy were found.
    has_counters: bool,
    /// A meter was found.
    has_meters: bool,
    /// Some GPU was found that should answer, whether or not it has.
    has_gpus: bool,
    pm: Option<PowerReading>,
    meter: Option<PowerReading>,
    meter_energy: EnergyIntegral,
    rapl: Option<PowerReading>,
    /// When the energy of `rapl` was read (monotonic), which may be later than the time of its tick.
    rapl_read: Duration,
    /// By the number of the GPU.
    gpus: BTreeMap<usize, GpuPower>,
}

/// What one GPU says. Its energy counts from its first reading: a GPU that answers later than the others, or that is
/// silent for a while, must not change the sum by what it used in its life.
#[derive(Debug)]
struct GpuPower {
    time: Timestamp,
    watts: Option<f64>,
    counter: Unwrapped,
    /// Of the counter, where it has one.
    first: Option<u64>,
    integral: EnergyIntegral,
    /// In joules.
    grown: Option<f64>,
}

impl GpuPower {
    fn new(time: Timestamp) -> Self {
        Self {
            time,
            watts: None,
            counter: Unwrapped::new(None),
            first: None,
            integral: EnergyIntegral::default(),
            grown: None,
        }
    }
}

impl PowerBoard {
    /// `interval`: that of the collectors.
    pub fn new(interval: Duration) -> Self {
        let gap_max = interval.max(READ_INTERVAL) * GAP_INTERVALS;
        Self { shared: Arc::default(), gap_max, silence_max: gap_max.max(SILENCE_MIN) }
    }

    /// A counter of energy was found.
    pub(super) fn expect_counters(&self) {
        self.lock().has_counters = true;
    }

    /// A meter was found.
    pub(super) fn expect_meters(&self) {
        self.lock().has_meters = true;
    }

    /// A GPU was found that is awake.
    pub fn expect_gpus(&self) {
        self.lock().has_gpus = true;
    }

    /// What Cray's counters say of the whole node.
    pub(super) fn put_pm(&self, time: Timestamp, watts: Option<f64>, joules: Option<f64>) {
        self.lock().pm = Some(PowerReading { time, watts, joules });
    }

    /// What the meters of the node say together.
    pub(super) fn put_meter(&self, time: Timestamp, watts: f64) {
        let mut readings = self.lock();
        let joules = readings.meter_energy.next(time, watts, self.gap_max);
        readings.meter = Some(PowerReading { time, watts: Some(watts), joules: Some(joules) });
    }

    /// The energy of all packages and their memory, a counter. `time`: of the tick; `read`: when it was read (monotonic).
    /// Power is by the latter: what is read late in one tick and early in the next would look like more of it.
    pub(super) fn put_rapl(&self, time: Timestamp, read: Duration, joules: f64) {
        let mut readings = self.lock();
        let seconds = read.saturating_sub(std::mem::replace(&mut readings.rapl_read, read)).as_secs_f64();
        let watts =
            readings.rapl.and_then(|before| Some((joules - before.joules?) / seconds).filter(|_| seconds > 0.0));
        readings.rapl = Some(PowerReading { time, watts, joules: Some(joules) });
    }

    /// What a GPU says. Its counter is its energy where it has one; else its power is integrated.
    pub fn put_gpu(&self, number: usize, time: Timestamp, watts: Option<f64>, joules: Option<f64>) {
        let mut readings = self.lock();
        let gpu = readings.gpus.entry(number).or_insert_with(|| GpuPower::new(time));
        if let Some(joules) = joules.filter(|joules| (0.0..1e15).contains(joules)) {
            // To a thousandth, as it is stored.
            let total = gpu.counter.next((joules * 1e3).round() as u64);
            gpu.grown = Some((total - *gpu.first.get_or_insert(total)) as f64 / 1e3);
        } else if let (Some(watts), None) = (watts, gpu.first) {
            gpu.grown = Some(gpu.integral.next(time, watts, self.gap_max));
        }
        (gpu.time, gpu.watts) = (time, watts);
    }

    fn lock(&self) -> MutexGuard<'_, PowerReadings> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PowerReadings {
    /// What a source says now, if it said something not long ago.
    fn of(&self, source: PowerSource, now: Timestamp, silence_max: Duration) -> Option<PowerReading> {
        match source {
            PowerSource::PmCounters => self.pm,
            PowerSource::Meter => self.meter,
            PowerSource::Rapl => self.rapl,
            PowerSource::Gpus => self.gpus(now, silence_max),
            PowerSource::RaplAndGpus => {
                let (rapl, gpus) = (self.rapl?, self.gpus(now, silence_max)?);
                Some(PowerReading {
                    time: rapl.time.min(gpus.time),
                    watts: rapl.watts.zip(gpus.watts).map(|(rapl, gpus)| rapl + gpus),
                    joules: rapl.joules.zip(gpus.joules).map(|(rapl, gpus)| rapl + gpus),
                })
            }
        }
        .filter(|reading| is_fresh(reading.time, now, silence_max))
    }

    /// All GPUs together: a sleeping one draws about nothing, and its energy stays what it was.
    fn gpus(&self, now: Timestamp, silence_max: Duration) -> Option<PowerReading> {
        let awake = || self.gpus.values().filter(|gpu| is_fresh(gpu.time, now, silence_max));
        let time = awake().map(|gpu| gpu.time).max()?;
        let watts: Vec<f64> = awake().filter_map(|gpu| gpu.watts).collect();
        let joules: Vec<f64> = self.gpus.values().filter_map(|gpu| gpu.grown).collect();
        Some(PowerReading {
            time,
            watts: (!watts.is_empty()).then(|| watts.iter().sum()),
            joules: (!joules.is_empty()).then(|| joules.iter().sum()),
        })
    }
}

fn is_fresh(time: Timestamp, now: Timestamp, silence_max: Duration) -> bool {
    now.micros().saturating_sub(time.micros()) <= i64::try_from(silence_max.as_micros()).unwrap_or(i64::MAX)
}

/// Among whose ticks the power of the node is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerTicks {
    Counters,
    /// Where there are no counters of energy, and so no ticks of them.
    Meters,
    /// Where GPUs alone tell it.
    Gpus,
}

/// The power and energy of the node, from the best source.
#[derive(Debug)]
pub struct NodePower {
    ticks: PowerTicks,
    board: PowerBoard,
    first: Option<Timestamp>,
    slots: BTreeMap<PowerSource, [Slot; 2]>,
    chosen: Option<PowerSource>,
    /// The reading that was stored last: one that is repeated is none.
    stored: Option<Timestamp>,
}

impl NodePower {
    pub fn new(board: &PowerBoard, ticks: PowerTicks) -> Self {
        Self { ticks, board: board.clone(), first: None, slots: BTreeMap::new(), chosen: None, stored: None }
    }
}

impl Subject for NodePower {
    /// What it shows is found by others.
    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(SourceState::Absent)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let now = out.time();
        let begun = *self.first.get_or_insert(now);
        let readings = self.board.lock();
        let ticks = match (readings.has_counters, readings.has_meters) {
            (true, _) => PowerTicks::Counters,
            (false, true) => PowerTicks::Meters,
            (false, false) => PowerTicks::Gpus,
        };
        if ticks != self.ticks {
            return;
        }
        let best = PowerSource::ALL
            .into_iter()
            .find_map(|source| Some((source, readings.of(source, now, self.board.silence_max)?)));
        // GPUs answer a moment later than files: a series of the packages alone would end with that.
        let is_early = readings.has_gpus && readings.gpus.is_empty() && is_fresh(begun, now, self.board.silence_max);
        drop(readings);
        let Some((source, reading)) = best.filter(|(source, _)| !is_early || *source != PowerSource::Rapl) else {
            return;
        };
        if self.chosen.replace(source) != Some(source) {
            self.stored = None;
        }
        if self.stored.replace(reading.time) == Some(reading.time) {
            return;
        }
        let slots = self
            .slots
            .entry(source)
            .or_insert_with(|| [WATTS, JOULES].map(|metric| Slot::tagged(metric, &[("source", source.name())])));
        let [watts, joules] = slots;
        if let Some(value) = reading.watts {
            out.float(watts, (value * 1e3).round() / 1e3);
        }
        if let Some(value) = reading.joules {
            out.float(joules, (value * 1e3).round() / 1e3);
        }
    }
}
