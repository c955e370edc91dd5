//! The recorded telnet exchanges against the real binary, over TCP and over the Unix socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value as Json, json};

use super::{fixtures, read_json};
use crate::process::{PATIENCE, Server};

/// What is answered to some lines until the connection ends. Nothing more is sent then, unless a line says `exit`.
fn exchange(mut stream: impl Read + Write, finish: impl FnOnce(), lines: &[&str]) -> String {
    stream.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    if !lines.contains(&"exit") {
        finish();
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => String::from_utf8(answer).unwrap(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection does not end after {lines:?}"),
        Err(error) => panic!("{lines:?}: {error}"),
    }
}

fn over_tcp(server: &Server, lines: &[&str]) -> String {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    exchange(&stream, || stream.shutdown(Shutdown::Write).unwrap(), lines)
}

fn every_exchange_passes(ask: impl Fn(&[&str]) -> String) {
    let Json::Array(cases) = read_json(&fixtures().join("telnet.json")) else { panic!("no list") };
    assert_eq!(cases.len(), 28);
    for case in cases {
        let lines: Vec<&str> = case["send"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let answer = ask(&lines);
        match case["expect"]["text"].as_str() {
            // Every exchange ends so here.
            Some(expected) => assert_eq!(answer, expected.replace("<EOF>", ""), "{}", case["id"]),
            None => assert!(answer.ends_with('\n'), "{}: {answer}", case["id"]),
        }
    }
}

#[test]
fn every_recorded_line_is_answered_as_opentsdb_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), &["--opentsdb-exact"]);
    every_exchange_passes(|lines| over_tcp(&server, lines));
    let socket = server.socket();
    every_exchange_passes(|lines| {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        exchange(&stream, || stream.shutdown(Shutdown::Write).unwrap(), lines)
    });
    let rows =
        server.sql("SELECT tags['host'] AS host, value, value_int FROM samples WHERE metric = 'tel.m' ORDER BY ts");
    let int = |value: i64| json!({"host": "a", "value": value as f64, "value_int": value});
    let float = json!({"host": "a", "value": 42.5, "value_int": null});
    assert_eq!(rows.expect(200).json(), json!([int(42), float, float, int(1), int(2), int(1)]));
}

#[test]
fn puts_are_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let lines: Vec<String> = (0..10_000).map(|n| format!("put tel.m {} {n} host=a", 1_356_998_400 + n)).collect();
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.push("put");
    let server = Server::serve(&data, &[]);
    let told = over_tcp(&server, &lines);
    assert_eq!(told, "put: illegal argument: not enough arguments (need least 4, got 0)\n");
    // The one sync of this put makes durable what came before it.
    let last = json!({"metric": "last", "timestamp": 1_356_998_400, "value": 1, "tags": {"host": "a"}});
    server.post("/api/put?sync", &last).expect(204);
    server.kill();
    let server = Server::serve(&data, &[]);
    let rows = server.sql("SELECT count(*) AS n, sum(value_int) AS sum FROM samples WHERE metric = 'tel.m'");
    assert_eq!(rows.expect(200).json(), json!([{"n": 10_000, "sum": 9_999 * 5_000}]));
}
