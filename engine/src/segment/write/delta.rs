//! Packs integers as differences (Parquet's DELTA_BINARY_PACKED): what [`DeltaPage`](super::super::read::DeltaPage)
//! unpacks.
//!
//! A block is packed at once: its differences, the least of them, and how many bits what is above it needs. Where all
//! are equal, as with times that tick, there is nothing to pack. Widths are known when this is compiled, so that eight
//! numbers become bytes without a branch.

use crate::segment::varint;

/// Parts of a block, each with a width of its own.
const PARTS: usize = 4;
/// Numbers that take as many bytes as one takes bits.
const EIGHT: usize = 8;
/// Bytes that are written over by what follows: numbers are stored as whole words.
const SPILL: usize = 8;

/// Integers that differences are taken of, modulo their width.
pub trait DeltaInt: Copy + PartialEq {
    /// Numbers of a block: parts of it have as many bytes to a bit of width as the type has.
    const BLOCK: usize;

    fn signed(self) -> i64;

    /// By how much it is above `before`.
    fn above(self, before: Self) -> i64;
}

impl DeltaInt for i64 {
    const BLOCK: usize = 256;

    fn signed(self) -> i64 {
        self
    }

    fn above(self, before: Self) -> i64 {
        self.wrapping_sub(before)
    }
}

impl DeltaInt for u32 {
    const BLOCK: usize = 128;

    fn signed(self) -> i64 {
        i64::from(self.cast_signed())
    }

    fn above(self, before: Self) -> i64 {
        i64::from(self.wrapping_sub(before).cast_signed())
    }
}

impl DeltaInt for i32 {
    const BLOCK: usize = 128;

    fn signed(self) -> i64 {
        i64::from(self)
    }

    fn above(self, before: Self) -> i64 {
        i64::from(self.wrapping_sub(before))
    }
}

/// Appends a page of `values` to `bytes`.
pub fn pack<T: DeltaInt>(values: &[T], bytes: &mut Vec<u8>) {
    varint::put(bytes, T::BLOCK as u64);
    varint::put(bytes, PARTS as u64);
    varint::put(bytes, values.len() as u64);
    varint::put_signed(bytes, values.first().map_or(0, |first| first.signed()));
    let mut differences = [0; 256];
    let mut from = 1;
    while from < values.len() {
        let block = &values[from - 1..values.len().min(from + T::BLOCK)];
        let differences = &mut differences[..block.len() - 1];
        for (difference, pair) in differences.iter_mut().zip(block.windows(2)) {
            *difference = pair[1].above(pair[0]);
        }
        pack_block(differences, T::BLOCK / PARTS, bytes);
        from += T::BLOCK;
    }
}

/// Appends a block of `differences` in parts of this many; there is one at least.
fn pack_block(differences: &[i64], part: usize, bytes: &mut Vec<u8>) {
    let first = differences[0];
    if differences.iter().fold(0, |other, difference| other | (difference ^ first)) == 0 {
        varint::put_signed(bytes, first);
        bytes.extend_from_slice(&[0; PARTS]);
        return;
    }
    let least = differences.iter().fold(first, |least, difference| least.min(*difference));
    varint::put_signed(bytes, least);
    let widths = bytes.len();
    bytes.extend_from_slice(&[0; PARTS]);
    let mut numbers = [0; 64];
    for (at, differences) in differences.chunks(part).enumerate() {
        let mut all = 0;
        for (number, difference) in numbers.iter_mut().zip(differences) {
            *number = difference.wrapping_sub(least).cast_unsigned();
            all |= *number;
        }
        // What is behind the last one has no meaning, and is 0.
        numbers[differences.len()..].fill(0);
        let width = (u64::BITS - all.leading_zeros()) as usize;
        bytes[widths + at] = width as u8;
        let start = bytes.len();
        let end = start + width * part / EIGHT;
        bytes.resize(end + SPILL, 0);
        pack_part(&numbers[..part], width, &mut bytes[start..]);
        bytes.truncate(end);
    }
}

/// Packs `numbers` of this width into `bytes`, which have [`SPILL`] more than these take.
fn pack_part(numbers: &[u64], width: usize, bytes: &mut [u8]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => pack_fixed::<$width>(numbers, bytes),)*
                _ => {}
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
}

fn pack_fixed<const WIDTH: usize>(numbers: &[u64], bytes: &mut [u8]) {
    for (eight, numbers) in numbers.as_chunks::<EIGHT>().0.iter().enumerate() {
        let bytes = &mut bytes[eight * WIDTH..][..WIDTH + SPILL];
        let mut word = 0;
        for (at, number) in numbers.iter().enumerate() {
            let (start, bit) = (at * WIDTH / 64, at * WIDTH % 64);
            word |= number << bit;
            if bit + WIDTH >= 64 {
                bytes[start * 8..start * 8 + 8].copy_from_slice(&word.to_le_bytes());
                word = if bit + WIDTH > 64 { number >> (64 - bit) } else { 0 };
            }
        }
        // The last word, of which there is less than all.
        let last = EIGHT * WIDTH / 64 * 8;
        bytes[last..last + 8].copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
