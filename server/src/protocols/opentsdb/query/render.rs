//! Answers of time-series queries as OpenTSDB's JSON, written straight into bytes.
//!
//! Keys of `dps` ascend: Grafana draws points in the order of the document.

use std::sync::Arc;

use telem_engine::{SeriesIndex, Timestamp, Value};
use telem_query::TsGroup;

use super::parse::{Asked, RateOptions, Sub};
use super::resolve::Resolved;
use crate::answers::Held;
use crate::http::ApiError;
use crate::protocols::opentsdb::annotation::Delivered;
use crate::protocols::opentsdb::{json, tsuid};

/// What a rendered point takes at most, roughly: room is made for all of a group's at once.
const POINT_BYTES: usize = 32;

/// The answer in the making.
pub struct Out {
    asked: Arc<Asked>,
    notes: Delivered,
    bytes: Vec<u8>,
    held: Held,
}

impl Out {
    pub fn new(asked: Arc<Asked>, notes: Delivered, held: Held) -> Self {
        Out { asked, notes, bytes: vec![b'['], held }
    }

    /// Adds the groups of one sub-query.
    ///
    /// # Errors
    /// When the answer is larger than the memory for answers, or than what others leave of it.
    pub fn groups(&mut self, sub: &Resolved, groups: &[TsGroup], index: &SeriesIndex) -> Result<(), ApiError> {
        for group in groups {
            self.held.grow(self.bytes.len() + group.points.len() * POINT_BYTES)?;
            if self.bytes.len() > 1 {
                self.bytes.push(b',');
            }
            self.group(sub, group, index);
            self.held.grow(self.bytes.capacity())?;
        }
        Ok(())
    }

    /// The whole answer, and what it holds of the memory for answers.
    pub fn finish(mut self) -> (Vec<u8>, Held) {
        self.bytes.push(b']');
        (self.bytes, self.held)
    }

    fn group(&mut self, sub: &Resolved, group: &TsGroup, index: &SeriesIndex) {
        let asked = &self.asked.subs[sub.index];
        let out = &mut self.bytes;
        // By number every group has the metric of its series; by name they are the same.
        let metric = group.series.first().map(|key| key.metric()).or(asked.metric.as_deref());
        out.extend_from_slice(b"{\"metric\":");
        json::string(out, metric.unwrap_or_default());
        out.extend_from_slice(b",\"tags\":");
        json::string_map(out, group.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        out.extend_from_slice(b",\"aggregateTags\":");
        json::list(out, &group.aggregate_tags, |out, key| json::string(out, key));
        if self.asked.show_query {
            out.extend_from_slice(b",\"query\":");
            query(out, asked, sub.index);
        }
        if self.asked.show_tsuids || self.notes.of_any_series() {
            let tsuids: Vec<String> = group.series.iter().map(|key| tsuid::of(index, key)).collect();
            if self.asked.show_tsuids {
                out.extend_from_slice(b",\"tsuids\":");
                json::list(out, &tsuids, |out, tsuid| json::string(out, tsuid));
            }
            self.notes.of_series(out, &tsuids);
        }
        self.notes.global(out);
        out.extend_from_slice(b",\"dps\":");
        out.reserve(group.points.len() * POINT_BYTES);
        let shown = Shown { millis: self.asked.ms_resolution, gaps_are_null: sub.gaps_are_null };
        if self.asked.arrays {
            json::list(out, &group.points, |out, (time, value)| {
                out.push(b'[');
                json::int(out, shown.time(*time));
                out.push(b',');
                shown.value(out, *value);
                out.push(b']');
            });
        } else {
            shown.object(out, &group.points);
        }
        out.push(b'}');
    }
}

/// How points are shown.
#[derive(Clone, Copy, Debug)]
struct Shown {
    millis: bool,
    gaps_are_null: bool,
}

impl Shown {
    fn time(self, time: Timestamp) -> i64 {
        if self.millis { time.millis() } else { time.seconds() }
    }

    /// A JSON object holds a key once: of several points in one second the last is shown.
    fn object(self, out: &mut Vec<u8>, points: &[(Timestamp, Value)]) {
        out.push(b'{');
        let mut first = true;
        for (at, (time, value)) in points.iter().enumerate() {
            let key = self.time(*time);
            if points.get(at + 1).is_some_and(|(next, _)| self.time(*next) == key) {
                continue;
            }
            out.extend_from_slice(if first { b"\"" } else { b",\"" });
            first = false;
            json::int(out, key);
            out.extend_from_slice(b"\":");
            self.value(out, *value);
        }
        out.push(b'}');
    }

    fn value(self, out: &mut Vec<u8>, value: Value) {
        match value {
            Value::Int(int) => json::int(out, int),
            Value::Float(float) if float.is_finite() => json::float(out, float),
            Value::Float(_) if self.gaps_are_null => out.extend_from_slice(b"null"),
            Value::Float(float) if float.is_nan() => out.extend_from_slice(b"\"NaN\""),
            // A query whose result is infinite fails before it comes here.
            Value::Float(float) => json::string(out, if float > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    }
}

/// A sub-query as it was asked; Grafana finds its target by `index`.
fn query(out: &mut Vec<u8>, sub: &Sub, index: usize) {
    let text = |out: &mut Vec<u8>, name: &str, text: Option<&str>| {
        json::string(out, name);
        out.push(b':');
        match text {
            Some(text) => json::string(out, text),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
    };
    out.push(b'{');
    text(out, "aggregator", sub.aggregator.as_deref());
    text(out, "metric", sub.metric.as_deref());
    out.extend_from_slice(b"\"tsuids\":");
    match sub.tsuids.is_empty() {
        true => out.extend_from_slice(b"null"),
        false => json::list(out, &sub.tsuids, |out, tsuid| json::string(out, tsuid)),
    }
    out.push(b',');
    text(out, "downsample", sub.downsample.as_deref());
    out.extend_from_slice(b"\"rate\":");
    json::bool(out, sub.rate);
    out.extend_from_slice(b",\"filters\":");
    json::list(out, &sub.filters, |out, filter| {
        out.extend_from_slice(b"{\"tagk\":");
        json::string(out, &filter.key);
        out.extend_from_slice(b",\"filter\":");
        json::string(out, &filter.text);
        out.extend_from_slice(b",\"group_by\":");
        json::bool(out, filter.group_by);
        out.extend_from_slice(b",\"type\":");
        json::string(out, filter.kind);
        out.push(b'}');
    });
    out.extend_from_slice(b",\"rateOptions\":");
    match &sub.rate_options {
        Some(options) => rate_options(out, options),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"explicitTags\":");
    json::bool(out, sub.explicit_tags);
    out.extend_from_slice(b",\"index\":");
    json::int(out, i64::try_from(index).unwrap_or(i64::MAX));
    out.extend_from_slice(b",\"tags\":");
    let tags: Vec<(&str, String)> = sub
        .filters
        .iter()
        .filter(|filter| filter.group_by)
        .map(|filter| (filter.key.as_str(), format!("{}({})", filter.kind, filter.text)))
        .collect();
    json::string_map(out, tags.iter().map(|(key, text)| (*key, text.as_str())));
    out.push(b'}');
}

fn rate_options(out: &mut Vec<u8>, options: &RateOptions) {
    out.extend_from_slice(b"{\"counter\":");
    json::bool(out, options.counter);
    out.extend_from_slice(b",\"counterMax\":");
    json::int(out, options.counter_max);
    out.extend_from_slice(b",\"resetValue\":");
    json::int(out, options.reset_value);
    out.extend_from_slice(b",\"dropResets\":");
    json::bool(out, options.drop_resets);
    out.push(b'}');
}
