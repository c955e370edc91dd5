//! Telemetry of a job's nodes, from fixed seeds: the same samples on every machine.
//!
//! There are 50 series per host under 34 names: 13 gauges with two decimals (shares of CPU time, watts), 32 integers
//! (counters, bytes, percentages, temperatures), 3 constants and 2 losses in which nearly every digit is noise. How far
//! a value moves in a second was chosen so that each class holds about as much information as in the data on which
//! telem's design was measured.

use crate::random::Random;
use crate::{Data, Failed, Row, Subject, Value};

/// 2026-01-02T03:00:00Z, the start of an hour: in the past of every server that takes only what is past.
pub const START_S: i64 = 1_767_322_800;
/// Hosts whose clocks are not aligned tick this long after one another, within each second.
const PHASE_MS: i64 = 7;

/// `hosts` nodes, a sample a second of each series.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    pub hosts: usize,
    pub seconds: i64,
    /// 0: all hosts tick at full seconds. Else each has its own phase, and is late by up to this each time.
    pub jitter_ms: u64,
}

impl Random {
    /// About normal: mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..4).map(|_| self.unit()).sum::<f64>() * 1.732_050_807_568_877_2 - 3.464_101_615_137_754_6
    }
}

/// How a value goes on.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Two decimals, a walk between two bounds.
    Gauge {
        low: f64,
        high: f64,
    },
    /// A whole percentage, a walk.
    Percent,
    /// Degrees: stays, and moves by one now and then.
    Temperature,
    /// Memory: moves by multiples of a page, now and then.
    Memory {
        page: i64,
        every: u64,
    },
    /// Only grows, by up to this, with every tick.
    Busy {
        most: f64,
    },
    /// Only grows, in bursts of multiples of a block.
    Bursts {
        block: i64,
        every: u64,
    },
    /// A small number, often zero.
    Few,
    Constant(i64),
    /// Falls slowly, with noise in all digits.
    Loss {
        start: f64,
    },
}

const CPU: [(&str, Kind); 9] = [
    ("user", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("system", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("idle", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("iowait", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("irq", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("softirq", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("steal", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("nice", Kind::Gauge { low: 0.0, high: 100.0 }),
    ("guest", Kind::Gauge { low: 0.0, high: 100.0 }),
];
const GPU: [(&str, Kind); 4] = [
    ("utilization", Kind::Percent),
    ("memory_bytes", Kind::Memory { page: 2 << 20, every: 4 }),
    ("temperature", Kind::Temperature),
    ("watts", Kind::Gauge { low: 80.0, high: 700.0 }),
];
const MEMORY: [(&str, Kind); 6] = [
    ("total", Kind::Constant(540_888_666_112)),
    ("used", Kind::Memory { page: 4_096, every: 1 }),
    ("free", Kind::Memory { page: 4_096, every: 1 }),
    ("cached", Kind::Memory { page: 4_096, every: 2 }),
    ("buffers", Kind::Memory { page: 4_096, every: 8 }),
    ("available", Kind::Memory { page: 4_096, every: 1 }),
];
const NET: [(&str, Kind); 4] = [
    ("rx_bytes", Kind::Busy { most: 150_000.0 }),
    ("tx_bytes", Kind::Busy { most: 80_000.0 }),
    ("rx_packets", Kind::Busy { most: 200.0 }),
    ("tx_packets", Kind::Busy { most: 120.0 }),
];
const DISK: [(&str, Kind); 5] = [
    ("read_bytes", Kind::Bursts { block: 4_096, every: 8 }),
    ("write_bytes", Kind::Bursts { block: 4_096, every: 3 }),
    ("reads", Kind::Bursts { block: 1, every: 8 }),
    ("writes", Kind::Bursts { block: 1, every: 3 }),
    ("busy_ms", Kind::Busy { most: 20.0 }),
];
const PROCESSES: [(&str, Kind); 2] = [("running", Kind::Few), ("blocked", Kind::Few)];
const NODE: [(&str, Kind); 2] = [("cores", Kind::Constant(128)), ("sockets", Kind::Constant(2))];
const TRAIN: [(&str, Kind); 2] = [("loss", Kind::Loss { start: 2.5 }), ("grad_norm", Kind::Loss { start: 40.0 })];

/// Measurement, the tag that tells apart what a host has several of, and their names.
type Plan = (&'static str, Option<(&'static str, &'static [&'static str])>, &'static [(&'static str, Kind)]);

const PLAN: [Plan; 8] = [
    ("cpu", None, &CPU),
    ("gpu", Some(("gpu", &["0", "1", "2", "3"])), &GPU),
    ("mem", None, &MEMORY),
    ("net", Some(("iface", &["eth0", "ib0"])), &NET),
    ("disk", Some(("disk", &["nvme0n1"])), &DISK),
    ("procs", None, &PROCESSES),
    ("node", None, &NODE),
    ("train", None, &TRAIN),
];

/// A series that makes its next value.
#[derive(Debug)]
struct Source {
    kind: Kind,
    level: f64,
    random: Random,
}

impl Source {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut random = Random(seed);
        let level = match kind {
            Kind::Gauge { low, high } => low + (high - low) * random.unit(),
            Kind::Percent => 100.0 * random.unit(),
            Kind::Temperature => 40.0 + (random.next() % 30) as f64,
            Kind::Memory { page, .. } => ((random.next() % 100_000) as i64 * page) as f64,
            Kind::Busy { .. } | Kind::Bursts { .. } => (1e9 * random.unit()).floor(),
            Kind::Few => 0.0,
            Kind::Constant(value) => value as f64,
            Kind::Loss { start } => start,
        };
        Self { kind, level, random }
    }

    fn next(&mut self) -> Value {
        let Self { kind, level, random } = self;
        match *kind {
            Kind::Gauge { low, high } => {
                *level = reflected(*level + 0.4 * random.normal(), low, high);
                Value::Float((*level * 100.0).round() / 100.0)
            }
            Kind::Percent => {
                *level = reflected(*level + 1.5 * random.normal(), 0.0, 100.0);
                Value::Int(*level as i64)
            }
            Kind::Temperature => {
                if random.one_in(10) {
                    *level = (*level + if random.one_in(2) { 1.0 } else { -1.0 }).clamp(25.0, 95.0);
                }
                Value::Int(*level as i64)
            }
            Kind::Memory { page, every } => {
                if random.one_in(every) {
                    *level = (*level + (random.normal() * 40.0).round() * page as f64).max(0.0);
                }
                Value::Int(*level as i64)
            }
            Kind::Busy { most } => {
                *level += (random.unit() * most).floor();
                Value::Int(*level as i64)
            }
            Kind::Bursts { block, every } => {
                if random.one_in(every) {
                    *level += (random.next() % 64) as f64 * block as f64;
                }
                Value::Int(*level as i64)
            }
            Kind::Few => Value::Int(if random.one_in(3) { (random.next() % 8) as i64 } else { 0 }),
            Kind::Constant(value) => Value::Int(value),
            Kind::Loss { .. } => {
                *level *= 0.9999;
                Value::Float(*level * (1.0 + 0.03 * random.normal()))
            }
        }
    }
}

/// A walk that turns round at its bounds.
fn reflected(level: f64, low: f64, high: f64) -> f64 {
    if level < low {
        2.0 * low - level
    } else if level > high {
        2.0 * high - level
    } else {
        level
    }
}

struct Part {
    subject: Subject,
    series: Vec<u32>,
    sources: Vec<Source>,
}

fn parts_of_host(host: usize, series: &mut u32) -> Vec<Part> {
    let mut parts = Vec::new();
    for (measurement, several, fields) in PLAN {
        let (key, names) = several.unwrap_or(("", &[""]));
        for name in names {
            let mut tags = vec![("host".to_owned(), format!("nid{host:05}"))];
            if !key.is_empty() {
                tags.push((key.to_owned(), (*name).to_owned()));
            }
            tags.sort();
            let subject = Subject {
                measurement: measurement.to_owned(),
                tags,
                fields: fields.iter().map(|(field, _)| (*field).to_owned()).collect(),
            };
            let first = *series;
            *series += fields.len() as u32;
            let sources =
                fields.iter().zip(first..).map(|((_, kind), seed)| Source::new(*kind, u64::from(seed))).collect();
            parts.push(Part { subject, series: (first..*series).collect(), sources });
        }
    }
    parts
}

impl Data for Nodes {
    fn each_row(&self, row: &mut dyn FnMut(&Row) -> Result<(), Failed>) -> Result<(), Failed> {
        let mut series = 0;
        let mut hosts: Vec<Vec<Part>> = (0..self.hosts).map(|host| parts_of_host(host, &mut series)).collect();
        let mut random = Random(7);
        let mut values = Vec::new();
        for second in START_S..START_S + self.seconds {
            for (host, parts) in hosts.iter_mut().enumerate() {
                let late_ms = match self.jitter_ms {
                    0 => 0,
                    most => (host as i64 * PHASE_MS) % 990 + (random.next() % (most + 1)) as i64,
                };
                for Part { subject, series, sources } in parts {
                    values.clear();
                    values.extend(sources.iter_mut().map(Source::next));
                    row(&Row { series, subject, time_ms: second * 1_000 + late_ms, values: &values })?;
                }
            }
        }
        Ok(())
    }
}
