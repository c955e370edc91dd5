//! What every endpoint shares: errors as JSON, bodies within limits.

use std::io::Write;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::body::{self, BodyBudget};
use crate::state::ServerLimits;

fn limits(body_bytes_max: usize) -> ServerLimits {
    ServerLimits { body_bytes_max, ..ServerLimits::default() }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn encoded(encoding: &str, body: Vec<u8>) -> Request {
    Request::post("/").header("content-encoding", encoding).body(Body::from(body)).unwrap()
}

async fn refusal(request: Request, limits: &ServerLimits) -> (StatusCode, String) {
    let error = body::read(request, limits).await.unwrap_err();
    (error.status, error.message)
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_and_not_one_byte_further() {
    let at_max = body::read(Request::new(Body::from(vec![7; 100])), &limits(100)).await.unwrap();
    assert_eq!(at_max, vec![7; 100]);
    let (status, message) = refusal(Request::new(Body::from(vec![7; 101])), &limits(100)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(message.contains("larger than 100 bytes as sent"), "{message}");
}

#[tokio::test]
async fn a_gzip_body_is_decompressed_up_to_the_limit_and_not_one_byte_further() {
    let read = body::read(encoded("gzip", gzip(&[7; 1000])), &limits(1000)).await.unwrap();
    assert_eq!(read, vec![7; 1000]);
    let bomb = gzip(&vec![0; 10 << 20]);
    assert!(bomb.len() < 20_000, "as sent it is small");
    let (status, message) = refusal(encoded("gzip", bomb), &limits(1 << 20)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(message.contains("decompressed"), "{message}");
}

#[tokio::test]
async fn gzip_members_that_follow_one_another_are_one_body() {
    let two = [gzip(b"one,"), gzip(b"two")].concat();
    assert_eq!(body::read(encoded("GZIP", two), &limits(100)).await.unwrap(), "one,two");
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_is_refused() {
    let cut = gzip(b"hello hello hello")[..12].to_vec();
    for (body, expected) in
        [(encoded("gzip", b"plain".to_vec()), 400), (encoded("gzip", cut), 400), (encoded("br", Vec::new()), 415)]
    {
        let (status, message) = refusal(body, &limits(100)).await;
        assert_eq!(status.as_u16(), expected, "{message}");
    }
}

#[tokio::test]
async fn bodies_share_a_budget_that_is_given_back_when_they_are_dropped() {
    let limits = ServerLimits { bodies: BodyBudget::new(128 << 10), ..ServerLimits::default() };
    let request = || Request::new(Body::from(vec![1; 100 << 10]));
    let first = body::read(request(), &limits).await.unwrap();
    let (status, _) = refusal(request(), &limits).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    assert!(body::read(request(), &limits).await.is_ok());
}
