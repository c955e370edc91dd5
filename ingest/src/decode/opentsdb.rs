//! Bodies of OpenTSDB's `/api/put`, with OpenTSDB's validation.
//!
//! A body is JSON as Jackson reads it. Numbers and booleans may replace strings and the other way round; the last of
//! equal keys counts; unknown fields, and anything behind the JSON, are ignored. `NaN` and `Infinity` may be bare
//! words, so that one bad value does not cost the other points of its body. Values that OpenTSDB cannot store,
//! timestamps in microseconds and values that are not finite, are accepted if [`PutRules`] allow it.

mod json;
pub(super) mod number;
mod order;
pub mod scan;
pub mod telnet;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use telem_engine::Timestamp;

use self::number::NumberError;
use crate::decode::Incoming;
use crate::decode::lenient::TextMap;

/// Most tags that OpenTSDB itself takes on a data point, as its `tsd.storage.max_tags` is by default.
pub const TAGS_MAX: usize = 8;
/// Timestamps of more digits are neither seconds nor milliseconds.
const TIMESTAMP_MILLIS_MAX: i64 = 9_999_999_999_999;
/// A timestamp with any of these bits counts milliseconds.
const MILLIS_BITS: i64 = !0xFFFF_FFFF;

/// What the data points of a body mean and may be, where that is for the sender to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRules {
    pub tags_max: usize,
    pub precision: Precision,
    pub non_finite: NonFinite,
}

/// What timestamps count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Seconds or milliseconds, by their size, as OpenTSDB has it.
    #[default]
    BySize,
    Seconds,
    Millis,
    Micros,
}

impl Precision {
    /// `s`, `ms` or `us`.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "s" => Some(Self::Seconds),
            "ms" => Some(Self::Millis),
            "us" => Some(Self::Micros),
            _ => None,
        }
    }
}

/// What becomes of NaN and the infinities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// They are not numbers, as in OpenTSDB.
    #[default]
    Refuse,
    /// They are Floats.
    Keep,
}

/// Why nothing of a body can be used.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("Missing request content")]
    Empty,
    #[error("The JSON must start as an object or an array")]
    NotAnObjectOrArray,
    #[error("Unable to parse the given JSON")]
    NotJson(#[source] JsonError),
}

/// What is wrong with the JSON of a body, and where in the body as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at line {line} column {column}")]
pub struct JsonError {
    pub what: String,
    /// From 1.
    pub line: usize,
    /// How many bytes of the line were read.
    pub column: usize,
}

/// One element of a body, as sent. What is missing or null is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataPoint<'a> {
    pub metric: Option<Cow<'a, str>>,
    /// As sent, in whatever unit; 0 when missing.
    pub timestamp: i64,
    /// The text of the number, string or boolean that was sent.
    pub value: Option<Cow<'a, str>>,
    /// In the order of the first sight of each key.
    pub tags: Option<TextMap<'a>>,
}

/// The data points of a body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutPoints<'a> {
    pub kept: Vec<DataPoint<'a>>,
    /// How many more there were than were to be kept: they are counted and not looked at.
    pub beyond: usize,
}

/// Why a data point cannot be stored. Displays as OpenTSDB says it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointError {
    #[error("Metric name was empty")]
    EmptyMetric,
    #[error("Invalid timestamp")]
    InvalidTimestamp,
    #[error("Empty value")]
    EmptyValue,
    #[error("Missing tags")]
    MissingTags,
    #[error("Unable to parse value to a number")]
    NotANumber,
    #[error("value is NaN or Infinite: {value} for metric={metric} timestamp={timestamp}")]
    NotFinite { value: &'static str, metric: String, timestamp: i64 },
    #[error("bad timestamp={timestamp} when trying to add value={value} to metric={metric}, tags={tags}")]
    BadTimestamp { timestamp: i64, value: String, metric: String, tags: String },
    #[error("Too many tags: {found} maximum allowed: {max}, tags: {tags}")]
    TooManyTags { found: usize, max: usize, tags: String },
    #[error("Invalid {what}: null")]
    NullName { what: String },
    #[error("Invalid {what}: empty string")]
    EmptyName { what: String },
    #[error("Invalid {what} (\"{name}\"): illegal character: {found}")]
    IllegalCharacter { what: String, name: String, found: char },
}

/// Hands the data points of a put body, one object or an array of them, to `take`; `points_max` of them, and
/// the number of the others. Bytes that are no UTF-8 become U+FFFD, which no name may hold, so that only their
/// points are bad.
///
/// # Errors
/// See [`BodyError`]; `take` is not called then.
pub fn with_points<R>(body: &[u8], points_max: usize, take: impl FnOnce(PutPoints<'_>) -> R) -> Result<R, BodyError> {
    let text = String::from_utf8_lossy(body);
    match points(&text, points_max) {
        Ok(points) => Ok(take(points)),
        Err(BodyError::NotJson(error)) => match json::quote_non_numbers(&text) {
            Some(quoted) => match points(&quoted, points_max) {
                Err(BodyError::NotJson(error)) => Err(BodyError::NotJson(json::without_quotes(error, &text))),
                read => read.map(take),
            },
            None => Err(BodyError::NotJson(error)),
        },
        Err(error) => Err(error),
    }
}

/// As [`with_points`], but `take` is given the points in groups of `group_max`, and no more of them are kept at a time:
/// as many as a body may hold take several times its bytes. It is read twice, so that nothing is given of one that cannot
/// be read. Returns how many points there were beyond `points_max`.
///
/// # Errors
/// See [`BodyError`]; `take` is not called then.
pub fn with_groups(
    body: &[u8],
    points_max: usize,
    group_max: usize,
    take: impl FnMut(&[DataPoint<'_>]),
) -> Result<usize, BodyError> {
    let text = String::from_utf8_lossy(body);
    let is_readable = |text: &str| read(text, |json| json::groups(json, points_max, 1, |_| {}));
    let quoted = match is_readable(&text) {
        Err(BodyError::NotJson(error)) => match json::quote_non_numbers(&text) {
            Some(quoted) => match is_readable(&quoted) {
                Err(BodyError::NotJson(error)) => return Err(BodyError::NotJson(json::without_quotes(error, &text))),
                readable => readable.map(|_| Some(quoted))?,
            },
            None => return Err(BodyError::NotJson(error)),
        },
        readable => readable.map(|_| None)?,
    };
    read(quoted.as_deref().unwrap_or(&text), |json| json::groups(json, points_max, group_max, take))
}

fn points(body: &str, points_max: usize) -> Result<PutPoints<'_>, BodyError> {
    read(body, |json| json::points(json, points_max))
}

/// Reads a body with `parse` if it may be JSON.
fn read<'a, R>(body: &'a str, parse: impl FnOnce(&'a str) -> Result<R, serde_json::Error>) -> Result<R, BodyError> {
    let trimmed = body.trim_start();
    let before = &body[..body.len() - trimmed.len()];
    let body = trimmed.trim_end();
    match body.as_bytes().first() {
        None => Err(BodyError::Empty),
        Some(b'{' | b'[') => parse(body).map_err(|error| BodyError::NotJson(json::place(&error, before))),
        Some(_) => Err(BodyError::NotAnObjectOrArray),
    }
}

impl DataPoint<'_> {
    /// The sample that this data point is. The checks and their order are OpenTSDB's, so that a point with several
    /// faults is told the same one.
    ///
    /// # Errors
    /// See [`PointError`].
    pub fn sample(&self, rules: &PutRules) -> Result<Incoming<'_>, PointError> {
        let metric = self.metric.as_deref().filter(|metric| !metric.is_empty()).ok_or(PointError::EmptyMetric)?;
        if self.timestamp <= 0 {
            return Err(PointError::InvalidTimestamp);
        }
        let text = self.value.as_deref().filter(|value| !value.is_empty()).ok_or(PointError::EmptyValue)?;
        let tags = self.tags.as_ref().filter(|tags| !tags.entries.is_empty()).ok_or(PointError::MissingTags)?;
        let value = number::parse(text, rules.non_finite).map_err(|error| match error {
            NumberError::NotANumber => PointError::NotANumber,
            NumberError::NotFinite { text: value } => {
                PointError::NotFinite { value, metric: metric.to_owned(), timestamp: self.timestamp }
            }
        })?;
        let time = time(self.timestamp, rules.precision).ok_or_else(|| PointError::BadTimestamp {
            timestamp: self.timestamp,
            value: number::stored_bytes(value),
            metric: metric.to_owned(),
            tags: shown(tags),
        })?;
        let found = tags.entries.len() + tags.beyond;
        if found > rules.tags_max {
            return Err(PointError::TooManyTags { found, max: rules.tags_max, tags: shown(tags) });
        }
        check_name(|| "metric name".to_owned(), metric)?;
        let mut checked = Vec::with_capacity(tags.entries.len());
        for (key, value) in &tags.entries {
            let shown = value.as_deref().unwrap_or("null");
            check_name(|| format!("tag name with value [{shown}]"), key)?;
            let what = || format!("tag value with key [{key}]");
            let value = value.as_deref().ok_or_else(|| PointError::NullName { what: what() })?;
            check_name(what, value)?;
            checked.push((Cow::Borrowed(&**key), Cow::Borrowed(value)));
        }
        Ok(Incoming { metric: Cow::Borrowed(metric), tags: checked, time, value })
    }
}

/// A timestamp of the wire. By its size: milliseconds if any bit beyond the low 32 is set, seconds otherwise, and
/// `None` beyond 13 digits.
fn time(timestamp: i64, precision: Precision) -> Option<Timestamp> {
    match precision {
        Precision::Seconds => Some(Timestamp::from_seconds(timestamp)),
        Precision::Millis => Some(Timestamp::from_millis(timestamp)),
        Precision::Micros => Some(Timestamp::from_micros(timestamp)),
        Precision::BySize if timestamp & MILLIS_BITS == 0 => Some(Timestamp::from_seconds(timestamp)),
        Precision::BySize if timestamp <= TIMESTAMP_MILLIS_MAX => Some(Timestamp::from_millis(timestamp)),
        Precision::BySize => None,
    }
}

/// Letters, ASCII digits and `-_./`. Letters are those with Unicode's property Alphabetic: besides
/// the letters that OpenTSDB takes, the vowel signs that many scripts need.
///
/// # Errors
/// EmptyName, IllegalCharacter; `what` says what it would name.
pub fn check_name(what: impl FnOnce() -> String, name: &str) -> Result<(), PointError> {
    if name.is_empty() {
        return Err(PointError::EmptyName { what: what() });
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/') || c.is_alphabetic();
    match name.chars().find(|c| !legal(*c)) {
        Some(found) => Err(PointError::IllegalCharacter { what: what(), name: name.to_owned(), found }),
        None => Ok(()),
    }
}

fn shown(tags: &TextMap<'_>) -> String {
    let entries = tags.entries.iter().map(|(key, value)| (&**key, value.as_deref().unwrap_or("null")));
    braced(entries.collect(), tags.beyond)
}

/// `{host=a, colo=lga}`, in the order of the original; with `...` for the `beyond` that were counted only.
fn braced(mut tags: Vec<(&str, &str)>, beyond: usize) -> String {
    order::of_hash_map(&mut tags, |(key, _)| key);
    let shown = tags.iter().map(|(key, value)| format!("{key}={value}"));
    let more = (beyond > 0).then(|| "...".to_owned());
    format!("{{{}}}", shown.chain(more).collect::<Vec<String>>().join(", "))
}
