//! Whether the means of two runs differ by more than their ranks or nodes differ among each other.

use serde::Serialize;

/// What Welch's test says of two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Significance {
    pub t: f64,
    /// Degrees of freedom.
    pub df: f64,
    /// Two-sided.
    pub p: f64,
}

impl Significance {
    /// Stars as statisticians print them.
    pub fn mark(&self) -> &'static str {
        match self.p {
            p if p < 0.001 => "***",
            p if p < 0.01 => "**",
            p if p < 0.05 => "*",
            _ => "",
        }
    }
}

/// Welch's t-test for two samples of unequal variance. `None` with fewer than two values in either, and where neither
/// varies at all: values that are copies of one number are no independent samples.
///
/// B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
/// Biometrika 34 (1947), 28-35; degrees of freedom after Welch and Satterthwaite.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Significance> {
    let (mean_a, error_a) = mean_and_error(a)?;
    let (mean_b, error_b) = mean_and_error(b)?;
    let error = error_a + error_b;
    // Rounding alone makes equal values differ by that much.
    let rounding = (mean_a.abs() + mean_b.abs()) * f64::EPSILON * 4.0;
    if error.is_nan() || error <= rounding * rounding {
        return None;
    }
    let t = (mean_b - mean_a) / error.sqrt();
    let [n_a, n_b] = [a.len() as f64, b.len() as f64];
    // The shares of the error and not its squares: those of small numbers would be 0.
    let (share_a, share_b) = (error_a / error, error_b / error);
    let df = 1.0 / (share_a * share_a / (n_a - 1.0) + share_b * share_b / (n_b - 1.0));
    let p = incomplete_beta(df / 2.0, 0.5, df / (df + t * t))?;
    (t.is_finite() && df.is_finite()).then_some(Significance { t, df, p })
}

/// The mean, and the variance of the mean.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    mean.is_finite().then_some((mean, squares / (count - 1.0) / count))
}

/// The regularized incomplete beta function I_x(a, b), whose value at df/(df+t²) with a = df/2 and b = 1/2 is the
/// two-sided p of Student's t: NIST Digital Library of Mathematical Functions, 8.17.22 (the continued fraction) and
/// 8.17.4 (the symmetry that keeps it in its fast range). `None` where it does not converge.
fn incomplete_beta(a: f64, b: f64, x: f64) -> Option<f64> {
    match x {
        x if x.is_nan() => return None,
        x if x <= 0.0 => return Some(0.0),
        x if x >= 1.0 => return Some(1.0),
        _ => {}
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let value = match x < (a + 1.0) / (a + b + 2.0) {
        true => front / a * continued_fraction(a, b, x)?,
        false => 1.0 - front / b * continued_fraction(b, a, 1.0 - x)?,
    };
    Some(value.clamp(0.0, 1.0))
}

/// That of DLMF 8.17.22, evaluated from the front by the method of Lentz (Applied Optics 15, 1976, 668-671).
fn continued_fraction(a: f64, b: f64, x: f64) -> Option<f64> {
    const TERMS_MAX: u32 = 10_000;
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for term in 1..=TERMS_MAX {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + coefficient * d);
            c = away_from_zero(1.0 + coefficient / c);
            factor = c * d;
            value *= factor;
        }
        if (factor - 1.0).abs() < f64::EPSILON * 4.0 {
            return Some(value);
        }
    }
    None
}

/// ln Γ(x) for x > 0: Stirling's series (DLMF 5.11.1) behind a shift to where five terms are exact to a double.
fn ln_gamma(x: f64) -> f64 {
    const SHIFTED_MIN: f64 = 15.0;
    let (mut shifted, mut below) = (x, 1.0);
    while shifted < SHIFTED_MIN {
        below *= shifted;
        shifted += 1.0;
    }
    let inverse = 1.0 / shifted;
    let square = inverse * inverse;
    let series = inverse
        * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))));
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - f64::ln(below)
}

/// The value below which the share `q` of `sorted` lies, with linear interpolation, as `percentile_cont` of SQL has it.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q * last as f64;
    let low = place.floor();
    let (below, above) = (sorted[low as usize], sorted[(low as usize + 1).min(last)]);
    // Between infinite values there is nothing to interpolate.
    if place == low || below == above {
        return Some(below);
    }
    Some(below + (above - below) * (place - low))
}
