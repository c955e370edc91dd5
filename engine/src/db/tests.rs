use std::collections::BTreeMap;

use super::*;
use crate::series::TagSet;
use crate::snapshot::ScanRequest;
use crate::time::TimeRange;

/// A database in a directory of its own, and what it must hold.
struct Bed {
    dir: tempfile::TempDir,
    db: Db,
    expected: BTreeMap<String, BTreeMap<i64, Value>>,
}

impl Bed {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("db"), options).unwrap();
        Self { dir, db, expected: BTreeMap::new() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("db")
    }

    /// Appends one batch: metric, time in microseconds, value.
    fn append(&mut self, samples: &[(&str, i64, Value)]) {
        self.db.append(&batch(&self.db, samples), Durability::Buffered).unwrap();
        for (metric, time, value) in samples {
            self.expected.entry((*metric).to_owned()).or_default().insert(*time, *value);
        }
    }

    fn reopen(&mut self) {
        let path = self.path();
        // The old handle goes first: it holds the writer lock.
        self.db = Db::open_read_only(&path, Options::default()).unwrap();
        self.db = Db::open(&path, Options::default()).unwrap();
    }

    fn check(&self) {
        check_content(&self.db.snapshot(), &self.expected);
    }
}

fn key(metric: &str) -> SeriesKey {
    SeriesKey::new(metric, TagSet::new([("host", "nid001")]).unwrap()).unwrap()
}

fn batch(db: &Db, samples: &[(&str, i64, Value)]) -> SampleBatch {
    let mut batch = SampleBatch::default();
    for (metric, time, value) in samples {
        batch.push(db.series(&key(metric)).unwrap(), Timestamp::from_micros(*time), *value);
    }
    batch
}

/// Compares everything that a snapshot can be asked with `expected`.
fn check_content(snapshot: &Snapshot, expected: &BTreeMap<String, BTreeMap<i64, Value>>) {
    let mut ids: Vec<SeriesId> = (0..snapshot.index().len() as u32).map(SeriesId).collect();
    snapshot.index().sort_canonical(&mut ids);
    let mut found: BTreeMap<String, BTreeMap<i64, Value>> = BTreeMap::new();
    for points in snapshot.points(ids.clone(), TimeRange::ALL) {
        let points = points.unwrap();
        assert!(points.times.windows(2).all(|pair| pair[0] < pair[1]), "sorted, every time once");
        assert_eq!(points.times.len(), points.values.len());
        let metric = snapshot.index().key(points.series).unwrap().metric().to_owned();
        let samples = (0..points.times.len()).map(|at| (points.times[at].micros(), points.values.get(at)));
        assert!(found.insert(metric, samples.collect()).is_none(), "every series once");
    }
    assert_eq!(&found, expected);
    for id in &ids {
        let metric = snapshot.index().key(*id).unwrap().metric().to_owned();
        let last = expected.get(&metric).and_then(|samples| samples.last_key_value());
        let last = last.map(|(time, value)| (Timestamp::from_micros(*time), *value));
        assert_eq!(snapshot.last(*id).unwrap(), last, "last of {metric}");
        assert_eq!(snapshot.has_points(*id, TimeRange::ALL).unwrap(), last.is_some());
    }
    let request = ScanRequest { series: ids, range: TimeRange::ALL, batch_rows: 7 };
    let rows: usize = snapshot.scan(request).map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, expected.values().map(BTreeMap::len).sum::<usize>());
}

const HOUR: i64 = 3_600_000_000;

#[test]
fn samples_are_there_before_and_after_a_flush_and_after_a_reopen() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1)), ("b", 2, Value::Float(0.5)), ("a", 2, Value::Int(3))]);
    bed.check();
    bed.reopen();
    bed.check();
    assert_eq!(bed.db.recovery().samples, 3);
    assert_eq!(bed.db.recovery().series, 2);
    let report = bed.db.flush().unwrap();
    assert_eq!((report.samples, report.segments, report.series), (3, 1, 2));
    bed.check();
    bed.append(&[("c", 7, Value::Int(7)), ("a", 3, Value::Int(4))]);
    bed.check();
    bed.reopen();
    assert_eq!(bed.db.recovery().samples, 2);
    bed.check();
    bed.db.close().unwrap();
    bed.reopen();
    assert_eq!(bed.db.recovery().frames, 0);
    bed.check();
}

#[test]
fn the_last_write_wins_across_memtables_segments_and_a_reopen() {
    let mut bed = Bed::new();
    bed.append(&[("a", 5, Value::Int(1)), ("a", 5, Value::Float(2.0))]);
    bed.db.flush().unwrap();
    bed.append(&[("a", 5, Value::Int(3)), ("a", 4, Value::Int(0)), ("a", 5, Value::Int(4))]);
    bed.check();
    bed.db.flush().unwrap();
    bed.check();
    bed.append(&[("a", 5, Value::Float(-0.0))]);
    bed.check();
    bed.reopen();
    bed.check();
    bed.db.flush().unwrap();
    bed.reopen();
    bed.check();
}

#[test]
fn extreme_values_and_times_are_stored_bit_for_bit() {
    let mut bed = Bed::new();
    let floats = [f64::NAN, f64::from_bits(0x7ff0_dead_beef_0001), -0.0, f64::INFINITY, f64::MIN_POSITIVE, f64::MIN];
    let ints = [i64::MIN, i64::MAX, 0, -1, i64::MIN];
    let times = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX - 2, HOUR];
    let values = floats.map(Value::Float).into_iter().chain(ints.map(Value::Int));
    let samples: Vec<(&str, i64, Value)> = values
        .enumerate()
        .flat_map(|(at, value)| {
            times.map(|time| (["a", "b", "c"][at % 3], time.saturating_add(at as i64).min(i64::MAX - 1), value))
        })
        .collect();
    bed.append(&samples);
    bed.check();
    bed.reopen();
    bed.check();
    bed.db.flush().unwrap();
    bed.check();
    bed.reopen();
    bed.check();
}

#[test]
fn a_snapshot_sees_what_it_saw_through_appends_flushes_and_the_end_of_the_database() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    let (first, seen_first) = (bed.db.snapshot(), bed.expected.clone());
    bed.append(&[("a", 1, Value::Int(2)), ("b", 1, Value::Int(2))]);
    bed.db.flush().unwrap();
    let (second, seen_second) = (bed.db.snapshot(), bed.expected.clone());
    bed.append(&[("a", 1, Value::Int(3)), ("c", HOUR, Value::Int(2))]);
    bed.db.close().unwrap();
    check_content(&first, &seen_first);
    check_content(&second, &seen_second);
    bed.check();
}
