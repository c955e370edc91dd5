//! `/api/query/last`: the newest sample of each requested series, from memory.
//!
//! OpenTSDB without its metadata tables answers nothing unless the request says how many hours to look back; telem does
//! the same where it must reproduce OpenTSDB's answers. Otherwise the newest sample counts, however old, and
//! `back_scan` only limits its age.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use telem_engine::{NameKind, SeriesId, SeriesIndex, SeriesKey, TagPredicate, Timestamp, Value};
use telem_ingest::decode::lenient::{Flag, Long, Text, TextMap};
use telem_query::tsq::Fidelity;

use super::body::{AtMost, from_json};
use super::call::Call;
use super::errors::OpenTsdbError;
use super::query::defined_by_telem;
use super::query::parse::{SUBS_MAX, TSUIDS_MAX};
use super::{Answer, allow, json, names, text_body, tsuid, walk};
use crate::state::State;
use crate::walks::StopSign;

/// Most series in one answer.
pub(crate) const SERIES_MAX: usize = 100_000;
const HOUR_SECONDS: i64 = 3_600;

#[derive(Clone, Debug, Default, PartialEq)]
struct LastQuery {
    subs: Vec<LastSubQuery>,
    /// Whether the answer has names and tags; without them only the TSUID identifies the series.
    resolve: bool,
    /// Hours; 0 means no limit.
    back_scan: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum LastSubQuery {
    /// `*` is any value of a tag.
    Metric {
        metric: String,
        tags: Vec<(String, String)>,
    },
    Tsuids(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LastBody<'a> {
    #[serde(borrow)]
    queries: Option<AtMost<BodySub<'a>, { SUBS_MAX + 1 }>>,
    resolve_names: Flag,
    back_scan: Option<Long>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BodySub<'a> {
    #[serde(borrow)]
    metric: Text<'a>,
    #[serde(borrow)]
    tags: Option<TextMap<'a>>,
    #[serde(borrow)]
    tsuids: Option<AtMost<Text<'a>, { TSUIDS_MAX + 1 }>>,
}

/// A sample of the answer.
struct NewestPoint {
    key: SeriesKey,
    time: Timestamp,
    value: Value,
}

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let fidelity = call.fidelity(state.fidelity);
    let wanted = if call.method == Method::POST && request.method() == Method::POST {
        from_body(&text_body(state, request).await?)?
    } else {
        from_params(call, fidelity)?
    };
    check(&wanted)?;
    let mut held = state.limits.answers.start();
    let (resolve, back_scan) = (wanted.resolve, wanted.back_scan);
    let asker = Arc::clone(state);
    // A metric may have millions of series.
    let ids = walk(state, call, move |stop| find(&asker, &wanted, fidelity, stop)).await?;
    let ids = if fidelity == Fidelity::OpenTsdb && back_scan == 0 { Vec::new() } else { ids };
    let last = state.queries.last(ids).await.map_err(crate::http::ApiError::from)?;
    let oldest = oldest(state.clock.now(), back_scan);
    let (index, samples) = (state.index(), last.samples);
    let rendered = state.limits.walks.render(move || {
        let newest = samples.into_iter().filter(|(_, time, _)| *time >= oldest);
        let newest: Vec<NewestPoint> = newest.map(|(key, time, value)| NewestPoint { key, time, value }).collect();
        let out = render(&index, &newest, resolve);
        held.grow(out.len())?;
        Ok::<_, OpenTsdbError>((out, held))
    });
    let (out, held) = rendered.await?;
    Ok(Answer { held: Some(held), ..Answer::ok(out) }.lacking(&last.missing))
}

fn from_params(call: &Call, fidelity: Fidelity) -> Result<LastQuery, OpenTsdbError> {
    let back_scan = match call.params.get("back_scan") {
        None => 0,
        Some(hours) => hours.parse::<i32>().map(|hours| u32::try_from(hours).unwrap_or(0)).map_err(|_| {
            OpenTsdbError::bad_request("Unable to parse back_scan parameter")
                .details(format!("found '{hours}', expected a number of hours"))
        })?,
    };
    let by_name = call.params.all("timeseries").map(|text| match series(text) {
        Ok((metric, tags)) => Ok(LastSubQuery::Metric { metric, tags }),
        Err(why) => Err((text, why)),
    });
    let mut subs = by_name
        .collect::<Result<Vec<LastSubQuery>, _>>()
        .map_err(|(text, why)| OpenTsdbError::unforeseen(fidelity, why).details(format!("in timeseries={text}")))?;
    for list in call.params.all("tsuids") {
        let tsuids: Vec<String> = list.split(',').filter(|tsuid| !tsuid.is_empty()).map(str::to_owned).collect();
        if !tsuids.is_empty() {
            subs.push(LastSubQuery::Tsuids(tsuids));
        }
    }
    let resolve = call.params.get("resolve").is_some_and(|value| value != "false" || fidelity == Fidelity::OpenTsdb);
    Ok(LastQuery { subs, resolve, back_scan })
}

fn from_body(body: &str) -> Result<LastQuery, OpenTsdbError> {
    let body: LastBody<'_> = from_json(body)?;
    let some = |text: Text<'_>| text.0.map(Cow::into_owned).filter(|text| !text.is_empty());
    let mut subs = Vec::new();
    for sub in body.queries.unwrap_or_default().0 {
        let tsuids: Vec<String> = sub.tsuids.unwrap_or_default().0.into_iter().filter_map(some).collect();
        if !tsuids.is_empty() {
            subs.push(LastSubQuery::Tsuids(tsuids));
            continue;
        }
        let metric = some(sub.metric).ok_or_else(|| {
            OpenTsdbError::bad_request("Missing the metric or tsuids, provide at least one").details("in 'queries'")
        })?;
        let tags = sub.tags.unwrap_or_default().entries.into_iter();
        let tags = tags.map(|(key, value)| (key.into_owned(), value.unwrap_or_default().into_owned()));
        subs.push(LastSubQuery::Metric { metric, tags: tags.collect() });
    }
    let back_scan = body.back_scan.map_or(0, |hours| u32::try_from(hours.0.max(0)).unwrap_or(u32::MAX));
    Ok(LastQuery { subs, resolve: body.resolve_names.0, back_scan })
}

/// # Errors
/// 400 when nothing is asked for, or too much.
fn check(wanted: &LastQuery) -> Result<(), OpenTsdbError> {
    if wanted.subs.is_empty() {
        return Err(
            OpenTsdbError::bad_request("Missing sub queries").details("give timeseries=metric{tag=value} or tsuids=")
        );
    }
    let tsuids = |sub: &LastSubQuery| if let LastSubQuery::Tsuids(tsuids) = sub { tsuids.len() } else { 0 };
    let tsuids: usize = wanted.subs.iter().map(tsuids).sum();
    for (given, most, what) in [(wanted.subs.len(), SUBS_MAX, "sub queries"), (tsuids, TSUIDS_MAX, "tsuids")] {
        if given > most {
            return Err(OpenTsdbError::bad_request(format!("more than {most} {what} in one request")));
        }
    }
    Ok(())
}

/// A metric, and tags with their values.
pub type Named = (String, Vec<(String, String)>);

/// `metric` or `metric{key=value,...}`.
///
/// # Errors
/// Says what is wrong, in the words of the original.
pub fn series(text: &str) -> Result<Named, String> {
    let (metric, tags) = match text.split_once('{') {
        None => (text, ""),
        Some((metric, braces)) => {
            (metric, braces.strip_suffix('}').ok_or_else(|| format!("Missing '}}' at the end of: {text}"))?)
        }
    };
    if metric.is_empty() {
        return Err(if text.is_empty() {
            "Metric string was empty".to_owned()
        } else {
            format!("Missing metric: {text}")
        });
    }
    let tag = |tag: &str| match tag.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() && !value.contains('=') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(format!("invalid tag: {tag}")),
    };
    let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(tag).collect::<Result<_, String>>()?;
    Ok((metric.to_owned(), tags))
}

/// Every series that is asked for, in the order of the question and then canonical.
fn find(
    state: &State,
    wanted: &LastQuery,
    fidelity: Fidelity,
    stop: &StopSign,
) -> Result<Vec<SeriesId>, OpenTsdbError> {
    let index = state.index();
    let mut ids: Vec<SeriesId> = Vec::new();
    for sub in &wanted.subs {
        stop.check()?;
        match sub {
            LastSubQuery::Metric { metric, tags } => ids.extend(by_name(state, metric, tags, wanted, fidelity)?),
            LastSubQuery::Tsuids(tsuids) => {
                for number in tsuids {
                    stop.check()?;
                    let found = tsuid::find(&index, number).map_err(OpenTsdbError::bad_request)?;
                    ids.extend(found.and_then(|key| index.id(&key)));
                }
            }
        }
        if ids.len() > SERIES_MAX {
            return Err(
                OpenTsdbError::bad_request(format!("more than {SERIES_MAX} series match")).details("ask for more tags")
            );
        }
    }
    Ok(ids)
}

fn by_name(
    state: &State,
    metric: &str,
    tags: &[(String, String)],
    wanted: &LastQuery,
    fidelity: Fidelity,
) -> Result<Vec<SeriesId>, OpenTsdbError> {
    let (index, exact) = (state.index(), fidelity == Fidelity::OpenTsdb);
    if exact && wanted.back_scan > 0 && tags.is_empty() {
        return Err(OpenTsdbError::bad_request("Tags cannot be null or empty when getting a TSUID")
            .details(format!("'{metric}' with back_scan needs all its tags")));
    }
    let any = |value: &str| value == "*" && !exact;
    let keys = tags.iter().map(|(key, _)| (NameKind::TagKey, key.as_str()));
    let values = tags.iter().filter(|(_, value)| !any(value)).map(|(_, value)| (NameKind::TagValue, value.as_str()));
    let mut all = std::iter::once((NameKind::Metric, metric)).chain(keys).chain(values);
    match all.find(|(kind, name)| !index.knows(*kind, name)) {
        None => {}
        // Known before it has a sample.
        Some((kind, name)) if !exact && defined_by_telem(kind, name) => return Ok(Vec::new()),
        Some((kind, name)) if names::is_assigned(&state.db, kind, name) => return Ok(Vec::new()),
        Some((kind, name)) => return Err(OpenTsdbError::unknown_name(StatusCode::BAD_REQUEST, kind, name)),
    }
    let accepts: Vec<_> =
        tags.iter().map(|(key, wanted)| (key, move |value: &str| any(wanted) || value == wanted)).collect();
    let predicates: Vec<TagPredicate<'_>> =
        accepts.iter().map(|(key, accepts)| TagPredicate { key, accepts, among: None }).collect();
    let mut found = index.select(metric, &predicates);
    if exact && wanted.back_scan > 0 {
        found.retain(|id| index.key(*id).is_some_and(|key| key.tags().iter().count() == tags.len()));
    }
    Ok(found)
}

/// OpenTSDB looks back over whole hours: that of the clock, and as many before.
fn oldest(now: Timestamp, back_scan: u32) -> Timestamp {
    if back_scan == 0 {
        return Timestamp::from_micros(i64::MIN);
    }
    let hour = now.seconds().div_euclid(HOUR_SECONDS) - i64::from(back_scan);
    Timestamp::from_seconds(hour.saturating_mul(HOUR_SECONDS))
}

fn render(index: &SeriesIndex, newest: &[NewestPoint], resolve: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + newest.len() * if resolve { 160 } else { 80 });
    json::list(&mut out, newest, |out, sample| {
        out.push(b'{');
        if resolve {
            out.extend_from_slice(b"\"metric\":");
            json::string(out, sample.key.metric());
            out.extend_from_slice(b",\"tags\":");
            json::string_map(out, sample.key.tags().iter());
            out.push(b',');
        }
        out.extend_from_slice(b"\"timestamp\":");
        json::int(out, sample.time.millis());
        // A number in a string, as in OpenTSDB.
        out.extend_from_slice(b",\"value\":\"");
        match sample.value {
            Value::Int(int) => json::int(out, int),
            Value::Float(float) if float.is_finite() => json::float(out, float),
            Value::Float(float) if float.is_nan() => out.extend_from_slice(b"NaN"),
            Value::Float(float) => out.extend_from_slice(if float > 0.0 { b"Infinity" } else { b"-Infinity" }),
        }
        out.extend_from_slice(b"\",\"tsuid\":");
        json::string(out, &tsuid::of(index, &sample.key));
        out.push(b'}');
    });
    out
}
