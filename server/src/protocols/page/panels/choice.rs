//! Which lines are sent: figures of every line, an order by them, and what stands for those that are not sent.

use serde::Serialize;

use super::answer::PanelColumn;
use super::lines::{LineName, PanelLine};
use super::question::{LineRanking, LineWish};

/// The figures of a line; nothing is NaN, `null` in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LineFigures {
    /// Of its columns.
    pub mean: f64,
    /// Of its samples.
    pub min: f64,
    pub max: f64,
    /// Its last column.
    pub last: f64,
    /// How far it is from the median of all lines, on average over the columns.
    pub deviation: f64,
}

/// Several lines as one.
#[derive(Debug, Serialize)]
pub struct OtherLines {
    pub count: usize,
    /// The mean of their averages.
    pub avg: PanelColumn,
    pub min: PanelColumn,
    pub max: PanelColumn,
}

/// Figures of every line.
pub fn figures(lines: &[PanelLine], columns: usize) -> Vec<LineFigures> {
    let medians = medians(lines, columns);
    lines.iter().map(|line| of_line(line, &medians)).collect()
}

fn of_line(line: &PanelLine, medians: &[f64]) -> LineFigures {
    let there = || line.avg.iter().copied().filter(|value| !value.is_nan());
    let least = there().chain(line.min.iter().copied()).fold(f64::NAN, f64::min);
    let greatest = there().chain(line.max.iter().copied()).fold(f64::NAN, f64::max);
    let distances = line.avg.iter().zip(medians).map(|(value, median)| (value - median).abs());
    LineFigures {
        mean: mean(there()),
        min: least,
        max: greatest,
        last: there().next_back().unwrap_or(f64::NAN),
        deviation: mean(distances.filter(|distance| !distance.is_nan())),
    }
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}

/// The median of all lines in each column.
fn medians(lines: &[PanelLine], columns: usize) -> Vec<f64> {
    let mut values = Vec::with_capacity(lines.len());
    let median = |column: usize| {
        values.clear();
        values.extend(lines.iter().map(|line| line.avg[column]).filter(|value| !value.is_nan()));
        if values.is_empty() {
            return f64::NAN;
        }
        let middle = values.len() / 2;
        let is_even = values.len().is_multiple_of(2);
        let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
        let lower = below.iter().copied().fold(f64::NAN, f64::max);
        if is_even { *upper / 2.0 + lower / 2.0 } else { *upper }
    };
    (0..columns).map(median).collect()
}

/// The places of the lines that are sent, in their order.
pub fn chosen(lines: &[PanelLine], figures: &[LineFigures], wish: &LineWish) -> Vec<usize> {
    match wish {
        LineWish::Named(names) => {
            let place = |name: &LineName| lines.iter().position(|line| line.name == *name);
            let mut places: Vec<usize> = Vec::new();
            for place in names.iter().filter_map(place) {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            places
        }
        LineWish::First(count, order) => {
            let mut places: Vec<usize> = (0..lines.len()).collect();
            let key = |place: usize| match order {
                LineRanking::Name => f64::NAN,
                LineRanking::Max => figures[place].max,
                LineRanking::Mean => figures[place].mean,
                LineRanking::Last => figures[place].last,
                LineRanking::Deviation => figures[place].deviation,
            };
            // What has no such figure is last.
            let rank = |place: usize| if key(place).is_nan() { f64::NEG_INFINITY } else { key(place) };
            places.sort_by(|one, other| {
                let by_figure = rank(*other).total_cmp(&rank(*one));
                by_figure.then_with(|| by_name(&lines[*one].name, &lines[*other].name))
            });
            places.truncate(*count);
            places
        }
    }
}

/// Numbers in names count as numbers: `nid9` is before `nid10`.
fn by_name(one: &LineName, other: &LineName) -> std::cmp::Ordering {
    let parts = |name: &LineName| -> Vec<(u64, String)> {
        name.iter().flat_map(|text| natural(text.as_deref().unwrap_or_default())).collect()
    };
    parts(one).cmp(&parts(other)).then_with(|| one.cmp(other))
}

/// Stretches of digits as numbers, each with the text behind it.
fn natural(text: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = vec![(0, String::new())];
    let mut was_digit = false;
    for char in text.chars() {
        match char.to_digit(10) {
            Some(digit) => {
                if !was_digit {
                    parts.push((0, String::new()));
                }
                if let Some((number, _)) = parts.last_mut() {
                    *number = number.saturating_mul(10).saturating_add(u64::from(digit));
                }
            }
            None => {
                if let Some((_, text)) = parts.last_mut() {
                    text.push(char);
                }
            }
        }
        was_digit = char.is_ascii_digit();
    }
    parts
}

/// What stands for the lines that are not among `sent`.
pub fn others(lines: &[PanelLine], sent: &[usize], columns: usize) -> Option<OtherLines> {
    let mut is_sent = vec![false; lines.len()];
    for place in sent {
        is_sent[*place] = true;
    }
    let rest: Vec<&PanelLine> =
        lines.iter().zip(is_sent).filter(|(_, is_sent)| !is_sent).map(|(line, _)| line).collect();
    if rest.is_empty() {
        return None;
    }
    let values = |column: usize| rest.iter().map(move |line| line.avg[column]).filter(|value| !value.is_nan());
    let least = |column: usize| values(column).chain(rest.iter().map(|line| line.min[column])).fold(f64::NAN, f64::min);
    let greatest =
        |column: usize| values(column).chain(rest.iter().map(|line| line.max[column])).fold(f64::NAN, f64::max);
    Some(OtherLines {
        count: rest.len(),
        avg: PanelColumn((0..columns).map(|column| mean(values(column))).collect()),
        min: PanelColumn((0..columns).map(least).collect()),
        max: PanelColumn((0..columns).map(greatest).collect()),
    })
}
