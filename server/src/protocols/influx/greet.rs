//! The requests that clients make before they send: whether the server is there, and that a database exists.

use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use serde_json::json;

use super::answer::{Dialect, InfluxError, respond, version};
use crate::http::{Params, body};
use crate::state::State;

/// The name under which the one database is listed.
const DATABASE: &str = "telem";

pub async fn ping(request: Request) -> Response {
    let params = Params::parse(request.uri().query().unwrap_or_default());
    match params.get("verbose") {
        Some("true") if request.method() != Method::HEAD => {
            respond(StatusCode::OK, Some(&json!({"version": version()})))
        }
        _ => respond(StatusCode::NO_CONTENT, None),
    }
}

pub async fn health() -> Response {
    let body = json!({
        "name": "telem",
        "message": "ready for writes of line protocol, and for SQL at /api/sql",
        "status": "pass",
        "checks": [],
        "version": version(),
    });
    respond(StatusCode::OK, Some(&body))
}

/// What else InfluxDB 3 has below `/api/v3`.
pub async fn not_of_v3(uri: Uri) -> Response {
    let what = format!("of InfluxDB 3 only /api/v3/write_lp is served here, not '{}'; use SQL at /api/sql", uri.path());
    InfluxError::new(StatusCode::NOT_FOUND, what).respond(Dialect::V3)
}

/// InfluxQL, as far as senders of samples use it: `CREATE DATABASE`, which finds the database made, and
/// `SHOW DATABASES`.
pub async fn query(Of(state): Of<Arc<State>>, request: Request) -> Response {
    match statement(&state, request).await.and_then(|statement| answer(&statement)) {
        Ok(result) => respond(StatusCode::OK, Some(&json!({"results": [result]}))),
        Err(failure) => failure.respond(Dialect::V1),
    }
}

/// The parameter `q`, of the URI or of a form in the body.
async fn statement(state: &State, request: Request) -> Result<String, InfluxError> {
    let of_uri = Params::parse(request.uri().query().unwrap_or_default());
    if let Some(statement) = of_uri.get("q") {
        return Ok(statement.to_owned());
    }
    let limits = state.limits.bodies.at_most(state.limits.question_bytes_max);
    let body = body::read(request, &limits).await?;
    let of_form = Params::parse(&String::from_utf8_lossy(&body));
    let missing = || InfluxError::new(StatusCode::BAD_REQUEST, "missing required parameter \"q\"");
    of_form.get("q").map(str::to_owned).ok_or_else(missing)
}

fn answer(statement: &str) -> Result<serde_json::Value, InfluxError> {
    let mut words = statement.trim().trim_end_matches(';').split_ascii_whitespace().map(str::to_ascii_uppercase);
    match (words.next().as_deref(), words.next().as_deref()) {
        (Some("CREATE"), Some("DATABASE")) => Ok(json!({"statement_id": 0})),
        (Some("SHOW"), Some("DATABASES")) => {
            let series = json!({"name": "databases", "columns": ["name"], "values": [[DATABASE]]});
            Ok(json!({"statement_id": 0, "series": [series]}))
        }
        _ => {
            let shown: String = statement.chars().take(128).collect();
            let what = format!(
                "error parsing query: found '{shown}', expected CREATE DATABASE or SHOW DATABASES, which is all the \
                 InfluxQL that is understood here; ask in SQL at /api/sql"
            );
            Err(InfluxError::new(StatusCode::BAD_REQUEST, what))
        }
    }
}
