//! Answers and parameters of Metric Proxy's API: acknowledgements, refusals, JSON.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::live::ProxyLive;
use crate::http::body::{self, BodyLimits};
use crate::http::{self, ApiError, Params};
use crate::state::State;

/// What handlers get.
pub type ProxyState = axum::extract::State<Arc<ProxyLive>>;
/// What handlers of a part get that has a state of its own.
pub type PartState<T> = axum::extract::State<(Arc<ProxyLive>, Arc<T>)>;

/// The type of every answer in JSON.
pub const JSON: &str = "application/json; charset=utf-8";
/// What the original says of a body that is no JSON by its type.
pub const NO_JSON_TYPE: &str = "the request didn't have a JSON content type";
/// And of one that is none, or lacks something.
pub const BAD_JSON: &str = "error while parsing the JSON body";
/// Largest body.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// What was done, or why it was not.
#[derive(Debug, Serialize)]
struct Acknowledgement<'a> {
    operation: &'a str,
    success: bool,
}

/// It was done.
pub fn done(operation: &str) -> Response {
    acknowledge(StatusCode::OK, operation, true)
}

/// It was not done, and why.
pub fn refused(why: &str) -> Response {
    acknowledge(StatusCode::BAD_REQUEST, why, false)
}

/// The same with a status that says more.
pub fn failed(status: StatusCode, why: &str) -> Response {
    acknowledge(status, why, false)
}

fn acknowledge(status: StatusCode, operation: &str, success: bool) -> Response {
    let text = serde_json::to_string(&Acknowledgement { operation, success }).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, JSON)], text).into_response()
}

/// A value as JSON.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("an answer cannot be written: {error}")),
    }
}

/// Nothing is served at a path.
pub fn nothing_there() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// What stands behind a known first segment and means nothing: the original names the path.
pub async fn unknown_segment(uri: Uri) -> Response {
    let path = uri.path();
    // It decodes a path before it looks at it.
    refused(&percent_decoded(path.trim_end_matches('/')))
}

fn percent_decoded(path: &str) -> String {
    // A plus is itself in a path.
    let kept = path.replace('+', "%2B");
    url::form_urlencoded::parse(kept.as_bytes()).map(|(name, _)| name.into_owned()).next().unwrap_or_default()
}

/// The parameters of a request. Of two with one name the first counts, as in the original.
pub fn params(uri: &Uri) -> Params {
    Params::parse(uri.query().unwrap_or_default()).with_first()
}

/// A body in JSON.
///
/// # Errors
/// In the words of the original, or why it cannot be read at all.
pub async fn json_body<T: DeserializeOwned>(request: Request, limits: &BodyLimits) -> Result<T, String> {
    if !is_json(request.headers()) {
        return Err(NO_JSON_TYPE.to_owned());
    }
    let bytes = body::read(request, &limits.at_most(BODY_BYTES_MAX)).await.map_err(|error| error.message)?;
    serde_json::from_slice(&bytes).map_err(|_| BAD_JSON.to_owned())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// A request whose parameters come by GET in the query, or by POST in the body.
pub enum ProxyRequest<T> {
    Query(Params),
    Body(T),
    /// By another method.
    Other(Method),
}

/// # Errors
/// As [`json_body`].
pub async fn asked<T: DeserializeOwned>(request: Request, state: &State) -> Result<ProxyRequest<T>, String> {
    match *request.method() {
        // HEAD changes nothing, as in the original.
        Method::GET => Ok(ProxyRequest::Query(params(request.uri()))),
        Method::POST => json_body(request, &state.limits.bodies).await.map(ProxyRequest::Body),
        ref other => Ok(ProxyRequest::Other(other.clone())),
    }
}

/// Makes an answer beside the threads of the network, when its turn comes: it reads or writes the database.
pub async fn beside(live: Arc<ProxyLive>, work: impl FnOnce(&ProxyLive) -> Response + Send + 'static) -> Response {
    let walks = live.state.limits.walks.clone();
    let made = walks.render(move || Ok::<_, ApiError>(work(&live))).await;
    made.unwrap_or_else(|error| error.into_response())
}

/// Text that is sent part by part.
pub fn streamed(kind: &'static str, parts: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures::StreamExt;
    let body = http::streamed(parts.map(Ok::<_, std::convert::Infallible>));
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// The query of a request, taken apart, for handlers that need nothing else.
#[derive(Debug)]
pub struct RequestParams(pub Params);

impl<S: Send + Sync> FromRequest<S> for RequestParams {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(params(request.uri())))
    }
}
