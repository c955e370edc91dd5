//! The parts that every endpoint shares: bodies within limits, parameters, the client's identity, and statuses of
//! errors.
//!
//! This module knows no protocol: `service/router.rs` maps paths to handlers.

pub mod asker;
pub mod body;
mod error;
mod params;
#[cfg(test)]
mod tests;

use axum::BoxError;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use bytes::Bytes;
use futures::{StreamExt, TryStream, TryStreamExt};
use telem_engine::ErrorKind;
use telem_ingest::default_tags::DefaultTags;

pub use self::error::ApiError;
pub use self::params::Params;

/// What the samples of a request get where they lack it, by the connection that it came over. Where jobs share the
/// server the module of their slots adds one.
pub fn default_tags(request: &Request) -> DefaultTags {
    request.extensions().get().cloned().unwrap_or_default()
}

/// A body that is sent part by part. The only way to make one: compression asks a stream once more after its end, which
/// most do not endure.
#[expect(clippy::disallowed_methods, reason = "this is where it is fused")]
pub fn streamed<S>(parts: S) -> Body
where
    S: TryStream + Send + 'static,
    S::Ok: Into<Bytes>,
    S::Error: Into<BoxError>,
{
    Body::from_stream(parts.into_stream().fuse())
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
