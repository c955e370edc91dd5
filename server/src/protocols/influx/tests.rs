//! InfluxDB's write API on the wire, request by request, through the router that the server uses.

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

#[tokio::test]
async fn lines_of_version_3_are_stored_with_the_precision_that_is_said_or_seen() {
    for (precision, count) in [
        ("", "1700000000"),
        ("auto", "1700000000000"),
        ("auto", "1700000000000000"),
        ("auto", "1700000000000000000"),
        ("nanosecond", "1700000000000000000"),
        ("microsecond", "1700000000000000"),
        ("millisecond", "1700000000000"),
        ("second", "1700000000"),
        ("ms", "1700000000000"),
    ] {
        let served = Served::new();
        let path = format!("/api/v3/write_lp?db=job&precision={precision}");
        let answer = served.post(&path, format!("cpu,host=a usage=1.5 {count}\n")).await;
        assert_eq!((answer.status, answer.text()), (204, ""), "{precision}");
        assert_eq!(stored(&served), ["cpu_usage{host=a} 1700000000000000 1.5"], "{precision}");
    }
    let served = Served::new();
    for (wish, told) in [
        ("precision=h", "invalid precision 'h': expected auto, nanosecond, microsecond, millisecond or second"),
        ("accept_partial=1", "invalid accept_partial '1': expected true or false"),
        ("no_sync=yes", "invalid no_sync 'yes': expected true or false"),
    ] {
        let answer = served.post(&format!("/api/v3/write_lp?db=job&{wish}"), "m value=1 1").await;
        assert_eq!((answer.status, json(&answer)), (400, json!({"error": told})), "{wish}");
    }
    for wish in ["no_sync=true", "no_sync=false", "accept_partial=true&no_sync=true"] {
        assert_eq!(served.post(&format!("/api/v3/write_lp?db=job&{wish}"), "m value=1 1").await.status, 204, "{wish}");
    }
}

#[tokio::test]
async fn version_3_tells_each_bad_line_as_its_clients_read_it() {
    let body = "m value=1 1\nbad\nm value=3,state=\"up\" 3\r\n";
    let bad = json!({"original_line": "bad", "line_number": 2, "error_message": "missing fields"});
    let text = "field 'state' is a string; only numbers and booleans are stored (the rest of the line is)";
    let state = json!({"original_line": "m value=3,state=\"up\" 3", "line_number": 3, "error_message": text});

    let served = Served::new();
    let answer = served.post("/api/v3/write_lp?db=job&precision=second", body).await;
    let expected = json!({"error": "partial write of line protocol occurred", "data": [bad, state]});
    assert_eq!((answer.status, json(&answer)), (400, expected));
    assert_eq!(stored(&served), ["m{} 1000000 1.0", "m{} 3000000 3.0"]);

    let served = Served::new();
    let answer = served.post("/api/v3/write_lp?db=job&accept_partial=false", body).await;
    assert_eq!(
        (answer.status, json(&answer)),
        (400, json!({"error": "parsing failed for write_lp endpoint", "data": bad}))
    );
    assert_eq!(stored(&served).len(), 0, "all or nothing");

    let answer = served.post("/api/v3/write_lp", "bad\n".repeat(102)).await;
    let told = json(&answer);
    assert_eq!(told["data"].as_array().unwrap().len(), 100);
    assert_eq!(told["error"], "partial write of line protocol occurred; 100 of 102 bad lines are listed");
}

#[tokio::test]
async fn what_else_version_3_has_is_refused_in_its_own_words() {
    let served = Served::new();
    for path in ["/api/v3/query_sql?db=job&q=SELECT+1", "/api/v3/configure/database"] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(json(&answer)["error"].as_str().unwrap().contains("/api/v3/write_lp"), "{}", answer.text());
    }
    assert_eq!(served.get("/api/v3/write_lp").await.status, 405);
    let answer = served.get("/api/v4/put").await;
    assert!(answer.text().contains("greater than the max"), "OpenTSDB's versions are as they were: {}", answer.text());
}
