//! Sums of slices as two plain sums: of the upper parts of all numbers, and of their remainders.
//!
//! If the cut is high enough, the upper parts of a block are multiples of one power of two so large that all their sums
//! are representable. If the numbers are not too far apart, the remainders are small enough that their sums are
//! representable too. Nothing is rounded, so the additions may be made in any order, several at a time.

use multiversion::multiversion;

/// Numbers that are added up in one go. More would allow less between the largest and the least of them.
pub(super) const BLOCK: usize = 1 << BLOCK_BITS;
const BLOCK_BITS: i32 = 8;
/// Digits of a float.
const DIGITS: i32 = 53;
/// Sums that are made side by side, because an addition takes several cycles until the next can use it.
const LANES: usize = 8;
const HALF: usize = LANES / 2;
/// Exponents of numbers that are cut: far from where anything overflows or underflows.
const EXPONENTS: std::ops::Range<i32> = -900..1_000;

/// What is known of some numbers.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// None has a larger magnitude. Not finite where one is infinite; NaN is not seen.
    most: f64,
    /// All of them are multiples of two to this power.
    unit: i32,
}

impl Span {
    pub fn of(values: &[f64]) -> Self {
        span_of(values)
    }

    /// Of numbers that are known to be multiples of two to the power of `unit`.
    pub fn of_multiples(values: &[f64], unit: i32) -> Self {
        Self { most: most_of(values), unit }
    }

    /// How such numbers are added up a block at a time; `None` where they must be added one by one.
    pub(crate) fn cut(self) -> Option<SumCut> {
        if self.most == 0.0 {
            return Some(SumCut::Whole);
        }
        // All sums of a block are below two to this power.
        let bound = exponent(self.most) + 1 + BLOCK_BITS;
        if !EXPONENTS.contains(&bound) {
            return None;
        }
        if bound <= self.unit.saturating_add(DIGITS) {
            return Some(SumCut::Whole);
        }
        // Sums of numbers and 1.5 times two to the power of `bound + 1` have this unit, whatever the numbers.
        let shift = bound + 1;
        let upper_unit = shift - (DIGITS - 1);
        // What is left of each is at most half of that, so sums of it are below two to this power.
        let left = upper_unit - 1 + BLOCK_BITS;
        (left <= self.unit.saturating_add(DIGITS)).then(|| SumCut::At { shift: 1.5 * 2_f64.powi(shift) })
    }
}

#[multiversion(targets("x86_64+avx2+bmi2"))]
fn span_of(values: &[f64]) -> Span {
    let (mut most, mut least) = ([0.0_f64; LANES], [f64::INFINITY; LANES]);
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for ((value, most), least) in group.iter().zip(&mut most).zip(&mut least) {
            take_in(*value, most, least);
        }
    }
    for value in rest {
        take_in(*value, &mut most[0], &mut least[0]);
    }
    let least = least.into_iter().fold(f64::INFINITY, |least, one| if one < least { one } else { least });
    Span { most: largest(most), unit: exponent(least) - (DIGITS - 1) }
}

/// The largest magnitude.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn most_of(values: &[f64]) -> f64 {
    let mut most = [0.0_f64; LANES];
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for (value, most) in group.iter().zip(&mut most) {
            let size = value.abs();
            *most = if size > *most { size } else { *most };
        }
    }
    let rest = rest.iter().fold(0.0, |most: f64, value| if value.abs() > most { value.abs() } else { most });
    largest(most).max(rest)
}

#[inline(always)]
fn take_in(value: f64, most: &mut f64, least: &mut f64) {
    let size = value.abs();
    *most = if size > *most { size } else { *most };
    // Zero is a multiple of everything.
    let some = if size == 0.0 { f64::INFINITY } else { size };
    *least = if some < *least { some } else { *least };
}

#[inline(always)]
fn largest(sizes: [f64; LANES]) -> f64 {
    sizes.into_iter().fold(0.0, |most, one| if one > most { one } else { most })
}

/// The power of two that is the highest bit of a number; of subnormal numbers one that is less than that of their lowest.
fn exponent(size: f64) -> i32 {
    (size.to_bits() >> (DIGITS - 1)) as i32 - 1_023
}

/// Where numbers are cut, so that their parts can be added up without rounding: up to [`BLOCK`] of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SumCut {
    /// Nowhere: their sums are exact as they are.
    Whole,
    At {
        /// What is added to it loses its lower part.
        shift: f64,
    },
}

impl SumCut {
    /// How many numbers may be added up.
    pub const NUMBERS_MAX: usize = BLOCK;

    /// The sum of the upper parts, and that of the lower ones.
    pub fn sums(self, values: &[f64]) -> (f64, f64) {
        sums(self, values)
    }

    /// As [`SumCut::sums`], of `N` equal shares of `values`: one after the other, all of them [`SumCut::NUMBERS_MAX`] at
    /// the most.
    pub fn sums_of_shares<const N: usize>(self, values: &[f64]) -> [(f64, f64); N] {
        sums_of_shares(self, values)
    }
}

#[multiversion(targets("x86_64+avx2+bmi2"))]
fn sums(cut: SumCut, values: &[f64]) -> (f64, f64) {
    sums_of(cut, values)
}

#[multiversion(targets("x86_64+avx2+bmi2"))]
fn sums_of_shares<const N: usize>(cut: SumCut, values: &[f64]) -> [(f64, f64); N] {
    let mut sums = [(0.0, 0.0); N];
    // A closure that is called for each share would not be compiled for AVX2.
    for (sums, share) in sums.iter_mut().zip(values.chunks_exact(values.len() / N)) {
        *sums = sums_of(cut, share);
    }
    sums
}

/// Nothing is rounded, so it does not matter in which order parts are added.
#[inline(always)]
fn sums_of(cut: SumCut, values: &[f64]) -> (f64, f64) {
    let (groups, rest) = values.as_chunks::<LANES>();
    let (half_groups, rest) = rest.as_chunks::<HALF>();
    let shift = match cut {
        SumCut::Whole => {
            let mut sums = [0.0; LANES];
            for group in groups {
                for (value, sum) in group.iter().zip(&mut sums) {
                    *sum += value;
                }
            }
            let mut sums = halved(sums);
            for group in half_groups {
                for (value, sum) in group.iter().zip(&mut sums) {
                    *sum += value;
                }
            }
            return (rest.iter().fold(total(sums), |sum, value| sum + value), 0.0);
        }
        SumCut::At { shift } => shift,
    };
    let (mut highs, mut lows) = ([shift; LANES], [0.0; LANES]);
    for group in groups {
        for at in 0..LANES {
            add_parts(group[at], &mut highs[at], &mut lows[at]);
        }
    }
    let mut highs = halved(highs.map(|high| high - shift)).map(|high| high + shift);
    let mut lows = halved(lows);
    for group in half_groups {
        for at in 0..HALF {
            add_parts(group[at], &mut highs[at], &mut lows[at]);
        }
    }
    let (mut high, mut low) = (total(highs.map(|high| high - shift)) + shift, total(lows));
    rest.iter().for_each(|value| add_parts(*value, &mut high, &mut low));
    (high - shift, low)
}

/// The sum of both halves.
#[inline(always)]
fn halved(sums: [f64; LANES]) -> [f64; HALF] {
    std::array::from_fn(|at| sums[at] + sums[at + HALF])
}

#[inline(always)]
fn total(sums: [f64; HALF]) -> f64 {
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// `high` is the shift and all upper parts: what an addition to it takes away from the value is the lower part.
#[inline(always)]
fn add_parts(value: f64, high: &mut f64, low: &mut f64) {
    let next = *high + value;
    *low += value - (next - *high);
    *high = next;
}
