use std::fs;

use serde_json::json;
use telem_engine::{Durability, MetaChange, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

use super::*;

/// A database of one node with one sample, of a run of its own for each `id`.
fn database(dir: &Path, node: &str, id: &str) {
    let db = Db::open(dir, Options { node: node.to_owned(), ..Options::default() }).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::new([("host", node)]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_seconds(1), Value::Int(1));
    db.append(&batch, Durability::Buffered).unwrap();
    let job = json!({"id": id, "command": ["train", id], "start": "1970-01-02T00:00:00Z", "exit_code": 0});
    db.put_meta(MetaChange::Job(job), Durability::Buffered).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
}

fn refused(path: &Path) -> String {
    let found = SavedRun::find(path).and_then(|run| run.require_one());
    match found.unwrap_err() {
        CliFailure::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_is_all_its_nodes_and_what_cannot_be_opened_is_no_part_of_it_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().canonicalize().unwrap().join("run");
    for node in ["n1", "n2"] {
        database(&own.join(node), node, "7");
    }
    let found = SavedRun::find(&own).unwrap();
    found.require_one().unwrap();
    assert_eq!(found.runs, [["n1", "n2"].map(|node| own.join(node))]);
    assert!(found.bytes > 0 && found.others.is_empty());
    // Perhaps another run, whose disk fails for a moment.
    database(&own.join("n2-2"), "n2", "8");
    fs::write(own.join("n2-2/MANIFEST"), "x".repeat(100)).unwrap();
    let why = refused(&own);
    assert!(why.contains("n2-2 cannot be opened") && why.contains("name the databases"), "{why}");
    // It may be moved with the others, and removed by its own name.
    assert_eq!(SavedRun::find(&own).unwrap().claim(&Options::default()).unwrap().len(), 3);
    SavedRun::find(&own.join("n2-2")).unwrap().require_one().unwrap();
}

#[test]
fn two_runs_that_were_saved_into_one_directory_are_told_apart_by_their_databases() {
    let dir = tempfile::tempdir().unwrap();
    database(&dir.path().join("n1"), "n1", "7");
    database(&dir.path().join("n1-2"), "n1", "8");
    let why = refused(dir.path());
    assert!(why.contains("2 runs") && why.contains("/n1;") && why.ends_with("/n1-2"), "{why}");
    // One of them goes, the other stays.
    let one = SavedRun::find(&dir.path().join("n1-2")).unwrap();
    one.require_one().unwrap();
    one.claim(&Options::default()).unwrap().into_iter().try_for_each(DbClaim::remove).unwrap();
    one.clear();
    let left = SavedRun::find(dir.path()).unwrap();
    left.require_one().unwrap();
    assert!(left.runs[0][0].ends_with("n1"));
}

#[test]
fn the_directory_of_a_run_goes_with_its_last_database_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    for node in ["n1", "n2"] {
        database(&run.join(node), node, "7");
    }
    for (node, stays) in [("n1", true), ("n2", false)] {
        let found = SavedRun::find(&run.join(node)).unwrap();
        found.claim(&Options::default()).unwrap().into_iter().try_for_each(DbClaim::remove).unwrap();
        found.clear();
        assert_eq!(run.exists(), stays);
    }
    assert!(dir.path().exists());
}

#[test]
fn databases_below_a_run_that_are_none_of_it_are_neither_passed_over_nor_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    for (at, nested) in ["run/copies/n1", "run/.hidden", "run/n1/mine"].iter().enumerate() {
        let place = dir.path().join(at.to_string());
        database(&place.join("run/n1"), "n1", "7");
        database(&place.join(nested), "n1", "8");
        let why = refused(&place.join("run"));
        assert!(why.contains("not of this run") && why.contains(nested), "{why}");
        // Who moves them all keeps the writers of all out.
        assert_eq!(SavedRun::find(&place.join("run")).unwrap().claim(&Options::default()).unwrap().len(), 2);
    }
}

#[test]
fn a_directory_of_runs_is_none_also_where_one_of_them_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    database(&dir.path().join("runs/a/n1"), "n1", "7");
    let why = refused(&dir.path().join("runs"));
    assert!(why.contains("no saved run but holds") && why.contains("runs/a/n1"), "{why}");
    database(&dir.path().join("runs/served"), "n1", "8");
    fs::write(dir.path().join("runs/served/MANIFEST"), "x".repeat(100)).unwrap();
    let why = refused(&dir.path().join("runs"));
    assert!(why.contains("runs/served") && why.contains("runs/a/n1"), "{why}");
    // What a damaged database is, its own path alone says.
    let damaged = SavedRun::find(&dir.path().join("runs/served")).unwrap();
    damaged.require_one().unwrap();
    let empty = refused(&{
        fs::create_dir(dir.path().join("empty")).unwrap();
        dir.path().join("empty")
    });
    assert!(empty.contains("telem ls"), "{empty}");
}

#[test]
fn a_link_to_a_run_is_refused_by_the_name_of_what_it_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    database(&dir.path().join("run/n1"), "n1", "7");
    std::os::unix::fs::symlink(dir.path().join("run"), dir.path().join("latest")).unwrap();
    for named in ["latest", "latest/"] {
        let why = refused(&dir.path().join(named));
        assert!(why.contains("link to") && why.ends_with("/run; name what it leads to"), "{why}");
    }
}
