use std::sync::Arc;

use serde_json::Value as Json;

use super::*;
use crate::testing::Served;

#[test]
fn a_thread_is_read_whatever_its_name() {
    let stat = "7 (telem (io) 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 29 10 1 0 99";
    let thread = Thread { id: 7, name: "telem (io) 1".to_owned(), state: "WAITING", priority: 29 };
    assert_eq!(Thread::parse(stat), Some(thread));
    for torn in ["", "7", "7 (name", "7 (name) S", "7 (name) S 1 2", "x (name) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 29"] {
        assert_eq!(Thread::parse(torn), None, "{torn}");
    }
}

#[test]
fn memory_is_read_by_its_name() {
    let status = "Name:\ttelem\nVmRSS:\t   1234 kB\nVmHWM:\t4321 kB\n";
    assert_eq!(kilobytes(status, "VmRSS:"), Some(1_234));
    assert_eq!(kilobytes(status, "VmSize:"), None);
    assert_eq!(kilobytes("VmRSS:", "VmRSS:"), None);
}

async fn json(served: &Served, path: &str) -> Json {
    let answer = served.get(path).await;
    assert_eq!(answer.status, 200, "{path}");
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn what_is_counted_is_told_over_http_as_over_telnet() {
    let served = Served::new();
    served.get("/api/nope").await;
    let Json::Array(told) = json(&served, "/api/stats").await else { panic!("no list") };
    let named = |one: &Json| {
        format!("{} {}", one["metric"].as_str().unwrap(), one["tags"]["type"].as_str().unwrap_or_default())
    };
    let value = |name: &str| told.iter().find(|one| named(one) == name).map(|one| one["value"].as_str().unwrap());
    assert_eq!(value("tsd.http.requests invalid_requests"), Some("1"));
    assert_eq!(value("tsd.rpc.received http"), Some("2"));
    assert_eq!(value("tsd.connectionmgr.connections open"), Some("0"));
    assert_eq!(value("telem_ingest_samples_accepted_total "), Some("0"));
    for one in &told {
        assert!(one["timestamp"].is_i64() && one["tags"]["host"] == "n1", "{one}");
    }
    // The same numbers in the same order.
    let names =
        |lines: &str| -> Vec<String> { lines.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect() };
    let metrics: Vec<String> = told.iter().map(|one| one["metric"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        names(&lines(&OpenTsdb::new(Arc::clone(&served.state), crate::protocols::opentsdb::TelnetLimits::default()))),
        metrics
    );
    assert_eq!(names(served.get("/stats").await.text()), metrics);
}

#[tokio::test]
async fn the_process_and_its_threads_are_told_in_the_shapes_of_the_original() {
    let served = Served::new();
    let process = json(&served, "/api/stats/jvm").await;
    for part in ["gc", "memory", "os", "pools", "runtime"] {
        assert!(process[part].is_object(), "{part}: {process}");
    }
    assert!(process["memory"]["heapMemoryUsage"]["used"].as_i64().unwrap() > 0, "{process}");
    assert!(process["os"]["systemLoadAverage"].is_f64(), "{process}");
    let threads = json(&served, "/api/stats/threads").await;
    let threads = threads.as_array().unwrap();
    assert!(!threads.is_empty());
    for thread in threads {
        assert!(thread["threadID"].as_i64().unwrap() > 0 && thread["name"].is_string(), "{thread}");
        assert!(thread["stack"].as_array().unwrap().is_empty() && thread["priority"].is_i64(), "{thread}");
    }
    assert_eq!(json(&served, "/api/stats/region_clients").await, serde_json::json!([]));
}

#[tokio::test]
async fn queries_are_remembered_when_they_ended() {
    let served = Served::new();
    served.get("/api/query?start=1&m=sum:nope").await;
    served.get("/api/suggest?type=metrics").await;
    let told = json(&served, "/api/stats/query").await;
    assert_eq!(told["running"], serde_json::json!([]));
    let [query] = told["completed"].as_array().unwrap().as_slice() else { panic!("not one: {told}") };
    assert_eq!(query["query"], "GET /api/query?start=1&m=sum:nope");
    assert_eq!(query["httpResponse"]["code"], 400);
}
