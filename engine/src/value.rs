//! The value of a sample: an exact integer or a bit-exact float.

use std::fmt;

/// What one sample holds. Two values are equal when their type and all their bits are:
/// `NaN == NaN`, and `0.0 != -0.0`.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Int(i64),
    Float(f64),
}

impl Value {
    /// The value as a float; integers beyond 2^53 lose their low bits.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Int(int) => int as f64,
            Value::Float(float) => float,
        }
    }

    pub fn is_int(self) -> bool {
        matches!(self, Value::Int(_))
    }

    /// The 64 bits that are stored; with [`Value::is_int`] they give the value back.
    pub fn to_bits(self) -> u64 {
        match self {
            Value::Int(int) => int.cast_unsigned(),
            Value::Float(float) => float.to_bits(),
        }
    }

    pub fn from_bits(bits: u64, is_int: bool) -> Self {
        if is_int { Value::Int(bits.cast_signed()) } else { Value::Float(f64::from_bits(bits)) }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.is_int() == other.is_int() && self.to_bits() == other.to_bits()
    }
}

impl Eq for Value {}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Value::Int(int)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Value::Float(float)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(int) => int.fmt(f),
            Value::Float(float) => write!(f, "{float:?}"),
        }
    }
}
