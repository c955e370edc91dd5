use std::cell::Cell;
use std::path::PathBuf;

use super::*;
use crate::check::check;
use crate::clock::sim::SimClock;
use crate::db::Durability;
use crate::retention::Retention;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::TimeRange;
use crate::value::Value;

/// Midnight; it is noon of the next day.
const BASE: i64 = 1_799_971_200;
const HOUR: i64 = 3_600;

/// A database in a directory of its own.
struct Bed {
    dir: tempfile::TempDir,
    clock: Arc<SimClock>,
    db: Db,
}

fn options(clock: &Arc<SimClock>, retention: Retention) -> Options {
    Options { clock: Arc::clone(clock) as Arc<dyn crate::Clock>, retention, ..Options::default() }
}

impl Bed {
    fn with(retention: Retention) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::at(Timestamp::from_seconds(BASE + 36 * HOUR)));
        let db = Db::open(dir.path(), options(&clock, retention)).unwrap();
        Self { dir, clock, db }
    }

    fn new() -> Self {
        Self::with(Retention::default())
    }

    /// The same database opened again.
    fn open_with(&mut self, retention: Retention) {
        self.db.close().unwrap();
        self.db = Db::open(self.dir.path(), options(&self.clock, retention)).unwrap();
    }

    /// One flush of `metric` with `value` at ten seconds from `time` on.
    fn flush(&self, metric: &str, time: i64, value: i64) {
        self.append(metric, time, value);
        self.db.flush().unwrap();
    }

    fn append(&self, metric: &str, time: i64, value: i64) {
        let id = self.db.series(&SeriesKey::new(metric, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        for second in 0..10 {
            batch.push(id, Timestamp::from_seconds(BASE + time + second), Value::Int(value));
        }
        self.db.append(&batch, Durability::Buffered).unwrap();
    }

    /// Steps until there is nothing to do.
    fn keep(&self) -> Vec<UpkeepReport> {
        let steps = std::iter::from_fn(|| Some(self.db.upkeep(&|| true).unwrap()));
        steps.take_while(|report| !report.is_idle()).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path().join("segments")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn named(&self) -> usize {
        self.db.info().unwrap().segment_files.len()
    }

    fn last(&self, series: u32) -> Option<i64> {
        self.db.last(SeriesId(series)).unwrap().map(|(time, _)| time.micros() / 1_000_000 - BASE)
    }

    fn assert_sound(&self) {
        assert_eq!(check(self.dir.path(), &Options::default(), &mut |_| {}).unwrap().findings, []);
    }
}

fn content(snapshot: &crate::Snapshot) -> Vec<(String, Vec<i64>, Vec<Value>)> {
    let ids: Vec<SeriesId> = (0..snapshot.index().len() as u32).map(SeriesId).collect();
    let points = snapshot.points(ids, TimeRange::ALL).map(|points| points.unwrap());
    points
        .map(|points| {
            let times = points.times.iter().map(|time| time.micros()).collect();
            let values = points.values.iter().collect();
            (snapshot.index().key(points.series).unwrap().to_string(), times, values)
        })
        .collect()
}

#[test]
fn a_merge_leaves_nothing_in_memory_and_takes_nothing_from_what_is_asked_again() {
    let bed = Bed::new();
    let id = bed.db.series(&SeriesKey::new("a", TagSet::default()).unwrap()).unwrap();
    let flush = |hour: i64, from: i64| {
        let mut batch = SampleBatch::default();
        for second in from..from + 600 {
            batch.push(id, Timestamp::from_seconds(BASE + hour * HOUR + second), Value::Int(second * second % 1_009));
        }
        bed.db.append(&batch, Durability::Buffered).unwrap();
        bed.db.flush().unwrap();
    };
    (0..3).for_each(|part| flush(24, part * 600));
    flush(25, 0);
    let ask = |hour: i64| {
        let at = |hour: i64| Timestamp::from_seconds(BASE + hour * HOUR);
        let points = bed.db.snapshot().points(vec![id], TimeRange::new(at(hour), at(hour + 1)));
        points.map(|points| points.unwrap().times.len()).sum::<usize>()
    };
    let held = || (bed.db.held().pages, bed.db.held().footers);
    assert_eq!(ask(25), 600);
    let asked = held();
    assert!(asked.0 > 0 && asked.1 > 0);
    // Of three files that a merge is about to replace.
    assert_eq!(ask(24), 1_800);
    let snapshot = bed.db.snapshot();
    let before = held();
    assert!(before.0 > asked.0 && before.1 > asked.1);
    let during = Cell::new((0, 0));
    let go_on = || {
        during.set(held());
        true
    };
    assert_eq!(bed.db.upkeep(&go_on).unwrap().merged.segments_before, 3);
    assert!(during.get().1 > before.1, "what a merge reads is counted while it runs");
    assert_eq!(held(), asked, "only what was asked of files that are left");
    let hits = bed.db.cache_figures().hits;
    assert_eq!((ask(25), held()), (600, asked), "which is where it was");
    assert!(bed.db.cache_figures().hits > hits);
    // A reader from before goes on.
    let points = snapshot.points(vec![id], TimeRange::ALL);
    assert_eq!(points.map(|points| points.unwrap().times.len()).sum::<usize>(), 2_400);
    assert_eq!(ask(24), 1_800);
}

/// An hour of three files, overwritten samples among them, and a flush after it.
fn an_hour_that_is_over(bed: &Bed) {
    bed.flush("a", 24 * HOUR, 1);
    bed.flush("b", 24 * HOUR + 5, 2);
    bed.flush("a", 24 * HOUR + 5, 3);
    bed.flush("a", 25 * HOUR, 4);
}

#[test]
fn an_hour_becomes_one_file_while_the_database_is_open_and_reads_the_same() {
    let bed = Bed::new();
    an_hour_that_is_over(&bed);
    let before = content(&bed.db.snapshot());
    let done = bed.keep();
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].merged.segments_before, done[0].merged.segments_after), (3, 1));
    assert_eq!((done[0].merged.rows_before, done[0].merged.rows_after), (30, 25), "what was overwritten is gone");
    assert_eq!((content(&bed.db.snapshot()), bed.named()), (before, 2));
    assert_eq!(bed.keep(), [], "nothing is merged twice");
    let info = bed.db.info().unwrap();
    assert_eq!((info.samples, info.storage.segments_hour, info.storage.segments_day), (35, 2, 0));
}

#[test]
fn a_day_becomes_one_file_when_it_is_over() {
    let bed = Bed::new();
    for hour in 0..6 {
        bed.flush("a", hour * HOUR, 1);
        bed.flush("a", hour * HOUR + 5, 2);
    }
    bed.flush("a", 24 * HOUR, 3);
    bed.keep();
    let info = bed.db.info().unwrap();
    assert_eq!((info.storage.segments_hour, info.storage.segments_day), (1, 1));
    bed.db.close().unwrap();
    bed.assert_sound();
}

#[test]
fn merged_files_stay_a_minute_for_readers_in_other_processes_and_as_long_as_one_here_reads_them() {
    let bed = Bed::new();
    an_hour_that_is_over(&bed);
    let snapshot = bed.db.snapshot();
    let before = content(&snapshot);
    let elsewhere = Db::open_read_only(bed.dir.path(), Options::default()).unwrap();
    bed.keep();
    assert_eq!((bed.files().len(), bed.db.info().unwrap().storage.removed_bytes > 0), (5, true));
    assert_eq!(content(&elsewhere.snapshot()), before);
    bed.clock.advance(Duration::from_secs(61));
    bed.keep();
    assert_eq!((bed.files().len(), bed.db.info().unwrap().storage.removed_bytes), (5, 0), "the snapshot reads them");
    assert_eq!(content(&snapshot), before);
    drop(snapshot);
    assert_eq!(bed.files().len(), 2);
    bed.assert_sound();
}

#[test]
fn closing_leaves_no_merged_file_behind() {
    let bed = Bed::new();
    an_hour_that_is_over(&bed);
    bed.keep();
    bed.db.close().unwrap();
    assert_eq!(bed.files().len(), 2);
    bed.assert_sound();
}

#[test]
fn appends_and_flushes_go_on_during_a_merge() {
    let bed = Bed::new();
    an_hour_that_is_over(&bed);
    let asked = Cell::new(0);
    let go_on = || {
        // Overwrites what is being merged.
        bed.flush("a", 24 * HOUR + 2, 10 + asked.get());
        asked.set(asked.get() + 1);
        true
    };
    assert_eq!(bed.db.upkeep(&go_on).unwrap().merged.segments_before, 3);
    assert!(asked.get() > 1);
    let expected = bed.db.snapshot().points(vec![SeriesId(0)], TimeRange::ALL).next().unwrap().unwrap();
    assert_eq!(expected.values.get(2), Value::Int(9 + asked.get()), "what was appended meanwhile is newer");
    let before = content(&bed.db.snapshot());
    bed.flush("b", 26 * HOUR, 1);
    bed.keep();
    bed.clock.advance(Duration::from_secs(61));
    bed.keep();
    let after = content(&bed.db.snapshot());
    assert_eq!(after[0], before[0]);
    bed.assert_sound();
}

#[test]
fn a_merge_ends_when_the_database_is_closed_meanwhile_and_leaves_nothing() {
    let bed = Bed::new();
    an_hour_that_is_over(&bed);
    let closing = Cell::new(None);
    let go_on = || {
        let db = bed.db.clone();
        closing.set(Some(std::thread::spawn(move || db.close())));
        while !bed.db.is_closed() {
            std::thread::yield_now();
        }
        true
    };
    let report = bed.db.upkeep(&go_on).unwrap();
    assert!(report.merged.stopped && report.merged.segments_after == 0);
    closing.take().unwrap().join().unwrap().unwrap();
    assert_eq!(bed.files().len(), 4);
    bed.assert_sound();
    assert!(bed.db.upkeep(&|| true).is_err());
}

#[test]
fn a_damaged_segment_is_reported_once_and_keeps_no_other_from_being_merged() {
    let bed = Bed::new();
    bed.flush("a", 24 * HOUR, 1);
    bed.flush("a", 24 * HOUR + 5, 1);
    bed.flush("a", 25 * HOUR, 2);
    bed.flush("a", 25 * HOUR + 10, 2);
    bed.flush("a", 25 * HOUR + 20, 2);
    bed.flush("a", 26 * HOUR, 3);
    let first = bed.db.info().unwrap().segment_files[0].clone();
    let mut bytes = std::fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let error = bed.db.upkeep(&|| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let done = bed.keep();
    assert_eq!((done.len(), done[0].merged.segments_before), (1, 3));
}

#[test]
fn series_files_become_one_when_there_are_many() {
    let bed = Bed::new();
    for number in 0..8 {
        bed.flush(&format!("metric{number}"), 30 * HOUR, 1);
    }
    assert_eq!(bed.db.info().unwrap().series_files.len(), 8);
    let series: u64 = bed.keep().iter().map(|report| report.merged.series_files).sum();
    assert_eq!((series, bed.db.info().unwrap().series_files.len()), (8, 1));
    assert_eq!(std::fs::read_dir(bed.dir.path().join("series")).unwrap().count(), 1);
    let read_only = Db::open_read_only(bed.dir.path(), Options::default()).unwrap();
    assert_eq!(read_only.index().len(), 8);
}

fn hours(hours: u64) -> Retention {
    Retention { age: Some(Duration::from_secs(hours * 3_600)), ..Retention::default() }
}

#[test]
fn retention_by_age_drops_whole_segments_and_readers_that_hold_them_read_on() {
    let bed = Bed::with(hours(10));
    bed.flush("a", HOUR, 1);
    bed.flush("b", 20 * HOUR, 2);
    bed.flush("b", 30 * HOUR, 3);
    bed.append("a", 2 * HOUR, 4);
    assert_eq!((bed.last(0), bed.last(1)), (Some(2 * HOUR + 9), Some(30 * HOUR + 9)));
    let (snapshot, before) = (bed.db.snapshot(), content(&bed.db.snapshot()));
    let done = bed.keep();
    assert_eq!(done[0].dropped, DropReport { segments: 1, rows: 10, bytes: done[0].dropped.bytes });
    assert_eq!(bed.last(0), Some(2 * HOUR + 9), "what is not flushed stays");
    bed.db.flush().unwrap();
    bed.keep();
    assert_eq!((bed.last(0), bed.last(1)), (None, Some(30 * HOUR + 9)));
    assert_eq!(content(&snapshot), before);
    assert_eq!(bed.db.index().len(), 2, "its name is known all the same");
    let written = bed.db.info().unwrap().storage.written.unwrap();
    assert_eq!((written.segments_dropped, written.samples_dropped, bed.named()), (2, 20, 2));
    drop(snapshot);
    bed.db.close().unwrap();
    assert_eq!(bed.files().len(), 2);
    bed.assert_sound();
}

#[test]
fn retention_is_applied_when_a_database_is_opened() {
    let mut bed = Bed::new();
    bed.flush("a", HOUR, 1);
    bed.flush("a", 30 * HOUR, 2);
    bed.open_with(hours(10));
    assert_eq!(bed.named(), 1);
    bed.open_with(Retention::default());
    assert_eq!(content(&bed.db.snapshot())[0].1.len(), 10);
}

#[test]
fn retention_by_bytes_drops_the_oldest() {
    let mut bed = Bed::new();
    for hour in 0..20 {
        bed.flush("a", hour * HOUR, hour);
    }
    let info = bed.db.info().unwrap();
    let bytes = info.bytes - info.storage.segment_bytes / 2;
    bed.open_with(Retention { bytes: Some(bytes), ..Retention::default() });
    let info = bed.db.info().unwrap();
    assert!(info.bytes <= bytes && info.segment_files.len() >= 9, "{info:?}");
    let snapshot = bed.db.snapshot();
    let first = content(&snapshot)[0].2[0];
    assert_eq!(first, Value::Int(20 - info.segment_files.len() as i64));
}

#[test]
fn an_overwritten_sample_does_not_come_back() {
    let bed = Bed::with(hours(10));
    bed.flush("a", 25 * HOUR, 1);
    bed.flush("b", 29 * HOUR - 10, 1);
    bed.flush("a", 25 * HOUR, 2);
    bed.flush("b", 36 * HOUR, 3);
    bed.keep();
    let points = bed.db.snapshot().points(vec![SeriesId(0)], TimeRange::ALL).next();
    assert!(points.is_none_or(|points| points.unwrap().values.get(0) == Value::Int(2)));
}

#[test]
fn what_was_written_since_the_open_is_counted() {
    let bed = Bed::new();
    assert_eq!(bed.db.info().unwrap().storage.written.unwrap(), crate::WrittenFigures::default());
    assert_eq!(bed.db.info().unwrap().space_amplification(), None);
    an_hour_that_is_over(&bed);
    let flushed = bed.db.info().unwrap().storage.segment_bytes;
    let merged = bed.keep()[0].merged;
    let info = bed.db.info().unwrap();
    let written = info.storage.written.unwrap();
    assert_eq!((written.flush_bytes, written.merge_bytes), (flushed, merged.bytes_after));
    assert_eq!((written.merges, written.segments_merged), (1, 3));
    assert!(written.wal_bytes > 40 * 8, "{written:?}");
    assert!(written.amplification().unwrap() > 1.0 && info.space_amplification().unwrap() > 1.0);
    let read_only = Db::open_read_only(bed.dir.path(), Options::default()).unwrap();
    assert_eq!(read_only.info().unwrap().storage.written, None);
}
