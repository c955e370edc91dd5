//! A job that ended, or was killed, is replayed with the answers that it gave while it ran.

use std::net::TcpStream;

use serde_json::Value as Json;

use super::saving::info;
use super::*;
use crate::process::{Connection, Server};
use crate::replay::{answers, assert_same, contents, telling_samples};

/// Says where telem is, and waits for the end of its stdin.
const WAITING: [&str; 3] = ["sh", "-c", "echo $TELEM_URL; cat"];

fn start(place: &Place, options: &[&str]) -> (Running, Connection<TcpStream>) {
    let options: Vec<&str> = ["--node", "n1", "--save", "out"].iter().chain(options).copied().collect();
    let mut running = Running::start(place.run(&options, &WAITING));
    let url = running.line();
    let connection = Connection::tcp(url.strip_prefix("http://").unwrap());
    (running, connection)
}

fn put(connection: &mut Connection<TcpStream>, samples: &[Json]) {
    let body = Json::from(samples).to_string();
    connection.request("POST", "/api/put", &[], body.as_bytes()).unwrap().expect(204);
}

fn replayed(place: &Place, metric: &str) -> Vec<String> {
    let server = Server::replay([place.path().join("out")], &[]);
    let answers = answers(&mut server.connect(), metric);
    assert!(server.terminate().0.success());
    answers
}

#[test]
fn a_job_that_was_killed_is_replayed_from_what_was_saved_of_its_wal() {
    let place = Place::new();
    let (running, mut connection) = start(&place, &["--level", "1", "--save-interval", "100ms"]);
    let samples = telling_samples("loss");
    put(&mut connection, &samples);
    let copy = place.path().join("out/n1");
    poll("the copy to hold them", || info(&copy).is_some_and(|info| info.samples >= samples.len() as u64));
    let seen = answers(&mut connection, "loss");
    assert_same(&replayed(&place, "loss"), &seen, "while the job runs");
    running.kill_telem(&place);
    drop(running);
    assert!(info(&copy).unwrap().wal_bytes > 0 && copy.join("WRITER").exists(), "nobody had time to close it");
    let before = contents(&copy);
    assert_same(&replayed(&place, "loss"), &seen, "when it was killed");
    assert_eq!(contents(&copy), before);
}

#[test]
fn a_job_that_ended_is_replayed_and_named_with_the_one_that_went_before() {
    let place = Place::new();
    let mut seen = Vec::new();
    for job in ["j1", "j2"] {
        let (running, mut connection) = start(&place, &["--level", "1", "--job", job]);
        put(&mut connection, &telling_samples("loss"));
        seen = answers(&mut connection, "loss");
        let (status, said) = running.end();
        assert!(status.success(), "{said}");
    }
    let mut server = Server::replay([place.path().join("out/n1-2")], &[]);
    assert_same(&answers(&mut server.connect(), "loss"), &seen, "the second job alone");
    server.wait_for_line("job j2: sh -c 'echo $TELEM_URL; cat'; ");
    let mut server = Server::replay([place.path().join("out")], &[]);
    let (one, two) = (server.wait_for_line("job j1: "), server.wait_for_line("job j2: "));
    assert!(one.ends_with("exit code 0") && two.ends_with("exit code 0"), "{one}\n{two}");
    // Both jobs put the same samples: one series each, and each time once.
    let of_metric =
        |answers: &[String]| answers.iter().filter(|answer| answer.contains("/api/query")).cloned().collect::<Vec<_>>();
    assert_same(&of_metric(&answers(&mut server.connect(), "loss")), &of_metric(&seen), "both jobs");
}

/// What `connection` answers about the samples before `end`, in seconds; SQL's rows sorted.
fn of_the_node(connection: &mut Connection<TcpStream>, end: i64) -> Vec<String> {
    let sql =
        format!("SELECT metric, host, node, tags, ts, value, value_int FROM samples WHERE ts < to_timestamp({end})");
    let rows = connection.request("POST", "/api/sql?format=ndjson", &[], sql.as_bytes()).unwrap().expect(200).text();
    let mut answers: Vec<String> = rows.lines().map(str::to_owned).collect();
    answers.sort_unstable();
    for query in [
        "sum:load_average",
        "sum:100ms-avg:rate:node_cpu_seconds_total%7Bmode=*%7D",
        "none:node_memory_MemAvailable_bytes",
        "zimsum:1s-max:node_network_receive_bytes_total%7Bhost=n1%7D",
    ] {
        let path = format!("/api/query?start={}&end={}&ms&m={query}", end - 600, end - 1);
        answers.push(connection.request("GET", &path, &[], b"").unwrap().expect(200).text());
    }
    answers
}

#[test]
fn what_the_node_measured_is_replayed_as_it_was_seen_while_the_job_ran() {
    let place = Place::new();
    let (running, mut connection) = start(&place, &["--level", "2", "--interval", "100ms", "--save-interval", "200ms"]);
    let mut bounds = || {
        let sql =
            b"SELECT CAST(min(ts) AS BIGINT) AS first, CAST(max(ts) AS BIGINT) AS last, count(*) AS count FROM samples";
        let row = connection.request("POST", "/api/sql", &[], sql).unwrap().expect(200).json();
        let whole = |name: &str| row[0][name].as_i64();
        Some((whole("first")? / 1_000_000, whole("last")? / 1_000_000, whole("count")?))
    };
    let mut last = 0;
    // A machine that is busy samples less often.
    poll("three seconds of samples, and enough of them", || {
        bounds().is_some_and(|(first, now, count)| {
            last = now;
            now - first >= 3 && count >= 2_000
        })
    });
    // A tick that is a second late may still add to the newest second.
    let end = last - 1;
    let seen = of_the_node(&mut connection, end);
    assert!(seen.len() > 500, "{} answers", seen.len());
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    let server = Server::replay([place.path().join("out")], &[]);
    assert_same(&of_the_node(&mut server.connect(), end), &seen, "replayed");
}
