//! Metric Proxy's API over a database of its own, for tests of its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value as Json;
use telem_engine::{Clock, Options, Retention, Timestamp};
use telem_ingest::decode::proxy::{CounterKind, DescribedJob};
use tower::ServiceExt;

use super::live::ProxyLive;
use super::runs::RunSeat;
use super::{MetricProxy, ProxyOptions, seats};
use crate::testing::Served;

/// The clock of a test: it stands until the test moves it on.
#[derive(Debug, Default)]
pub struct TestClock(AtomicI64);

/// 2026-11-25.
const START: i64 = 1_795_600_000_000_000;

impl TestClock {
    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START + self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed).unsigned_abs())
    }
}

pub struct TestProxy {
    pub live: Arc<ProxyLive>,
    pub clock: Arc<TestClock>,
    pub parts: MetricProxy,
    router: Router,
    served: Served,
    options: ProxyOptions,
}

impl TestProxy {
    pub fn new() -> Self {
        // No program of the machine is asked.
        Self::with(ProxyOptions { search_path: Some("/nowhere".into()), ..ProxyOptions::default() })
    }

    pub fn with(options: ProxyOptions) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(0)));
        // Samples go after an hour.
        let retention = Retention { age: Some(Duration::from_secs(3600)), ..Retention::default() };
        let engine = Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, retention, ..Options::default() };
        let served = Served::over(engine, |state| state.clock = Arc::clone(&clock) as Arc<dyn Clock>);
        Self::over(served, clock, options)
    }

    fn over(served: Served, clock: Arc<TestClock>, options: ProxyOptions) -> Self {
        let parts = MetricProxy::new(Arc::clone(&served.state), options.clone());
        Self { live: Arc::clone(&parts.live), clock, router: parts.paths(), parts, served, options }
    }

    /// Another process over the same database, after this one was killed.
    pub fn restarted(self) -> Self {
        let Self { clock, served, options, .. } = self;
        Self::over(served, clock, options)
    }

    /// The same with other options.
    pub fn restarted_with(self, options: ProxyOptions) -> Self {
        let Self { clock, served, .. } = self;
        Self::over(served, clock, ProxyOptions { search_path: Some("/nowhere".into()), ..options })
    }

    pub async fn ask(&self, request: Request<Body>) -> (u16, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// An answer of which nothing was read yet.
    pub async fn answer(&self, path: &str) -> Response {
        self.router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
    }

    /// A good answer.
    pub async fn get(&self, path: &str) -> Json {
        let (status, text) = self.ask(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// Why something is refused.
    pub async fn refused(&self, path: &str) -> String {
        let (status, text) = self.ask(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, 400, "{path}: {text}");
        let answer: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["success"], false);
        answer["operation"].as_str().unwrap().to_owned()
    }

    /// The text of an acknowledgement or refusal, and which of both it is.
    pub async fn post(&self, path: &str, body: &str) -> (bool, String) {
        let request = Request::post(path).header("content-type", "application/json").body(Body::from(body.to_owned()));
        let (status, text) = self.ask(request.unwrap()).await;
        let answer: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["success"], status == 200, "{text}");
        (status == 200, answer["operation"].as_str().unwrap().to_owned())
    }

    /// A client of a job.
    pub async fn join(&self, id: &str, command: &str, size: i32) -> RunSeat {
        let told = DescribedJob { jobid: id.to_owned(), command: command.to_owned(), size, ..Default::default() };
        seats::join(&self.live, told).await.unwrap()
    }

    pub async fn leave(&self, seat: RunSeat) {
        seats::leave(&self.live, seat).await;
    }

    /// Adds to a counter of a client, which is declared if it must be.
    pub fn count(&self, seat: &RunSeat, name: &str, value: f64) {
        self.live.table.declare(seat.lane, name, "a doc", CounterKind::Counter, 0.0).unwrap();
        self.live.table.update(seat.lane, name, CounterKind::Counter, value).unwrap();
    }

    pub fn set(&self, seat: &RunSeat, name: &str, value: f64) {
        self.live.table.declare(seat.lane, name, "a doc", CounterKind::Gauge, f64::NAN).unwrap();
        self.live.table.update(seat.lane, name, CounterKind::Gauge, value).unwrap();
    }

    /// A second passes, at the end of which values become samples and alarms are looked at.
    pub async fn tick(&self) {
        self.clock.pass(Duration::from_secs(1));
        let run = async |lane| self.live.store_lane(lane).await.unwrap();
        for (desc, _) in self.live.runs.live() {
            run(self.live.runs.lane(&desc.jobid).unwrap()).await;
        }
        run(self.live.http).await;
        run(self.live.jobless).await;
        self.parts.alarms.tick(&self.live);
    }

    /// A whole run of a job: it counts, and is over.
    pub async fn finished(&self, id: &str, command: &str, size: i32, counters: &[(&str, f64)]) {
        let seat = self.join(id, command, size).await;
        for (name, value) in counters {
            self.count(&seat, name, *value);
        }
        self.tick().await;
        self.leave(seat).await;
    }

    /// What SQL answers, a row a line.
    pub async fn sql(&self, sql: &str) -> Vec<Json> {
        let answer = self.served.post("/api/sql", sql.to_owned()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        match serde_json::from_str::<Json>(text) {
            Ok(Json::Array(rows)) => rows,
            _ => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        }
    }
}
