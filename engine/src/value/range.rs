//! Ranges of values, in an order that has a place for each float.

use std::fmt;
use std::ops::Bound;

/// Values from a least to a greatest one, in the order in which SQL compares floats here: the total order of IEEE 754
/// ([`f64::total_cmp`]), where a positive NaN is greater than infinity, but with both zeros equal. Integers count as the
/// nearest float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRange {
    /// The places of both in that order; the range is empty where the greatest comes first.
    least: i64,
    greatest: i64,
}

impl ValueRange {
    pub const ALL: ValueRange = ValueRange { least: -i64::MAX, greatest: i64::MAX };
    const EMPTY: ValueRange = ValueRange { least: Self::ALL.greatest, greatest: Self::ALL.least };

    pub fn new(from: Bound<f64>, to: Bound<f64>) -> Self {
        let least = match from {
            Bound::Included(value) => Some(place(value)),
            Bound::Excluded(value) => next(place(value)),
            Bound::Unbounded => Some(Self::ALL.least),
        };
        let greatest = match to {
            Bound::Included(value) => Some(place(value)),
            Bound::Excluded(value) => previous(place(value)),
            Bound::Unbounded => Some(Self::ALL.greatest),
        };
        match (least, greatest) {
            (Some(least), Some(greatest)) => Self { least, greatest },
            _ => Self::EMPTY,
        }
    }

    /// The least and the greatest value; of an empty range the greatest is less than the least.
    pub fn bounds(&self) -> (f64, f64) {
        (value(self.least), value(self.greatest))
    }

    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self { least: self.least.max(other.least), greatest: self.greatest.min(other.greatest) }
    }

    pub fn is_empty(&self) -> bool {
        self.least > self.greatest
    }

    pub fn contains(&self, value: f64) -> bool {
        (self.least..=self.greatest).contains(&place(value))
    }

    /// Whether it may have any of the values from `min` to `max`, which are no NaN.
    pub(crate) fn overlaps(&self, min: f64, max: f64) -> bool {
        place(max) >= self.least && place(min) <= self.greatest
    }
}

/// The conditions, as `value >= 1.5 AND value < 3`; nothing for all values.
impl fmt::Display for ValueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was asked for with `>` is a range from the next float on, which is a long number.
        let shorter = |at: i64, inside: &str, next: Option<i64>, outside: &str| {
            let (of, beyond) = (format!("{:?}", value(at)), next.map(|next| format!("{:?}", value(next))));
            match beyond.filter(|beyond| beyond.len() < of.len()) {
                Some(beyond) => format!("value {outside} {beyond}"),
                None => format!("value {inside} {of}"),
            }
        };
        let from = (self.least != Self::ALL.least).then(|| shorter(self.least, ">=", previous(self.least), ">"));
        let to = (self.greatest != Self::ALL.greatest).then(|| shorter(self.greatest, "<=", next(self.greatest), "<"));
        let conditions: Vec<String> = from.into_iter().chain(to).collect();
        f.write_str(&conditions.join(" AND "))
    }
}

/// The place of a float in the order: that of the zeros is 0, and those of its neighbours 1 and -1.
fn place(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    // The bits of floats without a sign count up from zero, those of the others count up from i64::MIN, further down.
    if bits >= 0 { bits } else { i64::MIN.wrapping_sub(bits) }
}

fn value(place: i64) -> f64 {
    let bits = if place >= 0 { place } else { i64::MIN.wrapping_sub(place) };
    f64::from_bits(bits.cast_unsigned())
}

fn next(place: i64) -> Option<i64> {
    (place < ValueRange::ALL.greatest).then(|| place + 1)
}

fn previous(place: i64) -> Option<i64> {
    (place > ValueRange::ALL.least).then(|| place - 1)
}

#[cfg(test)]
mod tests;
