//! `telem compact` on databases in the states in which jobs leave them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value as Json;
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

use crate::process::{Server, telem};

const HOUR_S: i64 = 3_600;
/// 2026-01-01T00:00:00Z.
const DAY_S: i64 = 1_767_225_600;

/// Appends a sample every ten seconds from `from` on, counted from the start of the day.
fn append(db: &Db, metric: &str, from: i64, count: i64, value: i64) {
    let series = db.series(&SeriesKey::new(metric, TagSet::new([("host", "a")]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    for at in 0..count {
        batch.push(series, Timestamp::from_seconds(DAY_S + from + at * 10), Value::Int(value + at));
    }
    db.append(&batch, Durability::Synced).unwrap();
}

/// Three hours in four segments, with ten samples that were written again, and a rest that stands in the WAL alone.
fn left_behind(dir: &Path) -> PathBuf {
    let db = Db::open(dir, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    for hour in 0..3 {
        append(&db, "load", hour * HOUR_S, 300, hour * 1_000);
        append(&db, "heat", hour * HOUR_S, 300, hour * 10);
        db.flush().unwrap();
    }
    append(&db, "load", HOUR_S, 10, 70_000);
    db.flush().unwrap();
    append(&db, "load", 3 * HOUR_S, 50, 5);
    dir.to_path_buf()
}

fn compact(dir: &Path, more: &[&str]) -> Output {
    telem(["compact"]).arg(dir).args(more).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn rows(dir: &Path) -> String {
    let sql = "SELECT metric, ts, value_int FROM samples ORDER BY metric, ts";
    let output = telem(["sql"]).arg(dir).args(["--format", "csv", sql]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn info(dir: &Path) -> Json {
    let output = telem(["info", "--json"]).arg(dir).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

fn segments(dir: &Path) -> usize {
    info(dir)["segment_files"].as_array().unwrap().len()
}

#[test]
fn what_was_left_behind_becomes_one_file_with_the_same_samples() {
    let dir = tempfile::tempdir().unwrap();
    let database = left_behind(&dir.path().join("db"));
    let before = rows(&database);
    assert_eq!((segments(&database), info(&database)["samples_unflushed"].as_u64()), (4, Some(50)));

    let done = compact(&database, &[]);
    let said = text(&done);
    assert_eq!(code(&done), 0, "{said}");
    assert!(said.contains("merged 5 segments into 1; 10 samples had been overwritten\n"), "{said}");
    assert!(
        said.contains("  before  ") && said.contains("  after   2 files, ") && said.contains(" a sample"),
        "{said}"
    );
    assert_eq!((segments(&database), info(&database)["samples_unflushed"].as_u64()), (1, Some(0)));
    assert_eq!(rows(&database), before);
    let check = telem(["check"]).arg(&database).output().unwrap();
    assert!(code(&check) == 0 && text(&check).contains(": sound; 1,850 samples"), "{}", text(&check));
    assert!(!database.join("WRITER").exists(), "the lock is given back");

    let again = compact(&database, &[]);
    assert!(code(&again) == 0 && text(&again).contains(": nothing to merge\n"), "{}", text(&again));
}

#[test]
fn a_program_reads_what_was_won() {
    let dir = tempfile::tempdir().unwrap();
    let database = left_behind(&dir.path().join("db"));
    let done = compact(&database, &["--json"]);
    let said: Json = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done)));
    assert_eq!((said["segments_merged"].as_u64(), said["samples_replaced"].as_u64()), (Some(5), Some(10)));
    assert_eq!((said["before"]["samples"].as_u64(), said["after"]["samples"].as_u64()), (Some(1_860), Some(1_850)));
    assert_eq!(said["after"]["bytes"], info(&database)["bytes"]);
    let each = |side: &str| said[side]["bytes_a_sample"].as_f64().unwrap();
    assert!(each("after") < each("before"), "{said:#}");
}

#[test]
fn every_node_of_a_saved_job_is_merged() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = ["n1", "n2"].map(|node| left_behind(&dir.path().join(node)));
    let done = compact(dir.path(), &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    for node in nodes {
        let of_node = format!("{}: ", node.display());
        let said = text(&done);
        let line = said.lines().find_map(|line| line.strip_prefix(&of_node)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(" flushed from the log, merged "), "{line}");
        assert_eq!(segments(&node), 1);
    }
}

#[test]
fn a_database_that_is_written_is_left_alone_and_so_is_what_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("db");
    let server = Server::serve(&database, &[]);
    let refused = compact(&database, &[]);
    assert!(code(&refused) == 1 && text(&refused).contains("is written by process"), "{}", text(&refused));
    drop(server);

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let refused = compact(&empty, &[]);
    assert!(code(&refused) == 1 && text(&refused).contains("holds no database"), "{}", text(&refused));
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "nothing is made there");
}
