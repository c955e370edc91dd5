//! Floats that are short decimals, stored as integers: `int / 10^scale` gives every bit back.
//!
//! Sensors and programs print two or three decimals; as integers these compress ten times better than as floats. A
//! float takes this form only if the division was tried and gave exactly its bits. So NaN, infinities and -0.0 never
//! take it.

use multiversion::multiversion;

/// Largest scale that is written: ten digits are what people print, and more seldom fit 53 bits.
pub const SCALE_WRITTEN_MAX: u8 = 9;
/// Integers from here on are not all floats.
const INT_MAX: f64 = 9_007_199_254_740_992.0;
/// A float from here on has no quarters: a product is not rounded, for a half may be all its error.
const ROUNDED_MAX: f64 = 2_251_799_813_685_248.0;
/// Values of a run that are tried before all of it is.
const SAMPLE: usize = 64;
/// Values that become integers before it is asked whether each was one: no test of one waits for another.
const CHECKED_AT_ONCE: usize = 256;

const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// `10^scale`; scales end at [`SCALE_MAX`](super::SCALE_MAX).
pub fn power(scale: u8) -> f64 {
    POWERS[usize::from(scale)]
}

/// The integer from which [`to_float`] makes exactly `float`, if there is one.
pub fn to_int(float: f64, scale: u8) -> Option<i64> {
    let scaled = float * power(scale);
    if scaled.is_nan() || scaled.abs() >= INT_MAX {
        return None;
    }
    // A wrong rounding does no harm: the test below rejects it.
    let int = if scaled.abs() < ROUNDED_MAX { (scaled + 0.5_f64.copysign(scaled)) as i64 } else { scaled as i64 };
    (to_float(int, scale).to_bits() == float.to_bits()).then_some(int)
}

pub fn to_float(int: i64, scale: u8) -> f64 {
    int as f64 / power(scale)
}

pub fn to_floats(ints: &[i64], scale: u8) -> Vec<f64> {
    let power = power(scale);
    ints.iter().map(|int| *int as f64 / power).collect()
}

/// As [`to_floats`], into what is as long as `ints`.
#[multiversion(targets("x86_64+avx2+bmi2"))]
pub fn fill_floats(out: &mut [f64], ints: &[i64], scale: u8) {
    let power = power(scale);
    match RECIPROCALS.get(usize::from(scale)) {
        Some((upper, lower)) if fit(ints, RECIPROCAL_BITS) => fill(out, ints, |int| {
            let float = small_to_float(int);
            float * upper + float * lower
        }),
        _ if fit(ints, SMALL_BITS) => fill(out, ints, |int| small_to_float(int) / power),
        _ => fill(out, ints, |int| int as f64 / power),
    }
}

#[inline(always)]
fn fill(out: &mut [f64], ints: &[i64], float: impl Fn(i64) -> f64) {
    for (out, int) in out.iter_mut().zip(ints) {
        *out = float(*int);
    }
}

/// Powers of ten by which integers are divided by multiplying with these. A division takes five times as long, and may
/// be most of what an average costs.
///
/// The reciprocal is the sum of two floats, of which the first has so few digits that its product with an integer of
/// [`RECIPROCAL_BITS`] is exact. What the second product and the second float lack is less than 2^-74 of the quotient.
/// The quotient of an integer and `10^k` is either a float or at least `2^-54 / 10^k` of it from the middle of two
/// floats, which up to the fifth power is more than 2^-71. So the sum is rounded to the float to which the quotient is.
const RECIPROCALS: [(f64, f64); 6] = {
    let mut parts = [(1.0, 0.0); 6];
    let mut scale = 1;
    while scale < parts.len() {
        let upper = f64::from_bits((1.0 / POWERS[scale]).to_bits() & !((1 << RECIPROCAL_BITS) - 1));
        // But for the division nothing is rounded.
        parts[scale] = (upper, (1.0 - upper * POWERS[scale]) / POWERS[scale]);
        scale += 1;
    }
    parts
};
const RECIPROCAL_BITS: u32 = 31;

/// As [`RECIPROCALS`], for sums: integers of [`ADDED_BITS`] leave more digits to the first part, so less to the second.
const ADDED_RECIPROCALS: [AddedReciprocal; 6] = {
    let mut parts = [AddedReciprocal { digits: 1, unit: 1.0, upper: 1.0, lower: 0.0 }; 6];
    let mut scale = 1;
    while scale < parts.len() {
        let bits = (1.0 / POWERS[scale]).to_bits() >> ADDED_BITS;
        let upper = f64::from_bits(bits << ADDED_BITS);
        let left = f64::MANTISSA_DIGITS - 1 - ADDED_BITS;
        let unit = f64::from_bits(((bits >> left) - left as u64) << (f64::MANTISSA_DIGITS - 1));
        let digits = (bits & ((1 << left) - 1) | 1 << left).cast_signed();
        parts[scale] = AddedReciprocal { digits, unit, upper, lower: (1.0 - upper * POWERS[scale]) / POWERS[scale] };
        scale += 1;
    }
    parts
};
const ADDED_BITS: u32 = 22;
/// Decimals that [`sum`] adds up at the most.
pub const ADDED_MAX: usize = 256;
/// The last digit of a sum counts as much of the unit of the first part.
const LEFT_UNIT: f64 = 1.0 / (1_u64 << ADDED_BITS) as f64;

#[derive(Clone, Copy)]
struct AddedReciprocal {
    /// The first part is so many times this.
    digits: i64,
    unit: f64,
    upper: f64,
    lower: f64,
}

/// Whether [`sum`] adds up such decimals.
#[multiversion(targets("x86_64+avx2+bmi2"))]
pub fn can_sum(ints: &[i64], scale: u8) -> bool {
    usize::from(scale) < ADDED_RECIPROCALS.len() && fit(ints, ADDED_BITS)
}

/// The exact sum of the floats that [`to_float`] makes of `ints`, as that of two floats: of at most [`ADDED_MAX`] of
/// which [`can_sum`] is true.
#[multiversion(targets("x86_64+avx2+bmi2"))]
pub fn sum(ints: &[i64], scale: u8) -> (f64, f64) {
    sum_of(ints, scale)
}

/// As [`sum`], of `N` equal shares of `ints`: one after the other.
#[multiversion(targets("x86_64+avx2+bmi2"))]
pub fn sums_of_shares<const N: usize>(ints: &[i64], scale: u8) -> [(f64, f64); N] {
    let mut sums = [(0.0, 0.0); N];
    // A closure that is called for each share would not be compiled for AVX2.
    for (sum, share) in sums.iter_mut().zip(ints.chunks_exact(ints.len() / N)) {
        *sum = sum_of(share, scale);
    }
    sums
}

/// A float is the product of its integer and the first part of the reciprocal, which is exact, and what it has beyond.
/// The products add up to that of the sum of the integers.
///
/// Let `2^-e` be the highest bit of the reciprocal. The floats are multiples of `2^-(e + 52)`, as is the first part, so
/// what they have beyond is such a multiple, too. It is below `2^-(e + 8)` and half of a last digit. So it can be added
/// to a float whose last digit counts that much, whose bits are then an integer, and integers add up in any order. 256
/// of them, and what the sum of the products has beyond the digits of a float, are below `2^(1 - e)`, which is 53 bits.
#[inline(always)]
fn sum_of(ints: &[i64], scale: u8) -> (f64, f64) {
    let AddedReciprocal { digits, unit, upper, lower } = ADDED_RECIPROCALS[usize::from(scale)];
    let middle = MIDDLE * (unit * LEFT_UNIT);
    let (mut whole, mut rest) = (0_i64, 0_i64);
    for int in ints {
        let float = small_to_float(*int);
        let product = float * upper;
        let beyond = (product + float * lower) - product;
        whole += int;
        rest = rest.wrapping_add((beyond + middle).to_bits().cast_signed());
    }
    let middles = middle.to_bits().cast_signed().wrapping_mul(ints.len() as i64);
    let rest = rest.wrapping_sub(middles) as f64 * (unit * LEFT_UNIT);
    let whole = whole * digits;
    // The sum has up to 61 bits.
    let few = whole & 0xff;
    ((whole - few) as f64 * unit, few as f64 * unit + rest)
}

/// Integers of less become floats by an addition and a subtraction, several at a time.
const SMALL_BITS: u32 = 51;
/// Floats from half of it below until half of it above are one apart.
const MIDDLE: f64 = 6_755_399_441_055_744.0;

/// Whether all are from `-2^bits` until `2^bits`.
#[inline(always)]
fn fit(ints: &[i64], bits: u32) -> bool {
    let above = ints.iter().fold(0, |above, int| above | int.wrapping_add(1 << bits).cast_unsigned());
    above >> (bits + 1) == 0
}

/// Of an integer of [`SMALL_BITS`] at the most.
#[inline(always)]
fn small_to_float(int: i64) -> f64 {
    f64::from_bits(MIDDLE.to_bits().wrapping_add_signed(int)) - MIDDLE
}

/// Makes integers of `floats`, if all are exactly those at the smallest scale at which some of them are.
pub fn to_ints(floats: &[f64], ints: &mut Vec<i64>) -> Option<u8> {
    floats.first()?;
    let is_scale = |scale: &u8| sample(floats).all(|float| to_int(float, *scale).is_some());
    let scale = (0..=SCALE_WRITTEN_MAX).find(is_scale)?;
    ints.clear();
    ints.reserve(floats.len());
    floats.chunks(CHECKED_AT_ONCE).all(|floats| push_ints(floats, scale, ints)).then_some(scale)
}

/// Appends the integers of `floats`, several at a time, if [`to_int`] finds one for each.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn push_ints(floats: &[f64], scale: u8, ints: &mut Vec<i64>) -> bool {
    let (power, start) = (power(scale), ints.len());
    // Signs: whether all are small. Bits: whether any is not what its integer gives back.
    let (mut small, mut other) = (u64::MAX, 0);
    ints.extend(floats.iter().map(|float| {
        let scaled = float * power;
        // Rounded to an integer, as floats of this size are one apart. A half is none at any scale: see `to_int`.
        let moved = scaled + MIDDLE;
        small &= scaled.abs().to_bits().wrapping_sub(ROUNDED_MAX.to_bits());
        other |= ((moved - MIDDLE) / power).to_bits() ^ float.to_bits();
        moved.to_bits().wrapping_sub(MIDDLE.to_bits()).cast_signed()
    }));
    if small >> 63 == 1 {
        return other == 0;
    }
    ints.truncate(start);
    floats.iter().all(|float| {
        to_int(*float, scale).is_some_and(|int| {
            ints.push(int);
            true
        })
    })
}

/// Some of `floats`, evenly.
fn sample(floats: &[f64]) -> impl Iterator<Item = f64> + '_ {
    let stride = floats.len().div_ceil(SAMPLE).max(1);
    floats.iter().copied().step_by(stride)
}

/// The scale at which at least three of four of `floats` are integers, and most of all; the smallest such.
pub fn scale_of(floats: &[f64]) -> Option<u8> {
    let scale = best(&sample(floats).collect::<Vec<f64>>(), 0)?;
    // What the sample did not show: values with more decimals than it had.
    let exceptions: Vec<f64> = floats.iter().copied().filter(|float| to_int(*float, scale).is_none()).collect();
    let at = |scale: u8| floats.iter().filter(|float| to_int(**float, scale).is_some()).count();
    let (mut scale, mut exact) = (scale, floats.len() - exceptions.len());
    if !exceptions.is_empty()
        && let Some(larger) = best(&exceptions, scale + 1)
    {
        let found = at(larger);
        if found > exact {
            (scale, exact) = (larger, found);
        }
    }
    is_enough(exact, floats.len()).then_some(scale)
}

/// The scale from `from` on at which most of `floats` are integers, if that is enough of them.
fn best(floats: &[f64], from: u8) -> Option<u8> {
    let mut best = None;
    let mut most = 0;
    for scale in from..=SCALE_WRITTEN_MAX {
        let exact = count_exact(floats, scale);
        if exact > most {
            most = exact;
            best = Some(scale);
        }
        if exact == floats.len() {
            break;
        }
    }
    best.filter(|_| is_enough(most, floats.len()))
}

/// How many of `floats` are integers at `scale`; where these are not enough, maybe fewer than there are.
fn count_exact(floats: &[f64], scale: u8) -> usize {
    let (mut exact, mut others) = (0, 0);
    for float in floats {
        match to_int(*float, scale) {
            Some(_) => exact += 1,
            None => others += 1,
        }
        if !is_enough(floats.len() - others, floats.len()) {
            break;
        }
    }
    exact
}

fn is_enough(exact: usize, of: usize) -> bool {
    exact * 4 >= of * 3 && exact > 0
}

#[cfg(test)]
mod tests;
