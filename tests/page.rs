//! The page for browsers, as the binary serves it: its numbers are those of SQL, live and replayed; its shell is for
//! everybody, and nothing else is.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::process::{Connection, Response, Server, telem};

const START: i64 = 1_767_225_600;
const START_MS: i64 = START * 1_000;
const SECONDS: i64 = 600;
const STEP: i64 = 10_000;
const HOSTS: i64 = 6;

/// Samples of several hosts, and a counter that starts again once.
fn samples() -> Vec<Json> {
    let mut samples = Vec::new();
    for host in 0..HOSTS {
        let tags = json!({"host": format!("n{host}"), "rank": host.to_string()});
        for second in 0..SECONDS {
            // One sample in ten is not there.
            if (second + host) % 10 == 7 {
                continue;
            }
            let spike = if host == 3 && second == 333 { 1e7 } else { 0.0 };
            let load = ((second * 7 + host * 13) % 101) as f64 / 3.0 + spike;
            let sent = (second % 400) * (host + 1) * 11;
            for (metric, value) in [("page.load", json!(load)), ("page.sent_total", json!(sent))] {
                samples.push(json!({"metric": metric, "timestamp": START + second, "value": value, "tags": tags}));
            }
        }
    }
    samples
}

fn put(server: &Server) {
    for part in samples().chunks(2_000) {
        server.post("/api/put", &Json::from(part)).expect(204);
    }
}

/// The lines of an answer to panels over the whole time.
fn panels(server: &Server, panels: &Json) -> Vec<Json> {
    let question = json!({
        "start": START_MS, "end": START_MS + SECONDS * 1_000, "columns": 1_000, "step": STEP, "panels": panels,
    });
    let answer = server.post("/api/panels", &question).expect(200);
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// By host and time.
type Cells = BTreeMap<(String, i64), Vec<f64>>;

fn cells_of(panel: &Json, parts: &[&str]) -> Cells {
    let mut cells = Cells::new();
    let start = panel["start"].as_f64().unwrap() as i64;
    for line in panel["series"].as_array().unwrap() {
        let host = line["tags"]["host"].as_str().unwrap();
        for column in 0..panel["columns"].as_u64().unwrap() as usize {
            let values: Vec<f64> = parts.iter().filter_map(|part| line[part][column].as_f64()).collect();
            if !values.is_empty() {
                cells.insert((host.to_owned(), start + column as i64 * STEP), values);
            }
        }
    }
    cells
}

/// What SQL answers to the same question.
fn cells_of_sql(server: &Server, sql: &str, parts: &[&str]) -> Cells {
    let rows = server.sql(sql).expect(200).json();
    let cell = |row: &Json| {
        let time = chrono::DateTime::parse_from_rfc3339(row["t"].as_str().unwrap()).unwrap().timestamp_millis();
        let values = parts.iter().filter_map(|part| row[part].as_f64()).collect();
        ((row["host"].as_str().unwrap().to_owned(), time), values)
    };
    rows.as_array().unwrap().iter().map(cell).collect()
}

/// The page has seven digits.
fn assert_equal(page: &Cells, sql: &Cells) {
    assert_eq!(page.keys().collect::<Vec<_>>(), sql.keys().collect::<Vec<_>>());
    for (cell, values) in page {
        let wanted = &sql[cell];
        assert_eq!(values.len(), wanted.len(), "{cell:?}");
        for (value, wanted) in values.iter().zip(wanted) {
            assert!((value - wanted).abs() <= wanted.abs() * 1e-6, "{cell:?}: {value}, SQL says {wanted}");
        }
    }
}

fn numbers_are_those_of_sql(server: &Server) {
    let asked = json!([
        {"metric": "page.load", "by": ["host"]},
        {"metric": "page.sent_total", "by": ["host"], "rate": true, "function": "sum"},
        {"metric": "page.load", "by": ["host"], "top": {"count": 2, "order": "max"}},
    ]);
    let panels = panels(server, &asked);
    let parts = ["avg", "min", "max"];
    let sql = "SELECT time_bucket('10 seconds', ts) AS t, host, avg(value) AS avg, min(value) AS min, \
               max(value) AS max FROM \"page.load\" GROUP BY 1, 2";
    let load = cells_of(&panels[0], &parts);
    assert_eq!(load.len(), (HOSTS * SECONDS * 1_000 / STEP) as usize);
    assert_equal(&load, &cells_of_sql(server, sql, &parts));
    let sql = "SELECT ts AS t, host, value AS avg FROM downsample('page.sent_total', '10 seconds', 'last', \
               rate => 'counter', aggregate => 'sum', by => 'host')";
    assert_equal(&cells_of(&panels[1], &["avg"]), &cells_of_sql(server, sql, &["avg"]));
    // The spike of one sample is the greatest of its column, and its line the first.
    assert_eq!(panels[2]["series"][0]["tags"]["host"], "n3");
    let greatest = load[&("n3".to_owned(), START_MS + 330_000)][2];
    assert!(greatest > 9.9e6, "{greatest}");
    assert_eq!(panels[2]["others"]["count"], json!(HOSTS - 2));
}

#[test]
fn numbers_of_panels_are_those_of_sql_live_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::serve(&data, &[]);
    put(&server);
    numbers_are_those_of_sql(&server);
    let page = start_of(&server);
    assert_eq!((&page["live"], &page["level"]), (&json!(true), &json!(1)));
    assert!(server.terminate().0.success());
    let replay = Server::replay([&data], &[]);
    numbers_are_those_of_sql(&replay);
    let page = start_of(&replay);
    assert_eq!(
        (&page["live"], &page["level"], &page["nodes"][0]["state"]),
        (&json!(false), &Json::Null, &json!("saved"))
    );
    assert_eq!(page["first"], json!(START_MS as f64));
    let names: Vec<&str> =
        page["metrics"].as_array().unwrap().iter().map(|metric| metric["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["page.load", "page.sent_total"]);
}

fn start_of(server: &Server) -> Json {
    server.get("/api/page").expect(200).json()
}

fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    Connection::tcp(&server.address).request("GET", path, headers, b"").unwrap()
}

#[test]
fn the_shell_is_for_everybody_and_data_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &["--cors-domains", "http://grafana.example:3000"]);
    let text = ask(&server, "/", &[]).expect(200).text();
    let file = text.split('"').find(|word| word.starts_with("page/") && word.ends_with(".js")).unwrap();
    let file = format!("/{file}");
    // A link on another site, a frame, a rebound name: the shell holds nothing that is not in the source.
    for headers in [
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")][..],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Origin", "https://evil.example")],
    ] {
        for path in ["/", &file] {
            let answer = ask(&server, path, headers).expect(200);
            assert!(answer.header("content-security-policy").is_some_and(|policy| policy.contains("'none'")), "{path}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        }
        for path in ["/api/page", "/api/info"] {
            let answer = ask(&server, path, headers).expect(403);
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        }
    }
    // A page on another port of this machine is another origin, unless it was named.
    ask(&server, "/api/page", &[("Origin", "http://localhost:3000")]).expect(403);
    let answer = ask(&server, "/api/page", &[("Origin", "http://localhost")]).expect(200);
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
    let answer = ask(&server, "/api/page", &[("Origin", "http://grafana.example:3000")]).expect(200);
    assert_eq!(answer.header("cross-origin-resource-policy"), None);
}

#[test]
fn a_stranger_gets_the_shell_and_needs_the_token_for_data() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), &[]);
    let said = |address: &str, path: &str, token: Option<&str>| {
        let (host, port) = address.rsplit_once(':').unwrap();
        let shown = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\\r\\n"));
        let script = format!(
            "exec 3<>/dev/tcp/{host}/{port}; \
             printf 'GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n{shown}\\r\\n' >&3; \
             head -n 1 <&3"
        );
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups", "bash", "-c", &script]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(said(&server.address, "/", None).contains(" 200 "));
    assert!(said(&server.address, "/api/page", None).contains(" 401 "));
    assert!(said(&server.address, "/q", None).contains(" 401 "));
    assert!(said(&server.address, "/api/page", Some("wrong")).contains(" 401 "));
    let file = server.connection_file();
    let connection: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let token = connection["token"].as_str().unwrap();
    assert!(said(&server.address, "/api/page", Some(token)).contains(" 200 "));
}

#[test]
fn where_the_token_is_required_the_owner_needs_it_too_but_not_for_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), &["--require-token"]);
    let file = server.connection_file();
    ask(&server, "/", &[]).expect(200);
    let refused = ask(&server, "/api/page", &[]).expect(401);
    assert!(refused.text().contains("--require-token"), "{}", refused.text());
    let connection: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let shown = format!("Bearer {}", connection["token"].as_str().unwrap());
    ask(&server, "/api/page", &[("Authorization", &shown)]).expect(200);
    // Programs of the job use the socket.
    let put =
        telem(["put", "loss", "1"]).args(["--url", &format!("unix:{}", server.socket().display())]).output().unwrap();
    assert!(put.status.success(), "{put:?}");
}

#[test]
fn telem_open_prints_the_link_with_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let mut server = Server::serve(&data, &[]);
    let told = server.wait_for_line("page http://");
    assert_eq!(told, format!("page http://{}/", server.address));
    let file = server.connection_file();
    let connection: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let link = |named: &Path| {
        let done = telem(["open"]).arg(named).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let (url, token) = (connection["url"].as_str().unwrap(), connection["token"].as_str().unwrap());
    assert_eq!(link(&data), format!("{url}/#token={token}\n"));
    let none = telem(["open"]).arg(dir.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn telem_open_of_a_killed_server_says_that_it_is_gone_and_prints_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let mut server = Server::serve(&data, &[]);
    let (file, id) = (server.connection_file(), server.id());
    server.kill();
    let refused = |named: &Path| {
        let done = telem(["open"]).arg(named).output().unwrap();
        assert!(done.status.code() == Some(1) && done.stdout.is_empty(), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let advice = |data: &Path| format!("`telem replay {}` shows what it stored", data.display());
    for named in [&data, &file] {
        let said = refused(named);
        assert!(said.contains(&format!("gone (process {id} on ")) && said.contains(&advice(&data)), "{said}");
    }
    // A writer came and went since, and the database has moved.
    telem_engine::Db::open(&data, telem_engine::Options::default()).unwrap().close().unwrap();
    let moved = dir.path().join("moved");
    std::fs::rename(&data, &moved).unwrap();
    let said = refused(&moved);
    assert!(said.contains("is gone (process") && said.contains(&advice(&moved)), "{said}");
    // Another server there has a file of its own.
    let mut next = Server::serve(&moved, &[]);
    next.wait_for_line("page http://");
    let done = telem(["open"]).arg(&moved).output().unwrap();
    assert!(String::from_utf8(done.stdout).unwrap().starts_with(&format!("http://{}/#token=", next.address)));
}
