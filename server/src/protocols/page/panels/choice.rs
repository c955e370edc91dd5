//! Which lines are sent: figures of every line, an order by them, and what stands for those that are not sent.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde::Serialize;

use super::column::PanelColumn;
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

/// Which lines are sent.
#[derive(Debug)]
pub struct LineChoice {
    /// Of every line.
    pub figures: Vec<LineFigures>,
    /// The places of those that are sent, in their order.
    pub sent: Vec<usize>,
}

impl LineChoice {
    pub fn of(lines: &[PanelLine], columns: usize, wish: &LineWish) -> Self {
        let figures = figures(lines, columns);
        Self { sent: chosen(lines, &figures, wish), figures }
    }
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
    let mut medians = Vec::with_capacity(columns);
    let mut block: Vec<Vec<f64>> = (0..BLOCK_COLUMNS).map(|_| Vec::with_capacity(lines.len())).collect();
    for from in (0..columns).step_by(BLOCK_COLUMNS) {
        let to = (from + BLOCK_COLUMNS).min(columns);
        block.iter_mut().for_each(Vec::clear);
        for line in lines {
            for (values, value) in block.iter_mut().zip(&line.avg[from..to]).filter(|(_, value)| !value.is_nan()) {
                values.push(*value);
            }
        }
        medians.extend(block[..to - from].iter_mut().map(|values| median(values)));
    }
    medians
}

/// Columns that are looked at together: of thousands of lines each is another place in memory, so a column by itself would
/// wait for memory at every value.
const BLOCK_COLUMNS: usize = 32;

/// NaN of nothing.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().fold(f64::NAN, f64::max);
    if is_even { *upper / 2.0 + lower / 2.0 } else { *upper }
}

/// The places of the lines that are sent, in their order.
pub fn chosen(lines: &[PanelLine], figures: &[LineFigures], wish: &LineWish) -> Vec<usize> {
    match wish {
        LineWish::Named(names) => {
            // Few are wanted of maybe thousands: each of those is looked up once.
            let mut wanted: HashMap<&LineName, usize> = HashMap::new();
            for name in names {
                let next = wanted.len();
                wanted.entry(name).or_insert(next);
            }
            let mut places: Vec<Option<usize>> = vec![None; wanted.len()];
            for (place, line) in lines.iter().enumerate() {
                if let Some(at) = wanted.get(&line.name) {
                    places[*at].get_or_insert(place);
                }
            }
            places.into_iter().flatten().collect()
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
            // Of thousands of names each is taken apart once, and only where names decide.
            let names: Vec<OnceCell<Vec<(u64, String)>>> = vec![OnceCell::new(); lines.len()];
            let parts = |place: usize| names[place].get_or_init(|| parts(&lines[place].name));
            places.sort_by(|one, other| {
                let by_figure = rank(*other).total_cmp(&rank(*one));
                let by_parts = || parts(*one).cmp(parts(*other));
                by_figure.then_with(by_parts).then_with(|| lines[*one].name.cmp(&lines[*other].name))
            });
            places.truncate(*count);
            places
        }
    }
}

/// Numbers in names count as numbers: `nid9` is before `nid10`.
fn parts(name: &LineName) -> Vec<(u64, String)> {
    name.iter().flat_map(|text| natural(text.as_deref().unwrap_or_default())).collect()
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
    // Line after line, as they stand in memory.
    let (mut count, mut sums, mut counts) = (0, vec![0.0; columns], vec![0_u64; columns]);
    let (mut least, mut greatest) = (vec![f64::NAN; columns], vec![f64::NAN; columns]);
    for (line, _) in lines.iter().zip(is_sent).filter(|(_, is_sent)| !is_sent) {
        count += 1;
        for (column, value) in line.avg.iter().copied().enumerate() {
            if !value.is_nan() {
                sums[column] += value;
                counts[column] += 1;
            }
            least[column] = least[column].min(value).min(line.min[column]);
            greatest[column] = greatest[column].max(value).max(line.max[column]);
        }
    }
    let means = sums.iter().zip(counts).map(|(sum, count)| sum / count as f64);
    (count > 0).then(|| OtherLines {
        count,
        avg: PanelColumn(means.collect()),
        min: PanelColumn(least),
        max: PanelColumn(greatest),
    })
}
