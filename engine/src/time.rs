//! The engine's types of time: microseconds since the Unix epoch, half-open ranges, steps.

use std::fmt;
use std::num::NonZeroI64;

use arrow::temporal_conversions::timestamp_us_to_datetime;

/// Microseconds of an hour and of a day.
pub const HOUR: i64 = 3_600_000_000;
pub const DAY: i64 = 24 * HOUR;

/// A point in time: microseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Milliseconds since the epoch; saturates at the ends of what microseconds can express.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Seconds since the epoch; saturates at the ends of what microseconds can express.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch, truncated towards the past.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos.div_euclid(1_000))
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded towards the past.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole seconds since the epoch, rounded towards the past.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// As people read it: `2026-01-01T10:02:00Z`, with milliseconds or microseconds where it has some. Beyond what a calendar
    /// has, microseconds since 1970.
    pub fn utc(self) -> String {
        timestamp_us_to_datetime(self.0)
            .map_or_else(|| self.to_string(), |time| time.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string())
    }

    pub const fn saturating_add_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A half-open stretch of time: `start <= t < end`. Empty when `end <= start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeRange {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl TimeRange {
    /// Every time but [`Timestamp::MAX`], which no half-open range can hold; no sample may carry it.
    pub const ALL: TimeRange = TimeRange { start: Timestamp::MIN, end: Timestamp::MAX };

    pub const fn new(start: Timestamp, end: Timestamp) -> Self {
        Self { start, end }
    }

    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    pub fn contains(&self, time: Timestamp) -> bool {
        self.start <= time && time < self.end
    }

    /// Whether any time of the closed stretch `first..=last` lies in this range.
    pub fn overlaps_closed(&self, first: Timestamp, last: Timestamp) -> bool {
        first < self.end && self.start <= last && first <= last
    }

    pub fn intersect(&self, other: TimeRange) -> TimeRange {
        TimeRange { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// The width of a bucket: a positive number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step(NonZeroI64);

impl Step {
    /// `None` unless `micros` is positive.
    pub fn from_micros(micros: i64) -> Option<Self> {
        if micros > 0 { NonZeroI64::new(micros).map(Self) } else { None }
    }

    pub fn micros(self) -> i64 {
        self.0.get()
    }

    /// The start of the bucket that holds `time`; buckets are aligned to the epoch.
    pub fn floor(self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_sub(time.0.rem_euclid(self.micros())))
    }

    /// The first bucket start at or after `time`.
    pub fn ceil(self, time: Timestamp) -> Timestamp {
        let floor = self.floor(time);
        if floor == time { time } else { Timestamp(floor.0.saturating_add(self.micros())) }
    }
}

#[cfg(test)]
mod tests;
