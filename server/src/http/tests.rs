//! The parts that every endpoint shares: errors as JSON, bodies within limits.

use std::io::Write;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use flate2::Compression;
use flate2::write::GzEncoder;
use telem_engine::ErrorKind;

use super::ApiError;
use super::body::{self, BodyBudget, BodyLimits, LargeBodies};

fn limits(bytes_max: usize) -> BodyLimits {
    BodyLimits { bytes_max, ..BodyLimits::default() }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn encoded(encoding: &str, body: Vec<u8>) -> Request {
    Request::post("/").header("content-encoding", encoding).body(Body::from(body)).unwrap()
}

fn poll_once<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

async fn refusal(request: Request, limits: &BodyLimits) -> (StatusCode, String) {
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
    let limits = BodyLimits { budget: BodyBudget::new(128 << 10), ..BodyLimits::default() };
    let request = || Request::new(Body::from(vec![1; 100 << 10]));
    let first = body::read(request(), &limits).await.unwrap();
    let (status, _) = refusal(request(), &limits).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    assert!(body::read(request(), &limits).await.is_ok());
}

#[tokio::test]
async fn as_many_large_bodies_are_decoded_at_once_as_have_a_place_and_one_more_waits() {
    let limits = BodyLimits::default();
    let places = limits.large.places();
    let large = || encoded("gzip", gzip(&vec![0; body::INLINE_BYTES_MAX + 1]));
    let (entered, arrivals) = std::sync::mpsc::channel();
    let mut decoding = Vec::new();
    for _ in 0..places {
        let (entered, limits) = (entered.clone(), limits.clone());
        let (go_on, waiting) = std::sync::mpsc::channel::<()>();
        let request = large();
        let task = tokio::spawn(async move {
            let work = move |_: &[u8]| {
                entered.send(()).unwrap();
                waiting.recv().unwrap();
            };
            body::read_and_decode(request, &limits, work).await.unwrap();
        });
        decoding.push((task, go_on));
    }
    let arrived = move || (0..places).for_each(|_| arrivals.recv().unwrap());
    tokio::task::spawn_blocking(arrived).await.unwrap();
    let mut one_more = pin!(body::read_and_decode(large(), &limits, <[u8]>::len));
    assert!(poll_once(&mut one_more).is_pending());
    assert_eq!(limits.large.places(), 0);
    let plain = vec![0; body::INLINE_BYTES_MAX];
    for small in [Request::new(Body::from(plain.clone())), encoded("gzip", gzip(&plain))] {
        let read = body::read_and_decode(small, &limits, <[u8]>::len).await;
        assert_eq!(read.unwrap(), body::INLINE_BYTES_MAX, "what is small waits for nobody");
    }
    assert!(poll_once(&mut one_more).is_pending());
    for (task, go_on) in decoding {
        go_on.send(()).unwrap();
        task.await.unwrap();
    }
    assert_eq!(one_more.await.unwrap(), body::INLINE_BYTES_MAX + 1);
    assert_eq!(limits.large.places(), places);
}

#[tokio::test]
async fn a_large_body_whose_turn_does_not_come_is_refused_by_the_name_of_the_limit() {
    let limits = BodyLimits { large: LargeBodies::new(1, Duration::from_millis(30)), ..BodyLimits::default() };
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (go_on, waiting) = std::sync::mpsc::channel::<()>();
    let first = tokio::spawn({
        let limits = limits.clone();
        async move {
            let work = move |_: &dyn Fn() -> bool| {
                entered.send(()).unwrap();
                waiting.recv().unwrap();
            };
            limits.large.work(work).await
        }
    });
    inside.await.unwrap();
    let large = Request::new(Body::from(vec![0; body::INLINE_BYTES_MAX + 1]));
    let error = body::read_and_decode(large, &limits, <[u8]>::len).await.unwrap_err();
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.retry_after.is_some() && error.message.contains("BodyLimits::large"), "{error}");
    go_on.send(()).unwrap();
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn work_for_a_client_that_went_away_ends_or_never_begins() {
    let large = LargeBodies::new(1, Duration::from_secs(30));
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (ended, end) = tokio::sync::oneshot::channel();
    let work = move |is_wanted: &dyn Fn() -> bool| {
        entered.send(()).unwrap();
        while is_wanted() {
            std::thread::yield_now();
        }
        ended.send(()).unwrap();
    };
    let first = tokio::spawn({
        let large = large.clone();
        async move { large.work(work).await }
    });
    inside.await.unwrap();
    first.abort();
    end.await.unwrap();
    let panicked = large.work(|_| assert!(large_is_not_reached(), "of a test")).await;
    assert_eq!(panicked.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(large.work(|_| 7).await.unwrap(), 7, "the thread lives on");
}

fn large_is_not_reached() -> bool {
    false
}

#[tokio::test]
async fn what_is_decompressed_counts_beside_what_was_sent_and_is_given_back() {
    let limits = BodyLimits { budget: BodyBudget::new(1 << 20), ..BodyLimits::default() };
    let request = |bytes: usize| encoded("gzip", gzip(&vec![1; bytes]));
    let (status, why) = refusal(request(2 << 20), &limits).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("--bodies-bytes-max"), "{why}");
    let first = body::read(request(700 << 10), &limits).await.unwrap();
    assert_eq!(refusal(request(700 << 10), &limits).await.0, StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    for _ in 0..3 {
        assert_eq!(body::read_and_decode(request(700 << 10), &limits, <[u8]>::len).await.unwrap(), 700 << 10);
    }
}

#[tokio::test]
async fn a_body_of_which_nothing_comes_for_too_long_is_given_up() {
    let limits = BodyLimits { idle_timeout: Duration::from_millis(30), ..BodyLimits::default() };
    let begins = futures::stream::iter([Ok::<_, std::io::Error>(vec![7; 10])]);
    let stalls = futures::stream::StreamExt::chain(begins, futures::stream::pending());
    let (status, message) = refusal(Request::new(crate::http::streamed(stalls)), &limits).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert!(message.contains("no byte of the body came for 0.03 s after 10 bytes"), "{message}");
}

#[test]
fn every_kind_of_error_has_one_status() {
    for (kind, expected) in [
        (ErrorKind::Invalid, 400),
        (ErrorKind::NotFound, 404),
        (ErrorKind::Busy, 503),
        (ErrorKind::Unavailable, 503),
        (ErrorKind::Corrupt, 500),
        (ErrorKind::Internal, 500),
    ] {
        let response = ApiError::of_kind(kind, "because").into_response();
        assert_eq!(response.status().as_u16(), expected, "{kind:?}");
        assert_eq!(response.headers().contains_key("retry-after"), kind == ErrorKind::Busy, "{kind:?}");
    }
}
