//! `/api/annotation`: notes on a moment or a stretch of time, of one series or of all, which graphs show.
//!
//! They are metadata of the database: durable when the answer is sent, saved and replayed with the samples. A note is
//! identified by its series and its start. Its times are whole seconds, or milliseconds if they have a fraction.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use chrono_tz::Tz;
use serde::Deserialize;
use telem_engine::{Annotation, Db, Durability, MetaChange, TimeRange, Timestamp};
use telem_ingest::decode::lenient::{Flag, Long, Text, TextMap};

use super::body::{AtMost, from_json};
use super::call::Call;
use super::errors::OpenTsdbError;
use super::{Answer, allow, has_body, json, text_body, time, walk};
use crate::state::{Refusal, State};

/// Most annotations in one request.
pub(crate) const NOTES_MAX: usize = 1_000;
/// Most annotations that a database holds: all of them are one record when it is flushed.
pub(crate) const HELD_MAX: usize = 100_000;

/// An annotation as it was sent; what is `None` was not.
#[derive(Clone, Debug, Default, PartialEq)]
struct Note {
    tsuid: Option<String>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    description: Option<String>,
    notes: Option<String>,
    custom: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnnotationBody<'a> {
    #[serde(borrow)]
    tsuid: Text<'a>,
    start_time: Option<Long>,
    end_time: Option<Long>,
    #[serde(borrow)]
    description: Text<'a>,
    #[serde(borrow)]
    notes: Text<'a>,
    #[serde(borrow)]
    custom: Option<TextMap<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BulkDelete<'a> {
    #[serde(borrow)]
    start_time: Text<'a>,
    #[serde(borrow)]
    end_time: Text<'a>,
    global: Flag,
    #[serde(borrow)]
    tsuids: Option<AtMost<Text<'a>, { NOTES_MAX + 1 }>>,
}

/// What is to become of annotations that are already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExistingNotes {
    /// Fields that were not sent stay.
    Merged,
    Replaced,
}

pub async fn one(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST, Method::PUT, Method::DELETE])?;
    let now = state.clock.now().millis();
    let note = match has_body(&request) {
        true => from_body(from_json(&text_body(state, request).await?)?)?,
        false => from_params(call, now)?,
    };
    let (owned, method) = (Arc::clone(state), call.method.clone());
    state.limits.walks.render(move || answer_one(&owned, &method, note)).await
}

fn answer_one(state: &State, method: &Method, note: Note) -> Result<Answer, OpenTsdbError> {
    match *method {
        Method::GET => {
            let start = started(&note)?;
            let snapshot = state.db.snapshot();
            let found = find(snapshot.meta().annotations(), note.tsuid.as_deref(), start)
                .ok_or_else(|| OpenTsdbError::new(StatusCode::NOT_FOUND, "Unable to locate annotation in storage"))?;
            let mut out = Vec::new();
            render(&mut out, found);
            Ok(Answer::ok(out))
        }
        Method::DELETE => {
            let start = started(&note).map_err(|error| {
                OpenTsdbError::bad_request("Unable to delete Annotation information").details(error.message)
            })?;
            remove(writable(state)?, note.tsuid, start)?;
            Ok(Answer::no_content())
        }
        _ => {
            let existing = if *method == Method::PUT { ExistingNotes::Replaced } else { ExistingNotes::Merged };
            let Some(stored) = store(writable(state)?, note, existing)? else {
                return Ok(Answer::with_status(StatusCode::NOT_MODIFIED, Vec::new()));
            };
            let mut out = Vec::new();
            render(&mut out, &stored);
            Ok(Answer::ok(out))
        }
    }
}

/// Those on no single series that lie in a stretch of time, both ends included; without an end until now.
pub async fn global(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    if call.method != Method::GET {
        return one(state, call, request).await;
    }
    let now = state.clock.now();
    let note = match has_body(&request) {
        true => from_body(from_json(&text_body(state, request).await?)?)?,
        false => from_params(call, now.millis())?,
    };
    let (start, end) = (started(&note)?, note.end.unwrap_or(now));
    let (snapshot, mut held) = (state.db.snapshot(), state.limits.answers.start());
    // A database may hold very many, and each may be long.
    walk(state, call, move |stop| {
        let found = snapshot.meta().annotations().iter().filter(|note| {
            note.tsuid.is_none() && start <= note.start && note.start <= end && note.end.is_none_or(|note| note <= end)
        });
        let mut out = vec![b'['];
        for note in found {
            stop.check()?;
            if out.len() > 1 {
                out.push(b',');
            }
            render(&mut out, note);
            held.grow(out.len())?;
        }
        out.push(b']');
        Ok(Answer { held: Some(held), ..Answer::ok(out) })
    })
    .await
}

pub async fn bulk(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::POST, Method::PUT, Method::DELETE])?;
    let now = state.clock.now().millis();
    if call.method == Method::DELETE {
        let body = match has_body(&request) {
            true => Some(text_body(state, request).await?),
            false => None,
        };
        let range = match &body {
            Some(body) => range_of_body(from_json(body)?, now)?,
            None => range_of_params(call, now)?,
        };
        let owned = Arc::clone(state);
        return state.limits.walks.render(move || remove_range(writable(&owned)?, range)).await;
    }
    let body = text_body(state, request).await?;
    // What follows the list is not looked at.
    let list =
        AtMost::<AnnotationBody<'_>, { NOTES_MAX + 1 }>::deserialize(&mut serde_json::Deserializer::from_str(&body))
            .map_err(|error| OpenTsdbError::not_json(error.to_string()))?;
    if list.0.len() > NOTES_MAX {
        return Err(OpenTsdbError::bad_request(format!("more than {NOTES_MAX} annotations in one request")));
    }
    let notes = list.0.into_iter().map(from_body).collect::<Result<Vec<Note>, OpenTsdbError>>()?;
    // All or none, as far as that can be checked before.
    for note in &notes {
        started(note)?;
    }
    let existing = if call.method == Method::PUT { ExistingNotes::Replaced } else { ExistingNotes::Merged };
    let owned = Arc::clone(state);
    let written = state.limits.walks.render(move || {
        let db = writable(&owned)?;
        let mut stored = Vec::with_capacity(notes.len());
        for note in notes {
            // What says nothing new is left out.
            stored.extend(store(db, note, existing)?);
        }
        let mut out = Vec::new();
        json::list(&mut out, &stored, render);
        Ok(Answer::ok(out))
    });
    written.await
}

fn from_params(call: &Call, now: i64) -> Result<Note, OpenTsdbError> {
    let text = |name: &str| call.params.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let moment = |name: &str| {
        let time = text(name).map(|text| parse_time(&text, now)).transpose()?;
        Ok::<_, OpenTsdbError>(time.filter(|time| time.micros() > 0))
    };
    Ok(Note {
        tsuid: tsuid(text("tsuid"))?,
        start: Some(moment("start_time")?.ok_or_else(|| OpenTsdbError::bad_request("Missing start time"))?),
        end: moment("end_time")?,
        description: text("description"),
        notes: text("notes"),
        custom: None,
    })
}

fn from_body(body: AnnotationBody<'_>) -> Result<Note, OpenTsdbError> {
    let text = |text: Text<'_>| text.0.map(Cow::into_owned);
    // Nothing is what there was before.
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let custom = body.custom.map(|custom| {
        let entries = custom.entries.into_iter();
        entries.map(|(key, value)| (key.into_owned(), value.unwrap_or_default().into_owned())).collect()
    });
    Ok(Note {
        tsuid: tsuid(text(body.tsuid).filter(|tsuid| !tsuid.is_empty()))?,
        start: moment(body.start_time)?,
        end: moment(body.end_time)?,
        description: filled(text(body.description)),
        notes: filled(text(body.notes)),
        custom,
    })
}

/// Seconds, or milliseconds where they need more than 32 bits.
fn moment(number: Option<Long>) -> Result<Option<Timestamp>, OpenTsdbError> {
    let Some(Long(number)) = number.filter(|number| number.0 > 0) else { return Ok(None) };
    let in_micros = if number >> 32 == 0 { 1_000_000 } else { 1_000 };
    let micros = number.checked_mul(in_micros).ok_or_else(|| {
        OpenTsdbError::bad_request("Invalid time of an annotation")
            .details(format!("{number} is too far in the future"))
    })?;
    Ok(Some(Timestamp::from_micros(micros)))
}

fn parse_time(text: &str, now: i64) -> Result<Timestamp, OpenTsdbError> {
    let millis = time::parse(text, now, Tz::UTC).map_err(OpenTsdbError::bad_request)?;
    millis.checked_mul(1_000).map(Timestamp::from_micros).ok_or_else(|| {
        OpenTsdbError::bad_request("Invalid time of an annotation").details(format!("{text} is too far in the future"))
    })
}

fn tsuid(given: Option<String>) -> Result<Option<String>, OpenTsdbError> {
    match given {
        Some(tsuid) if !tsuid.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Err(OpenTsdbError::bad_request(format!("TSUID '{tsuid}' holds more than hexadecimal digits")))
        }
        given => Ok(given.map(|tsuid| tsuid.to_ascii_uppercase())),
    }
}

/// # Errors
/// 400 for one that says nothing of when.
fn started(note: &Note) -> Result<Timestamp, OpenTsdbError> {
    let text = "The start timestamp has not been set";
    note.start.ok_or_else(|| OpenTsdbError::bad_request(text).details(text))
}

pub fn writable(state: &State) -> Result<&Db, OpenTsdbError> {
    if state.writer.is_some() {
        return Ok(&state.db);
    }
    let what = match state.refusal {
        Refusal::Saved => "this database is served read-only; send what changes it to the telem that writes it",
        Refusal::NoRoom => state.refusal.message(),
    };
    Err(OpenTsdbError::new(state.refusal.status(), what))
}

fn find<'a>(held: &'a [Annotation], tsuid: Option<&str>, start: Timestamp) -> Option<&'a Annotation> {
    held.iter().find(|note| note.start == start && note.tsuid.as_deref() == tsuid)
}

fn held(db: &Db, tsuid: Option<&str>, start: Timestamp) -> Option<Annotation> {
    find(db.snapshot().meta().annotations(), tsuid, start).cloned()
}

/// Makes `note` durable. `None` when nothing in it is new.
fn store(db: &Db, note: Note, existing: ExistingNotes) -> Result<Option<Annotation>, OpenTsdbError> {
    let start = started(&note)?;
    let before = held(db, note.tsuid.as_deref(), start);
    if before.is_none() && db.snapshot().meta().annotations().len() >= HELD_MAX {
        return Err(OpenTsdbError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            format!("there are {HELD_MAX} annotations already"),
        )
        .details("delete some with DELETE /api/annotation/bulk"));
    }
    let base = match existing {
        ExistingNotes::Merged => before.clone().unwrap_or_default(),
        ExistingNotes::Replaced => Annotation::default(),
    };
    let says_something =
        note.end.is_some() || note.description.is_some() || note.notes.is_some() || note.custom.is_some();
    let stored = Annotation {
        tsuid: note.tsuid,
        start,
        end: note.end.or(base.end),
        description: note.description.unwrap_or(base.description),
        notes: note.notes.unwrap_or(base.notes),
        custom: note.custom.unwrap_or(base.custom),
    };
    if !says_something {
        return Ok(None);
    }
    db.put_meta(MetaChange::Annotate(stored.clone()), Durability::Synced).map_err(crate::http::ApiError::from)?;
    Ok(Some(stored))
}

fn remove(db: &Db, tsuid: Option<String>, start: Timestamp) -> Result<(), OpenTsdbError> {
    db.put_meta(MetaChange::RemoveAnnotation { tsuid, start }, Durability::Synced)
        .map_err(|error| crate::http::ApiError::from(error).into())
}

/// What a bulk deletion takes away; both ends included.
#[derive(Debug, PartialEq)]
struct AnnotationRange {
    start: Timestamp,
    end: Timestamp,
    global: bool,
    tsuids: Vec<String>,
}

fn range_of_body(body: BulkDelete<'_>, now: i64) -> Result<AnnotationRange, OpenTsdbError> {
    let tsuids = body.tsuids.unwrap_or_default().0.into_iter().filter_map(|tsuid| tsuid.0.map(Cow::into_owned));
    range(body.start_time.0.as_deref(), body.end_time.0.as_deref(), body.global.0, tsuids.collect(), now)
}

fn range_of_params(call: &Call, now: i64) -> Result<AnnotationRange, OpenTsdbError> {
    let global = call.params.get("global").is_some_and(|value| value != "false");
    let tsuids = call.params.get("tsuids").unwrap_or_default().split(',').filter(|tsuid| !tsuid.is_empty());
    let tsuids = tsuids.map(str::to_owned).collect();
    range(call.params.get("start_time"), call.params.get("end_time"), global, tsuids, now)
}

fn range(
    start: Option<&str>,
    end: Option<&str>,
    global: bool,
    tsuids: Vec<String>,
    now: i64,
) -> Result<AnnotationRange, OpenTsdbError> {
    let filled = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(|text| parse_time(text, now));
    let start = filled(start).ok_or_else(|| OpenTsdbError::bad_request("Missing the start time value"))??;
    let end = filled(end).transpose()?.unwrap_or(Timestamp::from_millis(now));
    if !global && tsuids.is_empty() {
        return Err(OpenTsdbError::bad_request("Missing the TSUIDs or global annotations flag"));
    }
    if tsuids.len() > NOTES_MAX {
        return Err(OpenTsdbError::bad_request(format!("more than {NOTES_MAX} tsuids in one request")));
    }
    if end < start {
        return Err(OpenTsdbError::bad_request("The end timestamp cannot be less than the start timestamp"));
    }
    let tsuids = tsuids.into_iter().map(|given| Ok(tsuid(Some(given))?.unwrap_or_default()));
    Ok(AnnotationRange { start, end, global, tsuids: tsuids.collect::<Result<_, OpenTsdbError>>()? })
}

fn remove_range(db: &Db, range: AnnotationRange) -> Result<Answer, OpenTsdbError> {
    let snapshot = db.snapshot();
    let wanted = |note: &&Annotation| {
        let whose = match &note.tsuid {
            None => range.global,
            Some(tsuid) => range.tsuids.contains(tsuid),
        };
        whose && range.start <= note.start && note.start <= range.end
    };
    let mut removed = 0;
    for note in snapshot.meta().annotations().iter().filter(wanted) {
        let change = MetaChange::RemoveAnnotation { tsuid: note.tsuid.clone(), start: note.start };
        db.put_meta(change, Durability::Buffered).map_err(crate::http::ApiError::from)?;
        removed += 1;
    }
    db.sync().map_err(crate::http::ApiError::from)?;
    let mut out = b"{\"tsuids\":".to_vec();
    match range.tsuids.is_empty() {
        true => out.extend_from_slice(b"null"),
        false => json::list(&mut out, &range.tsuids, |out, tsuid| json::string(out, tsuid)),
    }
    out.extend_from_slice(b",\"global\":");
    json::bool(&mut out, range.global);
    out.extend_from_slice(b",\"startTime\":");
    json::int(&mut out, range.start.millis());
    out.extend_from_slice(b",\"endTime\":");
    json::int(&mut out, range.end.millis());
    out.extend_from_slice(b",\"totalDeleted\":");
    json::int(&mut out, removed);
    out.push(b'}');
    Ok(Answer::ok(out))
}

/// `custom` is left out if it is empty.
pub fn render(out: &mut Vec<u8>, note: &Annotation) {
    out.extend_from_slice(b"{\"tsuid\":");
    json::string(out, note.tsuid.as_deref().unwrap_or_default());
    out.extend_from_slice(b",\"description\":");
    json::string(out, &note.description);
    out.extend_from_slice(b",\"notes\":");
    json::string(out, &note.notes);
    if !note.custom.is_empty() {
        out.extend_from_slice(b",\"custom\":");
        json::string_map(out, note.custom.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    }
    out.extend_from_slice(b",\"startTime\":");
    json::int(out, shown(note.start));
    out.extend_from_slice(b",\"endTime\":");
    json::int(out, note.end.map_or(0, shown));
    out.push(b'}');
}

/// Whole seconds where that is all there is: Grafana takes every time for seconds.
fn shown(time: Timestamp) -> i64 {
    if time.micros().rem_euclid(1_000_000) == 0 { time.seconds() } else { time.millis() }
}

/// The annotations that a query delivers with its series.
#[derive(Clone, Debug, Default)]
pub struct DeliveredNotes {
    /// Sorted by start.
    series: Vec<Annotation>,
    global: Vec<Annotation>,
    /// What is asked for, both ends included.
    start: Timestamp,
    end: Timestamp,
}

/// Which annotations an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteScope {
    OfSeries,
    /// Also those of no series.
    WithGlobal,
}

impl DeliveredNotes {
    /// `read` are the samples that the query reads: notes of series there count, though only those within `start` and
    /// `end` are shown.
    pub fn new(held: &[Annotation], read: TimeRange, start: Timestamp, end: Timestamp, scope: NoteScope) -> Self {
        let series = held.iter().filter(|note| note.tsuid.is_some() && read.contains(note.start)).cloned().collect();
        let within = |note: &&Annotation| {
            note.tsuid.is_none() && start <= note.start && note.start <= end && note.end.is_none_or(|note| note <= end)
        };
        let global = match scope {
            NoteScope::WithGlobal => held.iter().filter(within).cloned().collect(),
            NoteScope::OfSeries => Vec::new(),
        };
        Self { series, global, start, end }
    }

    /// Whether notes of single series are among them, so that a caller need not find out TSUIDs for nothing.
    pub fn of_any_series(&self) -> bool {
        !self.series.is_empty()
    }

    /// Writes those of a group as a member of its object, with a comma before. None of them need be within the range.
    pub fn of_series(&self, out: &mut Vec<u8>, tsuids: &[String]) {
        let wanted = |note: &&Annotation| note.tsuid.as_ref().is_some_and(|tsuid| tsuids.contains(tsuid));
        let mut notes: Vec<&Annotation> = self.series.iter().filter(wanted).collect();
        if !notes.is_empty() {
            notes.retain(|note| self.start <= note.start && note.start <= self.end);
            out.extend_from_slice(b",\"annotations\":");
            json::list(out, notes, render);
        }
    }

    /// Writes the global ones as a member of an object, with a comma before.
    pub fn global(&self, out: &mut Vec<u8>) {
        if !self.global.is_empty() {
            out.extend_from_slice(b",\"globalAnnotations\":");
            json::list(out, &self.global, render);
        }
    }
}
