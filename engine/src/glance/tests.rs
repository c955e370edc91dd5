use std::sync::Arc;

use super::*;
use crate::disk::OsDisk;
use crate::meta::{JobInterval, MetaChange};
use crate::series::{SeriesKey, TagSet};
use crate::value::Value;
use crate::{Db, Durability, ErrorKind, Options, SampleBatch};

#[test]
fn a_glance_says_what_an_open_does_once_the_database_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("db");
    let db = Db::open(&place, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    db.put_meta(MetaChange::Job(serde_json::json!({"id": "7", "lr": 0.1})), Durability::Buffered).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::default()).unwrap()).unwrap();
    for hour in 0..3 {
        let mut batch = SampleBatch::default();
        batch.push(series, Timestamp::from_seconds(3_600 * hour + 5), Value::Int(hour));
        db.append(&batch, Durability::Buffered).unwrap();
    }
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap(), None, "what is in the WAL only an open tells");
    db.close().unwrap();
    drop(db);
    let open = Db::open_read_only(&place, Options::default()).unwrap();
    let info = open.info().unwrap();
    assert_eq!((info.samples, info.job.as_ref().unwrap()["id"].as_str()), (3, Some("7")));
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap(), Some(DbGlance::of(info, &open.snapshot())));
    // Whether the files of its samples are there it does not say; what it reads it checks.
    let meta = std::fs::read_dir(place.join("meta")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(meta, "{}").unwrap();
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(DbGlance::read(dir.path(), &OsDisk).unwrap(), None);
}

#[test]
fn jobs_that_shared_a_database_are_told_as_its_samples_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("db"), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    for (at, id) in [(1, "a"), (20, "b"), (300, "a")] {
        let time = Timestamp::from_seconds(at);
        let job = serde_json::json!({"id": id, "start": format!("1970-01-01T00:{:02}:{:02}Z", at / 60, at % 60)});
        let interval = JobInterval { slot: 0, since: Some(time), begin: time, end: Some(time), job: Arc::new(job) };
        db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered).unwrap();
    }
    db.close().unwrap();
    let glance = DbGlance::read(&dir.path().join("db"), &OsDisk).unwrap().unwrap();
    let names: Vec<&str> = glance.parts.iter().map(|part| &*part.job).collect();
    assert_eq!(names, ["a", "b", "a-2", "local"]);
}
