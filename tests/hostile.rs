//! Statements that try to take all resources: time, threads, memory. Other clients still get their answers.

use std::path::Path;
use std::thread;

use crate::process::{Connection, Server, poll};

/// Samples of the table that they are about.
const SAMPLES: i64 = 10_000;
/// What all queries share.
const MEMORY_MIB: u64 = 256;
/// What the rest of the process may have, and what the allocator keeps.
const BESIDE_MIB: u64 = 64;

/// A server with a table `load`, whose tag `t` has 1,000 letters.
fn serve(dir: &Path, deadline: &str) -> Server {
    let memory = format!("{MEMORY_MIB}MiB");
    let server = Server::serve(&dir.join("db"), &["--query-deadline", deadline, "--query-memory", &memory]);
    let text = "a".repeat(1_000);
    let line = |at: i64| format!("load,host=h{},t={text} value={at} {}000000000\n", at % 7, 1_700_000_000 + at);
    for first in (0..SAMPLES).step_by(2_500) {
        let lines: String = (first..first + 2_500).map(line).collect();
        server.connect().request("POST", "/write?sync", &[], lines.as_bytes()).unwrap().expect(204);
    }
    server
}

/// `call` of `call` of ..., so often, of `innermost`.
fn nested(call: &str, times: usize, innermost: &str) -> String {
    (0..times).fold(innermost.to_owned(), |inner, _| call.replace('#', &inner))
}

/// Both kinds of questions are answered.
fn answers(server: &Server) {
    server.sql("SELECT count(*) AS n FROM load").expect(200);
    server.get("/api/query?start=1&m=sum:1h-sum:load").expect(200);
}

/// The status of the answer to `sql`.
fn ask(address: &str, sql: &str) -> u16 {
    let mut connection = Connection::tcp(address);
    connection.request("POST", "/api/sql", &[("Content-Type", "text/plain")], sql.as_bytes()).unwrap().status
}

#[test]
fn sql_whose_time_is_over_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "1s");
    let format = format!("SELECT max(length(to_char(ts, '{}'))) FROM samples", "%A".repeat(50_000));
    let replace = format!("SELECT length({})", nested("replace(#,'a','aaaaaaaaaa')", 9, "'aaaaaaaaaa'"));
    assert!(replace.len() <= 300, "{} bytes", replace.len());
    let address = server.address.as_str();
    let answered = thread::scope(|scope| {
        let asked: Vec<_> = (0..12)
            .map(|at| if at % 2 == 0 { &format } else { &replace })
            .map(|sql| scope.spawn(move || ask(address, sql)))
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(answered.iter().all(|status| [400, 503].contains(status)), "{answered:?}");
    poll("what outlived its question to end", || !server.get("/api/stats/query").text().contains("leftBehind"));
    answers(&server);
    let (status, printed) = server.terminate();
    assert!(status.success(), "{printed:?}");
}

#[test]
fn statements_that_multiply_what_they_take_stay_within_the_memory_of_queries() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "10s");
    let ten = "replace(#,'a','aaaaaaaaaa')";
    for sql in [
        format!("SELECT max(length({})) FROM load", nested(ten, 6, "t")),
        format!("SELECT max(length({})) FROM load", nested("regexp_replace(#,'a','aaaaaaaaaa','g')", 6, "t")),
        format!("SELECT max(length({})) FROM load", nested("concat(#,#)", 8, "t")),
        format!("SELECT max(length({})) FROM load", nested("(#||#)", 8, "t")),
        format!("SELECT max(length(translate({},'a','é'))) FROM load", nested("(#||#)", 7, "t")),
        format!("SELECT max(length(overlay({} placing t from 1))) FROM load", nested("concat(#,#)", 7, "t")),
        format!("SELECT max(array_length({})) FROM load", nested("array_concat(#,#)", 8, "string_to_array(t,NULL)")),
        "SELECT length(string_agg(replace(t,'a',t),'')) FROM load".to_owned(),
        "SELECT array_length(array_agg(replace(t,'a',t))) FROM load".to_owned(),
        "SELECT max(length(x)) FROM (SELECT string_agg(t,'') OVER (ORDER BY ts) AS x FROM load)".to_owned(),
        "SELECT sum(length(a.x)) FROM (SELECT replace(t,'a',t) AS x FROM load LIMIT 3) a, load b".to_owned(),
        "SELECT max(length(x)) FROM (SELECT unnest(string_to_array(t,NULL)) AS u, replace(t,'a',t) AS x FROM load)"
            .to_owned(),
    ] {
        let answer = server.sql(&sql);
        assert!(
            [400, 503].contains(&answer.status),
            "{}: {} {}",
            &sql[..60.min(sql.len())],
            answer.status,
            answer.text()
        );
        answers(&server);
    }
    // Without the pages of the program, which are many in a debug build and nobody's memory.
    let resident = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    // On a busy machine the last statement may still be giving back what it took.
    poll("what the statements took to be given back", || resident() <= MEMORY_MIB + BESIDE_MIB);
}
