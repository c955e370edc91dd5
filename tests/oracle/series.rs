//! What is done to one series by itself: the window that is read, downsampling, fill, rate.

use super::calendar::Calendar;
use super::{Aggregator, Number, Question};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Downsample {
    pub width: Width,
    pub function: Aggregator,
    pub fill: Fill,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    Millis(i64),
    /// One bucket over the whole range.
    All,
    Calendar(Calendar),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    None,
    Nan,
    Null,
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    pub counter: bool,
    pub counter_max: i64,
    pub reset_value: i64,
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false }
    }
}

const HOUR_S: i64 = 3_600;

/// The half-open stretch of milliseconds that is read to answer start..=end: whole hour rows around it.
pub fn window(start_ms: i64, end_ms: i64, downsample: Option<&Downsample>) -> (i64, i64) {
    let interval = match downsample {
        Some(Downsample { width: Width::Millis(millis), .. }) => *millis,
        Some(Downsample { width: Width::Calendar(calendar), .. }) => calendar.nominal_millis(),
        _ => 0,
    };
    let mut first = start_ms / 1000;
    let mut last = end_ms / 1000 + 1;
    if interval > 0 {
        first -= (1000 * first % interval) / 1000;
        last += (interval - 1000 * last % interval) / 1000;
    }
    first -= first % HOUR_S;
    if last % HOUR_S != 0 || interval == 0 {
        last += HOUR_S - last % HOUR_S;
    }
    (first * 1000, last * 1000)
}

/// From the points that were read to the points that take part in the merge.
pub fn pipeline(read: Vec<(i64, Number)>, question: &Question, from: i64, to: i64) -> Vec<(i64, Number)> {
    let mut points = read;
    if let Some(downsample) = &question.downsample {
        points = match downsample.width {
            Width::Millis(interval) => buckets(&points, downsample, interval, from, to),
            Width::All => whole_range(&points, downsample.function, question.start_ms, question.end_ms),
            Width::Calendar(calendar) => calendar_buckets(&points, downsample, calendar, from, to, question.exact),
        };
    }
    if let Some(options) = &question.rate {
        points = rate(&points, options, question.exact);
    }
    points.retain(|(time, _)| *time >= from);
    points
}

fn buckets(points: &[(i64, Number)], downsample: &Downsample, interval: i64, from: i64, to: i64) -> Vec<(i64, Number)> {
    // Seeking to the start of the window rounds up to a whole bucket.
    let seek = if from % interval == 0 { from } else { from - from % interval + interval };
    let mut made: Vec<(i64, Number)> = Vec::new();
    let mut at = 0;
    while at < points.len() {
        if points[at].0 < seek {
            at += 1;
            continue;
        }
        let bucket = points[at].0 - points[at].0 % interval;
        let mut values = Vec::new();
        while at < points.len() && points[at].0 - points[at].0 % interval == bucket {
            values.push(points[at].1.as_f64());
            at += 1;
        }
        made.push((bucket, Number::Float(downsample.function.floats(&values))));
    }
    let gap = match downsample.fill {
        Fill::None => return made,
        Fill::Nan | Fill::Null => f64::NAN,
        Fill::Zero => 0.0,
    };
    let mut filled = Vec::new();
    let mut made = made.into_iter().peekable();
    let mut bucket = from - from % interval;
    while bucket < to - to % interval {
        match made.next_if(|(time, _)| *time == bucket) {
            Some(point) => filled.push(point),
            None => filled.push((bucket, Number::Float(gap))),
        }
        bucket += interval;
    }
    filled
}

/// The original counts the intervals of every series from the first of its own points; the sensible grid is one, and
/// counted from the start of what is read. Both fill the grid that is counted from there.
fn calendar_buckets(
    points: &[(i64, Number)],
    downsample: &Downsample,
    calendar: Calendar,
    from: i64,
    to: i64,
    exact: bool,
) -> Vec<(i64, Number)> {
    let first = calendar.previous(from);
    let seek = if first == from { from } else { calendar.next(first) };
    let mut points = points.iter().filter(|(time, _)| *time >= seek).peekable();
    let mut made: Vec<(i64, Number)> = Vec::new();
    let mut start = match points.peek() {
        Some((time, _)) if exact => calendar.previous(*time),
        _ => first,
    };
    while points.peek().is_some() {
        let end = calendar.next(start);
        let mut values = Vec::new();
        while let Some((_, value)) = points.next_if(|(time, _)| *time < end) {
            values.push(value.as_f64());
        }
        if !values.is_empty() {
            made.push((start, Number::Float(downsample.function.floats(&values))));
        }
        start = end;
    }
    let gap = match downsample.fill {
        Fill::None => return made,
        Fill::Nan | Fill::Null => f64::NAN,
        Fill::Zero => 0.0,
    };
    let mut last = if exact { calendar.previous(to) } else { walk(calendar, first, to) };
    if last == first {
        last = calendar.next(last);
    }
    let mut filled = Vec::new();
    let mut bucket = first;
    while bucket < last {
        let value = made.iter().find(|(time, _)| *time == bucket).map_or(Number::Float(gap), |(_, value)| *value);
        filled.push((bucket, value));
        bucket = calendar.next(bucket);
    }
    filled
}

/// The start of the interval that holds `time`, counted from `start`.
fn walk(calendar: Calendar, mut start: i64, time: i64) -> i64 {
    while calendar.next(start) <= time {
        start = calendar.next(start);
    }
    start
}

fn whole_range(points: &[(i64, Number)], function: Aggregator, start: i64, end: i64) -> Vec<(i64, Number)> {
    let values: Vec<f64> =
        points.iter().filter(|(time, _)| start <= *time && *time < end).map(|(_, value)| value.as_f64()).collect();
    if values.is_empty() { Vec::new() } else { vec![(start, Number::Float(function.floats(&values)))] }
}

/// The original measures the first point against (1970, 0); only with `exact` that stays.
fn rate(points: &[(i64, Number)], options: &RateOptions, exact: bool) -> Vec<(i64, Number)> {
    let mut rates = Vec::new();
    let (mut time_before, mut before) = (0, Number::Int(0));
    for (at, &(time, now)) in points.iter().enumerate() {
        let seconds = (time - time_before) as f64 / 1000.0;
        let mut difference = match (before, now) {
            (Number::Int(before), Number::Int(now)) => now.wrapping_sub(before) as f64,
            _ => now.as_f64() - before.as_f64(),
        };
        let mut dropped = false;
        let mut restarted = false;
        if options.counter && difference < 0.0 {
            dropped = options.drop_resets;
            difference = match (before, now) {
                (Number::Int(before), Number::Int(now)) => {
                    options.counter_max.wrapping_sub(before).wrapping_add(now) as f64
                }
                _ => options.counter_max as f64 - before.as_f64() + now.as_f64(),
            };
            restarted = options.reset_value > 0 && difference / seconds > options.reset_value as f64;
        }
        if !dropped && (exact || at > 0) {
            rates.push((time, Number::Float(if restarted { 0.0 } else { difference / seconds })));
        }
        (time_before, before) = (time, now);
    }
    rates
}
