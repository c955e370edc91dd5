use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::check::check;
use crate::db::Durability;
use crate::disk::OsDisk;
use crate::error::ErrorKind;
use crate::meta::{MetaChange, MetricMeta};
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;
use crate::wal::WalStart;

/// A database, and where its copy goes, on the disk of this machine.
struct Bed {
    dir: tempfile::TempDir,
    db: Db,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
        Self { dir, db }
    }

    fn copy(&self) -> PathBuf {
        self.dir.path().join("save/nid001")
    }

    fn mirror(&self) -> Mirror {
        Mirror::begin(&self.db, &self.copy(), Arc::new(OsDisk)).unwrap()
    }

    fn append(&self, metric: &str, times: std::ops::Range<i64>) {
        self.try_append(metric, times).unwrap();
    }

    fn try_append(&self, metric: &str, times: std::ops::Range<i64>) -> Result<()> {
        let id = self.db.series(&SeriesKey::new(metric, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        for time in times {
            batch.push(id, Timestamp::from_seconds(time), Value::Int(time));
        }
        self.db.append(&batch, Durability::Synced)
    }

    fn files(&self) -> Vec<String> {
        let layout = Layout::new(&self.copy());
        let mut files = Vec::new();
        for folder in ["", WAL, SEGMENTS, SERIES, META] {
            let found = layout.list(&OsDisk, folder).unwrap();
            files.extend(
                found.iter().map(|path| path.strip_prefix(self.copy()).unwrap().to_string_lossy().into_owned()),
            );
        }
        files
    }

    /// The copy opens, is sound, has the source's id and the samples that the source had.
    fn assert_same(&self) {
        let copy = Db::open_read_only(&self.copy(), Options::default()).unwrap();
        assert_eq!(content(&copy), content(&self.db));
        assert_eq!(copy.snapshot().meta(), self.db.snapshot().meta());
        assert_eq!(copy.info().unwrap().database, self.db.info().unwrap().database);
        let report = check(&self.copy(), &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(report.findings, []);
    }
}

fn content(db: &Db) -> BTreeMap<String, usize> {
    let snapshot = db.snapshot();
    let ids: Vec<SeriesId> = (0..snapshot.index().len() as u32).map(SeriesId).collect();
    let points = snapshot.points(ids, TimeRange::ALL).map(|points| points.unwrap());
    points.map(|points| (snapshot.index().key(points.series).unwrap().to_string(), points.times.len())).collect()
}

#[test]
fn a_copy_follows_appends_flushes_and_the_close() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    let report = mirror.step().unwrap();
    assert_eq!((report.files, report.wal_bytes), (1, 0), "the manifest");
    bed.assert_same();
    bed.append("a", 0..10);
    assert!(mirror.step().unwrap().wal_bytes > 0);
    bed.assert_same();
    bed.append("b", 0..10);
    let meta = MetricMeta { unit: "s".to_owned(), ..MetricMeta::default() };
    bed.db.put_meta(MetaChange::Metric { name: "a".into(), meta }, Durability::Synced).unwrap();
    assert!(mirror.step().unwrap().wal_bytes > 0);
    bed.assert_same();
    bed.db.flush().unwrap();
    bed.append("b", 10..20);
    let report = mirror.step().unwrap();
    assert_eq!(report.files, 4, "series, metadata, a segment and the manifest: {report:?}");
    bed.assert_same();
    bed.append("c", 10..20);
    bed.db.close().unwrap();
    mirror.finish().unwrap();
    bed.assert_same();
    let files = bed.files();
    assert!(!files.iter().any(|file| file.starts_with(WAL) || file == WRITER || file.contains(".new")), "{files:?}");
}

#[test]
fn a_step_with_nothing_new_writes_nothing() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    mirror.step().unwrap();
    assert_eq!(mirror.step().unwrap(), MirrorReport::default());
}

#[test]
fn what_is_not_durable_in_the_source_is_not_copied() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    let id = SeriesId(0);
    let mut batch = SampleBatch::default();
    batch.push(id, Timestamp::from_seconds(100), Value::Int(1));
    bed.db.append(&batch, Durability::Buffered).unwrap();
    mirror.step().unwrap();
    let copy = Db::open_read_only(&bed.copy(), Options::default()).unwrap();
    assert_eq!(copy.recovery().samples, 10);
    bed.db.sync().unwrap();
    mirror.step().unwrap();
    bed.assert_same();
}

#[test]
fn a_database_opened_again_is_mirrored_with_the_wal_that_it_found() {
    let mut bed = Bed::new();
    bed.append("a", 0..10);
    let path = bed.dir.path().join("db");
    bed.db = Db::open_read_only(&path, Options::default()).unwrap();
    bed.db = Db::open(&path, Options::default()).unwrap();
    bed.append("b", 0..10);
    let mut mirror = bed.mirror();
    mirror.step().unwrap();
    bed.assert_same();
}

#[test]
fn a_mirror_dropped_without_its_end_leaves_a_copy_that_opens_and_gives_the_lock_back() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    mirror.step().unwrap();
    assert!(bed.files().contains(&WRITER.to_owned()));
    drop(mirror);
    assert!(!bed.files().contains(&WRITER.to_owned()));
    bed.assert_same();
    let copy = Db::open(&bed.copy(), Options::default()).unwrap();
    assert_eq!(content(&copy), content(&bed.db));
}

#[test]
fn a_directory_that_holds_something_is_refused_and_left_as_it_is() {
    let bed = Bed::new();
    let mut first = bed.mirror();
    first.step().unwrap();
    let refused = Mirror::begin(&bed.db, &bed.copy(), Arc::new(OsDisk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    first.step().unwrap();
    bed.append("a", 0..10);
    first.step().unwrap();
    bed.assert_same();
}

#[test]
fn a_read_only_database_is_not_mirrored_and_an_ended_mirror_makes_no_step() {
    let bed = Bed::new();
    let read_only = Db::open_read_only(&bed.dir.path().join("db"), Options::default()).unwrap();
    let refused = Mirror::begin(&read_only, &bed.copy(), Arc::new(OsDisk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let mut mirror = bed.mirror();
    mirror.finish().unwrap();
    assert_eq!(mirror.step().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_copy_that_somebody_else_took_over_is_written_no_more() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    mirror.step().unwrap();
    std::fs::write(bed.copy().join(WRITER), "{}").unwrap();
    bed.append("a", 0..10);
    let refused = mirror.step().unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
}

#[test]
fn a_damaged_file_of_the_source_is_reported_and_never_copied() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..100);
    mirror.step().unwrap();
    bed.db.flush().unwrap();
    let segment = bed.db.info().unwrap().segment_files.remove(0);
    let good = std::fs::read(&segment).unwrap();
    let mut bytes = good.clone();
    bytes[20] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    assert_eq!(mirror.step().unwrap_err().kind(), ErrorKind::Corrupt);
    let copy = Db::open_read_only(&bed.copy(), Options::default()).unwrap();
    assert_eq!(copy.recovery().samples, 100, "what the copy had, it still has");
    std::fs::write(&segment, &good).unwrap();
    mirror.step().unwrap();
    bed.assert_same();
}

#[test]
fn no_file_follows_one_whose_end_a_failed_fsync_lost() {
    let start = WalStart { bytes: 0, crc32: 0, salt: 0 };
    let extent = |number, durable, end, closed| Extent { number, durable, end, closed, start };
    let numbers = |wal: &[Extent]| wanted(wal).iter().map(|extent| extent.number).collect::<Vec<_>>();
    let header = HEADER_BYTES as u64;
    assert_eq!(numbers(&[]), [0; 0]);
    assert_eq!(numbers(&[extent(1, 100, 100, true), extent(2, 50, 90, false)]), [1, 2]);
    assert_eq!(numbers(&[extent(1, 60, 100, true), extent(2, 90, 90, true)]), [1]);
    assert_eq!(numbers(&[extent(1, header, header, true), extent(2, header, 90, false)]), [0; 0]);
}

#[test]
fn what_a_source_that_cannot_be_closed_has_in_memory_is_saved_as_segments() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    mirror.step().unwrap();
    bed.db.flush().unwrap();
    bed.append("b", 0..10);
    mirror.step().unwrap();
    let id = bed.db.series(&SeriesKey::new("c", TagSet::default()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(id, Timestamp::from_seconds(5), Value::Int(5));
    bed.db.append_in_memory(&batch).unwrap();
    assert_eq!(bed.db.append(&batch, Durability::Buffered).unwrap_err().kind(), ErrorKind::Unavailable);
    mirror.rescue().unwrap();
    let copy = Db::open_read_only(&bed.copy(), Options::default()).unwrap();
    assert_eq!(content(&copy), content(&bed.db));
    assert_eq!(copy.info().unwrap().samples_unflushed, 0, "all of it stands in segments");
    let report = check(&bed.copy(), &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(report.findings, []);
    assert!(!bed.files().contains(&WRITER.to_owned()));
    // The source goes on after a flush, and a database opened again has the same.
    bed.db.flush().unwrap();
    bed.append("c", 10..20);
    let before = content(&bed.db);
    bed.db.close().unwrap();
    let again = Db::open(&bed.dir.path().join("db"), Options::default()).unwrap();
    assert_eq!(content(&again), before);
}

#[test]
fn a_source_whose_directory_was_removed_is_saved_from_memory() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    bed.db.flush().unwrap();
    mirror.step().unwrap();
    bed.append("b", 0..10);
    std::fs::remove_dir_all(bed.dir.path().join("db")).unwrap();
    // What is not acknowledged as Synced any more is in memory all the same, and so it is saved.
    let error = bed.try_append("b", 10..20).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    mirror.step().unwrap_err();
    mirror.rescue().unwrap();
    let copy = Db::open_read_only(&bed.copy(), Options::default()).unwrap();
    assert_eq!(content(&copy).values().copied().collect::<Vec<_>>(), [10, 20]);
    assert_eq!(check(&bed.copy(), &Options::default(), &mut |_| {}).unwrap().findings, []);
}

#[test]
fn a_source_removed_before_its_segments_were_copied_is_saved_without_them_and_that_is_told() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    bed.db.flush().unwrap();
    bed.append("b", 0..10);
    std::fs::remove_dir_all(bed.dir.path().join("db")).unwrap();
    let error = mirror.rescue().unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let copy = Db::open_read_only(&bed.copy(), Options::default()).unwrap();
    assert_eq!(content(&copy).values().sum::<usize>(), 10);
    assert_eq!(check(&bed.copy(), &Options::default(), &mut |_| {}).unwrap().findings, []);
}

#[test]
fn a_copy_that_was_removed_is_lost() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    mirror.step().unwrap();
    assert!(!mirror.is_lost());
    std::fs::remove_dir_all(bed.copy()).unwrap();
    bed.append("a", 10..20);
    mirror.step().unwrap_err();
    assert!(mirror.is_lost());
}

#[test]
fn a_copy_that_another_process_began_is_gone_on_with() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    bed.db.flush().unwrap();
    bed.append("a", 10..20);
    mirror.step().unwrap();
    // As a kill leaves it, but for the lock, whose owner lives here.
    drop(mirror);
    bed.append("b", 0..10);
    let mut mirror = Mirror::resume(&bed.db, &bed.copy(), Arc::new(OsDisk)).unwrap();
    let report = mirror.step().unwrap();
    assert_eq!(report.files, 0, "the segment is there, and the manifest is the same: {report:?}");
    bed.assert_same();
    bed.db.close().unwrap();
    mirror.finish().unwrap();
    bed.assert_same();
}

#[test]
fn a_file_that_a_begun_copy_has_lost_is_copied_again() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    bed.db.flush().unwrap();
    mirror.step().unwrap();
    drop(mirror);
    let segment = bed.files().into_iter().find(|file| file.starts_with(SEGMENTS)).unwrap();
    std::fs::remove_file(bed.copy().join(segment)).unwrap();
    let mut mirror = Mirror::resume(&bed.db, &bed.copy(), Arc::new(OsDisk)).unwrap();
    assert_eq!(mirror.step().unwrap().files, 2, "the segment, and the manifest");
    bed.assert_same();
}

#[test]
fn the_copy_of_another_database_is_not_gone_on_with() {
    let (bed, other) = (Bed::new(), Bed::new());
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    mirror.finish().unwrap();
    let refused = Mirror::resume(&other.db, &bed.copy(), Arc::new(OsDisk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    bed.assert_same();
    let id = bed.db.info().unwrap().database;
    assert_eq!(database_in(&bed.copy(), &OsDisk).unwrap(), Some(id));
    assert_eq!(database_in(bed.dir.path(), &OsDisk).unwrap(), None);
}

#[test]
fn where_nothing_was_begun_resuming_begins() {
    let bed = Bed::new();
    bed.append("a", 0..10);
    let mut mirror = Mirror::resume(&bed.db, &bed.copy(), Arc::new(OsDisk)).unwrap();
    mirror.step().unwrap();
    bed.assert_same();
}

#[test]
fn what_a_copy_lacks_is_known_before_it_is_copied() {
    let bed = Bed::new();
    let mut mirror = bed.mirror();
    bed.append("a", 0..10);
    let lacking = mirror.lacking().unwrap();
    assert_eq!(mirror.step().unwrap().wal_bytes, lacking);
    assert_eq!(mirror.lacking().unwrap(), 0);
    bed.db.flush().unwrap();
    assert!(mirror.lacking().unwrap() > 0);
    mirror.step().unwrap();
    assert_eq!(mirror.lacking().unwrap(), 0);
}

#[test]
fn only_names_that_a_mirror_makes_may_stand_in_a_copy() {
    for good in ["MANIFEST", "MANIFEST.new", "WRITER", "WRITER.123", "wal/00000001.wal", "meta/000001.json"] {
        assert!(may_hold(good), "{good}");
    }
    let long = format!("wal/{}", "1".repeat(128));
    for bad in [
        "",
        "/",
        "..",
        "../x",
        "wal",
        "wal/",
        "wal/..",
        "wal/../MANIFEST",
        "wal/a/b",
        "wal//a",
        "/etc/passwd",
        "WRITER.",
        "WRITER.1/2",
        "MANIFEST2",
        "connection.json",
        "wal/.hidden",
        "wal/a b",
        "wal/a\0",
        "segments\\x",
        "other/x",
        &long,
    ] {
        assert!(!may_hold(bad), "{bad:?}");
    }
}
