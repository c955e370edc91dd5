//! The columns of a line, as JSON.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

/// Digits of a value in a column: more than any screen shows.
const DIGITS: i32 = 7;
/// The greatest power of ten that a float holds exactly.
const EXACT_POWER: i32 = 22;

/// Values of columns, with as many digits as are seen; what is not a number is `null`.
#[derive(Debug)]
pub struct PanelColumn(pub Vec<f64>);

impl Serialize for PanelColumn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for value in &self.0 {
            let short = shortened(*value);
            match short.fract() == 0.0 && short.abs() < 1e15 {
                true => sequence.serialize_element(&(short as i64))?,
                false => sequence.serialize_element(&short)?,
            }
        }
        sequence.end()
    }
}

/// To so many digits.
fn shortened(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = DIGITS - 1 - value.abs().log10().floor() as i32;
    if power.abs() > EXACT_POWER {
        return value;
    }
    let scale = 10_f64.powi(power.abs());
    if power >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}
