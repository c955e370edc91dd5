use std::sync::Arc;

use super::*;
use crate::disk::OsDisk;
use crate::manifest::{JOB_COPY_BYTES_MAX, JobCopy};
use crate::meta::{JobInterval, Meta, MetaChange};
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
    let manifest = place.join("MANIFEST");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen("0.1", "0.2", 1)).unwrap();
    assert_eq!(DbGlance::read(&place, &OsDisk).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(DbGlance::read(dir.path(), &OsDisk).unwrap(), None);
}

/// A database that is described by `job` and closed, and its manifest.
fn described(dir: &Path, job: serde_json::Value) -> (Layout, Manifest) {
    let db = Db::open(dir, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    db.put_meta(MetaChange::Job(job), Durability::Buffered).unwrap();
    db.close().unwrap();
    let layout = Layout::new(dir);
    let manifest = Manifest::load(&OsDisk, &layout).unwrap().unwrap();
    (layout, manifest)
}

fn put_manifest(layout: &Layout, manifest: &Manifest) {
    manifest.prepare(&OsDisk, layout).unwrap();
    Manifest::install(&OsDisk, layout).unwrap();
}

#[test]
fn the_metadata_file_is_read_where_the_manifest_has_no_copy_or_that_of_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let known = || DbGlance::read(dir.path(), &OsDisk).unwrap().unwrap().job.unwrap();
    let (layout, manifest) = described(dir.path(), serde_json::json!({"id": "7", "lr": 0.1}));
    let copy = manifest.job.clone().unwrap();
    assert_eq!(known()["id"], "7");
    // As an older telem leaves it.
    put_manifest(&layout, &Manifest { job: None, ..manifest.clone() });
    assert_eq!(known()["id"], "7");
    // What somebody wrote who knows of copies and does not keep them.
    let (layout, manifest) = described(dir.path(), serde_json::json!({"id": "8"}));
    put_manifest(&layout, &Manifest { job: Some(copy.clone()), ..manifest.clone() });
    assert_eq!(known()["id"], "8");
    // One that claims to be of this file is told by a check, and is gone with the next manifest.
    let entry = manifest.meta.clone().unwrap();
    let mut other = Meta::default();
    other.apply(MetaChange::Job(serde_json::json!({"id": "9"})));
    let lie = JobCopy::of(&entry.file, &other);
    put_manifest(&layout, &Manifest { job: lie, ..manifest });
    let findings = crate::check::check(dir.path(), &Options::default(), &mut |_| {}).unwrap().findings;
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(told.len() == 1 && told[0].starts_with("warning: ") && told[0].contains("which counts"), "{told:?}");
    assert_eq!(Db::open_read_only(dir.path(), Options::default()).unwrap().info().unwrap().job.unwrap()["id"], "8");
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::default()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_seconds(5), Value::Int(1));
    db.append(&batch, Durability::Buffered).unwrap();
    db.close().unwrap();
    assert_eq!(known()["id"], "8");
}

#[test]
fn what_is_too_long_for_a_manifest_is_read_from_the_metadata_file() {
    for (bytes, is_copied) in [(JOB_COPY_BYTES_MAX, true), (JOB_COPY_BYTES_MAX + 1, false)] {
        let dir = tempfile::tempdir().unwrap();
        let empty = serde_json::json!({"command": ""}).to_string().len();
        let job = serde_json::json!({"command": "x".repeat(bytes - empty)});
        let (_, manifest) = described(dir.path(), job.clone());
        assert_eq!(manifest.job.is_some(), is_copied, "{bytes}");
        assert_eq!(DbGlance::read(dir.path(), &OsDisk).unwrap().unwrap().job, Some(job));
    }
}

#[test]
fn a_float_of_a_description_has_every_bit_in_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let floats = [0.1 + 0.2, 1e-300, f64::MAX, -2.225_073_858_507_201e-308, 9_007_199_254_740_993.0];
    let job = serde_json::json!({"settings": floats.to_vec(), "whole": u64::MAX, "deep": {"a": [{"b": null}]}});
    described(dir.path(), job.clone());
    assert_eq!(DbGlance::read(dir.path(), &OsDisk).unwrap().unwrap().job, Some(job));
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
