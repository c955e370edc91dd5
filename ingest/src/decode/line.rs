//! InfluxDB's line protocol: `measurement,tag=value field=1.5,other=3i 1767322800000000000`, one line per point.
//!
//! It is parsed in one pass over the bytes. Characters are interpreted as in InfluxDB 1.x, whose answers to such lines
//! are recorded in `fixtures/influx`: a single backslash directly before a blank, comma or equals sign escapes it, and
//! any other backslash stands for itself. The sender's names stay raw bytes here; [`series`] and [`name`] turn them
//! into text. A caller that has seen them before says so through [`LineForesight`], which saves even the search for
//! their ends.

mod number;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use telem_engine::{Timestamp, Value};

use super::words::starts_with;

/// Longest line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Most fields of a line.
pub const FIELDS_MAX: usize = 4_096;

/// Why a line is malformed, in InfluxDB's words if it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("missing measurement")]
    MissingMeasurement,
    #[error("missing tag key")]
    MissingTagKey,
    #[error("missing tag value")]
    MissingTagValue,
    #[error("invalid tag format: an equals sign within a value is written as \\=")]
    TagFormat,
    #[error("duplicate tags: '{key}' occurs twice")]
    DuplicateTag { key: String },
    #[error("{found} tags; at most {max} are allowed")]
    TooManyTags { found: usize, max: usize },
    #[error("missing fields")]
    MissingFields,
    #[error("missing field key")]
    MissingFieldKey,
    #[error("invalid field format: expected key=value")]
    FieldFormat,
    #[error("missing field value")]
    MissingFieldValue,
    #[error("invalid number")]
    Number,
    #[error("invalid boolean: expected t, true, f, false, a number, or a string in quotes")]
    Boolean,
    #[error("invalid integer: beyond the 64 bits of -9223372036854775808 to 9223372036854775807")]
    IntegerRange,
    #[error("invalid float: beyond what 64 bits of float can hold")]
    FloatRange,
    #[error("unbalanced quotes")]
    UnbalancedQuotes,
    #[error("bad timestamp: expected a whole number")]
    Timestamp,
    #[error("bad timestamp: beyond what microseconds in 64 bits can hold")]
    TimestampRange,
    #[error("point is invalid: nothing may follow the timestamp")]
    Trailing,
    #[error("a name is not UTF-8")]
    NotUtf8,
    #[error("the line has {found} bytes; at most {max} are allowed")]
    TooLong { found: usize, max: usize },
    #[error("the line has more than {max} fields; send the rest in another with the same tags and time")]
    TooManyFields { max: usize },
}

/// What timestamps count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinePrecision {
    #[default]
    Nanos,
    Micros,
    Millis,
    Seconds,
    Minutes,
    Hours,
    /// The size of each timestamp decides its unit, as in InfluxDB 3: seconds up to the year 2128, and so on.
    Guessed,
}

/// The first count that is not taken for seconds; of milliseconds and microseconds it is 1,000 times as many each.
const GUESSED_SECONDS_MAX: u64 = 5_000_000_000;

impl LinePrecision {
    /// `ns`, `us`, `ms`, `s`, `m` or `h`; also `n`, `u` and `µ`, as InfluxDB 1.x has it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "n" | "ns" => Some(Self::Nanos),
            "u" | "us" | "µ" | "µs" => Some(Self::Micros),
            "ms" => Some(Self::Millis),
            "s" => Some(Self::Seconds),
            "m" => Some(Self::Minutes),
            "h" => Some(Self::Hours),
            _ => None,
        }
    }

    /// The time that `count` of these since 1970 are; `None` beyond what microseconds can express. Nanoseconds are
    /// truncated towards the past.
    pub fn time(self, count: i64) -> Option<Timestamp> {
        let micros = match self {
            Self::Nanos => return Some(Timestamp::from_nanos(count)),
            Self::Micros => 1,
            Self::Millis => 1_000,
            Self::Seconds => 1_000_000,
            Self::Minutes => 60_000_000,
            Self::Hours => 3_600_000_000,
            Self::Guessed => return Self::guess(count).time(count),
        };
        count.checked_mul(micros).map(Timestamp::from_micros)
    }
}

impl LinePrecision {
    /// What a timestamp of that size counts.
    fn guess(count: i64) -> Self {
        match count.unsigned_abs() / GUESSED_SECONDS_MAX {
            0 => Self::Seconds,
            1..1_000 => Self::Millis,
            1_000..1_000_000 => Self::Micros,
            _ => Self::Nanos,
        }
    }
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue {
    /// A number; booleans are the Ints 1 and 0.
    Number(Value),
    /// A string, which no sample can hold.
    Text,
    /// An unsigned integer beyond the largest signed one, which no sample can hold exactly.
    Unsigned,
}

/// A field as it was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    /// With its escapes; see [`name`].
    pub key: &'a [u8],
    pub value: FieldValue,
}

/// A line as it was sent; its fields are returned beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLine<'a> {
    /// All of it.
    pub text: &'a [u8],
    /// Measurement and tags with their escapes; see [`series`].
    pub series: &'a [u8],
    /// In the sender's unit.
    pub time: Option<i64>,
}

/// A malformed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken<'a> {
    pub text: &'a [u8],
    pub error: LineError,
}

/// Names that were seen before. An answer is the length of a name that `rest` starts with, and is believed: it must be
/// one that scanning found before in the same place.
pub trait LineForesight {
    /// Measurement and tags, where a blank follows them.
    fn series(&mut self, rest: &[u8]) -> Option<usize>;
    /// They were not foreseen, and are these.
    fn scanned(&mut self, series: &[u8]);
    /// The next key of a field, where an equals sign follows it.
    fn field(&mut self, rest: &[u8]) -> Option<usize>;
}

/// Knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Blind;

impl LineForesight for Blind {
    fn series(&mut self, _rest: &[u8]) -> Option<usize> {
        None
    }

    fn scanned(&mut self, _series: &[u8]) {}

    fn field(&mut self, _rest: &[u8]) -> Option<usize> {
        None
    }
}

/// Reads a body line by line.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    body: &'a [u8],
    at: usize,
    /// The last timestamp as it was sent, and its number: lines of a tick have one.
    last_time: Option<(&'a [u8], i64)>,
    /// Of the line at `at`, from 1.
    number_at: usize,
    /// Of the line that was read last.
    number: usize,
}

impl<'a> Lines<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0, last_time: None, number_at: 1, number: 0 }
    }

    /// The number of the line that was read last, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether nothing is left but blank lines and comments, which are passed.
    pub fn at_end(&mut self) -> bool {
        self.skip_to_line();
        self.at == self.body.len()
    }

    /// Reads the next line, its fields into `fields`. After one that is none it goes on with the next, which begins
    /// after the first line break that is not inside a string.
    pub fn read(
        &mut self,
        foresight: &mut impl LineForesight,
        fields: &mut Vec<Field<'a>>,
    ) -> Option<Result<SampleLine<'a>, Broken<'a>>> {
        fields.clear();
        if self.at_end() {
            return None;
        }
        let start = self.at;
        self.number = self.number_at;
        let read = self.line(foresight, fields);
        let end = if read.is_ok() { self.at } else { self.at + end_of_line(&self.body[self.at..]) };
        self.at = end;
        let text = &self.body[start..end];
        let (found, max) = (text.len(), LINE_BYTES_MAX);
        let checked = if found > max { Err(LineError::TooLong { found, max }) } else { read };
        Some(checked.map(|line| SampleLine { text, ..line }).map_err(|error| Broken { text, error }))
    }

    /// To the first byte of a line, over blanks, empty lines and comments.
    fn skip_to_line(&mut self) {
        while let Some(byte) = self.body.get(self.at) {
            match byte {
                b'\n' => {
                    self.number_at += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0 => self.at += 1,
                b'#' => self.at += end_of_line(&self.body[self.at..]),
                _ => return,
            }
        }
    }

    fn line(
        &mut self,
        foresight: &mut impl LineForesight,
        fields: &mut Vec<Field<'a>>,
    ) -> Result<SampleLine<'a>, LineError> {
        let series = self.series(foresight)?;
        self.skip_blanks();
        loop {
            if fields.is_empty() && self.at_line_end() {
                return Err(LineError::MissingFields);
            }
            let field = self.field(foresight)?;
            if fields.len() == FIELDS_MAX {
                return Err(LineError::TooManyFields { max: FIELDS_MAX });
            }
            fields.push(field);
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        self.skip_blanks();
        let time = if self.at_line_end() { None } else { Some(self.time()?) };
        self.skip_blanks();
        if self.at_line_end() { Ok(SampleLine { text: series, series, time }) } else { Err(LineError::Trailing) }
    }

    /// Measurement and tags.
    fn series(&mut self, foresight: &mut impl LineForesight) -> Result<&'a [u8], LineError> {
        let rest = &self.body[self.at..];
        if let Some(len) = foresight.series(rest) {
            self.at += len;
            return Ok(&rest[..len]);
        }
        let len = end_of_name(rest, |byte| matches!(byte, b' ' | b'\n'));
        self.at += len;
        if rest.get(len) != Some(&b' ') {
            // If the fields are missing, something before them may be missing too.
            self::series(rest[..len].trim_ascii_end())?;
            return Err(LineError::MissingFields);
        }
        foresight.scanned(&rest[..len]);
        Ok(&rest[..len])
    }

    fn field(&mut self, foresight: &mut impl LineForesight) -> Result<Field<'a>, LineError> {
        let rest = &self.body[self.at..];
        let len = match foresight.field(rest) {
            Some(len) => len,
            None => {
                let len = end_of_name(rest, |byte| matches!(byte, b'=' | b',' | b' ' | b'\n'));
                match rest.get(len) {
                    Some(b'=') if len == 0 => return Err(LineError::MissingFieldKey),
                    Some(b'=') => len,
                    _ => return Err(LineError::FieldFormat),
                }
            }
        };
        self.at += len + 1;
        let value = self.value()?;
        if number::ends(self.body.get(self.at)) {
            Ok(Field { key: &rest[..len], value })
        } else {
            Err(LineError::FieldFormat)
        }
    }

    fn value(&mut self) -> Result<FieldValue, LineError> {
        let rest = &self.body[self.at..];
        match rest.first() {
            end if number::ends(end) => Err(LineError::MissingFieldValue),
            Some(b'"') => {
                let len = string_len(rest).ok_or(LineError::UnbalancedQuotes)?;
                self.number_at += rest[..len].iter().filter(|byte| **byte == b'\n').count();
                self.at += len;
                Ok(FieldValue::Text)
            }
            Some(b'0'..=b'9' | b'-' | b'.') => {
                let (value, len) = number::read(rest)?;
                self.at += len;
                Ok(value)
            }
            _ => {
                let len = number::token_len(rest);
                let truth = number::truth(&rest[..len])?;
                self.at += len;
                Ok(FieldValue::Number(Value::Int(truth.into())))
            }
        }
    }

    fn time(&mut self) -> Result<i64, LineError> {
        let rest = &self.body[self.at..];
        let is_end = |len: usize| rest.get(len) != Some(&b',') && number::ends(rest.get(len));
        if let Some((text, time)) = self.last_time
            && starts_with(rest, text)
            && is_end(text.len())
        {
            self.at += text.len();
            return Ok(time);
        }
        let (time, len) = number::time(rest)?;
        if !is_end(len) {
            return Err(LineError::Timestamp);
        }
        self.at += len;
        self.last_time = Some((&rest[..len], time));
        Ok(time)
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Also before the line break of another system.
    fn at_line_end(&self) -> bool {
        matches!(self.body[self.at..], [] | [b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..])
    }
}

/// Up to the next line break.
fn end_of_line(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
}

/// Up to the first byte that `ends` a name and has no backslash before it.
fn end_of_name(rest: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        // A line break cannot be escaped.
        if ends(*byte) && (*byte == b'\n' || at == 0 || rest[at - 1] != b'\\') {
            return at;
        }
        at += 1;
    }
    at
}

/// The length of the string that `rest` starts with, quotes included. In it a backslash precedes a quote or another
/// backslash.
fn string_len(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match rest.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if matches!(rest.get(at + 1), Some(b'"' | b'\\')) => at += 2,
            _ => at += 1,
        }
    }
}

/// Tags in the order in which they were sent.
pub type Tags<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Measurement and tags out of [`SampleLine::series`].
///
/// # Errors
/// What is missing, occurs twice, or is not text.
pub fn series(raw: &[u8]) -> Result<(Cow<'_, str>, Tags<'_>), LineError> {
    let end = end_of_name(raw, |byte| byte == b',');
    if end == 0 {
        return Err(LineError::MissingMeasurement);
    }
    let measurement = name(&raw[..end])?;
    let mut tags = Tags::new();
    let mut found = 0;
    let mut rest = &raw[end..];
    while let Some(tag) = rest.strip_prefix(b",") {
        let key = end_of_name(tag, |byte| matches!(byte, b'=' | b','));
        if key == 0 {
            return Err(LineError::MissingTagKey);
        }
        if tag.get(key) != Some(&b'=') {
            return Err(LineError::MissingTagValue);
        }
        let value = &tag[key + 1..];
        let len = end_of_name(value, |byte| matches!(byte, b'=' | b','));
        match value.get(len) {
            Some(b'=') => return Err(LineError::TagFormat),
            _ if len == 0 => return Err(LineError::MissingTagValue),
            _ => {}
        }
        found += 1;
        if found <= telem_engine::series::TAGS_MAX {
            let (key, value) = (name(&tag[..key])?, name(&value[..len])?);
            if tags.iter().any(|(known, _)| *known == key) {
                return Err(LineError::DuplicateTag { key: key.into_owned() });
            }
            tags.push((key, value));
        }
        rest = &value[len..];
    }
    if found > tags.len() {
        return Err(LineError::TooManyTags { found, max: tags.len() });
    }
    Ok((measurement, tags))
}

/// The text of a name: a backslash before a blank, comma or equals sign goes.
///
/// # Errors
/// NotUtf8.
pub fn name(raw: &[u8]) -> Result<Cow<'_, str>, LineError> {
    let text = std::str::from_utf8(raw).map_err(|_| LineError::NotUtf8)?;
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' || !matches!(rest.peek(), Some(' ' | ',' | '=')) {
            plain.push(c);
        }
    }
    Ok(Cow::Owned(plain))
}

/// The metric that a field is stored as: `measurement_field`, and the measurement alone for a field named `value`.
pub fn metric(measurement: &str, field: &str) -> String {
    if field == "value" { measurement.to_owned() } else { format!("{measurement}_{field}") }
}
