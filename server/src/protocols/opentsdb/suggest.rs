//! `/api/suggest`: names that start with a prefix.

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

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let body;
    let in_body = call.method == Method::POST && call.generation == Generation::Api;
    let (kind, prefix, max) = if in_body {
        body = text_body(state, request).await?;
        let wanted: SuggestQuery<'_> = super::query::parse::from_json(&body)?;
        (wanted.kind.0, wanted.q.0, wanted.max.0)
    } else {
        let of = |name| call.params.get(name).map(std::borrow::Cow::Borrowed);
        (of("type"), of("q"), of("max"))
    };
    let kind = kind.filter(|kind| !kind.is_empty());
    let Some(kind) = kind else {
        let text = if in_body { "Missing 'type' parameter" } else { "Missing parameter <code>type</code>" };
        return Err(OpenTsdbError::bad_request(text));
    };
    let max = parse_max(max.as_deref())?;
    let kind = match kind.as_ref() {
        "metrics" => NameKind::Metric,
        "tagk" => NameKind::TagKey,
        "tagv" => NameKind::TagValue,
        other => return Err(OpenTsdbError::bad_request(format!("Invalid 'type' parameter:{other}"))),
    };
    let (found_in, prefix) = (Arc::clone(state), prefix.unwrap_or_default().into_owned());
    walk(state, call, move |_| {
        let names = names::suggest(&found_in, kind, &prefix, max);
        let mut out = Vec::new();
        json::list(&mut out, &names, |out, name| json::string(out, name));
        Ok(Answer::ok(out))
    })
    .await
}

fn parse_max(max: Option<&str>) -> Result<usize, OpenTsdbError> {
    let Some(max) = max.filter(|max| !max.is_empty()) else { return Ok(MAX_DEFAULT) };
    let max: i32 = max.parse().map_err(|_| {
        OpenTsdbError::bad_request("Unable to parse 'max' as a number").details(format!("found '{max}'"))
    })?;
    Ok(usize::try_from(max).ok().filter(|max| *max > 0).unwrap_or(MAX_DEFAULT).min(MAX_MAX))
}
