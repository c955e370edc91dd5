//! The aggregators: many values become one, as integers or as floats.

/// What a series contributes between two of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    Linear,
    Zero,
    Highest,
    Lowest,
    Previous,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregator {
    Sum,
    Min,
    Max,
    Avg,
    Median,
    None,
    Mult,
    Dev,
    Diff,
    Count,
    ZimSum,
    MimMin,
    MimMax,
    First,
    Last,
    PfSum,
    SquareSum,
    /// The percentile in percent, and how it is estimated on integers.
    Percentile(f64, Estimate),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    Legacy,
    R3,
    R7,
}

impl Aggregator {
    pub fn interpolation(self) -> Interpolation {
        use Aggregator::*;
        match self {
            Sum | Min | Max | Avg | Median | Mult | Dev | Diff | Percentile(..) => Interpolation::Linear,
            None | Count | ZimSum | First | Last | SquareSum => Interpolation::Zero,
            MimMin => Interpolation::Highest,
            MimMax => Interpolation::Lowest,
            PfSum => Interpolation::Previous,
        }
    }

    /// Integer arithmetic wraps and truncates. `values` is not empty.
    pub fn ints(self, values: &[i64]) -> i64 {
        use Aggregator::*;
        let sum = || values.iter().fold(0_i64, |sum, value| sum.wrapping_add(*value));
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        match self {
            Sum | ZimSum | PfSum => sum(),
            SquareSum => values.iter().fold(0_i64, |sum, value| sum.wrapping_add(value.wrapping_mul(*value))),
            Min | MimMin => sorted[0],
            Max | MimMax => sorted[sorted.len() - 1],
            Avg => sum() / values.len() as i64,
            Median => sorted[sorted.len() / 2],
            Mult => values.iter().fold(1_i64, |product, value| product.wrapping_mul(*value)),
            Dev => welford(values.iter().map(|value| *value as f64)) as i64,
            Diff => values[values.len() - 1].wrapping_sub(values[0]),
            Count => values.len() as i64,
            First | None => values[0],
            Last => values[values.len() - 1],
            Percentile(percent, estimate) => {
                let sorted: Vec<f64> = sorted.into_iter().map(|value| value as f64).collect();
                percentile(&sorted, position(percent, estimate, sorted.len() as f64)) as i64
            }
        }
    }

    /// NaN stands for a gap that a fill policy left. `values` is not empty.
    pub fn floats(self, values: &[f64]) -> f64 {
        use Aggregator::*;
        let real: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let skips_nan = !matches!(self, Mult | First | Last | None | Diff | Count);
        if skips_nan && real.is_empty() {
            return f64::NAN;
        }
        let mut sorted = real.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        match self {
            Sum | ZimSum | PfSum => real.iter().fold(0.0, |sum, value| sum + value),
            SquareSum => real.iter().fold(0.0, |sum, value| sum + value * value),
            Min | MimMin => {
                if sorted[0] == f64::INFINITY {
                    f64::NAN
                } else {
                    sorted[0]
                }
            }
            Max | MimMax => {
                let highest = sorted[sorted.len() - 1];
                if highest == f64::NEG_INFINITY { f64::NAN } else { highest }
            }
            Avg => real.iter().fold(0.0, |sum, value| sum + value) / real.len() as f64,
            Median => sorted[sorted.len() / 2],
            Mult => values.iter().fold(1.0, |product, value| product * value),
            Dev => welford(real.into_iter()),
            Diff => match values.iter().position(|value| !value.is_nan()) {
                Option::None => f64::NAN,
                Some(first) if first == values.len() - 1 => 0.0,
                Some(first) => values[values.len() - 1] - values[first],
            },
            Count => real.len() as f64,
            First | None => values[0],
            Last => values[values.len() - 1],
            // The original forgets the estimation type here.
            Percentile(percent, _) => percentile(&sorted, position(percent, Estimate::Legacy, sorted.len() as f64)),
        }
    }
}

/// The standard deviation of a whole population, in one pass.
fn welford(values: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        let before = mean;
        mean += (value - before) / n;
        squares += (value - before) * (value - mean);
    }
    if n < 2.0 { 0.0 } else { f64::sqrt(squares / n) }
}

fn position(percent: f64, estimate: Estimate, n: f64) -> f64 {
    let share = percent / 100.0;
    match estimate {
        Estimate::Legacy => share * (n + 1.0),
        Estimate::R3 => {
            if share <= 0.5 / n {
                0.0
            } else {
                (n * share).round_ties_even()
            }
        }
        Estimate::R7 => 1.0 + (n - 1.0) * share,
    }
}

fn percentile(sorted: &[f64], position: f64) -> f64 {
    let below = position.floor();
    if position < 1.0 || sorted.len() == 1 {
        sorted[0]
    } else if position >= sorted.len() as f64 {
        sorted[sorted.len() - 1]
    } else {
        let (low, high) = (sorted[below as usize - 1], sorted[below as usize]);
        low + (position - below) * (high - low)
    }
}
