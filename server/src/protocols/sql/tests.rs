//! The query of a request, and its answer when something fails midway.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::ipc::reader::StreamReader;
use axum::body::Body;
use axum::extract::Request;
use expect_test::expect;
use futures::{StreamExt, stream};
use telem_engine::Value;
use telem_query::RowOrder;

use super::answer::testing;
use super::request::{Question, Wishes, parse};
use crate::rows::{Encoder, Format};
use crate::testing::Served;

fn question(query: &str, accept: &str, body: &str) -> Result<Question, String> {
    let request = Request::post(format!("/api/sql{query}")).header("accept", accept).body(Body::empty()).unwrap();
    Wishes::of(&request).and_then(|wishes| parse(body.as_bytes(), wishes)).map_err(|error| {
        assert_eq!(error.status, 400);
        error.message
    })
}

#[test]
fn the_format_is_that_of_the_query_string_then_of_the_body_then_of_accept() {
    let json_body = r#"{"sql":"SELECT 1","format":"csv"}"#;
    for (query, accept, body, format) in [
        ("", "*/*", "SELECT 1", Format::Json),
        ("?format=arrow", "text/csv", json_body, Format::Arrow),
        ("", "application/x-ndjson", json_body, Format::Csv),
        ("", "text/html, text/csv;q=0.9, application/json", "SELECT 1", Format::Csv),
        ("?pretty&format=ndjson", "", "  SELECT 1", Format::Ndjson),
        ("", "application/vnd.apache.arrow.stream", r#" {"sql":"SELECT 1"}"#, Format::Arrow),
        ("", "application/vnd.apache.parquet", "SELECT 1", Format::Parquet),
    ] {
        let found = question(query, accept, body).unwrap();
        assert_eq!((found.sql.trim(), found.format), ("SELECT 1", format), "{query} {accept} {body}");
    }
}

#[test]
fn rows_come_in_any_order_or_in_that_of_storage() {
    assert_eq!(question("", "", "SELECT 1").unwrap().order, RowOrder::Any);
    assert_eq!(question("?order=stored&format=arrow", "", "SELECT 1").unwrap().order, RowOrder::Stored);
    let message = question("?order=desc", "", "SELECT 1").unwrap_err();
    assert!(message.contains("order 'desc' does not exist; there are any, stored"), "{message}");
}

#[test]
fn a_request_without_a_question_is_told_what_is_wrong() {
    for (query, body, expected) in [
        ("", "", "no SQL"),
        ("", " \n", "no SQL"),
        ("", r#"{"sql":""}"#, "no SQL"),
        ("", r#"{"query":"SELECT 1"}"#, "unknown field `query`"),
        ("", r#"{"sql":"SELECT 1""#, "EOF"),
        ("", r#"{"sql":"SELECT 1","format":"xml"}"#, "format 'xml' does not exist; there are json, ndjson, csv, arrow"),
        ("?format=", "SELECT 1", "format '' does not exist"),
    ] {
        let message = question(query, "", body).unwrap_err();
        assert!(message.contains(expected), "{body}: {message}");
    }
    let latin1 = parse(b"SELECT '\xe9'", Wishes::default()).unwrap_err();
    assert!(latin1.message.contains("not UTF-8"), "{latin1}");
}

fn batch(values: Vec<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(values)) as _)]).unwrap()
}

/// The bytes of an answer that fails after its second batch, and whether it was cut off.
async fn failing(format: Format) -> (String, bool) {
    let failure = telem_query::Error::TooLarge { what: "rows", max: 3 };
    let batches = stream::iter([Ok(batch(vec![1])), Ok(batch(vec![2])), Err(failure)]);
    let encoder = Encoder::new(format, &batch(vec![]).schema()).unwrap();
    let chunks: Vec<_> = testing::chunks(batches, encoder, format).collect().await;
    let cut = chunks.iter().any(Result::is_err);
    (chunks.into_iter().filter_map(Result::ok).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect(), cut)
}

#[tokio::test]
async fn an_error_midway_is_the_last_line_of_ndjson_and_cuts_the_other_formats_off() {
    let (text, cut) = failing(Format::Ndjson).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], [r#"{"n":1}"#, r#"{"n":2}"#]);
    assert!(lines[2].starts_with(r#"{"error":{"code":400,"message":"the query produces more than 3 rows"#), "{text}");
    assert!(!cut);

    for format in [Format::Json, Format::Csv, Format::Arrow, Format::Parquet] {
        assert!(failing(format).await.1, "{format:?}");
    }
    let (text, _) = failing(Format::Json).await;
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "it does not look whole: {text}");
}

fn with_samples() -> Served {
    let served = Served::new();
    let samples = [
        (1_767_225_600, Value::Float(0.5)),
        (1_767_225_601, Value::Int(i64::MAX)),
        (1_767_225_602, Value::Float(f64::NAN)),
    ];
    served.store("loss", &[("rank", "0")], &samples);
    served
}

#[tokio::test]
async fn rows_come_in_every_format() {
    let served = with_samples();
    let sql = "SELECT ts, tags, value, value_int FROM samples ORDER BY ts";
    let json = served.post("/api/sql", sql).await;
    assert_eq!(json.header("content-type"), "application/json; charset=UTF-8");
    expect![[r#"
        [{"ts":"2026-01-01T00:00:00Z","tags":{"rank":"0"},"value":0.5,"value_int":null},{"ts":"2026-01-01T00:00:01Z","tags":{"rank":"0"},"value":9.223372036854776e18,"value_int":9223372036854775807},{"ts":"2026-01-01T00:00:02Z","tags":{"rank":"0"},"value":null,"value_int":null}]
    "#]].assert_eq(json.text());
    let ndjson = served.post("/api/sql?format=ndjson", sql).await;
    assert_eq!(ndjson.text().lines().count(), 3);
    let csv = served.post("/api/sql?format=csv", sql).await;
    expect![[r#"
        ts,tags,value,value_int
        2026-01-01T00:00:00.000000Z,"{""rank"":""0""}",0.5,
        2026-01-01T00:00:01.000000Z,"{""rank"":""0""}",9.223372036854776e18,9223372036854775807
        2026-01-01T00:00:02.000000Z,"{""rank"":""0""}",NaN,
    "#]]
    .assert_eq(csv.text());
    let arrow = served.post("/api/sql?format=arrow", sql).await;
    assert_eq!(arrow.header("content-type"), "application/vnd.apache.arrow.stream");
    let rows: usize = StreamReader::try_new(&*arrow.body, None).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 3);
}

#[tokio::test]
async fn an_answer_is_compressed_for_clients_that_want_it() {
    let served = with_samples();
    let request = Request::post("/api/sql").header("accept-encoding", "gzip").body(Body::from("SELECT * FROM samples"));
    let answer = served.ask(request.unwrap()).await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*answer.body).read_to_string(&mut text).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn sql_that_writes_or_makes_no_sense_is_refused_and_the_server_lives_on() {
    let served = with_samples();
    for sql in [
        "INSERT INTO samples VALUES (1)",
        "DROP TABLE samples",
        "CREATE TABLE x AS SELECT 1",
        "COPY samples TO '/tmp/x.csv'",
        "SET datafusion.execution.batch_size = 1",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT nothing FROM samples",
    ] {
        let answer = served.post("/api/sql", sql).await;
        assert_eq!(answer.status, 400, "{sql}: {}", answer.text());
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(json["error"]["code"], 400, "{sql}");
    }
    assert_eq!(served.post("/api/sql", "SELECT count(*) AS n FROM samples").await.text(), "[{\"n\":3}]\n");
}

#[tokio::test]
async fn a_query_larger_than_a_body_may_be_is_413() {
    let served = Served::new();
    let answer = served.post("/api/sql", format!("SELECT '{}'", "x".repeat(64 << 10))).await;
    assert_eq!(answer.status, 413);
}
