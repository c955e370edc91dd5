//! Saved jobs of many nodes: one broken node does not hide the others, and is named.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};

const START: i64 = 1_767_225_600;

/// Databases of `n1`, `n2`, ... in directories of their names, each with ten samples of a series of its own.
fn job(dir: &Path, nodes: usize) {
    for node in (1..=nodes).map(|n| format!("n{n}")) {
        let server = Server::serve(&dir.join(&node), &["--node", &node]);
        let at = |second: i64| json!({"metric": "load", "timestamp": START + second, "value": second, "tags": {"host": node}});
        server.post("/api/put", &(0..10).map(at).collect()).expect(204);
        assert!(server.terminate().0.success());
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(dir: &Path, words: &[&str]) -> (bool, String) {
    let output = telem(words).current_dir(dir).output().unwrap();
    (output.status.success(), said(&output))
}

#[test]
fn a_node_that_cannot_be_opened_is_left_out_and_named_and_with_strict_nothing_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    job(&dir.path().join("job"), 3);
    fs::write(dir.path().join("job/n2/MANIFEST"), "telem-database 1 of which a part is here").unwrap();
    let count = "SELECT count(*) AS n, count(DISTINCT host) AS hosts FROM samples";
    let (done, text) = run(dir.path(), &["sql", "job", count, "--format", "json"]);
    assert!(done && text.contains(r#"{"n":20,"hosts":2}"#), "{text}");
    for part in ["warning: job/n2 is left out: ", "telem check job/n2", "the answer lacks nodes: n2="] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let (done, text) = run(dir.path(), &["info", "job"]);
    assert!(done && text.contains("samples    20") && text.contains("n2: LEFT OUT, "), "{text}");
    for node in ["n1: node n1, 10 samples", "n3: node n3, 10 samples"] {
        assert!(text.contains(node), "{text}");
    }
    let (done, text) = run(dir.path(), &["export", "job", "-o", "job.csv"]);
    assert!(done && text.contains("the export lacks nodes: n2="), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("job.csv")).unwrap().lines().count(), 1 + 20);
    for words in [&["sql", "job", count, "--strict"][..], &["info", "job", "--strict"], &["replay", "job", "--strict"]]
    {
        let (done, text) = run(dir.path(), words);
        assert!(!done && text.contains("job/n2/MANIFEST"), "{words:?}: {text}");
    }
    let (done, text) = run(dir.path(), &["export", "job", "-o", "strict.csv", "--strict"]);
    assert!(!done && !dir.path().join("strict.csv").exists(), "{text}");
}

#[test]
fn what_is_replayed_without_a_broken_node_says_so_in_every_answer() {
    let dir = tempfile::tempdir().unwrap();
    job(dir.path(), 3);
    fs::write(dir.path().join("n2/MANIFEST"), "").unwrap();
    let mut server = Server::replay([dir.path()], &[]);
    server.wait_for_line("is left out: ");
    let answer = server.sql("SELECT count(*) AS n FROM samples").expect(200);
    assert_eq!(answer.json(), json!([{"n": 20}]));
    assert!(answer.header("x-telem-missing").is_some_and(|missing| missing.starts_with("n2=")), "{:?}", answer.text());
    let answer = server.get(&format!("/api/query?start={START}&m=none:load")).expect(200);
    assert!(answer.header("x-telem-missing").is_some_and(|missing| missing.starts_with("n2=")), "{:?}", answer.text());
    let lines = answer.json();
    let hosts: Vec<&Json> = lines.as_array().unwrap().iter().map(|line| &line["tags"]["host"]).collect();
    assert_eq!(hosts, ["n1", "n3"]);
}

#[test]
fn all_nodes_are_checked_also_behind_a_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    job(&dir.path().join("job"), 4);
    fs::write(dir.path().join("job/n2/MANIFEST"), "").unwrap();
    let (sound, text) = run(dir.path(), &["check", "job"]);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("job/")).collect();
    let starts = ["job/n1: sound", "job/n2: DAMAGED", "job/n3: sound", "job/n4: sound"];
    assert!(!sound && lines.len() == 4, "{text}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    let checked = telem(["check", "job", "--json"]).current_dir(dir.path()).output().unwrap();
    let json: Json = serde_json::from_slice(&checked.stdout).unwrap();
    let sound: Vec<bool> =
        json["databases"].as_array().unwrap().iter().map(|one| one["sound"].as_bool().unwrap()).collect();
    assert_eq!((&json["sound"], sound), (&json!(false), vec![true, false, true, true]));
}
