//! Answers and errors in the forms that InfluxDB's clients read: `{"error":"..."}` of 1.x,
//! `{"code":"invalid","message":"..."}` of 2.x, and `{"error":"...","data":[...]}` of 3.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};
use telem_ingest::writer::WriteError;

use crate::http::ApiError;
use crate::state::VERSION;

/// How much of an error is in the header that 1.x has for it.
const ERROR_HEADER_BYTES_MAX: usize = 1_024;

/// Which InfluxDB the client takes us for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V1,
    V2,
    V3,
}

/// Why a request is not answered as it wished.
#[derive(Clone, Debug)]
pub struct InfluxError {
    pub status: StatusCode,
    pub message: String,
    /// The first line of the body with a fault, from 1.
    pub line: Option<usize>,
    /// The lines with faults, as 3 tells them.
    pub data: Option<Box<Json>>,
    pub retry_after: Option<Duration>,
}

impl InfluxError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), line: None, data: None, retry_after: None }
    }

    pub fn respond(&self, dialect: Dialect) -> Response {
        let body = match dialect {
            Dialect::V1 => json!({"error": self.message}),
            Dialect::V2 => {
                let mut body = json!({"code": code(self.status), "message": self.message});
                if let Some(line) = self.line {
                    body["line"] = line.into();
                }
                body
            }
            Dialect::V3 => {
                let mut body = json!({"error": self.message});
                if let Some(data) = &self.data {
                    body["data"] = Json::clone(data);
                }
                body
            }
        };
        let mut response = respond(self.status, Some(&body));
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        if dialect == Dialect::V1 {
            let one_line: Vec<u8> = self.message.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
            let shown = &one_line[..one_line.len().min(ERROR_HEADER_BYTES_MAX)];
            if let Ok(shown) = HeaderValue::from_bytes(shown) {
                headers.insert("x-influxdb-error", shown);
            }
        }
        response
    }
}

impl From<ApiError> for InfluxError {
    fn from(error: ApiError) -> Self {
        Self { status: error.status, message: error.message, line: None, data: None, retry_after: error.retry_after }
    }
}

impl From<WriteError> for InfluxError {
    fn from(error: WriteError) -> Self {
        ApiError::of_kind(error.kind(), error.to_string()).into()
    }
}

/// The words of 2.x for a status.
fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported media type",
        _ => "internal error",
    }
}

/// An answer with the headers by which clients know InfluxDB. The version says whose API this is, and that it is not
/// that server.
pub fn respond(status: StatusCode, body: Option<&Json>) -> Response {
    let mut response = match body {
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response(),
        None => status.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert("x-influxdb-build", HeaderValue::from_static("telem"));
    if let Ok(version) = HeaderValue::from_str(&version()) {
        headers.insert("x-influxdb-version", version);
    }
    response
}

pub fn version() -> String {
    format!("1.8.0-telem.{VERSION}")
}
