//! Errors in the form that OpenTSDB's clients expect: `{"error":{"code":400,"message":"...","details":"..."}}`.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use telem_engine::NameKind;
use telem_ingest::writer::WriteError;
use telem_query::tsq::Fidelity;

use super::{JSON, TEXT, json};
use crate::http::ApiError;

#[derive(Clone, Debug, PartialEq)]
pub struct OpenTsdbError {
    pub status: StatusCode,
    pub message: String,
    pub details: Option<String>,
    /// When it makes sense to try again, for the header `Retry-After`.
    pub retry_after: Option<Duration>,
    shape: Shape,
}

/// How it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Api,
    /// `{"err":"..."}`, where a path from before the API is asked for JSON.
    OldJson,
    /// A few lines of text, where it is not.
    OldText,
}

/// What a path from before the API writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldFormat {
    Text,
    Json,
}

impl OpenTsdbError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        OpenTsdbError { status, message: message.into(), details: None, retry_after: None, shape: Shape::Api }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        OpenTsdbError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A wrong request that makes OpenTSDB itself fail: 400, and 500 where its answers are to be reproduced.
    pub fn unforeseen(fidelity: Fidelity, message: impl Into<String>) -> Self {
        match fidelity {
            Fidelity::Sensible => OpenTsdbError::bad_request(message),
            Fidelity::OpenTsdb => OpenTsdbError::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }

    pub fn not_json(details: impl Into<String>) -> Self {
        OpenTsdbError::bad_request("Unable to parse the given JSON").details(details)
    }

    pub fn method_not_allowed(method: &Method) -> Self {
        OpenTsdbError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
            .details(format!("The HTTP method [{method}] is not permitted for this endpoint"))
    }

    /// A name that no series carries; the status is the endpoint's choice.
    pub fn unknown_name(status: StatusCode, kind: NameKind, name: &str) -> Self {
        let text = no_such_name(kind, name);
        OpenTsdbError::new(status, text.clone()).details(text)
    }

    pub fn details(self, details: impl Into<String>) -> Self {
        OpenTsdbError { details: Some(details.into()), ..self }
    }

    /// A browser's page asked, which nobody named among those that may. Browsers take the status for the server's.
    pub fn strange_page(origin: &str) -> Self {
        OpenTsdbError::new(StatusCode::OK, "CORS domain not allowed")
            .details(format!("The domain [{origin}] is not permitted access"))
    }

    /// As a path from before the API tells it: 400 whatever was wrong with the request.
    pub fn of_old(self, format: OldFormat) -> Self {
        let status = if self.status.is_client_error() { StatusCode::BAD_REQUEST } else { self.status };
        let shape = match format {
            OldFormat::Json => Shape::OldJson,
            OldFormat::Text => Shape::OldText,
        };
        OpenTsdbError { status, shape, ..self }
    }

    /// The type of [`OpenTsdbError::body`].
    pub fn kind(&self) -> &'static str {
        if self.shape == Shape::OldText { TEXT } else { JSON }
    }

    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.shape {
            Shape::Api => return self.json(),
            Shape::OldJson => json::string_map(&mut out, [("err", self.message.as_str())]),
            Shape::OldText => {
                for line in std::iter::once(&self.message).chain(&self.details) {
                    out.extend_from_slice(line.as_bytes());
                    out.push(b'\n');
                }
            }
        }
        out
    }

    fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(b"{\"error\":{\"code\":");
        json::int(&mut out, self.status.as_u16().into());
        out.extend_from_slice(b",\"message\":");
        json::string(&mut out, &self.message);
        if let Some(details) = &self.details {
            out.extend_from_slice(b",\"details\":");
            json::string(&mut out, details);
        }
        out.extend_from_slice(b"}}");
        out
    }
}

/// OpenTSDB's words for a name that was never seen.
pub fn no_such_name(kind: NameKind, name: &str) -> String {
    let kind = match kind {
        NameKind::Metric => "metrics",
        NameKind::TagKey => "tagk",
        NameKind::TagValue => "tagv",
    };
    format!("No such name for '{kind}': '{name}'")
}

impl From<ApiError> for OpenTsdbError {
    fn from(error: ApiError) -> Self {
        OpenTsdbError { retry_after: error.retry_after, ..OpenTsdbError::new(error.status, error.message) }
    }
}

/// Where an answer has no place for OpenTSDB's form of an error.
impl From<OpenTsdbError> for ApiError {
    fn from(failure: OpenTsdbError) -> Self {
        ApiError { status: failure.status, message: failure.message, retry_after: failure.retry_after }
    }
}

impl From<WriteError> for OpenTsdbError {
    fn from(error: WriteError) -> Self {
        ApiError::of_kind(error.kind(), error.to_string()).into()
    }
}

impl From<telem_query::Error> for OpenTsdbError {
    fn from(error: telem_query::Error) -> Self {
        match &error {
            telem_query::Error::UnknownName { kind, name } => {
                OpenTsdbError::unknown_name(StatusCode::BAD_REQUEST, *kind, name)
            }
            telem_query::Error::Infinite { at_millis, value } => {
                OpenTsdbError::bad_request(format!("Got Infinity: {value} at {at_millis} ms"))
                    .details(error.to_string())
            }
            _ => ApiError::from(error).into(),
        }
    }
}
