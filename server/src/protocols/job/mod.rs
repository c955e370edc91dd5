//! `/api/job`: the description of the job, which the job itself may add to: its name, settings and tags.
//!
//! Where jobs share the server, the job is that of the connection, or of the header `X-Telem-Job`; with a `POST` it
//! begins if it does not run. `POST /api/job/end` says that it is over, with `{"exit_code": N}` or `{"signal": N}`: who
//! says so first counts. `GET /api/jobs` lists all of them. Whoever may send samples may describe and end any job.
//!
//! `GET` answers with all of it. `POST` takes `{"name": TEXT, "settings": {...}, "tags": {...}}`, each of which may be
//! missing, adds them to what is there, and answers with all of it. They are durable when the answer is sent. An agent
//! passes both on to the head of its job.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use telem_engine::{Db, Durability, ErrorKind, JobPart, MetaChange};

use crate::http::{ApiError, body};
use crate::protocol::Protocol;
use crate::settings::{self, RunLabels};
use crate::slots::{JobCaller, JobId};
use crate::state::State;

/// Longest body.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// What `/api/job` answers with.
#[derive(Debug)]
pub struct JobApi {
    state: Arc<State>,
}

impl JobApi {
    pub fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl Protocol for JobApi {
    fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/api/job", get(described).post(change))
            .route("/api/job/end", post(end))
            .route("/api/jobs", get(all))
            .with_state(Arc::clone(&self.state))
    }
}

/// The client, where jobs share the server.
fn caller(request: &Request) -> Option<JobCaller> {
    request.extensions().get::<JobCaller>().cloned()
}

fn unknown(id: &JobId) -> ApiError {
    let what = format!("no job '{id}' runs here, nor did a moment ago; one begins with the first that it sends");
    ApiError::new(StatusCode::NOT_FOUND, what)
}

async fn described(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    if let Some(caller) = caller(&request) {
        // It looks through many descriptions where the job is long over.
        let job = written(move || caller.slots().description(caller.id()).ok_or_else(|| unknown(caller.id()))).await?;
        return Ok(answer(&job));
    }
    match state.db.snapshot().meta().job() {
        Some(job) => Ok(answer(job)),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, "nothing describes the job: it was not started by telem run")),
    }
}

async fn change(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let bad = |why: String| ApiError::of_kind(ErrorKind::Invalid, why);
    let caller = caller(&request);
    let text = body::read(request, &state.limits.bodies.at_most(BODY_BYTES_MAX)).await?;
    // Not at once: a list would be taken for the fields in their order.
    let labels = serde_json::from_slice::<Map<String, Json>>(&text)
        .and_then(|fields| RunLabels::deserialize(Json::Object(fields)));
    let labels = labels.map_err(|error| {
        bad(format!("the body is no {{\"name\":\"...\",\"settings\":{{...}},\"tags\":{{...}}}}: {error}"))
    })?;
    let db = state.db.clone();
    Ok(answer(&written(move || apply(&db, caller, labels)).await?))
}

/// What `write` answers, on a thread that may wait for a disk.
async fn written<T: Send + 'static>(
    write: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))?
}

fn apply(db: &Db, caller: Option<JobCaller>, labels: RunLabels) -> Result<Json, ApiError> {
    let labelled = |job: Json| labels.onto(job).map_err(|why| ApiError::of_kind(ErrorKind::Invalid, why));
    if let Some(caller) = caller.filter(|caller| !caller.is_servers_own()) {
        let full = || {
            let what =
                format!("the job '{}' cannot be noted: too many run at once, or nothing can be written", caller.id());
            ApiError::of_kind(ErrorKind::Busy, what)
        };
        caller.begin().ok_or_else(full)?;
        return caller.slots().describe(caller.id(), labelled)?.ok_or_else(|| unknown(caller.id()));
    }
    let _turn = settings::turn();
    let changed = labelled(db.snapshot().meta().job().cloned().unwrap_or_else(|| json!({})))?;
    db.put_meta(MetaChange::Job(changed.clone()), Durability::Synced)?;
    Ok(changed)
}

/// How a job ended, as `/api/job/end` takes it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobEnding {
    exit_code: Option<i32>,
    signal: Option<i32>,
}

async fn end(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let caller = caller(&request);
    let text = body::read(request, &state.limits.bodies.at_most(BODY_BYTES_MAX)).await?;
    let bad = |error| {
        let why = format!("the body is neither empty nor {{\"exit_code\":N}} or {{\"signal\":N}}: {error}");
        ApiError::of_kind(ErrorKind::Invalid, why)
    };
    let ending = match &*text {
        [] => JobEnding::default(),
        text => serde_json::from_slice(text).map_err(bad)?,
    };
    let Some(caller) = caller else {
        let what = "the request belongs to no job among several: send X-Telem-Job: ID";
        return Err(ApiError::new(StatusCode::NOT_FOUND, what));
    };
    let fields = [("exit_code", ending.exit_code), ("signal", ending.signal)];
    let how = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    let told = written(move || caller.slots().end(caller.id(), how)?.ok_or_else(|| unknown(caller.id()))).await?;
    Ok(answer(&told))
}

/// Of this node.
async fn all(Of(state): Of<Arc<State>>) -> Response {
    let part = |JobPart { job, node, description, .. }: JobPart| json!({ "job": *job, "node": *node, "description": description.as_deref() });
    let parts: Vec<Json> = state.db.snapshot().job_parts().into_iter().map(part).collect();
    answer(&Json::Array(parts))
}

fn answer(job: &Json) -> Response {
    ([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], job.to_string()).into_response()
}
