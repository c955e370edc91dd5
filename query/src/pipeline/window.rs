//! The samples that a query reads, which are more than it shows.
//!
//! OpenTSDB stores rows of an hour. It reads whole rows around the range, which is first widened to whole intervals of
//! the downsampling. The samples that it reads decide the first rate, interpolation at the edges, and which series take
//! part at all, so the same window is read here.

use telem_engine::{TimeRange, Timestamp};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// The window for samples from `start` to `end` (inclusive). `interval` is the nominal length of
/// a bucket in microseconds; `None` without downsampling and for the one bucket of `0all`.
pub fn window(start: Timestamp, end: Timestamp, interval: Option<i64>) -> TimeRange {
    let mut first = whole_seconds(start.micros());
    if let Some(interval) = interval {
        first = first.saturating_sub(whole_seconds(first.rem_euclid(interval)));
    }
    first = first.saturating_sub(first.rem_euclid(HOUR));

    let mut last = whole_seconds(end.micros()).saturating_add(SECOND);
    if let Some(interval) = interval {
        last = last.saturating_add(whole_seconds(interval - last.rem_euclid(interval)));
    }
    let into_hour = last.rem_euclid(HOUR);
    if into_hour != 0 || interval.is_none() {
        last = last.saturating_add(HOUR - into_hour);
    }
    TimeRange::new(Timestamp::from_micros(first), Timestamp::from_micros(last))
}

fn whole_seconds(micros: i64) -> i64 {
    micros.saturating_sub(micros.rem_euclid(SECOND))
}
