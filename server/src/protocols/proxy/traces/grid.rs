//! From samples that were written when something changed to a point each period.

#[cfg(test)]
mod tests;

use std::time::Duration;

use telem_engine::Timestamp;

/// Samples of one series within one run, by time. A counter begins at 0 with it.
pub type TracePiece = Vec<(Timestamp, f64)>;

/// The totals of counters together, by time.
pub fn counted(pieces: Vec<TracePiece>) -> Vec<(Timestamp, f64)> {
    if let [only] = &pieces[..] {
        // As it was written, to the last bit.
        return only.clone();
    }
    let mut rises: Vec<(Timestamp, f64)> = Vec::new();
    for piece in pieces {
        let mut before = 0.0;
        for (time, total) in piece {
            // What is no number adds nothing, and neither does the way back from it.
            let rise = total - before;
            if rise.is_finite() {
                rises.push((time, rise));
                before = total;
            }
        }
    }
    rises.sort_by_key(|(time, _)| *time);
    let mut sum = 0.0;
    let mut totals: Vec<(Timestamp, f64)> = Vec::with_capacity(rises.len());
    for (time, rise) in rises {
        sum += rise;
        match totals.last_mut() {
            Some(last) if last.0 == time => last.1 = sum,
            _ => totals.push((time, sum)),
        }
    }
    totals
}

/// The values of gauges together: the last one that was set, by anybody.
pub fn latest_of(pieces: Vec<TracePiece>) -> Vec<(Timestamp, f64)> {
    let mut values: Vec<(Timestamp, f64)> = pieces.into_iter().flatten().collect();
    values.sort_by_key(|(time, _)| *time);
    values.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 = later.1;
        }
        is_same
    });
    values
}

/// The times that a trace has points at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceGrid {
    begin: i64,
    end: i64,
    step: i64,
}

impl TraceGrid {
    /// From `begin` to `end`, both included, a period apart or so many periods that there are `points_max` at most.
    pub fn new(begin: Timestamp, end: Timestamp, period: Duration, points_max: usize) -> Self {
        let (begin, end) = (begin.micros(), end.max(begin).micros());
        let mut step = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
        let points_max = i64::try_from(points_max.max(2)).unwrap_or(i64::MAX);
        while end.saturating_sub(begin) / step >= points_max - 1 && step < i64::MAX / 2 {
            step *= 2;
        }
        Self { begin, end, step }
    }

    /// All of them; the last one is the end, and at least half a step behind the one before.
    fn times(self) -> impl Iterator<Item = i64> {
        let Self { begin, end, step } = self;
        let before_end = end.saturating_sub(step / 2);
        let times = std::iter::successors(Some(begin), move |time| time.checked_add(step));
        times.take_while(move |time| *time < before_end).chain([end])
    }

    /// The value at each time from the first sample on, which is that of the last sample before; at the end it is `last`.
    pub fn fill(self, samples: &[(Timestamp, f64)], last: f64) -> Vec<(Timestamp, f64)> {
        let mut filled = Vec::new();
        let (mut at, mut value) = (0, None);
        for time in self.times() {
            while let Some((_, sample)) = samples.get(at).filter(|(sampled, _)| sampled.micros() <= time) {
                value = Some(*sample);
                at += 1;
            }
            if time == self.end {
                filled.push((Timestamp::from_micros(time), last));
            } else if let Some(value) = value {
                filled.push((Timestamp::from_micros(time), value));
            }
        }
        filled
    }
}
