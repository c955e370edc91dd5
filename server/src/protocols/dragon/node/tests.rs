//! Dragon's node server, request by request, as its class and its own tests speak to it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use serde_json::{Value as Json, json};
use telem_engine::{SeriesId, TimeRange};
use telem_ingest::writer::{Writer, WriterOptions};
use tower::ServiceExt;

use super::{BODY_BYTES_MAX, ERRORS_LISTED_MAX, NodeServer};
use crate::testing::Served;

struct Node {
    served: Served,
    server: Arc<NodeServer>,
    router: Router,
}

impl Node {
    fn new() -> Self {
        Self::over(Served::new())
    }

    fn over(served: Served) -> Self {
        let server = Arc::new(NodeServer::new(Arc::clone(&served.state)));
        Self { router: Arc::clone(&server).router(), served, server }
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, Json) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let json = response.headers()["content-type"].to_str().unwrap().starts_with("application/json");
        assert!(json, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Json) {
        self.ask("GET", path, Body::empty()).await
    }

    /// The answer to points, which is always 201.
    async fn post(&self, body: &Json) -> Json {
        let (status, answer) = self.ask("POST", "/api/metrics", body.to_string()).await;
        assert_eq!(status, 201, "{answer}");
        answer
    }

    /// Every sample, as `metric{tags} micros value`, sorted.
    fn stored(&self) -> Vec<String> {
        let db = &self.served.state.db;
        let ids = (0..db.index().len() as u32).map(SeriesId).collect();
        let mut samples = Vec::new();
        for points in db.snapshot().points(ids, TimeRange::ALL) {
            let points = points.unwrap();
            let key = db.index().key(points.series).unwrap();
            for (at, time) in points.times.iter().enumerate() {
                samples.push(format!("{key} {} {}", time.micros(), points.values.get(at)));
            }
        }
        samples.sort();
        samples
    }
}

fn all_well(points: usize) -> Json {
    json!({"success": points, "failed": 0, "errors": []})
}

/// What the tests of Dragon post: a value of each metric of its collector.
fn five() -> Json {
    json!([
        {"metric": "load_average", "value": 0.58}, {"metric": "used_RAM", "value": 9.3},
        {"metric": "cpu_percent", "value": 0.8}, {"metric": "num_running_processes", "value": 21},
        {"metric": "def_pool_utilization", "value": 0.003910064}
    ])
}

#[tokio::test]
async fn dragons_own_questions_are_answered_in_its_words() {
    let node = Node::new();
    assert_eq!(node.get("/api/ready").await, (200, json!({"is_ready": true})));
    let with_time = json!({"dps": five(), "timestamp": 1_733_466_126});
    assert_eq!(node.post(&with_time).await, all_well(5));
    assert_eq!(node.post(&json!({"dps": five()})).await, all_well(5));
    let one_more = json!({"dps": [{"metric": "new_metric", "value": 123.456}], "timestamp": 1_733_466_126});
    assert_eq!(node.post(&one_more).await, all_well(1));
    let metrics = node.served.state.db.snapshot().metrics();
    assert!(metrics.len() == 6 && metrics.iter().any(|metric| &**metric == "new_metric"));
    assert_eq!(node.stored().len(), 11);
    assert!(node.stored().contains(&"new_metric{host=n1} 1733466126000000 123.456".to_owned()));
}

#[tokio::test]
async fn nothing_that_dragon_says_at_its_end_ends_or_removes_anything() {
    let node = Node::new();
    for second in 1_722_010_526..=1_722_010_528_i64 {
        node.post(&json!({"dps": five(), "timestamp": second})).await;
    }
    let cleanup = node.ask("POST", "/api/tsdb_cleanup", json!({"start_time": 1_722_010_527}).to_string()).await;
    assert_eq!(cleanup, (201, all_well(0)));
    assert_eq!(node.stored().len(), 15, "what is old goes by --retention-age alone");
    let shutdown = json!({"success": 1, "failed": 0, "errors": []});
    assert_eq!(node.get("/api/set_shutdown").await, (200, shutdown));
    assert_eq!(node.get("/api/telemetry_shutdown").await, (200, json!({"shutdown": true})));
    assert_eq!(node.get("/api/ready").await.0, 200);
    assert_eq!(node.post(&json!({"dps": five(), "timestamp": 1_722_010_529})).await, all_well(5));
}

#[tokio::test]
async fn points_of_one_series_and_one_second_are_all_kept_in_their_order() {
    let node = Node::new();
    let point = |value: i64| json!({"dps": [{"metric": "loss", "value": value}], "timestamp": 1_733_466_126});
    for value in 0..3 {
        node.post(&point(value)).await;
    }
    let both = json!([{"metric": "loss", "value": 3}, {"metric": "loss", "value": 4}]);
    node.post(&json!({"dps": both, "timestamp": 1_733_466_126})).await;
    node.post(&json!({"dps": both, "timestamp": 1_733_466_126.5})).await;
    let expected = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (500_000, 4)];
    let expected =
        expected.map(|(micros, value)| format!("loss{{host=n1}} {} {value}", 1_733_466_126_000_000_i64 + micros));
    assert_eq!(node.stored(), expected, "a moment that the caller gave is kept as it is");
    node.post(&json!({"dps": both})).await;
    assert_eq!(node.stored().len(), expected.len() + 2, "without a time both are kept too");
}

#[tokio::test]
async fn a_server_that_starts_in_the_middle_of_a_second_replaces_nothing_of_it() {
    let node = Node::new();
    let point = |value: i64| json!({"dps": [{"metric": "loss", "value": value}], "timestamp": 1_733_466_126});
    node.post(&point(0)).await;
    node.post(&point(1)).await;
    let node = Node::over(node.served);
    node.post(&point(2)).await;
    let micros = |micros: i64| format!("loss{{host=n1}} {} {micros}", 1_733_466_126_000_000_i64 + micros);
    assert_eq!(node.stored(), [0, 1, 2].map(micros));
}

#[tokio::test]
async fn sixty_four_clients_lose_nothing_of_a_second() {
    let node = Arc::new(Node::new());
    let clients = (0..64).map(|client: i64| {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            for nth in 0..20 {
                let dps = json!([{"metric": "loss", "value": client * 100 + nth}]);
                assert_eq!(node.post(&json!({"dps": dps, "timestamp": 1_733_466_126 + nth % 2})).await, all_well(1));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let stored = node.stored();
    assert_eq!(stored.len(), 64 * 20);
    let values: std::collections::BTreeSet<&str> = stored.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(values.len(), 64 * 20, "each value once");
}

#[tokio::test]
async fn names_that_put_refuses_and_numbers_as_tags_stay_as_they_are() {
    let node = Node::new();
    let dps = json!([
        {"metric": "gpu util %", "value": 1, "tags": {"gpu id": "cuda:0"}},
        {"metric": "m", "value": 2, "tags": {"rank": 3, "share": 0.5, "on": true, "gone": null}},
        {"metric": "m", "value": 3, "tags": {"host": "elsewhere"}},
        {"metric": "m", "value": 4, "tags": null},
    ]);
    assert_eq!(node.post(&json!({"dps": dps, "timestamp": 1})).await, all_well(4));
    let expected = [
        "gpu util %{gpu id=cuda:0,host=n1} 1000000 1",
        "m{host=elsewhere} 1000000 3",
        "m{host=n1,on=true,rank=3,share=0.5} 1000000 2",
        "m{host=n1} 1000000 4",
    ];
    assert_eq!(node.stored(), expected);
}

#[tokio::test]
async fn what_is_no_number_is_refused_with_a_reason_and_the_rest_is_kept() {
    let node = Node::new();
    let dps = json!([
        {"metric": "a", "value": true}, {"metric": "b", "value": " 1.5 "}, {"metric": "c", "value": null},
        {"metric": "d", "value": "abc"}, {"metric": "e"}, {"value": 1}, 7, {"metric": "", "value": 1},
        {"metric": "f", "value": false}, {"metric": "g", "value": 1, "tags": {"": "x"}},
    ]);
    let answer = node.post(&json!({"dps": dps, "timestamp": 1})).await;
    assert_eq!((&answer["success"], &answer["failed"]), (&json!(3), &json!(7)));
    let errors: Vec<&str> = answer["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap()).collect();
    assert_eq!(
        errors[..5],
        [
            "the value of c is null: expected a number",
            "the value of d is \"abc\": expected a number",
            "'value'",
            "'metric'",
            "a point is 7: expected an object with 'metric' and 'value'",
        ]
    );
    assert!(errors[5].starts_with(": ") && errors[6].starts_with("g: "), "{errors:?}");
    assert_eq!(node.stored(), ["a{host=n1} 1000000 1", "b{host=n1} 1000000 1.5", "f{host=n1} 1000000 0"]);
    assert_eq!(node.served.state.writer.as_ref().unwrap().stats().rejected, 7, "telem counts them too");
}

#[tokio::test]
async fn a_missing_value_is_told_as_dragon_tells_it() {
    let answer = Node::new().post(&json!({"dps": [{"metric": "m"}]})).await;
    assert_eq!(answer, json!({"success": 0, "failed": 1, "errors": ["'value'"]}));
}

#[tokio::test]
async fn a_time_far_ahead_is_refused_and_an_old_or_negative_one_is_kept() {
    let node = Node::new();
    let at = |time: Json| json!({"dps": [{"metric": "m", "value": 1}], "timestamp": time});
    let now = node.served.state.clock.now().seconds();
    let answer = node.post(&at(json!(now + 7_200))).await;
    assert_eq!(answer["failed"], 1);
    assert!(answer["errors"][0].as_str().unwrap().contains("ahead of this machine's clock"), "{answer}");
    for time in [json!(-5), json!(1), json!(1_733_466_126_250_i64)] {
        assert_eq!(node.post(&at(time)).await, all_well(1));
    }
    let expected = ["m{host=n1} -5000000 1", "m{host=n1} 1000000 1", "m{host=n1} 1733466126250000 1"];
    assert_eq!(node.stored(), expected);
}

#[tokio::test]
async fn a_body_of_which_nothing_can_be_used_is_answered_201_too() {
    let node = Node::new();
    for (body, why) in [
        ("{}", "'dps'"),
        ("hello", "the body is no JSON object of the form"),
        ("", "the body is no JSON object of the form"),
        ("{\"dps\": [], \"timestamp\": \"soon\"}", "the timestamp is \"soon\""),
    ] {
        let (status, answer) = node.ask("POST", "/api/metrics", body).await;
        assert_eq!((status, &answer["success"], &answer["failed"]), (201, &json!(0), &json!(1)), "{body}");
        assert!(answer["errors"][0].as_str().unwrap().starts_with(why), "{body}: {answer}");
    }
    assert_eq!(node.post(&json!({"dps": []})).await, all_well(0));
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_limit_and_a_list_of_errors_is_cut() {
    let served = Served::with(|state| state.limits.bodies = crate::http::body::BodyLimits::default());
    let node = Node::over(served);
    let mut body = json!({"dps": [{"metric": "m", "value": 1}]}).to_string();
    body.push_str(&" ".repeat(BODY_BYTES_MAX - body.len()));
    assert_eq!(node.ask("POST", "/api/metrics", body.clone()).await, (201, all_well(1)));
    body.push(' ');
    let (status, answer) = node.ask("POST", "/api/metrics", body).await;
    assert_eq!((status, &answer["failed"]), (201, &json!(1)));
    assert!(answer["errors"][0].as_str().unwrap().contains("larger than 4194304 bytes"), "{answer}");
    let bad = vec![json!({"metric": "m"}); ERRORS_LISTED_MAX + 1];
    let answer = node.post(&json!({"dps": bad})).await;
    assert_eq!(answer["failed"], ERRORS_LISTED_MAX + 1);
    assert_eq!(answer["errors"].as_array().unwrap().len(), ERRORS_LISTED_MAX);
}

#[tokio::test]
async fn what_is_saved_already_and_what_level_0_takes_is_not_stored() {
    let replay = Node::over(Served::with(|state| state.writer = None));
    let answer = replay.post(&json!({"dps": five()})).await;
    assert!(answer["failed"] == 1 && answer["errors"][0].as_str().unwrap().contains("read-only"), "{answer}");
    assert_eq!(replay.get("/api/ready").await.0, 200);
    let level_0 = Node::over(Served::with(|state| state.level = 0));
    assert_eq!(level_0.post(&json!({"dps": five()})).await, all_well(5));
    assert_eq!(level_0.stored().len(), 0);
}

#[tokio::test]
async fn a_full_queue_is_waited_for_because_nobody_sends_twice() {
    let options = WriterOptions { queue_batches_max: 1, ..WriterOptions::default() };
    let served = Served::with(|state| {
        let writer = Writer::start(state.db.clone(), options).unwrap();
        // Its end would close the database.
        std::mem::forget(state.writer.replace(writer));
    });
    let node = Arc::new(Node::over(served));
    let clients = (0..32).map(|client: i64| {
        let node = Arc::clone(&node);
        tokio::spawn(
            async move { node.post(&json!({"dps": [{"metric": "m", "value": client}], "timestamp": 10})).await },
        )
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), all_well(1));
    }
    assert_eq!(node.stored().len(), 32);
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_and_told_once() {
    let node = Node::new();
    let (status, answer) = node.get("/api/query").await;
    assert!(status == 404 && answer["error"]["message"].as_str().unwrap().contains("/api/metrics"), "{answer}");
    assert_eq!(node.get("/api/metrics").await.0, 405);
    let is_new = |kind: &str| node.server.refusals.tell(kind, "a reason");
    assert!(!is_new("path /api/query") && !is_new("method GET /api/metrics") && is_new("path /other"));
}
