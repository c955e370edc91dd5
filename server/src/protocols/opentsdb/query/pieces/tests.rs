use std::io::Read;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use telem_engine::Value;
use telem_query::{Queries, QueryOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::ServiceExt;

use super::*;
use crate::answers::AnswerBudget;
use crate::service::router::{self, ProtocolOptions};
use crate::testing::Served;

/// More points than are written at once.
const POINTS: i64 = 50_000;
/// Longer than any test runs.
const PATIENCE: Duration = Duration::from_secs(60);
const ALL: &str = "/api/query?start=1&end=100000";

/// A database in which every answer of several sub-queries begins with the first.
fn served(change: impl FnOnce(&mut crate::state::State)) -> Served {
    let served = Served::with(|state| {
        state.limits.answer_values_waiting = 0;
        change(state);
    });
    let points = |to: i64, of: &dyn Fn(i64) -> Value| (1..=to).map(|at| (at, of(at))).collect::<Vec<_>>();
    served.store("large", &[("host", "a")], &points(POINTS, &Value::Int));
    served.store("small", &[("host", "a")], &points(3, &Value::Int));
    for host in ["a", "b"] {
        served.store("infinite", &[("host", host)], &[(1, Value::Float(f64::MAX))]);
    }
    served
}

async fn begin(served: &Served, path: &str, encoding: &str) -> Response {
    let request = Request::get(path).header("accept-encoding", encoding).body(Body::empty()).unwrap();
    router::services(&served.state, &ProtocolOptions::default(), Router::new()).http.oneshot(request).await.unwrap()
}

/// What came before the answer was cut off.
async fn cut(mut body: Body) -> String {
    let mut text = Vec::new();
    loop {
        match body.frame().await.expect("it is cut off before it ends") {
            Ok(frame) => text.extend_from_slice(&frame.into_data().unwrap()),
            Err(_) => return String::from_utf8(text).unwrap(),
        }
    }
}

fn json(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap()
}

#[tokio::test]
async fn a_small_answer_says_its_length_and_a_large_one_comes_in_pieces() {
    let served = served(|_| ());
    let small = begin(&served, &format!("{ALL}&m=none:small"), "identity").await;
    assert_eq!(small.body().size_hint().exact(), Some(85));

    let mut large = begin(&served, &format!("{ALL}&m=none:large"), "identity").await;
    assert_eq!((large.status().as_u16(), large.body().size_hint().exact()), (200, None));
    assert_eq!(large.headers()["content-type"], "application/json; charset=UTF-8");
    let mut sizes = Vec::new();
    let mut text = Vec::new();
    while let Some(frame) = large.body_mut().frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        sizes.push(piece.len());
        text.extend_from_slice(&piece);
    }
    assert!(sizes.len() > 3 && sizes.iter().all(|size| *size < 2 * PIECE_BYTES), "{sizes:?}");
    let dps = &json(&text)[0]["dps"];
    assert_eq!(dps.as_object().unwrap().len(), usize::try_from(POINTS).unwrap());
    assert_eq!((&dps["1"], &dps["50000"]), (&1.into(), &50_000.into()));
}

#[tokio::test]
async fn several_sub_queries_are_one_answer_compressed_or_not() {
    let served = served(|_| ());
    let path = format!("{ALL}&m=none:small&m=none:large&m=sum:small");
    let plain = begin(&served, &path, "identity").await.into_body().collect().await.unwrap().to_bytes();
    let answers = json(&plain);
    let lens: Vec<_> =
        answers.as_array().unwrap().iter().map(|group| group["dps"].as_object().unwrap().len()).collect();
    assert_eq!(lens, [3, usize::try_from(POINTS).unwrap(), 3]);

    let packed = begin(&served, &path, "gzip").await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let packed = packed.into_body().collect().await.unwrap().to_bytes();
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain);
    assert!(packed.len() < plain.len() / 3, "{} of {} bytes", packed.len(), plain.len());
}

#[tokio::test]
async fn an_error_before_the_first_byte_has_its_status() {
    let served = served(|_| ());
    for (m, status, message) in [
        ("m=sum:infinite&m=none:large", 400, "Got Infinity"),
        // It is known of every name before the first answer is sent.
        ("m=none:large&m=none:nobody", 400, "No such name for 'metrics': 'nobody'"),
    ] {
        let answer = begin(&served, &format!("{ALL}&{m}"), "identity").await;
        assert_eq!(answer.status().as_u16(), status, "{m}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(json(&text)["error"]["message"].as_str().unwrap().starts_with(message), "{m}: {text:?}");
    }
}

#[tokio::test]
async fn an_error_after_the_first_byte_cuts_the_answer_off() {
    let served = served(|state| {
        let options = QueryOptions { answer_values_max: 60_000, ..state.queries.options().clone() };
        state.queries = Queries::new(state.db.clone(), options).unwrap();
    });
    for m in ["m=none:large&m=sum:infinite", "m=none:large&m=sum:large"] {
        let answer = begin(&served, &format!("{ALL}&{m}"), "identity").await;
        assert_eq!(answer.status().as_u16(), 200, "{m}");
        let text = cut(answer.into_body()).await;
        assert!(text.starts_with(r#"[{"metric":"large""#), "{m}: {}", &text[..40]);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "{m}: it does not look whole");
    }
}

#[tokio::test]
async fn a_large_answer_holds_its_memory_as_points_until_they_are_read_or_the_client_is_gone() {
    let budget = AnswerBudget::new(2 << 20);
    let served = served(|state| state.limits.answers = budget.clone());
    let ask = || begin(&served, "/api/query?start=1&end=100000&m=none:large", "identity");
    let unread = ask().await;
    assert_eq!(unread.status().as_u16(), 200);
    assert_eq!(ask().await.status().as_u16(), 503, "two of them are too many");
    drop(unread);
    let read = ask().await;
    assert_eq!(read.status().as_u16(), 200);
    read.into_body().collect().await.unwrap();
    assert!(budget.start().grow(2 << 20).is_ok(), "nothing is held any more");
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_not_computed_further() {
    let served = served(|_| ());
    let admitted = || served.state.queries.stats().admitted;
    let mut answer = begin(&served, &format!("{ALL}&m=none:large&m=sum:large&m=max:large"), "identity").await;
    answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(admitted(), 1, "the second waits until the first is nearly read");
    drop(answer);
    assert_eq!((admitted(), served.state.queries.stats().running), (1, 0));
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_ends_the_work() {
    let budget = AnswerBudget::new(2 << 20);
    let served = served(|state| state.limits.answers = budget.clone());
    let router = router::services(&served.state, &ProtocolOptions::default(), Router::new()).http;
    for _ in 0..3 {
        // The client's side of a connection that holds few bytes on their way.
        let (mut client, server) = tokio::io::duplex(4 << 10);
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let client = async move {
            client.write_all(format!("GET {ALL}&m=none:large HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
            let mut begun = [0; 1 << 10];
            client.read_exact(&mut begun).await.unwrap();
            assert!(begun.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&begun));
        };
        let (ended, ()) = tokio::join!(connection, client);
        assert!(ended.is_err(), "it was cut off");
        // A piece that was being written is finished on its own thread.
        let given_back = async {
            while budget.start().grow(2 << 20).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, given_back).await.expect("nothing is held any more");
    }
}
