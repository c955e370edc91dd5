//! Which question a request asks, and what becomes of its answer when something fails on the way.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use axum::body::Body;
use axum::extract::Request;
use futures::{StreamExt, stream};
use telem_query::run::MissingNode;

use super::answer::testing;
use super::request::{Question, Wishes, parse};
use crate::rows::{Encoder, Format};

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
    ] {
        let found = question(query, accept, body).unwrap();
        assert_eq!((found.sql.trim(), found.format), ("SELECT 1", format), "{query} {accept} {body}");
    }
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

    for format in [Format::Json, Format::Csv, Format::Arrow] {
        assert!(failing(format).await.1, "{format:?}");
    }
    let (text, _) = failing(Format::Json).await;
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "it does not look whole: {text}");
}

#[test]
fn missing_nodes_are_named_in_visible_ascii() {
    let node = |node: &str, reason: &str| MissingNode { node: node.to_owned(), reason: reason.to_owned() };
    assert_eq!(testing::missing(&[]), None);
    let two = [node("n1", "no answer within 2 s"), node("n2", "refused, really=\r\nX: é")];
    assert_eq!(testing::missing(&two).unwrap(), "n1=no answer within 2 s, n2=refused? really???X: ?");
    let many: Vec<_> = (0..10_000).map(|n| node(&format!("node{n}"), "gone")).collect();
    let text = testing::missing(&many).unwrap();
    assert!(text.len() < 5_000 && text.ends_with(" more"), "{text}");
}
