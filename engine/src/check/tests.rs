use std::fs;

use super::*;
use crate::db::{Db, Durability};
use crate::sample::SampleBatch;
use crate::series::{SeriesKey, TagSet};
use crate::value::Value;

/// A closed database with two flushes and metadata, then an unclosed one with a WAL.
fn database(dir: &Path) {
    let db = Db::open(dir, Options::default()).unwrap();
    for (round, name) in ["b", "a", "c"].into_iter().enumerate() {
        let series = db.series(&SeriesKey::new(name, TagSet::new([("k", "v")]).unwrap()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        for at in 0..100 {
            batch.push(series, Timestamp::from_seconds(at), Value::Float(at as f64 / 7.0));
        }
        db.append(&batch, Durability::Buffered).unwrap();
        let job = serde_json::json!({ "round": round });
        db.put_meta(crate::meta::MetaChange::Job(job), Durability::Buffered).unwrap();
        if round < 2 {
            db.flush().unwrap();
        }
    }
}

fn run(dir: &Path) -> CheckReport {
    let mut last = 0;
    check(dir, &Options::default(), &mut |progress| {
        assert!(progress.bytes_done <= progress.bytes_total, "{progress:?}");
        last = progress.bytes_done;
    })
    .unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn a_good_database_has_no_findings() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path());
    let report = run(dir.path());
    let warnings: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
    // The first flush's metadata file was replaced; it stays until the next open.
    assert!(warnings.iter().all(|text| text.contains("/meta/000002.json")), "{warnings:?}");
    assert!(report.is_sound());
    assert_eq!((report.segments, report.series, report.samples), (2, 3, 300));
    drop(Db::open(dir.path(), Options::default()).unwrap());
    assert_eq!(run(dir.path()).findings, []);
}

#[test]
fn a_flipped_bit_in_any_file_is_found_and_never_read_as_data() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path());
    let good = Db::open_read_only(dir.path(), Options::default()).unwrap();
    let all = |db: &Db| -> Result<Vec<crate::snapshot::SeriesPoints>> {
        let ids = (0..db.index().len() as u32).map(crate::series::SeriesId).collect();
        db.snapshot().points(ids, crate::time::TimeRange::ALL).collect()
    };
    let expected = all(&good).unwrap();
    drop(Db::open(dir.path(), Options::default()).unwrap());
    for path in files(dir.path()) {
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by((bytes.len() / 23).max(1)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, &flipped).unwrap();
            let report = run(dir.path());
            let is_wal_end = path.extension().is_some_and(|extension| extension == "wal");
            assert!(!report.findings.is_empty(), "{} at {at}", path.display());
            let is_list = path.ends_with(layout::WAL_LIST);
            assert!(!report.is_sound() || is_wal_end || is_list, "{} at {at}: {:?}", path.display(), report.findings);
            // Readers get an error, or less (a WAL that ends early), but never other samples.
            if let Ok(found) = Db::open_read_only(dir.path(), Options::default()).and_then(|db| all(&db)) {
                assert!(
                    is_wal_end || is_list || path.starts_with(dir.path().join("meta")),
                    "{} at {at}",
                    path.display()
                );
                for points in &found {
                    let whole = expected.iter().find(|whole| whole.series == points.series).unwrap();
                    assert_eq!(points, whole);
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(run(dir.path()).findings, []);
}

#[test]
fn a_file_that_is_missing_cut_short_or_not_named_is_found() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path());
    drop(Db::open(dir.path(), Options::default()).unwrap());
    for path in files(dir.path()).into_iter().filter(|path| !path.ends_with(layout::MANIFEST)) {
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // Without the list nothing is lost, but that the next loss would be noticed.
        let is_list = path.ends_with(layout::WAL_LIST);
        assert!(is_list || !run(dir.path()).is_sound(), "{} missing", path.display());
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let report = run(dir.path());
        assert!(report.findings.iter().any(|finding| finding.file == path), "{}: {report:?}", path.display());
        fs::write(&path, &bytes).unwrap();
    }
    fs::write(dir.path().join(layout::CONNECTION), "{}").unwrap();
    fs::write(dir.path().join(layout::COUNTERS_TAIL), "").unwrap();
    fs::write(dir.path().join(layout::COUNTERS_TAIL_NEW), "").unwrap();
    assert_eq!(run(dir.path()).findings, [], "whoever serves a database leaves this");
    let stray = dir.path().join("segments/x.parquet");
    fs::write(&stray, "x").unwrap();
    let report = run(dir.path());
    assert_eq!(report.findings.len(), 1);
    assert!(report.is_sound());
    assert_eq!(report.findings[0].file, stray);
}

#[test]
fn a_directory_without_a_manifest_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let error = check(dir.path(), &Options::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
}
