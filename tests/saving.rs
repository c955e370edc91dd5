//! Saved jobs of many nodes: nodes save while the job runs, whichever process is killed. A broken node in a saved job
//! does not hide the others, and is named.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use serde_json::{Value as Json, json};
use telem_engine::{Db, Options, TimeRange};

use crate::kill::drawn;
use crate::process::{Connection, Server, poll, telem};

const START: i64 = 1_767_225_600;
/// What a node says that had too little time to save the rest.
const SLOW: [&str; 2] = ["in the live data", "closing took more than"];
/// How often a node may have too little time in a row.
const ENDS_MAX: u32 = 5;

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
    for part in ["warning: job/n2 is left out: ", "telem check job/n2", "nodes are missing from the answer: n2="] {
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

/// A head, and the nodes of its job with their data in directories of their own.
struct Job {
    dir: tempfile::TempDir,
    through_head: bool,
}

impl Job {
    fn new(through_head: bool) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), through_head }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn copy(&self, node: &str) -> PathBuf {
        self.path("out").join(node)
    }

    fn head(&self) -> Server {
        let (join, out) = (self.path("job.join"), self.path("out"));
        let mut more = vec!["--node", "head", "--join-file", join.to_str().unwrap(), "--save", out.to_str().unwrap()];
        more.extend(["--save-interval", "100ms"]);
        if self.through_head {
            more.push("--save-through-head");
        }
        Server::serve(&self.path("head"), &more)
    }

    fn node(&self, node: &str) -> Server {
        let mut command = telem(["node", "--node", node, "--join"]);
        command.arg(self.path("job.join")).arg("--data").arg(self.path(node));
        Server::start(command)
    }
}

/// Sample number `n` of a node lies at second `n`, and is `n`.
fn put(connection: &mut Connection<TcpStream>, node: &str, numbers: std::ops::Range<i64>) -> bool {
    let sample = |n: i64| json!({"metric": "n", "timestamp": START + n, "value": n, "tags": {"host": node}});
    let body = numbers.map(sample).collect::<Json>().to_string();
    let answer = connection.request("POST", "/api/put", &[], body.as_bytes());
    answer.is_ok_and(|answer| answer.status == 204)
}

/// How many samples a copy has: those of a database that opens, the first of what was put and nothing else.
fn samples_in(copy: &Path) -> i64 {
    let Ok(db) = Db::open_read_only(copy, Options::default()) else { return 0 };
    let snapshot = db.snapshot();
    let series = snapshot.select("n", &[]);
    assert!(series.len() <= 1, "{copy:?}");
    let mut count = 0;
    for points in snapshot.points(series, TimeRange::ALL) {
        let points = points.unwrap();
        let found: Vec<i64> = points.times.iter().map(|time| time.micros() / 1_000_000 - START).collect();
        assert_eq!(found, Vec::from_iter(0..found.len() as i64), "{copy:?} holds no prefix of what was put");
        count = found.len() as i64;
    }
    count
}

#[test]
fn when_all_processes_are_killed_every_copy_opens_and_holds_what_was_put_a_moment_before() {
    let seed = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("seed {seed} (TELEM_SEED={seed} draws the same moment)");
    let job = Job::new(false);
    let head = job.head();
    let names = ["a1", "a2", "a3"];
    let nodes = names.map(|name| job.node(name));
    let stop = AtomicBool::new(false);
    let put_before: [AtomicI64; 3] = Default::default();
    thread::scope(|scope| {
        for ((node, name), done) in nodes.iter().zip(names).zip(&put_before) {
            let (mut connection, stop) = (node.connect(), &stop);
            scope.spawn(move || {
                let mut from = 0;
                // Until the node is killed.
                while !stop.load(Ordering::Relaxed) && put(&mut connection, name, from..from + 50) {
                    from += 50;
                    done.store(from, Ordering::Relaxed);
                }
            });
        }
        // What was put is in the copy within the patience of these tests, which is a minute; then it goes on for a while.
        let wanted = 500 + (drawn(seed, 0) % 3_000).cast_signed();
        poll("every node to have been sent that much", || {
            put_before.iter().all(|done| done.load(Ordering::Relaxed) >= wanted)
        });
        let seen: Vec<i64> = put_before.iter().map(|done| done.load(Ordering::Relaxed)).collect();
        poll("all of it to be saved", || {
            names.iter().zip(&seen).all(|(name, seen)| samples_in(&job.copy(name)) >= *seen)
        });
        for server in nodes.iter().chain([&head]) {
            kill(server);
        }
        stop.store(true, Ordering::Relaxed);
        for (name, seen) in names.iter().zip(&seen) {
            let found = samples_in(&job.copy(name));
            assert!(found >= *seen, "seed {seed}: {name}: {found} of {seen}");
        }
    });
    let (sound, text) = run(job.dir.path(), &["check", "out"]);
    assert!(sound, "seed {seed}: {text}");
    let replayed = Server::replay([job.path("out")], &[]);
    let rows = replayed.sql("SELECT host, count(*) AS n FROM n GROUP BY host ORDER BY host").expect(200).json();
    for (row, name) in rows.as_array().unwrap().iter().zip(names) {
        assert_eq!((&row["host"], row["n"].as_i64()), (&json!(name), Some(samples_in(&job.copy(name)))), "{rows}");
    }
}

fn kill(server: &Server) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_node_that_sees_no_shared_directory_is_saved_through_its_head_and_goes_on_after_a_kill() {
    let job = Job::new(true);
    let head = job.head();
    let node = job.node("a1");
    assert!(put(&mut node.connect(), "a1", 0..500));
    poll("the first samples to be sent", || samples_in(&job.copy("a1")) > 0);
    node.kill();
    let node = job.node("a1");
    assert!(put(&mut node.connect(), "a1", 500..600));
    // Where a machine is too busy for the few seconds that SIGTERM leaves, the node says so, and the next one goes on.
    let (mut status, mut said) = node.terminate();
    for _ in 0..ENDS_MAX {
        if !said.iter().any(|line| SLOW.iter().any(|slow| line.contains(slow))) {
            break;
        }
        (status, said) = job.node("a1").terminate();
    }
    assert!(status.success(), "{said:?}");
    assert_eq!(samples_in(&job.copy("a1")), 600, "SIGTERM saves the rest: {said:?}");
    let inside = |name: &str| fs::read_dir(job.path(name)).unwrap().count();
    assert_eq!(inside("out"), 1, "the same directory as before the kill, and no probe");
    assert!(!job.copy("a1").join("WRITER").exists() && inside("out/a1/wal") == 0, "it was closed in order: {said:?}");
    assert!(head.terminate().0.success());
    let (sound, text) = run(job.dir.path(), &["check", "out"]);
    assert!(sound, "{text}");
}

#[test]
fn a_head_that_is_started_again_is_sent_the_rest_of_the_same_copy() {
    let job = Job::new(true);
    let head = job.head();
    let node = job.node("a1");
    assert!(put(&mut node.connect(), "a1", 0..500));
    poll("the first samples to be sent", || samples_in(&job.copy("a1")) > 0);
    head.kill();
    assert!(put(&mut node.connect(), "a1", 500..600), "the node works on");
    let _head = job.head();
    poll("the rest to be sent to the new head", || samples_in(&job.copy("a1")) == 600);
    assert_eq!(fs::read_dir(job.path("out")).unwrap().count(), 1);
    assert!(node.terminate().0.success());
}
