//! The measures: the results that are computed from exact sums, and which sums each of them needs.

use telem_engine::ExactSum;

/// Of how many rows the rows are a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// Of more than there are: one is taken off their number.
    Sample,
    Population,
}

/// An aggregate over one or two columns of floats; of two, the first is `y` and the second `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Measure {
    Sum,
    Average,
    Variance(Of),
    Deviation(Of),
    Covariance(Of),
    Correlation,
    Slope,
    Intercept,
    RSquared,
    MeanX,
    MeanY,
    SpreadX,
    SpreadY,
    SpreadXy,
}

/// The most columns that a measure takes.
pub(super) const INPUTS_MAX: usize = 2;

impl Measure {
    /// How many columns it takes.
    pub fn inputs(self) -> usize {
        match self {
            Measure::Sum | Measure::Average | Measure::Variance(_) | Measure::Deviation(_) => 1,
            _ => INPUTS_MAX,
        }
    }

    /// How many sums it is made of.
    pub fn sums(self) -> usize {
        match self {
            Measure::Sum | Measure::Average => 1,
            Measure::Variance(_) | Measure::Deviation(_) => 2,
            Measure::Covariance(_) => 3,
            _ => 5,
        }
    }

    /// Adds a row to the sums, or takes it away where `sign` is -1.
    pub fn add(self, sums: &mut [ExactSum], [y, x]: [f64; INPUTS_MAX], sign: f64) {
        match sums {
            [sum_y] => sum_y.add(sign * y),
            [sum_y, yy] => {
                sum_y.add(sign * y);
                yy.add_product(sign * y, y);
            }
            [sum_y, sum_x, yx, squares @ ..] => {
                sum_y.add(sign * y);
                sum_x.add(sign * x);
                yx.add_product(sign * y, x);
                if let [yy, xx] = squares {
                    yy.add_product(sign * y, y);
                    xx.add_product(sign * x, x);
                }
            }
            [] => {}
        }
    }

    /// The value for `count` rows with these sums, if there is one.
    pub fn of(self, count: u64, sums: &[ExactSum]) -> Option<f64> {
        if count == 0 {
            return None;
        }
        let rows = count as f64;
        // Rows times the sum of products of deviations from the means.
        let spread = |a: &ExactSum, b: &ExactSum, products: &ExactSum| {
            if [a, b].into_iter().any(|sum| !sum.value().is_finite()) {
                return f64::NAN;
            }
            let mut spread = ExactSum::default();
            products.terms().into_iter().for_each(|term| spread.add_product(rows, term));
            spread.add_product_of(-1.0, a, b);
            spread.value()
        };
        let divided = |spread: f64, of: Of| match of {
            Of::Population => Some(spread / rows / rows),
            Of::Sample => (count > 1).then(|| spread / (rows - 1.0) / rows),
        };
        match (self, sums) {
            (Measure::Sum, [sum]) => Some(sum.value()),
            (Measure::Average, [sum]) => Some(sum.value() / rows),
            (Measure::Variance(of), [y, yy]) => divided(spread(y, y, yy), of),
            (Measure::Deviation(of), [y, yy]) => divided(spread(y, y, yy), of).map(f64::sqrt),
            (Measure::Covariance(of), [y, x, yx]) => divided(spread(y, x, yx), of),
            (measure, [y, x, yx, yy, xx]) => {
                let (of_xx, of_yy, of_yx) = (|| spread(x, x, xx), || spread(y, y, yy), || spread(y, x, yx));
                match measure {
                    Measure::MeanX => Some(x.value() / rows),
                    Measure::MeanY => Some(y.value() / rows),
                    Measure::SpreadX => Some(of_xx() / rows),
                    Measure::SpreadY => Some(of_yy() / rows),
                    Measure::SpreadXy => Some(of_yx() / rows),
                    Measure::Correlation => correlation(count, of_yx(), of_yy(), of_xx()),
                    _ => line(measure, rows, [y.value(), x.value()], [of_yx(), of_yy(), of_xx()]),
                }
            }
            _ => None,
        }
    }
}

fn correlation(count: u64, yx: f64, yy: f64, xx: f64) -> Option<f64> {
    match (yy.is_nan(), xx.is_nan()) {
        (true, true) => Some(f64::NAN),
        _ if count < 2 || yy.is_nan() || xx.is_nan() || yy == 0.0 || xx == 0.0 => None,
        _ => {
            let both = yy * xx;
            let scale = if both.is_normal() { both.sqrt() } else { yy.sqrt() * xx.sqrt() };
            Some((yx / scale).clamp(-1.0, 1.0))
        }
    }
}

/// The requested property of the straight line through the rows, if there is such a line.
fn line(measure: Measure, rows: f64, [y, x]: [f64; 2], [yx, yy, xx]: [f64; 3]) -> Option<f64> {
    if rows < 2.0 || xx == 0.0 {
        return None;
    }
    let slope = yx / xx;
    match measure {
        Measure::Slope => Some(slope),
        Measure::Intercept => Some(y / rows - slope * (x / rows)),
        Measure::RSquared if yy == 0.0 => None,
        Measure::RSquared => Some(slope * (yx / yy)),
        _ => None,
    }
}
