//! The value of a sample: an exact integer or a bit-exact float.

mod range;

use std::fmt;

pub use range::ValueRange;

/// What one sample holds. Two values are equal when their type and all their bits are:
/// `NaN == NaN`, and `0.0 != -0.0`.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Int(i64),
    Float(f64),
}

/// What a value is, without how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Int,
    Float,
}

impl ValueType {
    /// As one bit tells it.
    pub(crate) fn of_bit(is_int: bool) -> Self {
        if is_int { ValueType::Int } else { ValueType::Float }
    }
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

    /// The 64 bits that are stored; with [`Value::value_type`] they give the value back.
    pub fn to_bits(self) -> u64 {
        match self {
            Value::Int(int) => int.cast_unsigned(),
            Value::Float(float) => float.to_bits(),
        }
    }

    pub fn value_type(self) -> ValueType {
        ValueType::of_bit(self.is_int())
    }

    pub fn from_bits(bits: u64, value_type: ValueType) -> Self {
        match value_type {
            ValueType::Int => Value::Int(bits.cast_signed()),
            ValueType::Float => Value::Float(f64::from_bits(bits)),
        }
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

/// Values of one series, as long as its times.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    /// Both types in one series.
    Mixed(Vec<Value>),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Values::Int(ints) => ints.len(),
            Values::Float(floats) => floats.len(),
            Values::Mixed(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> Value {
        match self {
            Values::Int(ints) => Value::Int(ints[at]),
            Values::Float(floats) => Value::Float(floats[at]),
            Values::Mixed(values) => values[at],
        }
    }

    /// Adds those of a later stretch.
    pub fn append(&mut self, later: Values) {
        match (self, later) {
            (Values::Int(ints), Values::Int(more)) => ints.extend(more),
            (Values::Float(floats), Values::Float(more)) => floats.extend(more),
            (Values::Mixed(values), more) => values.extend(more.iter()),
            (one, more) => *one = Values::Mixed(one.iter().chain(more.iter()).collect()),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    pub fn into_f64s(self) -> Vec<f64> {
        match self {
            Values::Int(ints) => ints.into_iter().map(|int| int as f64).collect(),
            Values::Float(floats) => floats,
            Values::Mixed(values) => values.into_iter().map(Value::as_f64).collect(),
        }
    }
}

impl FromIterator<Value> for Values {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let values: Vec<Value> = values.into_iter().collect();
        let ints = values.iter().filter(|value| value.is_int()).count();
        if ints == values.len() {
            Values::Int(values.iter().map(|value| value.to_bits().cast_signed()).collect())
        } else if ints == 0 {
            Values::Float(values.iter().map(|value| value.as_f64()).collect())
        } else {
            Values::Mixed(values)
        }
    }
}
