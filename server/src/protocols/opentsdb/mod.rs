//! The OpenTSDB 2.4 HTTP API, and its [`telnet`] protocol: what Grafana and OpenTSDB's clients speak.
//!
//! OpenTSDB's paths ignore case and a trailing slash, carry an optional version and may override
//! their method, so one handler takes everything below `/api` that no other protocol claims:
//! [`call`] reads what is asked, one file per endpoint answers it, [`errors`] renders what went wrong.

mod aggregators;
mod annotation;
mod call;
mod describe;
mod errors;
mod json;
mod last;
mod lookup;
mod put;
mod query;
mod suggest;
pub mod telnet;
#[cfg(test)]
mod tests;
mod time;
mod tsuid;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as FromState};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::StreamExt;
use telem_engine::ErrorKind;
use telem_query::tsq::Fidelity;

pub use self::call::Params;
use self::call::{Call, Endpoint};
use self::errors::Failure;
use crate::answers::Held;
use crate::http::ApiError;
use crate::state::{ServerLimits, State};

/// Every path under `/api`, and the older names without it that OpenTSDB still answers.
pub fn routes() -> Router<Arc<State>> {
    let mut router = Router::new();
    for path in
        ["/api", "/api/", "/api/{*rest}", "/API", "/API/", "/API/{*rest}", "/aggregators", "/suggest", "/version"]
    {
        router = router.route(path, any(answer));
    }
    router
}

/// What an endpoint answers when all is well: JSON, or nothing (204).
struct Answer {
    status: StatusCode,
    json: Vec<u8>,
    /// In place of `json`, what is sent while it is made.
    pieces: Option<query::Pieces>,
    /// Nodes that did not answer, for the header `X-Telem-Missing`.
    missing: Option<HeaderValue>,
    /// What a large answer holds of the memory for answers.
    held: Option<Held>,
}

impl Answer {
    fn ok(json: Vec<u8>) -> Self {
        Answer::with_status(StatusCode::OK, json)
    }

    fn with_status(status: StatusCode, json: Vec<u8>) -> Self {
        Answer { status, json, pieces: None, missing: None, held: None }
    }

    fn no_content() -> Self {
        Answer::with_status(StatusCode::NO_CONTENT, Vec::new())
    }
}

async fn answer(FromState(state): FromState<Arc<State>>, request: Request) -> Response {
    let call = Call::read(&request);
    // Only where the original is asked for: a page that shows such an answer as a script reads it. Browsers tell
    // when another site's page asks (see `net::access`), old ones do not.
    let wanted = state.fidelity == Fidelity::OpenTsdb;
    let callback = call.as_ref().ok().filter(|_| wanted).and_then(Call::callback);
    let answer = match call {
        Ok(call) => dispatch(&state, &call, request).await,
        Err(failure) => Err(failure),
    };
    respond(answer, callback.as_deref())
}

async fn dispatch(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, Failure> {
    match call.endpoint {
        Endpoint::Put => put::answer(state, call, request).await,
        Endpoint::Query => query::answer(state, call, request).await,
        Endpoint::Last => last::answer(state, call, request).await,
        Endpoint::Annotation => annotation::one(state, call, request).await,
        Endpoint::Annotations => annotation::bulk(state, call, request).await,
        Endpoint::Suggest => suggest::answer(state, call, request).await,
        Endpoint::Lookup => lookup::answer(state, call, request).await,
        Endpoint::Search(ref kind) => Err(lookup::other(kind)),
        Endpoint::Aggregators => describe::aggregators(call),
        Endpoint::Filters => describe::filters(call),
        Endpoint::Config => describe::config(state, call),
        Endpoint::Version => describe::version(state, call),
        Endpoint::DropCaches => describe::drop_caches(call),
    }
}

fn respond(answer: Result<Answer, Failure>, callback: Option<&str>) -> Response {
    let (status, body, pieces, missing, retry_after) = match answer {
        Ok(Answer { status, json, pieces, missing, held }) => {
            let body = match held {
                Some(held) => held.around(json),
                None => Bytes::from(json),
            };
            (status, body, pieces, missing, None)
        }
        Err(failure) => (failure.status, Bytes::from(failure.json()), None, None, failure.retry_after),
    };
    let kind = match callback {
        None => "application/json; charset=UTF-8",
        Some(_) => "application/javascript; charset=UTF-8",
    };
    let kind = [(header::CONTENT_TYPE, kind)];
    let around = callback.map(|callback| [format!("{callback}("), ")".to_owned()]);
    let mut response = match (pieces, around) {
        (Some(pieces), None) => (status, kind, Body::from_stream(pieces)).into_response(),
        (Some(pieces), Some(around)) => {
            let [before, behind] = around.map(|text| futures::stream::iter([Ok(Bytes::from(text))]));
            // Fused: compression asks once more after the end.
            (status, kind, Body::from_stream(before.chain(pieces).chain(behind).fuse())).into_response()
        }
        (None, _) if body.is_empty() => status.into_response(),
        (None, None) => (status, kind, body).into_response(),
        (None, Some([before, behind])) => {
            let wrapped = [before.as_bytes(), &body, behind.as_bytes()].concat();
            (status, kind, wrapped).into_response()
        }
    };
    if let Some(missing) = missing {
        response.headers_mut().insert("x-telem-missing", missing);
    }
    if let Some(after) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}

/// Refuses every method but these.
fn allow(call: &Call, methods: &[Method]) -> Result<(), Failure> {
    if methods.contains(&call.method) { Ok(()) } else { Err(Failure::method_not_allowed(&call.method)) }
}

/// The text of a JSON body that asks something, no longer than a question may be.
async fn text_body(state: &State, request: Request) -> Result<String, Failure> {
    let bytes_max = state.limits.question_bytes_max.min(state.limits.body_bytes_max);
    let limits = ServerLimits { body_bytes_max: bytes_max, ..state.limits.clone() };
    let body = crate::http::body::read(request, &limits).await.map_err(|error| match error.status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = format!("the body is larger than {bytes_max} bytes, the most that a question may take");
            Failure::new(error.status, text).details("ask for less in one request")
        }
        _ => error.into(),
    })?;
    if body.is_empty() {
        return Err(Failure::bad_request("Missing message content")
            .details("Supply valid JSON formatted data in the body of your request"));
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Does `work` beside the threads of the network, where it would delay every other connection.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let bug = |panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}"));
    tokio::task::spawn_blocking(work).await.map_err(bug)?
}
