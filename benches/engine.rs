//! Measures the engine: an append, a flush, and reading the points of one series.
//!
//! The load is 1,000 series with one sample a second each, in the order of time. A third are counters (Int); the rest
//! are floats with two decimals and floats with all their digits.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesId, SeriesKey, TagSet, TimeRange, Timestamp, Value};

const SERIES: u32 = 1_000;
const SECONDS: i64 = 600;

fn series(db: &Db) -> Vec<SeriesId> {
    (0..SERIES)
        .map(|at| {
            let tags = TagSet::new([("host", format!("nid{:03}", at / 10))]).expect("valid names");
            let key = SeriesKey::new(&format!("metric_{}", at % 10), tags).expect("valid name");
            db.series(&key).expect("fewer series than the limit")
        })
        .collect()
}

/// One sample of every series.
fn tick(series: &[SeriesId], second: i64) -> SampleBatch {
    let mut batch = SampleBatch::with_capacity(series.len());
    for (at, id) in series.iter().enumerate() {
        let step = second * 7 + at as i64;
        let value = match at % 3 {
            0 => Value::Int(step * 1_000),
            1 => Value::Float((step % 10_000) as f64 / 100.0),
            _ => Value::Float((step as f64).sin()),
        };
        batch.push(*id, Timestamp::from_seconds(1_767_322_800 + second), value);
    }
    batch
}

/// A database with [`SECONDS`] ticks; its directory goes with it.
fn filled() -> (tempfile::TempDir, Db, Vec<SeriesId>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    let series = series(&db);
    for second in 0..SECONDS {
        db.append(&tick(&series, second), Durability::Buffered).expect("room for it");
    }
    (dir, db, series)
}

fn append(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    let series = series(&db);
    let mut second = 0;
    let mut group = c.benchmark_group("append");
    group.throughput(Throughput::Elements(u64::from(SERIES)));
    group.bench_function("buffered tick of 1,000 series", |bencher| {
        bencher.iter_batched(
            || {
                if db.flush_due() {
                    db.flush().expect("space for it");
                }
                second += 1;
                tick(&series, second)
            },
            |batch| db.append(&batch, Durability::Buffered).expect("room for it"),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn flush(c: &mut Criterion) {
    let mut group = c.benchmark_group("flush");
    group.throughput(Throughput::Elements(u64::from(SERIES) * SECONDS as u64));
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    group.bench_function("600,000 samples of 1,000 series", |bencher| {
        bencher.iter_batched(
            filled,
            |(dir, db, _)| {
                db.flush().expect("space for it");
                (dir, db)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn points(c: &mut Criterion) {
    let (_dir, db, series) = filled();
    let mut group = c.benchmark_group("points");
    let read = |ids: Vec<SeriesId>| -> usize {
        db.snapshot().points(ids, TimeRange::ALL).map(|points| points.expect("good data").times.len()).sum()
    };
    let one = vec![series[SERIES as usize / 2]];
    group.throughput(Throughput::Elements(SECONDS as u64));
    group.bench_function("one series in the memtable", |bencher| bencher.iter(|| read(black_box(one.clone()))));
    db.flush().expect("space for it");
    group.bench_function("one series in a segment", |bencher| bencher.iter(|| read(black_box(one.clone()))));
    let mut all = series.clone();
    db.index().sort_canonical(&mut all);
    group.throughput(Throughput::Elements(u64::from(SERIES) * SECONDS as u64));
    group.bench_function("all series in a segment", |bencher| bencher.iter(|| read(black_box(all.clone()))));
    group.finish();
}

criterion_group!(benches, append, flush, points);
criterion_main!(benches);
