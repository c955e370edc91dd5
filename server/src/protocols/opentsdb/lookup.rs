//! `/api/search/lookup`: the series of a metric and tags, any of which may be anything.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use telem_engine::{NameKind, SeriesIndex, SeriesKey, TagPredicate};
use telem_ingest::decode::lenient::{Long, Text};
use telem_query::tsq::Fidelity;

use super::call::Call;
use super::errors::{Failure, no_such_name};
use super::query::defined_by_telem;
use super::query::parse::AtMost;
use super::{Answer, allow, beside, json, text_body, tsuid};
use crate::state::State;

/// Series in an answer, unless the request says otherwise.
const LIMIT_DEFAULT: usize = 25;
/// Most series in one answer, also when the request sets no limit.
const LIMIT_MAX: usize = 100_000;

/// Most tags in one search.
const TAGS_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    /// `None` for any; shown as it was asked.
    metric: Option<String>,
    tags: Vec<Tag>,
    /// As asked; 0 is as many as there are.
    limit: usize,
}

/// A key, a value, or both; `None` is any.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tag {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    metric: Text<'a>,
    #[serde(borrow)]
    tags: Option<AtMost<BodyTag<'a>, { TAGS_MAX + 1 }>>,
    limit: Option<Long>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BodyTag<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
}

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, Failure> {
    allow(call, &[Method::GET, Method::POST])?;
    let wanted = if call.method == Method::POST && request.method() == Method::POST {
        from_body(&text_body(state, request).await?)?
    } else {
        from_params(call)?
    };
    if wanted.tags.len() > TAGS_MAX {
        return Err(Failure::bad_request(format!("more than {TAGS_MAX} tags in one search")));
    }
    let started = state.clock.monotonic();
    let fidelity = call.fidelity(state.fidelity);
    let state = Arc::clone(state);
    // A metric may have millions of series.
    beside(move || {
        let index = state.db.index();
        let keys = find(index, &wanted, fidelity)?;
        let took = state.clock.monotonic().saturating_sub(started);
        Ok(Answer::ok(render(index, &wanted, &keys, took)))
    })
    .await
}

/// A search for something else.
pub fn other(kind: &str) -> Failure {
    match kind {
        "tsmeta" | "tsmeta_summary" | "tsuids" | "uidmeta" | "annotation" => {
            Failure::bad_request("Searching is not enabled").details("Searching has not been enabled on this TSD")
        }
        _ => Failure::bad_request("Invalid search query type supplied").details(format!("Unknown type: {kind}")),
    }
}

fn from_params(call: &Call) -> Result<Wanted, Failure> {
    let (metric, tags) =
        parse(call.params.required("m")?).map_err(|why| Failure::bad_request("Unable to parse query").details(why))?;
    let limit = match call.params.get("limit").filter(|limit| !limit.is_empty()) {
        None => LIMIT_DEFAULT,
        Some(limit) => {
            let limit: i32 =
                limit.parse().map_err(|_| Failure::bad_request("Unable to convert 'limit' to a valid number"))?;
            usize::try_from(limit).unwrap_or(0)
        }
    };
    Ok(Wanted { metric, tags, limit })
}

fn from_body(body: &str) -> Result<Wanted, Failure> {
    let body: Body<'_> = super::query::parse::from_json(body)?;
    let some = |text: Text<'_>| text.0.map(Cow::into_owned);
    let any = |name: Option<String>| name.filter(|name| !matches!(name.as_str(), "" | "*"));
    let tags = body.tags.unwrap_or_default().0.into_iter();
    Ok(Wanted {
        metric: Some(some(body.metric).filter(|metric| !metric.is_empty()).unwrap_or_else(|| "*".to_owned())),
        tags: tags.map(|tag| Tag { key: any(some(tag.key)), value: any(some(tag.value)) }).collect(),
        limit: body.limit.map_or(LIMIT_DEFAULT, |limit| usize::try_from(limit.0).unwrap_or(0)),
    })
}

/// `metric{key=value,...}`; either part may be missing, `*` and nothing are any.
fn parse(text: &str) -> Result<(Option<String>, Vec<Tag>), String> {
    let Some((metric, braces)) = text.split_once('{') else { return Ok((Some(text.to_owned()), Vec::new())) };
    let inner = braces.strip_suffix('}').ok_or_else(|| format!("Missing '}}' at the end of: {text}"))?;
    if metric.is_empty() && inner.is_empty() {
        return Err(format!("Missing metric and tags: {text}"));
    }
    let metric = (!metric.is_empty()).then(|| metric.to_owned());
    if inner.is_empty() {
        return Ok((metric, Vec::new()));
    }
    let tags = inner.split(',').map(parse_tag).collect::<Result<_, _>>()?;
    Ok((metric, tags))
}

fn parse_tag(tag: &str) -> Result<Tag, String> {
    let (key, value) = tag.split_once('=').ok_or_else(|| format!("When parsing tag '{tag}': invalid tag: {tag}"))?;
    if (key.is_empty() && value.is_empty()) || value.contains('=') {
        return Err(format!("When parsing tag '{tag}': invalid tag: {tag}"));
    }
    let name = |name: &str| (!matches!(name, "" | "*")).then(|| name.to_owned());
    Ok(Tag { key: name(key), value: name(value) })
}

/// The series, in canonical order, up to the limit.
fn find(index: &SeriesIndex, wanted: &Wanted, fidelity: Fidelity) -> Result<Vec<SeriesKey>, Failure> {
    let metric = wanted.metric.as_deref().filter(|metric| *metric != "*");
    match unknown_name(index, metric, &wanted.tags) {
        None => {}
        // Known before it has a sample: the variables of a dashboard are empty then, and no error.
        Some((kind, name)) if fidelity == Fidelity::Sensible && defined_by_telem(kind, name) => return Ok(Vec::new()),
        Some((kind, name)) => {
            return Err(Failure::new(StatusCode::NOT_FOUND, "Unable to resolve one or more UIDs")
                .details(no_such_name(kind, name)));
        }
    }
    let metrics = metric.map_or_else(|| index.metrics(), |metric| vec![Arc::from(metric)]);
    let most = if wanted.limit == 0 { LIMIT_MAX + 1 } else { wanted.limit.min(LIMIT_MAX + 1) };
    let accepts = by_key(&wanted.tags);
    let predicates: Vec<TagPredicate<'_>> =
        accepts.iter().map(|(key, accepts)| TagPredicate { key, accepts }).collect();
    let mut found = Vec::new();
    for metric in metrics {
        let ids = index.select(&metric, &predicates).into_iter();
        let keys = ids.filter_map(|id| index.key(id)).filter(|key| has_values(key, &wanted.tags));
        found.extend(keys.take(most - found.len()));
        if found.len() == most {
            break;
        }
    }
    if found.len() > LIMIT_MAX {
        return Err(Failure::bad_request(format!("more than {LIMIT_MAX} series match"))
            .details(format!("ask with a limit of {LIMIT_MAX} or less, or for more tags")));
    }
    Ok(found)
}

/// The first name that no series carries.
fn unknown_name<'a>(index: &SeriesIndex, metric: Option<&'a str>, tags: &'a [Tag]) -> Option<(NameKind, &'a str)> {
    let metric = metric.map(|metric| (NameKind::Metric, metric));
    let keys = tags.iter().filter_map(|tag| Some((NameKind::TagKey, tag.key.as_deref()?)));
    let values = tags.iter().filter_map(|tag| Some((NameKind::TagValue, tag.value.as_deref()?)));
    metric.into_iter().chain(keys).chain(values).find(|(kind, name)| !index.knows(*kind, name))
}

/// Says of a tag's value whether it was asked for.
type Accepts<'a> = Box<dyn Fn(&str) -> bool + 'a>;

/// One predicate for each key. A key that is asked for several times may have any of the values:
/// Grafana writes a choice of several so.
fn by_key(tags: &[Tag]) -> Vec<(&str, Accepts<'_>)> {
    let mut keys: Vec<&str> = tags.iter().filter_map(|tag| tag.key.as_deref()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|key| {
            let values: Vec<Option<&str>> =
                tags.iter().filter(|tag| tag.key.as_deref() == Some(key)).map(|tag| tag.value.as_deref()).collect();
            let any = values.contains(&None);
            let accepts: Accepts<'_> = Box::new(move |value| any || values.contains(&Some(value)));
            (key, accepts)
        })
        .collect()
}

/// Whether every value that was asked for without a key stands at some key.
fn has_values(key: &SeriesKey, tags: &[Tag]) -> bool {
    let loose = tags.iter().filter(|tag| tag.key.is_none()).filter_map(|tag| tag.value.as_deref());
    loose.into_iter().all(|wanted| key.tags().iter().any(|(_, value)| value == wanted))
}

fn render(index: &SeriesIndex, wanted: &Wanted, keys: &[SeriesKey], took: Duration) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + keys.len() * 128);
    out.extend_from_slice(b"{\"type\":\"LOOKUP\"");
    if let Some(metric) = &wanted.metric {
        out.extend_from_slice(b",\"metric\":");
        json::string(&mut out, metric);
    }
    out.extend_from_slice(b",\"tags\":");
    json::list(&mut out, &wanted.tags, |out, tag| {
        let shown = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
        json::string_map(out, [("key", shown(&tag.key).as_str()), ("value", shown(&tag.value).as_str())]);
    });
    out.extend_from_slice(b",\"limit\":");
    json::int(&mut out, i64::try_from(wanted.limit).unwrap_or(i64::MAX));
    out.extend_from_slice(b",\"time\":");
    json::float(&mut out, took.as_millis() as f64);
    out.extend_from_slice(b",\"results\":");
    json::list(&mut out, keys, |out, key| {
        out.extend_from_slice(b"{\"tsuid\":");
        json::string(out, &tsuid::of(index, key));
        out.extend_from_slice(b",\"metric\":");
        json::string(out, key.metric());
        out.extend_from_slice(b",\"tags\":");
        json::string_map(out, key.tags().iter());
        out.push(b'}');
    });
    out.extend_from_slice(b",\"startIndex\":0,\"totalResults\":");
    json::int(&mut out, i64::try_from(keys.len()).unwrap_or(i64::MAX));
    out.push(b'}');
    out
}
