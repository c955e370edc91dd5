//! Measures how many bytes a sample takes on disk, after flushes and after the merge that closes a database.
//!
//! ```text
//! cargo run -p telem-engine --example sizes [-- [--hosts N] [--recording FILE] [--keep DIR] [--only LOAD]]
//! ```
//! The load is that of a job's nodes: 50 series per host, of which 13 are gauges with two decimals, 32 integers
//! (counters, gauges), 3 constants and 2 noisy losses with all their digits. It is stored once with all clocks aligned
//! to the second, and once with ticks that come up to 5 ms late, differently on each host. The load `known` is of walks
//! whose entropy can be told: no lossless storage takes less. A recording is what `benches/record_proc.py` writes.
//! Everything else is fixed, so the same data gives the same bytes.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

#[path = "../../benches/peers/load/src/random.rs"]
mod random;

use random::Random;
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesId, SeriesKey, TagSet, Timestamp, Value};

type Failed = Box<dyn std::error::Error>;

const START_S: i64 = 1_799_996_400;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let (mut hosts, mut recording, mut keep, mut only) = (100, None, None, None);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        match &*argument {
            "--hosts" => hosts = value.parse()?,
            "--recording" => recording = Some(PathBuf::from(value)),
            "--keep" => keep = Some(PathBuf::from(value)),
            "--only" => only = Some(value),
            _ => return Err(format!("no argument {argument}").into()),
        }
    }
    let report = |name: &str, fill: &mut dyn FnMut(&Db) -> Result<u64, Failed>| {
        let is_wanted = only.as_ref().is_none_or(|only| only == name);
        if is_wanted { report(name, keep.as_deref(), fill) } else { Ok(()) }
    };
    println!("bytes a sample:           samples    flushed     merged    files before    after");
    for (name, seconds, late_ms) in [("aligned", 3_600, 0), ("aligned-short", 1_200, 0), ("jittered", 1_200, 5)] {
        let load = Nodes { hosts, seconds, late_ms, only: None };
        report(name, &mut |db| load.fill(db))?;
    }
    for kind in Kind::ALL {
        let load = Nodes { hosts, seconds: 600, late_ms: 0, only: Some(kind) };
        report(kind.name(), &mut |db| load.fill(db))?;
    }
    report("known", &mut known)?;
    if let Some(recording) = recording {
        report("recording", &mut |db| replay(db, &recording))?;
    }
    Ok(())
}

/// Fills a database, closes it as a job's end does, and prints a line.
fn report(name: &str, keep: Option<&Path>, fill: &mut dyn FnMut(&Db) -> Result<u64, Failed>) -> Result<(), Failed> {
    let temporary = std::env::temp_dir().join(format!("telem-sizes-{}", std::process::id()));
    let dir = keep.map_or(temporary, Path::to_path_buf).join(name);
    // A small memtable, so that there is something to merge.
    let db = Db::open(&dir, Options { memtable_bytes_flush: 16 << 20, ..Options::default() })?;
    let samples = fill(&db)?;
    db.flush()?;
    let (files, flushed) = size(&dir.join("segments"))?;
    db.compact()?;
    db.close()?;
    let (files_after, merged) = size(&dir.join("segments"))?;
    let (_, keys) = size(&dir.join("series"))?;
    let a_sample = |bytes: u64| bytes as f64 / samples as f64;
    let (flushed, merged) = (a_sample(flushed), a_sample(merged + keys));
    println!("{name:<20} {samples:>12} {flushed:>10.3} {merged:>10.3} {files:>15} {files_after:>8}");
    if keep.is_none() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// The files of a folder, and their bytes.
fn size(dir: &Path) -> Result<(u64, u64), Failed> {
    let (mut files, mut bytes) = (0, 0);
    for file in std::fs::read_dir(dir)? {
        files += 1;
        bytes += file?.metadata()?.len();
    }
    Ok((files, bytes))
}

impl Random {
    /// About normal: mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Percent and watts, two decimals, a walk around a level.
    Gauge,
    /// Bytes and packets that only grow, and bytes of memory that walk.
    Counter,
    /// Percent as whole numbers.
    Percent,
    Constant,
    /// All digits of a float, nearly all of them noise.
    Loss,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Gauge, Kind::Counter, Kind::Percent, Kind::Constant, Kind::Loss];

    fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "only gauges",
            Kind::Counter => "only counters",
            Kind::Percent => "only percentages",
            Kind::Constant => "only constants",
            Kind::Loss => "only losses",
        }
    }

    fn of(series: usize) -> Self {
        match series {
            0..13 => Kind::Gauge,
            13..33 => Kind::Counter,
            33..45 => Kind::Percent,
            45..48 => Kind::Constant,
            _ => Kind::Loss,
        }
    }
}

/// A series that makes its next value.
struct Source {
    kind: Kind,
    number: usize,
    level: f64,
    random: Random,
}

impl Source {
    fn new(kind: Kind, host: usize, number: usize) -> Self {
        let mut random = Random((host * 1_000 + number) as u64);
        let level = match kind {
            Kind::Gauge => 20.0 + 60.0 * random.unit(),
            Kind::Counter => 1e9 * random.unit(),
            Kind::Percent => 50.0,
            Kind::Constant => (random.next() % 512) as f64,
            Kind::Loss => 2.5,
        };
        Self { kind, number, level, random }
    }

    fn next(&mut self) -> Value {
        let Self { level, random, .. } = self;
        match self.kind {
            Kind::Gauge => {
                *level = (*level + 0.15 * random.normal()).clamp(0.0, 100.0);
                Value::Float((*level * 100.0).round() / 100.0)
            }
            // Idle most of the time, as most counters of a node are; some move with every tick.
            Kind::Counter if self.number.is_multiple_of(4) => {
                *level += (random.unit() * 4_000.0).floor();
                Value::Int(*level as i64)
            }
            Kind::Counter => {
                if random.one_in(16) {
                    *level += (random.unit() * 64.0).floor() * 4_096.0;
                }
                Value::Int(*level as i64)
            }
            Kind::Percent => {
                *level = (*level + 1.5 * random.normal()).clamp(0.0, 100.0);
                Value::Int(*level as i64)
            }
            Kind::Constant => Value::Int(*level as i64),
            Kind::Loss => {
                *level *= 0.9995;
                Value::Float(*level * (1.0 + 0.05 * random.normal()))
            }
        }
    }
}

struct Nodes {
    hosts: usize,
    seconds: i64,
    late_ms: u64,
    only: Option<Kind>,
}

impl Nodes {
    /// Tick after tick, as samples arrive.
    fn fill(&self, db: &Db) -> Result<u64, Failed> {
        let mut sources: Vec<Vec<(SeriesId, Source)>> = Vec::new();
        for host in 0..self.hosts {
            let mut of_host = Vec::new();
            for number in 0..50 {
                let kind = Kind::of(number);
                if self.only.is_none_or(|only| only == kind) {
                    let tags = TagSet::new([("host", format!("nid{host:05}"))])?;
                    let id = db.series(&SeriesKey::new(&format!("node_{number:02}"), tags)?)?;
                    of_host.push((id, Source::new(kind, host, number)));
                }
            }
            sources.push(of_host);
        }
        let mut random = Random(7);
        let mut samples = 0;
        for second in 0..self.seconds {
            let mut batch = SampleBatch::default();
            for (host, of_host) in sources.iter_mut().enumerate() {
                // Late hosts tick at a time of their own within the second.
                let late =
                    if self.late_ms == 0 { 0 } else { host as i64 * 7 + (random.next() % (self.late_ms + 1)) as i64 };
                let time = Timestamp::from_millis((START_S + second) * 1_000 + late);
                for (id, source) in of_host {
                    batch.push(*id, time, source.next());
                }
            }
            samples += batch.len() as u64;
            append(db, &batch)?;
        }
        Ok(samples)
    }
}

/// Walks of known entropy: nine gauges with two decimals and normal steps of deviation 1 (8.7 bits each), eight counters
/// of steps below 49,667 (15.6 bits), six of memory in units of 64 bytes (13 bits): 1.53 bytes on average. Times take
/// nothing.
fn known(db: &Db) -> Result<u64, Failed> {
    let mut random = Random(23);
    let mut series = Vec::new();
    for number in 0..23 {
        let key = SeriesKey::new(&format!("walk_{number:02}"), TagSet::default())?;
        series.push((db.series(&key)?, 0.0_f64, 0_i64));
    }
    let mut samples = 0;
    for second in 0..20_000 {
        let mut batch = SampleBatch::default();
        for (number, (id, level, count)) in series.iter_mut().enumerate() {
            let value = match number {
                0..9 => {
                    *level += random.normal();
                    Value::Float((*level * 100.0).round() / 100.0)
                }
                9..17 => {
                    *count += (random.next() % 49_667) as i64;
                    Value::Int(*count)
                }
                _ => {
                    *count += 64 * ((random.next() % 8_192) as i64 - 4_096);
                    Value::Int((1 << 40) + *count)
                }
            };
            batch.push(*id, Timestamp::from_seconds(START_S + second), value);
        }
        samples += batch.len() as u64;
        append(db, &batch)?;
    }
    Ok(samples)
}

fn append(db: &Db, batch: &SampleBatch) -> Result<(), Failed> {
    if db.flush_due() {
        db.flush()?;
    }
    Ok(db.append(batch, Durability::Buffered)?)
}

fn replay(db: &Db, recording: &Path) -> Result<u64, Failed> {
    let file = std::io::BufReader::new(std::fs::File::open(recording)?);
    let mut known: HashMap<String, SeriesId> = HashMap::new();
    let mut batch = SampleBatch::default();
    let mut samples = 0;
    for line in file.lines() {
        let line = line?;
        let wrong = || format!("not a line of a recording: {line}");
        let (time, rest) = line.split_once('\t').ok_or_else(wrong)?;
        let (key, value) = rest.rsplit_once('\t').ok_or_else(wrong)?;
        let id = match known.get(key) {
            Some(id) => *id,
            None => {
                let (metric, tags) = key.split_once('\t').ok_or_else(wrong)?;
                let tags = tags.split(',').filter_map(|tag| tag.split_once('='));
                let id = db.series(&SeriesKey::new(metric, TagSet::new(tags)?)?)?;
                *known.entry(key.to_owned()).or_insert(id)
            }
        };
        let value = value.parse().map(Value::Int).or_else(|_| value.parse().map(Value::Float))?;
        batch.push(id, Timestamp::from_millis(time.parse()?), value);
        samples += 1;
        if batch.len() == 10_000 {
            append(db, &std::mem::take(&mut batch))?;
        }
    }
    append(db, &batch)?;
    Ok(samples)
}
