use std::collections::BTreeMap;
use std::ops::Bound;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};

use super::*;
use crate::clock::sim::SimClock;
use crate::series::TagSet;
use crate::snapshot::{ScanColumn, ScanRequest};
use crate::time::TimeRange;
use crate::value::{ValueRange, Values};

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
    let rows = |limit| -> usize {
        let (series, range) = (ids.clone(), TimeRange::ALL);
        let request = ScanRequest { series, range, columns: Vec::new(), values: ValueRange::ALL, batch_rows: 7, limit };
        snapshot.scan(request).map(|batch| batch.unwrap().num_rows()).sum()
    };
    let all: usize = expected.values().map(BTreeMap::len).sum();
    assert_eq!(rows(None), all);
    for limit in [0, 1, 8, all] {
        assert_eq!(rows(Some(limit)), limit.min(all));
    }
    check_values(snapshot, &ids, expected);
}

/// Compares what scans find of some values with `expected`.
fn check_values(snapshot: &Snapshot, ids: &[SeriesId], expected: &BTreeMap<String, BTreeMap<i64, Value>>) {
    let mut values: Vec<f64> =
        expected.values().flat_map(BTreeMap::values).map(|value| value.as_f64()).chain([-0.0]).collect();
    values.sort_unstable_by(f64::total_cmp);
    let [low, middle, high] = [values[values.len() / 4], values[values.len() / 2], values[values.len() * 9 / 10]];
    for (from, to) in [
        (Bound::Unbounded, Bound::Excluded(low)),
        (Bound::Included(low), Bound::Included(middle)),
        (Bound::Excluded(middle), Bound::Excluded(high)),
        (Bound::Excluded(high), Bound::Unbounded),
    ] {
        let range = ValueRange::new(from, to);
        for (columns, limit) in [(&ScanColumn::ALL[..], None), (&[ScanColumn::Ts], Some(2)), (&[], None)] {
            let mut found = Vec::new();
            let mut rows = 0;
            for batch in snapshot.scan(ScanRequest {
                series: ids.to_vec(),
                range: TimeRange::ALL,
                columns: columns.to_vec(),
                values: range,
                batch_rows: 3,
                limit,
            }) {
                let batch = batch.unwrap();
                rows += batch.num_rows();
                found.push(batch);
            }
            let names = ids.iter().filter_map(|id| Some((*id, snapshot.index().key(*id)?)));
            let wanted = names.flat_map(|(id, key)| {
                let samples = expected.get(key.metric()).into_iter().flatten();
                samples.map(move |(time, value)| (id, *time, *value))
            });
            let wanted: Vec<_> = wanted.filter(|(_, _, value)| range.contains(value.as_f64())).collect();
            assert_eq!(rows, wanted.len().min(limit.unwrap_or(usize::MAX)), "{range}");
            if columns.len() == ScanColumn::ALL.len() {
                let found: Vec<_> = found.iter().flat_map(samples_of).collect();
                assert_eq!(found, wanted, "{range}");
            } else if let [ScanColumn::Ts] = columns {
                let times =
                    found.iter().flat_map(|batch| batch.column(0).as_primitive::<TimestampMicrosecondType>().values());
                assert!(times.copied().eq(wanted.iter().take(rows).map(|(_, time, _)| *time)), "{range}");
            }
        }
    }
}

/// The samples of a batch of all columns.
fn samples_of(batch: &RecordBatch) -> Vec<(SeriesId, i64, Value)> {
    let series = batch.column(0).as_primitive::<UInt32Type>();
    let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
    let floats = batch.column(2).as_primitive::<Float64Type>();
    let ints = batch.column(3).as_primitive::<Int64Type>();
    let value = |at| if ints.is_valid(at) { Value::Int(ints.value(at)) } else { Value::Float(floats.value(at)) };
    (0..batch.num_rows()).map(|at| (SeriesId(series.value(at)), times.value(at), value(at))).collect()
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

#[test]
fn a_snapshot_selects_the_same_series_however_many_come_later() {
    let mut bed = Bed::new();
    bed.append(&[("m", 1, Value::Int(1))]);
    let snapshot = bed.db.snapshot();
    let before = (snapshot.metrics(), snapshot.select("m", &[]));
    let tags = TagSet::new([("host", "a")]).unwrap();
    bed.db.series(&SeriesKey::new("m", tags).unwrap()).unwrap();
    bed.append(&[("a", 2, Value::Int(2))]);
    assert_eq!((snapshot.metrics(), snapshot.select("m", &[])), before);
    assert!(snapshot.select("a", &[]).is_empty());
    assert_eq!(bed.db.snapshot().select("m", &[]).len(), 2);
    assert_eq!(bed.db.snapshot().metrics().len(), 2);
}

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

#[test]
fn a_second_writer_is_refused_and_told_who_writes() {
    let bed = Bed::new();
    let error = Db::open(&bed.path(), Options::default()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let reader = Db::open_read_only(&bed.path(), Options::default()).unwrap();
    assert!(reader.is_read_only());
}

#[test]
fn a_closed_database_refuses_writes_and_its_directory_can_be_opened_again() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    bed.db.close().unwrap();
    let id = bed.db.series(&key("a")).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(id, Timestamp::from_micros(1), Value::Int(2));
    for error in [
        bed.db.append(&batch, Durability::Synced).unwrap_err(),
        bed.db.series(&key("new")).unwrap_err(),
        bed.db.sync().unwrap_err(),
        bed.db.flush().unwrap_err(),
        bed.db.close().unwrap_err(),
    ] {
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    }
    assert!(!bed.db.flush_due());
    bed.check();
    bed.reopen();
    bed.check();
}

/// A node that sends little would else keep days of it in memory.
#[test]
fn a_flush_is_due_an_hour_after_the_first_sample_that_waits_for_it() {
    let clock = Arc::new(SimClock::at(Timestamp::from_seconds(1_800_000_000)));
    let mut bed = Bed::with(options(|options| options.clock = Arc::<SimClock>::clone(&clock)));
    clock.advance(Duration::from_secs(3_600));
    assert!(!bed.db.flush_due(), "nothing waits");
    bed.append(&[("a", 1, Value::Int(1))]);
    clock.advance(Duration::from_secs(3_599));
    bed.append(&[("a", 2, Value::Int(1))]);
    assert!(!bed.db.flush_due());
    clock.jump_to(Timestamp::from_seconds(0));
    clock.advance(Duration::from_secs(1));
    assert!(bed.db.flush_due(), "the wall clock has no say");
    bed.db.flush().unwrap();
    assert!(!bed.db.flush_due());
    bed.append(&[("a", 3, Value::Int(1))]);
    assert!(!bed.db.flush_due(), "its hour begins anew");
}

#[test]
fn a_read_only_database_reads_the_wal_and_writes_nothing() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    bed.db.flush().unwrap();
    bed.append(&[("b", 1, Value::Int(1))]);
    let files = |path: &std::path::Path| -> Vec<(std::path::PathBuf, u64)> {
        let mut found = Vec::new();
        for dir in ["", "wal", "segments", "series", "meta"] {
            for entry in std::fs::read_dir(path.join(dir)).unwrap() {
                let entry = entry.unwrap();
                found.push((entry.path(), entry.metadata().unwrap().len()));
            }
        }
        found
    };
    let before = files(&bed.path());
    let reader = Db::open_read_only(&bed.path(), Options::default()).unwrap();
    check_content(&reader.snapshot(), &bed.expected);
    assert_eq!(reader.info().unwrap().samples, 2);
    let id = reader.series(&key("a")).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(id, Timestamp::from_micros(1), Value::Int(2));
    for error in [
        reader.append(&batch, Durability::Buffered).unwrap_err(),
        reader.series(&key("new")).unwrap_err(),
        reader.flush().unwrap_err(),
        reader.close().unwrap_err(),
    ] {
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    }
    drop(reader);
    assert_eq!(files(&bed.path()), before);
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    let error = Db::open(dir.path(), Options::default()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::NotFound);
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["thesis.tex"]);
}

#[test]
fn a_full_memtable_refuses_a_batch_whole_and_takes_it_after_a_flush() {
    let mut bed = Bed::with(options(|options| options.memtable_bytes_max = 1_000));
    bed.append(&[("a", 1, Value::Int(1))]);
    let id = bed.db.series(&key("a")).unwrap();
    let room = 1_000 - bed.db.inner.view().active.bytes();
    let fill = |samples: u64| {
        let mut batch = SampleBatch::default();
        for at in 0..samples {
            batch.push(id, Timestamp::from_micros(at as i64), Value::Int(0));
        }
        batch
    };
    let wal = bed.db.info().unwrap().wal_bytes;
    let error = bed.db.append(&fill(room / SAMPLE_BYTES + 1), Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Busy);
    assert_eq!(bed.db.info().unwrap().wal_bytes, wal, "what is refused is not logged");
    bed.check();
    bed.db.append(&fill(room / SAMPLE_BYTES), Durability::Buffered).unwrap();
    assert!(bed.db.append(&fill(1), Durability::Buffered).is_err());
    bed.db.flush().unwrap();
    bed.db.append(&fill(1), Durability::Buffered).unwrap();
}

#[test]
fn a_flush_is_due_when_memtable_or_wal_have_grown_to_their_limits_and_not_before() {
    let tick = |bed: &mut Bed, second: i64| bed.append(&[("a", second * 1_000_000, Value::Int(second))]);
    for by_wal in [false, true] {
        let mut bed = Bed::new();
        tick(&mut bed, 0);
        let (memtable, wal) = (bed.db.inner.view().active.bytes(), bed.db.info().unwrap().wal_bytes);
        let limited = move |options: &mut Options| match by_wal {
            true => options.wal_bytes_flush = wal + 1,
            false => options.memtable_bytes_flush = memtable + 1,
        };
        let mut bed = Bed::with(options(limited));
        tick(&mut bed, 0);
        assert!(!bed.db.flush_due(), "one byte is missing, by the WAL: {by_wal}");
        tick(&mut bed, 1);
        assert!(bed.db.flush_due(), "by the WAL: {by_wal}");
        bed.db.flush().unwrap();
        assert!(!bed.db.flush_due());
    }
}

#[test]
fn a_database_takes_as_many_series_as_it_may_and_those_for_ever() {
    let bed = Bed::with(options(|options| options.series_max = 3));
    for metric in ["a", "b", "c"] {
        bed.db.series(&key(metric)).unwrap();
    }
    let error = bed.db.series(&key("d")).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    assert!(error.to_string().contains("series_max"), "{error}");
    assert_eq!(bed.db.series(&key("a")).unwrap(), crate::SeriesId(0));
    assert_eq!(bed.db.index().len(), 3);
}

#[test]
fn files_that_may_not_grow_refuse_appends_and_what_is_there_stays() {
    let bed = Bed::with(options(|options| options.bytes_max = 20_000));
    let mut at = 0;
    let mut flushed = 0;
    loop {
        let id = bed.db.series(&key("a")).unwrap();
        let mut batch = SampleBatch::default();
        for _ in 0..50 {
            batch.push(id, Timestamp::from_micros(at), Value::Float((at as f64).sqrt()));
            at += 1;
        }
        match bed.db.append(&batch, Durability::Buffered) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, Error::DatabaseFull { max: 20_000, .. }), "{error}");
                at -= 50;
                break;
            }
        }
        assert!(bed.db.info().unwrap().bytes <= 20_000);
        if bed.db.flush_due() {
            bed.db.flush().unwrap();
            flushed += 1;
        }
    }
    assert!(flushed > 1, "a WAL makes room by being flushed");
    assert_eq!(bed.db.info().unwrap().samples, at as u64);
}

#[test]
fn a_wal_of_half_of_what_files_may_hold_is_behind_until_it_is_flushed() {
    let bed = Bed::with(options(|options| options.bytes_max = 20_000));
    let id = bed.db.series(&key("a")).unwrap();
    let mut at = 0;
    let mut append = || {
        let mut batch = SampleBatch::default();
        for _ in 0..50 {
            batch.push(id, Timestamp::from_micros(at), Value::Int(at));
            at += 1;
        }
        bed.db.append(&batch, Durability::Buffered).unwrap();
        bed.db.info().unwrap().wal_bytes
    };
    while append() <= 10_000 {
        assert!(!bed.db.flush_is_behind());
    }
    assert!(bed.db.flush_is_behind() && bed.db.flush_due());
    bed.db.flush().unwrap();
    assert!(!bed.db.flush_is_behind());
}

#[test]
fn a_batch_holds_as_many_samples_as_it_may_and_with_one_more_it_is_refused_whole() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    let mut largest = SampleBatch::with_capacity(SAMPLES_MAX + 1);
    for _ in 0..SAMPLES_MAX {
        largest.push(SeriesId(0), Timestamp::from_micros(2), Value::Int(2));
    }
    // To append it takes seconds and a gigabyte.
    bed.db.inner.check_batch(&largest).unwrap();
    largest.push(SeriesId(0), Timestamp::from_micros(2), Value::Int(2));
    let error = bed.db.append(&largest, Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    assert!(error.to_string().contains("10000001") && error.to_string().contains("10000000"), "{error}");
    bed.check();
}

#[test]
fn after_a_flush_that_failed_none_is_due_before_the_time_for_another_attempt() {
    let clock = Arc::new(SimClock::at(Timestamp::from_seconds(1_800_000_000)));
    let mut bed = Bed::with(options(|options| {
        options.clock = Arc::<SimClock>::clone(&clock);
        options.memtable_bytes_flush = 1;
    }));
    bed.append(&[("a", 1, Value::Int(1))]);
    let segments = bed.path().join("segments");
    std::fs::remove_dir_all(&segments).unwrap();
    std::fs::write(&segments, "no directory").unwrap();
    assert!(bed.db.flush_due());
    bed.db.flush().unwrap_err();
    clock.advance(Options::default().flush_retry.saturating_sub(Duration::from_millis(1)));
    assert!(!bed.db.flush_due(), "one millisecond is missing");
    clock.advance(Duration::from_millis(1));
    assert!(bed.db.flush_due());
    std::fs::remove_file(&segments).unwrap();
    std::fs::create_dir(&segments).unwrap();
    bed.db.flush().unwrap();
    bed.check();
}

#[test]
fn a_batch_with_an_unknown_series_or_the_last_microsecond_is_refused_whole() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    let mut unknown = batch(&bed.db, &[("a", 2, Value::Int(2))]);
    unknown.push(SeriesId(1), Timestamp::from_micros(2), Value::Int(2));
    let error = bed.db.append(&unknown, Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::NotFound);
    let late = batch(&bed.db, &[("a", 2, Value::Int(2)), ("a", i64::MAX, Value::Int(2))]);
    let error = bed.db.append(&late, Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    bed.db.append(&SampleBatch::default(), Durability::Synced).unwrap();
    bed.check();
}

#[test]
fn ids_given_out_without_a_sample_do_not_disturb_those_after_them() {
    let mut bed = Bed::new();
    bed.db.series(&key("never")).unwrap();
    bed.append(&[("a", 1, Value::Int(1))]);
    bed.db.series(&key("later")).unwrap();
    bed.reopen();
    bed.append(&[("other", 1, Value::Int(2)), ("later", 1, Value::Int(3))]);
    bed.reopen();
    bed.check();
    bed.db.flush().unwrap();
    bed.db.series(&key("never again")).unwrap();
    bed.append(&[("z", 1, Value::Int(2))]);
    bed.reopen();
    bed.check();
    bed.db.close().unwrap();
    bed.reopen();
    bed.check();
}

#[test]
fn the_last_value_is_known_from_memory_and_after_an_open_from_segments() {
    let mut bed = Bed::new();
    bed.append(&[("a", 5, Value::Int(1)), ("a", 3, Value::Int(2)), ("b", 2 * HOUR, Value::Int(3))]);
    bed.append(&[("a", 5, Value::Int(4)), ("c", 1, Value::Int(1))]);
    let last = |bed: &Bed, metric: &str| bed.db.last(bed.db.index().id(&key(metric)).unwrap()).unwrap();
    let at = |time, value| Some((Timestamp::from_micros(time), Value::Int(value)));
    assert_eq!([last(&bed, "a"), last(&bed, "b")], [at(5, 4), at(2 * HOUR, 3)]);
    bed.db.flush().unwrap();
    bed.reopen();
    assert_eq!([last(&bed, "a"), last(&bed, "b")], [at(5, 4), at(2 * HOUR, 3)]);
    bed.append(&[("a", 4, Value::Int(9)), ("b", 2 * HOUR, Value::Int(5)), ("c", 0, Value::Int(7))]);
    assert_eq!([last(&bed, "a"), last(&bed, "b"), last(&bed, "c")], [at(5, 4), at(2 * HOUR, 5), at(1, 1)]);
    bed.reopen();
    bed.append(&[("a", 5, Value::Int(6))]);
    assert_eq!([last(&bed, "a"), last(&bed, "b"), last(&bed, "c")], [at(5, 6), at(2 * HOUR, 5), at(1, 1)]);
}

#[test]
fn metadata_survives_in_the_wal_and_in_its_file() {
    let mut bed = Bed::new();
    let change = |kind| MetaChange::Metric {
        name: "cpu".into(),
        meta: crate::meta::MetricMeta { kind, unit: "s".to_owned(), help: String::new() },
    };
    let kind = |bed: &Bed| bed.db.snapshot().meta().metric("cpu").unwrap().kind;
    bed.db.put_meta(change(crate::MetricKind::Gauge), Durability::Synced).unwrap();
    bed.reopen();
    assert_eq!(kind(&bed), crate::MetricKind::Gauge);
    bed.db.flush().unwrap();
    bed.reopen();
    assert_eq!(bed.db.recovery().frames, 0);
    assert_eq!(kind(&bed), crate::MetricKind::Gauge);
    bed.db.put_meta(change(crate::MetricKind::Counter), Durability::Buffered).unwrap();
    bed.reopen();
    bed.db.close().unwrap();
    bed.reopen();
    assert_eq!(kind(&bed), crate::MetricKind::Counter);
}

#[test]
fn what_several_say_of_a_metric_at_once_is_all_kept() {
    let mut bed = Bed::new();
    let of = |kind, unit: &str, help: &str| crate::MetricMeta { kind, unit: unit.to_owned(), help: help.to_owned() };
    let unknown = crate::MetricKind::Unknown;
    let parts = [of(crate::MetricKind::Gauge, "", ""), of(unknown, "W", ""), of(unknown, "", "Of the board.")];
    let names: Vec<String> = (0..200).map(|at| format!("power.{at}")).collect();
    let together = std::sync::Barrier::new(parts.len());
    std::thread::scope(|scope| {
        for part in &parts {
            scope.spawn(|| {
                together.wait();
                names.iter().for_each(|name| bed.db.complete_metric(name, part, names.len()).unwrap());
            });
        }
    });
    bed.db.complete_metric("one more", &parts[0], names.len()).unwrap();
    bed.db.complete_metric(&names[0], &of(crate::MetricKind::Counter, "J", "?"), 0).unwrap();
    bed.reopen();
    let snapshot = bed.db.snapshot();
    assert_eq!(snapshot.meta().metrics().len(), names.len(), "no more than there is room for");
    for name in &names {
        assert_eq!(snapshot.meta().metric(name), Some(&of(crate::MetricKind::Gauge, "W", "Of the board.")), "{name}");
    }
}

#[test]
fn a_hundred_thousand_series_come_back() {
    let bed = Bed::new();
    let mut batch = SampleBatch::default();
    for at in 0..100_000 {
        let key = SeriesKey::new("m", TagSet::new([("n", at.to_string())]).unwrap()).unwrap();
        batch.push(bed.db.series(&key).unwrap(), Timestamp::from_micros(7), Value::Int(at));
    }
    bed.db.append(&batch, Durability::Buffered).unwrap();
    bed.db.flush().unwrap();
    let path = bed.path();
    drop(bed.db);
    let db = Db::open(&path, Options::default()).unwrap();
    let ids = db.index().select("m", &[]);
    let mut sum = 0;
    for points in db.snapshot().points(ids, TimeRange::ALL) {
        let points = points.unwrap();
        let key = db.index().key(points.series).unwrap();
        let Values::Int(ints) = points.values else { panic!("ints were stored") };
        assert_eq!(key.tags().get("n"), Some(&*ints[0].to_string()));
        sum += ints[0];
    }
    assert_eq!(sum, 99_999 * 50_000);
}

#[test]
fn a_range_and_a_choice_of_series_are_read_across_segments_in_the_order_asked_for() {
    let mut bed = Bed::new();
    for hour in 0..5 {
        for metric in ["a", "b", "c", "d"] {
            let samples: Vec<_> = (0..50).map(|at| (metric, hour * HOUR + at, Value::Int(hour * 100 + at))).collect();
            bed.append(&samples);
        }
        if hour % 2 == 1 {
            bed.db.flush().unwrap();
        }
    }
    let [a, b, d] = ["a", "b", "d"].map(|metric| bed.db.index().id(&key(metric)).unwrap());
    let range = TimeRange::new(Timestamp::from_micros(HOUR + 49), Timestamp::from_micros(4 * HOUR + 1));
    let points: Vec<_> = bed.db.snapshot().points(vec![d, a, d, b], range).map(Result::unwrap).collect();
    assert_eq!(points.iter().map(|points| points.series).collect::<Vec<_>>(), [d, a, d, b]);
    for points in points {
        assert_eq!(points.times.len(), 1 + 50 + 50 + 1);
        assert_eq!(points.values.get(0), Value::Int(149));
        assert_eq!(points.values.get(101), Value::Int(400));
    }
    let between = TimeRange::new(Timestamp::from_micros(HOUR + 50), Timestamp::from_micros(2 * HOUR));
    assert!(!bed.db.snapshot().has_points(a, between).unwrap());
    let inside = TimeRange::new(Timestamp::from_micros(HOUR + 7), Timestamp::from_micros(HOUR + 8));
    assert!(bed.db.snapshot().has_points(a, inside).unwrap());
}

#[test]
fn a_backfill_of_many_hours_makes_few_segments() {
    for (samples, segments) in [(48, 48), (49, 3)] {
        let mut bed = Bed::new();
        let samples: Vec<_> = (0..samples).map(|at| ("a", at * HOUR, Value::Int(at))).collect();
        bed.append(&samples);
        assert_eq!(bed.db.flush().unwrap().segments, segments, "{} hours", samples.len());
        bed.check();
    }
}

#[test]
fn info_counts_what_is_there() {
    let mut bed = Bed::new();
    assert_eq!(bed.db.info().unwrap().time_bounds, None);
    bed.append(&[("a", 5, Value::Int(1)), ("b", HOUR, Value::Int(2))]);
    bed.db.flush().unwrap();
    bed.append(&[("c", -7, Value::Int(3))]);
    let info = bed.db.info().unwrap();
    assert_eq!((info.samples, info.samples_unflushed, info.series, info.metrics), (3, 1, 3, 3));
    assert_eq!(info.time_bounds, Some((Timestamp::from_micros(-7), Timestamp::from_micros(HOUR))));
    assert_eq!((info.segment_files.len(), info.series_files.len()), (2, 1));
    assert!(info.segment_files.iter().chain(&info.series_files).all(|path| path.is_file()));
    assert_eq!(info.node, "local");
}

#[test]
fn answers_do_not_depend_on_how_many_segments_stay_in_memory() {
    let mut bed = Bed::with(options(|options| (options.segment_files_max, options.segment_bytes_max) = (1, 0)));
    for round in 0..4 {
        for metric in ["b", "a", "c"] {
            let samples: Vec<_> = (0..9).map(|at| (metric, at * (round + 1), Value::Int(at * round))).collect();
            bed.append(&samples);
        }
        bed.db.flush().unwrap();
        bed.check();
    }
    bed.check();
}

#[test]
fn a_long_series_is_scanned_in_parts_and_loses_nothing() {
    const ROWS: i64 = 300_000;
    for late in [0, 1] {
        let mut bed = Bed::new();
        // Ticks that are regular, or come late each in its own way; the first part mixed with a short series.
        let time = |at: i64| at * 1_000 + late * (at * at % 911);
        bed.append(&(0..ROWS).map(|at| ("a", time(at), Value::Int(at))).collect::<Vec<_>>());
        bed.append(&[("b", 5, Value::Float(0.5)), ("b", 6, Value::Int(2))]);
        bed.db.flush().unwrap();
        bed.check();
        // Over the middle of it: overwritten in a second segment and in memory.
        bed.append(&(1_000..5_000).map(|at| ("a", time(at), Value::Int(-at))).collect::<Vec<_>>());
        bed.db.flush().unwrap();
        bed.append(&(4_000..9_000).map(|at| ("a", time(at) + 1, Value::Float(0.25))).collect::<Vec<_>>());
        bed.check();
        let (a, b) = (bed.db.index().id(&key("a")).unwrap(), bed.db.index().id(&key("b")).unwrap());
        let range = TimeRange::new(Timestamp::from_micros(time(3)), Timestamp::from_micros(time(ROWS - 3)));
        let columns = ScanColumn::ALL.to_vec();
        let request = ScanRequest {
            series: vec![a, b, a],
            range,
            columns,
            values: ValueRange::ALL,
            batch_rows: 1 << 20,
            limit: None,
        };
        let mut rows = Vec::new();
        for batch in bed.db.snapshot().scan(request) {
            let batch = batch.unwrap();
            let series = batch.column(0).as_any().downcast_ref::<arrow::array::UInt32Array>().unwrap();
            let times = batch.column(1).as_any().downcast_ref::<arrow::array::TimestampMicrosecondArray>().unwrap();
            let values = batch.column(2).as_any().downcast_ref::<arrow::array::Float64Array>().unwrap();
            for row in 0..batch.num_rows() {
                rows.push((series.value(row), times.value(row), values.value(row)));
            }
        }
        let row = |id: SeriesId| move |(time, value): (&i64, &Value)| (id.0, *time, value.as_f64());
        let of_a: Vec<(u32, i64, f64)> = bed.expected["a"].range(time(3)..time(ROWS - 3)).map(row(a)).collect();
        let of_b: Vec<(u32, i64, f64)> = bed.expected["b"].range(time(3)..).map(row(b)).collect();
        assert!(rows == [of_a.clone(), of_b, of_a].concat());
    }
}

/// All samples of a series that have such values.
fn of_values(values: ValueRange, series: SeriesId) -> ScanRequest {
    let columns = ScanColumn::ALL.to_vec();
    ScanRequest { series: vec![series], range: TimeRange::ALL, columns, values, batch_rows: 8_192, limit: None }
}

#[test]
fn a_scan_that_finds_nothing_for_long_says_so_in_between() {
    const ROWS: i64 = 600_000;
    let mut bed = Bed::new();
    bed.append(&(0..ROWS).map(|at| ("a", at, Value::Int(at % 100 * 2))).collect::<Vec<_>>());
    bed.db.flush().unwrap();
    // Between two values, so that no summary tells that there is none.
    let odd = ValueRange::new(Bound::Included(51.0), Bound::Included(51.0));
    let request = of_values(odd, bed.db.index().id(&key("a")).unwrap());
    let rows: Vec<usize> = bed.db.snapshot().scan(request).map(|batch| batch.unwrap().num_rows()).collect();
    assert!(rows.len() > 1 && rows.iter().all(|rows| *rows == 0), "{rows:?}");
}

#[test]
fn samples_whose_summary_tells_that_none_is_wanted_are_not_read() {
    let mut bed = Bed::new();
    bed.append(&(0..1_000).map(|at| ("a", at, Value::Float((at as f64).sin()))).collect::<Vec<_>>());
    bed.db.flush().unwrap();
    let segments = std::fs::read_dir(bed.path().join("segments")).unwrap();
    let files: Vec<std::path::PathBuf> = segments.map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let mut bytes = std::fs::read(file).unwrap();
    // Behind the magic number at its start is a page.
    bytes[100] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let found = |from: f64| -> crate::Result<usize> {
        let request = of_values(ValueRange::new(Bound::Excluded(from), Bound::Unbounded), SeriesId(0));
        bed.db.snapshot().scan(request).map(|batch| batch.map(|batch| batch.num_rows())).sum()
    };
    assert_eq!(found(1.0).unwrap(), 0);
    assert!(matches!(found(0.5), Err(Error::Corrupt { .. })), "{:?}", found(0.5));
}

#[test]
fn nothing_is_durable_in_a_directory_that_was_moved_removed_or_replaced() {
    let mut bed = Bed::new();
    bed.append(&[("a", 1, Value::Int(1))]);
    bed.db.sync().unwrap();
    let aside = bed.dir.path().join("aside");
    std::fs::rename(bed.path(), &aside).unwrap();
    bed.append(&[("a", 2, Value::Int(2))]);
    let error = bed.db.sync().unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(error.to_string().contains("was removed, moved or replaced"), "{error}");
    bed.check();

    // Another directory in its place is not it, even with files of the same names.
    std::fs::create_dir_all(bed.path().join("wal")).unwrap();
    for file in std::fs::read_dir(aside.join("wal")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), bed.path().join("wal").join(file.file_name())).unwrap();
    }
    assert!(matches!(bed.db.sync(), Err(Error::Removed { .. })));

    // A writer that begins a new WAL file does not begin it in what others have put there.
    assert!(bed.db.flush().is_err());
    bed.db.append(&batch(&bed.db, &[("a", 3, Value::Int(3))]), Durability::Buffered).unwrap_err();

    std::fs::remove_dir_all(bed.path()).unwrap();
    std::fs::rename(&aside, bed.path()).unwrap();
    bed.db.flush().unwrap();
    bed.append(&[("a", 4, Value::Int(4))]);
    bed.db.sync().unwrap();
    bed.reopen();
    bed.check();
}

#[test]
fn a_series_that_one_of_many_jobs_left_takes_a_hundred_and_twenty_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (jobs, metrics) = (200, 100);
    for job in 0..jobs {
        let mut batch = SampleBatch::default();
        for metric in 0..metrics {
            let slot = job.to_string();
            let tags = TagSet::new([("host", "node"), (crate::meta::JOB_SLOT_TAG, &slot)]).unwrap();
            let series = db.series(&SeriesKey::new(&format!("metric_{metric}"), tags).unwrap()).unwrap();
            batch.push(series, Timestamp::from_seconds(job), Value::Int(metric));
        }
        db.append(&batch, Durability::Buffered).unwrap();
    }
    let held = || {
        let (index, memtable) = (db.inner.index.bytes(), db.inner.view().active.bytes() as usize);
        (index.names + index.series + db.inner.last.bytes() + memtable) as i64 / (jobs * metrics)
    };
    let before = held();
    db.flush().unwrap();
    let after = held();
    assert!(before < 120 && after < 75, "{before} bytes, {after} once they are in segments");
}

#[test]
fn what_is_held_grows_with_what_is_in_it_and_samples_leave_with_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let before = db.held();
    let (series, samples) = (2_000, 4);
    let mut batch = SampleBatch::default();
    for number in 0..series {
        let tags = TagSet::new([("name", &*format!("number_{number}"))]).unwrap();
        let id = db.series(&SeriesKey::new("metric", tags).unwrap()).unwrap();
        (0..samples).for_each(|second| batch.push(id, Timestamp::from_seconds(second), Value::Int(number)));
    }
    db.append(&batch, Durability::Buffered).unwrap();
    let text = "a counter, ".repeat(1_000);
    let record = crate::meta::StateRecord::new("kind", "key", text.clone());
    db.put_meta(MetaChange::Record(record), Durability::Buffered).unwrap();
    let after = db.held();
    let grown = |part: fn(&DbFootprint) -> u64| part(&after) - part(&before);
    let (series, samples) = (series as u64, samples as u64);
    for (what, bytes, least, most) in [
        (
            "memtables",
            grown(|held| held.memtables),
            series * samples * SAMPLE_BYTES,
            4 * series * samples * SAMPLE_BYTES,
        ),
        ("names", grown(|held| held.names), series * 8, series * 80),
        ("index", grown(|held| held.index), series * 2 * 12, series * 120),
        ("last values", grown(|held| held.last_values), series * 17, series * 24),
        ("metadata", grown(|held| held.metadata), 50, text.len() as u64 / 4),
        ("WAL", grown(|held| held.wal_buffer), series * samples, 1 << 20),
    ] {
        assert!((least..=most).contains(&bytes), "{what}: {bytes} in {least}..={most}");
    }
    db.flush().unwrap();
    let flushed = db.held();
    assert_eq!((flushed.memtables, flushed.index), (before.memtables, after.index));
}
