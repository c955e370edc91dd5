//! `kill -9` under load, again and again: every acknowledged sample is there, and no other.
//!
//! Two clients send batches as fast as they are answered, one of them with `?sync`. When a random number of batches has
//! been acknowledged, the server is killed and started again on the same directory. A killed process loses nothing that
//! the operating system has, so buffered acknowledgements must keep the same promise here; what they may lose when the
//! machine dies is tested over the simulated disk. A signal that asks for the end gets it in order.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::process::{Connection, PATIENCE, Server, telem};
use crate::script::EPOCH_MS;

/// How often the server is killed, unless `TELEM_ROUNDS` says otherwise.
const ROUNDS: u64 = 5;
const BATCH: i64 = 40;
const CLIENTS: [(&str, &str); 2] = [("synced", "/api/put?sync"), ("buffered", "/api/put")];

/// What one client put: sample number `n` lies at `EPOCH_MS + n`.
#[derive(Default)]
struct Put {
    sent: BTreeSet<i64>,
    acknowledged: BTreeSet<i64>,
}

#[test]
fn a_killed_server_has_every_acknowledged_sample_and_nothing_that_nobody_sent() {
    let seed = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let rounds = std::env::var("TELEM_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    println!("seed {seed}, {rounds} rounds (TELEM_SEED={seed} draws the same moments; TELEM_ROUNDS)");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let puts: [Mutex<Put>; 2] = Default::default();
    for round in 0..rounds {
        let mut server = Server::serve(&data, &[]);
        if round > 0 {
            let line = server.wait_for_line("recovery: ");
            assert!(line.contains(char::is_numeric), "the recovery line has no numbers: {line}");
        }
        check(&server, &puts, seed);
        let batches = 5 + drawn(seed, round) % 120;
        put_until_killed(server, &puts, batches);
    }
    let server = Server::serve(&data, &[]);
    check(&server, &puts, seed);
    let (status, _) = server.terminate();
    assert!(status.success());
    check(&Server::serve(&data, &[]), &puts, seed);
    for put in puts {
        let put = put.into_inner().unwrap();
        assert!(put.acknowledged.len() as i64 >= BATCH, "a client got nowhere: {}", put.acknowledged.len());
    }
}

/// Whoever starts a server in a terminal and closes that, or starts it by timeout(1), finds a database that was closed,
/// and no connection file that names a server which is not there. With nohup(1) it outlives the terminal.
#[test]
fn whoever_ends_a_server_ends_it_in_order_a_closed_terminal_and_a_signal_sent_twice_too() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::serve(&data, &[]);
    server
        .post("/api/put", &json!({"metric": "m", "timestamp": 1_767_225_600, "value": 1, "tags": {"host": "a"}}))
        .expect(204);
    assert!(data.join("connection.json").exists());
    server.signal(Signal::HUP);
    let (status, printed) = server.ended();
    assert!(status.success(), "{printed:?}");
    assert!(!data.join("connection.json").exists(), "{printed:?}");
    let checked = telem(["info", "--json"]).arg(&data).output().unwrap();
    let info: Json = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&info["samples"], &info["wal_bytes"]), (&json!(1), &json!(0)), "{info}");

    // As timeout(1) sends each signal to the process and to its group. The system may make one of both.
    for _ in 0..8 {
        let server = Server::serve(&data, &[]);
        server.signal(Signal::TERM);
        server.signal(Signal::TERM);
        let (status, printed) = server.ended();
        assert!(status.success() && !data.join("WRITER").exists(), "{status}: {printed:?}");
    }

    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_telem"), "serve", "--level", "1"]);
    nohup.args(["--listen", "127.0.0.1:0", "--data"]).arg(&data);
    let server = Server::start(nohup);
    server.signal(Signal::HUP);
    server.sql("SELECT count(*) FROM samples").expect(200);
    assert!(server.terminate().0.success());
}

/// SplitMix64.
pub fn drawn(seed: u64, round: u64) -> u64 {
    let mut z = seed.wrapping_add((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The value that belongs to a sample, so that a sample with another's value is noticed.
fn value(client: &str, n: i64) -> i64 {
    (drawn(client.len() as u64, n.cast_unsigned()) >> 20).cast_signed()
}

fn put_until_killed(server: Server, puts: &[Mutex<Put>; 2], batches: u64) {
    std::thread::scope(|scope| {
        let (acknowledge, acknowledged) = channel();
        for (at, put) in puts.iter().enumerate() {
            let (address, acknowledge) = (server.address.clone(), acknowledge.clone());
            scope.spawn(move || put_without_end(at, &address, put, &acknowledge));
        }
        drop(acknowledge);
        for _ in 0..batches {
            acknowledged.recv_timeout(PATIENCE).unwrap();
        }
        // Both clients are in the middle of something now.
        server.kill();
    });
}

fn put_without_end(at: usize, address: &str, put: &Mutex<Put>, acknowledge: &Sender<()>) {
    let (client, path) = CLIENTS[at];
    let mut connection = Connection::tcp(address);
    loop {
        let first = put.lock().unwrap().sent.last().map_or(0, |last| last + 1);
        let numbers = first..first + BATCH;
        put.lock().unwrap().sent.extend(numbers.clone());
        let samples: Vec<Json> = numbers
            .clone()
            .map(|n| {
                let tags = json!({"client": client, "lane": (n % 3).to_string()});
                json!({"metric": "kill", "timestamp": EPOCH_MS + n, "value": value(client, n), "tags": tags})
            })
            .collect();
        let body = Json::from(samples).to_string();
        match connection.request("POST", path, &[], body.as_bytes()) {
            Ok(response) => assert_eq!(response.status, 204, "{}", response.text()),
            Err(_killed) => return,
        }
        put.lock().unwrap().acknowledged.extend(numbers);
        if acknowledge.send(()).is_err() {
            return;
        }
    }
}

fn check(server: &Server, puts: &[Mutex<Put>; 2], seed: u64) {
    for (put, (client, _)) in puts.iter().zip(CLIENTS) {
        let put = put.lock().unwrap();
        if put.acknowledged.is_empty() {
            continue;
        }
        let stored = stored(server, client);
        let lost: Vec<&i64> = put.acknowledged.iter().filter(|n| !stored.contains_key(n)).collect();
        assert!(lost.is_empty(), "seed {seed}: {client}: acknowledged and lost: {lost:?}");
        for (n, found) in &stored {
            assert!(put.sent.contains(n), "seed {seed}: {client}: sample {n} = {found} was never sent");
            assert_eq!(*found, value(client, *n), "seed {seed}: {client}: sample {n} has another value");
        }
    }
}

/// Number to value of every sample of one client.
fn stored(server: &Server, client: &str) -> BTreeMap<i64, i64> {
    let query = json!({
        "start": EPOCH_MS - 1, "end": EPOCH_MS + 86_400_000, "msResolution": true,
        "queries": [{"metric": "kill", "aggregator": "none", "filters": [
            {"type": "literal_or", "tagk": "client", "filter": client, "groupBy": false}
        ]}],
    });
    let answer = server.post("/api/query", &query).expect(200).json();
    let mut stored = BTreeMap::new();
    for series in answer.as_array().unwrap() {
        for (time, value) in series["dps"].as_object().unwrap() {
            let n = time.parse::<i64>().unwrap() - EPOCH_MS;
            assert_eq!(series["tags"]["lane"], (n % 3).to_string(), "sample {n} is in another series");
            assert_eq!(stored.insert(n, value.as_i64().unwrap()), None);
        }
    }
    stored
}
