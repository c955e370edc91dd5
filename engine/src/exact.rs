//! Sums of floats that do not depend on the order of the additions, nor on partial sums.
//!
//! The same samples are cut into runs, segments, parts, threads and nodes in many ways, and a sum that rounds after
//! every addition differs from cut to cut. [`ExactSum`] keeps every bit and rounds once, at the end. In nearly all
//! cases two floats hold the exact sum: the rounded sum, and the error of the rounding (Dekker's and Knuth's error-free
//! addition). Other sums go into a fixed-point number as wide as the range of floats ([`Wide`]).
//!
//! [`ExactSum::add_all`] adds slices at about half the speed of plain additions. If all numbers lie in a common range
//! ([`Span`]), each is cut at a common bit, and the sums of the upper parts and of the lower parts are each exact.

mod split;
#[cfg(test)]
mod tests;
mod wide;

use std::mem::size_of;

pub use split::Span;
pub(crate) use split::SumCut;
use wide::Wide;

/// The sum of any number of floats, rounded when it is asked for ([`ExactSum::value`]). Of NaN, and of infinities of
/// both signs, the sum is NaN; -0.0 counts as 0.0.
#[derive(Clone, Debug, Default)]
pub struct ExactSum {
    /// Not finite where a summand is not; then the rest means nothing.
    high: f64,
    /// What `high` lacks.
    low: f64,
    /// What both lack.
    rest: Option<Box<Wide>>,
}

impl ExactSum {
    #[inline]
    pub fn add(&mut self, value: f64) {
        if !self.try_add(value) {
            self.add_slowly(value);
        }
    }

    /// Adds `value` where two floats hold the sum, which takes no more memory; false where nothing was added.
    #[inline]
    pub fn try_add(&mut self, value: f64) -> bool {
        let (high, error) = two_sum(self.high, value);
        let (low, lost) = two_sum(self.low, error);
        // Of an overflow and of NaN, NaN is lost.
        let holds = lost == 0.0;
        if holds {
            (self.high, self.low) = (high, low);
        }
        holds
    }

    /// Adds `value` as often as `count` says.
    pub fn add_times(&mut self, value: f64, count: u32) {
        match count {
            0 => {}
            1 => self.add(value),
            _ if value.abs() < PRODUCT_MAX => self.add_product(value, f64::from(count)),
            _ if value.is_finite() => (0..count).for_each(|_| self.add(value)),
            _ => self.add(value),
        }
    }

    /// Adds `a * b`, exactly as long as no part of the product is below the least positive float.
    pub fn add_product(&mut self, a: f64, b: f64) {
        let (product, error) = two_product(a, b);
        self.add(product);
        self.add(error);
    }

    pub fn add_int(&mut self, value: i128) {
        if value.unsigned_abs() < INT_PART.unsigned_abs() {
            return self.add(value as f64);
        }
        // Parts that floats hold: the lowest takes the sign away from all others.
        let mut left = value;
        let mut unit = 1.0;
        while left != 0 {
            let part = left % INT_PART;
            self.add(part as f64 * unit);
            left /= INT_PART;
            unit *= INT_PART as f64;
        }
    }

    /// Adds every one of `values`.
    pub fn add_all(&mut self, values: &[f64]) {
        for values in values.chunks(split::BLOCK) {
            self.add_within(values, Span::of(values));
        }
    }

    /// As [`ExactSum::add_all`], of values that all lie within `span`.
    pub fn add_within(&mut self, values: &[f64], span: Span) {
        match span.cut() {
            None => values.iter().for_each(|value| self.add(*value)),
            Some(cut) => {
                for values in values.chunks(split::BLOCK) {
                    let (high, low) = cut.sums(values);
                    self.add_pair(high, low);
                }
            }
        }
    }

    /// Adds what [`SumCut::sums`](split::SumCut::sums) gives: two sums that are exact.
    fn add_pair(&mut self, high: f64, low: f64) {
        self.add(high);
        self.add(low);
    }

    /// Takes `value` away again. Neither it nor any summand may be infinite or NaN.
    pub fn take_away(&mut self, value: f64) {
        self.add(-value);
    }

    /// Adds all that `other` is the sum of.
    pub fn merge(&mut self, other: &ExactSum) {
        self.add(other.high);
        self.add(other.low);
        if let (true, Some(rest)) = (self.high.is_finite(), &other.rest) {
            self.rest_mut().merge(rest);
        }
    }

    /// The sum as the nearest float, ties to even.
    pub fn value(&self) -> f64 {
        match &self.rest {
            // The nearest to the sum of two.
            None => self.high + self.low,
            Some(rest) => {
                let mut all = (**rest).clone();
                all.add(self.high);
                all.add(self.low);
                all.round()
            }
        }
    }

    /// Floats of falling size that add up to the sum: the same for equal sums, however they were made. One that is not
    /// finite stands alone.
    pub fn terms(&self) -> Vec<f64> {
        let (mut left, mut terms) = (self.clone(), Vec::new());
        loop {
            let next = left.value();
            if next == 0.0 {
                return terms;
            }
            terms.push(next);
            if !next.is_finite() {
                return terms;
            }
            left.take_away(next);
        }
    }

    /// Adds `factor` times the product of two sums.
    pub fn add_product_of(&mut self, factor: f64, a: &ExactSum, b: &ExactSum) {
        let (a, b) = (a.terms(), b.terms());
        for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b))) {
            let (product, error) = two_product(a, b);
            self.add_product(factor, product);
            self.add_product(factor, error);
        }
    }

    /// The parts that [`ExactSum::from_parts`] takes: two floats, and bytes where these are not enough.
    pub fn parts(&self) -> (f64, f64, Option<Vec<u8>>) {
        (self.high, self.low, self.rest.as_ref().map(|rest| rest.encode()))
    }

    /// `None` for bytes that are not part of a sum.
    pub fn from_parts(high: f64, low: f64, rest: Option<&[u8]>) -> Option<Self> {
        let rest = match rest {
            None => None,
            Some(bytes) => Some(Box::new(Wide::decode(bytes)?)),
        };
        let mut sum = Self { high: 0.0, low: 0.0, rest };
        sum.add(high);
        sum.add(low);
        Some(sum)
    }

    /// Bytes of memory beside those of the type itself.
    pub fn heap_bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| size_of::<Wide>() + rest.heap_bytes())
    }

    /// Of two exact sums, the one of upper and that of lower parts.
    pub(crate) fn of_pair(high: f64, low: f64) -> Self {
        Self { high, low, rest: None }
    }

    /// Where two floats do not hold the sum, or it is not finite.
    #[cold]
    fn add_slowly(&mut self, value: f64) {
        if !self.high.is_finite() || !value.is_finite() {
            let sum = if self.high.is_finite() {
                value
            } else if value.is_finite() {
                self.high
            } else {
                self.high + value
            };
            // One NaN for all, so that the answer does not depend on which was first.
            *self = Self { high: if sum.is_nan() { f64::NAN } else { sum }, low: 0.0, rest: None };
            return;
        }
        let (high, error) = two_sum(self.high, value);
        let (low, lost) = two_sum(self.low, error);
        if high.is_finite() && low.is_finite() && lost.is_finite() {
            (self.high, self.low) = (high, low);
            self.rest_mut().add(lost);
        } else {
            self.rest_mut().add(value);
        }
    }

    fn rest_mut(&mut self) -> &mut Wide {
        self.rest.get_or_insert_with(Box::default)
    }
}

/// Two sums are equal when all that is added up in them is.
impl PartialEq for ExactSum {
    fn eq(&self, other: &Self) -> bool {
        self.value().to_bits() == other.value().to_bits()
    }
}

/// Below it a float times any number of samples overflows nowhere on its way.
const PRODUCT_MAX: f64 = 1e270;
/// What [`ExactSum::add_int`] adds at a time.
const INT_PART: i128 = 1 << 53;

/// The sum of two floats and what it lacks (Knuth). NaN where the sum overflows.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

/// The product of two floats and what it lacks (Dekker, Veltkamp). It lacks nothing where it is not finite.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    let ((a_high, a_low), (b_high, b_low)) = (halves(a), halves(b));
    let error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    (product, if error.is_finite() { error } else { 0.0 })
}

/// A float as the sum of two with half as many digits.
fn halves(value: f64) -> (f64, f64) {
    const SPLITTER: f64 = 134_217_729.0;
    let scaled = SPLITTER * value;
    let high = scaled - (scaled - value);
    (high, value - high)
}
