//! `telem tail`: what a server gets is printed once, and the end is told.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};

const START: i64 = 1_767_225_600;

fn put(server: &Server, metric: &str, rank: &str, from: i64, values: &[f64]) {
    let samples = values
        .iter()
        .zip(from..)
        .map(|(value, at)| json!({"metric": metric, "timestamp": START + at, "value": value, "tags": {"rank": rank}}));
    server.post("/api/put", &Json::from(samples.collect::<Vec<_>>())).expect(204);
}

/// `telem tail` as it runs.
struct Tail {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl Tail {
    fn start(server: &Server, more: &[&str]) -> Self {
        let mut command = telem(["tail", "--interval", "50ms", "--from"]);
        command.arg(format!("http://{}", server.address)).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines, said }
    }

    /// The next lines, without the date.
    fn next(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended after {lines:?}");
            lines.push(line.trim_end().split_once('T').unwrap().1.to_owned());
        }
        lines
    }

    /// What came until it ended by itself, and what it said.
    fn rest(mut self) -> (Vec<String>, Vec<String>) {
        let rest = (&mut self.lines).lines().map(Result::unwrap).collect();
        let said: Vec<String> = (&mut self.said).lines().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success(), "{said:?}");
        (rest, said)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a tail that ends by itself.
fn saved(dir: &Path, more: &[&str]) -> Vec<String> {
    let done = telem(["tail", "--from"]).arg(dir).args(more).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tail_prints_what_a_server_gets_once_and_tells_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    put(&server, "loss", "0", 0, &[1.0, 0.5, 0.25]);
    put(&server, "lr", "0", 0, &[0.1]);
    let mut tail = Tail::start(&server, &["loss*", "--lines", "2"]);
    assert_eq!(tail.next(2), ["00:00:01.000Z loss{rank=0} 0.5", "00:00:02.000Z loss{rank=0} 0.25"]);
    put(&server, "loss", "0", 2, &[0.25, 0.125]);
    assert_eq!(tail.next(1), ["00:00:03.000Z loss{rank=0} 0.125"]);
    // Late, and of a metric that was not there before.
    put(&server, "loss", "1", 1, &[7.0]);
    assert_eq!(tail.next(1), ["00:00:01.000Z loss{rank=1} 7"]);
    put(&server, "loss.mean", "0", 4, &[3.0]);
    assert_eq!(tail.next(1), ["00:00:04.000Z loss.mean{rank=0} 3"]);
    assert!(server.terminate().0.success());
    let (rest, said) = tail.rest();
    assert!(rest.is_empty() && said.iter().any(|line| line.contains("has ended")), "{rest:?} {said:?}");
}

#[test]
fn of_a_saved_database_the_last_samples_are_printed_or_those_since_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    put(&server, "loss", "0", 0, &[1.0, 0.5, 0.25]);
    put(&server, "loss", "1", 0, &[2.0]);
    put(&server, "lr", "0", 4000, &[0.1]);
    assert!(server.terminate().0.success());
    let lines = saved(dir.path(), &["loss", "--tag", "rank=0", "-n", "1"]);
    assert_eq!(lines, ["2026-01-01T00:00:02.000Z loss{rank=0} 0.25"]);
    assert_eq!(saved(dir.path(), &["l*", "--tag", "rank=?"]).len(), 5);
    assert_eq!(saved(dir.path(), &["loss", "--since", "1s-ago"]).len(), 2);
    let json: Json = serde_json::from_str(&saved(dir.path(), &["lr", "--json"])[0]).unwrap();
    assert_eq!(json, json!({"time": "2026-01-01T01:06:40.000Z", "metric": "lr", "tags": {"rank": "0"}, "value": 0.1}));
    // From its beginning, an hour a second: in the order of the times.
    let played = saved(dir.path(), &["l*", "--speed", "36000", "--interval", "10ms"]);
    assert_eq!(played.len(), 5);
    assert!(played.is_sorted() && played[4].contains("lr"), "{played:?}");
    let none = telem(["tail", "nothing", "--tag", "rank=0", "--from"]).arg(dir.path()).output().unwrap();
    let why = "has no sample of nothing with rank=0; `telem info` lists metrics";
    assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains(why), "{none:?}");
}
