//! Packs integers as differences (Parquet's DELTA_BINARY_PACKED): what [`DeltaPage`](super::super::delta::DeltaPage)
//! unpacks.
//!
//! A block is packed at once: its differences, the least of them, and how many bits what is above it needs. Where all
//! are equal, as with times that tick, there is nothing to pack. Widths are known when this is compiled, so that eight
//! numbers become bytes without a branch.
//!
//! Integers that are values have blocks of one of two sizes ([`BlockSize`]), whichever gives the shorter page: where a
//! run begins, the step from the run before makes a whole block wide, so many short runs want small blocks. They can be
//! packed in whole bytes too ([`pack_in_bytes`]): longer, but what comes again is the same bytes, as a compressor wants.

use multiversion::multiversion;

use crate::segment::{PAGE_ROWS, varint};

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
    put_header(values, T::BLOCK, bytes);
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

/// Differences whose bounds are known together.
const GROUP: usize = 32;
/// Groups of a page, mostly.
const GROUPS: usize = PAGE_ROWS / GROUP;

/// How a page is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockSize {
    /// As Parquet's writers have it, with parts of two groups.
    Large,
    /// Of half of it.
    Small,
}

impl BlockSize {
    fn values(self) -> usize {
        match self {
            BlockSize::Large => 256,
            BlockSize::Small => 128,
        }
    }

    /// Groups of a part.
    fn part(self) -> usize {
        self.values() / PARTS / GROUP
    }

    /// What the blocks of these groups take.
    fn len(self, groups: &[DeltaBounds], widths: Widths) -> usize {
        let of_part = |part: &[DeltaBounds], least| widths.of(part, least) * self.part() * GROUP / EIGHT;
        groups
            .chunks(PARTS * self.part())
            .map(|block| {
                let least = least_of(block);
                let parts: usize = block.chunks(self.part()).map(|part| of_part(part, least)).sum();
                varint::len_signed(least) + PARTS + parts
            })
            .sum()
    }
}

/// The least and the greatest of some differences.
#[derive(Clone, Copy, Debug)]
struct DeltaBounds {
    least: i64,
    greatest: i64,
}

fn least_of(groups: &[DeltaBounds]) -> i64 {
    groups.iter().fold(i64::MAX, |least, group| least.min(group.least))
}

/// Which widths numbers may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widths {
    Bits,
    /// Whole bytes.
    Bytes,
}

impl Widths {
    /// Bits of what is above `least`. Three are made four: the compressor sees bytes, and finds in them what comes often
    /// only if numbers do not begin in the middle of one byte and end in the next.
    fn of(self, part: &[DeltaBounds], least: i64) -> usize {
        let greatest = part.iter().fold(i64::MIN, |greatest, group| greatest.max(group.greatest));
        let bits = u64::BITS - greatest.wrapping_sub(least).cast_unsigned().leading_zeros();
        match (self, bits) {
            (Widths::Bits, 3) => 4,
            (Widths::Bits, bits) => bits as usize,
            (Widths::Bytes, bits) => bits.next_multiple_of(u8::BITS) as usize,
        }
    }
}

/// Appends a page of integers that are values.
pub fn pack_values(values: &[i64], bytes: &mut Vec<u8>) {
    pack_by(Widths::Bits, values, bytes);
}

/// The same with each difference in whole bytes. Counters that rest for long and then rise by one of a few steps take
/// half as much after zstd.
pub fn pack_in_bytes(values: &[i64], bytes: &mut Vec<u8>) {
    pack_by(Widths::Bytes, values, bytes);
}

#[multiversion(targets("x86_64+avx2+bmi2"))]
fn pack_by(widths_of: Widths, values: &[i64], bytes: &mut Vec<u8>) {
    let mut groups = Vec::with_capacity(GROUPS);
    for from in (1..values.len()).step_by(GROUP) {
        let group = &values[from - 1..values.len().min(from + GROUP)];
        let mut bounds = DeltaBounds { least: i64::MAX, greatest: i64::MIN };
        for pair in group.windows(2) {
            let difference = pair[1].wrapping_sub(pair[0]);
            bounds.least = bounds.least.min(difference);
            bounds.greatest = bounds.greatest.max(difference);
        }
        groups.push(bounds);
    }
    let is_small = BlockSize::Small.len(&groups, widths_of) < BlockSize::Large.len(&groups, widths_of);
    let size = if is_small { BlockSize::Small } else { BlockSize::Large };
    put_header(values, size.values(), bytes);
    let part = size.part() * GROUP;
    let mut numbers = [0; 64];
    for (block, groups) in groups.chunks(PARTS * size.part()).enumerate() {
        let least = least_of(groups);
        varint::put_signed(bytes, least);
        let widths = bytes.len();
        bytes.extend_from_slice(&[0; PARTS]);
        for (at, groups) in groups.chunks(size.part()).enumerate() {
            let width = widths_of.of(groups, least);
            if width == 0 {
                continue;
            }
            bytes[widths + at] = width as u8;
            let from = block * size.values() + at * part;
            let values = &values[from..values.len().min(from + part + 1)];
            for (number, pair) in numbers.iter_mut().zip(values.windows(2)) {
                *number = pair[1].wrapping_sub(pair[0]).wrapping_sub(least).cast_unsigned();
            }
            // What is behind the last one has no meaning, and is 0.
            numbers[values.len() - 1..].fill(0);
            put_part(&numbers[..part], width, bytes);
        }
    }
}

fn put_header<T: DeltaInt>(values: &[T], block: usize, bytes: &mut Vec<u8>) {
    varint::put(bytes, block as u64);
    varint::put(bytes, PARTS as u64);
    varint::put(bytes, values.len() as u64);
    varint::put_signed(bytes, values.first().map_or(0, |first| first.signed()));
}

/// Appends `numbers` of this width.
fn put_part(numbers: &[u64], width: usize, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    let end = start + width * numbers.len() / EIGHT;
    bytes.resize(end + SPILL, 0);
    pack_part(numbers, width, &mut bytes[start..]);
    bytes.truncate(end);
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
        put_part(&numbers[..part], width, bytes);
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
