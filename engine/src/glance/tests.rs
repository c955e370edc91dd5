use super::*;
use crate::disk::OsDisk;
use crate::meta::MetaChange;
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
    let info = Db::open_read_only(&place, Options::default()).unwrap().info().unwrap();
    assert_eq!((info.samples, info.job.as_ref().unwrap()["id"].as_str()), (3, Some("7")));
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap(), Some(DbGlance::from(info)));
    // Whether the files of its samples are there it does not say; what it reads it checks.
    let meta = std::fs::read_dir(place.join("meta")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(meta, "{}").unwrap();
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(DbGlance::read(dir.path(), &OsDisk).unwrap(), None);
}
