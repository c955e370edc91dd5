//! Who answers which path, and how an error becomes a status. Nothing else: each protocol is a folder of its own.
//!
//! The router knows no connections and checks no rights: the net module does that before a request comes here.

pub mod asker;
pub mod body;
mod error;
mod params;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use telem_engine::ErrorKind;
use telem_ingest::default_tags::DefaultTags;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

pub use self::error::ApiError;
pub use self::params::Params;
use crate::protocols;
use crate::state::State;

/// Every path of the server. Answers are compressed for clients that ask for gzip.
pub fn router(state: Arc<State>) -> Router {
    router_with(state, Router::new())
}

/// As [`router`], with paths of the process: what nodes say to each other.
pub fn router_with(state: Arc<State>, own: Router) -> Router {
    Router::new()
        .merge(protocols::influx::routes())
        .merge(protocols::info::routes())
        .merge(protocols::opentsdb::routes())
        .merge(protocols::sql::routes())
        .merge(own.with_state(()))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(CompressionLayer::new())
        .with_state(state)
}

/// What the samples of a request get where they lack it, by the connection that it came over.
pub fn default_tags(request: &Request) -> DefaultTags {
    request.extensions().get().cloned().unwrap_or_default()
}

/// The one place where a kind of error becomes an HTTP status.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Busy | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("nothing is served at '{}'", uri.path()))
}

async fn unknown_method(request: Request) -> ApiError {
    let what = format!("'{}' does not answer to {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what)
}

/// A handler that panics costs its request an answer 500, never the server.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    tracing::error!(panic = text, "a request handler panicked");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("bug in telem: {text}")).into_response()
}
