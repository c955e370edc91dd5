//! Names that were assigned by `/api/uid/assign` and that no series carries yet.
//!
//! telem needs no assigning: a name is known with the first sample of a series that carries it. Who assigns one before is
//! to find it again, though, also after a restart and in the saved database: each is kept as a note at the epoch, on
//! what no TSUID can name (`metric:sys.cpu`), where the annotations of series and of all do not come across it.
//! Its number counts down from the largest: numbers of names with series count up.

use std::collections::BTreeMap;

use telem_engine::{Annotation, Db, Durability, Meta, MetaChange, NameKind, Timestamp};

use super::errors::Failure;
use super::tsuid;
use crate::http::ApiError;
use crate::state::State;

/// Most names that were assigned before a series carried them.
pub const ASSIGNED_MAX: usize = 10_000;
/// The largest number of three bytes.
const NUMBER_MAX: u32 = 0xFF_FFFF;
/// Where such a note holds the number.
const NUMBER: &str = "uid";
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
pub fn knows(db: &Db, kind: NameKind, name: &str) -> bool {
    db.index().knows(kind, name) || is_assigned(db, kind, name)
}

/// Whether a name was assigned that no series may carry.
pub fn is_assigned(db: &Db, kind: NameKind, name: &str) -> bool {
    find(db.snapshot().meta(), kind, name).and_then(number_of).is_some()
}

/// Names that start with a prefix, sorted by bytes.
pub fn suggest(db: &Db, kind: NameKind, prefix: &str, max: usize) -> Vec<String> {
    let mut names = db.index().suggest(kind, prefix, max);
    let snapshot = db.snapshot();
    let assigned = starting(snapshot.meta(), kind, prefix).take(max);
    names.extend(assigned.map(|(name, _)| name.to_owned()));
    names.sort_unstable();
    names.dedup();
    names.truncate(max);
    names
}

/// The number of a name, if it has one.
pub fn number(db: &Db, kind: NameKind, name: &str) -> Option<u64> {
    tsuid::number(db.index(), kind, name)
        .or_else(|| find(db.snapshot().meta(), kind, name).and_then(number_of).map(u64::from))
}

/// The name of a number.
pub fn name(db: &Db, kind: NameKind, number: u64) -> Option<String> {
    if let Some(name) = tsuid::name(db.index(), kind, number) {
        return Some(name);
    }
    let snapshot = db.snapshot();
    let mut assigned = starting(snapshot.meta(), kind, "");
    assigned.find(|(_, note)| number_of(note).map(u64::from) == Some(number)).map(|(name, _)| name.to_owned())
}

/// Gives each name a number, which is durable when this returns; one that has a number already, or that there is no
/// room for, says so.
///
/// # Errors
/// When the database takes nothing.
pub fn assign(state: &State, db: &Db, kind: NameKind, names: &[String]) -> Result<Vec<Result<u64, String>>, Failure> {
    // A panic leaves nothing half done.
    let _giving = state.opentsdb.naming.lock();
    let mut given = Vec::with_capacity(names.len());
    let (mut held, mut lowest) = {
        let snapshot = db.snapshot();
        (notes(snapshot.meta()).len(), lowest(snapshot.meta(), kind))
    };
    for name in names {
        if let Some(number) = number(db, kind, name) {
            given.push(Err(format!("Name already exists with UID: {}", tsuid::digits(number))));
            continue;
        }
        if held >= ASSIGNED_MAX {
            given.push(Err(format!("{ASSIGNED_MAX} names are assigned that no series carried, the most that may be")));
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

fn put(db: &Db, kind: NameKind, name: &str, number: u32) -> Result<(), Failure> {
    let note = Annotation {
        tsuid: Some(subject(kind, name)),
        start: EPOCH,
        description: "assigned".to_owned(),
        custom: BTreeMap::from([(NUMBER.to_owned(), tsuid::digits(number.into()))]),
        ..Annotation::default()
    };
    Ok(db.put_meta(MetaChange::Annotate(note), Durability::Buffered).map_err(ApiError::from)?)
}

/// Gives a name that no series carries another one; its number stays.
///
/// # Errors
/// Says why not; a failure is the database's.
pub fn rename(state: &State, db: &Db, kind: NameKind, from: &str, to: &str) -> Result<Result<(), String>, Failure> {
    let _giving = state.opentsdb.naming.lock();
    if db.index().knows(kind, from) {
        let why =
            format!("'{from}' is carried by series, whose names do not change; assign '{to}' and send it from now on");
        return Ok(Err(why));
    }
    let Some(number) = find(db.snapshot().meta(), kind, from).and_then(number_of) else {
        return Ok(Err(format!("Name(\"{from}\") does not exist")));
    };
    if let Some(taken) = self::number(db, kind, to) {
        return Ok(Err(format!("'{to}' already has the UID {}", tsuid::digits(taken))));
    }
    put(db, kind, to, number)?;
    let gone = MetaChange::RemoveAnnotation { tsuid: Some(subject(kind, from)), start: EPOCH };
    db.put_meta(gone, Durability::Synced).map_err(ApiError::from)?;
    Ok(Ok(()))
}
