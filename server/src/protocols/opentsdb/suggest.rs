//! `/api/suggest`: names that start with a prefix or, in a view of the API, that contain a text.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use serde::Deserialize;
use telem_engine::NameKind;
use telem_ingest::decode::lenient::Text;

use super::call::{Call, Generation};
use super::errors::OpenTsdbError;
use super::{Answer, allow, json, names, text_body, walk};
use crate::state::State;

/// Names in an answer, unless the request says otherwise.
pub(crate) const MAX_DEFAULT: usize = 25;
/// Most names in an answer, whatever the request says.
pub(crate) const MAX_MAX: usize = 100_000;

/// How names are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuggestRule {
    /// The kind of names where none is asked for; `None`: that is an error.
    pub kind: Option<NameKind>,
    /// Names in an answer where the request does not say.
    pub max: usize,
    /// Whether `q` may stand anywhere in a name.
    pub anywhere: bool,
}

/// OpenTSDB's own.
pub(crate) const OPENTSDB: SuggestRule = SuggestRule { kind: None, max: MAX_DEFAULT, anywhere: false };

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SuggestQuery<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    q: Text<'a>,
    #[serde(borrow)]
    max: Text<'a>,
}

pub async fn answer(
    rule: SuggestRule,
    state: &Arc<State>,
    call: &Call,
    request: Request,
) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let body;
    let in_body = call.method == Method::POST && call.generation == Generation::Api;
    let (kind, prefix, max) = if in_body {
        body = text_body(state, request).await?;
        let wanted: SuggestQuery<'_> = super::body::from_json(&body)?;
        (wanted.kind.0, wanted.q.0, wanted.max.0)
    } else {
        let of = |name| call.params.get(name).map(std::borrow::Cow::Borrowed);
        (of("type"), of("q"), of("max"))
    };
    let kind = kind.filter(|kind| !kind.is_empty());
    if kind.is_none() && rule.kind.is_none() {
        let text = if in_body { "Missing 'type' parameter" } else { "Missing parameter <code>type</code>" };
        return Err(OpenTsdbError::bad_request(text));
    }
    let max = parse_max(max.as_deref(), rule.max)?;
    let kind = match (kind.as_deref(), rule.kind) {
        (None, Some(kind)) => kind,
        (Some("metrics"), _) => NameKind::Metric,
        (Some("tagk"), _) => NameKind::TagKey,
        (Some("tagv"), _) => NameKind::TagValue,
        (other, _) => {
            let other = other.unwrap_or_default();
            return Err(OpenTsdbError::bad_request(format!("Invalid 'type' parameter:{other}")));
        }
    };
    let (found_in, prefix) = (Arc::clone(state), prefix.unwrap_or_default().into_owned());
    walk(state, call, move |_| {
        let find = if rule.anywhere { names::containing } else { names::suggest };
        let names = find(&found_in, kind, &prefix, max);
        let mut out = Vec::new();
        json::list(&mut out, &names, |out, name| json::string(out, name));
        Ok(Answer::ok(out))
    })
    .await
}

fn parse_max(max: Option<&str>, default: usize) -> Result<usize, OpenTsdbError> {
    let Some(max) = max.filter(|max| !max.is_empty()) else { return Ok(default) };
    let max: i32 = max.parse().map_err(|_| {
        OpenTsdbError::bad_request("Unable to parse 'max' as a number").details(format!("found '{max}'"))
    })?;
    Ok(usize::try_from(max).ok().filter(|max| *max > 0).unwrap_or(default).min(MAX_MAX))
}
