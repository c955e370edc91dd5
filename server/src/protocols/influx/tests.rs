//! The wire of InfluxDB's writing API, request by request, through the router that the server runs.

use axum::body::Body;
use axum::extract::Request;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};
use std::io::Write;
use telem_engine::TimeRange;

use crate::testing::{Answer, Served};

/// Every sample, as `metric{tags} micros value`, sorted.
fn stored(served: &Served) -> Vec<String> {
    let snapshot = served.state.db.snapshot();
    let ids = (0..served.state.db.index().len() as u32).map(telem_engine::SeriesId).collect();
    let mut samples = Vec::new();
    for points in snapshot.points(ids, TimeRange::ALL) {
        let points = points.unwrap();
        let key = served.state.db.index().key(points.series).unwrap();
        for (at, time) in points.times.iter().enumerate() {
            samples.push(format!("{key} {} {}", time.micros(), points.values.get(at)));
        }
    }
    samples.sort();
    samples
}

fn json(answer: &Answer) -> Json {
    serde_json::from_slice(&answer.body).unwrap()
}

fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn good_lines_are_answered_204_and_stored() {
    for path in ["/write?db=telegraf&rp=&consistency=any", "/api/v2/write?org=o&bucket=b", "/write"] {
        let served = Served::new();
        let answer = served.post(path, "cpu,host=a usage=1.5,value=2i 1700000000000000500\n").await;
        assert_eq!((answer.status, answer.text()), (204, ""), "{path}");
        assert!(answer.header("x-influxdb-version").starts_with("1.8.0-telem."));
        assert_eq!(stored(&served), ["cpu_usage{host=a} 1700000000000000 1.5", "cpu{host=a} 1700000000000000 2"]);
    }
}

#[tokio::test]
async fn timestamps_count_what_precision_says() {
    for (precision, count) in
        [("ns", "60000000000"), ("n", "60000000000"), ("u", "60000000"), ("ms", "60000"), ("s", "60"), ("m", "1")]
    {
        let served = Served::new();
        let answer = served.post(&format!("/write?precision={precision}"), format!("m value=1 {count}")).await;
        assert_eq!(answer.status, 204, "{precision}");
        assert_eq!(stored(&served), ["m{} 60000000 1.0"], "{precision}");
    }
    let served = Served::new();
    let answer = served.post("/write?precision=days", "m value=1 1").await;
    assert_eq!(answer.status, 400);
    assert_eq!(json(&answer)["error"], "invalid precision 'days': expected ns, us, ms, s, m or h");
}

#[tokio::test]
async fn bodies_may_be_gzip_and_large() {
    let served = Served::new();
    // More than is decoded on the threads of the network, less than a body may be.
    let lines: String = (0..3_000).map(|second| format!("m,h=a v={second}i {second}\n")).collect();
    let request = Request::post("/write?precision=s").header("content-encoding", "gzip");
    let answer = served.ask(request.body(Body::from(gzip(&lines))).unwrap()).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(stored(&served).len(), 3_000);
}

#[tokio::test]
async fn good_lines_are_kept_and_each_bad_one_is_named() {
    let body = "m value=1 1\nbad\nm,h= value=2 2\nm value=3,state=\"up\" 3\n";
    let served = Served::new();
    let answer = served.post("/write?precision=s", body).await;
    assert_eq!(answer.status, 400);
    let expected = "partial write: line 2: unable to parse 'bad': missing fields\nline 3: unable to parse 'm,h= value=2 \
                    2': missing tag value\nline 4: field 'state' is a string; only numbers and booleans are stored (the \
                    rest of the line is) dropped=3";
    assert_eq!(json(&answer), json!({"error": expected}));
    assert_eq!(answer.header("x-influxdb-error"), expected.replace('\n', " "));
    assert_eq!(stored(&served), ["m{} 1000000 1.0", "m{} 3000000 3.0"]);

    let served = Served::new();
    let answer = served.post("/api/v2/write?precision=s", body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(json(&answer), json!({"code": "invalid", "message": expected, "line": 2}));
    assert_eq!(stored(&served).len(), 2);
}

#[tokio::test]
async fn a_body_without_a_good_line_is_no_partial_write() {
    let served = Served::new();
    let answer = served.post("/write", "bad").await;
    assert_eq!(
        (answer.status, json(&answer)),
        (400, json!({"error": "line 1: unable to parse 'bad': missing fields"}))
    );
    assert_eq!(served.post("/write", "").await.status, 204);
    assert_eq!(served.post("/write", "# nothing\n").await.status, 204);
}

#[tokio::test]
async fn of_many_bad_lines_a_hundred_are_listed() {
    let served = Served::new();
    let answer = served.post("/write", "bad\n".repeat(102)).await;
    let error = json(&answer)["error"].as_str().unwrap().to_owned();
    assert_eq!(error.lines().count(), 101);
    assert!(error.ends_with("line 100: unable to parse 'bad': missing fields\nand 2 more"), "{error}");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_in_the_form_of_each_version() {
    let served = Served::new();
    let body = "m value=1 1\n".repeat(10_000);
    let answer = served.post("/write", body.clone()).await;
    assert_eq!(answer.status, 413);
    assert!(json(&answer)["error"].as_str().unwrap().contains("larger than 65536 bytes"));
    let answer = served.post("/api/v2/write", body).await;
    assert_eq!((answer.status, &json(&answer)["code"]), (413, &json!("request too large")));
    assert_eq!(stored(&served).len(), 0);
}

#[tokio::test]
async fn who_asks_whether_somebody_is_there_is_told() {
    let served = Served::new();
    for method in ["GET", "HEAD"] {
        let answer = served.ask(Request::builder().method(method).uri("/ping").body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status, answer.text()), (204, ""), "{method}");
        assert!(answer.header("x-influxdb-version").starts_with("1.8.0-telem."));
    }
    let answer = served.get("/ping?verbose=true").await;
    assert_eq!((answer.status, &json(&answer)["version"]), (200, &json!(answer.header("x-influxdb-version"))));
    let answer = served.get("/health").await;
    assert_eq!((answer.status, &json(&answer)["status"]), (200, &json!("pass")));
}

#[tokio::test]
async fn a_database_is_found_made_and_other_influxql_is_refused() {
    let served = Served::new();
    let made = json!({"results": [{"statement_id": 0}]});
    let form = "q=CREATE+DATABASE+%22telegraf%22";
    for answer in [served.post("/query", form).await, served.post(&format!("/query?{form}"), "").await] {
        assert_eq!((answer.status, json(&answer)), (200, made.clone()));
    }
    let answer = served.get("/query?q=SHOW%20DATABASES").await;
    assert_eq!(json(&answer)["results"][0]["series"][0]["values"], json!([["telem"]]));
    for (query, expected) in [("q=SELECT+1", "ask in SQL at /api/sql"), ("", "missing required parameter \"q\"")] {
        let answer = served.post("/query", query).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(json(&answer)["error"].as_str().unwrap().ends_with(expected), "{query}");
    }
}
