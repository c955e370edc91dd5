//! The error of endpoints without a format of their own: `{"error":{"code":404,"message":"..."}}`.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use telem_engine::ErrorKind;

use super::status;

/// How long a client that met a full queue should wait before it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A refusal or a failure, ready to be sent. Protocols with an error format of their own read its fields.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub status: StatusCode,
    /// What happened, to what, found against expected, what to do.
    pub message: String,
    /// When it makes sense to try again, for the header `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None }
    }

    pub fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retry_after = (kind == ErrorKind::Busy).then_some(RETRY_AFTER);
        Self { status: status(kind), message: message.into(), retry_after }
    }

    /// `{"error":{"code":...,"message":"..."}}`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"error": {"code": self.status.as_u16(), "message": self.message}})
    }
}

impl From<telem_engine::Error> for ApiError {
    fn from(error: telem_engine::Error) -> Self {
        Self::of_kind(error.kind(), error.to_string())
    }
}

impl From<telem_query::Error> for ApiError {
    fn from(error: telem_query::Error) -> Self {
        Self::of_kind(error.kind(), error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = (header::CONTENT_TYPE, "application/json; charset=UTF-8");
        let mut response = (self.status, [json], self.to_json().to_string()).into_response();
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
