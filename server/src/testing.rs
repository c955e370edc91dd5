//! A router over a database of its own, for tests of request handlers; and what pages list.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use bytes::Bytes;
use http_body_util::BodyExt;
use telem_engine::{Clock, Db, Durability, Options, SampleBatch, SeriesKey, SystemClock, TagSet, Timestamp, Value};
use telem_ingest::writer::{Writer, WriterOptions};
use telem_query::tsq::Fidelity;
use telem_query::{Queries, QueryOptions};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::cors::Cors;
use crate::http::body::BodyLimits;
use crate::service::router::{self, ProtocolOptions};
use crate::state::{ServerLimits, State, VERSION};

/// The first cells of the table on a page of docs/ whose head begins so, without their backticks.
pub fn first_column(page: &str, head: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2).take_while(|line| line.starts_with('|'));
    let cells: Vec<String> = rows.map(|row| row.split('|').nth(1).unwrap().trim().replace('`', "")).collect();
    assert!(!cells.is_empty(), "{page} has no table that begins with {head}");
    cells
}

pub struct Served {
    pub state: Arc<State>,
    router: Router,
    _dir: TempDir,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Served {
    /// An empty database.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// An empty database, served by a state with a `change`.
    pub fn with(change: impl FnOnce(&mut State)) -> Self {
        Self::over(Options::default(), change)
    }

    /// The same, of a database with other options.
    pub fn over(options: Options, change: impl FnOnce(&mut State)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = Options { node: "n1".to_owned(), ..options };
        let db = Db::open(&dir.path().join("db"), options).unwrap();
        let mut state = State {
            node: "n1".into(),
            job: "job-of-a-test".into(),
            writer: Some(Writer::start(db.clone(), WriterOptions::default()).unwrap()),
            queries: Queries::new(db.clone(), QueryOptions::new(Arc::clone(&clock))).unwrap(),
            db,
            level: 1,
            fidelity: Fidelity::Sensible,
            clock,
            limits: ServerLimits { bodies: BodyLimits::default().at_most(64 << 10), ..ServerLimits::default() },
            cors: Cors::default(),
            refusal: crate::state::Refusal::Saved,
            slots: None,
            version: VERSION,
        };
        change(&mut state);
        let state = Arc::new(state);
        Self { router: router::services(&state, &ProtocolOptions::default(), Router::new()).http, state, _dir: dir }
    }

    /// Stores samples of one series, `seconds` since 1970 each.
    pub fn store(&self, metric: &str, tags: &[(&str, &str)], samples: &[(i64, Value)]) {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let key = SeriesKey::new(metric, TagSet::new(tags).unwrap()).unwrap();
        let series = self.state.db.series(&key).unwrap();
        let mut batch = SampleBatch::default();
        for (seconds, value) in samples {
            batch.push(series, Timestamp::from_seconds(*seconds), *value);
        }
        self.state.db.append(&batch, Durability::Buffered).unwrap();
    }

    pub async fn ask(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.ask(Request::post(path).body(body.into()).unwrap()).await
    }
}
