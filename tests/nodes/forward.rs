//! Where an agent sends queries: to its head, and without a head only to its own database.

use std::io::Read;

use serde_json::json;

use super::{Job, put, ranks, wait_for_ranks, wait_for_states};
use crate::process::{Response, Server, gzip, poll};

const ROWS: &str = "SELECT node, rank FROM loss ORDER BY rank";
/// 3 to the power of 9: more than one part of an answer.
const MANY_ROWS: &str = "SELECT a.rank AS rank FROM loss a, loss b, loss c, loss d, loss e, loss f, loss g, loss h, loss i \
    ORDER BY 1";

fn missing(answer: &Response) -> &str {
    answer.header("x-telem-missing").unwrap_or_default()
}

fn asked(node: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String, String) {
    let answer = node.connect().request(method, path, headers, body).unwrap();
    (answer.status, missing(&answer).to_owned(), answer.text())
}

#[test]
fn an_agent_answers_what_its_head_answers_whatever_it_is_asked() {
    let job = Job::new();
    let head = job.head(&[]);
    let (one, two) = (job.agent("n1", "a"), job.agent("n2", "b"));
    wait_for_states(&head, "head head up, n1 up, n2 up");
    for (rank, node) in [&head, &one, &two].into_iter().enumerate() {
        put(node, rank as u32);
    }
    wait_for_ranks(&head, "head 0, n1 1, n2 2");
    let query = json!({"start": 1_767_225_600, "end": 1_767_225_700, "queries": [
        {"metric": "loss", "aggregator": "sum", "downsample": "1m-sum"}
    ]});
    let query = query.to_string();
    let json_body = ("content-type", "application/json");
    for (method, path, headers, body) in [
        ("POST", "/api/sql", &[][..], ROWS.as_bytes()),
        ("POST", "/api/sql?format=csv", &[], ROWS.as_bytes()),
        ("POST", "/api/sql", &[("content-encoding", "gzip")], &gzip(ROWS.as_bytes())),
        ("POST", "/api/sql", &[], MANY_ROWS.as_bytes()),
        ("POST", "/api/sql", &[], b"SELECT nothing FROM nowhere"),
        ("POST", "/api/query", &[json_body], query.as_bytes()),
        ("POST", "/grafana/api/query", &[json_body], query.as_bytes()),
        ("POST", "/dragon/api/query", &[json_body], query.as_bytes()),
        ("GET", "/dragon/api/suggest?q=os", &[], b""),
        ("GET", "/api/query?start=1767225600&end=1767225700&m=sum:loss%7Brank=*%7D", &[], b""),
        ("GET", "/api/query/last?timeseries=loss&back_scan=0", &[], b""),
        ("GET", "/api/suggest?type=metrics&q=lo", &[], b""),
        ("GET", "/api/search/lookup?m=loss", &[], b""),
        ("GET", "/api/query?start=never&m=sum:loss", &[], b""),
        ("PUT", "/api/sql", &[], b""),
    ] {
        let timeless = |(status, missing, text): (u16, String, String)| {
            // The lookup says how long it took.
            let text = text.split("\"time\":").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
            (status, missing, text.collect::<String>())
        };
        let (expected, found) = (asked(&head, method, path, headers, body), asked(&one, method, path, headers, body));
        assert_eq!(timeless(found), timeless(expected), "{method} {path}");
    }
    // Packed, where one asks for that.
    for (method, path, kind, body) in [
        ("POST", "/api/sql", "text/plain", MANY_ROWS.as_bytes()),
        ("POST", "/api/query", "application/json", query.as_bytes()),
        ("GET", "/job?job=main", "text/plain", b""),
    ] {
        let headers = [("content-type", kind), ("accept-encoding", "gzip")];
        let plain = one.connect().request(method, path, &headers[..1], body).unwrap().expect(200);
        let answer = one.connect().request(method, path, &headers, body).unwrap().expect(200);
        let mut text = Vec::new();
        match answer.header("content-encoding") {
            Some("gzip") => drop(flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut text).unwrap()),
            _ => text = answer.body,
        }
        // Counters of `main` go on meanwhile.
        assert!(text == plain.body || path.starts_with("/job") && text.ends_with(b"]}"), "{method} {path}");
    }
    let listed = one.get("/api/nodes").expect(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    two.kill();
    wait_for_states(&head, "head head up, n1 up, n2 suspect");
    let answer = one.sql(ROWS).expect(200);
    assert_eq!(answer.json().as_array().unwrap().len(), 2);
    assert!(missing(&answer).starts_with("n2="), "{}", missing(&answer));
}

#[test]
fn without_a_head_an_agent_answers_for_itself_and_says_so() {
    let job = Job::new();
    let head = job.head(&[]);
    let (address, agent) = (head.address.clone(), job.agent("n1", "a"));
    put(&head, 0);
    put(&agent, 1);
    wait_for_ranks(&head, "head 0, n1 1");
    poll("the agent to know its head", || ranks(&agent) == "head 0, n1 1");
    head.kill();
    // At once: who dies is noticed by who asks.
    let answer = agent.sql(ROWS).expect(200);
    assert_eq!(answer.json(), json!([{"node": "n1", "rank": "1"}]));
    assert!(missing(&answer).starts_with("other nodes="), "{}", missing(&answer));
    assert!(missing(&answer).ends_with("these are the samples of n1 alone"), "{}", missing(&answer));
    let strict = asked(&agent, "POST", "/api/sql?strict=true", &[], ROWS.as_bytes());
    assert_eq!(strict.0, 503);
    assert!(strict.2.contains("without strict it covers n1"), "{}", strict.2);
    // What is told is stored, and nothing is missing of that.
    put(&agent, 2);
    assert_eq!(missing(&agent.get("/api/version").expect(200)), "");
    let again = job.head_at(&address, "head", &[]);
    wait_for_ranks(&again, "head 0, n1 1, n1 2");
    poll("the agent to know its head again", || ranks(&agent) == "head 0, n1 1, n1 2");
    assert_eq!(missing(&agent.sql(ROWS)), "");
}

#[test]
fn a_dashboard_of_dragons_has_the_lines_of_all_nodes_whichever_of_them_it_asks() {
    let job = Job::new();
    let head = job.head(&[]);
    let agent = job.agent("n1", "a");
    wait_for_states(&head, "head head up, n1 up");
    for (node, host, value) in [(&head, "head", 1), (&agent, "n1", 2)] {
        for gpu in ["0", "1"] {
            let point = json!({"metric": "DeviceUtilization", "timestamp": 1_767_225_600, "value": value,
                "tags": {"host": host, "gpu": gpu}});
            node.post("/api/put", &point).expect(204);
        }
        // Once the head names this one, it knows those before it too.
        put(node, value);
    }
    wait_for_ranks(&head, "head 1, n1 2");
    let filter = |tag: &str| json!({"type": "iliteral_or", "tagk": tag, "filter": "*", "groupBy": false});
    let question = json!({"start": 1_767_225_600, "end": 1_767_225_610, "msResolution": false, "showQuery": true,
        "queries": [{"metric": "DeviceUtilization", "aggregator": "sum", "downsample": "1s-avg",
            "filters": [filter("host"), filter("gpu")]}]});
    for node in [&head, &agent] {
        let lines = node.post("/dragon/api/query", &question).expect(200).json();
        let lines = lines.as_array().unwrap().iter().map(|line| {
            let tag = |key: &str| line["tags"][key].as_str().unwrap().to_owned();
            format!("{} {} {}", tag("host"), tag("gpu"), line["dps"]["1767225600"])
        });
        assert_eq!(lines.collect::<Vec<_>>(), ["head 0 1.0", "head 1 1.0", "n1 0 2.0", "n1 1 2.0"]);
    }
}
