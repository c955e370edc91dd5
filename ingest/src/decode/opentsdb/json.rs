//! The JSON of data points, and of the bare words that are none.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::DataPoint;
use crate::decode::lenient::{Long, Text, TextMap};

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
                "tags" => point.tags = map.next_value::<Option<TextMap<'_>>>()?,
                _ => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
        }
        Ok(point)
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
