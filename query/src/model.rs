//! How a figure grows with the size of its job: from points of size and value to a law.
//!
//! The one idea: few laws are tried, those of performance models in general: a constant, or a constant and one term
//! `size^i * log2(size)^j` with exponents from a short list. A law counts only if it foretells sizes that it was not
//! fitted to: each size is left out in turn, and the law must halve the error that a constant makes. So noise stays a
//! constant. The model of one metric depends on its points alone, not on their order.
//!
//! Several values of one size count as their mean, so that no size weighs more for having run often.

pub mod extrap;
pub mod formula;
#[cfg(test)]
mod tests;

use std::fmt;

/// Exponents of the size, as fractions.
const EXPONENTS: [(u8, u8); 19] = [
    (0, 1),
    (1, 4),
    (1, 3),
    (1, 2),
    (2, 3),
    (3, 4),
    (1, 1),
    (5, 4),
    (4, 3),
    (3, 2),
    (5, 3),
    (7, 4),
    (2, 1),
    (9, 4),
    (7, 3),
    (5, 2),
    (8, 3),
    (11, 4),
    (3, 1),
];
/// The highest power of the logarithm.
const LOGS_MAX: u8 = 2;
/// Two sizes always lie on a law.
const SIZES_MIN: usize = 3;
/// With more sizes several are left out at once: the work grows with sizes times this.
const FOLDS_MAX: usize = 64;
/// A law must leave so much less of the constant's error.
const ERROR_SHARE_MAX: f64 = 0.5;
/// Of the largest value: what differs by less is rounding.
const ROUNDING: f64 = 1e-12;

/// A value that was measured in a job of that size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    pub size: f64,
    pub value: f64,
}

/// `factor * size^exponent * log2(size)^logs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingTerm {
    pub factor: f64,
    /// A fraction: numerator and denominator.
    pub exponent: (u8, u8),
    pub logs: u8,
}

impl ScalingTerm {
    /// The power and the logarithm, without the factor.
    fn shape(exponent: (u8, u8), logs: u8, size: f64) -> (f64, f64) {
        let power = match exponent {
            (0, _) => 1.0,
            (1, 1) => size,
            (over, under) => size.powf(f64::from(over) / f64::from(under)),
        };
        let logarithm = match logs {
            0 => 1.0,
            1 => size.log2(),
            more => size.log2().powf(f64::from(more)),
        };
        (power, logarithm)
    }
}

/// A law: displayed, it is a formula in `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingModel {
    pub constant: f64,
    /// `None` where the value does not depend on the size, as far as is known.
    pub term: Option<ScalingTerm>,
    /// The sum of the squares of what it is off by, over the means of all sizes.
    pub rss: f64,
}

impl ScalingModel {
    /// The best law; `None` without a point that has a positive size and a finite value.
    pub fn fit(points: &[SizePoint]) -> Option<Self> {
        let means = means(points);
        let scale = means.iter().map(|point| point.value.abs()).fold(0.0, f64::max);
        if means.is_empty() {
            return None;
        }
        if scale == 0.0 {
            return Some(Self { constant: 0.0, term: None, rss: 0.0 });
        }
        // So that no square of a large value overflows, and no square of a small one vanishes.
        let sizes: Vec<f64> = means.iter().map(|point| point.size).collect();
        let values: Vec<f64> = means.iter().map(|point| point.value / scale).collect();
        let shapeless = vec![0.0; sizes.len()];
        let error_of_constant = left_out_error(&shapeless, &values);
        let rounding = ROUNDING * ROUNDING * values.len() as f64;
        let constant = LeastSquares::fit(&shapeless, &values);
        let mut best = (error_of_constant * ERROR_SHARE_MAX, constant, None);
        if sizes.len() >= SIZES_MIN && error_of_constant > rounding {
            for (exponent, logs) in shapes() {
                let product = |(power, logarithm): (f64, f64)| power * logarithm;
                let shape = sizes.iter().map(|size| product(ScalingTerm::shape(exponent, logs, *size)));
                let shape: Vec<f64> = shape.collect();
                let error = left_out_error(&shape, &values);
                // Also where it is no number. Of equally good ones that counts which grows most slowly.
                if error < best.0 {
                    best = (error, LeastSquares::fit(&shape, &values), Some((exponent, logs)));
                }
            }
        }
        let (_, line, shape) = best;
        let term = shape.map(|(exponent, logs)| ScalingTerm { factor: rounded(line.slope * scale), exponent, logs });
        let mut model = Self { constant: rounded(line.start * scale), term, rss: 0.0 };
        model.rss = means.iter().map(|point| (model.at(point.size) - point.value).powi(2)).sum();
        Some(model)
    }

    /// Its value at a size.
    pub fn at(&self, size: f64) -> f64 {
        match self.term {
            None => self.constant,
            Some(ScalingTerm { factor, exponent, logs }) => {
                // In the order in which the formula says it.
                let (power, logarithm) = ScalingTerm::shape(exponent, logs, size);
                self.constant + factor * power * logarithm
            }
        }
    }
}

impl fmt::Display for ScalingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&number(self.constant))?;
        let Some(ScalingTerm { factor, exponent, logs }) = self.term else { return Ok(()) };
        write!(f, " + {}", number(factor))?;
        match exponent {
            (0, _) => {}
            (1, 1) => f.write_str(" * size")?,
            (over, 1) => write!(f, " * size^({over})")?,
            (over, under) => write!(f, " * size^({over}/{under})")?,
        }
        match logs {
            0 => Ok(()),
            1 => f.write_str(" * log2(size)"),
            more => write!(f, " * log2(size)^({more})"),
        }
    }
}

/// To 14 digits: what stands behind them is what sums lost.
fn rounded(number: f64) -> f64 {
    format!("{number:.13e}").parse().unwrap_or(number)
}

/// With all its bits, and without needless ones: `2`, `0.1`, `1e-7`.
fn number(number: f64) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// All that a term can look like, what grows most slowly first.
fn shapes() -> impl Iterator<Item = ((u8, u8), u8)> {
    let all = EXPONENTS.into_iter().flat_map(|exponent| (0..=LOGS_MAX).map(move |logs| (exponent, logs)));
    all.filter(|(exponent, logs)| exponent.0 > 0 || *logs > 0)
}

/// One point a size, by size; those that cannot be are left out.
fn means(points: &[SizePoint]) -> Vec<SizePoint> {
    let is_good = |point: &&SizePoint| point.size > 0.0 && point.size.is_finite() && point.value.is_finite();
    let mut sorted: Vec<SizePoint> = points.iter().filter(is_good).copied().collect();
    sorted.sort_by(|one, other| one.size.total_cmp(&other.size).then(one.value.total_cmp(&other.value)));
    let of_size = sorted.chunk_by(|one, other| one.size == other.size);
    let mean = |same: &[SizePoint]| {
        let share = 1.0 / same.len() as f64;
        SizePoint { size: same[0].size, value: same.iter().map(|point| point.value * share).sum() }
    };
    // One value is its own mean, bit for bit.
    of_size.map(|same| if let [one] = same { *one } else { mean(same) }).collect()
}

/// `start + slope * x`.
#[derive(Clone, Copy)]
struct LeastSquares {
    start: f64,
    slope: f64,
}

impl LeastSquares {
    /// By least squares. No slope where all `x` are equal.
    fn fit(x: &[f64], y: &[f64]) -> Self {
        Self::of(x.iter().copied().zip(y.iter().copied()))
    }

    fn of(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let (mut count, mut sum_x, mut sum_y) = (0.0, 0.0, 0.0);
        for (x, y) in pairs.clone() {
            (count, sum_x, sum_y) = (count + 1.0, sum_x + x, sum_y + y);
        }
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (mut along, mut across) = (0.0, 0.0);
        for (x, y) in pairs {
            along += (x - mean_x) * (x - mean_x);
            across += (x - mean_x) * (y - mean_y);
        }
        let slope = if along > 0.0 { across / along } else { 0.0 };
        Self { start: mean_y - slope * mean_x, slope }
    }
}

/// How far lines are off, in squares, at the points that they were not fitted to: each is left out once.
fn left_out_error(x: &[f64], y: &[f64]) -> f64 {
    let folds = x.len().min(FOLDS_MAX);
    let mut error = 0.0;
    for fold in 0..folds {
        let pairs = || x.iter().copied().zip(y.iter().copied()).enumerate();
        let line = LeastSquares::of(pairs().filter(|(at, _)| at % folds != fold).map(|(_, pair)| pair));
        for (_, (x, y)) in pairs().filter(|(at, _)| at % folds == fold) {
            error += (line.start + line.slope * x - y).powi(2);
        }
    }
    error
}
