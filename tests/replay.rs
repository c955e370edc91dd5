//! Saved databases: what was seen live is seen again, one database or several, and nothing is written there.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};

const START: i64 = 1_767_225_600;

/// `count` samples of one series, a second apart.
fn samples(metric: &str, tags: &Json, from: i64, values: impl IntoIterator<Item = Json>) -> Vec<Json> {
    let at = (START + from..).zip(values);
    at.map(|(time, value)| json!({"metric": metric, "timestamp": time, "value": value, "tags": tags})).collect()
}

fn put(server: &Server, samples: &[Json]) {
    server.post("/api/put", &Json::from(samples)).expect(204);
}

/// A database of `node` in `dir` with `samples`: closed in order, or killed, so that its WAL holds them.
fn saved(dir: &Path, node: &str, samples: &[Json], killed: bool) {
    let server = Server::serve(dir, &["--node", node]);
    put(&server, samples);
    if killed {
        server.sql("SELECT count(*) FROM samples").expect(200);
        server.kill();
        return;
    }
    assert!(server.terminate().0.success());
}

/// Every file and directory below `dir`: its mode and its length.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (u32, u64)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = path.metadata().unwrap();
        if about.is_dir() {
            found.extend(contents(&path));
        }
        found.insert(path, (about.permissions().mode(), if about.is_dir() { 0 } else { about.len() }));
    }
    found
}

/// Takes the right to write away from `dir` and all below it, or gives it back.
fn writable(dir: &Path, may: bool) {
    for path in contents(dir).into_keys().chain([dir.to_path_buf()]) {
        let bits = if path.is_dir() { 0o500 } else { 0o400 };
        let mode = if may { bits | 0o200 } else { bits };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn questions(server: &Server) -> Vec<String> {
    let query = json!({"start": START, "end": START + 3600, "queries": [
        {"metric": "loss", "aggregator": "sum", "downsample": "10s-avg"},
        {"metric": "loss", "aggregator": "none", "rate": true, "tags": {"host": "*"}},
    ]});
    let mut answers = vec![server.post("/api/query", &query).expect(200).text()];
    for path in [
        format!("/api/query?start={START}&m=max:loss%7Bhost=*%7D&show_tsuids&ms"),
        "/api/suggest?type=metrics&q=l".to_owned(),
        "/api/search/lookup?m=loss%7Bhost=*%7D".to_owned(),
    ] {
        // How long it took is another number every time.
        let mut answer = server.get(&path).expect(200).json();
        if let Some(answer) = answer.as_object_mut() {
            answer.remove("time");
        }
        answers.push(answer.to_string());
    }
    for sql in [
        "SELECT metric, host, node, tags, ts, value, value_int FROM samples ORDER BY metric, host, ts",
        "SELECT * FROM series ORDER BY id",
        "SELECT * FROM nodes",
        "SELECT ts, value FROM downsample('loss', '10 seconds', 'avg', aggregate => 'sum') ORDER BY ts",
    ] {
        answers.push(server.sql(sql).expect(200).text());
    }
    answers
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a command prints that must succeed.
fn printed<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let output = telem(args).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_was_seen_live_is_seen_again_to_the_last_digit_and_the_directory_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("job/n1");
    let live = Server::serve(&data, &["--node", "n1"]);
    let values = (0..60).map(|n| if n % 7 == 3 { json!(n) } else { json!(f64::from(n) / 3.0) });
    put(&live, &samples("loss", &json!({"host": "a"}), 0, values));
    put(&live, &samples("loss", &json!({"host": "b"}), 5, (0..50).map(|n| json!(n * n))));
    let seen = questions(&live);
    assert!(live.terminate().0.success());

    writable(dir.path(), false);
    let before = contents(dir.path());
    let mut replayed = Server::replay([dir.path().join("job")], &[]);
    assert_eq!(questions(&replayed), seen);
    let refused = replayed.post("/api/put", &samples("loss", &json!({"host": "a"}), 0, [json!(1)])[0]);
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(replayed.get("/api/info").expect(200).json()["read_only"].as_bool().unwrap());

    let (socket, file) = (replayed.socket(), replayed.connection_file());
    assert_eq!(file.parent(), socket.parent());
    let connection: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(connection["socket"], json!(socket));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(replayed.terminate().0.success());
    assert!(!file.exists() && !socket.exists());
    assert_eq!(contents(dir.path()), before);
    writable(dir.path(), true);
}

#[test]
fn replay_says_how_it_is_reached_and_where_the_data_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    saved(dir.path(), "n1", &samples("loss", &json!({"host": "a"}), 0, (0..10).map(|n| json!(n))), false);
    let mut server = Server::replay([dir.path()], &["--grafana-url", "http://graphs:3000/"]);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    server.wait_for_line(&format!("ssh command: ssh -NL localhost:{port}:localhost:{port} "));
    let range = format!("?from={}&to={}", START * 1000, (START + 10) * 1000);
    for uid in ["telem-node", "telem-custom", "telem-self"] {
        server.wait_for_line(&format!("dashboard http://graphs:3000/d/{uid}{range}"));
    }
    // Twice the same, beside each other.
    let mut other = Server::replay([dir.path()], &[]);
    assert_ne!(other.connection_file(), server.connection_file());
    other.wait_for_line("dashboard http://localhost:3000/d/telem-node");
    assert_eq!(other.sql("SELECT count(*) AS n FROM loss").text(), server.sql("SELECT count(*) AS n FROM loss").text());
}

/// Two nodes; a key in both, with times in both, of which the second has others' values.
fn two_nodes() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shared = json!({"rank": "0"});
    let mut first = samples("loss", &shared, 0, (0..10).map(|n| json!(n)));
    first.extend(samples("load", &json!({"host": "n1"}), 0, [json!(0.5)]));
    saved(&dir.path().join("n1"), "n1", &first, true);
    let mut second = samples("loss", &shared, 5, (0..10).map(|n| json!(100 + n)));
    second.extend(samples("load", &json!({"host": "n2"}), 0, [json!(1.5)]));
    saved(&dir.path().join("n2"), "n2", &second, false);
    dir
}

#[test]
fn two_databases_are_one_and_the_later_directory_wins() {
    let dir = two_nodes();
    let (n1, n2) = (dir.path().join("n1"), dir.path().join("n2"));
    let query = format!("/api/query?start={START}&m=none:loss&arrays");
    for (dirs, at_five) in
        [(vec![dir.path().to_path_buf()], 100), (vec![n1.clone(), n2.clone()], 100), (vec![n2.clone(), n1.clone()], 5)]
    {
        let server = Server::replay(&dirs, &[]);
        let lines = server.get(&query).expect(200).json();
        assert_eq!(lines.as_array().unwrap().len(), 1, "equal keys are one series: {lines}");
        let points = lines[0]["dps"].as_array().unwrap();
        assert_eq!((points.len(), &points[5][1]), (15, &json!(at_five)), "{points:?}");
        let local = printed(
            ["sql", "--format", "json"]
                .map(PathBuf::from)
                .into_iter()
                .chain(dirs)
                .chain(["SELECT * FROM samples".into()]),
        );
        let remote = server.sql("SELECT * FROM samples").expect(200).json();
        let sorted = |rows: Json| {
            let mut rows: Vec<String> = rows.as_array().unwrap().iter().map(Json::to_string).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(sorted(serde_json::from_str(&local).unwrap()), sorted(remote));
    }
}

#[test]
fn info_sums_several_databases_up_and_lists_each() {
    let dir = two_nodes();
    let text = printed([Path::new("info"), dir.path()]);
    for expected in [
        "databases  2 in ",
        "nodes      2",
        "samples    22,",
        "series     3",
        "n1: node n1, 11 samples",
        "n2: node n2, 11 samples",
    ] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
    }
    let json: Json = serde_json::from_str(&printed([Path::new("info"), Path::new("--json"), dir.path()])).unwrap();
    assert_eq!((&json["samples"], &json["series"], &json["node"]), (&json!(22), &json!(3), &json!("n1,n2")));
    let nodes: Vec<&Json> = json["databases"].as_array().unwrap().iter().map(|one| &one["node"]).collect();
    assert_eq!(nodes, ["n1", "n2"]);
    let server = Server::replay([dir.path()], &[]);
    let mut served = server.get("/api/info").expect(200).json();
    assert!(served["version"].is_string() && served.get("level").is_none(), "it takes no samples: {served}");
    served.as_object_mut().unwrap().remove("version");
    assert_eq!(served, json);
}

#[test]
fn every_database_is_checked_and_one_that_is_damaged_is_named() {
    let dir = two_nodes();
    let text = printed([Path::new("check"), dir.path()]);
    assert!(text.contains("n1: sound") && text.contains("n2: sound"), "{text}");
    let segment = std::fs::read_dir(dir.path().join("n2/segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let checked = telem([Path::new("check"), dir.path()]).output().unwrap();
    let text = said(&checked);
    assert!(!checked.status.success() && text.contains("n1: sound") && text.contains("n2: DAMAGED"), "{text}");
    let checked = telem([Path::new("check"), Path::new("--json"), dir.path()]).output().unwrap();
    let json: Json = serde_json::from_slice(&checked.stdout).unwrap();
    let sound: Vec<&Json> = json["databases"].as_array().unwrap().iter().map(|one| &one["sound"]).collect();
    assert_eq!((&json["sound"], sound), (&json!(false), vec![&json!(true), &json!(false)]));
}

#[test]
fn what_cannot_be_replayed_or_asked_is_said_with_what_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    saved(&dir.path().join("db"), "n1", &samples("loss", &json!({"host": "a"}), 0, [json!(1)]), false);
    for (command, code, expected) in [
        (vec!["replay", "nowhere"], 1, "there is no directory nowhere"),
        (vec!["replay", "db", "empty"], 1, "empty holds no database"),
        (vec!["info", "file"], 1, "file is a file"),
        (vec!["check", "empty"], 1, "has a file MANIFEST"),
        (vec!["sql", "db"], 2, "there is no query"),
        (vec!["sql", "db", "empty"], 2, "'empty' is a directory"),
        (vec!["sql", "db", "http://localhost:1", "SELECT 1"], 2, "http://localhost:1 is a server: name it alone"),
        (vec!["replay"], 2, "required"),
    ] {
        let output = telem(&command).current_dir(dir.path()).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
        assert!(text.contains(expected), "{command:?}: no '{expected}' in: {text}");
    }
}
