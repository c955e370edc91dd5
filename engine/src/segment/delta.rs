//! Decodes pages of bit-packed differences (Parquet's DELTA_BINARY_PACKED), from any value on.
//!
//! A value is the one before it and a difference, so the first values of a page are decoded to get to the last ones.
//! [`DeltaPage`] remembers the value before each block of differences that was gone through: whoever reads the same page
//! again starts at a block near what is wanted. It is small, for the differences stay packed.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use multiversion::multiversion;

/// Bytes of no meaning behind the packed ones, so that a value may be read with those that follow it.
pub const PADDING: usize = 16;
/// Differences that are unpacked at a time: Parquet packs so many, or a multiple of it, with one width.
const GROUP: usize = 32;
/// Widest difference.
const WIDTH_MAX: u8 = 64;
/// Values that are handed out at a time, about: they stay in the nearest cache.
const HANDED_OUT: usize = 2 << 10;
/// Values of a block: four times what telem writes. A few bytes may say that they are a block of millions.
const BLOCK_MAX: usize = HANDED_OUT / 2;

/// The bytes end within a block, or a width is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Torn;

/// A page of integers, none of them absent.
#[derive(Debug)]
pub struct DeltaPage {
    /// And [`PADDING`].
    bytes: Vec<u8>,
    count: usize,
    /// Values of a block, and of those parts of it that have one width.
    block: usize,
    part: usize,
    /// Where blocks begin, as far as they were gone through.
    starts: Mutex<Vec<BlockStart>>,
}

#[derive(Clone, Copy, Debug)]
struct BlockStart {
    /// Of the bytes.
    at: usize,
    /// The value before its first.
    before: i64,
}

impl DeltaPage {
    /// A page of `count` values; `None` for one that is not as Parquet says, or has blocks of more than [`BLOCK_MAX`].
    /// `bytes` end with [`PADDING`], after `from` others.
    pub fn new(bytes: Vec<u8>, from: usize, count: usize) -> Option<Self> {
        let mut header = Varints { bytes: &bytes, at: from };
        let block = usize::try_from(header.next()?).ok()?;
        let parts = usize::try_from(header.next()?).ok()?;
        let found = usize::try_from(header.next()?).ok()?;
        let first = header.signed()?;
        let part = block.checked_div(parts)?;
        let fits =
            part > 0 && block <= BLOCK_MAX && part.is_multiple_of(GROUP) && part.checked_mul(parts) == Some(block);
        let starts = Mutex::new(vec![BlockStart { at: header.at, before: first }]);
        (fits && found == count && count > 0).then_some(Self { bytes, count, block, part, starts })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Memory that it takes once all of its blocks were gone through.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity() + self.count.div_ceil(self.block) * size_of::<BlockStart>()
    }

    /// Hands out the values of `rows`, about [`HANDED_OUT`] at a time. `buffer` is for them, and grows to that.
    ///
    /// # Errors
    /// Torn; some may have been handed out then.
    pub fn read(&self, rows: Range<usize>, buffer: &mut Vec<i64>, take: &mut impl FnMut(&[i64])) -> Result<(), Torn> {
        let rows = rows.start..rows.end.min(self.count);
        if rows.is_empty() {
            return Ok(());
        }
        // The first value stands alone; difference `n` makes value `n + 1`.
        let wanted = rows.start.saturating_sub(1)..rows.end - 1;
        let (known, mut start) = self.near(wanted.start / self.block);
        if buffer.len() < HANDED_OUT {
            buffer.resize(HANDED_OUT, 0);
        }
        let mut filled = 0;
        if rows.start == 0 {
            buffer[0] = start.before;
            filled = 1;
        }
        let mut found: Vec<BlockStart> = Vec::new();
        let mut number = known;
        while number * self.block < wanted.end {
            let first = number * self.block;
            let part = wanted.start.max(first) - first..(wanted.end - first).min(self.block);
            let end = filled + part.len();
            let next = read_block(self, start, first, part, &mut buffer[filled..end])?;
            filled = end;
            if filled + self.block > HANDED_OUT {
                take(&buffer[..filled]);
                filled = 0;
            }
            number += 1;
            match next {
                Some(next) => {
                    found.push(next);
                    start = next;
                }
                None => break,
            }
        }
        self.remember(known + 1, &found);
        if filled > 0 {
            take(&buffer[..filled]);
        }
        Ok(())
    }

    /// The last block up to the one at `number` whose start is known, and that.
    fn near(&self, number: usize) -> (usize, BlockStart) {
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number.min(starts.len() - 1);
        (number, starts[number])
    }

    /// Keeps the starts of the blocks from the one at `first` on, as far as they are new.
    fn remember(&self, first: usize, found: &[BlockStart]) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = starts.len().checked_sub(first).and_then(|known| found.get(known..));
        starts.extend_from_slice(new.unwrap_or_default());
    }

    /// Unpacks the group at `at`, of which `count` differences are there: each is packed as what it is above `least`.
    #[inline(always)]
    fn unpack(&self, at: usize, width: usize, least: i64, count: usize, out: &mut [i64; GROUP]) -> Result<(), Torn> {
        let needed = at.saturating_add((width * count).div_ceil(8));
        if needed > self.bytes.len() - PADDING {
            return Err(Torn);
        }
        match self.bytes.get(at..at + width * GROUP / 8 + PADDING) {
            Some(bytes) => unpack_group(bytes, width, least, out),
            None => self.unpack_last(at, width, least, out),
        }
        Ok(())
    }

    /// Of a group that ends with its last difference, as a writer may leave out what has no meaning.
    #[cold]
    fn unpack_last(&self, at: usize, width: usize, least: i64, out: &mut [i64; GROUP]) {
        let mut bytes = [0; WIDTH_MAX as usize * GROUP / 8 + PADDING];
        let left = &self.bytes[at..];
        let count = left.len().min(bytes.len());
        bytes[..count].copy_from_slice(&left[..count]);
        unpack_group(&bytes[..width * GROUP / 8 + PADDING], width, least, out);
    }
}

/// Fills `out` with the values of a block that are `wanted`, which are as many; gives back where the next one begins,
/// unless it was left before its end.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn read_block(
    page: &DeltaPage,
    start: BlockStart,
    first: usize,
    wanted: Range<usize>,
    mut out: &mut [i64],
) -> Result<Option<BlockStart>, Torn> {
    let mut header = Varints { bytes: &page.bytes, at: start.at };
    let least = header.signed().ok_or(Torn)?;
    let widths = header.at..header.at + page.block / page.part;
    let end = page.bytes.len() - PADDING;
    if widths.end > end {
        return Err(Torn);
    }
    let (mut at, mut value) = (widths.end, start.before);
    // Differences of the block that there are: what is behind them has no meaning.
    let there = (page.count - 1 - first).min(page.block);
    let mut differences = [0; GROUP];
    for (place, width) in page.bytes[widths].iter().enumerate() {
        let from = place * page.part;
        if from >= there {
            break;
        }
        if *width > WIDTH_MAX {
            return Err(Torn);
        }
        for group in (from..from + page.part).step_by(GROUP) {
            let here = group..(group + GROUP).min(there);
            if here.is_empty() {
                break;
            }
            if group >= wanted.end {
                return Ok(None);
            }
            page.unpack(at, usize::from(*width), least, here.len(), &mut differences)?;
            at += usize::from(*width) * GROUP / 8;
            if here.end <= wanted.start {
                value = differences[..here.len()].iter().fold(value, |sum, one| sum.wrapping_add(*one));
                continue;
            }
            let mut part = [0; GROUP];
            let (from, to) = (wanted.start.max(group) - group, wanted.end.min(here.end) - group);
            let is_whole = to - from == GROUP;
            let (these, others) = std::mem::take(&mut out).split_at_mut(to - from);
            out = others;
            // Where all are wanted they are made where they are read.
            match these.first_chunk_mut() {
                Some(these) if is_whole => value = running_sums(value, &differences, these, here.len()),
                _ => {
                    value = running_sums(value, &differences, &mut part, here.len());
                    these.copy_from_slice(&part[from..to]);
                }
            }
        }
    }
    Ok(Some(BlockStart { at, before: value }))
}

/// Fills `out` with `value` and one difference, two, and so on; gives back what it and the first `count` of them make.
#[inline(always)]
fn running_sums(mut value: i64, differences: &[i64; GROUP], out: &mut [i64; GROUP], count: usize) -> i64 {
    for (out, difference) in out.iter_mut().zip(differences) {
        value = value.wrapping_add(*difference);
        *out = value;
    }
    // Of the last group of a page the rest is made up.
    out[count - 1]
}

/// Unpacks differences of this width, each as what it is above `least`; there are [`PADDING`] bytes more than they take.
#[inline(always)]
fn unpack_group(bytes: &[u8], width: usize, least: i64, out: &mut [i64; GROUP]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                0 => *out = [least; GROUP],
                $($width => unpack_fixed::<$width>(bytes, least, out),)*
                _ => {}
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
}

/// Eight differences take as many bytes as one has bits: what to shift by is known when this is compiled. The least is
/// added here, where that is done to several at once, and not on the way from one sum to the next.
#[inline(always)]
fn unpack_fixed<const WIDTH: usize>(bytes: &[u8], least: i64, out: &mut [i64; GROUP]) {
    let mask = u64::MAX >> (64 - WIDTH);
    let bytes = &bytes[..WIDTH * GROUP / 8 + PADDING];
    for (eight, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bytes = &bytes[eight * WIDTH..][..WIDTH + PADDING];
        for (at, out) in out.iter_mut().enumerate() {
            let (byte, bit) = (at * WIDTH / 8, at * WIDTH % 8);
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[byte..byte + 8]);
            let low = u64::from_le_bytes(eight) >> bit;
            let high = if bit + WIDTH > 64 { u64::from(bytes[byte + 8]) << (64 - bit) } else { 0 };
            *out = least.wrapping_add(((low | high) & mask).cast_signed());
        }
    }
}

/// Numbers of seven bits a byte.
struct Varints<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Varints<'_> {
    fn next(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes[..self.bytes.len() - PADDING].get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.next()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests;
