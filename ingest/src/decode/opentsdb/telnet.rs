//! Lines of OpenTSDB's telnet protocol that carry a sample: `put METRIC TIME VALUE KEY=VALUE ...`.
//!
//! The checks, their order and their messages are OpenTSDB's, and differ from those of a put body. A single blank
//! separates two words, so two blanks in a row make an empty word, which is ignored only among the tags. Unlike in
//! OpenTSDB, names are UTF-8. Any text gives a sample or a reason.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use telem_engine::{Timestamp, Value};

use super::number::{self, NumberError};
use super::{NonFinite, PointError, Precision, braced, check_name, time};
use crate::decode::Incoming;
use crate::decode::digits::Decimal;
use crate::decode::lenient::ENTRIES_MAX;
use crate::decode::words::starts_with;

/// Longer integers are not read at all.
const DIGITS_MAX: usize = 19;
/// Digits of a fraction that microseconds can hold, after seconds and after milliseconds.
const FRACTION_OF_SECONDS: usize = 6;
const FRACTION_OF_MILLIS: usize = 3;

/// What lines mean and may be, where that is for the server to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelnetRules {
    /// Most tags on a sample.
    pub tags_max: usize,
    pub fraction: Fraction,
}

/// What a point in a timestamp means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fraction {
    /// `1356998400.5` is half a second later than `1356998400`.
    #[default]
    Counts,
    /// The point is left out, as OpenTSDB has it: with three digits behind it that makes milliseconds, with fewer some
    /// time in 1970.
    PointLeftOut,
}

/// Why a line brings no sample. Displays as OpenTSDB says it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PutError {
    #[error("illegal argument: not enough arguments (need least 4, got {found})")]
    TooFewWords { found: usize },
    #[error("illegal argument: empty metric name")]
    EmptyMetric,
    #[error("illegal argument: invalid timestamp: {0}")]
    InvalidTimestamp(i64),
    #[error("illegal argument: empty value")]
    EmptyValue,
    #[error("illegal argument: invalid tag: {0}")]
    InvalidTag(String),
    #[error("illegal argument: duplicate tag: {tag}, tags={tags}")]
    DuplicateTag { tag: String, tags: String },
    #[error("illegal argument: Need at least one tag (metric={metric}, tags={{}})")]
    NoTags { metric: String },
    #[error("illegal argument: {0}")]
    Point(#[from] PointError),
    #[error("invalid value: {0}")]
    NotANumber(#[from] NumberFault),
}

/// Why a text is not a number, in OpenTSDB's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberFault {
    #[error("Empty string")]
    Empty,
    #[error("Just a sign, no value: {0}")]
    JustASign(String),
    #[error("Value too long: {0}")]
    TooLong(String),
    #[error("Overflow in {0}")]
    Overflow(String),
    #[error("Invalid character '{found}' in {text}")]
    InvalidCharacter { found: char, text: String },
    #[error("For input string: \"{0}\"")]
    NotAFloat(String),
}

/// The sample of a line. Its first word, which says that it is one, is passed over.
///
/// # Errors
/// See [`PutError`].
pub fn put<'a>(line: &'a str, rules: &TelnetRules) -> Result<Incoming<'a>, PutError> {
    let mut words = line.split(' ').skip(1);
    let (Some(metric), Some(when), Some(value), Some(first_tag)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(PutError::TooFewWords { found: line.split(' ').count() - 1 });
    };
    if metric.is_empty() {
        return Err(PutError::EmptyMetric);
    }
    let (count, time_beyond) = timestamp(when, rules.fraction)?;
    if count <= 0 {
        return Err(PutError::InvalidTimestamp(count));
    }
    if value.is_empty() {
        return Err(PutError::EmptyValue);
    }
    let tags = TelnetTags::parse(std::iter::once(first_tag).chain(words))?;
    let value = parse_value(value, metric, count)?;
    let time = time(count, Precision::BySize).ok_or_else(|| PointError::BadTimestamp {
        timestamp: count,
        value: number::stored_bytes(value),
        metric: metric.to_owned(),
        tags: tags.shown(),
    })?;
    tags.check(metric, rules)?;
    let borrowed = |(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value));
    let tags = tags.entries.into_iter().map(borrowed).collect();
    Ok(Incoming { metric: Cow::Borrowed(metric), tags, time: time.saturating_add_micros(time_beyond), value })
}

/// Reads time and value of lines in which both are plain: whole seconds or milliseconds, and a number without an exponent.
#[derive(Debug, Default)]
pub struct PutTimes<'a> {
    /// The last time as it was sent, and what it means: lines of a tick have one.
    last: Option<(&'a [u8], Timestamp)>,
}

impl<'a> PutTimes<'a> {
    /// What `rest`, the line behind the metric and a blank, starts with, and what follows: a blank and the tags. They are
    /// what [`put`] reads; `None` says nothing but that it must do so.
    pub fn time_and_value(&mut self, rest: &'a [u8]) -> Option<(Timestamp, Value, &'a [u8])> {
        let (time, rest) = self.time(rest)?;
        let text = rest.strip_prefix(b" ")?;
        let decimal = Decimal::read(text);
        let value = if decimal.point { decimal.float().map(Value::Float) } else { decimal.int().map(Value::Int) };
        let tags = &text[decimal.len..];
        (tags.first() == Some(&b' ')).then_some((time, value?, tags))
    }

    fn time(&mut self, rest: &'a [u8]) -> Option<(Timestamp, &'a [u8])> {
        if let Some((text, time)) = self.last
            && starts_with(rest, text)
            && rest.get(text.len()) == Some(&b' ')
        {
            return Some((time, &rest[text.len()..]));
        }
        let decimal = Decimal::read(rest);
        let (text, rest) = rest.split_at(decimal.len);
        let count = decimal.int().filter(|count| *count > 0)?;
        let time = time(count, Precision::BySize).filter(|_| rest.first() == Some(&b' '))?;
        self.last = Some((text, time));
        Some((time, rest))
    }
}

/// The tags of a line.
#[derive(Debug, Default)]
struct TelnetTags<'a> {
    /// [`ENTRIES_MAX`] at most, of different keys.
    entries: Vec<(&'a str, &'a str)>,
    /// How many more followed, of whatever keys.
    beyond: usize,
}

impl<'a> TelnetTags<'a> {
    /// # Errors
    /// InvalidTag, DuplicateTag.
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self, PutError> {
        let mut tags = TelnetTags::default();
        for word in words.filter(|word| !word.is_empty()) {
            let (key, value) = word
                .split_once('=')
                .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='))
                .ok_or_else(|| PutError::InvalidTag(word.to_owned()))?;
            match tags.entries.iter().find(|(known, _)| *known == key) {
                Some((_, before)) if *before == value => {}
                Some(_) => return Err(PutError::DuplicateTag { tag: word.to_owned(), tags: tags.shown() }),
                None if tags.entries.len() < ENTRIES_MAX => tags.entries.push((key, value)),
                None => tags.beyond += 1,
            }
        }
        Ok(tags)
    }

    /// # Errors
    /// NoTags, Point.
    fn check(&self, metric: &str, rules: &TelnetRules) -> Result<(), PutError> {
        let found = self.entries.len() + self.beyond;
        if found == 0 {
            return Err(PutError::NoTags { metric: metric.to_owned() });
        }
        if found > rules.tags_max {
            return Err(PointError::TooManyTags { found, max: rules.tags_max, tags: self.shown() }.into());
        }
        check_name(|| "metric name".to_owned(), metric)?;
        for (key, value) in &self.entries {
            check_name(|| format!("tag name with value [{value}]"), key)?;
            check_name(|| format!("tag value with key [{key}]"), value)?;
        }
        Ok(())
    }

    fn shown(&self) -> String {
        braced(self.entries.clone(), self.beyond)
    }
}

/// What the timestamp counts, seconds or milliseconds by its size, and the microseconds that it has beyond that.
fn timestamp(text: &str, fraction: Fraction) -> Result<(i64, i64), NumberFault> {
    let Some((whole, digits)) = text.split_once('.') else {
        return Ok((long(text)?, 0));
    };
    if fraction == Fraction::PointLeftOut {
        return Ok((long(&text.replace('.', ""))?, 0));
    }
    let count = long(whole)?;
    if let Some(found) = digits.chars().find(|c| !c.is_ascii_digit()) {
        return Err(NumberFault::InvalidCharacter { found, text: text.to_owned() });
    }
    let in_seconds = time(count, Precision::BySize) == Some(Timestamp::from_seconds(count));
    let kept = if in_seconds { FRACTION_OF_SECONDS } else { FRACTION_OF_MILLIS };
    let digits = digits.bytes().chain(std::iter::repeat(b'0')).take(kept);
    let micros = digits.fold(0, |micros, digit| micros * 10 + i64::from(digit - b'0'));
    Ok((count, micros))
}

/// A text without `.`, `e` and `E` is an integer.
fn parse_value(text: &str, metric: &str, timestamp: i64) -> Result<Value, PutError> {
    if !text.contains(['.', 'e', 'E']) {
        return Ok(Value::Int(long(text)?));
    }
    number::parse(text, NonFinite::Refuse).map_err(|error| match error {
        NumberError::NotANumber => NumberFault::NotAFloat(text.to_owned()).into(),
        NumberError::NotFinite { text: value } => {
            PointError::NotFinite { value, metric: metric.to_owned(), timestamp }.into()
        }
    })
}

fn long(text: &str) -> Result<i64, NumberFault> {
    if text.is_empty() {
        return Err(NumberFault::Empty);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() {
        return Err(NumberFault::JustASign(text.to_owned()));
    }
    if digits.chars().count() > DIGITS_MAX {
        return Err(NumberFault::TooLong(text.to_owned()));
    }
    if let Some(found) = digits.chars().find(|c| !c.is_ascii_digit()) {
        return Err(NumberFault::InvalidCharacter { found, text: text.to_owned() });
    }
    text.parse().map_err(|_| NumberFault::Overflow(text.to_owned()))
}
