//! Figures that a few strange values do not move.

/// Fewer values have no one that stands out.
const VALUES_MIN: usize = 3;
/// How far from the median a value must be, in median deviations from it: 5 are 3.4 standard deviations of a normal
/// distribution.
const DEVIATIONS: f64 = 5.0;
/// Values that are all but equal differ by less than this of the median.
const EQUAL_SHARE: f64 = 0.01;
/// Points of which all pairs are looked at; more are thinned.
const POINTS_MAX: usize = 200;

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The value that is furthest from the median of all, where it is `worse` than that and stands out from the others; with
/// the median.
pub fn outlier(values: &[f64], worse: impl Fn(f64, f64) -> bool) -> Option<(usize, f64)> {
    if values.len() < VALUES_MIN {
        return None;
    }
    let middle = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let usual = median(&deviations)?.max(middle.abs() * EQUAL_SHARE);
    let candidates = (0..values.len()).filter(|at| worse(values[*at], middle) && deviations[*at] > usual * DEVIATIONS);
    let at = candidates.max_by(|a, b| deviations[*a].total_cmp(&deviations[*b]))?;
    Some((at, middle))
}

/// The slope of a line through points in the order of x: the median of the slopes of all pairs, by Theil and Sen.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<(f64, f64)> = points.iter().step_by(each).copied().collect();
    let mut slopes = Vec::new();
    for (at, (x, y)) in points.iter().enumerate() {
        slopes.extend(points[at + 1..].iter().filter(|(right, _)| right > x).map(|(right, up)| (up - y) / (right - x)));
    }
    median(&slopes)
}
