//! `/sys/cray/pm_counters`: power and energy of a node of Cray EX, measured at its supply ten times a second and readable
//! by all. Every file has the time of its own measurement, which its samples get.
//!
//! `freshness` changes with every measurement: files that were read between two equal ones belong together. `startup`
//! changes when the counters begin anew.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use telem_engine::Timestamp;

use super::PowerBoard;
use crate::collect::inventory::DeviceKind;
use crate::collect::series::{Out, Slot};
use crate::collect::source::{Source, Tree};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::{fields, number};
use crate::collect::unwrapped::Unwrapped;

/// Most accelerators that are read; those beyond it are left out.
pub const ACCELERATORS_MAX: usize = 16;
/// How often a set of files is read again because a measurement came between.
const TRIES: usize = 3;
/// Figures that are older come from a controller that is gone.
const AGE_MAX: Duration = Duration::from_secs(5);
const READ_INTERVAL: Duration = Duration::from_secs(1);
const REMEDY: &str = "the controller of the blade has stopped measuring: tell the administrators";

/// One figure: a file, and where it goes.
#[derive(Debug)]
struct PmFile {
    source: Source,
    unit: &'static str,
    slot: Slot,
    /// It is of the whole node.
    is_whole: bool,
    /// Of energy.
    counter: Option<Unwrapped>,
    last: Option<Timestamp>,
}

/// What a file said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PmReading {
    pub value: u64,
    pub time: Timestamp,
}

#[derive(Debug)]
pub struct PmCounters {
    directory: PathBuf,
    board: PowerBoard,
    freshness: Source,
    startup: Source,
    known_startup: Option<u64>,
    files: Vec<PmFile>,
    /// How old the figures are, where they are too old.
    stale: Option<Duration>,
}

impl PmCounters {
    pub fn new(tree: &Tree, board: &PowerBoard) -> Self {
        let directory = tree.path("sys/cray/pm_counters");
        Self {
            board: board.clone(),
            freshness: Source::new(directory.join("freshness")),
            startup: Source::new(directory.join("startup")),
            known_startup: None,
            files: Vec::new(),
            stale: None,
            directory,
        }
    }

    fn add(&mut self, file: &str, metric: &'static str, tags: &[(&'static str, &str)]) {
        let path = self.directory.join(file);
        if path.is_file() {
            let is_energy = metric.ends_with("_total");
            self.files.push(PmFile {
                source: Source::new(path),
                unit: if is_energy { "J" } else { "W" },
                slot: Slot::tagged(metric, tags),
                is_whole: metric.starts_with("cray_pm_node_"),
                counter: is_energy.then(|| Unwrapped::new(None)),
                last: None,
            });
        }
    }

    /// The figures of all files, of one measurement where that can be had.
    fn read(&mut self) -> Vec<Option<PmReading>> {
        let mut readings = Vec::new();
        for _ in 0..TRIES {
            let before = first_number(&mut self.freshness);
            readings = self.files.iter_mut().map(|file| parse(file.source.read()?, file.unit)).collect();
            if before.is_some() && before == first_number(&mut self.freshness) {
                break;
            }
        }
        readings
    }
}

fn first_number(source: &mut Source) -> Option<u64> {
    number(fields(source.read()?).next()?)
}

/// `612 W 1790000000356101 us`.
pub(crate) fn parse(text: &[u8], unit: &str) -> Option<PmReading> {
    let mut fields = fields(text);
    let value = number(fields.next()?)?;
    if fields.next()? != unit.as_bytes() {
        return None;
    }
    let micros = i64::try_from(number(fields.next()?)?).ok()?;
    (fields.next()? == b"us").then_some(PmReading { value, time: Timestamp::from_micros(micros) })
}

impl Subject for PmCounters {
    fn search(&mut self) {
        if !self.files.is_empty() || !self.directory.is_dir() {
            return;
        }
        self.add("power", "cray_pm_node_power_watts", &[]);
        self.add("energy", "cray_pm_node_energy_joules_total", &[]);
        self.add("cpu_power", "cray_pm_cpu_power_watts", &[]);
        self.add("cpu_energy", "cray_pm_cpu_energy_joules_total", &[]);
        self.add("memory_power", "cray_pm_memory_power_watts", &[]);
        self.add("memory_energy", "cray_pm_memory_energy_joules_total", &[]);
        for accelerator in 0..ACCELERATORS_MAX {
            let tags = [("accel", &*accelerator.to_string())];
            self.add(&format!("accel{accelerator}_power"), "cray_pm_accel_power_watts", &tags);
            self.add(&format!("accel{accelerator}_energy"), "cray_pm_accel_energy_joules_total", &tags);
        }
        if !self.files.is_empty() {
            self.board.expect_counters();
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        match (self.files.is_empty(), self.stale) {
            (true, _) => SourceState::alone(SourceState::Absent),
            (false, None) => SourceState::alone(SourceState::Present),
            (false, Some(age)) => Cow::Owned(vec![
                SourceState::Present,
                SourceState::Refused {
                    path: self.directory.clone(),
                    why: format!("its figures are {} s old", age.as_secs()),
                    remedy: REMEDY,
                },
            ]),
        }
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Energy)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        // A node without these counters shall pay nothing for them.
        if self.files.is_empty() {
            return;
        }
        let startup = first_number(&mut self.startup);
        let is_new = startup.is_some() && self.known_startup.is_some() && startup != self.known_startup;
        self.known_startup = startup.or(self.known_startup);
        let readings = self.read();
        let now = out.time();
        let age = |time: Timestamp| {
            Duration::from_micros(u64::try_from(now.micros().saturating_sub(time.micros())).unwrap_or(0))
        };
        let youngest = readings.iter().flatten().map(|reading| age(reading.time)).min();
        self.stale = youngest.filter(|age| *age > AGE_MAX);
        let (mut watts, mut joules) = (None, None);
        for (file, reading) in self.files.iter_mut().zip(readings) {
            if let Some(counter) = file.counter.as_mut().filter(|_| is_new) {
                counter.begin_anew();
            }
            let Some(PmReading { value, time }) = reading else { continue };
            // The old one is no new sample, and one that is still to come is none of a clock that is right.
            let ahead = Duration::from_micros(u64::try_from(time.micros().saturating_sub(now.micros())).unwrap_or(0));
            if age(time) > AGE_MAX || ahead > AGE_MAX || file.last.is_some_and(|last| time <= last) {
                continue;
            }
            file.last = Some(time);
            let value = file.counter.as_mut().map_or(value, |counter| counter.next(value)) as f64;
            out.float_at(time, &mut file.slot, value);
            if file.is_whole {
                *(if file.counter.is_some() { &mut joules } else { &mut watts }) = Some(value);
            }
        }
        if watts.is_some() || joules.is_some() {
            self.board.put_pm(out.time(), watts, joules);
        }
    }
}
