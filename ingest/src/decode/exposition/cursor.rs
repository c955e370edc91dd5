//! A place in one line of an exposition, and what can be read there.

use telem_engine::Timestamp;

use super::{ExpositionError, found};
use crate::decode::digits::Decimal;

/// What may separate the parts of a line.
const BLANKS: [char; 2] = [' ', '\t'];
const MICROS: i128 = 1_000_000;

pub struct LineCursor<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> LineCursor<'a> {
    pub fn new(line: &'a str) -> Self {
        Self { line, at: 0 }
    }

    pub fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    pub fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Passes over `expected` if it is next.
    pub fn take(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        if is_next {
            self.at += expected.len_utf8();
        }
        is_next
    }

    /// Whether there were any.
    pub fn skip_blanks(&mut self) -> bool {
        let rest = self.rest().trim_start_matches(BLANKS);
        let before = self.at;
        self.at = self.line.len() - rest.len();
        self.at > before
    }

    /// What is here is not what it must be.
    pub fn unexpected(&self, expected: &'static str) -> ExpositionError {
        let column = self.line[..self.at].chars().count() + 1;
        let found = match self.is_at_end() {
            true => "the end of the line".to_owned(),
            false => found(self.rest()),
        };
        ExpositionError::Unexpected { column, expected, found }
    }

    /// Nothing but blanks may follow.
    pub fn end(&mut self) -> Result<(), ExpositionError> {
        self.skip_blanks();
        match self.is_at_end() {
            true => Ok(()),
            false => Err(self.unexpected("the end of the line")),
        }
    }

    /// Everything up to a blank; maybe nothing.
    pub fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(BLANKS).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// A word that `parse` understands, and the blanks behind it.
    pub fn typed<T>(&mut self, parse: fn(&str) -> Option<T>, expected: &'static str) -> Result<T, ExpositionError> {
        let before = self.at;
        let Some(read) = parse(self.word()) else {
            self.at = before;
            return Err(self.unexpected(expected));
        };
        self.skip_blanks();
        Ok(read)
    }

    /// Letters, digits, `_` and what `more` allows, not beginning with a digit.
    fn name(&mut self, more: fn(u8) -> bool, expected: &'static str) -> Result<&'a str, ExpositionError> {
        let rest = self.rest();
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || more(byte);
        let len = rest.bytes().position(|byte| !is_inner(byte)).unwrap_or(rest.len());
        if len == 0 || rest.as_bytes()[0].is_ascii_digit() {
            return Err(self.unexpected(expected));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    pub fn metric(&mut self) -> Result<&'a str, ExpositionError> {
        self.name(|byte| byte == b':', "the name of a metric")
    }

    pub fn label(&mut self) -> Result<&'a str, ExpositionError> {
        self.name(|_| false, "the name of a label, or }")
    }

    pub fn metric_or_quoted(&mut self) -> Result<String, ExpositionError> {
        match self.peek() {
            Some('"') => match self.quoted("the end of a name, a \"")? {
                name if name.is_empty() => Err(self.unexpected("a name before it")),
                name => Ok(name),
            },
            _ => self.metric().map(str::to_owned),
        }
    }

    /// A text within `"`, without its escapes.
    pub fn quoted(&mut self, expected: &'static str) -> Result<String, ExpositionError> {
        if !self.take('"') {
            return Err(self.unexpected(expected));
        }
        let rest = self.rest().as_bytes();
        let mut at = 0;
        loop {
            match rest.get(at) {
                Some(b'"') => break,
                // Whatever it is that is escaped, it ends nothing.
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    self.at = self.line.len();
                    return Err(self.unexpected(expected));
                }
            }
        }
        let text = unescaped(&self.rest()[..at]);
        self.at += at + 1;
        Ok(text)
    }

    /// Whether the last thing that was read, but for blanks, is a text within `"`.
    pub fn was_quoted(&self) -> bool {
        self.line[..self.at].trim_end_matches(BLANKS).ends_with('"')
    }
}

/// `\\`, `\"` and `\n` are what they mean; other backslashes stand for themselves, as where Prometheus scrapes.
pub fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let meant = match rest.as_bytes().first() {
            Some(b'\\') => '\\',
            Some(b'"') => '"',
            Some(b'n') => '\n',
            _ => {
                plain.push('\\');
                continue;
            }
        };
        plain.push(meant);
        rest = &rest[1..];
    }
    plain.push_str(rest);
    plain
}

/// As the standard library reads it, which knows `NaN` and `Inf` in any case.
pub fn float(text: &str) -> Option<f64> {
    let decimal = Decimal::read(text.as_bytes());
    match decimal.float() {
        Some(float) if decimal.len == text.len() => Some(float),
        _ => text.parse().ok(),
    }
}

pub fn millis(text: &str) -> Option<Timestamp> {
    let millis: i64 = text.parse().ok()?;
    millis.checked_mul(1_000).map(Timestamp::from_micros)
}

/// Exact to the microsecond where it is written without an exponent; what is finer is cut off.
pub fn seconds(text: &str) -> Option<Timestamp> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = !whole.is_empty() && [whole, fraction].iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    if is_plain {
        let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(6).collect();
        let micros = i128::from(whole.parse::<u64>().ok()?) * MICROS + i128::from(padded.parse::<u64>().ok()?);
        let micros = if text.starts_with('-') { -micros } else { micros };
        return i64::try_from(micros).ok().map(Timestamp::from_micros);
    }
    let micros = (text.parse::<f64>().ok()? * 1e6).round();
    // Also where it is no number.
    (micros.abs() < 9.2e18).then_some(Timestamp::from_micros(micros as i64))
}
