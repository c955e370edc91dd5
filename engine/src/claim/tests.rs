use super::*;
use crate::{Db, Durability, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

fn database(dir: &Path) -> Db {
    let db = Db::open(dir, Options::default()).unwrap();
    let series = db.series(&SeriesKey::new("m", TagSet::new([("k", "v")]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_seconds(1), Value::Int(1));
    db.append(&batch, Durability::Synced).unwrap();
    db.flush().unwrap();
    db
}

#[test]
fn a_database_that_is_written_can_be_neither_removed_nor_moved() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("db");
    let db = database(&own);
    let refused = DbClaim::new(&own, &Options::default()).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    db.close().unwrap();
    DbClaim::new(&own, &Options::default()).unwrap();
    // It is let go of again.
    DbClaim::new(&own, &Options::default()).unwrap().remove().unwrap();
    assert!(!own.exists());
}

#[test]
fn what_is_not_of_the_database_stays() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path()).close().unwrap();
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    DbClaim::new(dir.path(), &Options::default()).unwrap().remove().unwrap();
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    assert!(!Db::stands_in(dir.path(), &crate::disk::OsDisk).unwrap());
}
