//! The naive oracle: the answers of OpenTSDB 2.4.1, computed with straightforward loops.
//!
//! It shares no code with `query/`, not even the aggregators' names, and it works in the original's way, not in
//! telem's: a merge iterator walks the series of a group side by side over the union of their timestamps ([`merge`]).
//! So an answer on which both agree was computed in two independent ways. The oracle is slow, holds everything in
//! memory and knows time only in whole milliseconds.

mod calendar;
mod merge;
mod parse;
mod reduce;
mod select;
mod series;
mod tests;

use std::collections::BTreeMap;

pub use calendar::{Calendar, Unit};
pub use parse::{aggregator, downsample, filter};
pub use reduce::{Aggregator, Estimate};
pub use select::{Filter, Matching};
pub use series::{Downsample, Fill, RateOptions, Width, window};

/// A value as OpenTSDB sees it: integers stay integers until something makes them floats.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }

    /// Same type, and the same number to a relative 1e-9 (integers exactly, NaN like NaN).
    pub fn agrees(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Float(a), Number::Float(b)) => {
                a == b
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(f64::MIN_POSITIVE)
            }
            _ => false,
        }
    }
}

/// Everything that was ever written to one series.
#[derive(Clone, Debug)]
pub struct Series {
    pub metric: String,
    pub tags: BTreeMap<String, String>,
    /// Milliseconds to value: sorted, and of two writes the later one.
    pub points: BTreeMap<i64, Number>,
}

/// One sub-query of `/api/query`.
#[derive(Clone, Debug)]
pub struct Question {
    pub metric: String,
    pub filters: Vec<Filter>,
    pub explicit_tags: bool,
    /// Only the series with these tags, as TSUIDs ask for them.
    pub only: Option<Vec<BTreeMap<String, String>>>,
    pub aggregator: Aggregator,
    pub downsample: Option<Downsample>,
    pub rate: Option<RateOptions>,
    /// First and last millisecond of the answer, both included.
    pub start_ms: i64,
    pub end_ms: i64,
    /// Reproduce OpenTSDB where it misleads: a rate is then measured against 1970 before a series starts.
    pub exact: bool,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub tags: BTreeMap<String, String>,
    pub aggregate_tags: Vec<String>,
    pub points: Vec<(i64, Number)>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `metrics`, `tagk` or `tagv`, and the name that nothing carries.
    UnknownName { kind: &'static str, name: String },
    /// The answer would hold an infinite value.
    Infinity,
}

/// The answer of OpenTSDB to `question` if `all` is everything that it holds.
pub fn answer(all: &[Series], question: &Question) -> Result<Vec<Group>, Refusal> {
    select::refuse_unknown_names(all, question)?;
    let (from, to) = window(question.start_ms, question.end_ms, question.downsample.as_ref());
    let mut groups = Vec::new();
    for members in select::groups(all, question, from, to) {
        let mut streams = Vec::new();
        for member in &members {
            let read: Vec<(i64, Number)> = member.points.range(from..to).map(|(time, value)| (*time, *value)).collect();
            streams.push(series::pipeline(read, question, from, to));
        }
        let merged = merge::merge(&streams, question.aggregator, question.rate.is_some(), question.exact, to);
        let points: Vec<(i64, Number)> =
            merged.into_iter().filter(|(time, _)| question.start_ms <= *time && *time <= question.end_ms).collect();
        if points.iter().any(|(_, value)| value.as_f64().is_infinite()) {
            return Err(Refusal::Infinity);
        }
        let (tags, aggregate_tags) = select::common_tags(&members);
        groups.push(Group { tags, aggregate_tags, points });
    }
    Ok(groups)
}
