//! How fast the values of a series rise from each sample to the next: of every bucket the least or the greatest rise a
//! second. A rise counts in the bucket of the sample that ends it, so a bucket knows the one before it.

use super::Rising;
use super::kernel::{BucketFold, KnownValues};
use crate::segment::times::Ticks;
use crate::segment::{Run, Summary};
use crate::time::{Step, Timestamp};

/// Which of the rises of a bucket is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RiseSide {
    Least,
    Greatest,
}

/// Makes buckets of `step`, counted from the epoch.
pub(super) struct RiseGrid {
    step: Step,
    side: RiseSide,
    rising: Rising,
    /// The newest number, and when it was.
    previous: Option<(i64, f64)>,
    /// Where the last bucket ends.
    end: i64,
    starts: Vec<Timestamp>,
    /// NaN where nothing rose yet.
    values: Vec<f64>,
}

impl RiseGrid {
    pub(super) fn new(step: Step, side: RiseSide, rising: Rising) -> Self {
        Self { step, side, rising, previous: None, end: i64::MIN, starts: Vec::new(), values: Vec::new() }
    }

    /// A second; `None` where a counter started again.
    fn rise(&self, (before, from): (i64, f64), (time, to): (i64, f64)) -> Option<f64> {
        let difference = to - from;
        if self.rising == Rising::Counter && difference < 0.0 {
            return None;
        }
        Some(difference * 1e6 / time.saturating_sub(before) as f64)
    }
}

impl BucketFold for RiseGrid {
    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], _: KnownValues) {
        for (at, value) in values.iter().enumerate() {
            let time = ticks.time(at);
            if time >= self.end || self.starts.is_empty() {
                let start = self.step.floor(Timestamp::from_micros(time));
                self.end = start.micros().saturating_add(self.step.micros());
                self.starts.push(start);
                self.values.push(f64::NAN);
            }
            if value.is_nan() {
                continue;
            }
            let rise = self.previous.and_then(|previous| self.rise(previous, (time, *value)));
            if let (Some(rise), Some(kept)) = (rise, self.values.last_mut()) {
                // Of a number and nothing both keep the number.
                *kept = match self.side {
                    RiseSide::Least => kept.min(rise),
                    RiseSide::Greatest => kept.max(rise),
                };
            }
            self.previous = Some((time, *value));
        }
    }

    /// What is known of a run says nothing of its steps.
    fn whole(&mut self, _: &Run, _: &Summary) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> (Vec<Timestamp>, Vec<f64>) {
        (self.starts, self.values)
    }
}
