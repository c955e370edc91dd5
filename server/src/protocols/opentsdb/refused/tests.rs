use axum::body::Body;
use axum::extract::Request;

use crate::testing::Served;

async fn send(served: &Served, method: &str, path: &str, body: &'static str) -> String {
    let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
    let answer = served.ask(request).await;
    format!("{} {}", answer.status, answer.text())
}

#[tokio::test]
async fn every_point_of_a_rollup_is_refused_as_where_none_are_set_up() {
    let served = Served::new();
    let point = r#"{"metric":"m","timestamp":5,"value":1,"tags":{"a":"b"},"interval":"1h","aggregator":"SUM"}"#;
    for (path, body, expected) in [
        ("/api/rollup", point, r#"400 {"error":{"code":400,"message":"One or more data points had errors","#),
        ("/api/rollup?summary", point, r#"400 {"success":0,"failed":1}"#),
        (
            "/api/rollup?details",
            point,
            r#"400 {"success":0,"failed":1,"errors":[{"datapoint":{"metric":"m","timestamp":5,"value":"1","tags":{"a":"b"}},"error":"No rollup or aggregations were configured"}]}"#,
        ),
        ("/api/rollup?summary", "[{},{},{}]", r#"400 {"success":0,"failed":3}"#),
        ("/api/rollup", "[]", r#"400 {"error":{"code":400,"message":"No datapoints found in content""#),
        ("/api/rollup", "{", r#"400 {"error":{"code":400,"message":"Unable to parse the given JSON""#),
    ] {
        let answer = send(&served, "POST", path, body).await;
        assert!(answer.starts_with(expected), "{path} {body}: {answer}");
    }
}

#[tokio::test]
async fn there_are_no_trees_and_none_can_be_made() {
    let served = Served::new();
    for (method, path, expected) in [
        ("GET", "/api/tree", "200 []"),
        ("GET", "/api/tree/", "200 []"),
        ("GET", "/api/tree?treeid=1", r#"404 {"error":{"code":404,"message":"Unable to locate tree: 1"}}"#),
        ("GET", "/api/tree/branch?treeid=1", r#"404 {"error":{"code":404,"message":"Unable to locate the tree""#),
        ("GET", "/api/tree/nope", r#"501 {"error":{"code":501,"message":"telem has no trees""#),
        ("POST", "/api/tree", r#"501 {"error":{"code":501,"message":"telem has no trees""#),
        ("DELETE", "/api/tree/rule", r#"501 {"error":{"code":501,"message":"telem has no trees""#),
        ("GET", "/api/tree?method_override=post", r#"501 {"error":{"code":501,"message":"telem has no trees""#),
    ] {
        let answer = send(&served, method, path, r#"{"name":"t"}"#).await;
        assert!(answer.starts_with(expected), "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn histograms_the_log_and_the_end_of_the_server_are_refused_with_the_reason() {
    let served = Served::new();
    for (method, path, expected) in [
        ("POST", "/api/histogram", r#"503 {"error":{"code":503,"message":"Histogram storage has not been enabled"#),
        ("GET", "/logs", "501 telem does not tell its log over HTTP\nit writes it to its stderr"),
        ("GET", "/logs?json", r#"501 {"err":"telem does not tell its log over HTTP"}"#),
        ("GET", "/diediedie", "400 a client does not stop this server\n"),
        ("DELETE", "/api/query?start=1&m=sum:m", r#"400 {"error":{"code":400,"message":"#),
    ] {
        let answer = send(&served, method, path, "").await;
        assert!(answer.starts_with(expected), "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn paths_from_before_the_api_answer_in_their_own_shape_and_say_400_for_whatever_is_wrong() {
    let served = Served::new();
    for (method, path, expected) in [
        ("GET", "/version", "200 net.opentsdb.tools 2.4.1 built at revision telem-"),
        ("GET", "/dropcaches", "200 Caches dropped.\n"),
        ("GET", "/stats", "200 tsd.connectionmgr.connections "),
        ("GET", "/stats?json", r#"200 ["tsd.connectionmgr.connections "#),
        ("GET", "/aggregators", r#"200 ["mult","#),
        ("GET", "/suggest", "400 Missing parameter <code>type</code>\n"),
        ("GET", "/suggest?type=x&json", r#"400 {"err":"Invalid 'type' parameter:x"}"#),
        ("PUT", "/aggregators", "400 Method not allowed\n"),
        ("GET", "/nope", "404 "),
    ] {
        let answer = send(&served, method, path, "").await;
        assert!(answer.starts_with(expected), "{method} {path}: {answer}");
    }
}
