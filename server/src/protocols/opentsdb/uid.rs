//! `/api/uid`: the numbers of names. telem assigns them by itself; assigning one in advance does no harm (see
//! [`super::names`]). Other data that the original keeps about names and series is shown as far as telem knows it.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use serde::Deserialize;
use telem_engine::{Meta, NameKind, SeriesKey, TagPredicate, series};
use telem_ingest::decode::lenient::{Text, TextMap};
use telem_ingest::decode::opentsdb::check_name;
use telem_query::tsq::Fidelity;

use super::body::{AtMost, from_json};
use super::call::{Call, required};
use super::errors::OpenTsdbError;
use super::names::Description;
use super::{Answer, OpenTsdb, allow, annotation, has_body, json, last, names, text_body, tsuid, walk};
use crate::state::State;

/// Most names of a kind in one request.
pub(crate) const NAMES_MAX: usize = 1_000;
/// Most series in one answer.
pub(crate) const SERIES_MAX: usize = 10_000;
const KINDS: [NameKind; 3] = [NameKind::Metric, NameKind::TagKey, NameKind::TagValue];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AssignBody<'a> {
    #[serde(borrow)]
    metric: Option<AtMost<Text<'a>, { NAMES_MAX + 1 }>>,
    #[serde(borrow)]
    tagk: Option<AtMost<Text<'a>, { NAMES_MAX + 1 }>>,
    #[serde(borrow)]
    tagv: Option<AtMost<Text<'a>, { NAMES_MAX + 1 }>>,
}

/// The kind that a request names in its own words.
fn kind(word: &str) -> Option<NameKind> {
    match word.to_ascii_lowercase().as_str() {
        "metric" | "metrics" => Some(NameKind::Metric),
        "tagk" => Some(NameKind::TagKey),
        "tagv" => Some(NameKind::TagValue),
        _ => None,
    }
}

/// OpenTSDB's error for an invalid name, if it is invalid.
fn complaint(kind: NameKind, name: &str) -> Option<String> {
    let bytes_max = match kind {
        NameKind::Metric => series::METRIC_BYTES_MAX,
        NameKind::TagKey => series::TAG_KEY_BYTES_MAX,
        NameKind::TagValue => series::TAG_VALUE_BYTES_MAX,
    };
    if name.len() > bytes_max {
        return Some(format!("Invalid {}: {} bytes, {bytes_max} at most", names::word(kind), name.len()));
    }
    check_name(|| names::word(kind).to_owned(), name).err().map(|error| error.to_string())
}

pub async fn assign(tsdb: &Arc<OpenTsdb>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    let state = &tsdb.state;
    allow(call, &[Method::GET, Method::POST])?;
    let wanted: Vec<(NameKind, Vec<String>)> = if call.method == Method::POST {
        let text = text_body(state, request).await?;
        let body: AssignBody<'_> = from_json(&text)?;
        let list = |list: AtMost<Text<'_>, { NAMES_MAX + 1 }>| -> Vec<String> {
            list.0.into_iter().map(|name| name.0.map(Cow::into_owned).unwrap_or_default()).collect()
        };
        let lists = KINDS.into_iter().zip([body.metric, body.tagk, body.tagv]);
        lists.filter_map(|(kind, names)| Some((kind, list(names?)))).collect()
    } else {
        let given = |kind| call.params.get(names::word(kind)).filter(|list| !list.is_empty());
        let split = |list: &str| list.split(',').map(str::to_owned).collect();
        KINDS.into_iter().filter_map(|kind| Some((kind, split(given(kind)?)))).collect()
    };
    if wanted.is_empty() {
        return Err(OpenTsdbError::bad_request("Missing values to assign UIDs"));
    }
    if let Some((kind, _)) = wanted.iter().find(|(_, names)| names.len() > NAMES_MAX) {
        let text = format!("more than {NAMES_MAX} names of kind {} in one request", names::word(*kind));
        return Err(OpenTsdbError::bad_request(text));
    }
    let given = Arc::clone(tsdb);
    state.limits.walks.render(move || give(&given, &wanted)).await
}

/// `{"metric":{"sys.cpu":"000001"},"metric_errors":{"bad name":"..."}}`, and 400 if there is any error.
fn give(tsdb: &OpenTsdb, wanted: &[(NameKind, Vec<String>)]) -> Result<Answer, OpenTsdbError> {
    let db = annotation::writable(&tsdb.state)?;
    let mut out = vec![b'{'];
    let mut status = StatusCode::OK;
    for (kind, wanted) in wanted {
        let (mut given, mut errors) = (Vec::new(), Vec::new());
        let (good, bad): (Vec<&String>, Vec<&String>) =
            wanted.iter().partition(|name| complaint(*kind, name).is_none());
        errors.extend(bad.into_iter().map(|name| (name.clone(), complaint(*kind, name).unwrap_or_default())));
        let good: Vec<String> = good.into_iter().cloned().collect();
        for (name, result) in good.iter().zip(names::assign(tsdb, db, *kind, &good)?) {
            match result {
                Ok(number) => given.push((name.clone(), tsuid::digits(number))),
                Err(why) => errors.push((name.clone(), why)),
            }
        }
        for (suffix, mut entries) in [("", given), ("_errors", errors)] {
            if !suffix.is_empty() {
                if entries.is_empty() {
                    continue;
                }
                status = StatusCode::BAD_REQUEST;
            }
            if out.len() > 1 {
                out.push(b',');
            }
            entries.sort();
            json::string(&mut out, &format!("{}{suffix}", names::word(*kind)));
            out.push(b':');
            json::string_map(&mut out, entries.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        }
    }
    out.push(b'}');
    Ok(Answer::with_status(status, out))
}

pub async fn rename(tsdb: &Arc<OpenTsdb>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    let state = &tsdb.state;
    allow(call, &[Method::GET, Method::POST])?;
    let missing = || OpenTsdbError::bad_request("Missing necessary values to rename UID");
    let (kind, from, to) = if call.method == Method::POST {
        let text = text_body(state, request).await?;
        let body: TextMap<'_> = from_json(&text)?;
        let entries = body.entries.into_iter().map(|(key, value)| (key, value.unwrap_or_default().into_owned()));
        let (mut subject, mut to) = (None, None);
        for (key, value) in entries {
            match key.as_ref() {
                "name" => to = Some(value),
                _ => subject = Some((key.into_owned(), value)),
            }
        }
        let ((kind, from), to) = subject.zip(to).ok_or_else(missing)?;
        (kind, from, to)
    } else {
        let filled = |name: &str| call.params.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let subject = KINDS.into_iter().rev().find_map(|kind| Some((names::word(kind), filled(names::word(kind))?)));
        let ((kind, from), to) = subject.zip(filled("name")).ok_or_else(missing)?;
        (kind.to_owned(), from, to)
    };
    let owned = Arc::clone(tsdb);
    let written = state.limits.walks.render(move || {
        let tsdb = owned;
        let result = match self::kind(&kind) {
            None => Err("Unknown type name".to_owned()),
            Some(kind) => match complaint(kind, &from).or_else(|| complaint(kind, &to)) {
                Some(why) => Err(why),
                None => names::rename(&tsdb, annotation::writable(&tsdb.state)?, kind, &from, &to)?,
            },
        };
        let mut out = Vec::new();
        Ok(match result {
            Ok(()) => {
                json::string_map(&mut out, [("result", "true")]);
                Answer::ok(out)
            }
            Err(why) => {
                json::string_map(&mut out, [("result", "false"), ("error", why.as_str())]);
                Answer::with_status(StatusCode::BAD_REQUEST, out)
            }
        })
    });
    written.await
}

/// Reads a UID as the original does: hexadecimal digits, two for a byte.
fn number(uid: &str) -> Option<u64> {
    u64::from_str_radix(uid, 16).ok().filter(|_| uid.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub async fn uid_meta(tsdb: &Arc<OpenTsdb>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    let state = &tsdb.state;
    allow(call, &[Method::GET, Method::POST, Method::PUT, Method::DELETE])?;
    let fidelity = call.fidelity(state.fidelity);
    if call.method != Method::GET {
        return describe(tsdb, call, request, fidelity).await;
    }
    let uid = required(&call.params, "uid")?.to_owned();
    let word = required(&call.params, "type")?;
    let kind =
        kind(word).ok_or_else(|| OpenTsdbError::unforeseen(fidelity, format!("Invalid type requested: {word}")))?;
    let owned = Arc::clone(state);
    walk(state, call, move |_| {
        let state = owned;
        let (number, name) = named(&state, kind, &uid, fidelity)?;
        let mut out = Vec::new();
        render_name(&mut out, state.db.snapshot().meta(), kind, number, &name);
        Ok(Answer::ok(out))
    })
    .await
}

/// The number and the name of a UID.
fn named(state: &State, kind: NameKind, uid: &str, fidelity: Fidelity) -> Result<(u64, String), OpenTsdbError> {
    let wrong = || OpenTsdbError::unforeseen(fidelity, format!("UID '{uid}' holds more than hexadecimal digits"));
    let number = number(uid).ok_or_else(wrong)?;
    let name = names::name(state, kind, number).ok_or_else(|| {
        OpenTsdbError::new(StatusCode::NOT_FOUND, "Could not find the requested UID")
            .details(format!("No such unique ID for '{}': {uid}", names::word(kind)))
    })?;
    Ok((number, name))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetaBody<'a> {
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    display_name: Text<'a>,
    #[serde(borrow)]
    description: Text<'a>,
    #[serde(borrow)]
    notes: Text<'a>,
    #[serde(borrow)]
    custom: Option<TextMap<'a>>,
}

/// What a client tells about a name: merged by POST, replaced by PUT, forgotten by DELETE.
async fn describe(
    tsdb: &Arc<OpenTsdb>,
    call: &Call,
    request: Request,
    fidelity: Fidelity,
) -> Result<Answer, OpenTsdbError> {
    let state = &tsdb.state;
    let (uid, kind, told) = match has_body(&request) {
        true => from_body(from_json(&text_body(state, request).await?)?)?,
        false => from_params(call, fidelity)?,
    };
    let (owned, method) = (Arc::clone(tsdb), call.method.clone());
    let missing = move |what: &str| match method {
        Method::DELETE => OpenTsdbError::bad_request("Unable to delete UIDMeta information").details(what),
        _ => OpenTsdbError::bad_request(what).details(what),
    };
    let uid = uid.filter(|uid| !uid.is_empty()).ok_or_else(|| missing("Missing UID"))?;
    let kind = kind.ok_or_else(|| missing("Missing type"))?;
    let method = call.method.clone();
    let written = state.limits.walks.render(move || {
        let (tsdb, state) = (&*owned, &owned.state);
        if method != Method::DELETE && told == Description::default() {
            return Ok(Answer::with_status(StatusCode::NOT_MODIFIED, Vec::new()));
        }
        let (number, name) = named(state, kind, &uid, fidelity)?;
        let db = annotation::writable(state)?;
        let before = || names::described(db.snapshot().meta(), kind, &name);
        let told = match method {
            Method::DELETE => Description::default(),
            Method::PUT => told,
            _ => told.over(before()),
        };
        names::describe(tsdb, db, kind, &name, told)?;
        if method == Method::DELETE {
            return Ok(Answer::no_content());
        }
        let mut out = Vec::new();
        render_name(&mut out, db.snapshot().meta(), kind, number, &name);
        Ok(Answer::ok(out))
    });
    written.await
}

/// A UID, the kind of its name, and the description of the name.
type Told = (Option<String>, Option<NameKind>, Description);

fn from_body(body: MetaBody<'_>) -> Result<Told, OpenTsdbError> {
    // Nothing is what there was before.
    let filled = |text: Text<'_>| text.0.map(Cow::into_owned).filter(|text| !text.is_empty());
    let kind = filled(body.kind).map(|word| {
        self::kind(&word)
            .ok_or_else(|| OpenTsdbError::not_json(format!("found type '{word}', expected metric, tagk or tagv")))
    });
    let custom = body.custom.map(|custom| {
        let entries = custom.entries.into_iter();
        entries.map(|(key, value)| (key.into_owned(), value.unwrap_or_default().into_owned())).collect()
    });
    let told = Description {
        display_name: filled(body.display_name),
        description: filled(body.description),
        notes: filled(body.notes),
        custom,
    };
    Ok((filled(body.uid), kind.transpose()?, told))
}

fn from_params(call: &Call, fidelity: Fidelity) -> Result<Told, OpenTsdbError> {
    let filled = |name: &str| call.params.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (uid, word) = (required(&call.params, "uid")?, required(&call.params, "type")?);
    let kind =
        kind(word).ok_or_else(|| OpenTsdbError::unforeseen(fidelity, format!("Invalid type requested: {word}")))?;
    let told = Description {
        display_name: filled("display_name"),
        description: filled("description"),
        notes: filled("notes"),
        custom: None,
    };
    Ok((Some(uid.to_owned()), Some(kind), told))
}

/// What is known of a name: its description, else for a metric what it measures.
fn render_name(out: &mut Vec<u8>, meta: &Meta, kind: NameKind, number: u64, name: &str) {
    let told = names::described(meta, kind, name);
    let help = meta.metric(name).filter(|_| kind == NameKind::Metric).map_or("", |metric| &metric.help);
    let word = names::word(kind).to_ascii_uppercase();
    out.push(b'{');
    for (key, text) in [
        ("uid", tsuid::digits(number).as_str()),
        ("type", &word),
        ("name", name),
        ("description", told.description.as_deref().unwrap_or(help)),
        ("notes", told.notes.as_deref().unwrap_or_default()),
    ] {
        json::string(out, key);
        out.push(b':');
        json::string(out, text);
        out.push(b',');
    }
    out.extend_from_slice(b"\"created\":0,\"custom\":");
    match &told.custom {
        None => out.extend_from_slice(b"null"),
        Some(custom) => json::string_map(out, custom.iter().map(|(key, value)| (key.as_str(), value.as_str()))),
    }
    out.extend_from_slice(b",\"displayName\":");
    json::string(out, told.display_name.as_deref().unwrap_or_default());
    out.push(b'}');
}

/// An OpenTSDB that tracks no metadata knows of no series here, and so does telem where that is to be reproduced.
pub async fn ts_meta(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST, Method::PUT, Method::DELETE])?;
    if call.method != Method::GET {
        return write_ts_meta(state, call, request).await;
    }
    let fidelity = call.fidelity(state.fidelity);
    let by_number = call.params.get("tsuid").map(str::to_owned);
    let by_name = match &by_number {
        Some(_) => None,
        None => Some(last::series(required(&call.params, "m")?).map_err(|why| {
            let details = why.clone();
            OpenTsdbError::bad_request(why).details(details)
        })?),
    };
    let owned = Arc::clone(state);
    walk(state, call, move |stop| {
        let state = owned;
        let index = state.index();
        let mut out = Vec::new();
        if let Some(number) = by_number {
            let found = tsuid::find(&index, &number).map_err(|why| OpenTsdbError::unforeseen(fidelity, why))?;
            let found = found.filter(|_| fidelity == Fidelity::Sensible);
            let key = found
                .ok_or_else(|| OpenTsdbError::new(StatusCode::NOT_FOUND, "Could not find Timeseries meta data"))?;
            render_series(&mut out, &state, &key)?;
            return Ok(Answer::ok(out));
        }
        let (metric, tags) = by_name.unwrap_or_default();
        let names = std::iter::once((NameKind::Metric, &metric));
        let names = names.chain(tags.iter().flat_map(|(k, v)| [(NameKind::TagKey, k), (NameKind::TagValue, v)]));
        if let Some((kind, name)) = names.into_iter().find(|(kind, name)| !names::knows(&state, *kind, name)) {
            return Err(OpenTsdbError::new(StatusCode::NOT_FOUND, "Unable to find one or more UIDs")
                .details(super::errors::no_such_name(kind, name)));
        }
        let accepts: Vec<_> = tags.iter().map(|(key, wanted)| (key, move |value: &str| value == wanted)).collect();
        let predicates: Vec<TagPredicate<'_>> =
            accepts.iter().map(|(key, accepts)| TagPredicate { key, accepts, among: None }).collect();
        let ids = match fidelity {
            Fidelity::OpenTsdb => Vec::new(),
            Fidelity::Sensible => index.select(&metric, &predicates),
        };
        if ids.len() > SERIES_MAX {
            return Err(
                OpenTsdbError::bad_request(format!("more than {SERIES_MAX} series match")).details("ask for more tags")
            );
        }
        out.push(b'[');
        for key in ids.into_iter().filter_map(|id| index.key(id)) {
            stop.check()?;
            if out.len() > 1 {
                out.push(b',');
            }
            render_series(&mut out, &state, &key)?;
        }
        out.push(b']');
        Ok(Answer::ok(out))
    })
    .await
}

fn render_series(out: &mut Vec<u8>, state: &State, key: &SeriesKey) -> Result<(), OpenTsdbError> {
    let (index, snapshot) = (state.index(), state.db.snapshot());
    let meta = snapshot.meta();
    let number = |kind, name| tsuid::number(&index, kind, name).unwrap_or(0);
    out.extend_from_slice(b"{\"tsuid\":");
    json::string(out, &tsuid::of(&index, key));
    out.extend_from_slice(b",\"metric\":");
    render_name(out, meta, NameKind::Metric, number(NameKind::Metric, key.metric()), key.metric());
    out.extend_from_slice(b",\"tags\":");
    let names = key.tags().iter().flat_map(|(key, value)| [(NameKind::TagKey, key), (NameKind::TagValue, value)]);
    json::list(out, names, |out, (kind, name)| render_name(out, meta, kind, number(kind, name), name));
    let unit = meta.metric(key.metric()).map_or("", |metric| &metric.unit);
    out.extend_from_slice(b",\"description\":\"\",\"notes\":\"\",\"created\":0,\"units\":");
    json::string(out, unit);
    out.extend_from_slice(
        b",\"retention\":0,\"max\":\"NaN\",\"min\":\"NaN\",\"displayName\":\"\",\"dataType\":\"\",\"lastReceived\":",
    );
    // Only our own series: /api/query/last covers those of other nodes.
    let last = match state.db.index().id(key) {
        Some(id) => state.db.last(id).map_err(crate::http::ApiError::from)?,
        None => None,
    };
    json::int(out, last.map_or(0, |(time, _)| time.seconds()));
    out.extend_from_slice(b",\"totalDatapoints\":0}");
    Ok(())
}

/// Where nothing is tracked there is nothing that could be changed or deleted.
async fn write_ts_meta(state: &State, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    if has_body(&request) {
        // Malformed input is reported before anything else.
        from_json::<serde::de::IgnoredAny>(&text_body(state, request).await?)?;
    }
    if call.method == Method::DELETE {
        return Ok(Answer::no_content());
    }
    Err(OpenTsdbError::bad_request("Requested TSMeta did not exist")
        .details("telem keeps no descriptions of series; write what is to be said with POST /api/annotation"))
}

#[cfg(test)]
mod tests;
