//! Downsampling: the samples of one series become one value per bucket.

use telem_engine::{TimeRange, Timestamp, Values};

use super::Line;
use super::grid::Grid;
use crate::question::Aggregator;

/// The buckets of `grid` that hold samples of `line`, each with `function` of its samples as
/// floats. Of the samples, all within `window`, the grid may refuse some, see [`Grid::admits`].
pub fn downsample(line: Line, grid: Grid, window: TimeRange, function: Aggregator) -> Line {
    let admitted = grid.admits(window);
    let from = line.times.partition_point(|time| *time < admitted.start);
    let to = line.times.partition_point(|time| *time < admitted.end).max(from);
    let times = &line.times[from..to];
    let Some(first) = times.first() else { return Line::default() };
    let grid = grid.anchored(*first);
    let samples = line.values.into_f64s();
    let samples = &samples[from..to];

    let (mut buckets, mut values, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < times.len() {
        let bucket = grid.floor(times[at]);
        let end = grid.next(bucket);
        let mut next = at + 1;
        while next < times.len() && times[next] < end {
            next += 1;
        }
        buckets.push(bucket);
        values.push(function.of_floats(&samples[at..next], &mut scratch));
        at = next;
    }
    Line { times: buckets, values: Values::Float(values) }
}

/// Puts `filler` into every bucket from `range.start` until `range.end` that `line` lacks.
/// Values of `line` that are not on that very grid are lost.
pub fn fill(line: &Line, grid: Grid, range: TimeRange, filler: f64) -> Line {
    let grid = grid.anchored(range.start);
    let (mut times, mut values) = (Vec::new(), Vec::new());
    let mut at = 0;
    let mut bucket = range.start;
    while bucket < range.end {
        while at < line.times.len() && line.times[at] < bucket {
            at += 1;
        }
        let here = at < line.times.len() && line.times[at] == bucket;
        times.push(bucket);
        values.push(if here { line.values.get(at).as_f64() } else { filler });
        let next = grid.next(bucket);
        if next <= bucket {
            break;
        }
        bucket = next;
    }
    Line { times, values: Values::Float(values) }
}

/// How many buckets [`fill`] makes, at most.
pub fn fill_len(interval_micros: i64, range: TimeRange) -> u64 {
    let length = range.end.micros().saturating_sub(range.start.micros()).max(0);
    (length / interval_micros.max(1)).unsigned_abs() + 2
}

/// The bucket times of a fixed grid that lie in `from..=to`.
pub fn steps(step: telem_engine::Step, from: Timestamp, to: Timestamp) -> u64 {
    let first = step.ceil(from);
    if to < first {
        return 0;
    }
    (to.micros().saturating_sub(first.micros()) / step.micros()).unsigned_abs() + 1
}
