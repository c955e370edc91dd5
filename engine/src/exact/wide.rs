//! A fixed-point number as wide as the range of floats.

use std::collections::VecDeque;

/// Bits of a limb that count; the others take carries until these are passed on.
const LIMB_BITS: u32 = 32;
const LIMB_MASK: i64 = (1 << LIMB_BITS) - 1;
/// Additions between two passes of carries: each adds less than 2^32 to a limb of 63 bits.
const ADDITIONS_MAX: u32 = 1 << 29;
/// Limbs from the least positive float to twice the largest, and three for sums of 2^64 of them.
const LIMBS_MAX: usize = 2_098usize.div_ceil(LIMB_BITS as usize) + 3;
/// Bits of a float's digits.
const DIGITS: u32 = 53;

/// A sum of floats: `limbs[i] * 2^(32 * (first + i) - 1074)`, added up. Only limbs that are needed are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Wide {
    first: usize,
    limbs: VecDeque<i64>,
    /// Additions since carries were passed on.
    additions: u32,
}

impl Wide {
    /// Adds a finite number.
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let (exponent, digits) = ((bits >> (DIGITS - 1)) & 0x7ff, bits & ((1 << (DIGITS - 1)) - 1));
        // Subnormal numbers have the exponent of the least normal one, and no hidden digit.
        let (place, digits) = if exponent == 0 { (0, digits) } else { (exponent - 1, digits | 1 << (DIGITS - 1)) };
        if digits == 0 {
            return;
        }
        let mut shifted = u128::from(digits) << (place % u64::from(LIMB_BITS));
        let mut at = (place / u64::from(LIMB_BITS)) as usize;
        self.reach(at, at + 3);
        while shifted != 0 {
            let part = (shifted as i64) & LIMB_MASK;
            self.limbs[at - self.first] += if value < 0.0 { -part } else { part };
            shifted >>= LIMB_BITS;
            at += 1;
        }
        self.counted(1);
    }

    pub fn merge(&mut self, other: &Wide) {
        if other.limbs.is_empty() {
            return;
        }
        self.carry();
        let mut other = other.clone();
        other.carry();
        self.reach(other.first, other.first + other.limbs.len());
        for (at, limb) in other.limbs.iter().enumerate() {
            self.limbs[other.first + at - self.first] += limb;
        }
        self.counted(2);
    }

    /// The nearest float, ties to even.
    pub fn round(mut self) -> f64 {
        self.carry();
        let negative = self.limbs.back().is_some_and(|limb| *limb < 0);
        if negative {
            self.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            self.carry();
        }
        let Some(top) = self.limbs.iter().rposition(|limb| *limb != 0) else { return 0.0 };
        // Three limbs hold all digits, the bit behind them, and more.
        let limb = |at: usize| self.limbs[at] as u128;
        let upper = limb(top) << 64
            | (if top >= 1 { limb(top - 1) } else { 0 }) << 32
            | (if top >= 2 { limb(top - 2) } else { 0 });
        let below = top >= 3 && self.limbs.iter().take(top - 2).any(|limb| *limb != 0);
        // The place of the highest bit, counted from the least positive float.
        let highest = u128::BITS - 1 - upper.leading_zeros();
        let place = (self.first + top) as u32 * LIMB_BITS + highest;
        let place = place - 2 * LIMB_BITS;
        let bits = if place < DIGITS {
            // All of its bits are digits of a float.
            (upper >> (highest - place)) as u64
        } else {
            let dropped = highest + 1 - DIGITS;
            let digits = (upper >> dropped) as u64;
            let (half, rest) = (1_u128 << (dropped - 1), upper & ((1 << dropped) - 1));
            let up = rest > half || rest == half && (below || digits & 1 == 1);
            // A carry out of the digits makes the exponent one larger, as it should.
            let exponent = u64::from(place - (DIGITS - 1));
            (exponent << (DIGITS - 1)) + digits + u64::from(up)
        };
        let size = f64::from_bits(bits.min(f64::INFINITY.to_bits()));
        if negative { -size } else { size }
    }

    /// The number of the first limb in a byte, and the limbs, eight bytes each.
    pub fn encode(&self) -> Vec<u8> {
        let mut passed = self.clone();
        passed.carry();
        let mut bytes = Vec::with_capacity(1 + 8 * passed.limbs.len());
        bytes.push(passed.first as u8);
        passed.limbs.iter().for_each(|limb| bytes.extend_from_slice(&limb.to_le_bytes()));
        bytes
    }

    /// `None` for anything that [`Wide::encode`] does not give.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, limbs) = bytes.split_first()?;
        let (limbs, rest) = limbs.as_chunks::<8>();
        let first = usize::from(*first);
        if !rest.is_empty() || first + limbs.len() > LIMBS_MAX {
            return None;
        }
        let limbs: VecDeque<i64> = limbs.iter().map(|limb| i64::from_le_bytes(*limb)).collect();
        let fits = limbs.iter().all(|limb| limb.unsigned_abs() <= 1 << LIMB_BITS);
        fits.then_some(Self { first, limbs, additions: 1 })
    }

    pub fn heap_bytes(&self) -> usize {
        self.limbs.capacity() * size_of::<i64>()
    }

    /// Makes limbs from `from` until `to`.
    fn reach(&mut self, from: usize, to: usize) {
        if self.limbs.is_empty() {
            self.first = from;
        }
        while self.first > from {
            self.limbs.push_front(0);
            self.first -= 1;
        }
        while self.first + self.limbs.len() < to {
            self.limbs.push_back(0);
        }
    }

    fn counted(&mut self, additions: u32) {
        self.additions += additions;
        if self.additions >= ADDITIONS_MAX {
            self.carry();
        }
    }

    /// Passes carries on: from then on every limb but the last is in 0..2^32, and the last has the sign of the number.
    fn carry(&mut self) {
        self.additions = 0;
        let mut carry = 0;
        let last = self.limbs.len().saturating_sub(1);
        for (at, limb) in self.limbs.iter_mut().enumerate() {
            let all = *limb + carry;
            (*limb, carry) = if at == last { (all, 0) } else { (all & LIMB_MASK, all >> LIMB_BITS) };
        }
        while let Some(last) = self.limbs.back_mut()
            && last.unsigned_abs() > LIMB_MASK as u64
        {
            let carry = *last >> LIMB_BITS;
            *last &= LIMB_MASK;
            self.limbs.push_back(carry);
        }
    }
}
