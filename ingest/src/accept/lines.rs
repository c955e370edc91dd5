//! Turns line protocol into a batch. Good lines are kept; each bad line, or bad field of a good line, is reported.
//!
//! A known series is not parsed again: its raw bytes lead to its ids, see [`crate::known`].

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use telem_engine::{Db, SampleBatch, SeriesId, SeriesKey, TagSet, Timestamp};

use super::{AcceptCounters, Limits, Reason, check_time};
use crate::decode::line::{
    self, Broken, Field, FieldValue, LineError, LineForesight, LinePrecision, Lines, SampleLine,
};
use crate::decode::words::starts_with;
use crate::default_tags::DefaultTags;
use crate::known::{At, KEY_BYTES_MAX, Keys};

/// Most bad lines of one request that are reported with their reasons; the others are counted.
pub const LINES_TOLD_MAX: usize = 1_000;
/// How much of a bad line is shown, in characters.
const SHOWN_CHARS_MAX: usize = 128;
/// Most fields of one measurement and tags whose series are remembered.
const FIELDS_KNOWN_MAX: usize = 1_024;
/// Most remembered fields that are compared with one that was sent.
const LOOKS_MAX: usize = 64;

/// How the lines of a request are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRules {
    pub precision: LinePrecision,
    /// Whether good samples are stored; else they are checked and counted only.
    pub keep: bool,
}

/// Why a line, or a field of it, is not stored.
#[derive(Debug, thiserror::Error)]
pub enum LineReason {
    #[error("unable to parse '{text}': {error}")]
    Broken { text: String, error: LineError },
    #[error("field '{field}' is a string; only numbers and booleans are stored (the rest of the line is)")]
    Text { field: String },
    #[error(
        "field '{field}' is an unsigned integer beyond 9223372036854775807, the largest that is stored (the rest of \
         the line is)"
    )]
    Unsigned { field: String },
    #[error(transparent)]
    Sample(#[from] Reason),
}

/// A line that is not stored, or not all of it.
#[derive(Debug)]
pub struct LineReject {
    /// From 1.
    pub line: usize,
    pub reason: LineReason,
}

/// What became of a request's lines.
#[derive(Debug, Default)]
pub struct AcceptedLines {
    /// Empty unless samples are kept.
    pub batch: SampleBatch,
    /// Good samples, kept or not.
    pub good: usize,
    /// The first [`LINES_TOLD_MAX`], in the order of the lines.
    pub rejects: Vec<LineReject>,
    /// The number of rejects, reported or not: lines, and fields of lines that were stored without them.
    pub rejected: usize,
    /// Where reading stopped because the batch was full.
    pub stopped_at: Option<usize>,
}

impl AcceptedLines {
    fn reject(&mut self, line: usize, reason: impl Into<LineReason>) {
        self.rejected += 1;
        if self.rejects.len() < LINES_TOLD_MAX {
            self.rejects.push(LineReject { line, reason: reason.into() });
        }
    }
}

/// Sorts the lines of `body` into a batch and rejects, giving new series their ids. `now` is the wall clock, and the
/// time of lines without one. Series get the tags of [`Keys::tags`] that they lack.
pub fn accept(
    db: &Db,
    now: Timestamp,
    limits: &Limits,
    counters: &AcceptCounters,
    keys: &mut Keys<LineSeries>,
    rules: LineRules,
    body: &[u8],
) -> AcceptedLines {
    let tags = keys.tags().clone();
    let sorter = LineSorter { db, now, limits, tags: &tags, rules };
    let mut lines = Lines::new(body);
    let mut seer = LineSeer { keys, current: None, found: Vec::new() };
    let mut fields = Vec::new();
    let mut accepted = AcceptedLines::default();
    if rules.keep {
        // A sample takes about 25 bytes where fields of one subject share a line.
        accepted.batch = SampleBatch::with_capacity((body.len() / 24).min(limits.batch_samples_max));
    }
    while let Some(read) = lines.read(&mut seer, &mut fields) {
        let number = lines.number();
        match read {
            Ok(_) if accepted.good + fields.len() > limits.batch_samples_max => {
                accepted.reject(number, Reason::BatchFull { max: limits.batch_samples_max });
                accepted.stopped_at = Some(number);
                break;
            }
            Ok(line) => sorter.take(&mut seer, &mut accepted, number, line, &fields),
            Err(broken) => accepted.reject(number, told(&broken)),
        }
    }
    counters.count(accepted.batch.len(), accepted.rejected);
    accepted
}

fn told(broken: &Broken<'_>) -> LineReason {
    LineReason::Broken { text: shown(broken.text), error: broken.error.clone() }
}

/// As much of a line as an answer shows.
fn shown(raw: &[u8]) -> String {
    // A character takes four bytes at most.
    let text = String::from_utf8_lossy(&raw[..raw.len().min(4 * SHOWN_CHARS_MAX)]);
    let mut shown: String = text.trim_end_matches('\r').chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < raw.trim_ascii_end().len() && shown.chars().count() == SHOWN_CHARS_MAX {
        shown.push_str("...");
    }
    shown
}

struct LineSorter<'a> {
    db: &'a Db,
    now: Timestamp,
    limits: &'a Limits,
    tags: &'a DefaultTags,
    rules: LineRules,
}

impl LineSorter<'_> {
    /// Puts a line's samples into the batch.
    fn take(
        &self,
        seer: &mut LineSeer<'_>,
        accepted: &mut AcceptedLines,
        number: usize,
        line: SampleLine<'_>,
        fields: &[Field<'_>],
    ) {
        let time = match line.time.map(|count| self.rules.precision.time(count)) {
            None => self.now,
            Some(Some(time)) => time,
            Some(None) => {
                let text = shown(line.text);
                return accepted.reject(number, LineReason::Broken { text, error: LineError::TimestampRange });
            }
        };
        if let Err(reason) = check_time(time, self.now, self.limits) {
            return accepted.reject(number, reason);
        }
        if let Err(reason) = self.resolve(seer, accepted, number, line, fields) {
            return accepted.reject(number, reason);
        }
        for (field, series) in fields.iter().zip(&seer.found) {
            let (FieldValue::Number(value), Some(series)) = (field.value, *series) else { continue };
            accepted.good += 1;
            if self.rules.keep {
                accepted.batch.push(series, time, value);
            }
        }
    }

    /// Finds the series of every field that was not foreseen. A field that can have none is rejected.
    ///
    /// # Errors
    /// Why the line as a whole is not stored.
    fn resolve(
        &self,
        seer: &mut LineSeer<'_>,
        accepted: &mut AcceptedLines,
        number: usize,
        line: SampleLine<'_>,
        fields: &[Field<'_>],
    ) -> Result<(), LineReason> {
        let mut parsed = None;
        for (at, field) in fields.iter().enumerate() {
            let unstorable = match field.value {
                FieldValue::Number(_) if seer.found[at].is_some() => continue,
                FieldValue::Number(_) => None,
                FieldValue::Text => Some(LineReason::Text { field: shown(field.key) }),
                FieldValue::Unsigned => Some(LineReason::Unsigned { field: shown(field.key) }),
            };
            if let Some(reason) = unstorable {
                accepted.reject(number, reason);
                continue;
            }
            let (measurement, tags) = match &parsed {
                Some(parsed) => parsed,
                None => parsed.insert(self.parse(line)?),
            };
            match self.series(measurement, tags, field.key) {
                Ok(series) => {
                    seer.found[at] = Some(series);
                    if self.rules.keep {
                        seer.remember(line.series, field.key, series);
                    }
                }
                Err(reason) => accepted.reject(number, reason),
            }
        }
        Ok(())
    }

    fn parse<'l>(&self, line: SampleLine<'l>) -> Result<(Cow<'l, str>, TagSet), LineReason> {
        let broken = |error| LineReason::Broken { text: shown(line.text), error };
        let (measurement, tags) = line::series(line.series).map_err(broken)?;
        let (found, max) = (tags.len(), self.limits.tags_max);
        if found > max {
            return Err(Reason::TooManyTags { found, max }.into());
        }
        let tags = self.tags.complete(&tags, max).map_err(Reason::from)?;
        Ok((measurement, tags))
    }

    /// Without keeping anything, any id will do.
    fn series(&self, measurement: &str, tags: &TagSet, field: &[u8]) -> Result<SeriesId, LineReason> {
        let field_name = line::name(field).map_err(|error| LineReason::Broken { text: shown(field), error })?;
        let key = SeriesKey::new(&line::metric(measurement, &field_name), tags.clone()).map_err(Reason::from)?;
        if !self.rules.keep {
            return Ok(SeriesId(0));
        }
        Ok(self.db.series(&key).map_err(Reason::from)?)
    }
}

/// The fields of one measurement and tags, and their series, in the order in which they were first sent.
#[derive(Debug, Default)]
pub struct LineSeries {
    /// Raw keys one after another, each with its equals sign.
    names: Vec<u8>,
    fields: Vec<KnownField>,
    /// The field that is likely to come next.
    cursor: usize,
}

#[derive(Clone, Copy, Debug)]
struct KnownField {
    /// Of its key in `names`, equals sign included.
    start: u32,
    end: u32,
    series: SeriesId,
}

impl LineSeries {
    /// The field whose key `rest` starts with, and the length of that key.
    fn find(&mut self, rest: &[u8]) -> Option<(SeriesId, usize)> {
        let count = self.fields.len();
        for step in 0..count.min(LOOKS_MAX) {
            let at = if self.cursor + step < count { self.cursor + step } else { self.cursor + step - count };
            let field = self.fields[at];
            let name = &self.names[field.start as usize..field.end as usize];
            if starts_with(rest, name) {
                self.cursor = if at + 1 < count { at + 1 } else { 0 };
                return Some((field.series, name.len() - 1));
            }
        }
        None
    }

    /// Whether a field is to be remembered and is not yet.
    fn takes(&self, name: &[u8]) -> bool {
        let known = |field: &KnownField| self.names[field.start as usize..field.end as usize - 1] == *name;
        name.len() <= KEY_BYTES_MAX && self.fields.len() < FIELDS_KNOWN_MAX && !self.fields.iter().any(known)
    }

    /// Vectors may be half empty.
    fn bytes_for(name: &[u8]) -> usize {
        2 * (name.len() + 1 + size_of::<KnownField>())
    }

    fn add(&mut self, name: &[u8], series: SeriesId) {
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        self.names.push(b'=');
        self.fields.push(KnownField { start, end: self.names.len() as u32, series });
    }
}

/// Foresees names from the [`Keys`] of a decoder, and notes the series of what it foresaw.
struct LineSeer<'k> {
    keys: &'k mut Keys<LineSeries>,
    /// The measurement and tags of this line, if they are known.
    current: Option<At>,
    /// By field of this line.
    found: Vec<Option<SeriesId>>,
}

impl LineSeer<'_> {
    fn remember(&mut self, key: &[u8], field: &[u8], series: SeriesId) {
        if self.current.is_none() {
            self.current = self.keys.insert(key, LineSeries::default());
            if let Some(at) = self.current {
                self.keys.follow(at);
            }
        }
        let Some(known) = self.current.and_then(|at| self.keys.meaning(at)) else { return };
        if !known.takes(field) || !self.keys.make_room(LineSeries::bytes_for(field)) {
            return;
        }
        if let Some(known) = self.current.and_then(|at| self.keys.meaning_mut(at)) {
            known.add(field, series);
        }
    }
}

impl LineForesight for LineSeer<'_> {
    fn series(&mut self, rest: &[u8]) -> Option<usize> {
        self.found.clear();
        self.current = None;
        let (at, key) = self.keys.foreseen()?;
        let len = key.len();
        if !rest.starts_with(key) || rest.get(len) != Some(&b' ') {
            return None;
        }
        self.keys.follow(at);
        self.current = Some(at);
        Some(len)
    }

    fn scanned(&mut self, series: &[u8]) {
        self.current = self.keys.find(series);
        if let Some(at) = self.current {
            self.keys.follow(at);
        }
    }

    fn field(&mut self, rest: &[u8]) -> Option<usize> {
        let known = self.current.and_then(|at| self.keys.meaning_mut(at));
        let found = known.and_then(|known| known.find(rest));
        self.found.push(found.map(|(series, _)| series));
        found.map(|(_, len)| len)
    }
}
