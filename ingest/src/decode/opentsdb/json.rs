//! The JSON of data points, and of the bare words that are none.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{DataPoint, Points};
use crate::decode::lenient::{Long, Text, TextMap};

/// The points of a body that starts with `{` or `[`, `points_max` at most; those beyond are counted. What follows the
/// JSON is not looked at.
pub fn points(body: &str, points_max: usize) -> Result<Points<'_>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(body);
    if body.starts_with('{') {
        Ok(Points { kept: vec![DataPoint::deserialize(&mut json)?], beyond: 0 })
    } else {
        json.deserialize_seq(PointsVisitor { points_max })
    }
}

struct PointsVisitor {
    points_max: usize,
}

impl<'de> Visitor<'de> for PointsVisitor {
    type Value = Points<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of data points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut points = Points::default();
        while points.kept.len() < self.points_max {
            match array.next_element::<Option<DataPoint<'_>>>()? {
                // A null among the points is a point without anything.
                Some(point) => points.kept.push(point.unwrap_or_default()),
                None => return Ok(points),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {
            points.beyond += 1;
        }
        Ok(points)
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
                    map.next_value::<IgnoredAny>()?;
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
