//! Line protocol into the real binary, as Telegraf sends it; read by OpenTSDB's API, and after a crash.

use serde_json::{Value as Json, json};

use crate::process::{Server, gzip, telem};
use crate::script::EPOCH_MS;

const EPOCH: i64 = EPOCH_MS / 1000;

/// What Telegraf's inputs cpu, mem and system make of a node in a second, strings included.
fn telegraf(second: i64) -> String {
    let nanos = (EPOCH + second) * 1_000_000_000;
    format!(
        "cpu,cpu=cpu-total,host=nid001 usage_user={second}.5,usage_idle=80.25 {nanos}\n\
         mem,host=nid001 used={second}i,available_percent=51.0625 {nanos}\n\
         system,host=nid001 load1=0.5,n_cpus=2i {nanos}\n\
         system,host=nid001 uptime_format=\" 5:30\" {nanos}\n"
    )
}

fn write(server: &Server, path: &str, body: &str) -> (u16, String) {
    let headers = [("content-type", "text/plain; charset=utf-8"), ("content-encoding", "gzip")];
    let answer = server.connect().request("POST", path, &headers, &gzip(body.as_bytes())).unwrap();
    (answer.status, answer.text())
}

fn sums(server: &Server, metric: &str) -> Json {
    let query = json!({"start": EPOCH, "end": EPOCH + 100, "queries": [{"metric": metric, "aggregator": "sum"}]});
    server.post("/api/query", &query).expect(200).json()[0]["dps"].clone()
}

#[test]
fn what_telegraf_writes_is_there_by_every_way_out_and_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(dir.path(), &[]);
    let create = server.connect().request("POST", "/query", &[], b"q=CREATE+DATABASE+%22telegraf%22").unwrap();
    assert_eq!(create.expect(200).json(), json!({"results": [{"statement_id": 0}]}));
    for second in 0..20 {
        let (status, told) = write(&server, "/write?db=telegraf&sync", &telegraf(second));
        // The numbers of such a batch are stored; Telegraf logs this and goes on.
        assert_eq!(status, 400);
        assert!(told.contains("partial write: line 4: field 'uptime_format' is a string"), "{told}");
    }
    for _ in 0..2 {
        let used = sums(&server, "mem_used");
        assert_eq!((used.as_object().unwrap().len(), &used[(EPOCH + 19).to_string()]), (20, &json!(19)));
        assert_eq!(sums(&server, "cpu_usage_user")[(EPOCH + 7).to_string()], json!(7.5));
        let rows = server.sql("SELECT count(*) AS n, count(value_int) AS ints FROM samples WHERE host = 'nid001'");
        assert_eq!(rows.expect(200).json(), json!([{"n": 120, "ints": 40}]));
        server.kill();
        server = Server::serve(dir.path(), &[]);
    }
}

#[test]
fn a_saved_database_takes_no_lines() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &[]);
    assert_eq!(write(&server, "/api/v2/write", "m value=1 1").0, 204);
    server.terminate();
    let replay = Server::replay([dir.path().join("db")], &[]);
    for path in ["/write", "/api/v2/write"] {
        let (status, told) = write(&replay, path, "m value=1 2");
        assert_eq!(status, 403);
        assert!(told.contains("read-only"), "{told}");
    }
}

#[test]
fn at_level_0_lines_are_checked_and_none_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = telem(["serve", "--level", "0", "--listen", "127.0.0.1:0", "--data"]);
    serve.arg(dir.path());
    let server = Server::start(serve);
    assert_eq!(write(&server, "/write", "m value=1 1").0, 204);
    assert_eq!(write(&server, "/write", "m value=1 1\nbad").0, 400);
    assert_eq!(server.sql("SELECT * FROM series").expect(200).json(), json!([]));
    let (_, said) = server.terminate();
    assert!(said.iter().any(|line| line.starts_with("level 0: ")), "{said:?}");
}
