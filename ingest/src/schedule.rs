//! When to sample: at wall-clock times that are multiples of the interval, the same on every node.
//!
//! The one idea: a sample carries its tick's time, so a tick that is too late for that to be true is skipped and
//! counted. The module is pure: both clocks come in as arguments.

#[cfg(test)]
mod tests;

use std::time::Duration;

use telem_engine::{Step, Timestamp};

/// The shortest interval.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest interval.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// An interval that is too short, too long, or no whole number of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an interval of {interval:?} is not possible; choose whole milliseconds from {INTERVAL_MIN:?} to {INTERVAL_MAX:?}"
)]
pub struct IntervalError {
    pub interval: Duration,
}

/// The ticks of one interval.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Step,
    next: Timestamp,
    /// The monotonic clock when it was last asked.
    asked: Duration,
    skipped: u64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Wait that long, then ask again. Asking earlier is allowed.
    In(Duration),
    /// Sample, and give the samples this time.
    Now(Timestamp),
}

impl Schedule {
    /// The first tick is the first multiple of `interval` at or after `now`.
    ///
    /// # Errors
    /// An interval outside of [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub fn new(interval: Duration, now: Timestamp, monotonic: Duration) -> Result<Self, IntervalError> {
        let step = check_interval(interval)?;
        Ok(Self { interval: step, next: step.ceil(now), asked: monotonic, skipped: 0 })
    }

    /// Asked again and again: what is due at `now` of the wall clock and `monotonic` of the other?
    pub fn ask(&mut self, now: Timestamp, monotonic: Duration) -> Due {
        let passed = monotonic.saturating_sub(self.asked);
        self.asked = monotonic;
        let step = self.interval.micros();
        if now < self.next {
            if self.next.micros().saturating_sub(now.micros()) > step {
                // The wall clock was set back.
                self.next = self.interval.ceil(now);
            }
            return Due::In(micros(self.next.micros() - now.micros()));
        }
        let tick = self.interval.floor(now);
        let late = now.micros() - tick.micros();
        let on_time = late <= step / 2;
        let ticks = (tick.micros() - self.next.micros()) / step + 1;
        let missed = u64::try_from(ticks).unwrap_or(0) - u64::from(on_time);
        // A wall clock that was set forward passed over times at which nothing was missed.
        let possible = passed.as_micros().div_ceil(step.unsigned_abs().into());
        self.skipped += missed.min(u64::try_from(possible).unwrap_or(u64::MAX));
        self.next = tick.saturating_add_micros(step);
        if on_time { Due::Now(tick) } else { Due::In(micros(self.next.micros() - now.micros())) }
    }

    /// Ticks that were missed.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// # Errors
/// An interval outside of [`INTERVAL_MIN`] to [`INTERVAL_MAX`], or with a fraction of a millisecond.
pub fn check_interval(interval: Duration) -> Result<Step, IntervalError> {
    let error = IntervalError { interval };
    let whole = interval.subsec_nanos().is_multiple_of(1_000_000);
    if !whole || !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Err(error);
    }
    i64::try_from(interval.as_micros()).ok().and_then(Step::from_micros).ok_or(error)
}

/// For work that is not done at every tick: whether `time` is the first tick of a multiple of `every`
/// after `last`.
pub fn first_of(every: Duration, time: Timestamp, last: Option<Timestamp>) -> bool {
    let step = i64::try_from(every.as_micros()).ok().and_then(Step::from_micros);
    match (last, step) {
        (Some(last), Some(step)) => step.floor(time) != step.floor(last),
        _ => true,
    }
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
