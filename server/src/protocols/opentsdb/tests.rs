//! The OpenTSDB API on the wire, request by request, through the router that the server uses.

mod anything;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use chrono_tz::Tz;
use http_body_util::BodyExt;
use telem_engine::{Clock, Db, Options, TimeRange, Timestamp};
use telem_ingest::writer::{Writer, WriterOptions};
use telem_query::tsq::{CalendarUnit, Fidelity};
use telem_query::{Queries, QueryOptions};
use tempfile::TempDir;
use tower::ServiceExt;

use super::put::PutDetail;
use super::time;
use super::tsuid;
use crate::answers::AnswerBudget;
use crate::cors::Cors;
use crate::http::body::BodyLimits;
use crate::service::router::{self, ProtocolOptions};
use crate::state::{ServerLimits, State};

/// 2023-11-14 22:13:20 UTC, for ever.
const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

#[derive(Debug)]
pub(super) struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct Server {
    state: Arc<State>,
    _dir: TempDir,
}

#[derive(Clone, Copy, PartialEq)]
enum Access {
    Writing,
    ReadOnly,
}

fn server() -> Server {
    server_with(Access::Writing, WriterOptions::default())
}

fn server_with(access: Access, options: WriterOptions) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let db = Db::open(&dir.path().join("db"), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions { clock: Arc::clone(&clock), ..options }).unwrap();
    let queries = QueryOptions { threads: 1, ..QueryOptions::new(Arc::clone(&clock)) };
    let state = State {
        node: "n1".into(),
        job: "job-of-a-test".into(),
        queries: Queries::new(db.clone(), queries).unwrap(),
        db,
        writer: (access == Access::Writing).then_some(writer),
        level: 1,
        fidelity: Fidelity::Sensible,
        clock,
        limits: ServerLimits { bodies: BodyLimits::default().at_most(4_096), ..ServerLimits::default() },
        cors: Cors::default(),
        refusal: crate::state::Refusal::Saved,
        slots: None,
        version: "1.2.3",
    };
    Server { state: Arc::new(state), _dir: dir }
}

impl Server {
    /// Every path, over the state as it is.
    fn router(&self) -> Router {
        router::services(&self.state, &ProtocolOptions::default(), Router::new()).http
    }

    async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        let response = self.router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> String {
        self.line(Method::GET.as_str(), path, "").await
    }

    async fn post(&self, path: &str, body: &str) -> String {
        self.line(Method::POST.as_str(), path, body).await
    }

    /// Status and body in a line.
    async fn line(&self, method: &str, path: &str, body: &str) -> String {
        let (status, body) = self.send(method, path, body.to_owned()).await;
        format!("{} {body}", status.as_u16()).trim_end().to_owned()
    }

    /// How many samples a snapshot holds.
    fn samples(&self) -> usize {
        let snapshot = self.state.db.snapshot();
        let ids = (0..snapshot.index().len()).map(|id| telem_engine::SeriesId(u32::try_from(id).unwrap())).collect();
        snapshot.points(ids, TimeRange::ALL).map(|points| points.unwrap().times.len()).sum()
    }
}

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
const BAD: &str = r#"{"metric":"","timestamp":1356998401,"value":1,"tags":{"host":"a"}}"#;

#[tokio::test]
async fn a_put_answers_as_much_as_it_is_asked_for() {
    let server = server();
    let both = format!("[{GOOD},{BAD}]");
    for (path, body, expected) in [
        ("/api/put", GOOD, "204"),
        ("/api/put?sync", GOOD, "204"),
        ("/api/put?summary", GOOD, r#"200 {"success":1,"failed":0}"#),
        ("/api/put?details", GOOD, r#"200 {"success":1,"failed":0,"errors":[]}"#),
        ("/api/put?summary", &both, r#"400 {"success":1,"failed":1}"#),
        (
            "/api/put?details&sync",
            &both,
            r#"400 {"success":1,"failed":1,"errors":[{"datapoint":{"metric":"","timestamp":1356998401,"value":"1","tags":{"host":"a"}},"error":"Metric name was empty"}]}"#,
        ),
        (
            "/api/put",
            &both,
            r#"400 {"error":{"code":400,"message":"One or more data points had errors","details":"Please see the TSD logs or append \"details\" to the put request"}}"#,
        ),
        ("/api/put", "[]", r#"400 {"error":{"code":400,"message":"No datapoints found in content"}}"#),
        ("/api/put", "", r#"400 {"error":{"code":400,"message":"Missing request content"}}"#),
        ("/api/put", "5", r#"400 {"error":{"code":400,"message":"The JSON must start as an object or an array"}}"#),
    ] {
        assert_eq!(server.post(path, body).await, expected, "{path} {body}");
    }
}

#[tokio::test]
async fn a_put_may_wait_no_longer_than_it_says_for_its_points_to_be_stored() {
    let server = server();
    for (timeout, expected) in [("1000", "204"), ("0", "204"), ("-5", "204")] {
        assert_eq!(server.post(&format!("/api/put?sync&sync_timeout={timeout}"), GOOD).await, expected, "{timeout}");
    }
    for (wish, status) in [("", "400"), ("&exact", "500")] {
        let answer = server.post(&format!("/api/put?sync&sync_timeout=soon{wish}"), GOOD).await;
        assert!(answer.starts_with(status) && answer.contains("Unable to parse 'sync_timeout'"), "{answer}");
    }
    assert_eq!(server.samples(), 1);
}

#[tokio::test]
async fn a_put_whose_time_is_over_says_how_many_points_nobody_knows_of() {
    let errors = [br#"{"datapoint":{"timestamp":0},"error":"Metric name was empty"}"#.to_vec()];
    let told = |report| match super::put::timed_out(report, 2, 1, &errors) {
        Ok(answer) => format!("{} {}", answer.status.as_u16(), String::from_utf8(answer.json).unwrap()),
        Err(failure) => format!("{} {}", failure.status.as_u16(), failure.message),
    };
    assert_eq!(
        told(PutDetail::Plain),
        "400 The put call has timed out with 0 successful writes, 1 failed writes and 2 timed out writes."
    );
    assert_eq!(told(PutDetail::Summary), r#"400 {"success":0,"failed":1,"timeouts":2}"#);
    assert_eq!(
        told(PutDetail::Details),
        r#"400 {"success":0,"failed":1,"timeouts":2,"errors":[{"datapoint":{"timestamp":0},"error":"Metric name was empty"}]}"#
    );
}

#[tokio::test]
async fn a_body_may_come_in_chunks_of_any_size() {
    let server = server();
    let body = format!("[{GOOD},{BAD}]");
    for size in [1, 7, 4_096] {
        let chunks: Vec<_> = body.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        let chunks = chunks.into_iter().map(Ok::<_, std::convert::Infallible>);
        let body = crate::http::streamed(futures::stream::iter(chunks));
        let (status, answer) = server.send("POST", "/api/put?summary", body).await;
        assert_eq!((status.as_u16(), answer.as_str()), (400, r#"{"success":1,"failed":1}"#), "{size}");
    }
}

#[tokio::test]
async fn every_fault_of_a_point_is_told_in_the_words_of_the_original() {
    let server = server();
    let point = |field: &str, json: &str| {
        let mut point: serde_json::Value = serde_json::from_str(GOOD).unwrap();
        match json {
            "-" => drop(point.as_object_mut().unwrap().remove(field)),
            json => point[field] = serde_json::from_str(json).unwrap(),
        }
        point.to_string()
    };
    let nine: Vec<String> = (0..9).map(|at| format!("\"t{at}\":\"v\"")).collect();
    let nine = format!("{{{}}}", nine.join(","));
    for (field, json, expected) in [
        ("metric", "-", "Metric name was empty"),
        ("metric", "null", "Metric name was empty"),
        ("metric", "\"\"", "Metric name was empty"),
        ("metric", "\"a b\"", "Invalid metric name (\\\"a b\\\"): illegal character:  "),
        ("timestamp", "-", "Invalid timestamp"),
        ("timestamp", "0", "Invalid timestamp"),
        ("timestamp", "-1", "Invalid timestamp"),
        ("timestamp", "null", "Invalid timestamp"),
        ("timestamp", "1356998400000000", "bad timestamp=1356998400000000"),
        ("value", "-", "Empty value"),
        ("value", "null", "Empty value"),
        ("value", "\"\"", "Empty value"),
        ("value", "\"NaN\"", "Unable to parse value to a number"),
        ("value", "\"-Infinity\"", "Unable to parse value to a number"),
        ("value", "\"0x10\"", "Unable to parse value to a number"),
        ("value", "\"1,5\"", "Unable to parse value to a number"),
        ("value", "\" 5 \"", "Unable to parse value to a number"),
        ("value", "true", "Unable to parse value to a number"),
        ("value", "9223372036854775808", "Unable to parse value to a number"),
        ("tags", "-", "Missing tags"),
        ("tags", "null", "Missing tags"),
        ("tags", "{}", "Missing tags"),
        ("tags", "{\"\":\"a\"}", "empty string"),
        ("tags", "{\"host\":\"\"}", "Invalid tag value with key [host]: empty string"),
        ("tags", "{\"host\":null}", "Invalid tag value with key [host]: null"),
        ("tags", "{\"host\":\"a b\"}", "Invalid tag value with key [host] (\\\"a b\\\"): illegal character:  "),
        ("tags", &nine, "Too many tags: 9 maximum allowed: 8"),
    ] {
        let answer = server.post("/api/put?details&exact", &point(field, json)).await;
        assert!(answer.starts_with(r#"400 {"success":0,"failed":1,"errors":["#), "{field} {json}: {answer}");
        assert!(answer.contains(expected), "{field} {json}: {answer}");
    }
    for (field, json) in [
        ("timestamp", "\"1356998400\""),
        ("timestamp", "1356998400.5"),
        ("timestamp", "13569984000"),
        ("timestamp", "1356998400001"),
        ("value", "\"42\""),
        ("value", "\"1e3\""),
        ("value", "\"+5\""),
        ("value", "\".5\""),
        ("value", "9223372036854775807"),
        ("metric", "\"a-b_c.d/e9\""),
        ("metric", "\"métrique\""),
        ("unknown", "{\"field\":[1]}"),
    ] {
        assert_eq!(server.post("/api/put?exact", &point(field, json)).await, "204", "{field} {json}");
    }
    for json in ["\"abc\"", "{}", "[]"] {
        let answer = server.post("/api/put?details", &point("timestamp", json)).await;
        assert!(
            answer.starts_with(r#"400 {"error":{"code":400,"message":"Unable to parse the given JSON""#),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn good_points_of_a_bad_body_are_stored() {
    let server = server();
    server.post("/api/put", &format!("[{GOOD},{BAD}]")).await;
    assert_eq!(server.samples(), 1);
}

#[tokio::test]
async fn what_is_wrong_with_each_point_is_told_in_the_order_of_the_points() {
    let server = server();
    let future = GOOD.replace("1356998400", "1700003601");
    let answer = server.post("/api/put?details", &format!("[{future},{GOOD},{BAD}]")).await;
    let ahead = answer.find("is 3601.0 s ahead of this machine's clock").unwrap();
    assert!(ahead < answer.find("Metric name was empty").unwrap(), "{answer}");
    assert!(answer.starts_with(r#"400 {"success":1,"failed":2,"errors":["#), "{answer}");
}

#[tokio::test]
async fn points_beyond_the_limit_of_a_request_are_counted_and_said_to_be_unread() {
    let limits = telem_ingest::accept::Limits { batch_samples_max: 2, ..Default::default() };
    let server = server_with(Access::Writing, WriterOptions { limits, ..WriterOptions::default() });
    let body = format!("[{GOOD},{BAD},{GOOD},{{}},null]");
    assert_eq!(server.post("/api/put?summary", &body).await, r#"400 {"success":1,"failed":4}"#);
    let answer = server.post("/api/put?details", &body).await;
    let unread = r#"{"datapoint":{"timestamp":0},"error":"3 data points were not looked at: the request holds more than 2; send the rest in another"}],"errors_listed":2}"#;
    assert!(answer.ends_with(unread), "{answer}");
    assert!(answer.contains(r#""error":"Metric name was empty"}"#), "{answer}");
}

#[tokio::test]
async fn of_very_many_bad_points_the_first_are_listed_and_the_answer_says_so() {
    let mut server = server();
    let state = Arc::get_mut(&mut server.state).unwrap();
    state.limits.bodies.bytes_max = 1 << 20;
    let answer = server.post("/api/put?details", &format!("[{}null]", "{},".repeat(20_000))).await;
    assert!(answer.starts_with(r#"400 {"success":0,"failed":20001,"errors":[{"#), "{}", &answer[..64]);
    assert!(answer.ends_with(r#"],"errors_listed":10000}"#), "{}", &answer[answer.len() - 64..]);
    assert_eq!(answer.matches("Metric name was empty").count(), 10_000);
}

#[tokio::test]
async fn a_point_may_have_more_tags_than_opentsdb_takes_unless_it_is_to_be_exact() {
    let server = server();
    let point = |count: usize| {
        let tags: Vec<String> = (0..count).map(|at| format!("\"t{at}\":\"v\"")).collect();
        GOOD.replace(r#""host":"a""#, &tags.join(","))
    };
    assert_eq!(server.post("/api/put", &point(64)).await, "204");
    assert_eq!(server.post("/api/put?exact", &point(8)).await, "204");
    for (path, count, max) in [("/api/put?details", 65, 64), ("/api/put?details&exact", 9, 8)] {
        let answer = server.post(path, &point(count)).await;
        assert!(answer.contains(&format!("Too many tags: {count} maximum allowed: {max}, tags: {{t")), "{answer}");
    }
}

#[tokio::test]
async fn a_put_may_name_the_unit_of_its_timestamps_and_keep_what_is_not_finite() {
    let server = server();
    let point = |timestamp: &str, value: &str| {
        GOOD.replace("1356998400", timestamp).replace("1,\"tags", &format!("{value},\"tags"))
    };
    let micros = point("1356998400000001", "NaN");
    assert_eq!(server.post("/api/put?summary&precision=us", &micros).await, r#"400 {"success":0,"failed":1}"#);
    assert_eq!(server.post("/api/put?summary&non_finite=keep", &micros).await, r#"400 {"success":0,"failed":1}"#);
    assert_eq!(server.post("/api/put?precision=us&non_finite=keep", &micros).await, "204");
    assert_eq!(server.post("/api/put?precision=us", &point("1356998400000002", "2")).await, "204");
    assert_eq!(server.samples(), 2);
    for (path, expected) in [
        ("/api/put?precision=ns", "Unknown precision of timestamps\",\"details\":\"found 'ns', expected s, ms or us"),
        (
            "/api/put?non_finite",
            "Unknown wish for values that are no finite numbers\",\"details\":\"found '', expected keep",
        ),
    ] {
        assert!(server.post(path, GOOD).await.contains(expected), "{path}");
    }
}

#[tokio::test]
async fn at_level_0_points_are_checked_and_counted_and_nothing_is_kept() {
    let mut server = server();
    Arc::get_mut(&mut server.state).unwrap().level = 0;
    assert_eq!(server.post("/api/put", GOOD).await, "204");
    let both = format!("[{GOOD},{BAD}]");
    assert_eq!(server.post("/api/put?summary&sync", &both).await, r#"400 {"success":1,"failed":1}"#);
    assert_eq!((server.samples(), server.get("/api/suggest?type=metrics").await), (0, "200 []".to_owned()));
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_with_413() {
    let server = server();
    let (status, body) = server.send("POST", "/api/put", vec![b' '; 4_097]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(body.starts_with(r#"{"error":{"code":413,"message":"the body is larger than 4096 bytes"#), "{body}");
}

#[tokio::test]
async fn a_question_has_a_smaller_limit_than_samples() {
    let mut server = server();
    Arc::get_mut(&mut server.state).unwrap().limits.question_bytes_max = 64;
    for path in ["/api/query", "/api/suggest", "/api/search/lookup"] {
        let answer = server.post(path, &" ".repeat(65)).await;
        assert!(
            answer.starts_with(r#"413 {"error":{"code":413,"message":"the body is larger than 64 bytes"#),
            "{answer}"
        );
    }
    assert_eq!(server.post("/api/put", GOOD).await, "204");
}

#[tokio::test]
async fn answers_that_nobody_reads_yet_hold_their_memory_and_further_ones_are_503() {
    let mut server = server();
    Arc::get_mut(&mut server.state).unwrap().limits.answers = AnswerBudget::new(1);
    server.post("/api/put", GOOD).await;
    let larger = server.get("/api/query?start=1&m=sum:m").await;
    assert!(larger.starts_with(r#"400 {"error":{"code":400,"message":"the answer is larger than 1 bytes"#), "{larger}");
    Arc::get_mut(&mut server.state).unwrap().limits.answers = AnswerBudget::new(64 << 10);
    let ask = || {
        let request = Request::get("/api/query?start=1&m=sum:m").body(Body::empty()).unwrap();
        server.router().oneshot(request)
    };
    let unread = ask().await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(ask().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_search_takes_tags_up_to_a_limit() {
    let server = server();
    let search = |count: usize| format!(r#"{{"metric":"*","tags":[{}]}}"#, vec!["{}"; count].join(","));
    assert!(server.post("/api/search/lookup", &search(64)).await.starts_with("200 "));
    let refused = r#"400 {"error":{"code":400,"message":"more than 64 tags in one search"}}"#;
    assert_eq!(server.post("/api/search/lookup", &search(300)).await, refused);
}

#[tokio::test]
async fn a_full_queue_is_503_and_says_when_to_try_again() {
    let server = server_with(Access::Writing, WriterOptions { queue_batches_max: 0, ..WriterOptions::default() });
    let request = Request::post("/api/put").body(Body::from(GOOD)).unwrap();
    let response = server.router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(server.samples(), 0);
}

#[tokio::test]
async fn a_read_only_database_takes_no_samples_and_says_so() {
    let server = server_with(Access::ReadOnly, WriterOptions::default());
    let answer = server.post("/api/put", GOOD).await;
    assert!(answer.starts_with(r#"403 {"error":{"code":403,"message":"this database is served read-only"#), "{answer}");
}

#[tokio::test]
async fn paths_ignore_case_version_and_a_trailing_slash() {
    let server = server();
    let expected = server.get("/api/version").await;
    assert_eq!(
        expected,
        r#"200 {"short_revision":"1.2.3","repo":"telem","host":"n1","version":"2.4.1","full_revision":"telem 1.2.3","repo_status":"MINT","user":"","branch":"","timestamp":"0"}"#
    );
    for path in [
        "/api/version/",
        "/API/VERSION",
        "/api/v1/version",
        "/api/Version?serializer=json",
        "/version?json",
        "/api/version/and/more",
    ] {
        assert_eq!(server.get(path).await, expected, "{path}");
    }
    for (method, path, expected) in [
        ("GET", "/api/nope", r#"404 {"error":{"code":404,"message":"Endpoint not found"}}"#),
        ("GET", "/api", r#"404 {"error":{"code":404,"message":"Endpoint not found"}}"#),
        ("GET", "/api/", r#"404 {"error":{"code":404,"message":"Endpoint not found"}}"#),
        (
            "POST",
            "/api/v2/query",
            r#"501 {"error":{"code":501,"message":"Requested API version is greater than the max implemented","details":"API version [2] is greater than the max [1]"}}"#,
        ),
        (
            "GET",
            "/api/v1x/version",
            r#"400 {"error":{"code":400,"message":"Invalid API version format supplied","details":"API version [1x] cannot be parsed to an integer"}}"#,
        ),
        (
            "GET",
            "/api/uid/nope",
            r#"501 {"error":{"code":501,"message":"Other UID endpoints have not been implemented yet"}}"#,
        ),
        (
            "GET",
            "/api/version?serializer=xml",
            r#"400 {"error":{"code":400,"message":"Requested serializer was not found","details":"Could not find a serializer with the name: xml"}}"#,
        ),
    ] {
        assert_eq!(server.line(method, path, "").await, expected, "{path}");
    }
}

#[tokio::test]
async fn methods_are_allowed_endpoint_by_endpoint() {
    let server = server();
    let refused = |method: &str| {
        format!(
            r#"405 {{"error":{{"code":405,"message":"Method not allowed","details":"The HTTP method [{method}] is not permitted for this endpoint"}}}}"#
        )
    };
    for (method, path) in [
        ("GET", "/api/put"),
        ("PUT", "/api/put"),
        ("PATCH", "/api/query"),
        ("PUT", "/api/query"),
        ("PUT", "/api/suggest"),
        ("PUT", "/api/aggregators"),
        ("PUT", "/api/stats"),
        ("DELETE", "/api/stats/jvm"),
        ("PUT", "/api/stats/query"),
        ("PUT", "/api/stats/threads"),
        ("PUT", "/api/stats/region_clients"),
        ("DELETE", "/api/config"),
        ("DELETE", "/api/config/filters"),
        ("PUT", "/api/dropcaches"),
        ("DELETE", "/api/query/last"),
        ("PATCH", "/api/annotation"),
        ("GET", "/api/annotation/bulk"),
        ("PUT", "/api/uid/assign"),
        ("DELETE", "/api/uid/rename"),
        ("PATCH", "/api/uid/uidmeta"),
        ("PATCH", "/api/uid/tsmeta"),
        ("PATCH", "/api/tree"),
        ("GET", "/api/rollup"),
        ("GET", "/api/histogram"),
    ] {
        assert_eq!(server.line(method, path, "").await, refused(method), "{method} {path}");
    }
    assert_eq!(server.line("HEAD", "/api/query", "").await, "405");
    assert_eq!(server.line("HEAD", "/api/nope", "").await, "404");
    assert!(server.line("OPTIONS", "/api/nope", "").await.starts_with("405 "));
    assert!(server.line("DELETE", "/api/search/lookup", "").await.starts_with("405 "));
    assert_eq!(
        server.line("OPTIONS", "/api/query", "").await,
        r#"405 {"error":{"code":405,"message":"Method not allowed","details":"The HTTP method [OPTIONS] is not permitted"}}"#
    );
    // It counts where notes are written, and is not looked at where there is nothing to write.
    let overriding = "/api/annotation?start_time=5&description=d&method_override=";
    assert!(server.get(&format!("{overriding}post")).await.starts_with("200 "));
    assert_eq!(server.get(&format!("{overriding}DELETE")).await, "204");
    assert_eq!(server.get(&format!("{overriding}patch")).await, refused("PATCH"));
    for (value, text) in [("", "Missing method override value"), ("x", "Unknown or unsupported method override")] {
        let answer = server.get(&format!("{overriding}{value}")).await;
        assert!(answer.starts_with("405 ") && answer.contains(text), "{answer}");
    }
    assert!(server.get("/api/version?method_override=put").await.starts_with("200 "));
    assert!(server.line("DELETE", "/api/query?start=1&m=sum:m", "").await.contains("Deleting data is not enabled"));
}

#[tokio::test]
async fn names_are_suggested_by_their_prefix() {
    let server = server();
    for metric in ["sg.beta", "sg.alpha", "sg.Alpha", "other"] {
        server.post("/api/put", &GOOD.replace("\"m\"", &format!("\"{metric}\""))).await;
    }
    let bad = |text: &str| format!(r#"400 {{"error":{{"code":400,"message":"{text}"}}}}"#);
    for (path, expected) in [
        ("type=metrics&q=sg.", r#"200 ["sg.Alpha","sg.alpha","sg.beta"]"#.to_owned()),
        ("type=metrics&q=sg.&max=1", r#"200 ["sg.Alpha"]"#.to_owned()),
        ("type=metrics&q=cpu", "200 []".to_owned()),
        ("type=tagk", r#"200 ["host"]"#.to_owned()),
        ("type=tagv&q=&max=0", r#"200 ["a"]"#.to_owned()),
        // A script of a strange page could read an answer that calls a function of its own.
        ("type=metrics&q=other&jsonp=cb", r#"200 ["other"]"#.to_owned()),
        ("q=sg", bad("Missing parameter <code>type</code>")),
        ("type=&q=sg", bad("Missing parameter <code>type</code>")),
        ("type=METRICS", bad("Invalid 'type' parameter:METRICS")),
    ] {
        assert_eq!(server.get(&format!("/api/suggest?{path}")).await, expected, "{path}");
    }
    assert_eq!(
        server.get("/api/suggest?type=metrics&max=abc").await,
        r#"400 {"error":{"code":400,"message":"Unable to parse 'max' as a number","details":"found 'abc'"}}"#
    );
    let body = r#"{"type":"metrics","q":"sg.","max":2}"#;
    assert_eq!(server.post("/api/suggest", body).await, r#"200 ["sg.Alpha","sg.alpha"]"#);
    let untyped = r#"400 {"error":{"code":400,"message":"Missing 'type' parameter"}}"#;
    assert_eq!(server.post("/api/suggest?type=metrics", "{}").await, untyped);
    assert_eq!(server.get("/suggest?type=metrics&q=other").await, r#"200 ["other"]"#);
    assert_eq!(server.post("/suggest?type=metrics&q=other", "").await, r#"200 ["other"]"#);
    assert!(
        server.post("/api/suggest", "").await.starts_with(r#"400 {"error":{"code":400,"message":"Missing message"#)
    );
    assert!(
        server.post("/api/suggest", "{").await.starts_with(r#"400 {"error":{"code":400,"message":"Unable to parse"#)
    );
}

#[tokio::test]
async fn twenty_five_names_are_suggested_unless_asked_otherwise() {
    let server = server();
    for at in 10..40 {
        server.post("/api/put", &GOOD.replace("\"m\"", &format!("\"m{at}\""))).await;
    }
    let count = |answer: String| answer.matches("\"m").count();
    assert_eq!(count(server.get("/api/suggest?type=metrics&q=m").await), 25);
    assert_eq!(count(server.get("/api/suggest?type=metrics&q=m&max=-1").await), 25);
    assert_eq!(count(server.get("/api/suggest?type=metrics&q=m&max=1000").await), 30);
}

/// A server with the series of the lookup tests.
async fn lookup_server() -> Server {
    let server = server();
    for (metric, tags) in [
        ("cpu", r#"{"host":"web01","colo":"lga"}"#),
        ("cpu", r#"{"host":"web02","colo":"lga"}"#),
        ("cpu", r#"{"host":"web03","colo":"sjc"}"#),
        ("cpu", r#"{"host":"web01"}"#),
        ("mem", r#"{"host":"web01","env":"prod"}"#),
    ] {
        let put = GOOD.replace("\"m\"", &format!("\"{metric}\"")).replace(r#"{"host":"a"}"#, tags);
        assert_eq!(server.post("/api/put", &put).await, "204");
    }
    server
}

#[tokio::test]
async fn a_lookup_finds_series_by_metric_and_tags() {
    let server = lookup_server().await;
    assert_eq!(
        server.get("/api/search/lookup?m=cpu%7Bcolo=sjc%7D&limit=2").await,
        r#"200 {"type":"LOOKUP","metric":"cpu","tags":[{"key":"colo","value":"sjc"}],"limit":2,"time":0.0,"results":[{"tsuid":"000001000001000004000002000005","metric":"cpu","tags":{"colo":"sjc","host":"web03"}}],"startIndex":0,"totalResults":1}"#
    );
    for (m, expected) in [
        ("cpu", "cpu{colo=lga,host=web01} cpu{colo=lga,host=web02} cpu{colo=sjc,host=web03} cpu{host=web01}"),
        ("cpu{}", "cpu{colo=lga,host=web01} cpu{colo=lga,host=web02} cpu{colo=sjc,host=web03} cpu{host=web01}"),
        ("cpu{host=web01}", "cpu{colo=lga,host=web01} cpu{host=web01}"),
        ("cpu{host=*,colo=lga}", "cpu{colo=lga,host=web01} cpu{colo=lga,host=web02}"),
        ("cpu{colo=*}", "cpu{colo=lga,host=web01} cpu{colo=lga,host=web02} cpu{colo=sjc,host=web03}"),
        ("cpu{host=web02,host=web03}", "cpu{colo=lga,host=web02} cpu{colo=sjc,host=web03}"),
        ("*{host=web01}", "cpu{colo=lga,host=web01} cpu{host=web01} mem{env=prod,host=web01}"),
        ("{host=web01}", "cpu{colo=lga,host=web01} cpu{host=web01} mem{env=prod,host=web01}"),
        ("{*=prod}", "mem{env=prod,host=web01}"),
        ("{env=}", "mem{env=prod,host=web01}"),
    ] {
        let m = m.replace('{', "%7B").replace('}', "%7D");
        let answer = server.get(&format!("/api/search/lookup?m={m}")).await;
        assert_eq!(found(&answer), expected, "{m}");
    }
    let body = r#"{"metric":"cpu","tags":[{"key":"host","value":"*"}],"limit":1}"#;
    assert_eq!(found(&server.post("/api/search/lookup", body).await), "cpu{colo=lga,host=web01}");
    for limit in ["0", "-1"] {
        let answer = server.get(&format!("/api/search/lookup?m=cpu&limit={limit}")).await;
        assert!(answer.contains(&format!("\"limit\":{limit},")), "{answer}");
        assert_eq!(found(&answer).split(' ').count(), 4);
    }
    // What is asked is told again as it was asked, and what a body does not say may stand in the parameters.
    let answer = server.get("/api/search/lookup?m=cpu%7Bhost=,=web01,colo=*%7D").await;
    let tags =
        r#""tags":[{"key":"host","value":null},{"key":null,"value":"web01"},{"key":"colo","value":"*"}],"limit":25,"#;
    assert!(answer.contains(tags), "{answer}");
    let answer = server.post("/api/search/lookup", r#"{"metric":"cpu","limit":1,"startIndex":3,"useMeta":true}"#).await;
    assert!(answer.ends_with(r#""startIndex":3,"totalResults":1}"#), "{answer}");
    assert_eq!(found(&server.post("/api/search/lookup?m=mem", "").await), "mem{env=prod,host=web01}");
    assert_eq!(
        found(&server.line("GET", "/api/search/lookup", r#"{"metric":"mem"}"#).await),
        "mem{env=prod,host=web01}"
    );
    assert_eq!(found(&server.post("/api/search/lookup", "{}").await).split(' ').count(), 5);
}

/// The series of an answer.
fn found(answer: &str) -> String {
    let answer: serde_json::Value = serde_json::from_str(answer.strip_prefix("200 ").unwrap()).unwrap();
    let show = |result: &serde_json::Value| {
        let tags = result["tags"].as_object().unwrap();
        let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
        format!("{}{{{}}}", result["metric"].as_str().unwrap(), tags.join(","))
    };
    answer["results"].as_array().unwrap().iter().map(show).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_lookup_that_cannot_be_answered_says_why() {
    let server = lookup_server().await;
    let unknown = |details: &str| {
        format!(
            r#"404 {{"error":{{"code":404,"message":"Unable to resolve one or more UIDs","details":"{details}"}}}}"#
        )
    };
    for (query, expected) in [
        ("m=nope", unknown("No such name for 'metrics': 'nope'")),
        ("m=cpu%7Bnokey=*%7D", unknown("No such name for 'tagk': 'nokey'")),
        ("m=cpu%7Bhost=a%7Cb%7D", unknown("No such name for 'tagv': 'a|b'")),
        (
            "m=cpu%7Bhost=",
            r#"400 {"error":{"code":400,"message":"Unable to parse query","details":"Missing '}' at the end of: cpu{host="}}"#
                .to_owned(),
        ),
        ("", r#"400 {"error":{"code":400,"message":"Missing parameter <code>m</code>"}}"#.to_owned()),
        (
            "m=",
            r#"400 {"error":{"code":400,"message":"Missing parameter <code>m</code>"}}"#.to_owned(),
        ),
        (
            "m=cpu&limit=",
            r#"400 {"error":{"code":400,"message":"Unable to convert 'limit' to a valid number"}}"#.to_owned(),
        ),
        (
            "m=cpu%7Bx%7D",
            r#"400 {"error":{"code":400,"message":"Unable to parse query","details":"When parsing tag 'x': Missing tag pair"}}"#.to_owned(),
        ),
        (
            "m=cpu&limit=x",
            r#"400 {"error":{"code":400,"message":"Unable to convert 'limit' to a valid number"}}"#.to_owned(),
        ),
    ] {
        assert_eq!(server.get(&format!("/api/search/lookup?{query}")).await, expected, "{query}");
    }
    assert!(server.get("/api/search/tsmeta?query=*").await.contains("Searching is not enabled"));
    assert!(server.get("/api/search/foo").await.contains("Unknown type: foo"));
    for (path, text) in [
        ("/api/search", "Invalid search query type supplied\",\"details\":\"Type provided was null or empty"),
        ("/api/search/tsmeta", "Missing parameter <code>query</code>"),
        ("/api/search/uidmeta?query=a&limit=x", "Unable to convert 'limit' to a valid number"),
        ("/api/search/tsuids?query=a&start_index=x", "Unable to convert 'start_index' to a valid number"),
    ] {
        let answer = server.get(path).await;
        assert!(answer.starts_with("400 ") && answer.contains(text), "{path}: {answer}");
    }
    assert!(server.post("/api/search/annotation", "{").await.contains("Unable to parse the given JSON"));
    assert!(server.post("/api/search/annotation", "{}").await.contains("Searching is not enabled"));
}

#[tokio::test]
async fn a_series_is_found_again_by_its_tsuid() {
    let server = lookup_server().await;
    let index = server.state.db.index();
    for key in (0..index.len()).map(|id| index.key(telem_engine::SeriesId(u32::try_from(id).unwrap())).unwrap()) {
        assert_eq!(tsuid::find(index, &tsuid::of(index, &key).to_lowercase()), Ok(Some(key)));
    }
    assert_eq!(tsuid::find(index, "00FFFF000001000001"), Ok(None));
    assert_eq!(tsuid::find(index, "zz"), Err("begin 0, end 6, length 2".to_owned()));
    assert!(tsuid::find(index, "zzzzzz").is_err());
}

#[tokio::test]
async fn aggregators_and_filters_are_those_that_queries_take() {
    let server = server();
    let answer = server.get("/api/aggregators").await;
    let names: Vec<String> = serde_json::from_str(answer.strip_prefix("200 ").unwrap()).unwrap();
    assert_eq!(
        names.join(" "),
        "mult p90 zimsum mimmax sum p50 none p95 ep99r7 pfsum p75 p99 ep99r3 ep95r7 min avg ep75r7 dev ep95r3 ep75r3 \
         ep50r7 ep90r7 mimmin p999 ep50r3 ep90r3 ep999r7 last max count diff median squareSum ep999r3 first"
    );
    assert!(names.iter().all(|name| super::aggregators::by_name(name).is_some()));
    let answer = server.get("/api/config/filters").await;
    let filters: serde_json::Value = serde_json::from_str(answer.strip_prefix("200 ").unwrap()).unwrap();
    let mut kinds: Vec<&String> = filters.as_object().unwrap().keys().collect();
    kinds.sort();
    assert_eq!(
        kinds,
        ["iliteral_or", "iwildcard", "literal_or", "not_iliteral_or", "not_literal_or", "regexp", "wildcard"]
    );
    assert_eq!(server.get("/api/dropcaches").await, r#"200 {"message":"Caches dropped","status":"200"}"#);
    assert!(server.get("/api/config").await.contains(r#""tsd.mode":"rw""#));
}

#[tokio::test]
async fn what_was_put_is_answered_to_each_generation_of_grafana() {
    let server = server();
    for (second, host, value) in [(0, "a", "1"), (0, "b", "2"), (60, "a", "3"), (60, "b", "4.5")] {
        let put = format!(
            r#"{{"metric":"m","timestamp":{},"value":{value},"tags":{{"host":"{host}"}}}}"#,
            1_356_998_400 + second
        );
        assert_eq!(server.post("/api/put", &put).await, "204");
    }
    let frontend = r#"{"start":1356998400000,"end":1356998460000,"msResolution":true,"globalAnnotations":true,"showQuery":true,
        "queries":[{"metric":"m","aggregator":"sum","refId":"A"}]}"#;
    let answer = server.post("/api/query", frontend).await;
    assert!(answer.contains(r#""index":0"#), "{answer}");
    assert!(answer.ends_with(r#","1356998460000":7.5}}]"#), "{answer}");
    let backend = r#"{"start":1356998400,"end":1356998460,
        "queries":[{"aggregator":"none","downsample":"1m-avg","explicitTags":false,"metric":"m"}]}"#;
    assert_eq!(
        server.post("/api/query?arrays=true", backend).await,
        r#"200 [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],"dps":[[1356998400,1.0],[1356998460,3.0]]},{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"dps":[[1356998400,2.0],[1356998460,4.5]]}]"#
    );
    assert_eq!(
        server.get("/api/query?start=2013/01/01&end=2013/01/02&m=max:m%7Bhost=b%7D&show_tsuids").await,
        r#"200 [{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"tsuids":["000001000001000002"],"dps":{"1356998400":2.0,"1356998460":4.5}}]"#
    );
    assert_eq!(
        server.get("/api/query?start=2013/01/01&end=2013/01/02&tsuid=max:000001000001000001").await,
        r#"200 [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],"dps":{"1356998400":1,"1356998460":3}}]"#
    );
    assert_eq!(
        server.get("/api/query?start=1h-ago&m=sum:no.such").await,
        r#"400 {"error":{"code":400,"message":"No such name for 'metrics': 'no.such'","details":"No such name for 'metrics': 'no.such'"}}"#
    );
}

#[tokio::test]
async fn a_gap_is_shown_to_each_generation_of_grafana_as_it_can_draw_it() {
    let server = server();
    for second in [0, 120] {
        let put = format!(r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"host":"a"}}}}"#, 1_356_998_400 + second);
        assert_eq!(server.post("/api/put", &put).await, "204");
    }
    let sub = |fill: &str| format!(r#""queries":[{{"metric":"m","aggregator":"sum","downsample":"1m-sum-{fill}"}}]}}"#);
    let browser = r#"{"start":1356998400000,"end":1356998520000,"msResolution":false,"globalAnnotations":true,"#;
    let server_side = r#"{"start":1356998400,"end":1356998520,"#;
    let nan = r#"{"1356998400":1.0,"1356998460":"NaN","1356998520":1.0}"#;
    let null = r#"{"1356998400":1.0,"1356998460":null,"1356998520":1.0}"#;
    let none = r#"{"1356998400":1.0,"1356998520":1.0}"#;
    for (path, asked, fill, dps) in [
        ("/api/query", browser, "nan", nan),
        ("/api/query", server_side, "null", null),
        ("/api/query?gaps=fill", browser, "null", null),
        ("/api/query?gaps=null", server_side, "nan", null),
        ("/api/query?gaps=none", browser, "null", none),
        ("/grafana/api/query", browser, "nan", null),
        ("/grafana/api/query", browser, "null", null),
        ("/grafana/api/v1/query/", server_side, "nan", none),
        ("/grafana/api/query", server_side, "null", none),
        ("/grafana/api/query?gaps=fill", server_side, "nan", nan),
    ] {
        let answer = server.post(path, &format!("{asked}{}", sub(fill))).await;
        assert!(answer.starts_with("200 ") && answer.ends_with(&format!("\"dps\":{dps}}}]")), "{path}: {answer}");
    }
    let arrays = server.post("/grafana/api/query?arrays=true", &format!("{server_side}{}", sub("nan"))).await;
    assert!(arrays.ends_with(r#""dps":[[1356998400,1.0],[1356998520,1.0]]}]"#), "{arrays}");
    let refused = server.get("/api/query?start=1h-ago&m=sum:m&gaps=zero").await;
    assert!(refused.starts_with(r#"400 {"error":{"code":400,"message":"gaps 'zero' does not exist"#), "{refused}");
}

#[tokio::test]
async fn a_grafana_finds_the_whole_api_below_its_path() {
    let server = server();
    server.post("/api/put", GOOD).await;
    for path in ["/api/suggest?type=metrics&q=m", "/api/aggregators", "/api/config/filters", "/api/search/lookup?m=m"] {
        let found = server.get(&format!("/grafana{path}")).await;
        assert!(found.starts_with("200 "), "{path}: {found}");
        if !path.contains("lookup") {
            assert_eq!(found, server.get(path).await, "{path}");
        }
    }
    assert!(server.get("/grafana/nothing").await.starts_with("404 "));
    assert!(server.get("/grafana/api/nothing").await.starts_with("404 "));
}

#[tokio::test]
async fn a_metric_of_telem_is_a_known_name_before_it_has_a_sample() {
    let server = server();
    let put = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(server.post("/api/put", put).await, "204");
    assert_eq!(server.get("/api/query?start=1h-ago&m=sum:node_load1%7Bhost=*%7D").await, "200 []");
    let not_yet = "/api/query?start=2013/01/01&end=2013/01/02&m=sum:m%7Bdevice=*%7D";
    assert_eq!(server.get(not_yet).await, "200 []", "a tag that the level leaves out");
    let lookup = server.get("/api/search/lookup?m=node_load1%7Bhost=*%7D").await;
    assert!(lookup.starts_with("200 ") && lookup.contains(r#""results":[]"#), "{lookup}");
    // The original would not know it.
    assert!(server.get("/api/search/lookup?m=node_load1&exact").await.starts_with("404 "));
    let exact = r#"400 {"error":{"code":400,"message":"No such name for 'metrics': 'node_load1'"#;
    assert!(server.get("/api/query?start=1h-ago&m=sum:node_load1&exact").await.starts_with(exact));
}

#[test]
fn times_are_read_in_every_form() {
    let paris: Tz = "Europe/Paris".parse().unwrap();
    let read = |text: &str| time::parse(text, NOW.millis(), paris);
    for (text, expected) in [
        ("1356998400", 1_356_998_400_000),
        ("0", 0),
        ("1356998400123", 1_356_998_400_123),
        ("1356998400ms", 1_356_998_400),
        ("1356998400.5", 1_356_998_400_500),
        ("1356998400.123", 1_356_998_400_123),
        ("now", 1_700_000_000_000),
        ("NOW", 1_700_000_000_000),
        ("90s-ago", 1_699_999_910_000),
        ("500ms-ago", 1_699_999_999_500),
        ("1H-Ago", 1_699_996_400_000),
        ("1d-ago", 1_699_913_600_000),
        ("2w-ago", 1_698_790_400_000),
        ("1n-ago", 1_697_408_000_000),
        ("1y-ago", 1_668_464_000_000),
        ("2013/01/01", 1_356_994_800_000),
        ("2013/01/01-12:30", 1_357_039_800_000),
        ("2013/01/01 12:30:15", 1_357_039_815_000),
        // The clocks went from 2 to 3 at night, and from 3 back to 2.
        ("2013/03/31-02:30", 1_364_693_400_000),
        ("2013/10/27-02:30", 1_382_837_400_000),
    ] {
        assert_eq!(read(text), Ok(expected), "{text}");
    }
    for text in [
        "",
        "-5",
        "abc",
        "2013-01-01T00:00:00Z",
        "2013/1/1",
        "2013/13/45",
        "2013/01/01x12:30",
        "12:30",
        "135699840.5",
        "1356998400.1234",
        "5-ago",
        "0s-ago",
        "x-ago",
        "99999999999999999999",
        "é/é/é/é/é",
    ] {
        assert!(read(text).is_err(), "{text}: {:?}", read(text));
    }
}

#[test]
fn durations_are_leading_digits_and_a_last_letter() {
    for (text, count, unit, millis) in [
        ("500ms", 500, CalendarUnit::Millisecond, 500),
        ("1m", 1, CalendarUnit::Minute, 60_000),
        ("1M", 1, CalendarUnit::Minute, 60_000),
        ("1.5m", 1, CalendarUnit::Minute, 60_000),
        ("3h", 3, CalendarUnit::Hour, 10_800_000),
        ("1n", 1, CalendarUnit::Month, 2_592_000_000),
        ("1y", 1, CalendarUnit::Year, 31_536_000_000),
    ] {
        assert_eq!(time::duration(text), Ok(time::Duration { count, unit, millis }), "{text}");
    }
    for (text, expected) in [
        ("60", "Invalid duration, must have an integer and unit: 60"),
        ("", "Invalid duration, must have an integer and unit: "),
        ("m", "Invalid duration (number): m"),
        ("0s", "Zero or negative duration: 0s"),
        ("5x", "Invalid duration (suffix): 5x"),
        ("9223372036854775807y", "Invalid duration (too long): 9223372036854775807y"),
    ] {
        assert_eq!(time::duration(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn parameters_are_decoded() {
    let params = crate::http::Params::parse("m=a%7Bb%3D%2A%7D&m=x+y&flag&bad=%zz%4&é=%C3%A9&&cut=%E2");
    assert_eq!(params.all("m").collect::<Vec<_>>(), ["a{b=*}", "x y"]);
    assert_eq!(params.get("m"), Some("x y"));
    assert_eq!(params.get("flag"), Some(""));
    assert_eq!(params.get("bad"), Some("%zz%4"));
    assert_eq!(params.get("é"), Some("é"));
    assert_eq!(params.get("cut"), Some("\u{FFFD}"));
    assert!(!params.has("none"));
}

#[test]
fn strings_are_escaped() {
    let mut out = Vec::new();
    super::json::string(&mut out, "a\"b\\c\n\u{1}\u{7f}é");
    assert_eq!(String::from_utf8(out).unwrap(), r#""a\"b\\c\n\u0001\u007fé""#);
}

#[tokio::test]
async fn the_newest_sample_of_each_series_is_had_from_memory_however_old_it_is() {
    let server = server();
    let point = |host: &str, at: u32, value: &str| {
        format!(r#"{{"metric":"m","timestamp":{at},"value":{value},"tags":{{"host":"{host}"}}}}"#)
    };
    let points = [point("a", 1_356_998_400, "1"), point("a", 1_356_998_399, "7"), point("b", 1_356_998_401, "2.5")];
    assert_eq!(server.post("/api/put", &format!("[{}]", points.join(","))).await, "204");
    let a = r#"{"metric":"m","tags":{"host":"a"},"timestamp":1356998400000,"value":"1","tsuid":"000001000001000001"}"#;
    let b =
        r#"{"metric":"m","tags":{"host":"b"},"timestamp":1356998401000,"value":"2.5","tsuid":"000001000001000002"}"#;
    let bare = r#"{"timestamp":1356998401000,"value":"2.5","tsuid":"000001000001000002"}"#;
    for (question, expected) in [
        ("timeseries=m&resolve", format!("200 [{a},{b}]")),
        ("timeseries=m{host=*}&resolve=true", format!("200 [{a},{b}]")),
        ("timeseries=m{host=b}", format!("200 [{bare}]")),
        ("timeseries=m{host=b}&timeseries=m{host=a}&resolve", format!("200 [{b},{a}]")),
        ("tsuids=000001000001000002", format!("200 [{bare}]")),
        ("tsuids=000009000001000002", "200 []".to_owned()),
        // The samples are eleven years old.
        ("timeseries=m&back_scan=24", "200 []".to_owned()),
        ("timeseries=m&back_scan=200000&resolve", format!("200 [{a},{b}]")),
        // What telem itself defines is known before it has a sample.
        ("timeseries=node_load1", "200 []".to_owned()),
    ] {
        let path = format!("/api/query/last?{}", question.replace('{', "%7B").replace('}', "%7D"));
        assert_eq!(server.get(&path).await, expected, "{question}");
    }
    let body = r#"{"queries":[{"metric":"m","tags":{"host":"b"}}],"resolveNames":true,"backScan":0}"#;
    assert_eq!(server.post("/api/query/last", body).await, format!("200 [{b}]"));
}

#[tokio::test]
async fn a_question_for_newest_samples_that_makes_no_sense_is_refused_with_the_reason() {
    let server = server();
    server.post("/api/put", GOOD).await;
    for (question, expected) in [
        ("", "Missing sub queries"),
        ("timeseries=nope", "No such name for 'metrics': 'nope'"),
        ("timeseries=m%7Bhost=x%7D", "No such name for 'tagv': 'x'"),
        ("timeseries=m%7Bhost=a", "Missing '}' at the end of: m{host=a"),
        ("timeseries=m%7Bhost%7D", "invalid tag: host"),
        ("timeseries=m&back_scan=x", "Unable to parse back_scan parameter"),
        ("timeseries=m&back_scan=", "Unable to parse back_scan parameter"),
        ("timeseries=", "Metric string was empty"),
        ("tsuids=zz&exact", "begin 0, end 6, length 2"),
        ("tsuids=00000G000001000002", "holds more than hexadecimal digits"),
    ] {
        let answer = server.get(&format!("/api/query/last?{question}")).await;
        assert!(answer.starts_with("400 ") && answer.contains(expected), "{question}: {answer}");
    }
    let exact = server.get("/api/query/last?timeseries=m&back_scan=24&exact=true").await;
    assert!(exact.contains("Tags cannot be null or empty"), "{exact}");
    // Without metadata tables the original knows nothing, unless it is told how far to look back.
    assert_eq!(server.get("/api/query/last?timeseries=m&exact=true").await, "200 []");
}

#[tokio::test]
async fn an_annotation_is_merged_by_post_replaced_by_put_and_gone_when_deleted() {
    let server = server();
    let path = "/api/annotation";
    let first = r#"{"startTime":1356998460,"description":"d","custom":{"owner":"x"}}"#;
    let stored = |description: &str, notes: &str, custom: &str| {
        format!(
            r#"200 {{"tsuid":"","description":"{description}","notes":"{notes}"{custom},"startTime":1356998460,"endTime":0}}"#
        )
    };
    let custom = r#","custom":{"owner":"x"}"#;
    assert_eq!(server.post(path, first).await, stored("d", "", custom));
    assert_eq!(server.post(path, r#"{"startTime":1356998460,"notes":"n"}"#).await, stored("d", "n", custom));
    assert_eq!(server.post(path, r#"{"startTime":1356998460}"#).await, "304");
    assert_eq!(server.get("/api/annotation?start_time=1356998460").await, stored("d", "n", custom));
    assert_eq!(server.line("PUT", path, r#"{"startTime":1356998460,"notes":"m"}"#).await, stored("", "m", ""));
    assert_eq!(server.line("DELETE", "/api/annotation?start_time=1356998460", "").await, "204");
    // As little is to be replaced as is to be merged.
    assert_eq!(server.line("PUT", path, r#"{"startTime":1356998460,"notes":"","endTime":0}"#).await, "304");
    let missing = r#"404 {"error":{"code":404,"message":"Unable to locate annotation in storage"}}"#;
    assert_eq!(server.get("/api/annotation?start_time=1356998460").await, missing);
    let unset = r#"400 {"error":{"code":400,"message":"The start timestamp has not been set","details":"The start timestamp has not been set"}}"#;
    assert_eq!(server.post(path, r#"{"description":"x"}"#).await, unset);
    for (method, path, body, text) in [
        ("GET", "/api/annotation", "", "Missing start time"),
        ("POST", "/api/annotation?description=x", "", "Missing start time"),
        ("GET", "/api/annotation?start_time=soon", "", "Invalid time: soon"),
        ("DELETE", "/api/annotation", r#"{"tsuid":"000001000001000001"}"#, "Unable to delete Annotation information"),
        ("POST", "/api/annotation", "{", "Unable to parse the given JSON"),
        ("POST", "/api/annotation", "[]", "Unable to parse the given JSON"),
        ("POST", "/api/annotation/bulk", "{}", "Unable to parse the given JSON"),
        ("POST", "/api/annotation/bulk", "", "Missing message content"),
        ("PUT", "/api/annotation", r#"{"startTime":5,"tsuid":"zz"}"#, "holds more than hexadecimal digits"),
    ] {
        let answer = server.line(method, path, body).await;
        assert!(answer.starts_with("400 ") && answer.contains(text), "{method} {path} {body}: {answer}");
    }
}

#[tokio::test]
async fn annotations_come_and_go_in_bulk() {
    let server = server();
    let note = |start: u32| format!(r#"{{"startTime":{start},"description":"b"}}"#);
    let shown = |start: u32| format!(r#"{{"tsuid":"","description":"b","notes":"","startTime":{start},"endTime":0}}"#);
    let body = format!("[{},{}]", note(1_356_998_430), note(1_356_998_431));
    let expected = format!("200 [{},{}]", shown(1_356_998_430), shown(1_356_998_431));
    assert_eq!(server.post("/api/annotation/bulk", &body).await, expected);
    let range = r#"{"startTime":1356998429,"endTime":1356998430,"global":true}"#;
    let gone =
        r#"200 {"tsuids":null,"global":true,"startTime":1356998429000,"endTime":1356998430000,"totalDeleted":1}"#;
    assert_eq!(server.line("DELETE", "/api/annotation/bulk", range).await, gone);
    assert_eq!(server.get("/api/annotation?start_time=1356998431").await, format!("200 {}", shown(1_356_998_431)));
    let all = server.get("/api/annotations?start_time=1356998400&end_time=1356998500").await;
    assert_eq!(all, format!("200 [{}]", shown(1_356_998_431)));
    assert_eq!(server.get("/api/annotations?start_time=1356998432").await, "200 []");
    // One that says nothing is no change.
    let body = format!("[{{\"startTime\":7}},{}] and more", note(8));
    assert_eq!(server.post("/api/annotation/bulk", &body).await, format!("200 [{}]", shown(8)));
    // Nothing goes by accident.
    for (body, expected) in [
        (r#"{"endTime":1356998430,"global":true}"#, "Missing the start time value"),
        (r#"{"startTime":1}"#, "Missing the TSUIDs or global annotations flag"),
    ] {
        let answer = server.line("DELETE", "/api/annotation/bulk", body).await;
        assert!(answer.starts_with("400 ") && answer.contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn a_database_that_is_served_read_only_takes_no_annotation() {
    let server = server_with(Access::ReadOnly, WriterOptions::default());
    let answer = server.post("/api/annotation", r#"{"startTime":1356998460,"description":"d"}"#).await;
    assert!(answer.starts_with("403 ") && answer.contains("read-only"), "{answer}");
}

#[tokio::test]
async fn pages_of_other_origins_ask_only_where_they_are_named() {
    let ask = async |server: &Server, method: &str, origin: &str| {
        let request = Request::builder().method(method).uri("/api/aggregators").header("Origin", origin);
        let request = request.body(Body::empty()).unwrap();
        let response = server.router().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let of = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let allowed = (of("access-control-allow-origin"), of("access-control-allow-methods"));
        (head.status.as_u16(), allowed, String::from_utf8(body.to_vec()).unwrap())
    };
    let none = (String::new(), String::new());
    let mut server = server();
    let (status, allowed, _) = ask(&server, "GET", "http://a.example").await;
    assert_eq!((status, &allowed), (200, &none), "nobody is named: nothing is looked at");
    assert_eq!(ask(&server, "OPTIONS", "http://a.example").await.0, 405);

    Arc::get_mut(&mut server.state).unwrap().cors = Cors::parse("http://a.example").unwrap();
    let some = ("http://a.example".to_owned(), "GET, POST, PUT, DELETE".to_owned());
    let (status, allowed, body) = ask(&server, "OPTIONS", "http://a.example").await;
    assert_eq!((status, &allowed, body.as_str()), (200, &some, ""));
    let (status, allowed, body) = ask(&server, "GET", "http://a.example").await;
    assert_eq!((status, &allowed), (200, &some));
    assert!(body.starts_with('['), "{body}");
    assert_eq!(ask(&server, "PUT", "http://a.example").await.1, some, "an error is to be read as well");
    for method in ["GET", "OPTIONS"] {
        let (status, allowed, body) = ask(&server, method, "http://b.example").await;
        assert_eq!((status, &allowed), (200, &none));
        assert_eq!(
            body,
            r#"{"error":{"code":200,"message":"CORS domain not allowed","details":"The domain [http://b.example] is not permitted access"}}"#
        );
    }
    assert_eq!(ask(&server, "OPTIONS", "").await.0, 405);
    assert!(server.get("/api/config").await.contains(r#""tsd.http.request.cors_domains":"http://a.example""#));
}
