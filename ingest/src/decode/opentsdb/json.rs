//! JSON as Jackson reads it into a data point: scalars of any type where a string is wanted.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{DataPoint, SentTag};

/// The points of a body that starts with `{` or `[`. What follows the JSON is not looked at.
pub fn points(body: &str) -> Result<Vec<DataPoint<'_>>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(body);
    if body.starts_with('{') {
        Ok(vec![DataPoint::deserialize(&mut json)?])
    } else {
        // A null among the points is a point without anything.
        let points = Vec::<Option<DataPoint<'_>>>::deserialize(&mut json)?;
        Ok(points.into_iter().map(Option::unwrap_or_default).collect())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for DataPoint<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(PointVisitor)
    }
}

struct PointVisitor;

impl<'de> Visitor<'de> for PointVisitor {
    type Value = DataPoint<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a data point: an object with metric, timestamp, value and tags")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut point = DataPoint::default();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            let name = name.0.unwrap_or_default();
            match &*name {
                "metric" => point.metric = map.next_value::<Text<'_>>()?.0,
                "timestamp" => point.timestamp = map.next_value::<Long>()?.0,
                "value" => point.value = map.next_value::<Text<'_>>()?.0,
                "tags" => point.tags = map.next_value::<Option<Tags<'_>>>()?.map(|tags| tags.0),
                _ => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
        }
        Ok(point)
    }
}

/// A string, or the text of a number or boolean; `None` for null.
struct Text<'a>(Option<Cow<'a, str>>);

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
fn string(quoted: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    let inner = &quoted[1..quoted.len() - 1];
    if inner.contains('\\') { serde_json::from_str(quoted).map(Cow::Owned) } else { Ok(Cow::Borrowed(inner)) }
}

/// A whole number, also in a string; the fraction of a float is cut off; null is 0.
struct Long(i64);

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
        long.map(Long)
            .ok_or_else(|| D::Error::custom(format_args!("found {raw}, expected a timestamp as a whole number")))
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

struct Tags<'a>(Vec<SentTag<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Tags<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(TagsVisitor)
    }
}

struct TagsVisitor;

impl<'de> Visitor<'de> for TagsVisitor {
    type Value = Tags<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tags: an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tags: Vec<SentTag<'de>> = Vec::new();
        while let Some((key, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            let key = key.0.unwrap_or_default();
            match tags.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value.0,
                None => tags.push((key, value.0)),
            }
        }
        Ok(Tags(tags))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(A::Error::custom("found an array, expected tags as an object of strings"))
    }
}

/// A body in which every bare `NaN` and `Infinity` is quoted; `None` when there is none. JSON has
/// no such numbers, so this is for bodies that turned out to be no JSON.
pub fn quote_non_numbers(body: &str) -> Option<String> {
    const WORDS: [&str; 5] = ["NaN", "-Infinity", "Infinity", "-INF", "INF"];
    let mut quoted = String::with_capacity(body.len() + 64);
    let mut found = false;
    let mut rest = body;
    while let Some(at) = rest.find(['"', 'N', '-', 'I']) {
        quoted.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with('"') {
            let end = end_of_string(rest);
            quoted.push_str(&rest[..end]);
            end
        } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            found = true;
            quoted.push('"');
            quoted.push_str(word);
            quoted.push('"');
            word.len()
        } else {
            quoted.push_str(&rest[..1]);
            1
        };
        rest = &rest[taken..];
    }
    quoted.push_str(rest);
    found.then_some(quoted)
}

/// The length of the quoted string at the start of `text`, quotes included.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
