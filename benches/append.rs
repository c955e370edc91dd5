//! Appends arrays to a database in the same process, as a program that embeds the engine does: no server, no text.
//!
//! `append COLUMNS DATABASE` reads the arrays that `telem-load columns` wrote (the numbers of series, times, values: one
//! of each a sample, in the order of arrival), appends them to a new database, 500,000 samples at a time, closes it, and
//! merges it. It prints a line of JSON: what appending until all is flushed took, what merging took beyond that, memory
//! and bytes. Before the clock starts the arrays are in memory and the series have their ids.
//!
//! CPU is that of the threads that live: the engine has none of its own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use telem_benches::cpu;
use telem_engine::{
    Clock, Db, Durability, Options, SampleBatch, SeriesId, SeriesKey, SystemClock, TagSet, Timestamp, Value,
};

/// As many as the other libraries are given at a time.
const SAMPLES_AT_ONCE: usize = 500_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let given: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [columns, database] = &given[..] else { return Err("append COLUMNS DATABASE".into()) };
    let arrays = Arrays::read(columns)?;
    let clock = SystemClock::new();
    let db = Db::open(database, Options::default())?;
    let series = ids(&db, &fs::read_to_string(columns.join("series.tsv"))?)?;

    let (began, before) = (clock.monotonic(), cpu::of_live_threads());
    append(&db, &series, &arrays)?;
    db.flush()?;
    let load = (cpu::of_live_threads() - before, clock.monotonic() - began);
    let (now_mb, peak_mb) = (resident_mb("VmRSS")?, resident_mb("VmHWM")?);
    let arrived = bytes(database)?;

    let (began, before) = (clock.monotonic(), cpu::of_live_threads());
    db.compact()?;
    db.close()?;
    let merge = (cpu::of_live_threads() - before, clock.monotonic() - began);
    let sorted = bytes(database)?;
    println!(
        r#"{{"load":{{"samples":{},"cpu_s":{:.6},"seconds":{:.6}}},"merge":{{"cpu_s":{:.6},"seconds":{:.6}}},"memory":{{"now_mb":{now_mb:.1},"peak_mb":{peak_mb:.1}}},"bytes":{{"arrived":{arrived},"sorted":{sorted}}}}}"#,
        arrays.values.len(),
        load.0.as_secs_f64(),
        load.1.as_secs_f64(),
        merge.0.as_secs_f64(),
        merge.1.as_secs_f64(),
    );
    Ok(())
}

fn append(db: &Db, series: &[SeriesId], arrays: &Arrays) -> Result<()> {
    let mut batch = SampleBatch::with_capacity(SAMPLES_AT_ONCE);
    let parts = iter::zip(arrays.series.chunks(SAMPLES_AT_ONCE), arrays.times_ms.chunks(SAMPLES_AT_ONCE));
    for ((numbers, times_ms), values) in parts.zip(arrays.values.chunks(SAMPLES_AT_ONCE)) {
        batch.clear();
        batch.extend(
            numbers.iter().map(|number| series[*number as usize]),
            times_ms.iter().map(|time_ms| Timestamp::from_micros(time_ms * 1_000)),
            values.iter().copied().map(Value::Float),
        );
        db.append(&batch, Durability::Buffered)?;
        // What a server leaves to a thread of its own.
        if db.flush_due() {
            db.flush()?;
        }
    }
    Ok(())
}

/// What a program has that computes: one of each a sample.
struct Arrays {
    series: Vec<u32>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
}

impl Arrays {
    fn read(columns: &Path) -> Result<Self> {
        let arrays = Self {
            series: numbers(&columns.join("series.u32"), u32::from_le_bytes)?,
            times_ms: numbers(&columns.join("ts.i64"), i64::from_le_bytes)?,
            values: numbers(&columns.join("value.f64"), f64::from_le_bytes)?,
        };
        let samples = arrays.series.len();
        if arrays.times_ms.len() != samples || arrays.values.len() != samples {
            return Err(format!("{}: arrays of different lengths", columns.display()).into());
        }
        Ok(arrays)
    }
}

fn numbers<T, const N: usize>(path: &Path, number: fn([u8; N]) -> T) -> Result<Vec<T>> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (chunks, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(format!("{}: {} bytes are no numbers of {N} bytes", path.display(), bytes.len()).into());
    }
    Ok(chunks.iter().map(|chunk| number(*chunk)).collect())
}

/// The ids of the series by their numbers: a line each, a metric and its tags as JSON.
fn ids(db: &Db, listed: &str) -> Result<Vec<SeriesId>> {
    let id = |line: &str| {
        let (metric, tags) = line.split_once('\t').ok_or_else(|| format!("no metric and tags: {line}"))?;
        let tags: serde_json::Map<String, serde_json::Value> = serde_json::from_str(tags)?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let tags = TagSet::new(tags.iter().map(|(key, value)| (key.as_str(), text(value))))?;
        Ok(db.series(&SeriesKey::new(metric, tags)?)?)
    };
    listed.lines().map(id).collect()
}

fn resident_mb(name: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in /proc"))?;
    let kib: f64 = line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse()?;
    Ok(kib * 1024.0 / 1e6)
}

fn bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}
