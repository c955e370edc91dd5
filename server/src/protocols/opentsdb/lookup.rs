//! `/api/search/lookup`: the series of a metric and tags, any of which may be a wildcard.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use telem_engine::{NameKind, SeriesIndex, SeriesKey, TagPredicate};
use telem_ingest::decode::lenient::{Long, Text};
use telem_query::tsq::Fidelity;

use super::body::AtMost;
use super::call::{Call, required};
use super::errors::{OpenTsdbError, no_such_name};
use super::query::defined_by_telem;
use super::{Answer, has_body, json, names, text_body, tsuid, walk};
use crate::state::State;
use crate::walks::StopSign;

/// Series in an answer, unless the request says otherwise.
pub(crate) const LIMIT_DEFAULT: i64 = 25;
/// Most series in one answer, also when the request sets no limit.
pub(crate) const LIMIT_MAX: usize = 100_000;

/// Series that are looked at between two looks at whether the answer is still wanted.
const SERIES_BETWEEN_LOOKS: usize = 4_096;

/// Most tags in one search.
pub(crate) const TAGS_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
struct LookupQuery {
    /// `None` for any; shown as it was asked.
    metric: Option<String>,
    tags: Vec<Tag>,
    /// As asked; 0 or less is as many as there are.
    limit: i64,
    /// Only repeated: everything is in the first answer.
    start_index: i64,
}

/// A key, a value, or both, as they were asked.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tag {
    shown_key: Option<String>,
    shown_value: Option<String>,
}

impl Tag {
    /// `None` for any.
    fn key(&self) -> Option<&str> {
        given(self.shown_key.as_deref())
    }

    /// `None` for any.
    fn value(&self) -> Option<&str> {
        given(self.shown_value.as_deref())
    }
}

fn given(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !matches!(*name, "" | "*"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LookupBody<'a> {
    #[serde(borrow)]
    metric: Text<'a>,
    #[serde(borrow)]
    tags: Option<AtMost<BodyTag<'a>, { TAGS_MAX + 1 }>>,
    limit: Option<Long>,
    start_index: Long,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BodyTag<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
}

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow_search(call)?;
    let wanted = if has_body(&request) { from_body(&text_body(state, request).await?)? } else { from_params(call)? };
    if wanted.tags.len() > TAGS_MAX {
        return Err(OpenTsdbError::bad_request(format!("more than {TAGS_MAX} tags in one search")));
    }
    let started = state.clock.monotonic();
    let fidelity = call.fidelity(state.fidelity);
    let searched = Arc::clone(state);
    // A metric may have millions of series.
    walk(state, call, move |stop| {
        let index = searched.index();
        let keys = find(&searched, &wanted, fidelity, stop)?;
        let took = searched.clock.monotonic().saturating_sub(started);
        stop.check()?;
        Ok(Answer::ok(render(&index, &wanted, &keys, took)))
    })
    .await
}

fn allow_search(call: &Call) -> Result<(), OpenTsdbError> {
    let refused = || OpenTsdbError::new(StatusCode::METHOD_NOT_ALLOWED, "Unsupported method");
    if matches!(call.method, Method::GET | Method::POST) { Ok(()) } else { Err(refused()) }
}

/// A search for something else: refused as by an OpenTSDB without the plugin, once it makes sense.
pub async fn other(state: &State, call: &Call, kind: &str, request: Request) -> Result<Answer, OpenTsdbError> {
    allow_search(call)?;
    let unknown = |details: String| OpenTsdbError::bad_request("Invalid search query type supplied").details(details);
    match kind {
        "tsmeta" | "tsmeta_summary" | "tsuids" | "uidmeta" | "annotation" => {}
        "" => return Err(unknown("Type provided was null or empty".to_owned())),
        _ => return Err(unknown(format!("Unknown type: {kind}"))),
    }
    if has_body(&request) {
        super::body::from_json::<IgnoredAny>(&text_body(state, request).await?)?;
    } else {
        required(&call.params, "query")?;
        number(call, "limit")?;
        number(call, "start_index")?;
    }
    Err(OpenTsdbError::bad_request("Searching is not enabled").details("Searching has not been enabled on this TSD"))
}

/// A parameter that is a number, if it is there.
fn number(call: &Call, name: &str) -> Result<Option<i64>, OpenTsdbError> {
    let wrong = |_| OpenTsdbError::bad_request(format!("Unable to convert '{name}' to a valid number"));
    call.params.get(name).map(|text| text.parse::<i32>().map(i64::from).map_err(wrong)).transpose()
}

fn from_params(call: &Call) -> Result<LookupQuery, OpenTsdbError> {
    let (metric, tags) = parse(required(&call.params, "m")?)
        .map_err(|why| OpenTsdbError::bad_request("Unable to parse query").details(why))?;
    Ok(LookupQuery { metric, tags, limit: number(call, "limit")?.unwrap_or(LIMIT_DEFAULT), start_index: 0 })
}

fn from_body(body: &str) -> Result<LookupQuery, OpenTsdbError> {
    let body: LookupBody<'_> = super::body::from_json(body)?;
    let some = |text: Text<'_>| text.0.map(Cow::into_owned);
    let tags = body.tags.unwrap_or_default().0.into_iter();
    Ok(LookupQuery {
        metric: Some(some(body.metric).filter(|metric| !metric.is_empty()).unwrap_or_else(|| "*".to_owned())),
        tags: tags.map(|tag| Tag { shown_key: some(tag.key), shown_value: some(tag.value) }).collect(),
        limit: body.limit.map_or(LIMIT_DEFAULT, |limit| limit.0),
        start_index: body.start_index.0,
    })
}

/// `metric{key=value,...}`; either part may be missing, `*` and nothing are any.
fn parse(text: &str) -> Result<(Option<String>, Vec<Tag>), String> {
    if text.is_empty() {
        return Err("Metric string was empty".to_owned());
    }
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
    if tag.len() < 2 {
        return Err(format!("When parsing tag '{tag}': Missing tag pair"));
    }
    let (key, value) = tag.split_once('=').ok_or_else(|| format!("When parsing tag '{tag}': invalid tag: {tag}"))?;
    if (key.is_empty() && value.is_empty()) || value.contains('=') {
        return Err(format!("When parsing tag '{tag}': invalid tag: {tag}"));
    }
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Ok(Tag { shown_key: name(key), shown_value: name(value) })
}

/// The series, in canonical order, up to the limit.
fn find(
    state: &State,
    wanted: &LookupQuery,
    fidelity: Fidelity,
    stop: &StopSign,
) -> Result<Vec<SeriesKey>, OpenTsdbError> {
    let index = state.index();
    let metric = wanted.metric.as_deref().filter(|metric| *metric != "*");
    match unknown_name(&index, metric, &wanted.tags) {
        None => {}
        // Known before it has a sample: the variables of a dashboard are empty then, and no error.
        Some((kind, name)) if fidelity == Fidelity::Sensible && defined_by_telem(kind, name) => return Ok(Vec::new()),
        Some((kind, name)) if names::is_assigned(&state.db, kind, name) => return Ok(Vec::new()),
        Some((kind, name)) => {
            return Err(OpenTsdbError::new(StatusCode::NOT_FOUND, "Unable to resolve one or more UIDs")
                .details(no_such_name(kind, name)));
        }
    }
    let metrics = metric.map_or_else(|| index.metrics(), |metric| vec![Arc::from(metric)]);
    let limit = usize::try_from(wanted.limit).ok().filter(|limit| *limit > 0);
    let most = limit.unwrap_or(usize::MAX).min(LIMIT_MAX + 1);
    let accepts = by_key(&wanted.tags);
    let predicates: Vec<TagPredicate<'_>> =
        accepts.iter().map(|(key, accepts)| TagPredicate { key, accepts, among: None }).collect();
    let mut found = Vec::new();
    for metric in metrics {
        stop.check()?;
        for ids in index.select(&metric, &predicates).chunks(SERIES_BETWEEN_LOOKS) {
            stop.check()?;
            let keys = ids.iter().filter_map(|id| index.key(*id)).filter(|key| has_values(key, &wanted.tags));
            found.extend(keys.take(most - found.len()));
        }
        if found.len() == most {
            break;
        }
    }
    if found.len() > LIMIT_MAX {
        return Err(OpenTsdbError::bad_request(format!("more than {LIMIT_MAX} series match"))
            .details(format!("ask with a limit of {LIMIT_MAX} or less, or for more tags")));
    }
    Ok(found)
}

/// The first name that no series carries.
fn unknown_name<'a>(index: &SeriesIndex, metric: Option<&'a str>, tags: &'a [Tag]) -> Option<(NameKind, &'a str)> {
    let metric = metric.map(|metric| (NameKind::Metric, metric));
    let keys = tags.iter().filter_map(|tag| Some((NameKind::TagKey, tag.key()?)));
    let values = tags.iter().filter_map(|tag| Some((NameKind::TagValue, tag.value()?)));
    metric.into_iter().chain(keys).chain(values).find(|(kind, name)| !index.knows(*kind, name))
}

/// Says of a tag's value whether it was asked for.
type NameFilter<'a> = Box<dyn Fn(&str) -> bool + 'a>;

/// One predicate for each key. A key that is asked for several times may have any of the values:
/// Grafana writes a choice of several so.
fn by_key(tags: &[Tag]) -> Vec<(&str, NameFilter<'_>)> {
    let mut keys: Vec<&str> = tags.iter().filter_map(Tag::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|key| {
            let values: Vec<Option<&str>> = tags.iter().filter(|tag| tag.key() == Some(key)).map(Tag::value).collect();
            let any = values.contains(&None);
            let accepts: NameFilter<'_> = Box::new(move |value| any || values.contains(&Some(value)));
            (key, accepts)
        })
        .collect()
}

/// Whether every value that was requested without a key belongs to some key.
fn has_values(key: &SeriesKey, tags: &[Tag]) -> bool {
    let loose = tags.iter().filter(|tag| tag.key().is_none()).filter_map(Tag::value);
    loose.into_iter().all(|wanted| key.tags().iter().any(|(_, value)| value == wanted))
}

fn render(index: &SeriesIndex, wanted: &LookupQuery, keys: &[SeriesKey], took: Duration) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + keys.len() * 128);
    out.extend_from_slice(b"{\"type\":\"LOOKUP\"");
    if let Some(metric) = &wanted.metric {
        out.extend_from_slice(b",\"metric\":");
        json::string(&mut out, metric);
    }
    out.extend_from_slice(b",\"tags\":");
    json::list(&mut out, &wanted.tags, |out, tag| {
        out.push(b'{');
        for (name, shown) in [("\"key\":", &tag.shown_key), (",\"value\":", &tag.shown_value)] {
            out.extend_from_slice(name.as_bytes());
            match shown {
                Some(text) => json::string(out, text),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    });
    out.extend_from_slice(b",\"limit\":");
    json::int(&mut out, wanted.limit);
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
    out.extend_from_slice(b",\"startIndex\":");
    json::int(&mut out, wanted.start_index);
    out.extend_from_slice(b",\"totalResults\":");
    json::int(&mut out, i64::try_from(keys.len()).unwrap_or(i64::MAX));
    out.push(b'}');
    out
}
