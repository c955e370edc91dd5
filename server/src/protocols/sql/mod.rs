//! `POST /api/sql`: SQL in, rows out, streamed: the server holds a few batches, never the whole answer.
//!
//! The body is SQL text, or JSON `{"sql":"...","format":"csv"}`. The format is that of `?format=`, else that of the
//! body, else the first known one of the header `Accept`, else JSON. The header `X-Telem-Missing` names nodes that do
//! not answer; with `?strict=true` a missing node is an error. An error before the first row is an ordinary error
//! answer. A later error ends NDJSON with a line `{"error":{...}}`. JSON, CSV and Arrow have no place for it, so the
//! connection is cut: the client sees an answer without its end, never one that looks whole.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::routing::post;

use crate::http::{ApiError, body};
use crate::protocol::Protocol;
use crate::state::State;

/// What `/api/sql` answers with.
#[derive(Debug)]
pub struct SqlApi {
    state: Arc<State>,
}

impl SqlApi {
    pub fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl Protocol for SqlApi {
    fn routes(self: Arc<Self>) -> Router {
        Router::new().route("/api/sql", post(sql)).with_state(Arc::clone(&self.state))
    }
}

async fn sql(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let wishes = request::Wishes::of(&request)?;
    let body = body::read(request, &state.limits.bodies).await?;
    let question = request::parse(&body, wishes)?;
    // Given back before the query runs, which may take long.
    drop(body);
    let answer = state.queries.sql_in(question.order, &question.sql).await?;
    if question.strict && !answer.missing.is_empty() {
        return Err(telem_query::Error::Incomplete { missing: answer.missing }.into());
    }
    answer::respond(answer, question.format).await
}
