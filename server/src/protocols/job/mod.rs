//! `/api/job`: the description of the job, which the job itself may add to: its name, settings and tags.
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
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use telem_engine::{Db, Durability, ErrorKind, MetaChange};

use crate::http::{ApiError, body};
use crate::protocol::Protocol;
use crate::settings::{self, RunLabels};
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
        Router::new().route("/api/job", get(described).post(change)).with_state(Arc::clone(&self.state))
    }
}

async fn described(Of(state): Of<Arc<State>>) -> Result<Response, ApiError> {
    match state.db.snapshot().meta().job() {
        Some(job) => Ok(answer(job)),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, "nothing describes the job: it was not started by telem run")),
    }
}

async fn change(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let bad = |why: String| ApiError::of_kind(ErrorKind::Invalid, why);
    let text = body::read(request, &state.limits.bodies.at_most(BODY_BYTES_MAX)).await?;
    // Not at once: a list would be taken for the fields in their order.
    let labels = serde_json::from_slice::<Map<String, Json>>(&text)
        .and_then(|fields| RunLabels::deserialize(Json::Object(fields)));
    let labels = labels.map_err(|error| {
        bad(format!("the body is no {{\"name\":\"...\",\"settings\":{{...}},\"tags\":{{...}}}}: {error}"))
    })?;
    let db = state.db.clone();
    let changed = tokio::task::spawn_blocking(move || apply(&db, labels)).await;
    let job = changed.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))??;
    Ok(answer(&job))
}

fn apply(db: &Db, labels: RunLabels) -> Result<Json, ApiError> {
    let _turn = settings::turn();
    let current = db.snapshot().meta().job().cloned().unwrap_or_else(|| json!({}));
    let changed = labels.onto(current).map_err(|why| ApiError::of_kind(ErrorKind::Invalid, why))?;
    db.put_meta(MetaChange::Job(changed.clone()), Durability::Synced)?;
    Ok(changed)
}

fn answer(job: &Json) -> Response {
    ([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], job.to_string()).into_response()
}
