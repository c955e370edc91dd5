//! The part of a series that must be sent if its points are processed elsewhere.

use telem_engine::{Timestamp, Values};

use super::Line;

/// The points of `line` in `start..=end`, one more on either side, and at least `least` in all
/// (or all there are): what every value between `start` and `end` depends on.
pub fn trim(line: Line, start: Timestamp, end: Timestamp, least: usize) -> Line {
    let mut from = line.times.partition_point(|time| *time < start).saturating_sub(1);
    let to = line.times.partition_point(|time| *time <= end).saturating_add(1).min(line.len());
    let to = to.max(from.saturating_add(least)).min(line.len());
    from = from.min(to.saturating_sub(least));
    let Line { mut times, values } = line;
    times.truncate(to);
    times.drain(..from);
    let values = match values {
        Values::Int(mut ints) => Values::Int(ints.drain(from..to).collect()),
        Values::Float(mut floats) => Values::Float(floats.drain(from..to).collect()),
        Values::Mixed(mut values) => Values::Mixed(values.drain(from..to).collect()),
    };
    Line { times, values }
}
