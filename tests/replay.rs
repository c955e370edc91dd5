//! Saved databases: they give the same answers as the live one, alone or together, and nothing is written there.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::process::{Connection, Server, telem};

const START: i64 = 1_767_225_600;

const AGGREGATORS: &str = "sum min max avg median none mult dev diff count zimsum mimmin mimmax first last squareSum \
                           p50 p999 ep95r3 ep95r7";

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

/// Every file and directory below `dir`: its mode and what is in it.
pub fn contents(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = path.metadata().unwrap();
        let bytes = if about.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
        if about.is_dir() {
            found.extend(contents(&path));
        }
        found.insert(path, (about.permissions().mode(), bytes));
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

/// What is put where answers are to be compared: numbers that are lost as soon as one digit is, series of unlike
/// times, samples that come late, and some that come twice.
pub fn telling_samples(metric: &str) -> Vec<Json> {
    let thirds = (0..90).map(|n| if n % 7 == 3 { json!(n) } else { json!(f64::from(n) / 3.0) });
    let large = (0..40).map(|n| json!((1_i64 << 53) + 1 + n * n));
    let extremes = [json!(-0.0), json!(5e-324), json!(f64::MAX), json!(-1e-7), json!(i64::MIN), json!(i64::MAX)];
    let mut all = samples(metric, &json!({"host": "a", "rank": "0"}), 0, thirds);
    all.extend(samples(metric, &json!({"host": "b", "rank": "1"}), 5, large.step_by(3)));
    all.extend(samples(metric, &json!({"host": "b", "rank": "2"}), 31, (0..30).map(|n| json!(0.1 * f64::from(n)))));
    all.extend(samples("extremes", &json!({"host": "a"}), 0, extremes));
    all.extend(samples("late", &json!({"host": "a"}), -4000, (0..9).map(|n| json!(n))));
    all.extend(samples(metric, &json!({"host": "a", "rank": "0"}), 20, [json!(0.7), json!(0.7)]));
    all
}

/// What `connection` answers to everything that dashboards, programs and people ask about `metric`, with the question.
pub fn answers(connection: &mut Connection<TcpStream>, metric: &str) -> Vec<String> {
    let mut answers = Vec::new();
    let mut ask = |method: &str, path: &str, body: &str| {
        let answer = connection.request(method, path, &[], body.as_bytes()).unwrap();
        answers.push(format!("{method} {path} {body}\n{} {}", answer.status, answer.text()));
    };
    ask("GET", "/api/aggregators", "");
    for (n, aggregator) in AGGREGATORS.split_whitespace().enumerate() {
        let downsampled =
            format!("{}-{aggregator}{}", ["10s", "7s", "1m"][n % 3], ["", "-nan", "-zero", "-null"][n % 4]);
        let subqueries = json!([
            {"metric": metric, "aggregator": aggregator},
            {"metric": metric, "aggregator": aggregator, "downsample": downsampled, "tags": {"host": "*"}},
            {"metric": metric, "aggregator": "sum", "downsample": downsampled},
            {"metric": metric, "aggregator": aggregator, "rate": true, "rateOptions": {"counter": true}},
        ]);
        let query = json!({"start": START - 5000, "end": START + 3600, "queries": subqueries, "showTSUIDs": true});
        ask("POST", "/api/query", &query.to_string());
    }
    for path in [
        format!("/api/query?start={START}&end={}&m=max:{metric}%7Bhost=*,rank=1%7C2%7D&ms&arrays", START + 40),
        format!("/api/query?start={START}&m=none:{metric}&ms&show_query"),
        format!("/api/query?start={START}&m=none:extremes"),
        "/api/query?start=2025/12/31-00:00:00&m=none:late".to_owned(),
        format!("/api/query?start={START}&m=sum:nowhere"),
        "/api/suggest?type=metrics".to_owned(),
        "/api/suggest?type=tagk".to_owned(),
        "/api/suggest?type=tagv&q=a".to_owned(),
    ] {
        ask("GET", &path, "");
    }
    for sql in [
        "SELECT metric, host, node, tags, ts, value, value_int FROM samples WHERE metric IN ($METRIC, 'extremes', 'late') \
         ORDER BY metric, host, tags['rank'], ts",
        "SELECT id, metric, tags FROM series WHERE metric = $METRIC ORDER BY id",
        "SELECT node FROM nodes",
        "SELECT ts, value FROM downsample($METRIC, '10 seconds', 'avg', aggregate => 'sum') ORDER BY ts",
        "SELECT host, count(*), min(value), max(value), first(value, ts), last(value, ts) FROM samples \
         WHERE metric = $METRIC GROUP BY host ORDER BY host",
        "SELECT time_bucket('7 seconds', ts) AS bucket, sum(value_int), max(value) FROM samples \
         WHERE metric = $METRIC AND host = 'b' GROUP BY bucket ORDER BY bucket",
    ] {
        for format in ["json", "ndjson", "csv"] {
            let path = format!("/api/sql?format={format}");
            ask("POST", &path, &sql.replace("$METRIC", &format!("'{metric}'")));
        }
    }
    // How long that took is another number every time.
    let looked_up = connection.request("GET", &format!("/api/search/lookup?m={metric}"), &[], b"").unwrap();
    let mut found = looked_up.json();
    found.as_object_mut().unwrap().remove("time");
    answers.push(format!("GET /api/search/lookup\n{} {found}", looked_up.status));
    answers
}

/// Fails with the first question that is answered otherwise.
pub fn assert_same(found: &[String], expected: &[String], when: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{when}");
    }
    assert_eq!(found.len(), expected.len(), "{when}");
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
fn what_was_seen_live_is_seen_again_to_the_last_digit_also_of_a_server_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("job/n1");
    let samples = telling_samples("loss");
    let (early, late) = samples.split_at(samples.len() / 2);
    let live = Server::serve(&data, &["--node", "n1"]);
    put(&live, early);
    assert!(live.terminate().0.success());
    // Now one part is in segments and one in memory.
    let live = Server::serve(&data, &["--node", "n1"]);
    put(&live, late);
    let seen = answers(&mut live.connect(), "loss");
    let refused: Vec<&String> = seen.iter().filter(|answer| !answer.contains("\n200 ")).collect();
    assert_eq!(refused.len(), 2, "an unknown metric, and a downsampling to none: {refused:#?}");
    assert!(seen.iter().any(|answer| answer.contains("0.6666666666666666")));
    // Beside the one that writes.
    assert_same(&answers(&mut Server::replay([&data], &[]).connect(), "loss"), &seen, "beside the server");
    live.kill();
    for when in ["of a server that was killed", "of one that was closed"] {
        let before = contents(dir.path());
        let replayed = Server::replay([dir.path().join("job")], &[]);
        assert_same(&answers(&mut replayed.connect(), "loss"), &seen, when);
        assert!(replayed.terminate().0.success());
        assert_eq!(contents(dir.path()), before, "{when}");
        assert!(Server::serve(&data, &["--node", "n1"]).terminate().0.success());
    }
}

#[test]
fn nothing_is_taken_and_nothing_is_written_where_saved_databases_stand() {
    let dir = tempfile::tempdir().unwrap();
    let one = samples("loss", &json!({"host": "a"}), 0, [json!(1)]);
    saved(&dir.path().join("job/n1"), "n1", &one, true);
    writable(dir.path(), false);
    let before = contents(dir.path());
    let mut replayed = Server::replay([dir.path().join("job")], &[]);
    for path in ["/api/put", "/api/put?details", "/api/put?sync"] {
        let refused = replayed.post(path, &one[0]);
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(refused.text().contains("read-only"), "{}", refused.text());
    }
    assert_eq!(replayed.sql("DROP TABLE loss").status, 400);
    assert!(replayed.get("/api/info").expect(200).json()["read_only"].as_bool().unwrap());

    let (socket, file) = (replayed.socket(), replayed.connection_file());
    assert_eq!(file.parent(), socket.parent());
    let connection: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(connection["socket"], json!(socket));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut over_socket = Connection::unix(&socket);
    let count = over_socket.request("POST", "/api/sql", &[], b"SELECT count(*) AS n FROM loss").unwrap();
    assert_eq!(count.json(), json!([{"n": 1}]));
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
    for uid in ["telem-node", "telem-custom", "telem-mpi", "telem-self"] {
        server.wait_for_line(&format!("dashboard http://graphs:3000/d/{uid}{range}"));
    }
    server.wait_for_line("10 samples of 1 series, nodes: 1");
    server.wait_for_line("time 2026-01-01T00:00:00Z to 2026-01-01T00:00:09Z");
    let to_start_one = format!("telem grafana ./grafana --db {} --url http://127.0.0.1:{port}", dir.path().display());
    server.wait_for_line(&to_start_one);
    // Twice the same, beside each other.
    let mut other = Server::replay([dir.path()], &[]);
    assert_ne!(other.connection_file(), server.connection_file());
    other.wait_for_line("dashboard http://localhost:3000/d/telem-node");
    assert_eq!(other.sql("SELECT count(*) AS n FROM loss").text(), server.sql("SELECT count(*) AS n FROM loss").text());
    // It has no levels, and stores nothing whatever anybody asks for.
    let (_, printed) = other.terminate();
    assert!(printed.iter().all(|line| !line.contains("level 0")), "{printed:?}");
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
    assert!(server.get("/api/info").expect(200).json().get("by_metric").is_none(), "it is asked for by name");
    let mut served = server.get("/api/info?by_metric=true").expect(200).json();
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
