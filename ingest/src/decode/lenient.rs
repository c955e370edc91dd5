//! JSON scalars as OpenTSDB's reader accepts them: numbers and booleans in place of strings, and strings in place of
//! them.
//!
//! These types borrow the raw JSON, so they can be read from text only, which is how every body is read here.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A string, or the text of a number or boolean as it was sent; `None` for null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text<'a>(pub Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(json)?.get();
        match raw.as_bytes().first() {
            Some(b'"') => Ok(Text(Some(string(raw).map_err(D::Error::custom)?))),
            Some(b'n') => Ok(Text(None)),
            Some(b'{' | b'[') => Err(D::Error::custom(format_args!("found {}..., expected a string", &raw[..1]))),
            _ => Ok(Text(Some(Cow::Borrowed(raw)))),
        }
    }
}

/// The content of a quoted string; borrowed when nothing is escaped.
fn string(quoted: &str) -> Result<Cow<'_, str>, String> {
    let inner = &quoted[1..quoted.len() - 1];
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    // A place in the string would be taken for one in the body.
    serde_json::from_str(quoted).map(Cow::Owned).map_err(|error| without_place(&error))
}

/// What is wrong, without where.
pub fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// A whole number, also in a string; the fraction of a float is cut off; null is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Long(pub i64);

impl<'de> Deserialize<'de> for Long {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(json)?.get();
        let long = match raw.as_bytes().first() {
            Some(b'"') => {
                let text = string(raw).map_err(D::Error::custom)?;
                let text = text.trim();
                if text.is_empty() { Some(0) } else { text.parse().ok() }
            }
            Some(b'n') => Some(0),
            Some(b'-' | b'0'..=b'9') => raw.parse().ok().or_else(|| truncated(raw)),
            _ => None,
        };
        long.map(Long).ok_or_else(|| D::Error::custom(format_args!("found {raw}, expected a whole number of 64 bits")))
    }
}

/// The whole part of a number with a fraction or exponent, if it fits.
fn truncated(raw: &str) -> Option<i64> {
    if !raw.contains(['.', 'e', 'E']) {
        return None;
    }
    let float: f64 = raw.parse().ok()?;
    // 2^63 is the first float that does not fit.
    (float.abs() < 9_223_372_036_854_775_808.0).then_some(float as i64)
}

/// A boolean, also as a string or as a number other than 0; null and the empty string are false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(json)?;
        let text = text.unwrap_or_default();
        match text.trim() {
            "true" => Ok(Flag(true)),
            "" | "false" => Ok(Flag(false)),
            other => match other.parse::<f64>() {
                Ok(number) => Ok(Flag(number != 0.0)),
                Err(_) => Err(D::Error::custom(format_args!("found {other}, expected true or false"))),
            },
        }
    }
}

/// Most entries of a [`TextMap`] that are kept: as many as a sample may have tags.
pub const ENTRIES_MAX: usize = telem_engine::series::TAGS_MAX;

/// An object of strings, in the order of the first sight of each key; of equal keys the last value counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextMap<'a> {
    /// [`ENTRIES_MAX`] at most.
    pub entries: Vec<TextEntry<'a>>,
    /// How many more followed, of whatever keys: those are counted and not looked at.
    pub beyond: usize,
}

/// A key, and its value unless that is null.
pub type TextEntry<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for TextMap<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(TextMapVisitor)
    }
}

struct TextMapVisitor;

impl<'de> Visitor<'de> for TextMapVisitor {
    type Value = TextMap<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = TextMap::default();
        while let Some((Text(key), Text(value))) = map.next_entry()? {
            let key = key.unwrap_or_default();
            match read.entries.iter().position(|(known, _)| *known == key) {
                Some(at) => read.entries[at].1 = value,
                None if read.entries.len() < ENTRIES_MAX => read.entries.push((key, value)),
                None => {
                    read.beyond = 1;
                    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                        read.beyond += 1;
                    }
                }
            }
        }
        Ok(read)
    }
}
