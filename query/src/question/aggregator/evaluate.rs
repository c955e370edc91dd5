//! The arithmetic of the aggregators on a list of values: one path for integers, one for floats.
//!
//! NaN stands for a missing value. Most aggregators skip it; `mult`, `first`, `last` and `none` pass it on, and `diff`
//! skips it only until its first value. The order matters to `first`, `last`, `diff` and `mult`, and to the rounding of
//! `dev`: callers pass values in time order (downsampling) or in the canonical order of the series (across series).
//! Sums are exact until the end, because parts of them are also made elsewhere (see `plan/pushdown.rs`).

use telem_engine::ExactSum;

use super::{Aggregator, Estimation, Percentile, Side};

impl Aggregator {
    /// One value out of `values`; `scratch` is overwritten. NaN where there is nothing to say.
    pub fn of_floats(self, values: &[f64], scratch: &mut Vec<f64>) -> f64 {
        match self {
            Aggregator::Sum | Aggregator::ZimSum | Aggregator::PfSum => {
                let (sum, count) = sum(values.iter().copied());
                if count == 0 { f64::NAN } else { sum }
            }
            Aggregator::SquareSum => {
                let (sum, count) = sum(values.iter().map(|value| value * value));
                if count == 0 { f64::NAN } else { sum }
            }
            Aggregator::Avg => {
                let (sum, count) = sum(values.iter().copied());
                if count == 0 { f64::NAN } else { sum / count as f64 }
            }
            Aggregator::Count => values.iter().filter(|value| !value.is_nan()).count() as f64,
            Aggregator::Min | Aggregator::MimMin => finite_min(extreme(values, Side::Least, f64::INFINITY)),
            Aggregator::Max | Aggregator::MimMax => finite_max(extreme(values, Side::Greatest, f64::NEG_INFINITY)),
            Aggregator::Mult => values.iter().product(),
            Aggregator::First | Aggregator::None => values.first().copied().unwrap_or(f64::NAN),
            Aggregator::Last => values.last().copied().unwrap_or(f64::NAN),
            Aggregator::Diff => difference(values),
            Aggregator::Dev => deviation(values.iter().copied().filter(|value| !value.is_nan())),
            Aggregator::Median => {
                keep_numbers(values, scratch);
                let middle = scratch.len() / 2;
                if scratch.is_empty() { f64::NAN } else { *scratch.select_nth_unstable_by(middle, f64::total_cmp).1 }
            }
            Aggregator::Percentile(Percentile { per_mille, .. }) => {
                keep_numbers(values, scratch);
                percentile(scratch, per_mille, Estimation::Legacy)
            }
        }
    }

    /// One integer out of `values`; sums and products wrap at 64 bits, averages, deviations and
    /// percentiles are truncated towards zero. `scratch` is overwritten. 0 for no values.
    pub fn of_ints(self, values: &[i64], scratch: &mut Vec<f64>) -> i64 {
        let total = || values.iter().fold(0_i64, |sum, value| sum.wrapping_add(*value));
        match self {
            Aggregator::Sum | Aggregator::ZimSum | Aggregator::PfSum => total(),
            Aggregator::SquareSum => {
                values.iter().fold(0_i64, |sum, value| sum.wrapping_add(value.wrapping_mul(*value)))
            }
            Aggregator::Avg => total().checked_div(count(values)).unwrap_or(0),
            Aggregator::Count => count(values),
            Aggregator::Min | Aggregator::MimMin => values.iter().copied().min().unwrap_or(0),
            Aggregator::Max | Aggregator::MimMax => values.iter().copied().max().unwrap_or(0),
            Aggregator::Mult => values.iter().fold(1_i64, |product, value| product.wrapping_mul(*value)),
            Aggregator::First | Aggregator::None => values.first().copied().unwrap_or(0),
            Aggregator::Last => values.last().copied().unwrap_or(0),
            Aggregator::Diff => match values {
                [first, .., last] => last.wrapping_sub(*first),
                _ => 0,
            },
            // A float that does not fit saturates, and NaN becomes 0, as in Java.
            Aggregator::Dev => deviation(values.iter().map(|value| *value as f64)) as i64,
            Aggregator::Median => {
                let (mut numbers, middle) = (values.to_vec(), values.len() / 2);
                if numbers.is_empty() { 0 } else { *numbers.select_nth_unstable(middle).1 }
            }
            Aggregator::Percentile(Percentile { per_mille, estimation }) => {
                scratch.clear();
                scratch.extend(values.iter().map(|value| *value as f64));
                percentile(scratch, per_mille, estimation) as i64
            }
        }
    }
}

/// No series and only infinite series look alike to OpenTSDB: it starts from here.
fn finite_min(min: f64) -> f64 {
    if min == f64::INFINITY { f64::NAN } else { min }
}

/// See [`finite_min`].
fn finite_max(max: f64) -> f64 {
    if max == f64::NEG_INFINITY { f64::NAN } else { max }
}

fn extreme(values: &[f64], side: Side, of_nothing: f64) -> f64 {
    values.iter().copied().filter(|value| !value.is_nan()).fold(of_nothing, |kept, value| side.of(kept, value))
}

/// The sum of one -0.0 is 0.0.
fn sum(values: impl Iterator<Item = f64>) -> (f64, usize) {
    let (mut sum, mut count) = (ExactSum::default(), 0);
    for value in values.filter(|value| !value.is_nan()) {
        sum.add(value);
        count += 1;
    }
    (sum.value(), count)
}

fn count(values: &[i64]) -> i64 {
    i64::try_from(values.len()).unwrap_or(i64::MAX)
}

/// The last value less the first that is not NaN.
fn difference(values: &[f64]) -> f64 {
    match values.iter().position(|value| !value.is_nan()) {
        None => f64::NAN,
        Some(first) if first + 1 == values.len() => 0.0,
        Some(first) => values[values.len() - 1] - values[first],
    }
}

/// Population standard deviation by Welford's method.
fn deviation(mut values: impl Iterator<Item = f64>) -> f64 {
    let Some(mut mean) = values.next() else { return f64::NAN };
    let (mut count, mut squares) = (1.0, 0.0);
    for value in values {
        count += 1.0;
        let next = mean + (value - mean) / count;
        squares += (value - mean) * (value - next);
        mean = next;
    }
    if count == 1.0 { 0.0 } else { (squares / count).sqrt() }
}

/// Everything but NaN into `kept`.
fn keep_numbers(values: &[f64], kept: &mut Vec<f64>) {
    kept.clear();
    kept.extend(values.iter().filter(|value| !value.is_nan()));
}

/// As Apache Commons Math's `Percentile` computes it of the numbers in ascending order. They are brought into another
/// one: only the two that it lies between are looked for.
fn percentile(numbers: &mut [f64], per_mille: u16, estimation: Estimation) -> f64 {
    let by_order = |a: &f64, b: &f64| a.total_cmp(b);
    let greatest = |numbers: &[f64]| numbers.iter().copied().max_by(by_order).unwrap_or(f64::NAN);
    if numbers.is_empty() {
        return f64::NAN;
    }
    let length = numbers.len() as f64;
    let p = f64::from(per_mille) / 10.0 / 100.0;
    let position = match estimation {
        Estimation::Legacy => p * (length + 1.0),
        Estimation::R3 if p <= 0.5 / length => 0.0,
        Estimation::R3 => (length * p).round_ties_even(),
        Estimation::R7 => 1.0 + (length - 1.0) * p,
    };
    if position < 1.0 {
        return numbers.iter().copied().min_by(by_order).unwrap_or(f64::NAN);
    }
    if position >= length {
        return greatest(numbers);
    }
    let floor = position.floor();
    let (below, upper, _) = numbers.select_nth_unstable_by(floor as usize, by_order);
    let lower = greatest(below);
    lower + (position - floor) * (*upper - lower)
}
