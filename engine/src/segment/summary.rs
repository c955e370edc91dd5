//! A summary of the values of a run, stored beside it so that many queries need not decode them.

use super::decimal;
use super::varint::{self, Bytes, Malformed};
use crate::value::Value;

/// How the values of a run are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In `int`; `scale` is absent.
    Int,
    /// In `int`, without so many low bits, which are 0 in all of them: what is counted in KiB or in pages.
    Shifted(u8),
    /// In `int`, times ten to this power.
    Scaled(u8),
    /// In `float`.
    Float,
    /// Some one way and some another: only the three columns together tell.
    Mixed,
}

/// The values of a run without NaN, all of them of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// By time.
    pub first: Value,
    pub last: Value,
    /// Of equal values the first: -0.0 and 0.0 are equal here.
    pub min: Value,
    pub max: Value,
    pub sum: Sum,
}

#[derive(Clone, Copy, Debug)]
pub enum Sum {
    /// Exact: 2^31 rows of 2^63 fit.
    Int(i128),
    /// Added one after the other, in the order of time.
    Float(f64),
}

/// As [`Value`]: equal when all bits are.
impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Sum::Int(a), Sum::Int(b)) => a == b,
            (Sum::Float(a), Sum::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Summary {
    fn of(value: Value) -> Self {
        let sum = match value {
            Value::Int(int) => Sum::Int(i128::from(int)),
            Value::Float(float) => Sum::Float(float),
        };
        Self { first: value, last: value, min: value, max: value, sum }
    }

    /// Takes in the next value, which is of the same type.
    fn add(&mut self, value: Value) {
        self.last = value;
        match (value, &mut self.sum, &mut self.min, &mut self.max) {
            (Value::Int(int), Sum::Int(sum), Value::Int(min), Value::Int(max)) => {
                *sum += i128::from(int);
                *min = (*min).min(int);
                *max = (*max).max(int);
            }
            (Value::Float(float), Sum::Float(sum), Value::Float(min), Value::Float(max)) => {
                *sum += float;
                if float < *min {
                    *min = float;
                }
                if float > *max {
                    *max = float;
                }
            }
            _ => {}
        }
    }
}

/// The kind and summary of the values that were added, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Summing {
    kind: Kind,
    /// `None` once there was a NaN or a second kind.
    summary: Option<Summary>,
    /// Whether all values have the bits of the first.
    constant: bool,
    first: Value,
}

impl Summing {
    pub fn start(value: Value, kind: Kind) -> Self {
        let is_nan = matches!(value, Value::Float(float) if float.is_nan());
        let summary = (!is_nan && kind != Kind::Mixed).then(|| Summary::of(value));
        Self { kind, summary, constant: true, first: value }
    }

    /// Takes in the next value.
    pub fn add(&mut self, value: Value, kind: Kind) {
        if kind != self.kind || kind == Kind::Mixed {
            self.kind = Kind::Mixed;
            self.summary = None;
        }
        self.constant &= value == self.first;
        match &mut self.summary {
            Some(_) if matches!(value, Value::Float(float) if float.is_nan()) => self.summary = None,
            Some(summary) => summary.add(value),
            None => {}
        }
    }

    /// [`Summing::add`] of one after the other, all of this kind.
    pub fn add_ints(&mut self, ints: &[i64], kind: Kind) {
        let general = kind != self.kind || kind == Kind::Mixed;
        let (false, Value::Int(first), Some(summary)) = (general, self.first, &mut self.summary) else {
            return ints.iter().for_each(|int| self.add(Value::Int(*int), kind));
        };
        let (Sum::Int(sum), Value::Int(min), Value::Int(max)) = (&mut summary.sum, &mut summary.min, &mut summary.max)
        else {
            return;
        };
        for int in ints {
            *sum += i128::from(*int);
            *min = (*min).min(*int);
            *max = (*max).max(*int);
            self.constant &= *int == first;
        }
        if let Some(last) = ints.last() {
            summary.last = Value::Int(*last);
        }
    }

    /// [`Summing::add`] of one after the other, all of this kind.
    pub fn add_floats(&mut self, floats: &[f64], kind: Kind) {
        let general = kind != self.kind || kind == Kind::Mixed || floats.iter().any(|float| float.is_nan());
        let (false, Value::Float(first), Some(summary)) = (general, self.first, &mut self.summary) else {
            return floats.iter().for_each(|float| self.add(Value::Float(*float), kind));
        };
        let (Sum::Float(sum), Value::Float(min), Value::Float(max)) =
            (&mut summary.sum, &mut summary.min, &mut summary.max)
        else {
            return;
        };
        for float in floats {
            *sum += float;
            if *float < *min {
                *min = *float;
            }
            if *float > *max {
                *max = *float;
            }
            self.constant &= float.to_bits() == first.to_bits();
        }
        if let Some(last) = floats.last() {
            summary.last = Value::Float(*last);
        }
    }

    pub fn finish(self) -> (Kind, Option<Summary>, bool) {
        (self.kind, self.summary, self.constant && self.kind != Kind::Mixed && self.summary.is_some())
    }
}

/// Appends `summary` of a run of this kind; of a constant one its value and sum only.
pub fn put(bytes: &mut Vec<u8>, kind: Kind, summary: &Summary, constant: bool) {
    let int = |value: Value| match (value, kind) {
        (Value::Float(float), Kind::Scaled(scale)) => decimal::to_int(float, scale).unwrap_or(0),
        (Value::Int(int), Kind::Shifted(shift)) => int >> shift,
        (Value::Int(int), _) => int,
        (Value::Float(_), _) => 0,
    };
    match kind {
        Kind::Int | Kind::Shifted(_) | Kind::Scaled(_) => {
            let first = int(summary.first);
            varint::put_signed(bytes, first);
            if !constant {
                // Modulo 2^64, as the reader adds.
                varint::put_signed(bytes, int(summary.last).wrapping_sub(first));
                varint::put(bytes, first.wrapping_sub(int(summary.min)).cast_unsigned());
                varint::put(bytes, int(summary.max).wrapping_sub(first).cast_unsigned());
            }
        }
        Kind::Float | Kind::Mixed => {
            let values = [summary.first, summary.last, summary.min, summary.max];
            for value in &values[..if constant { 1 } else { 4 }] {
                bytes.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
    }
    match (summary.sum, kind) {
        (Sum::Int(sum), Kind::Shifted(shift)) => varint::put_wide(bytes, sum >> shift),
        (Sum::Int(sum), _) => varint::put_wide(bytes, sum),
        (Sum::Float(sum), _) => bytes.extend_from_slice(&sum.to_le_bytes()),
    }
}

/// Reads what [`put`] wrote.
pub fn take(bytes: &mut Bytes<'_>, kind: Kind, constant: bool) -> Result<Summary, Malformed> {
    let [first, last, min, max] = match kind {
        Kind::Int | Kind::Shifted(_) | Kind::Scaled(_) => {
            let first = bytes.signed()?;
            let ints = if constant {
                [first; 4]
            } else {
                let last = first.wrapping_add(bytes.signed()?);
                let min = first.wrapping_sub(bytes.number()?.cast_signed());
                let max = first.wrapping_add(bytes.number()?.cast_signed());
                [first, last, min, max]
            };
            let mut values = [Value::Int(0); 4];
            for (value, int) in values.iter_mut().zip(ints) {
                *value = match kind {
                    Kind::Scaled(scale) => Value::Float(decimal::to_float(int, scale)),
                    Kind::Shifted(shift) => Value::Int(shifted_back(int, shift).ok_or_else(|| too_large(bytes))?),
                    _ => Value::Int(int),
                };
            }
            values
        }
        Kind::Float if constant => [Value::Float(bytes.float()?); 4],
        Kind::Float => {
            let mut value = || bytes.float().map(Value::Float);
            [value()?, value()?, value()?, value()?]
        }
        Kind::Mixed => return Err(bytes.malformed("a summary of values of two kinds", "none")),
    };
    let sum = match kind {
        Kind::Int => Sum::Int(bytes.wide()?),
        Kind::Shifted(shift) => {
            let sum = bytes.wide()?;
            Sum::Int(sum.checked_mul(1 << shift).ok_or_else(|| too_large(bytes))?)
        }
        _ => Sum::Float(bytes.float()?),
    };
    Ok(Summary { first, last, min, max, sum })
}

/// The integer of which these are all but its low bits, which are 0; `None` where it has more than 64.
pub fn shifted_back(int: i64, shift: u8) -> Option<i64> {
    int.checked_mul(1_i64.checked_shl(u32::from(shift))?)
}

fn too_large(bytes: &Bytes<'_>) -> Malformed {
    bytes.malformed("a shifted integer of more than 64 bits", "64")
}
