//! `telem top --once`: the picture of a running and of a saved job; the one on a terminal is tried in tests/py.

use crate::process::{Server, poll, telem};

fn top(named: &str, more: &[&str]) -> String {
    let done = telem(["top", named, "--once"]).args(more).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn top_shows_a_running_job_and_a_saved_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut command =
        telem(["serve", "--level", "2", "--interval", "100ms", "--node", "n1", "--listen", "127.0.0.1:0"]);
    command.arg("--data").arg(dir.path());
    let mut server = Server::start(command);
    let url = format!("http://{}", server.address);
    let now = server.sql("SELECT CAST(now() AS BIGINT) / 1000000000 AS now").json()[0]["now"].as_i64().unwrap();
    let sample = serde_json::json!({"metric": "train.loss", "timestamp": now, "value": 0.125, "tags": {"rank": "0"}});
    server.post("/api/put", &sample).expect(204);
    // A rate needs two seconds.
    let mut shown = String::new();
    poll("a line of the node with its cores", || {
        shown = top(&url, &["--width", "100"]);
        shown.lines().any(|line| line.starts_with("n1 ") && line.contains('/') && line.contains('%'))
    });
    assert!(shown.contains("1 node") && shown.contains("samples/s"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("train.loss") && line.contains("0.125")), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    let connection = server.connection_file();
    assert!(top(&connection.to_string_lossy(), &[]).contains("train.loss"));
    assert!(server.terminate().0.success());
    let saved = dir.path().to_string_lossy().into_owned();
    assert!(top(&saved, &[]).contains("train.loss"));
    let replay = Server::replay([dir.path()], &[]);
    assert!(top(&format!("http://{}", replay.address), &[]).contains("train.loss"));
}

#[test]
fn without_a_server_the_error_says_what_to_name() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("connection.json").to_string_lossy().into_owned();
    for (named, expected) in [
        (&[][..], "no telem is named"),
        (&[&*absent][..], "neither a server, nor its connection file, nor a saved database"),
        (&["http://127.0.0.1:1"][..], "is the server running?"),
    ] {
        for command in [&["top"][..], &["tail", "loss", "--from"]] {
            let words = if named.is_empty() { &command[..command.len().min(2)] } else { command };
            let done = telem(words).args(named).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(1) && said.contains(expected), "{words:?} {named:?}: {said}");
        }
    }
}
