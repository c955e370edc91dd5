//! Chains of blocks, in which the samples of each series are stored one after another.
//!
//! A block is a header and room for samples of 16 bytes each: the 64 bits of the value, the time as its distance from
//! the header's time, and the row. The blocks of a series double from 1 to 31 samples, so a series with one sample
//! takes 32 bytes, and one with many takes little more than its samples. A time too far from the header's begins a new,
//! small block. Blocks are cut from pages in order. Nothing is moved, and memory is released only as a whole.

use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::{Value, ValueType};

/// The row number's top bit holds the type of the value.
const INT_BIT: u32 = 1 << 31;
/// A sample takes less than four entries with its share of heads and of room that was left: blocks but the last are
/// full where they are large, so that all entries have a place of 32 bits.
pub const ROWS_MAX: u32 = 1 << 30;
/// Entries of a page: 64 KiB.
const PAGE: usize = 4 << 10;
/// Entries of the first block of a series and of the largest, heads included.
const BLOCK_MIN: u32 = 2;
const BLOCK_MAX: u32 = 32;

/// A sample, or the head of a block: see [`ChainEntry::head`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainEntry {
    bits: u64,
    /// Microseconds from the time in the block's head: 35 minutes both ways.
    offset: i32,
    /// With [`INT_BIT`].
    row: u32,
}

impl ChainEntry {
    /// Of a block that starts at this time. Where the next block is and how many samples are in this one stands in
    /// `offset` and `row` once there is a next.
    fn head(base: i64) -> Self {
        Self { bits: base.cast_unsigned(), offset: 0, row: 0 }
    }
}

/// A sample as it is read back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub time: Timestamp,
    pub value: Value,
}

/// The samples of one series. Places are numbers of entries over all pages.
#[derive(Clone, Copy, Debug)]
struct Chain {
    series: SeriesId,
    /// The first block.
    first: u32,
    /// The last block, the place of the next sample in it, and its end.
    block: u32,
    at: u32,
    end: u32,
    samples: u32,
    /// The time in the last block's head.
    base: i64,
}

#[derive(Debug, Default)]
pub struct Chains {
    /// By series: the number of its chain, from 1; 0 where it has none.
    places: Vec<u32>,
    chains: Vec<Chain>,
    /// Each with room for [`PAGE`] entries, made as they come.
    pages: Vec<Vec<ChainEntry>>,
}

impl Chains {
    /// `row` grows from one to the next.
    pub fn push(&mut self, series: SeriesId, time: Timestamp, value: Value, row: u32) {
        let at = match self.places.get(series.0 as usize) {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.start(series),
        };
        let chain = self.chains[at];
        let offset = time.micros().checked_sub(chain.base).and_then(|offset| i32::try_from(offset).ok());
        let offset = match offset {
            Some(offset) if chain.at < chain.end => offset,
            fits => {
                self.open_block(at, time.micros(), fits.is_some());
                0
            }
        };
        let chain = &mut self.chains[at];
        let (page, entry) = split(chain.at);
        let row = if value.is_int() { row | INT_BIT } else { row };
        self.pages[page][entry] = ChainEntry { bits: value.to_bits(), offset, row };
        chain.at += 1;
        chain.samples += 1;
    }

    /// Memory that samples take.
    pub fn bytes(&self) -> u64 {
        let entries: usize = match self.pages.split_last() {
            Some((last, full)) => full.len() * PAGE + last.len(),
            None => 0,
        };
        (entries * size_of::<ChainEntry>() + self.chains.len() * (size_of::<Chain>() + size_of::<u32>())) as u64
    }

    /// Those with samples, in the order in which they first came.
    pub fn series(&self) -> impl Iterator<Item = SeriesId> + '_ {
        self.chains.iter().map(|chain| chain.series)
    }

    /// How many samples `series` has.
    pub fn count(&self, series: SeriesId) -> u64 {
        self.chain(series).map_or(0, |chain| u64::from(chain.samples))
    }

    /// The samples of `series` below row `rows`, in their order.
    pub fn of(&self, series: SeriesId, rows: u32) -> Walk<'_> {
        Walk::new(&self.pages, self.chain(series), rows)
    }

    /// All samples, series after series.
    pub fn all(&self) -> impl Iterator<Item = Sample> + '_ {
        self.chains.iter().flat_map(|chain| Walk::new(&self.pages, Some(chain), INT_BIT))
    }

    /// Calls every series by another id.
    ///
    /// # Errors
    /// The first series that has none.
    pub fn rename(&mut self, id: impl Fn(SeriesId) -> Option<SeriesId>) -> Result<(), SeriesId> {
        self.places.clear();
        for (number, chain) in self.chains.iter_mut().enumerate() {
            chain.series = id(chain.series).ok_or(chain.series)?;
            *place(&mut self.places, chain.series) = number as u32 + 1;
        }
        Ok(())
    }

    fn chain(&self, series: SeriesId) -> Option<&Chain> {
        let place = *self.places.get(series.0 as usize)?;
        self.chains.get((place as usize).checked_sub(1)?)
    }

    /// The chain of a series that has none yet.
    fn start(&mut self, series: SeriesId) -> usize {
        self.chains.push(Chain { series, first: 0, block: 0, at: 0, end: 0, samples: 0, base: 0 });
        // There are no more chains than rows.
        *place(&mut self.places, series) = self.chains.len() as u32;
        self.chains.len() - 1
    }

    /// Gives chain `at` room for a sample at `base`; `full` tells that there was none, rather than that the
    /// time is far from the others.
    fn open_block(&mut self, at: usize, base: i64, full: bool) {
        let before = self.chains[at];
        let size = match before.end - before.block {
            0 => BLOCK_MIN,
            size if full => (2 * size).min(BLOCK_MAX),
            // A jump back and forth must not leave large blocks all but empty.
            _ => BLOCK_MIN,
        };
        let block = self.cut(size);
        let (page, head) = split(block);
        self.pages[page][head] = ChainEntry::head(base);
        let chain = &mut self.chains[at];
        if before.samples == 0 {
            chain.first = block;
        } else {
            let (page, head) = split(before.block);
            let head = &mut self.pages[page][head];
            head.offset = block.cast_signed();
            head.row = before.at - before.block - 1;
        }
        (chain.block, chain.at, chain.end, chain.base) = (block, block + 1, block + size, base);
    }

    /// A new block of `size` entries.
    fn cut(&mut self, size: u32) -> u32 {
        let has_room = self.pages.last().is_some_and(|page| page.len() + size as usize <= PAGE);
        if !has_room {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let number = self.pages.len() - 1;
        let page = &mut self.pages[number];
        let start = page.len();
        page.resize(start + size as usize, ChainEntry::default());
        // See ROWS_MAX.
        (number * PAGE + start) as u32
    }
}

/// The page of an entry and its place there.
fn split(at: u32) -> (usize, usize) {
    (at as usize / PAGE, at as usize % PAGE)
}

/// The place of `series`, with room made for it. Fresh room is zeros that the system makes when they are touched, so
/// that few series with high ids take little.
fn place(places: &mut Vec<u32>, series: SeriesId) -> &mut u32 {
    let at = series.0 as usize;
    if at >= places.len() {
        let mut larger = vec![0; (at + 1).max(2 * places.len())];
        larger[..places.len()].copy_from_slice(places);
        *places = larger;
    }
    &mut places[at]
}

/// Goes through samples of a series.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    pages: &'a [Vec<ChainEntry>],
    /// Samples of this block that are left.
    entries: &'a [ChainEntry],
    base: i64,
    /// The block after this one; `None` in the last.
    next: Option<u32>,
    last: Option<&'a Chain>,
    rows: u32,
}

impl<'a> Walk<'a> {
    fn new(pages: &'a [Vec<ChainEntry>], chain: Option<&'a Chain>, rows: u32) -> Self {
        let next = chain.filter(|chain| chain.samples > 0).map(|chain| chain.first);
        Self { pages, entries: &[], base: 0, next, last: chain, rows }
    }

    /// Goes on with the next block.
    fn advance(&mut self) -> Option<()> {
        let (block, chain) = (self.next?, self.last?);
        let (page, at) = split(block);
        let page: &'a [ChainEntry] = &self.pages[page];
        let head = page[at];
        self.base = head.bits.cast_signed();
        let samples = if block == chain.block { chain.at - block - 1 } else { head.row };
        self.next = (block != chain.block).then_some(head.offset.cast_unsigned());
        self.entries = &page[at + 1..][..samples as usize];
        Some(())
    }
}

impl Iterator for Walk<'_> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        if self.entries.is_empty() {
            self.advance()?;
        }
        let (entry, rest) = self.entries.split_first()?;
        if entry.row & !INT_BIT >= self.rows {
            // Rows ascend: all that follow are later too.
            (self.entries, self.next) = (&[], None);
            return None;
        }
        self.entries = rest;
        let time = Timestamp::from_micros(self.base + i64::from(entry.offset));
        Some(Sample { time, value: Value::from_bits(entry.bits, ValueType::of_bit(entry.row & INT_BIT != 0)) })
    }
}
