//! The order of floats: -0.0 is less than 0.0, and NaN is greater than all.

/// Which of several floats is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Least,
    Greatest,
}

impl Side {
    /// The one that is kept; NaN is greater than all, whatever its sign.
    pub fn of(self, a: f64, b: f64) -> f64 {
        let greater = match (a.is_nan(), b.is_nan()) {
            (true, _) => true,
            (_, true) => false,
            _ => a.total_cmp(&b).is_gt(),
        };
        let kept = if greater == (self == Side::Greatest) { a } else { b };
        if kept.is_nan() { f64::NAN } else { kept }
    }

    pub(crate) fn take(self, kept: &mut Option<f64>, value: f64) {
        *kept = Some(kept.map_or(self.of(value, value), |kept| self.of(kept, value)));
    }
}
