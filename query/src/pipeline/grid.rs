//! The places of the buckets of a downsampling.

use telem_engine::{Step, TimeRange, Timestamp};

use super::calendar::Calendar;
use crate::question::tsq::{Fidelity, Interval};

/// Buckets of one interval, everywhere in time. Every bucket is named by its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grid {
    /// Multiples of the step.
    Fixed(Step),
    /// One bucket for `start <= t < end`.
    All { start: Timestamp, end: Timestamp },
    /// Counted from `anchor`, or without one from the first sample of each series.
    Calendar { calendar: Calendar, anchor: Option<Timestamp> },
}

impl Grid {
    /// The grid of a query for `start..=end` that reads `window`. OpenTSDB counts calendar
    /// intervals from each series' own first sample; the sensible grid is one for all.
    pub fn new(interval: Interval, start: Timestamp, end: Timestamp, window: TimeRange, fidelity: Fidelity) -> Self {
        match interval {
            Interval::Fixed(step) => Grid::Fixed(step),
            Interval::All => Grid::All { start, end },
            Interval::Calendar { count, unit, zone } => {
                let calendar = Calendar { count, unit, zone };
                let anchor = match fidelity {
                    Fidelity::Sensible => Some(calendar.anchor(window.start)),
                    Fidelity::OpenTsdb => None,
                };
                Grid::Calendar { calendar, anchor }
            }
        }
    }

    /// Nominal length of a bucket in microseconds.
    pub fn nominal_micros(interval: Interval) -> Option<i64> {
        match interval {
            Interval::Fixed(step) => Some(step.micros()),
            Interval::All => None,
            Interval::Calendar { count, unit, zone } => Some(Calendar { count, unit, zone }.nominal_micros()),
        }
    }

    /// The same grid, counted from where a series counts whose first sample is at `first`.
    #[must_use]
    pub fn anchored(self, first: Timestamp) -> Self {
        match self {
            Grid::Calendar { calendar, anchor: None } => {
                Grid::Calendar { calendar, anchor: Some(calendar.anchor(first)) }
            }
            anchored => anchored,
        }
    }

    /// The bucket that holds `time`. A grid without an anchor is anchored at `time`.
    pub fn floor(&self, time: Timestamp) -> Timestamp {
        match self {
            Grid::Fixed(step) => step.floor(time),
            Grid::All { start, .. } => *start,
            Grid::Calendar { calendar, anchor: Some(anchor) } => calendar.floor(*anchor, time),
            Grid::Calendar { calendar, anchor: None } => calendar.anchor(time),
        }
    }

    /// The first bucket that starts at or after `time`.
    pub fn ceil(&self, time: Timestamp) -> Timestamp {
        let floor = self.floor(time);
        if floor == time { time } else { self.next(floor) }
    }

    /// The bucket after the one that starts at `start`.
    pub fn next(&self, start: Timestamp) -> Timestamp {
        match self {
            Grid::Fixed(step) => start.saturating_add_micros(step.micros()),
            Grid::All { end, .. } => *end,
            Grid::Calendar { calendar, anchor } => calendar.next(anchor.unwrap_or(start), start),
        }
    }

    /// The samples that enter buckets, of those in `window`: `0all` takes exactly its range, and a
    /// bucket that began before the window is left out, because a part of it was not read.
    pub fn admits(&self, window: TimeRange) -> TimeRange {
        match self {
            Grid::All { start, end } => window.intersect(TimeRange::new(*start, *end)),
            _ => TimeRange::new(self.ceil(window.start), window.end),
        }
    }

    /// The buckets that a fill policy fills: first, and the end (exclusive). `None` for `0all`.
    pub fn filled(&self, window: TimeRange) -> Option<TimeRange> {
        if let Grid::All { .. } = self {
            return None;
        }
        let (first, mut end) = (self.floor(window.start), self.floor(window.end));
        if let Grid::Calendar { .. } = self
            && first == end
        {
            end = self.next(end);
        }
        Some(TimeRange::new(first, end))
    }
}
