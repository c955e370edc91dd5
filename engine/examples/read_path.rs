//! Measures the read path of the engine, in CPU time of the reading thread.
//!
//! ```text
//! cargo run --release -p telem-engine --example read_path [-- [--hosts N] [--dir DIR] [--memtable MIB]]
//! ```
//! The load is an hour of 100 hosts at one sample a second, with five metrics: a gauge with two decimals, a counter, a
//! percentage, a constant and a noisy loss. With `--dir` the database is kept there and reused. `--memtable` is the
//! size at which a memtable is flushed: a smaller one makes more segments of the hour; `0` leaves everything in memory.

use std::hint::black_box;
use std::path::PathBuf;

use telem_engine::downsample::{DownsampleRequest, Function};
use telem_engine::{
    Db, Durability, Options, SampleBatch, ScanColumn, ScanRequest, SeriesId, SeriesKey, Snapshot, Step, TagSet,
    TimeRange, Timestamp, Value, ValueRange,
};

type Failed = Box<dyn std::error::Error>;

const START_S: i64 = 1_799_996_400;
const SECONDS: i64 = 3_600;
const METRICS: [&str; 5] = ["gauge", "counter", "percent", "constant", "loss"];

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let (mut hosts, mut dir, mut memtable_mib) = (100, None, 96);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        match &*argument {
            "--hosts" => hosts = value.parse()?,
            "--dir" => dir = Some(PathBuf::from(value)),
            "--memtable" => memtable_mib = value.parse()?,
            _ => return Err(format!("no argument {argument}").into()),
        }
    }
    let temporary = std::env::temp_dir().join(format!("telem-read-path-{}", std::process::id()));
    let path = dir.clone().unwrap_or_else(|| temporary.clone());
    let memtable_bytes_flush = if memtable_mib == 0 { u64::MAX } else { memtable_mib << 20 };
    let options = Options { memtable_bytes_flush, memtable_bytes_max: u64::MAX, ..Options::default() };
    let db = Db::open(&path, options)?;
    if db.index().is_empty() {
        fill(&db, hosts)?;
        if memtable_mib > 0 {
            db.flush()?;
        }
    }
    println!("{} segments; microseconds of CPU, median of rounds", db.info()?.segment_files.len());
    let snapshot = db.snapshot();
    let of_metric = |metric: &str| snapshot.select(metric, &[]);
    for metric in METRICS {
        let series = of_metric(metric);
        let name = |what: &str| format!("{metric}: {what}");
        measure(&name("points of one series"), || points(&snapshot, &series[..1]))?;
        measure(&name("points of all"), || points(&snapshot, &series))?;
        measure(&name("rows of all"), || rows(&snapshot, &series))?;
        for function in [Function::Avg, Function::Max, Function::Dev, Function::Count] {
            let what = format!("{function:?} of all by minute");
            measure(&name(&what), || buckets(&snapshot, &series, function, 60))?;
        }
        measure(&name("Avg of all by hour"), || buckets(&snapshot, &series, Function::Avg, 3_600))?;
    }
    if dir.is_none() {
        std::fs::remove_dir_all(&temporary)?;
    }
    Ok(())
}

fn fill(db: &Db, hosts: usize) -> Result<(), Failed> {
    let mut series: Vec<(SeriesId, usize, f64)> = Vec::new();
    for host in 0..hosts {
        for (kind, metric) in METRICS.iter().enumerate() {
            let tags = TagSet::new([("host", format!("nid{host:05}"))])?;
            series.push((db.series(&SeriesKey::new(metric, tags)?)?, kind, host as f64));
        }
    }
    let mut state = 1_u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for second in 0..SECONDS {
        let mut batch = SampleBatch::with_capacity(series.len());
        for (id, kind, level) in &mut series {
            let value = match kind {
                0 => {
                    *level = (*level + unit() - 0.5).clamp(0.0, 100.0);
                    Value::Float((*level * 100.0).round() / 100.0)
                }
                1 => {
                    *level += (unit() * 4_000.0).floor();
                    Value::Int(*level as i64)
                }
                2 => {
                    *level = (*level + 3.0 * unit() - 1.5).clamp(0.0, 100.0);
                    Value::Int(*level as i64)
                }
                3 => Value::Int(*level as i64),
                _ => Value::Float(2.5 + unit()),
            };
            batch.push(*id, Timestamp::from_seconds(START_S + second), value);
        }
        if db.flush_due() {
            db.flush()?;
        }
        db.append(&batch, Durability::Buffered)?;
    }
    Ok(())
}

fn range() -> TimeRange {
    TimeRange::new(Timestamp::from_seconds(START_S), Timestamp::from_seconds(START_S + SECONDS))
}

fn points(snapshot: &Snapshot, series: &[SeriesId]) -> Result<usize, Failed> {
    let mut found = 0;
    for points in snapshot.points(series.to_vec(), range()) {
        found += black_box(points?).times.len();
    }
    Ok(found)
}

fn scan_of(series: &[SeriesId]) -> ScanRequest {
    let columns = ScanColumn::ALL.to_vec();
    ScanRequest {
        series: series.to_vec(),
        range: range(),
        columns,
        values: ValueRange::ALL,
        batch_rows: 8_192,
        limit: None,
    }
}

fn rows(snapshot: &Snapshot, series: &[SeriesId]) -> Result<usize, Failed> {
    let mut found = 0;
    for batch in snapshot.scan(scan_of(series)) {
        found += black_box(batch?).num_rows();
    }
    Ok(found)
}

fn buckets(snapshot: &Snapshot, series: &[SeriesId], function: Function, seconds: i64) -> Result<usize, Failed> {
    let step = Step::from_micros(seconds * 1_000_000).ok_or("a step is positive")?;
    let mut found = 0;
    for buckets in snapshot.downsample(DownsampleRequest { series: series.to_vec(), range: range(), step, function }) {
        found += black_box(buckets?).values.len();
    }
    Ok(found)
}

/// Runs it in nine rounds of 50 ms of CPU each, and prints what a run takes.
fn measure(name: &str, run: impl Fn() -> Result<usize, Failed>) -> Result<(), Failed> {
    let found = run()?;
    let mut rounds: Vec<f64> = Vec::new();
    while rounds.len() < 9 {
        let begun = cpu_nanos()?;
        let mut runs = 0_u32;
        while cpu_nanos()? - begun < 50_000_000 {
            black_box(run()?);
            runs += 1;
        }
        rounds.push((cpu_nanos()? - begun) as f64 / f64::from(runs) / 1e3);
    }
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name:<40} {:>10.1} ({:.1} to {:.1}), {found} found",
        rounds[rounds.len() / 2],
        rounds[0],
        rounds[rounds.len() - 1]
    );
    Ok(())
}

/// CPU time of this thread.
fn cpu_nanos() -> Result<u64, Failed> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?)
}
