use std::path::Path;

use serde_json::json;
use telem_engine::{Db, Durability, MetaChange, Options, SampleBatch, SeriesKey, TagSet, Value};

use telem_engine::Timestamp;

use super::*;

const DAY: i64 = 86_400;

/// A saved run's part of one node: samples of `loss`, the last of them `last`.
fn saved_run(dir: &Path, node: &str, job: &Json, last: f64) -> telem_engine::DbInfo {
    let db = Db::open(dir, Options { node: node.to_owned(), ..Options::default() }).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::new([("host", node)]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    for (at, value) in [(0, 9.0), (1, last)] {
        batch.push(series, Timestamp::from_seconds(DAY + at), Value::Float(value));
    }
    db.append(&batch, Durability::Buffered).unwrap();
    db.put_meta(MetaChange::Job(job.clone()), Durability::Buffered).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    Db::open_read_only(dir, Options::default()).unwrap().info().unwrap()
}

#[test]
fn the_nodes_of_a_run_are_one_row_and_two_runs_into_one_directory_are_two() {
    let dir = tempfile::tempdir().unwrap();
    let ran = |id: &str| {
        json!({"id": id, "command": ["train"], "start": "1970-01-02T00:00:00Z", "exit_code": 0,
        "end": "1970-01-02T00:00:05Z", "settings": {"lr": 0.1}})
    };
    let out = dir.path().join("out");
    let infos = [
        saved_run(&out.join("n1"), "n1", &ran("1"), 0.5),
        // A node that is not the head knows the job alone.
        saved_run(&out.join("n2"), "n2", &json!({"id": "1"}), 0.5),
        saved_run(&out.join("n1-2"), "n1", &ran("2"), 0.25),
    ];
    for turn in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let mut rows = Vec::new();
        for at in turn {
            row::add(&mut rows, vec![RunRow::of(&infos[at], Timestamp::from_seconds(3 * DAY))]);
        }
        rows.sort_by(|a, b| a.job.cmp(&b.job));
        let told: Vec<_> = rows.iter().map(|row| (row.job.as_deref().unwrap(), row.nodes.len(), row.samples)).collect();
        assert_eq!(told, [("1", 2, 4), ("2", 1, 2)]);
        assert_eq!((&*rows[0].state, rows[0].duration_us, &rows[0].dir), ("completed", Some(5_000_000), &out));
        assert_eq!(rows[0].column("lr"), Some(json!(0.1)));
    }
}

#[test]
fn states_say_how_a_run_ended_or_that_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let state = |at: usize, job: Json, now: i64| {
        let info = saved_run(&dir.path().join(at.to_string()), "n", &job, 0.5);
        RunRow::of(&info, Timestamp::from_seconds(now)).state
    };
    let start = "1970-01-02T00:00:00Z";
    assert_eq!(state(0, json!({"id": "0", "start": start, "exit_code": 3, "end": start}), 9 * DAY), "failed");
    assert_eq!(state(1, json!({"id": "0", "start": start, "signal": 9, "end": start}), 9 * DAY), "killed");
    assert_eq!(state(2, json!({"id": "0", "start": start, "end": start}), 9 * DAY), "ended");
    assert_eq!(state(3, json!({"id": "0", "start": start}), DAY + 30), "running");
    assert_eq!(state(4, json!({"id": "0", "start": start}), DAY + 90), "unfinished");
}

#[test]
fn runs_are_found_to_the_depth_that_is_asked_for_and_filtered_by_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let job = |lr: &str| json!({"id": lr, "name": format!("with {lr}"), "settings": {"lr": lr}});
    let info = saved_run(&dir.path().join("a/b/telem-1/n"), "n", &job("0.1"), 0.5);
    saved_run(&dir.path().join("telem-2/n"), "n", &job("0.01"), 0.25);
    saved_run(&dir.path().join(".hidden/n"), "n", &job("1"), 0.25);
    let found = |depth| find::databases(&[dir.path().to_path_buf()], depth).unwrap().len();
    assert_eq!([found(1), found(2), found(3), found(4)], [0, 1, 1, 2]);
    assert!(find::databases(&[dir.path().join("nowhere")], 4).unwrap_err().to_string().contains("nowhere"));

    let row = RunRow::of(&info, Timestamp::from_seconds(DAY));
    let passes = |filter: &str| filter.parse::<RunFilter>().unwrap().passes(&row);
    assert!(passes("lr=0.1") && passes("name=with*") && passes("job=0.1") && !passes("lr=0.01") && !passes("x=*"));
    assert!("lr".parse::<RunFilter>().unwrap_err().contains("KEY=VALUE"));
    let db = Db::open_read_only(&dir.path().join("a/b/telem-1/n"), Options::default()).unwrap();
    let values =
        row::last_values(&db.snapshot(), &row, &["lr".to_owned(), "loss".to_owned(), "gone".to_owned()]).unwrap();
    assert_eq!(values, LastOf::from([("loss".to_owned(), 0.5)]));
}
