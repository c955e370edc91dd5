//! What bounds a connection, through real sockets; what is spoken on one is tried in `tests/client_frames.rs`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use telem_engine::{MetricKind, MetricMeta};

use super::bounds::UNIT_BYTES_MAX;
use super::*;
use crate::testing::Served;

const OPENING: &[u8] = b"\xF7TLM\x01\x00\x00\x00";

struct Service {
    served: Served,
    protocol: Arc<ClientProtocol>,
    stop: watch::Sender<bool>,
}

impl Service {
    fn new(limits: ClientLimits) -> Self {
        let served = Served::new();
        let protocol = Arc::new(ClientProtocol::new(Arc::clone(&served.state), limits));
        Self { served, protocol, stop: watch::channel(false).0 }
    }

    /// A client, and its conversation.
    fn connect(&self) -> (UnixStream, JoinHandle<()>) {
        let (client, stream) = UnixStream::pair().unwrap();
        let (protocol, stopping) = (Arc::clone(&self.protocol), self.stop.subscribe());
        let (extensions, http) = (Extensions::new(), Router::new());
        let client_of = FrameClient { stream: Box::new(stream), extensions, http, stopping };
        (client, tokio::spawn(async move { protocol.converse(client_of).await }))
    }

    fn samples(&self) -> u64 {
        self.served.state.db.info().unwrap().samples
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &[kind, 0, 0, 0], body].concat()
}

fn named(first: u32) -> Vec<u8> {
    let head = [first.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    frame(1, &[&head[..], &[0, 1, 0, 0], &[1, 0, b'm', 0, 0, 0, 0]].concat())
}

fn samples(sequence: u64, count: usize) -> Vec<u8> {
    let mut body = [sequence.to_le_bytes(), [0; 8]].concat();
    body.extend([(count as u32).to_le_bytes(), [0; 4]].concat());
    let first = 1_767_225_600_000_000 + sequence as i64 * 1_000_000;
    (0..count as i64).for_each(|at| body.extend((first + at).to_le_bytes()));
    body.resize(body.len() + 8 * count, 0);
    frame(2, &body)
}

/// The next frame of the service: its type, and what it holds.
async fn hear(client: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 8];
    client.read_exact(&mut head).await.ok()?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
    client.read_exact(&mut body).await.ok()?;
    Some((head[4], body))
}

/// The code with which the service ends a connection.
async fn goodbye(client: &mut UnixStream) -> u16 {
    loop {
        match hear(client).await {
            Some((135, body)) => return u16::from_le_bytes([body[0], body[1]]),
            Some(_) => {}
            None => panic!("it ends with a goodbye"),
        }
    }
}

async fn acknowledged(client: &mut UnixStream) -> u64 {
    loop {
        match hear(client).await {
            Some((129, body)) => return u64::from_le_bytes(body[8..16].try_into().unwrap()),
            Some((128, _)) => {}
            other => panic!("{other:?} is no acknowledgement"),
        }
    }
}

fn soon() -> ClientLimits {
    ClientLimits { frame_timeout: Duration::from_millis(60), ..ClientLimits::default() }
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_an_opening_or_a_frame_is_told_so() {
    let service = Service::new(soon());
    for said in [&b""[..], &OPENING[..5], &[OPENING, &[9]].concat(), &[OPENING, &samples(1, 9)[..100]].concat()] {
        let (mut client, held) = service.connect();
        client.write_all(said).await.unwrap();
        assert_eq!(goodbye(&mut client).await, 11, "{said:?}");
        held.await.unwrap();
    }
    // One that is between two frames may be silent for as long as it likes.
    let (mut client, _held) = service.connect();
    client.write_all(&[OPENING, &named(0)].concat()).await.unwrap();
    let (mut late, _) = service.connect();
    assert_eq!(goodbye(&mut late).await, 11, "time passed");
    client.write_all(&samples(1, 2)).await.unwrap();
    assert_eq!(acknowledged(&mut client).await, 2);
}

#[tokio::test]
async fn a_frame_that_stands_still_gives_way_once_others_wait_for_its_memory() {
    let limits = ClientLimits {
        frames_bytes_max: 1 << 20,
        frame_idle_when_short: Duration::from_millis(30),
        ..ClientLimits::default()
    };
    let service = Service::new(limits);
    let (mut slow, _) = service.connect();
    let big = samples(1, 60_000);
    slow.write_all(&[OPENING, &named(0), &big[..9_000]].concat()).await.unwrap();
    assert!(matches!(hear(&mut slow).await, Some((128, _))));
    let (mut other, _) = service.connect();
    other.write_all(&[OPENING, &named(0), &big].concat()).await.unwrap();
    assert_eq!(acknowledged(&mut other).await, 60_000);
    assert_eq!(goodbye(&mut slow).await, 11);
    // A frame that stands still before it took any of that memory holds up nobody.
    let mut crowd = Vec::new();
    for _ in 0..50 {
        let (mut small, held) = service.connect();
        small.write_all(&[OPENING, &big[..1_000]].concat()).await.unwrap();
        crowd.push((small, held));
    }
    other.write_all(&samples(2, 60_000)).await.unwrap();
    assert_eq!(acknowledged(&mut other).await, 120_000);
}

#[tokio::test]
async fn connections_and_series_are_as_many_as_may_be() {
    let service = Service::new(ClientLimits { connections_max: 2, series_max: 2, ..ClientLimits::default() });
    let (mut first, held) = service.connect();
    let (_second, _) = service.connect();
    first.write_all(OPENING).await.unwrap();
    assert!(matches!(hear(&mut first).await, Some((128, body)) if body[4..8] == 2_u32.to_le_bytes()));
    let (mut third, _) = service.connect();
    assert_eq!(goodbye(&mut third).await, 9);
    first.write_all(&[named(0), named(1), samples(1, 1), named(2)].concat()).await.unwrap();
    assert_eq!(acknowledged(&mut first).await, 1);
    assert_eq!(goodbye(&mut first).await, 4);
    held.await.unwrap();
    let (mut fourth, _) = service.connect();
    fourth.write_all(OPENING).await.unwrap();
    assert!(matches!(hear(&mut fourth).await, Some((128, _))), "the place was given back");
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_for_ever() {
    let service = Service::new(ClientLimits { answers_bytes_max: 1, ..ClientLimits::default() });
    let (mut deaf, _held) = service.connect();
    deaf.write_all(&[OPENING, &named(0)].concat()).await.unwrap();
    let send = async {
        for sequence in 1.. {
            deaf.write_all(&samples(sequence, 1)).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), send).await.is_err(), "its writes wait");
    let stored = service.samples();
    let (mut other, _) = service.connect();
    other.write_all(&[OPENING, &named(0), &samples(1, 5)].concat()).await.unwrap();
    assert_eq!(acknowledged(&mut other).await, 5);
    assert!(stored < 1 << 20, "{stored}");
}

#[tokio::test]
async fn refusals_of_one_series_are_told_together_once_in_a_while() {
    let refused_interval = Duration::from_millis(200);
    let service = Service::new(ClientLimits { refused_interval, ..ClientLimits::default() });
    let (mut client, _held) = service.connect();
    let far = |sequence: u64| {
        let mut frame = samples(sequence, 1);
        frame[32..40].copy_from_slice(&(i64::MAX - 1).to_le_bytes());
        frame
    };
    let all: Vec<u8> = (1..=50).flat_map(far).collect();
    client.write_all(&[OPENING, &named(0), &all].concat()).await.unwrap();
    let clock = telem_engine::SystemClock::new();
    let (mut refused, mut told, mut acknowledged) = (0, 0, 0);
    while acknowledged < 50 || refused < 50 {
        match hear(&mut client).await {
            Some((130, body)) => {
                told += 1;
                refused += u64::from_le_bytes(body[12..20].try_into().unwrap());
                assert_eq!((body[8], body[20]), (0, 5));
            }
            Some((129, body)) => acknowledged = u64::from_le_bytes(body[16..24].try_into().unwrap()),
            Some((128, _)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 50);
    // The first at once; the machine may be so busy that the rest comes over several intervals.
    let intervals = telem_engine::Clock::monotonic(&clock).div_duration_f64(refused_interval);
    assert!(f64::from(told) <= 2.0 + intervals, "{told} within {intervals} intervals");
}

#[tokio::test]
async fn when_the_server_stops_what_is_on_its_way_is_stored_first() {
    let service = Service::new(ClientLimits::default());
    let (mut client, held) = service.connect();
    let (mut idle, idles) = service.connect();
    idle.write_all(OPENING).await.unwrap();
    let all: Vec<u8> = (1..=20).flat_map(|sequence| samples(sequence, 10)).collect();
    client.write_all(&[OPENING, &named(0), &all].concat()).await.unwrap();
    service.stop.send_replace(true);
    let mut stored = 0;
    while stored < 200 {
        stored = acknowledged(&mut client).await;
    }
    assert_eq!((goodbye(&mut client).await, goodbye(&mut idle).await), (8, 8));
    held.await.unwrap();
    idles.await.unwrap();
    assert_eq!(service.samples(), 200);
}

#[tokio::test]
async fn http_may_say_what_metrics_are_and_what_is_known_stays() {
    let served = Served::new();
    let told =
        served.post("/api/describe", r#"{"power": {"type": "gauge", "unit": "W"}, "jobs": {}}"#.to_owned()).await;
    assert_eq!((told.status, told.text()), (204, ""));
    let more = r#"{"power": {"type": "counter", "unit": "J", "help": "Of the board."}}"#;
    assert_eq!(served.post("/api/describe", more.to_owned()).await.status, 204);
    let snapshot = served.state.db.snapshot();
    let power = snapshot.meta().metric("power").unwrap();
    let expected = MetricMeta { kind: MetricKind::Gauge, unit: "W".to_owned(), help: "Of the board.".to_owned() };
    assert_eq!(power, &expected);
    // No series comes about by being described.
    assert_eq!(served.state.db.info().unwrap().series, 0);
}

#[tokio::test]
async fn what_does_not_describe_metrics_is_refused_whole() {
    let served = Served::new();
    let long = "x".repeat(UNIT_BYTES_MAX + 1);
    for (body, why) in [
        ("[]".to_owned(), "the body is no {\"METRIC\":"),
        (r#"{"a": {"unit": "s"}, "b": {"units": "s"}}"#.to_owned(), "unknown field `units`"),
        (r#"{"a": {"unit": "s"}, "b": {"type": "guage"}}"#.to_owned(), "unknown variant `guage`"),
        (r#"{"a": {"unit": "s"}, "": {"unit": "s"}}"#.to_owned(), "the metric \"\""),
        (format!(r#"{{"a": {{"unit": "s"}}, "b": {{"unit": "{long}"}}}}"#), "the unit of \"b\" has 257 bytes"),
    ] {
        let answer = served.post("/api/describe", body).await;
        assert!(answer.status == 400 && answer.text().contains(&why.replace('"', "\\\"")), "{why}: {}", answer.text());
    }
    assert_eq!(served.state.db.snapshot().meta().metrics().count(), 0);
}
