//! Jobs that share one server: each sample belongs to the job whose process sent it, those of the node to all jobs that
//! ran then: in SQL, for OpenTSDB's clients, after a crash, and in what is saved.

use std::path::Path;

use serde_json::{Value as Json, json};
use telem_engine::{Clock, SystemClock};

use crate::process::{Server, poll, telem};

/// Puts a value as a process of a job does, over the Unix socket.
fn put(server: &mut Server, job: &[(&str, &str)], metric: &str, value: &str) {
    let mut command = telem(["put", metric, value]);
    command.env("TELEM_SOCKET", server.socket()).envs(job.iter().copied());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A request of a job that comes over TCP.
fn of_job(server: &Server, job: &str, method: &str, path: &str, body: &str) -> (u16, Json) {
    let answer = server.connect().request(method, path, &[("X-Telem-Job", job)], body.as_bytes()).unwrap();
    (answer.status, serde_json::from_str(&answer.text()).unwrap_or(Json::Null))
}

/// The rows of an answer as CSV, from a server or from saved databases.
fn rows(from: &str, sql: &str) -> Vec<String> {
    let done = telem(["sql", "--format", "csv", from, sql]).output().unwrap();
    assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().skip(1).map(str::to_owned).collect()
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

const VALUES: &str = "SELECT job, value FROM loss ORDER BY value";

/// Two jobs that send at once, one without a job, and one that says so in a header.
fn send(server: &mut Server) {
    put(server, &[("TELEM_JOB", "first"), ("RANK", "0")], "loss", "1");
    put(server, &[("SLURM_JOB_ID", "77"), ("SLURM_JOB_NAME", "trial"), ("RANK", "0")], "loss", "2");
    put(server, &[], "room_celsius", "21");
    let body = json!({"metric": "loss", "timestamp": "now", "value": 4, "tags": {"rank": "0"}}).to_string();
    let body = body.replace("\"now\"", &(SystemClock::new().now().micros() / 1_000).to_string());
    assert_eq!(of_job(server, "by header", "POST", "/api/put", &body).0, 204);
    put(server, &[("TELEM_JOB", "first"), ("RANK", "0")], "loss", "5");
}

#[test]
fn samples_of_jobs_that_share_a_server_belong_to_the_job_that_sent_them() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let mut serve = telem(["serve", "--level", "2", "--interval", "100ms", "--listen", "127.0.0.1:0", "--data"]);
    serve.arg(&data);
    let mut server = Server::start(serve);
    send(&mut server);
    let expected = ["first,1.0", "77,2.0", "by header,4.0", "first,5.0"];
    assert_eq!(rows(&url(&server), VALUES), expected);
    assert_eq!(rows(&url(&server), "SELECT count(*) FROM loss WHERE job = 'first'"), ["2"]);
    // What describes a job: the first process that was heard of, the scheduler, and the job itself.
    let labels = json!({"name": "lr 3e-4", "settings": {"lr": 3e-4}}).to_string();
    assert_eq!(of_job(&server, "by header", "POST", "/api/job", &labels).0, 200);
    let sql = "SELECT job, name, state, command, settings['lr'] FROM jobs ORDER BY job";
    let jobs = rows(&url(&server), sql);
    assert_eq!((jobs.len(), &*jobs[1]), (4, "by header,lr 3e-4,unfinished,,0.0003"), "{jobs:?}");
    assert!(jobs[2].starts_with("first,,unfinished,") && jobs[2].contains(" put loss 1"), "{jobs:?}");
    // What comes from no job, as from an exporter, is the node's own.
    assert_eq!(rows(&url(&server), "SELECT job, value FROM room_celsius ORDER BY job"), ["77,21.0", "first,21.0"]);
    // The node's own belong to all that ran.
    poll("samples of the node while the jobs run", || {
        let jobs = rows(&url(&server), "SELECT DISTINCT job FROM node_load1 WHERE job <> 'local' ORDER BY job");
        jobs == ["77", "by header", "first"]
    });
    // OpenTSDB's clients know tags alone.
    let answer = server.get("/api/query?start=1h-ago&m=max:loss%7Bjob=*%7D").expect(200).json();
    let mut lines: Vec<(String, f64)> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let last = line["dps"].as_object().unwrap().values().filter_map(Json::as_f64).fold(0.0, f64::max);
            (line["tags"]["job"].as_str().unwrap().to_owned(), last)
        })
        .collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    let expected_lines = [("77", 2.0), ("by header", 4.0), ("first", 5.0)];
    assert_eq!(lines, expected_lines.map(|(job, last)| (job.to_owned(), last)));

    assert_end_is_told_once(&mut server);
    assert_who_asks_begins_no_job(&mut server);

    // The same after a crash, saved, and beside the database of another job.
    server.kill();
    assert_eq!(rows(data.to_str().unwrap(), VALUES), expected);
    let mut server = Server::serve(&data, &[]);
    put(&mut server, &[("TELEM_JOB", "first"), ("RANK", "0")], "loss", "6");
    let (status, _) = server.terminate();
    assert!(status.success());
    let goes_on = [&expected[..], &["first,6.0"]].concat();
    assert_eq!(rows(data.to_str().unwrap(), VALUES), goes_on);
    assert_eq!(rows(data.to_str().unwrap(), "SELECT count(*) FROM jobs WHERE job = 'first'"), ["1"], "one run");
    let info = telem(["info", data.to_str().unwrap()]).output().unwrap();
    let info = String::from_utf8(info.stdout).unwrap();
    for line in
        ["job        first: ", "job        77: ", "job        by header\nname       lr 3e-4\nsettings   lr=0.0003"]
    {
        assert!(info.contains(line), "{line}:\n{info}");
    }
    assert_job_of_another_database_stays_apart(dir.path(), &data, &goes_on);
}

#[test]
fn what_a_server_stores_is_of_the_job_that_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let start = |job: &[&str]| {
        let mut serve = telem(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]);
        serve.arg(dir.path()).args(job);
        Server::start(serve)
    };
    let job = |server: &Server| rows(&url(server), "SELECT DISTINCT job FROM room_celsius");
    let mut server = start(&[]);
    put(&mut server, &[], "room_celsius", "20");
    assert_eq!(job(&server), ["local"]);
    server.kill();
    for name in ["trial", "other"] {
        let mut server = start(&["--job", name]);
        put(&mut server, &[], "room_celsius", "21");
        poll("samples of the job that was named", || job(&server) == [name]);
        if name == "other" {
            let labels = json!({"name": "lr 3e-4"});
            server.post("/api/job", &labels).expect(200);
        }
        assert!(server.terminate().0.success());
    }
    // What says more of a job than its name stays.
    let mut server = start(&["--job", "third"]);
    put(&mut server, &[], "room_celsius", "22");
    assert_eq!(rows(&url(&server), "SELECT job, name FROM jobs"), ["other,lr 3e-4"]);
}

/// A job that is said to be over stays so, whatever comes late.
fn assert_end_is_told_once(server: &mut Server) {
    let state = |server: &Server| rows(&url(server), "SELECT state, exit_code FROM jobs WHERE job = 'by header'");
    let (status, told) = of_job(server, "by header", "POST", "/api/job/end", r#"{"exit_code": 3}"#);
    assert_eq!((status, &told["exit_code"]), (200, &json!(3)));
    assert_eq!(state(server), ["failed,3"]);
    assert_eq!(of_job(server, "by header", "POST", "/api/job/end", "{\"code\": 3}").0, 400);
    let now = SystemClock::new().now().micros() / 1_000;
    let late = json!({"metric": "late", "timestamp": now, "value": 4, "tags": {"rank": "0"}}).to_string();
    assert_eq!(of_job(server, "by header", "POST", "/api/put", &late).0, 204);
    let (status, told) = of_job(server, "by header", "POST", "/api/job/end", "");
    assert_eq!((status, &told["exit_code"]), (200, &json!(3)), "who says so first counts");
    assert_eq!(of_job(server, "by header", "GET", "/api/job", "").1["exit_code"], 3);
    assert_eq!(state(server), ["failed,3"]);
    assert_eq!(rows(&url(server), "SELECT job FROM late"), ["by header"]);
}

fn assert_who_asks_begins_no_job(server: &mut Server) {
    let count = |server: &Server| rows(&url(server), "SELECT count(*) FROM jobs");
    let before = count(server);
    let mut sql = telem(["sql", &format!("unix:{}", server.socket().display()), "SELECT count(*) FROM loss"]);
    assert!(sql.env("TELEM_JOB", "who asks").output().unwrap().status.success());
    assert_eq!(of_job(server, "who asks", "GET", "/api/query?start=1h-ago&m=max:loss", "").0, 200);
    assert_eq!(of_job(server, "who asks", "GET", "/api/job", "").0, 404);
    assert_eq!(of_job(server, "who asks", "POST", "/api/job/end", "").0, 404);
    assert_eq!(of_job(server, "local", "GET", "/api/job", "").0, 404, "that is no job, and the server has none");
    assert_eq!(of_job(server, &"x".repeat(300), "GET", "/api/job", "").0, 400);
    assert_eq!(count(server), before);
}

fn assert_job_of_another_database_stays_apart(dir: &Path, data: &Path, known: &[&str]) {
    let saved = dir.join("saved");
    let script = "\"$TELEM\" put loss 7 rank=0";
    let mut run = telem(["run", "--quiet", "--job", "alone", "--save"]);
    run.arg(&saved).args(["--", "sh", "-c", script]).env("TELEM", env!("CARGO_BIN_EXE_telem"));
    run.env("XDG_RUNTIME_DIR", dir).env("TELEM_DATA", dir.join("live"));
    let done = run.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut sql = telem(["sql", "--format", "csv"]);
    sql.arg(data).arg(&saved).arg(VALUES);
    let done = sql.output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let found: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(found, [known, &["alone,7.0"]].concat(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_server_that_nobody_shares_stores_what_it_did_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), &[]);
    put(&mut server, &[("RANK", "0")], "loss", "3");
    assert_eq!(rows(&url(&server), "SELECT array_to_string(map_keys(tags), ' ') FROM series"), ["host rank"]);
    // A job of telem run has its database to itself.
    let sql = "SELECT array_to_string(map_keys(tags), ' '), job FROM series";
    let script = format!("\"$TELEM\" put loss 7 && \"$TELEM\" sql --format csv unix:$TELEM_SOCKET \"{sql}\"");
    let mut run = telem(["run", "--quiet", "--job", "alone", "--save"]);
    run.arg(dir.path().join("saved")).args(["--", "sh", "-c", &script]).env("TELEM", env!("CARGO_BIN_EXE_telem"));
    run.env("XDG_RUNTIME_DIR", dir.path()).env("TELEM_DATA", dir.path().join("live"));
    let done = run.output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("host,alone"), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// What a command says of one job, and with which exit code.
fn say(words: &[&str]) -> (Option<i32>, String) {
    let done = telem(words).output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr))
}

#[test]
fn one_job_of_a_shared_server_is_listed_reported_compared_and_watched() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let mut serve = telem(["serve", "--level", "2", "--interval", "100ms", "--listen", "127.0.0.1:0", "--data"]);
    serve.arg(&data);
    let server = Server::start(serve);
    let begin = SystemClock::new().now().micros() / 1_000;
    for (job, lr, slope) in [("trial-7", 0.1, 1.0), ("trial-8", 0.2, 3.0)] {
        let labels = json!({"name": job, "settings": {"lr": lr}}).to_string();
        assert_eq!(of_job(&server, job, "POST", "/api/job", &labels).0, 200);
        let points: Vec<Json> = (0..20)
            .map(|at| json!({"metric": "loss", "timestamp": begin + at, "value": slope * at as f64, "tags": {"rank": "0"}}))
            .collect();
        assert_eq!(of_job(&server, job, "POST", "/api/put", &Json::from(points).to_string()).0, 204);
    }
    let check = |place: &str| {
        let one = |job: &str| format!("{place}#{job}");
        let (code, text) = say(&["report", place]);
        assert!(code == Some(1) && text.contains("it holds 3 runs (local, trial-7, trial-8)"), "{text}");
        assert!(text.contains(&one("trial-8")), "{text}");
        let (code, text) = say(&["report", "--json", &one("trial-7")]);
        let report: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {code:?} {text}"));
        assert_eq!((&report["job"]["job"], &report["job"]["name"]), (&json!("trial-7"), &json!("trial-7")));
        let metrics = report["views"]["report_metrics"].as_array().unwrap();
        assert_eq!((metrics.len(), &metrics[0]["greatest"]), (1, &json!(19.0)), "{metrics:?}");
        let (code, text) = say(&["diff", "--json", "--metric", "loss", &one("trial-7"), &one("trial-8")]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("\"lr\"") && text.contains("loss"), "{text}");
        let (code, text) = say(&["top", "--once", &one("trial-8")]);
        assert!(code == Some(0) && text.starts_with("trial-8 "), "{text}");
        let (code, text) = say(&["top", "--once", place]);
        assert!(code == Some(0) && text.starts_with("local, trial-7, trial-8 (3 jobs) "), "{text}");
        assert!(text.contains(&format!("one alone: telem top {}", one("trial-8"))), "{text}");
        let (code, text) = say(&["tail", "loss", "--json", "-n", "50", "--for", "3s", "--from", &one("trial-7")]);
        let values: Vec<Json> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(code == Some(0) && values.len() == 20, "{text}");
    };
    check(&format!("http://{}", server.address));
    assert!(server.terminate().0.success());
    check(data.to_str().unwrap());
    let done = telem(["ls", "--json", "--no-cache"]).arg(dir.path()).output().unwrap();
    let rows: Json = serde_json::from_slice(&done.stdout).unwrap();
    let mut listed: Vec<(String, String)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let dir = row["dir"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (dir, row["settings"]["lr"].to_string())
        })
        .collect();
    listed.sort();
    let expected = [("db", "null"), ("db#trial-7", "0.1"), ("db#trial-8", "0.2")];
    assert_eq!(listed, expected.map(|(dir, lr)| (dir.to_owned(), lr.to_owned())));
}
