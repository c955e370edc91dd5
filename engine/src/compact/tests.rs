use super::*;
use crate::check::check;
use crate::db::{Db, Durability};
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::series::TagSet;

const BASE: i64 = 1_800_000_000;

/// A database in a directory of its own.
struct Bed {
    dir: tempfile::TempDir,
    db: Db,
}

impl Bed {
    fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options).unwrap();
        Self { dir, db }
    }

    fn new() -> Self {
        Self::with(Options::default())
    }

    /// One flush of `metric` with `value` at each second of `times`.
    fn flush(&self, metric: &str, times: std::ops::Range<i64>, value: i64) {
        let id = self.db.series(&SeriesKey::new(metric, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        for time in times {
            batch.push(id, Timestamp::from_seconds(BASE + time), Value::Int(value));
        }
        self.db.append(&batch, Durability::Buffered).unwrap();
        self.db.flush().unwrap();
    }

    fn content(&self) -> Vec<(String, Vec<i64>, Vec<Value>)> {
        content(&self.db.snapshot())
    }

    fn segments(&self) -> usize {
        std::fs::read_dir(self.dir.path().join(SEGMENTS)).unwrap().count()
    }

    fn assert_sound(&self) {
        let report = check(self.dir.path(), &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(report.findings, []);
    }
}

fn content(snapshot: &Snapshot) -> Vec<(String, Vec<i64>, Vec<Value>)> {
    let ids: Vec<SeriesId> = (0..snapshot.index().len() as u32).map(SeriesId).collect();
    let points = snapshot.points(ids, TimeRange::ALL).map(|points| points.unwrap());
    points
        .map(|points| {
            let values = (0..points.values.len()).map(|at| points.values.get(at)).collect();
            let times = points.times.iter().map(|time| time.micros()).collect();
            (snapshot.index().key(points.series).unwrap().to_string(), times, values)
        })
        .collect()
}

#[test]
fn the_last_write_wins_after_a_merge_as_before() {
    let bed = Bed::new();
    bed.flush("a", 0..100, 1);
    bed.flush("b", 50..60, 2);
    bed.flush("a", 40..50, 3);
    bed.flush("a", 45..46, 4);
    let before = bed.content();
    let report = bed.db.compact().unwrap();
    assert_eq!((report.segments_before, report.segments_after, report.series_files), (4, 1, 2));
    assert_eq!((report.rows_before, report.rows_after), (121, 110), "what was written again is dropped");
    assert_eq!(bed.content(), before);
    assert_eq!(bed.segments(), 1);
    bed.assert_sound();
    bed.flush("a", 40..42, 5);
    let later = bed.content();
    assert_ne!(later, before);
    bed.db.compact().unwrap();
    assert_eq!(bed.content(), later);
    bed.db.close().unwrap();
    bed.assert_sound();
    let read_only = Db::open_read_only(bed.dir.path(), Options::default()).unwrap();
    assert_eq!(content(&read_only.snapshot()), later);
}

#[test]
fn a_second_merge_has_nothing_to_do() {
    let bed = Bed::new();
    bed.flush("a", 0..10, 1);
    bed.flush("a", 10..20, 1);
    bed.db.compact().unwrap();
    assert_eq!(bed.db.compact().unwrap(), CompactReport::default());
}

#[test]
fn a_snapshot_reads_on_after_its_segments_were_merged_and_the_last_one_removes_them() {
    let bed = Bed::with(Options { segment_files_max: 1, ..Options::default() });
    bed.flush("a", 0..10, 1);
    bed.flush("b", 0..10, 2);
    bed.flush("a", 5..7, 3);
    let snapshot = bed.db.snapshot();
    let before = bed.content();
    bed.db.compact().unwrap();
    bed.flush("a", 5..7, 4);
    assert_eq!(bed.segments(), 5);
    assert_eq!(content(&snapshot), before);
    bed.db.close().unwrap();
    assert_eq!(content(&snapshot), before, "after the close too");
    drop(snapshot);
    assert_eq!(bed.segments(), 2);
    bed.assert_sound();
}

#[test]
fn a_merge_that_is_told_to_stop_changes_nothing() {
    let bed = Bed::new();
    bed.flush("a", 0..10, 1);
    bed.flush("b", 0..10, 2);
    let before = bed.content();
    let report = bed.db.compact_while(&|_| false).unwrap();
    assert_eq!(report, CompactReport { stopped: true, ..CompactReport::default() });
    assert_eq!((bed.content(), bed.segments()), (before, 2));
    bed.assert_sound();
    bed.db.compact().unwrap();
    assert_eq!(bed.segments(), 1);
}

#[test]
fn a_merge_says_how_far_it_is() {
    let bed = Bed::new();
    for (metric, from) in [("a", 0), ("b", 0), ("a", 10)] {
        bed.flush(metric, from..from + 10, 1);
    }
    let said = std::cell::RefCell::new(Vec::new());
    bed.db
        .compact_while(&|progress| {
            said.borrow_mut().push((progress.rows_done, progress.rows_total));
            true
        })
        .unwrap();
    assert_eq!(said.into_inner(), [(0, 30), (20, 30)], "asked before each series");
}

#[test]
fn appends_that_wait_in_memory_are_newer_than_every_merge() {
    let bed = Bed::new();
    bed.flush("a", 0..10, 1);
    bed.flush("a", 5..7, 3);
    let id = SeriesId(0);
    let mut batch = SampleBatch::default();
    batch.push(id, Timestamp::from_seconds(BASE + 5), Value::Int(9));
    bed.db.append(&batch, Durability::Buffered).unwrap();
    let before = bed.content();
    bed.db.compact().unwrap();
    assert_eq!(bed.content(), before);
    bed.db.flush().unwrap();
    bed.db.compact().unwrap();
    assert_eq!(bed.content(), before);
}

#[test]
fn a_series_with_very_many_rows_is_read_in_stretches_of_time_that_cover_it_once() {
    let bounds = (Timestamp::from_micros(-7), Timestamp::from_micros(1_000_000));
    for rows in [1, SERIES_ROWS_MAX, SERIES_ROWS_MAX + 1, 5 * SERIES_ROWS_MAX] {
        let ranges = stretches(bounds, rows);
        assert_eq!(ranges.len() as u64, rows.div_ceil(SERIES_ROWS_MAX));
        assert_eq!(ranges[0].start, bounds.0);
        assert!(ranges[ranges.len() - 1].contains(bounds.1));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}

#[test]
fn a_read_only_or_closed_database_is_not_merged() {
    let bed = Bed::new();
    bed.flush("a", 0..10, 1);
    bed.db.close().unwrap();
    assert!(bed.db.compact().is_err());
    let read_only = Db::open_read_only(bed.dir.path(), Options::default()).unwrap();
    assert!(read_only.compact().is_err());
}
