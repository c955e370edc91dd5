//! Rates: the values of one series become their change per second.

use telem_engine::{Timestamp, Value, Values};

use super::Line;
use crate::question::tsq::Rate;

/// What the first point of a series is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPoint {
    /// Nothing: there is no rate at it.
    Nothing,
    /// The value 0 at 1970-01-01, as OpenTSDB does.
    Epoch,
}

/// The rates of `line`, each at the later of its two points. Integers are subtracted exactly,
/// wrapping at 64 bits.
pub fn rate(line: &Line, options: &Rate, first: FirstPoint) -> Line {
    let epoch = (Timestamp::from_micros(0), Value::Int(0));
    let mut previous = (first == FirstPoint::Epoch).then_some(epoch);
    let (mut times, mut values) = (Vec::with_capacity(line.len()), Vec::with_capacity(line.len()));
    for at in 0..line.len() {
        let point = (line.times[at], line.values.get(at));
        if let Some(previous) = previous
            && let Some(rate) = between(previous, point, options)
        {
            times.push(point.0);
            values.push(rate);
        }
        previous = Some(point);
    }
    Line { times, values: Values::Float(values) }
}

/// `None` where a counter was reset and `drop_resets` says to leave the rate out.
fn between(from: (Timestamp, Value), to: (Timestamp, Value), options: &Rate) -> Option<f64> {
    let seconds = seconds(to.0.micros().saturating_sub(from.0.micros()));
    let difference = match (from.1, to.1) {
        (Value::Int(from), Value::Int(to)) => to.wrapping_sub(from) as f64,
        (from, to) => to.as_f64() - from.as_f64(),
    };
    if !options.counter || difference >= 0.0 || difference.is_nan() {
        return Some(difference / seconds);
    }
    if options.drop_resets {
        return None;
    }
    let counter_max = options.counter_max.unwrap_or(i64::MAX);
    let wrapped = match (from.1, to.1) {
        (Value::Int(from), Value::Int(to)) => counter_max.wrapping_sub(from).wrapping_add(to) as f64,
        (from, to) => counter_max as f64 - from.as_f64() + to.as_f64(),
    };
    let rate = wrapped / seconds;
    Some(if options.reset_value > 0 && rate > options.reset_value as f64 { 0.0 } else { rate })
}

/// Whole milliseconds are divided as milliseconds: the result then equals OpenTSDB's to the last bit.
fn seconds(micros: i64) -> f64 {
    if micros % 1_000 == 0 { (micros / 1_000) as f64 / 1_000.0 } else { micros as f64 / 1_000_000.0 }
}
