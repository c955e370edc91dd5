//! Dragon's node server: its `Telemetry` class asks `/api/ready`, posts to `/api/metrics`, and says `/api/set_shutdown`
//! when it ends. `/api/tsdb_cleanup` and `/api/telemetry_shutdown` come from Dragon's own processes.
//!
//! The class reads no answer to a post, so that answer is 201 whatever became of the points, and what is refused is said
//! in the log, once a reason. No path ends anything or removes anything: one part of a program says that all is over
//! while others still send.
//!
//! | of a point | what becomes of it |
//! |---|---|
//! | no `host` among its tags | it gets the name of the node |
//! | names that OpenTSDB's put refuses (`gpu id`, `cuda:0`) | they stay as they are |
//! | a tag's value that is a number or a truth value | its text as it was sent; null is no tag |
//! | a text that holds a number, `true`, `false` | that number, 1, 0 |
//! | another text, null, a list | refused |
//! | a whole second | the next free microsecond of that second: [`spread`] |
//! | a second with a fraction, milliseconds | as they are |
//! | no timestamp | the time at which it came |

mod place;
mod port;
mod refusals;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value as Json, json};
use telem_engine::{Durability, SampleBatch, SeriesId, Snapshot, TimeRange, Timestamp};
use telem_ingest::accept::Reason;
use telem_ingest::decode::dragon::{DragonBody, DragonPoint, DragonTime};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::{WriteError, Writer};

pub use self::place::{DragonFiles, DragonPlace, environment_without_a_port};
pub use self::port::{DEFAULT_PORT, DragonPort, DragonPortError, PORTS_TRIED_MAX};
pub use self::refusals::REASONS_MAX;
use self::refusals::RefusalLog;
use self::spread::SecondSpread;
pub use self::spread::{PAIRS_MAX, POINTS_PER_SECOND_MAX};
use crate::http::{ApiError, body};
use crate::protocol::{Language, ListenerPlace, OwnListener};
use crate::slots;
use crate::state::State;

/// What users send is of this level: a server of level 0 checks it, says that all is well, and keeps nothing of it.
const LEVEL: u8 = 1;
/// Largest body.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Most reasons in an answer; `failed` counts all points that were refused.
pub const ERRORS_LISTED_MAX: usize = 100;
/// Longest that points wait for room in the writer's queue: nobody sends them again.
pub const QUEUE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is tried meanwhile.
const QUEUE_LOOK: Duration = Duration::from_millis(20);

/// With what the node server is started.
#[derive(Clone, Debug)]
pub struct DragonOptions {
    pub port: DragonPort,
    /// What the user's YAML says, for the one that programs are given instead.
    pub keys: Map<String, Json>,
    /// That YAML.
    pub file: Option<PathBuf>,
    /// What it says of the place of live data, for nodes.
    pub data_base: Option<PathBuf>,
    /// Programs on other nodes are told the same path, where they find the port of their own node.
    pub is_of_many: bool,
}

/// The node server.
#[derive(Debug)]
pub struct NodeServer {
    state: Arc<State>,
    spread: Arc<SecondSpread>,
    refusals: Arc<RefusalLog>,
}

/// What became of the points of a post.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PostOutcome {
    success: usize,
    failed: usize,
    errors: Vec<String>,
}

impl PostOutcome {
    /// Nothing of a post could be used.
    fn nothing(reason: String) -> Self {
        Self { success: 0, failed: 1, errors: vec![reason] }
    }

    fn add(&mut self, reason: String) {
        self.failed += 1;
        if self.errors.len() < ERRORS_LISTED_MAX {
            self.errors.push(reason);
        }
    }

    fn respond(&self) -> Response {
        let Self { success, failed, errors } = self;
        answer(StatusCode::CREATED, &json!({"success": success, "failed": failed, "errors": errors}))
    }
}

impl NodeServer {
    pub fn new(state: Arc<State>) -> Self {
        Self { state, spread: Arc::default(), refusals: Arc::default() }
    }

    /// Its paths, at every socket of the port.
    pub fn listeners(self: Arc<Self>, port: &DragonPort) -> Vec<OwnListener> {
        let router = self.router();
        let listener =
            |socket| OwnListener { place: ListenerPlace::Bound(socket), language: Language::Http(router.clone()) };
        port.sockets().map(listener).collect()
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/api/ready", get(ready))
            .route("/api/metrics", post(metrics))
            .route("/api/tsdb_cleanup", post(cleanup))
            .route("/api/set_shutdown", get(set_shutdown))
            .route("/api/telemetry_shutdown", get(telemetry_shutdown))
            .fallback(unknown_path)
            .method_not_allowed_fallback(unknown_method)
            .with_state(self)
    }

    async fn take(&self, request: Request) -> PostOutcome {
        let Some(writer) = self.state.writer.clone() else {
            return self.refused("no writer", self.state.refusal.message().to_owned());
        };
        let work = PostWork {
            tags: slots::tags_of(&request).await.with_host(Arc::clone(&self.state.node)),
            now: self.state.clock.now(),
            keep: self.state.level >= LEVEL,
            writer: writer.clone(),
            state: Arc::clone(&self.state),
            spread: Arc::clone(&self.spread),
            refusals: Arc::clone(&self.refusals),
        };
        let limits = self.state.limits.bodies.at_most(BODY_BYTES_MAX);
        let sorted = body::read_and_decode(request, &limits, move |body| work.sort(body)).await;
        let (batch, outcome) = match sorted {
            Ok(sorted) => sorted,
            Err(error) => return self.refused("body", error.message),
        };
        match self.submit(&writer, batch).await {
            Ok(()) => outcome,
            Err(error) => {
                let failed = outcome.success + outcome.failed;
                PostOutcome { failed, ..self.refused(&format!("writer {:?}", error.kind()), error.to_string()) }
            }
        }
    }

    /// Waits for room in the queue, because the class sends nothing twice.
    async fn submit(&self, writer: &Writer, batch: SampleBatch) -> Result<(), WriteError> {
        let deadline = self.state.clock.monotonic() + QUEUE_WAIT_MAX;
        loop {
            match writer.submit(batch.clone(), Durability::Buffered).await {
                Err(WriteError::Busy { .. }) if self.state.clock.monotonic() < deadline => {
                    tokio::time::sleep(QUEUE_LOOK).await;
                }
                submitted => return submitted,
            }
        }
    }

    fn refused(&self, kind: &str, reason: String) -> PostOutcome {
        self.refusals.tell(kind, &reason);
        PostOutcome::nothing(reason)
    }
}

/// What turns a body into a batch, where the body is decoded.
struct PostWork {
    tags: DefaultTags,
    now: Timestamp,
    /// Whether good points are stored; else they are counted alone.
    keep: bool,
    writer: Writer,
    state: Arc<State>,
    spread: Arc<SecondSpread>,
    refusals: Arc<RefusalLog>,
}

impl PostWork {
    fn sort(&self, body: &[u8]) -> (SampleBatch, PostOutcome) {
        let body = match DragonBody::parse(body) {
            Ok(body) => body,
            Err(error) => {
                self.refusals.tell("body", &error.to_string());
                return (SampleBatch::default(), PostOutcome::nothing(error.to_string()));
            }
        };
        let mut outcome = PostOutcome::default();
        let mut good: Vec<DragonPoint> = Vec::with_capacity(body.len());
        for point in body.points() {
            match point {
                Ok(point) => good.push(point),
                Err(error) => self.refuse(&mut outcome, error.kind(), error.to_string()),
            }
        }
        self.writer.count_rejected(outcome.failed);
        if !self.keep {
            outcome.success = good.len();
            return (SampleBatch::default(), outcome);
        }
        let time = match body.time {
            DragonTime::Unsaid => self.now,
            DragonTime::Second(second) => Timestamp::from_seconds(second),
            DragonTime::Moment(moment) => moment,
        };
        let samples = good.iter().enumerate().map(|(index, point)| (index, point.at(time)));
        let accepted = self.writer.accept(&self.tags, samples);
        for reject in &accepted.rejects {
            let what = format!("{}: {}", good[reject.index].metric, reject.reason);
            self.refuse(&mut outcome, &kind(&reject.reason), what);
        }
        outcome.failed += accepted.rejected - accepted.rejects.len();
        let batch = match body.time {
            DragonTime::Second(second) => self.spread(accepted.batch, second, &mut outcome),
            DragonTime::Unsaid => apart(&accepted.batch),
            DragonTime::Moment(_) => accepted.batch,
        };
        outcome.success = batch.len();
        (batch, outcome)
    }

    /// Gives the points of one second a microsecond each.
    fn spread(&self, batch: SampleBatch, second: i64, outcome: &mut PostOutcome) -> SampleBatch {
        let mut snapshot = None;
        let stored = |series| {
            let snapshot: &Snapshot = snapshot.get_or_insert_with(|| self.state.db.snapshot());
            stored(snapshot, series, second)
        };
        let (batch, beyond) = self.spread.spread(&batch, second, stored);
        for _ in 0..beyond {
            let reason = format!(
                "a series has {POINTS_PER_SECOND_MAX} points in the second {second}, and no microsecond is left: give \
                 them times of their own"
            );
            self.refuse(outcome, "full second", reason);
        }
        self.writer.count_rejected(beyond);
        batch
    }

    fn refuse(&self, outcome: &mut PostOutcome, kind: &str, reason: String) {
        self.refusals.tell(kind, &reason);
        outcome.add(reason);
    }
}

/// The same samples, each a microsecond after the one of its series before it: one post may hold several.
fn apart(batch: &SampleBatch) -> SampleBatch {
    let (mut apart, mut seen) = (SampleBatch::with_capacity(batch.len()), HashMap::<SeriesId, i64>::new());
    for (series, time, value) in batch.iter() {
        let before = seen.entry(series).or_default();
        apart.push(series, time.saturating_add_micros(*before), value);
        *before += 1;
    }
    apart
}

/// The first microsecond of `second` after all samples that `series` has in it.
fn stored(snapshot: &Snapshot, series: SeriesId, second: i64) -> u32 {
    let start = Timestamp::from_seconds(second);
    let range = TimeRange { start, end: start.saturating_add_micros(1_000_000) };
    let last = || -> telem_engine::Result<Option<Timestamp>> {
        if !snapshot.has_points(series, range)? {
            return Ok(None);
        }
        let mut last = None;
        for points in snapshot.points(vec![series], range) {
            last = last.max(points?.times.last().copied());
        }
        Ok(last)
    };
    match last() {
        Ok(last) => last.map_or(0, |last| u32::try_from(last.micros() - start.micros() + 1).unwrap_or(0)),
        Err(error) => {
            tracing::warn!(%error, "what a series has in a second is unknown: points of Dragon's port may replace it");
            0
        }
    }
}

/// The same for all points that are refused for the same reason.
fn kind(reason: &Reason) -> String {
    match reason {
        Reason::Ahead { .. } => "ahead".to_owned(),
        Reason::TooOld { .. } => "too old".to_owned(),
        Reason::EndOfTime(_) => "end of time".to_owned(),
        Reason::TooManyTags { .. } => "too many tags".to_owned(),
        Reason::BatchFull { .. } => "batch full".to_owned(),
        Reason::Engine(error) => format!("{:?}", std::mem::discriminant(error)),
    }
}

fn answer(status: StatusCode, body: &Json) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn ready() -> Response {
    answer(StatusCode::OK, &json!({"is_ready": true}))
}

async fn metrics(Of(node): Of<Arc<NodeServer>>, request: Request) -> Response {
    node.take(request).await.respond()
}

/// What Dragon's collector asks for, so that its own store stays small. Nothing is removed here.
async fn cleanup() -> Response {
    PostOutcome::default().respond()
}

async fn set_shutdown() -> Response {
    tracing::info!("a program of Dragon's has said that telemetry is to end; it goes on");
    answer(StatusCode::OK, &json!({"success": 1, "failed": 0, "errors": []}))
}

async fn telemetry_shutdown() -> Response {
    tracing::info!("a process of Dragon's has asked this server to end; it goes on");
    answer(StatusCode::OK, &json!({"shutdown": true}))
}

async fn unknown_path(Of(node): Of<Arc<NodeServer>>, request: Request) -> ApiError {
    let path = request.uri().path();
    let what = format!(
        "nothing is served at '{path}': Dragon's node server has /api/ready, /api/metrics, /api/tsdb_cleanup, \
         /api/set_shutdown and /api/telemetry_shutdown; dashboards ask at the port of telem itself"
    );
    node.refusals.tell(&format!("path {path}"), &what);
    ApiError::new(StatusCode::NOT_FOUND, what)
}

async fn unknown_method(Of(node): Of<Arc<NodeServer>>, request: Request) -> ApiError {
    let (path, method) = (request.uri().path(), request.method());
    let what = format!("'{path}' does not answer to {method}");
    node.refusals.tell(&format!("method {method} {path}"), &what);
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what)
}
