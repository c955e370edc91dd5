//! What is known of names apart from the series that contain them: that `/api/uid/assign` assigned them, and the
//! descriptions that `/api/uid/uidmeta` got.
//!
//! telem needs no assigning: the first sample of a series makes its names known. But a client that assigns a name in
//! advance must find it again, even after a restart and in the saved database. So each assigned name is stored as a
//! note at the epoch, on a key that no TSUID can name (`metric:sys.cpu`), apart from the annotations of series and the
//! global ones. Its number counts down from the largest; numbers of names with series count up.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use telem_engine::{Annotation, Db, Durability, Meta, MetaChange, NameKind, Timestamp};

use super::errors::OpenTsdbError;
use super::{OpenTsdb, tsuid};
use crate::http::ApiError;
use crate::state::State;

/// Most names that are assigned or described.
pub const NOTED_MAX: usize = 10_000;
/// The largest number of three bytes.
const NUMBER_MAX: u32 = 0xFF_FFFF;
/// Where a note holds the number, the name that is shown, and before each key of what the client keeps there.
const NUMBER: &str = "uid";
const DISPLAY_NAME: &str = "displayName";
const CUSTOM: &str = "custom.";
const EPOCH: Timestamp = Timestamp::from_micros(0);

/// OpenTSDB's word for a kind of names, as requests have it.
pub fn word(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Metric => "metric",
        NameKind::TagKey => "tagk",
        NameKind::TagValue => "tagv",
    }
}

/// Of the kind and the name.
fn subject(kind: NameKind, name: &str) -> String {
    format!("{}:{name}", word(kind))
}

/// The notes on names, in the order of kinds and names.
fn notes(meta: &Meta) -> &[Annotation] {
    let all = meta.annotations();
    let from = all.partition_point(|note| note.start < EPOCH);
    let to = all.partition_point(|note| note.start <= EPOCH);
    &all[from..to]
}

fn find<'a>(meta: &'a Meta, kind: NameKind, name: &str) -> Option<&'a Annotation> {
    let (notes, subject) = (notes(meta), subject(kind, name));
    let at = notes.binary_search_by(|note| note.tsuid.as_deref().cmp(&Some(&subject))).ok()?;
    notes.get(at)
}

/// The names of a kind that start with a prefix, sorted by bytes.
fn starting<'a>(meta: &'a Meta, kind: NameKind, prefix: &str) -> impl Iterator<Item = (&'a str, &'a Annotation)> {
    let (notes, subject) = (notes(meta), subject(kind, prefix));
    let from = notes.partition_point(|note| note.tsuid.as_deref() < Some(&subject));
    let named = notes[from..].iter().map_while(move |note| {
        let name = note.tsuid.as_deref().filter(|text| text.starts_with(&subject))?;
        Some((name.split_once(':')?.1, note))
    });
    named.filter(|(_, note)| number_of(note).is_some())
}

fn number_of(note: &Annotation) -> Option<u32> {
    note.custom.get(NUMBER).and_then(|number| u32::from_str_radix(number, 16).ok())
}

/// Whether a name was assigned, used or not.
pub fn knows(state: &State, kind: NameKind, name: &str) -> bool {
    state.index().knows(kind, name) || is_assigned(&state.db, kind, name)
}

/// Whether a name was assigned that no series may carry.
pub fn is_assigned(db: &Db, kind: NameKind, name: &str) -> bool {
    find(db.snapshot().meta(), kind, name).and_then(number_of).is_some()
}

/// Names that contain a text, sorted by bytes.
pub fn containing(state: &State, kind: NameKind, part: &str, max: usize) -> Vec<String> {
    let snapshot = state.db.snapshot();
    let assigned = starting(snapshot.meta(), kind, "").map(|(name, _)| name).filter(|name| name.contains(part));
    merged(state.index().containing(kind, part, max), assigned, max)
}

/// Names that start with a prefix, sorted by bytes.
pub fn suggest(state: &State, kind: NameKind, prefix: &str, max: usize) -> Vec<String> {
    let snapshot = state.db.snapshot();
    let assigned = starting(snapshot.meta(), kind, prefix).map(|(name, _)| name);
    merged(state.index().suggest(kind, prefix, max), assigned, max)
}

/// The first `max` of all these names.
fn merged<'a>(mut names: Vec<String>, assigned: impl Iterator<Item = &'a str>, max: usize) -> Vec<String> {
    names.extend(assigned.take(max).map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names.truncate(max);
    names
}

/// The number of a name, if it has one.
pub fn number(state: &State, kind: NameKind, name: &str) -> Option<u64> {
    tsuid::number(&state.index(), kind, name)
        .or_else(|| find(state.db.snapshot().meta(), kind, name).and_then(number_of).map(u64::from))
}

/// The name of a number.
pub fn name(state: &State, kind: NameKind, number: u64) -> Option<String> {
    if let Some(name) = tsuid::name(&state.index(), kind, number) {
        return Some(name.to_string());
    }
    let snapshot = state.db.snapshot();
    let mut assigned = starting(snapshot.meta(), kind, "");
    assigned.find(|(_, note)| number_of(note).map(u64::from) == Some(number)).map(|(name, _)| name.to_owned())
}

/// Gives each name a number, which is durable when this returns; one that has a number already, or that there is no
/// room for, says so.
///
/// # Errors
/// When the database takes nothing.
pub fn assign(
    tsdb: &OpenTsdb,
    db: &Db,
    kind: NameKind,
    names: &[String],
) -> Result<Vec<Result<u64, String>>, OpenTsdbError> {
    // A panic leaves nothing half done.
    let _naming = tsdb.naming.lock();
    let mut given = Vec::with_capacity(names.len());
    let (mut held, mut lowest) = {
        let snapshot = db.snapshot();
        (notes(snapshot.meta()).len(), lowest(snapshot.meta(), kind))
    };
    for name in names {
        if let Some(number) = number(&tsdb.state, kind, name) {
            given.push(Err(format!("Name already exists with UID: {}", tsuid::digits(number))));
            continue;
        }
        if held >= NOTED_MAX {
            given.push(Err(format!("{NOTED_MAX} names are assigned or described, the most that may be")));
            continue;
        }
        let number = lowest.map_or(NUMBER_MAX, |lowest| lowest.saturating_sub(1));
        put(db, kind, name, number)?;
        given.push(Ok(number.into()));
        (held, lowest) = (held + 1, Some(number));
    }
    db.sync().map_err(ApiError::from)?;
    Ok(given)
}

fn lowest(meta: &Meta, kind: NameKind) -> Option<u32> {
    starting(meta, kind, "").filter_map(|(_, note)| number_of(note)).min()
}

fn put(db: &Db, kind: NameKind, name: &str, number: u32) -> Result<(), OpenTsdbError> {
    let custom = BTreeMap::from([(NUMBER.to_owned(), tsuid::digits(number.into()))]);
    let note = Annotation { tsuid: Some(subject(kind, name)), start: EPOCH, custom, ..Annotation::default() };
    write(db, MetaChange::Annotate(note), Durability::Buffered)
}

fn write(db: &Db, change: MetaChange, durability: Durability) -> Result<(), OpenTsdbError> {
    Ok(db.put_meta(change, durability).map_err(ApiError::from)?)
}

fn remove(db: &Db, kind: NameKind, name: &str) -> Result<(), OpenTsdbError> {
    let gone = MetaChange::RemoveAnnotation { tsuid: Some(subject(kind, name)), start: EPOCH };
    write(db, gone, Durability::Synced)
}

/// Renames a name that no series has; its number and its description stay.
///
/// # Errors
/// Says why not; a failure is the database's.
pub fn rename(
    tsdb: &OpenTsdb,
    db: &Db,
    kind: NameKind,
    from: &str,
    to: &str,
) -> Result<Result<(), String>, OpenTsdbError> {
    let _naming = tsdb.naming.lock();
    if tsdb.state.index().knows(kind, from) {
        let why =
            format!("'{from}' is carried by series, whose names do not change; assign '{to}' and send it from now on");
        return Ok(Err(why));
    }
    let note = find(db.snapshot().meta(), kind, from).filter(|note| number_of(note).is_some()).cloned();
    let Some(note) = note else { return Ok(Err(format!("Name(\"{from}\") does not exist"))) };
    if let Some(taken) = self::number(&tsdb.state, kind, to) {
        return Ok(Err(format!("'{to}' already has the UID {}", tsuid::digits(taken))));
    }
    write(db, MetaChange::Annotate(Annotation { tsuid: Some(subject(kind, to)), ..note }), Durability::Buffered)?;
    remove(db, kind, from)?;
    Ok(Ok(()))
}

/// The description of a name by clients. `None` is an unset field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub notes: Option<String>,
    pub custom: Option<BTreeMap<String, String>>,
}

impl Description {
    /// The fields of this description, with unset ones from `before`.
    pub fn over(self, before: Description) -> Description {
        Description {
            display_name: self.display_name.or(before.display_name),
            description: self.description.or(before.description),
            notes: self.notes.or(before.notes),
            custom: self.custom.or(before.custom),
        }
    }
}

/// The description of a name.
pub fn described(meta: &Meta, kind: NameKind, name: &str) -> Description {
    let Some(note) = find(meta, kind, name) else { return Description::default() };
    let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let custom = note.custom.iter();
    let custom = custom.filter_map(|(key, value)| Some((key.strip_prefix(CUSTOM)?.to_owned(), value.clone())));
    let custom: BTreeMap<String, String> = custom.collect();
    Description {
        display_name: note.custom.get(DISPLAY_NAME).cloned(),
        description: filled(&note.description),
        notes: filled(&note.notes),
        custom: Some(custom).filter(|custom| !custom.is_empty()),
    }
}

/// Replaces the description of a name by `told`, durably.
///
/// # Errors
/// 507 without room for one more name; the database's errors.
pub fn describe(tsdb: &OpenTsdb, db: &Db, kind: NameKind, name: &str, told: Description) -> Result<(), OpenTsdbError> {
    let _naming = tsdb.naming.lock();
    let snapshot = db.snapshot();
    let before = find(snapshot.meta(), kind, name);
    let number = before.and_then(|note| note.custom.get(NUMBER)).cloned();
    if told == Description::default() && number.is_none() {
        return remove(db, kind, name);
    }
    if before.is_none() && notes(snapshot.meta()).len() >= NOTED_MAX {
        let text = format!("{NOTED_MAX} names are assigned or described, the most that may be");
        return Err(OpenTsdbError::new(StatusCode::INSUFFICIENT_STORAGE, text));
    }
    drop(snapshot);
    let own = [(NUMBER, number), (DISPLAY_NAME, told.display_name)].into_iter();
    let own = own.filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let custom = told.custom.unwrap_or_default().into_iter().map(|(key, value)| (format!("{CUSTOM}{key}"), value));
    let note = Annotation {
        tsuid: Some(subject(kind, name)),
        start: EPOCH,
        end: None,
        description: told.description.unwrap_or_default(),
        notes: told.notes.unwrap_or_default(),
        custom: own.chain(custom).collect(),
    };
    write(db, MetaChange::Annotate(note), Durability::Synced)
}
