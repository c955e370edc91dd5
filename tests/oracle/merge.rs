//! The merge iterator: walks the series of one group side by side over the union of their timestamps.

use super::reduce::Interpolation;
use super::{Aggregator, Number};

/// Where the iterator stands in one series.
struct Cursor<'a> {
    /// The last point at or before the current time; none before the series starts and after it ends.
    here: Option<(i64, Number)>,
    next: Option<(i64, Number)>,
    rest: std::slice::Iter<'a, (i64, Number)>,
}

impl Cursor<'_> {
    fn step(&mut self) {
        self.here = self.next;
        self.next = self.rest.next().copied();
    }
}

/// One point at every time up to `last` at which some series has one; what the others contribute there is
/// interpolated by the rule of `aggregator`.
///
/// Rates are not interpolated: a series contributes its latest rate. With `exact` the first output of a
/// rated series is its rate against 1970: it is consumed, but stands as that "latest rate" from the start.
pub fn merge(
    streams: &[Vec<(i64, Number)>],
    aggregator: Aggregator,
    rated: bool,
    exact: bool,
    last: i64,
) -> Vec<(i64, Number)> {
    let mut cursors: Vec<Cursor> = Vec::new();
    for stream in streams {
        let mut cursor = Cursor { here: None, next: None, rest: stream.iter() };
        cursor.step();
        if rated && exact {
            cursor.step();
        }
        cursors.push(cursor);
    }
    let mut merged = Vec::new();
    loop {
        let upcoming =
            cursors.iter().filter_map(|cursor| cursor.next).map(|(time, _)| time).filter(|time| *time <= last);
        let Some(now) = upcoming.min() else { return merged };
        for cursor in &mut cursors {
            if cursor.next.is_none() {
                cursor.here = None;
            } else if cursor.next.is_some_and(|(time, _)| time == now) {
                cursor.step();
            }
        }
        let whole = !rated
            && cursors.iter().all(|cursor| {
                [cursor.here, cursor.next].iter().flatten().all(|(_, value)| matches!(value, Number::Int(_)))
            });
        let value = if whole {
            let values: Vec<i64> = cursors.iter().filter_map(|cursor| int_at(cursor, now, aggregator)).collect();
            Number::Int(aggregator.ints(&values))
        } else {
            let values: Vec<f64> =
                cursors.iter().filter_map(|cursor| float_at(cursor, now, aggregator, rated)).collect();
            Number::Float(aggregator.floats(&values))
        };
        merged.push((now, value));
    }
}

fn float_at(cursor: &Cursor, now: i64, aggregator: Aggregator, rated: bool) -> Option<f64> {
    let (x0, y0) = cursor.here?;
    let y0 = y0.as_f64();
    if x0 == now || rated {
        return Some(y0);
    }
    let (x1, y1) = cursor.next?;
    Some(match aggregator.interpolation() {
        Interpolation::Linear => y0 + (now - x0) as f64 * (y1.as_f64() - y0) / (x1 - x0) as f64,
        Interpolation::Zero => 0.0,
        Interpolation::Highest => f64::MAX,
        Interpolation::Lowest => -f64::MAX,
        Interpolation::Previous => y0,
    })
}

fn int_at(cursor: &Cursor, now: i64, aggregator: Aggregator) -> Option<i64> {
    let ((x0, Number::Int(y0)), next) = (cursor.here?, cursor.next) else { return None };
    if x0 == now {
        return Some(y0);
    }
    let Some((x1, Number::Int(y1))) = next else { return None };
    Some(match aggregator.interpolation() {
        Interpolation::Linear => y0.wrapping_add((now - x0).wrapping_mul(y1.wrapping_sub(y0)).wrapping_div(x1 - x0)),
        Interpolation::Zero => 0,
        Interpolation::Highest => i64::MAX,
        Interpolation::Lowest => i64::MIN,
        Interpolation::Previous => y0,
    })
}
