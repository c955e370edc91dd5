//! Parses decimal numbers from bytes in one pass; most numbers of every wire format are of this form. By hand, because
//! a library must be told whether an integer or a float comes, and would read the digits again to learn that.

/// Powers of ten that a float holds exactly.
const POWERS: [f64; DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19];
/// The same as integers.
const INT_POWERS: [u64; DIGITS_MAX + 1] = {
    let mut powers = [1; DIGITS_MAX + 1];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};
/// The largest integer up to which a float holds all.
const EXACT_MAX: u64 = 1 << 53;
/// So many digits fit into 64 bits whatever they are.
const DIGITS_MAX: usize = 19;
/// The exponent of 1.0 as it stands in a float, above this many bits of fraction.
const FLOAT_BIAS: u64 = 1_023;
const FLOAT_FRACTION_BITS: u32 = 52;

/// The `-12.50` at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub negative: bool,
    /// How many there are, zeros in front included.
    pub digits: usize,
    /// How many of them follow the point.
    pub fraction: usize,
    /// Whether there is a point.
    pub point: bool,
    /// In bytes.
    pub len: usize,
    /// All digits as one number; of no meaning beyond [`DIGITS_MAX`] of them.
    mantissa: u64,
}

impl Decimal {
    /// Digits, maybe after a minus, maybe with a point somewhere among them.
    pub fn read(bytes: &[u8]) -> Self {
        let negative = bytes.first() == Some(&b'-');
        let start = usize::from(negative);
        let (whole, mut mantissa) = digits(&bytes[start..], 0);
        let mut len = start + whole;
        let point = bytes.get(len) == Some(&b'.');
        let mut fraction = 0;
        if point {
            (fraction, mantissa) = digits(&bytes[len + 1..], mantissa);
            len += 1 + fraction;
        }
        Self { negative, digits: whole + fraction, fraction, point, len, mantissa }
    }

    /// The integer, if there is no decimal point and it fits.
    pub fn int(&self) -> Option<i64> {
        if self.point || self.digits == 0 || self.digits > DIGITS_MAX {
            return None;
        }
        match i64::try_from(self.mantissa) {
            Ok(int) => Some(if self.negative { -int } else { int }),
            Err(_) => (self.negative && self.mantissa == i64::MIN.unsigned_abs()).then_some(i64::MIN),
        }
    }

    /// The float that is nearest, unless there are more digits than fit.
    pub fn float(&self) -> Option<f64> {
        if self.digits == 0 || self.digits > DIGITS_MAX {
            return None;
        }
        let float = if self.mantissa <= EXACT_MAX {
            // Both are exact, so that the one division rounds as the true value would be.
            self.mantissa as f64 / POWERS[self.fraction]
        } else {
            divided(self.mantissa, INT_POWERS[self.fraction])
        };
        Some(if self.negative { -float } else { float })
    }
}

/// The float that is nearest to a quotient of two integers, neither of them 0.
///
/// Both are moved up until their highest bit is set, which takes nothing but powers of two from their quotient. It has 63
/// bits or 64 then, and the lowest tells whether there is a rest: the one rounding is that of the true value.
fn divided(number: u64, by: u64) -> f64 {
    let (number_up, by_up) = (number.leading_zeros(), by.leading_zeros());
    let (dividend, divisor) = (u128::from(number << number_up) << 63, u128::from(by << by_up));
    let quotient = (dividend / divisor) as u64 | u64::from(dividend % divisor != 0);
    let exponent = FLOAT_BIAS + u64::from(by_up) - u64::from(number_up) - 63;
    quotient as f64 * f64::from_bits(exponent << FLOAT_FRACTION_BITS)
}

/// How many digits `bytes` start with, and the number with these behind it.
fn digits(bytes: &[u8], mut number: u64) -> (usize, u64) {
    let mut at = 0;
    while let Some(byte @ b'0'..=b'9') = bytes.get(at) {
        // Wraps only where there are too many, and then it is not used.
        number = number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        at += 1;
    }
    (at, number)
}

#[cfg(test)]
mod tests;
