//! What one series contributes to its group at any time: its value, or what takes the place of a missing value.
//!
//! A contribution depends on the series alone, never on the other series of the group. So it can be computed where the
//! series is stored, and sums of parts of a group are exact.

use telem_engine::{Timestamp, Value, Values};

use super::Line;
use crate::question::aggregator::Interpolation;

/// The points of a series after window, downsampling, fill and rate, and the rule for times between them.
#[derive(Clone, Debug)]
pub struct Contribution {
    line: Line,
    between: Between,
}

/// What replaces a missing point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// From its first point to its last, what the aggregator fills in.
    Interpolate(Interpolation),
    /// Rates: from the first to the last, the rate before.
    Hold,
    /// Rates as OpenTSDB has them. The first was measured against 1970. It makes no time real, but it
    /// is held from the start of the query on; a series that has only that one brings nothing.
    HoldFromStart,
}

impl Contribution {
    pub fn new(line: Line, between: Between) -> Self {
        let useless = between == Between::HoldFromStart && line.len() < 2;
        Self { line: if useless { Line::default() } else { line }, between }
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The first and the last time at which the series takes part.
    pub fn alive(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = (*self.line.times.first()?, *self.line.times.last()?);
        Some((if self.between == Between::HoldFromStart { Timestamp::MIN } else { first }, last))
    }

    /// How many points lie at or before `time`, given that `passed` of them do.
    pub fn pass(&self, mut passed: usize, time: Timestamp) -> usize {
        while passed < self.line.len() && self.line.times[passed] <= time {
            passed += 1;
        }
        passed
    }

    /// How many points lie before `time`.
    pub fn before(&self, time: Timestamp) -> usize {
        self.line.times.partition_point(|point| *point < time)
    }

    /// The next time at which the series really has a value, when `passed` points lie before.
    pub fn next_real(&self, passed: usize) -> Option<Timestamp> {
        self.line.times.get(passed.max(self.first_real())).copied()
    }

    /// Whether the series really has a value at `time`; `passed` points lie at or before it.
    pub fn is_real(&self, passed: usize, time: Timestamp) -> bool {
        passed > self.first_real() && self.line.times[passed - 1] == time
    }

    /// The value at a time at which the series is alive; `passed` points lie at or before it.
    pub fn float(&self, passed: usize, time: Timestamp) -> f64 {
        let value = |at: usize| self.line.values.get(at).as_f64();
        if passed > 0 && (passed == self.line.len() || self.line.times[passed - 1] == time) {
            return value(passed - 1);
        }
        match self.between {
            Between::Hold | Between::HoldFromStart => value(passed.saturating_sub(1)),
            Between::Interpolate(Interpolation::Zero) => 0.0,
            Between::Interpolate(Interpolation::Max) => f64::MAX,
            Between::Interpolate(Interpolation::Min) => -f64::MAX,
            Between::Interpolate(Interpolation::Previous) => value(passed - 1),
            Between::Interpolate(Interpolation::Linear) => {
                let (y0, y1) = (value(passed - 1), value(passed));
                let (run, width) = self.run(passed, time);
                y0 + run as f64 * (y1 - y0) / width as f64
            }
        }
    }

    /// As [`Contribution::float`], where both neighbours are integers. Wraps at 64 bits.
    pub fn int(&self, passed: usize, time: Timestamp) -> i64 {
        let value = |at: usize| match self.line.values.get(at) {
            Value::Int(int) => int,
            Value::Float(float) => float as i64,
        };
        if passed > 0 && (passed == self.line.len() || self.line.times[passed - 1] == time) {
            return value(passed - 1);
        }
        match self.between {
            Between::Hold | Between::HoldFromStart => value(passed.saturating_sub(1)),
            Between::Interpolate(Interpolation::Zero) => 0,
            Between::Interpolate(Interpolation::Max) => i64::MAX,
            Between::Interpolate(Interpolation::Min) => i64::MIN,
            Between::Interpolate(Interpolation::Previous) => value(passed - 1),
            Between::Interpolate(Interpolation::Linear) => {
                let (y0, y1) = (value(passed - 1), value(passed));
                let (run, width) = self.run(passed, time);
                y0.wrapping_add(run.wrapping_mul(y1.wrapping_sub(y0)).wrapping_div(width))
            }
        }
    }

    /// Whether nothing but integers decides the value here: the point before and the one after,
    /// also when the series has not started. A series that is over has no say.
    pub fn is_int(&self, passed: usize) -> bool {
        match &self.line.values {
            Values::Int(_) => true,
            Values::Float(floats) => floats.is_empty(),
            Values::Mixed(values) => {
                let int = |at: usize| values.get(at).is_none_or(|value| value.is_int());
                passed.checked_sub(1).is_none_or(int) && int(passed)
            }
        }
    }

    /// From the point before to `time`, and to the point after. In milliseconds where that is
    /// exact: the result then equals OpenTSDB's to the last bit, and wraps where it wraps.
    fn run(&self, passed: usize, time: Timestamp) -> (i64, i64) {
        let (x0, x1) = (self.line.times[passed - 1].micros(), self.line.times[passed].micros());
        let (run, width) = (time.micros().saturating_sub(x0), x1.saturating_sub(x0));
        if run % 1_000 == 0 && width % 1_000 == 0 { (run / 1_000, width / 1_000) } else { (run, width) }
    }

    fn first_real(&self) -> usize {
        usize::from(self.between == Between::HoldFromStart)
    }
}
