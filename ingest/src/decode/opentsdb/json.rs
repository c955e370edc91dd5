//! The JSON of data points, and the bare words in it that are not JSON.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{DataPoint, JsonError, PutPoints};
use crate::decode::lenient::{self, Long, Text, TextMap};

/// The points of a body that starts with `{` or `[`, `points_max` at most; those beyond are counted. What follows the
/// JSON is not looked at.
pub fn points(body: &str, points_max: usize) -> Result<PutPoints<'_>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(body);
    if body.starts_with('{') {
        Ok(PutPoints { kept: vec![DataPoint::deserialize(&mut json)?], beyond: 0 })
    } else {
        json.deserialize_seq(PointsVisitor { points_max })
    }
}

/// As [`points`], but `take` is given them in groups of `group_max`, of which one is kept at a time. Returns how many
/// there were beyond `points_max`.
pub fn groups(
    body: &str,
    points_max: usize,
    group_max: usize,
    mut take: impl FnMut(&[DataPoint<'_>]),
) -> Result<usize, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(body);
    if body.starts_with('{') {
        take(&[DataPoint::deserialize(&mut json)?]);
        Ok(0)
    } else {
        json.deserialize_seq(GroupsVisitor { points_max, group_max, take })
    }
}

struct GroupsVisitor<F> {
    points_max: usize,
    group_max: usize,
    take: F,
}

impl<'de, F: FnMut(&[DataPoint<'_>])> Visitor<'de> for GroupsVisitor<F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of data points")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut group = Vec::new();
        let (mut taken, mut beyond) = (0, 0);
        while taken < self.points_max {
            // A null among the points is a point without anything.
            let Some(point) = array.next_element::<Option<DataPoint<'_>>>()? else { break };
            group.push(point.unwrap_or_default());
            taken += 1;
            if group.len() >= self.group_max {
                (self.take)(&group);
                group.clear();
            }
        }
        if !group.is_empty() {
            (self.take)(&group);
        }
        while taken == self.points_max && array.next_element::<IgnoredAny>()?.is_some() {
            beyond += 1;
        }
        Ok(beyond)
    }
}

struct PointsVisitor {
    points_max: usize,
}

impl<'de> Visitor<'de> for PointsVisitor {
    type Value = PutPoints<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of data points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut points = PutPoints::default();
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

/// What is wrong, and where in the body that begins with `before`, which was not read.
pub fn place(error: &serde_json::Error, before: &str) -> JsonError {
    let (line, column) = (error.line(), error.column());
    let what = lenient::without_place(error);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let skipped = if line <= 1 { before.len() - line_start } else { 0 };
    JsonError { what, line: line.max(1) + before.matches('\n').count(), column: column + skipped }
}

/// The error of a body in which words were quoted, placed in the body as it was sent.
pub fn without_quotes(error: JsonError, body: &str) -> JsonError {
    let mut lines = body.split_inclusive('\n').map(str::len);
    let line_start = lines.by_ref().take(error.line - 1).sum::<usize>();
    let line = line_start..line_start + lines.next().unwrap_or(0);
    let mut quotes = 0;
    let words = BareWords::new(body).skip_while(|word| word.start < line.start);
    for word in words.take_while(|word| word.start < line.end) {
        let before = word.start - line_start;
        for end in [before, before + word.len()] {
            quotes += usize::from(error.column > end + quotes);
        }
    }
    JsonError { column: error.column - quotes, ..error }
}

/// A body in which every bare `NaN` and `Infinity` is quoted; `None` if it contains neither. JSON has no such numbers,
/// so this is for bodies that turned out to be no JSON.
pub fn quote_non_numbers(body: &str) -> Option<String> {
    let mut quoted = String::with_capacity(body.len() + 64);
    let mut done = 0;
    for word in BareWords::new(body) {
        quoted.push_str(&body[done..word.start]);
        quoted.push('"');
        quoted.push_str(&body[word.clone()]);
        quoted.push('"');
        done = word.end;
    }
    quoted.push_str(&body[done..]);
    (done > 0).then_some(quoted)
}

/// The places of `NaN` and `Infinity` in a body, outside of strings.
struct BareWords<'a> {
    body: &'a str,
    at: usize,
}

impl<'a> BareWords<'a> {
    fn new(body: &'a str) -> Self {
        Self { body, at: 0 }
    }
}

impl Iterator for BareWords<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        const WORDS: [&str; 5] = ["NaN", "-Infinity", "Infinity", "-INF", "INF"];
        loop {
            let start = self.at + self.body[self.at..].find(['"', 'N', '-', 'I'])?;
            let rest = &self.body[start..];
            if rest.starts_with('"') {
                self.at = start + end_of_string(rest);
            } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
                self.at = start + word.len();
                return Some(start..self.at);
            } else {
                self.at = start + 1;
            }
        }
    }
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
