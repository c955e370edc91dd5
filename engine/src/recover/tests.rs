use std::fs;

use super::*;
use crate::db::{Db, Durability};
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Appends one sample of series `name` at each of `times`, a batch each, and forgets the database unclosed.
fn append(dir: &Path, name: &str, times: std::ops::Range<i64>) {
    let db = Db::open(dir, Options::default()).unwrap();
    for time in times {
        let series = db.series(&SeriesKey::new(name, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        batch.push(series, Timestamp::from_micros(time), Value::Int(time));
        db.append(&batch, Durability::Buffered).unwrap();
    }
}

fn times(db: &Db, name: &str) -> Vec<i64> {
    let ids: Vec<SeriesId> = db.index().select(name, &[]);
    let points = db.snapshot().points(ids, TimeRange::ALL).next();
    points.map_or_else(Vec::new, |points| points.unwrap().times.iter().map(|time| time.micros()).collect())
}

fn open(dir: &Path) -> Db {
    Db::open(dir, Options::default()).unwrap()
}

#[test]
fn a_torn_tail_is_dropped_reported_and_gone_at_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..3);
    let wal = dir.path().join("wal/00000001.wal");
    let bytes = fs::read(&wal).unwrap();
    fs::write(&wal, &bytes[..bytes.len() - 5]).unwrap();
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    assert_eq!(times(&reader, "a"), [0, 1]);
    assert_eq!(fs::read(&wal).unwrap().len(), bytes.len() - 5, "read-only changes nothing");
    let db = open(dir.path());
    assert_eq!(times(&db, "a"), [0, 1]);
    let report = db.recovery();
    assert_eq!((report.frames, report.samples, report.series), (3, 2, 1));
    assert_eq!(report.torn.len(), 1);
    assert_eq!(report.torn[0].file, wal);
    assert!(report.to_string().contains("cut short"), "{report}");
    drop(db);
    assert_eq!(open(dir.path()).recovery().torn, []);
    assert_eq!(fs::read_dir(dir.path().join("wal")).unwrap().count(), 1);
}

#[test]
fn damaged_bytes_before_good_frames_are_set_aside_and_never_deleted() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..10);
    let wal = dir.path().join("wal/00000001.wal");
    let mut bytes = fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&wal, &bytes).unwrap();
    let db = open(dir.path());
    let report = db.recovery().clone();
    let found = times(&db, "a");
    assert!(!found.is_empty() && found.len() < 10, "{found:?}");
    assert_eq!(found, (0..found.len() as i64).collect::<Vec<_>>());
    assert_eq!(report.damaged.len(), 1);
    let cut = &report.damaged[0];
    let aside = cut.set_aside.clone().unwrap();
    assert_eq!(fs::read(&aside).unwrap(), bytes[cut.at as usize..]);
    assert!(report.to_string().contains(&aside.display().to_string()), "{report}");
    db.close().unwrap();
    drop(db);
    let db = open(dir.path());
    assert_eq!(db.recovery().damaged, []);
    assert_eq!(times(&db, "a"), found);
    assert!(aside.is_file(), "it stays until somebody looks at it");
}

#[test]
fn files_after_a_damaged_one_are_replayed_unless_they_build_on_lost_series() {
    for same_series in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), "a", 0..2);
        append(dir.path(), if same_series { "a" } else { "b" }, 5..8);
        append(dir.path(), "a", 8..9);
        let second = dir.path().join("wal/00000002.wal");
        let mut bytes = fs::read(&second).unwrap();
        // The first frame: of series b, if there is one.
        bytes[40] ^= 1;
        fs::write(&second, &bytes).unwrap();
        let db = open(dir.path());
        let expected: &[i64] = if same_series { &[0, 1, 8] } else { &[0, 1] };
        assert_eq!(times(&db, "a"), expected);
        assert_eq!(db.recovery().damaged.len(), if same_series { 1 } else { 2 });
        drop(db);
        append(dir.path(), "c", 0..1);
        assert_eq!(times(&open(dir.path()), "c"), [0]);
    }
}

#[test]
fn a_torn_file_that_is_not_the_last_keeps_its_end_aside_and_the_rest_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..2);
    let first = dir.path().join("wal/00000001.wal");
    let mut bytes = fs::read(&first).unwrap();
    append(dir.path(), "a", 2..4);
    bytes.extend([7; 20]);
    fs::write(&first, &bytes).unwrap();
    let db = open(dir.path());
    assert_eq!(times(&db, "a"), [0, 1, 2, 3]);
    let aside = db.recovery().torn[0].set_aside.clone().unwrap();
    assert_eq!(fs::read(aside).unwrap(), [7; 20]);
}

#[test]
fn what_an_unfinished_flush_left_is_removed_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..2);
    for name in ["segments/x.parquet", "series/000009.parquet", "meta/000009.json", "MANIFEST.new"] {
        fs::write(dir.path().join(name), "half").unwrap();
    }
    let db = open(dir.path());
    assert_eq!(db.recovery().removed.len(), 3);
    assert!(!dir.path().join("MANIFEST.new").exists());
    db.flush().unwrap();
    assert_eq!(times(&db, "a"), [0, 1]);
}

#[test]
fn a_missing_segment_is_reported_and_reading_it_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..2);
    open(dir.path()).close().unwrap();
    let segment = fs::read_dir(dir.path().join("segments")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&segment).unwrap();
    let db = open(dir.path());
    assert_eq!(db.recovery().missing, [segment]);
    let ids = db.index().select("a", &[]);
    assert!(db.snapshot().points(ids, TimeRange::ALL).next().unwrap().is_err());
}

#[test]
fn data_without_a_manifest_is_not_taken_for_an_empty_database() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), "a", 0..2);
    fs::remove_file(dir.path().join("MANIFEST")).unwrap();
    for _ in 0..2 {
        let error = Db::open(dir.path(), Options::default()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}

#[test]
fn a_new_database_says_so_and_keeps_its_id_and_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/down");
    let db = Db::open(&path, Options { node: "nid7".to_owned(), ..Options::default() }).unwrap();
    assert!(db.recovery().created);
    let id = db.info().unwrap().database;
    drop(db);
    let db = open(&path);
    assert_eq!((db.info().unwrap().database, db.snapshot().node()), (id, "nid7"));
    let error = Db::open_read_only(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
}
