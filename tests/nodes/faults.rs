//! Agents under a real workload that are killed and stopped while queries run all the time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use telem_engine::{Clock, SystemClock};

use super::*;
use crate::process::Response;

const AGENTS: [&str; 4] = ["n1", "n2", "n3", "n4"];
/// How long a question may take, and what a busy machine may add to that before it is told.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// What one answer covers, and what it says that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Covered {
    nodes: BTreeSet<String>,
    missing: BTreeSet<String>,
}

impl Covered {
    fn of(answer: &Response, nodes: BTreeSet<String>) -> Self {
        let missing = answer.header("x-telem-missing").unwrap_or_default();
        let name = |one: &str| one.split('=').next().unwrap().to_owned();
        let missing = missing.split(", ").filter(|one| !one.is_empty()).map(name).collect();
        Covered { nodes: nodes.into_iter().filter(|node| AGENTS.contains(&node.as_str())).collect(), missing }
    }

    /// Whether every agent is covered or named, and none is both.
    fn is_exact(&self) -> bool {
        let all: BTreeSet<String> = self.nodes.union(&self.missing).cloned().collect();
        all == names(&AGENTS) && self.nodes.is_disjoint(&self.missing)
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Asks the head in turn for time series, for aggregates in SQL and for rows.
fn ask(address: &str, nth: usize) -> Covered {
    let mut connection = Connection::tcp(address);
    let texts = |rows: &Json, key: &str| -> BTreeSet<String> {
        let rows = rows.as_array().unwrap_or_else(|| panic!("{rows}"));
        rows.iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
    };
    if nth.is_multiple_of(3) {
        let path = "/api/query?start=10m-ago&m=sum:10s-count:node_load1%7Bhost=*%7D";
        let answer = connection.request("GET", path, &[], b"").unwrap().expect(200);
        let rows: Vec<Json> = answer.json().as_array().unwrap().iter().map(|line| line["tags"].clone()).collect();
        return Covered::of(&answer, texts(&Json::from(rows), "host"));
    }
    let sql = match nth % 3 {
        1 => "SELECT host, count(*) AS samples, max(value) AS most FROM node_load1 GROUP BY host",
        _ => "SELECT host, ts, value FROM node_load1 WHERE value >= 0",
    };
    let answer = connection.request("POST", "/api/sql", &[], sql.as_bytes()).unwrap().expect(200);
    let nodes = texts(&answer.json(), "host");
    Covered::of(&answer, nodes)
}

#[test]
fn questions_are_answered_in_time_and_exactly_while_agents_are_killed_stopped_and_come_back() {
    let job = Job::new();
    let deadline = DEADLINE.as_secs().to_string() + "s";
    let head = job.head_of("2", "127.0.0.1:0", "head", &["--query-deadline", &deadline]);
    let mut agents: Vec<Option<Server>> = AGENTS.iter().map(|name| Some(job.agent(name, name))).collect();
    let latest = Arc::new(Mutex::new(Covered::default()));
    let over = Arc::new(AtomicBool::new(false));
    let asking = {
        let (address, latest, over) = (head.address.clone(), Arc::clone(&latest), Arc::clone(&over));
        std::thread::spawn(move || {
            let clock = SystemClock::new();
            let (mut worst, mut asked, mut inexact) = (Duration::ZERO, 0, Vec::new());
            // From when all are there on, every answer must cover or name each of them.
            let mut complete = false;
            while !over.load(Ordering::Relaxed) {
                let begun = clock.monotonic();
                let covered = ask(&address, asked);
                worst = worst.max(clock.monotonic().saturating_sub(begun));
                complete |= covered.nodes == names(&AGENTS);
                if complete && !covered.is_exact() {
                    inexact.push(covered.clone());
                }
                *latest.lock().unwrap() = covered;
                asked += 1;
                std::thread::park_timeout(PAUSE);
            }
            (worst, asked, inexact)
        })
    };
    let wait_for = |nodes: &[&str]| {
        poll(&format!("answers of {nodes:?}"), || latest.lock().unwrap().nodes == names(nodes));
    };
    wait_for(&AGENTS);

    agents[1].take().unwrap().kill();
    wait_for(&["n1", "n3", "n4"]);
    assert_eq!(latest.lock().unwrap().missing, names(&["n2"]));

    let stopped = Pid::from_raw(i32::try_from(agents[2].as_ref().unwrap().id()).unwrap()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    wait_for(&["n1", "n4"]);
    assert_eq!(latest.lock().unwrap().missing, names(&["n2", "n3"]));

    kill_process(stopped, Signal::CONT).unwrap();
    wait_for(&["n1", "n3", "n4"]);
    agents[1] = Some(job.agent("n2", "n2"));
    wait_for(&AGENTS);

    over.store(true, Ordering::Relaxed);
    let (worst, asked, inexact) = asking.join().unwrap();
    println!("{asked} questions, the longest took {worst:?}");
    assert!(worst < DEADLINE + Duration::from_secs(1), "a question outlasted its deadline: {worst:?}");
    assert_eq!(inexact, [], "answers that neither cover nor name a node");
}
