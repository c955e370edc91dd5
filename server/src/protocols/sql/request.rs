//! The parts of a request: the SQL, and the format and the order of the answer.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use serde::Deserialize;
use telem_query::RowOrder;

use crate::http::ApiError;
use crate::rows::Format;

#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    pub sql: String,
    pub format: Format,
    pub order: RowOrder,
    /// Whether an answer that lacks nodes is an error.
    pub strict: bool,
}

/// What the head of a request says about the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    query: Option<Format>,
    accept: Option<Format>,
    order: RowOrder,
    strict: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonBody {
    sql: String,
    format: Option<String>,
}

impl Wishes {
    /// # Errors
    /// 400 for a `format`, an `order` or a `strict` that does not exist.
    pub fn of(request: &Request) -> Result<Wishes, ApiError> {
        let query = request.uri().query().unwrap_or("");
        let mut wishes = Wishes::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "format" => wishes.query = Some(known(value)?),
                "order" => wishes.order = order(value)?,
                "strict" => wishes.strict = strict(value)?,
                _ => {}
            }
        }
        let accept = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        wishes.accept = accept.flat_map(|value| value.split(',')).find_map(accepted);
        Ok(wishes)
    }
}

/// The question in `body`.
///
/// # Errors
/// 400 when it is empty, not UTF-8, or JSON of another shape.
pub fn parse(body: &[u8], wishes: Wishes) -> Result<Question, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| bad(format!("the SQL is not UTF-8: {error}")))?;
    let (sql, in_body) = if text.trim_start().starts_with('{') {
        let json: JsonBody = serde_json::from_str(text)
            .map_err(|error| bad(format!("the body is no {{\"sql\":\"...\",\"format\":\"...\"}}: {error}")))?;
        (json.sql, json.format.as_deref().map(known).transpose()?)
    } else {
        (text.to_owned(), None)
    };
    if sql.trim().is_empty() {
        return Err(bad("no SQL: send it as the body, as text or as JSON {\"sql\":\"SELECT ...\"}".to_owned()));
    }
    let format = wishes.query.or(in_body).or(wishes.accept).unwrap_or(Format::Json);
    Ok(Question { sql, format, order: wishes.order, strict: wishes.strict })
}

fn order(name: &str) -> Result<RowOrder, ApiError> {
    match name {
        "any" => Ok(RowOrder::Any),
        "stored" => Ok(RowOrder::Stored),
        _ => Err(bad(format!("order '{name}' does not exist; there are any, stored"))),
    }
}

fn strict(value: &str) -> Result<bool, ApiError> {
    value.parse().map_err(|_| bad(format!("strict '{value}' does not exist; there are true, false")))
}

fn known(name: &str) -> Result<Format, ApiError> {
    Format::by_name(name).ok_or_else(|| {
        let all = Format::ALL.map(Format::name).join(", ");
        bad(format!("format '{name}' does not exist; there are {all}"))
    })
}

/// The format of one media range; weights are ignored, the order counts.
fn accepted(range: &str) -> Option<Format> {
    let media = range.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match media.as_str() {
        "application/json" => Some(Format::Json),
        "application/x-ndjson" | "application/jsonl" | "application/ndjson" => Some(Format::Ndjson),
        "text/csv" => Some(Format::Csv),
        "application/vnd.apache.arrow.stream" => Some(Format::Arrow),
        "application/vnd.apache.parquet" => Some(Format::Parquet),
        _ => None,
    }
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}
