//! `telem check` and `telem check --repair` on a saved database that is damaged on purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};

/// A database with every kind of file in a directory of its own.
fn database(dir: &Path) -> PathBuf {
    let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/db/v1/killed");
    let database = dir.join("db");
    for folder in ["", "meta", "segments", "series", "wal"] {
        fs::create_dir_all(database.join(folder)).unwrap();
        for file in fs::read_dir(saved.join(folder)).unwrap() {
            let file = file.unwrap();
            if file.path().is_file() {
                fs::copy(file.path(), database.join(folder).join(file.file_name())).unwrap();
            }
        }
    }
    database
}

fn check(dir: &Path, more: &[&str]) -> Output {
    telem(["check"]).arg(dir).args(more).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Turns some bits of the byte in the middle.
fn damage(file: &Path, bits: u8) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= bits;
    fs::write(file, bytes).unwrap();
}

fn rows(dir: &Path) -> i64 {
    let output =
        telem(["sql"]).arg(dir).args(["--format", "json", "SELECT count(*) AS n FROM samples"]).output().unwrap();
    let answer: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    answer[0]["n"].as_i64().unwrap()
}

#[test]
fn a_lost_manifest_is_named_and_repaired_without_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let database = database(dir.path());
    let before = rows(&database);
    fs::remove_file(database.join("MANIFEST")).unwrap();
    let checked = check(&database, &[]);
    let said = text(&checked);
    assert_eq!(code(&checked), 1, "{said}");
    assert!(said.contains("DAMAGED") && said.contains("--repair would: MANIFEST: rebuild the manifest"), "{said}");
    assert!(!said.contains("would be lost") && !database.join("damaged").exists(), "{said}");

    // Also as a part of a saved job.
    let repaired = check(dir.path(), &["--repair"]);
    let said = text(&repaired);
    assert_eq!(code(&repaired), 0, "{said}");
    assert!(said.contains("repaired: MANIFEST") && said.contains("unproven:"), "{said}");
    assert_eq!(rows(&database), before);
    let again = check(&database, &["--repair"]);
    assert!(code(&again) == 0 && !text(&again).contains("repaired:"), "{}", text(&again));
}

#[test]
fn one_flipped_bit_is_turned_back() {
    let dir = tempfile::tempdir().unwrap();
    let database = database(dir.path());
    let before = rows(&database);
    for file in
        ["segments/20270115T050000Z-20270115T055959Z-000001.parquet", "series/000003.parquet", "meta/000004.json"]
    {
        damage(&database.join(file), 8);
    }
    assert_eq!(code(&check(&database, &[])), 1);
    let repaired = check(&database, &["--repair"]);
    let said = text(&repaired);
    assert!(code(&repaired) == 0 && said.contains("turn one bit back"), "{said}");
    assert_eq!(rows(&database), before);
}

#[test]
fn samples_that_cannot_be_read_are_named_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let database = database(dir.path());
    let before = rows(&database);
    let segment = database.join("segments/20270115T050000Z-20270115T055959Z-000001.parquet");
    damage(&segment, 0x55);
    let damaged = fs::read(&segment).unwrap();
    let checked: Json = serde_json::from_slice(&check(&database, &["--json"]).stdout).unwrap();
    assert_eq!((&checked["sound"], &checked["repair"]["done"]), (&json!(false), &json!(false)));
    let said = text(&check(&database, &[]));
    assert!(said.contains(" samples from 20") && !said.contains("External"), "{said}");
    let lost = &checked["repair"]["losses"][0];
    assert_eq!(lost["kind"], "rows", "{checked:#}");
    assert!(lost["series"][0]["series"].is_string() && lost["samples"].as_i64().unwrap() > 0, "{checked:#}");

    let repaired = check(&database, &["--repair", "--json"]);
    assert_eq!(code(&repaired), 1, "something was lost: {}", text(&repaired));
    let repaired: Json = serde_json::from_slice(&repaired.stdout).unwrap();
    assert_eq!((&repaired["sound"], &repaired["repair"]["losses"][0]), (&json!(true), lost));
    let now = rows(&database);
    assert!(now > 0 && now < before && before - now <= lost["samples"].as_i64().unwrap(), "{now} of {before}");
    let aside = database.join("damaged").join(segment.strip_prefix(&database).unwrap());
    assert_eq!(fs::read(aside).unwrap(), damaged, "what was set aside is what was there");
    assert!(database.join("damaged/repair-0001.json").exists());
    assert_eq!(code(&check(&database, &[])), 0);
}

#[test]
fn a_database_that_is_written_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let refused = check(dir.path(), &["--repair"]);
    assert!(code(&refused) == 1 && text(&refused).contains("is written by process"), "{}", text(&refused));
    drop(server);
    let misused = check(dir.path(), &["--take-over"]);
    assert_eq!(code(&misused), 2, "{}", text(&misused));
}

#[test]
fn the_last_line_sums_up_all_that_was_checked() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["n1", "n2"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::rename(database(&dir.path().join(name)), dir.path().join(format!("{name}-db"))).unwrap();
        fs::remove_dir(dir.path().join(name)).unwrap();
    }
    let last = |output: &Output| text(output).lines().last().unwrap().to_owned();
    let sound = check(dir.path(), &[]);
    assert_eq!(code(&sound), 0);
    let line = last(&sound);
    assert!(
        line.starts_with("in all: databases: 2 sound, 0 damaged, 0 not checked; errors: 0, warnings: 0; "),
        "{line}"
    );
    assert!(line.ends_with("; nothing is lost"), "{line}");
    let series = fs::read_dir(dir.path().join("n1-db/segments")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(series).unwrap();
    let damaged = check(dir.path(), &[]);
    assert_eq!(code(&damaged), 1);
    let line = last(&damaged);
    assert!(line.starts_with("in all: databases: 1 sound, 1 damaged, 0 not checked; errors: 1, "), "{line}");
    assert!(line.contains("1 loss: "), "{line}");
}
