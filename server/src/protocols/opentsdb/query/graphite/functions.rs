//! The functions, applied to the groups that queries were answered with.

use std::collections::{BTreeMap, BTreeSet};

use telem_engine::{SeriesKey, TagSet, Timestamp, Value};
use telem_query::TsGroup;
use telem_query::tsq::Fidelity;

use super::parse::{Argument, GraphiteFunction, GraphiteTree};
use crate::protocols::opentsdb::query::expression::join::{self, By, JoinKind, JoinSide};

/// Most sub-queries that are added up, and so on.
const OPERANDS_MAX: usize = 26;

/// A group and the sub-query that it comes from.
#[derive(Clone, Debug)]
pub struct Curve {
    pub sub: usize,
    pub group: TsGroup,
    pub made: CurveOrigin,
}

/// How a curve came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveOrigin {
    FromOne,
    FromSeveral,
}

/// The range of the request, and the client that asks.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub start: Timestamp,
    pub end: Timestamp,
    pub fidelity: Fidelity,
}

/// What `tree` makes of the answers to its queries.
///
/// # Errors
/// Says which argument is missing or wrong.
pub fn evaluate(tree: &GraphiteTree, answers: &[Vec<Curve>], scope: Scope) -> Result<Vec<Curve>, String> {
    let (mut inputs, mut parameters) = (Vec::new(), Vec::new());
    for argument in &tree.arguments {
        match argument {
            Argument::Function(tree) => inputs.push(evaluate(tree, answers, scope)?),
            Argument::Query(at) => inputs.push(answers.get(*at).cloned().unwrap_or_default()),
            Argument::Parameter(text) => parameters.push(text.as_str()),
        }
    }
    let parameter = |what: &str| parameters.first().copied().ok_or_else(|| format!("Missing {what}"));
    match tree.function {
        GraphiteFunction::Scale => {
            let factor = parameter("scaling factor")?;
            let plain = factor.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '.'));
            let factor: f64 = factor
                .parse()
                .ok()
                .filter(|_| plain)
                .ok_or_else(|| format!("Unparseable scale factor value: {factor}"))?;
            Ok(each(inputs, |value| scaled(value, factor)))
        }
        GraphiteFunction::Absolute => Ok(each(inputs, |value| match value {
            Value::Int(int) => Value::Int(int.wrapping_abs()),
            Value::Float(float) => Value::Float(float.abs()),
        })),
        GraphiteFunction::FirstDifference => Ok(each_line(inputs, first_differences)),
        GraphiteFunction::MovingAverage => {
            let window = Window::parse(parameter("moving average window size")?)?;
            Ok(each_line(inputs, |points| {
                moving_average(points.iter().filter(|(time, _)| *time >= scope.start), window)
            }))
        }
        GraphiteFunction::TimeShift => {
            let text = parameter("amount of time")?;
            if scope.fidelity == Fidelity::OpenTsdb {
                return Err(no_unit(text));
            }
            let Window::Millis(millis) = Window::parse(text)? else {
                return Err(format!("Invalid timeshift parameter: {text}, expected one such as '10min'"));
            };
            Ok(each_line(inputs, |points| {
                let micros = millis.saturating_mul(1_000);
                points.iter().map(|(time, value)| (time.saturating_add_micros(micros), *value)).collect()
            }))
        }
        GraphiteFunction::HighestMax => {
            let most =
                |points: &[(Timestamp, Value)]| points.iter().map(|(_, value)| value.as_f64()).fold(NONE, f64::max);
            highest(inputs, parameter("top n value (number of series to return)")?, scope, most)
        }
        GraphiteFunction::HighestCurrent => {
            let last = |points: &[(Timestamp, Value)]| points.last().map_or(NONE, |(_, value)| value.as_f64());
            highest(inputs, parameter("top n value (number of series to return)")?, scope, last)
        }
        GraphiteFunction::Alias => alias(inputs, parameter("alias")?),
        GraphiteFunction::Sum => combine(&inputs, scope.fidelity, |a, b| a + b),
        GraphiteFunction::Diff => combine(&inputs, scope.fidelity, |a, b| a - b),
        GraphiteFunction::Multiply => combine(&inputs, scope.fidelity, |a, b| a * b),
        // As in the original, whose language says so.
        GraphiteFunction::Divide => combine(&inputs, scope.fidelity, |a, b| if b == 0.0 { 0.0 } else { a / b }),
    }
}

/// Below everything that can be found.
const NONE: f64 = f64::NEG_INFINITY;

fn each(inputs: Vec<Vec<Curve>>, change: impl Fn(Value) -> Value) -> Vec<Curve> {
    each_line(inputs, |points| points.iter().map(|(time, value)| (*time, change(*value))).collect())
}

fn each_line(inputs: Vec<Vec<Curve>>, change: impl Fn(&[(Timestamp, Value)]) -> Vec<(Timestamp, Value)>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = inputs.into_iter().flatten().collect();
    for curve in &mut curves {
        curve.group.points = change(&curve.group.points);
    }
    curves
}

/// Integers stay integers if the factor is one.
fn scaled(value: Value, factor: f64) -> Value {
    match value {
        Value::Int(int) if factor.floor() == factor => Value::Int((factor as i64).wrapping_mul(int)),
        value => Value::Float(factor * value.as_f64()),
    }
}

/// OpenTSDB takes the quotation mark for a part of the unit, so that it knows none.
fn no_unit(text: &str) -> String {
    match text.strip_prefix('\'').filter(|rest| rest.ends_with('\'')) {
        Some(time) => format!("unknown time unit={}", time.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => "Invalid timeshift parameter: eg '10min'".to_owned(),
    }
}

fn first_differences(points: &[(Timestamp, Value)]) -> Vec<(Timestamp, Value)> {
    let mut before = None;
    let difference = |(time, value): &(Timestamp, Value)| {
        let now = value.as_f64();
        (*time, Value::Float(before.replace(now).map_or(0.0, |before: f64| now - before)))
    };
    points.iter().map(difference).collect()
}

/// How far back something looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Points(usize),
    Millis(i64),
}

impl Window {
    /// `10` points, or `'10min'` in quotation marks.
    fn parse(text: &str) -> Result<Window, String> {
        let wrong =
            || format!("Unparseable window size: {text}, expected a number of points or a time such as '10min'");
        let Some(time) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) else {
            let points = text.parse().ok().filter(|points| *points > 0);
            return points.map(Window::Points).ok_or_else(wrong);
        };
        let digits = time.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match &time[digits..] {
            "s" | "sec" => 1_000,
            "m" | "min" => 60_000,
            "h" | "hr" | "hour" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "week" | "weeks" => 7 * 86_400_000,
            _ => return Err(wrong()),
        };
        let count: i64 = time[..digits].parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        count.checked_mul(unit).map(Window::Millis).ok_or_else(wrong)
    }
}

/// The mean of each point and of those before it in the window; 0 where the window is not full yet. Of points the
/// window holds so many that are numbers. Of time it is full when the points in it and the one before them span it.
fn moving_average<'a>(points: impl Iterator<Item = &'a (Timestamp, Value)>, window: Window) -> Vec<(Timestamp, Value)> {
    let points: Vec<(Timestamp, f64)> = points.map(|(time, value)| (*time, value.as_f64())).collect();
    let numbers: Vec<usize> = (0..points.len()).filter(|at| !points[*at].1.is_nan()).collect();
    let average = |to: usize| {
        let (time, _) = points[to];
        let known = numbers.partition_point(|at| *at <= to);
        let from = match window {
            Window::Points(count) => known.checked_sub(count),
            Window::Millis(millis) => {
                let before = points[..to].partition_point(|(other, _)| time.millis() - other.millis() >= millis);
                (before > 0).then(|| numbers.partition_point(|at| *at < before))
            }
        };
        let Some(from) = from.filter(|from| *from < known) else { return 0.0 };
        let values = numbers[from..known].iter().map(|at| points[*at].1);
        values.sum::<f64>() / (known - from) as f64
    };
    (0..points.len()).map(|at| (points[at].0, Value::Float(average(at)))).collect()
}

/// As many series as `most` says, the highest first.
fn highest(
    inputs: Vec<Vec<Curve>>,
    most: &str,
    scope: Scope,
    height: impl Fn(&[(Timestamp, Value)]) -> f64,
) -> Result<Vec<Curve>, String> {
    let most: usize = most.parse().map_err(|_| format!("Unparseable top n value: {most}"))?;
    if most == 0 {
        return Err(format!("Top n value must be greater than zero: {most}"));
    }
    let curves = inputs.into_iter().flatten().map(|curve| {
        let points = &curve.group.points;
        let from = points.partition_point(|(time, _)| *time < scope.start);
        let to = points.partition_point(|(time, _)| *time <= scope.end).max(from);
        (height(&points[from..to]), curve)
    });
    let mut curves: Vec<(f64, Curve)> = curves.collect();
    curves.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    curves.truncate(most);
    Ok(curves.into_iter().map(|(_, curve)| curve).collect())
}

/// Another name, in which `@key` is the value of a tag; the tags go.
fn alias(inputs: Vec<Vec<Curve>>, template: &str) -> Result<Vec<Curve>, String> {
    let mut curves: Vec<Curve> = inputs.into_iter().flatten().collect();
    for Curve { group, .. } in &mut curves {
        let tags = std::mem::take(&mut group.tags);
        let tags: Vec<_> = tags.iter().collect();
        let name =
            tags.iter().rev().fold(template.to_owned(), |name, (key, value)| name.replace(&format!("@{key}"), value));
        let key = SeriesKey::new(&name, TagSet::default()).map_err(|error| format!("the alias '{name}': {error}"))?;
        group.series = vec![key];
        group.aggregate_tags.clear();
    }
    Ok(curves)
}

/// Series with equal tags point by point; one that is missing counts as 0.
fn combine(inputs: &[Vec<Curve>], fidelity: Fidelity, of: impl Fn(f64, f64) -> f64) -> Result<Vec<Curve>, String> {
    if !(2..=OPERANDS_MAX).contains(&inputs.len()) {
        return Err(format!("Must have 2 to {OPERANDS_MAX} series, got {} instead", inputs.len()));
    }
    let sides: Vec<JoinSide<'_>> = inputs
        .iter()
        .map(|curves| JoinSide {
            groups: curves.iter().map(|curve| &curve.group).collect(),
            query_keys: BTreeSet::new(),
        })
        .collect();
    let by = By { query_tags: false, aggregate_tags: false };
    let rows = join::rows(&sides, JoinKind::Union, by)?;
    Ok(rows
        .iter()
        .map(|row| Curve { sub: 0, group: combined(row, fidelity, &of), made: CurveOrigin::FromSeveral })
        .collect())
}

fn combined(row: &join::Row<'_>, fidelity: Fidelity, of: &impl Fn(f64, f64) -> f64) -> TsGroup {
    let mut points: BTreeMap<Timestamp, Vec<f64>> = BTreeMap::new();
    for (at, member) in row.members.iter().enumerate() {
        for (time, value) in member.iter().flat_map(|group| &group.points) {
            let value = value.as_f64();
            points.entry(*time).or_insert_with(|| vec![0.0; row.members.len()])[at] =
                if value.is_nan() { 0.0 } else { value };
        }
    }
    let folded = points.into_iter().map(|(time, values)| {
        let value = values.into_iter().reduce(of).unwrap_or(f64::NAN);
        (time, Value::Float(value))
    });
    TsGroup {
        tags: row.tags(fidelity),
        aggregate_tags: row.aggregate_tags(),
        series: row.members.iter().flatten().flat_map(|group| group.series.iter().cloned()).collect(),
        points: folded.collect(),
    }
}
