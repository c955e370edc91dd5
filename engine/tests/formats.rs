//! Databases of every format must always open, and data written today must have the same bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

#[path = "../../fixtures/db/v1/written.rs"]
mod v1;
#[path = "../../fixtures/db/v2/written.rs"]
mod v2;

use std::fs;
use std::path::{Path, PathBuf};

use telem_engine::Db;
use telem_engine::check::check;
use telem_engine::repair::repair;

/// Saved databases, and whose answers they have.
const SAVED: [(&str, &str); 10] = [
    ("v1/killed", "v1/killed"),
    ("v1/closed", "v1/closed"),
    ("v1/described", "v1/described"),
    ("v1/gpus", "v1/gpus"),
    ("v1/gpus-killed", "v1/gpus-killed"),
    ("v2/shifted", "v2/shifted"),
    ("latest/killed", "v1/killed"),
    ("latest/closed", "v1/closed"),
    ("latest/described", "v1/described"),
    ("latest/shifted", "v2/shifted"),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/db")
}

/// Relative names, sorted.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// What a database answers is line by line what stands beside the one of this name.
fn assert_answers(name: &str, dir: &Path) {
    let db = Db::open_read_only(dir, v1::options()).unwrap();
    let expected = fs::read_to_string(fixtures().join(format!("{name}.answers"))).unwrap();
    let found = v1::answers(&db).unwrap();
    for (at, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {name}.answers", at + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(from.join(&file), target).unwrap();
    }
}

/// A Parquet file without its footer, which says which version of telem wrote it.
fn before_footer(bytes: &[u8]) -> &[u8] {
    let len: [u8; 4] = bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap();
    &bytes[..bytes.len() - 8 - u32::from_le_bytes(len) as usize]
}

/// The manifest without the id of the database, which depends on where it is made.
fn manifest(bytes: &[u8]) -> serde_json::Value {
    let body = bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(body).unwrap();
    json["database"] = "".into();
    json
}

#[test]
fn saved_databases_are_sound_and_answer_as_they_did() {
    for (name, answers) in SAVED {
        let dir = fixtures().join(name);
        let before = files(&dir);
        let report = check(&dir, &v1::options(), &mut |_| {}).unwrap();
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
        assert_answers(answers, &dir);
        assert_eq!(files(&dir), before, "reading wrote something");
    }
}

#[test]
fn a_saved_database_that_is_opened_to_be_written_answers_the_same() {
    for (name, answers) in SAVED {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixtures().join(name), dir.path());
        let db = Db::open(dir.path(), v1::options()).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        db.close().unwrap();
        assert_answers(answers, dir.path());
    }
}

#[test]
fn a_saved_database_without_its_manifest_is_repaired_without_a_loss() {
    for (name, answers) in SAVED {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixtures().join(name), dir.path());
        fs::remove_file(dir.path().join("MANIFEST")).unwrap();
        let report = repair(dir.path(), &v1::options(), &mut |_| {}).unwrap();
        assert_eq!(report.losses, [], "{name}");
        assert!(check(dir.path(), &v1::options(), &mut |_| {}).unwrap().is_sound(), "{name}");
        assert_answers(answers, dir.path());
    }
}

#[test]
fn the_same_samples_are_written_to_the_same_bytes() {
    let version = env!("CARGO_PKG_VERSION");
    for name in v1::NAMES.into_iter().chain(v2::NAMES) {
        let saved = fixtures().join("latest").join(name);
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("database");
        match v1::NAMES.contains(&name) {
            true => v1::write(name, &fresh).unwrap(),
            false => v2::write(&fresh).unwrap(),
        }
        assert_eq!(files(&fresh), files(&saved), "{name}");
        for file in files(&saved) {
            let (found, expected) = (fs::read(fresh.join(&file)).unwrap(), fs::read(saved.join(&file)).unwrap());
            let what = format!("{name}/{}", file.display());
            if file == Path::new("MANIFEST") {
                if version == WRITTEN_BY {
                    assert_eq!(manifest(&found), manifest(&expected), "{what}");
                }
            } else if file.extension().is_some_and(|extension| extension == "parquet") && version != WRITTEN_BY {
                assert!(before_footer(&found) == before_footer(&expected), "{what}");
            } else {
                assert!(found == expected, "{what}");
            }
        }
    }
}

/// The version that wrote the fixtures: it stands in the footers of Parquet files, and their checksums in the manifest.
const WRITTEN_BY: &str = "0.1.0";
