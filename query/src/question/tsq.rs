//! A time-series query as plain data, free of any wire format.

use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use telem_engine::{SeriesKey, Step, Timestamp};

use super::aggregator::Aggregator;
use super::expression::Expression;
use super::serial;

/// One metric, read per series (window, downsample, rate), then aggregated across the series of each group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TsQuery {
    pub metric: String,
    /// All must accept a series; several may have one key.
    pub filters: Vec<TagFilter>,
    /// Keep only series without tags other than those of `filters`; without filters it has no effect.
    pub explicit_tags: bool,
    /// Only these series of the metric; `None` is all.
    #[serde(with = "serial::series")]
    pub series: Option<Vec<SeriesKey>>,
    pub aggregator: Aggregator,
    pub downsample: Option<Downsample>,
    pub rate: Option<Rate>,
    /// First time of the answer, whole milliseconds.
    #[serde(with = "serial::timestamp")]
    pub start: Timestamp,
    /// Last time of the answer, inclusive, whole milliseconds.
    #[serde(with = "serial::timestamp")]
    pub end: Timestamp,
    pub fidelity: Fidelity,
}

impl TsQuery {
    /// All series of `metric` as one group, from `start` to `end`, which are whole milliseconds.
    pub fn new(metric: &str, aggregator: Aggregator, start: Timestamp, end: Timestamp) -> Self {
        Self {
            metric: metric.to_owned(),
            filters: Vec::new(),
            explicit_tags: false,
            series: None,
            aggregator,
            downsample: None,
            rate: None,
            start,
            end,
            fidelity: Fidelity::default(),
        }
    }
}

/// What to do where OpenTSDB's answer misleads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fidelity {
    /// Give the sensible answer: a rated series contributes from its first rate on, calendar
    /// intervals have one grid per query.
    #[default]
    Sensible,
    /// Reproduce OpenTSDB 2.4.1 to the letter.
    OpenTsdb,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TagFilter {
    pub key: String,
    pub matcher: Matcher,
    /// Series that differ in this tag fall into different groups.
    pub group_by: bool,
}

/// Which values of a tag a filter accepts. Only [`Matcher::AnyOrNone`] accepts a series without the tag.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Matcher {
    /// One of these; every one must be a known tag value or the query is an error.
    LiteralOr(Vec<String>),
    /// One of these, ignoring case.
    ILiteralOr(Vec<String>),
    NotLiteralOr(Vec<String>),
    NotILiteralOr(Vec<String>),
    /// `*` stands for anything, with OpenTSDB's loose rules.
    Wildcard(String),
    IWildcard(String),
    /// Accepts when the expression is found anywhere in the value.
    Regexp(Expression),
    /// Every value, and series without the tag: such a filter only makes groups. Nobody needs to know the tag.
    AnyOrNone,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downsample {
    pub interval: Interval,
    /// Any but [`Aggregator::None`].
    pub function: Aggregator,
    pub fill: Fill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interval {
    /// Buckets aligned to the epoch.
    Fixed(#[serde(with = "serial::step")] Step),
    /// One bucket for `start <= t < end`, at `start`.
    All,
    /// Buckets that follow the calendar of a time zone.
    Calendar {
        count: u32,
        unit: CalendarUnit,
        #[serde(with = "serial::zone")]
        zone: Tz,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CalendarUnit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// The value of a bucket that has no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Fill {
    /// Nothing: aggregators interpolate across it.
    #[default]
    None,
    /// NaN.
    Nan,
    /// NaN, to be shown as null.
    Null,
    Zero,
}

/// Rate of change per second, made per series after downsampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// A value below its predecessor is a counter that wrapped at `counter_max`.
    pub counter: bool,
    /// `None` is 2^63 - 1.
    pub counter_max: Option<i64>,
    /// After a wrap, a rate above this is taken for a restart and becomes 0; 0 switches this off.
    pub reset_value: i64,
    /// Leave a wrapped point out instead.
    pub drop_resets: bool,
}
