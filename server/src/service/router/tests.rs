//! What all paths share, whichever handler answers them.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use telem_engine::Value;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;

use super::ProtocolOptions;
use crate::info::Info;
use crate::protocols::info;
use crate::testing::{Served, first_column};

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_told_so_in_json() {
    let served = Served::new();
    let answer = served.get("/nothing/here").await;
    assert_eq!((answer.status, answer.header("content-type")), (404, "application/json; charset=UTF-8"));
    assert_eq!(answer.text(), r#"{"error":{"code":404,"message":"nothing is served at '/nothing/here'"}}"#);
    let answer = served.post("/api/v1/write", "remote write").await;
    assert_eq!(answer.status, 404);
    assert!(
        answer.text().contains("takes no remote write of Prometheus: it polls exporters itself"),
        "{}",
        answer.text()
    );
    let answer = served.get("/api/sql").await;
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    assert!(answer.text().contains("does not answer to GET; the header Allow says to what"), "{}", answer.text());
}

#[tokio::test]
async fn the_page_of_storage_lists_every_part_of_memory() {
    let served = Served::new();
    let protocols = super::protocols(&served.state, &ProtocolOptions::default());
    let of_protocols = protocols.iter().flat_map(|protocol| protocol.held()).map(|((name, _), _)| name);
    let parts: BTreeSet<String> = info::parts(&served.state).chain(of_protocols).map(str::to_owned).collect();
    assert_eq!(BTreeSet::from_iter(first_column("storage.md", "| part |")), parts);
}

#[tokio::test]
async fn the_server_says_what_is_in_its_database() {
    let served = Served::new();
    served.store("loss", &[("rank", "0")], &[(1_767_225_600, Value::Int(3)), (1_767_225_601, Value::Float(0.5))]);
    let info: Info = serde_json::from_slice(&served.get("/api/info").await.body).unwrap();
    assert_eq!((info.node.as_str(), info.metrics, info.series, info.samples), ("n1", 1, 1, 2));
    assert_eq!(info.last.as_deref(), Some("2026-01-01T00:00:01Z"));
    assert_eq!(info.level, Some(1));
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_own_request_only() {
    async fn panics() -> &'static str {
        panic!("of a test")
    }
    let router = Router::new().route("/x", get(panics)).layer(CatchPanicLayer::custom(super::panicked));
    let ask = || router.clone().oneshot(Request::get("/x").body(Body::empty()).unwrap());
    assert_eq!(ask().await.unwrap().status(), 500);
    assert_eq!(ask().await.unwrap().status(), 500);
}
