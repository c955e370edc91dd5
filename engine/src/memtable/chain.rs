//! Chains of blocks, in which the samples of each series are stored one after another.
//!
//! A block is a header and room for samples of 16 bytes each: the 64 bits of the value, the time as its distance from
//! the header's time, and the row. The blocks of a series double from 3 to 31 samples, and the only sample of a series is
//! in its chain, so a series with one sample takes 32 bytes, and one with many takes little more than its samples. A time
//! too far from the header's begins a new, small block. Blocks are cut from pages in order. Nothing is moved but a first
//! sample, and memory is released only as a whole.

use std::sync::Arc;

use super::page::{ChainEntry, ChainPage, PAGE, PAGE_ROOM};
use super::spare::SparePages;
use crate::paged::PagedTable;
use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::{Value, ValueType};

/// The row number's top bit holds the type of the value.
const INT_BIT: u32 = 1 << 31;
/// A sample takes less than four entries with its share of heads and of room that was left: blocks but the last are
/// full where they are large, so that all entries have a place of 32 bits.
pub const ROWS_MAX: u32 = 1 << 30;
/// Series of a page of places.
const PLACES_PAGE: usize = 512;
/// Entries of the first block of a series and of the largest, heads included.
const BLOCK_FIRST: u32 = 4;
const BLOCK_MAX: u32 = 32;
/// Entries of a block that begins because a time is far from the others.
const BLOCK_MIN: u32 = 2;

/// Entries of a line of a processor's cache.
const LINE: usize = 64 / size_of::<ChainEntry>();

/// Blocks of a chain that are brought near at most: 16 KiB. More would push each other out before they are read.
const BLOCKS_NEAR: usize = 32;

/// The largest block before anything is in it.
const EMPTY: [ChainEntry; BLOCK_MAX as usize] = [ChainEntry { bits: 0, offset: 0, row: 0 }; BLOCK_MAX as usize];

/// A sample as it is read back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub time: Timestamp,
    pub value: Value,
}

/// Ticks of the same series that are added together. More would be more places that are read at the same time than the
/// processor foresees.
pub const TICKS_AT_ONCE: usize = 4;

/// Samples of one series and one type: times, microseconds, and as many integers or floats.
#[derive(Debug, Default)]
pub struct ChainColumns {
    pub times: Vec<i64>,
    pub ints: Vec<i64>,
    pub floats: Vec<f64>,
}

impl ChainColumns {
    fn clear(&mut self) {
        self.times.clear();
        self.ints.clear();
        self.floats.clear();
    }
}

/// A sample as it comes.
struct ChainRow {
    time: Timestamp,
    value: Value,
    row: u32,
}

/// The samples of one series.
#[derive(Clone, Copy, Debug)]
struct Chain {
    series: SeriesId,
    samples: u32,
    /// The time in the last block's head; of a series with one sample that sample's.
    base: i64,
    /// The only sample, or where the blocks of several are: see [`ChainPlaces`].
    entry: ChainEntry,
}

/// Where the samples of a series are: numbers of entries over all pages.
#[derive(Clone, Copy, Debug)]
struct ChainPlaces {
    /// The first block.
    first: u32,
    /// The last block, the place of the next sample in it, and its end.
    block: u32,
    at: u32,
    end: u32,
}

impl Chain {
    fn places(&self) -> ChainPlaces {
        let ChainEntry { bits, offset, row } = self.entry;
        ChainPlaces { first: bits as u32, block: (bits >> 32) as u32, at: offset.cast_unsigned(), end: row }
    }

    /// For how many more samples the last block has room.
    #[inline]
    fn room(&self) -> usize {
        let (at, end) = (self.entry.offset.cast_unsigned(), self.entry.row);
        if self.samples == 1 { 0 } else { (end - at) as usize }
    }

    /// The next `samples` places of the last block, which has room for them, are taken.
    #[inline]
    fn take(&mut self, samples: u32) {
        if samples > 0 {
            self.entry.offset += samples.cast_signed();
            self.samples += samples;
        }
    }

    /// The place of the next sample, if the last block has room; it is taken then.
    #[inline]
    fn take_place(&mut self) -> Option<u32> {
        if self.samples == 1 { None } else { self.take_place_of_several() }
    }

    #[inline]
    fn take_place_of_several(&mut self) -> Option<u32> {
        let (at, end) = (self.entry.offset.cast_unsigned(), self.entry.row);
        if at >= end {
            return None;
        }
        self.entry.offset = (at + 1).cast_signed();
        self.samples += 1;
        Some(at)
    }

    fn set_places(&mut self, places: ChainPlaces) {
        let ChainPlaces { first, block, at, end } = places;
        let bits = u64::from(first) | u64::from(block) << 32;
        self.entry = ChainEntry { bits, offset: at.cast_signed(), row: end };
    }
}

#[derive(Debug, Default)]
pub struct Chains {
    /// By series, in pages: the number of its chain, from 1; 0 where it has none. A page of which none has one is empty, so
    /// that few series with high ids take little.
    places: Vec<Box<[u32]>>,
    chains: PagedTable<Chain>,
    /// Made as they come.
    pages: Vec<ChainPage>,
    /// Where pages come from, if there are any, and go to.
    spare: Option<Arc<SparePages>>,
}

impl Drop for Chains {
    fn drop(&mut self) {
        if let Some(spare) = &self.spare {
            spare.give(self.pages.drain(..));
        }
    }
}

impl Chains {
    pub fn with_spare(spare: Arc<SparePages>) -> Self {
        let mut chains = Self::default();
        chains.spare = Some(spare);
        chains
    }

    /// Adds samples, of which there are as many of each; their rows are counted from `row`, and grow from one call to the
    /// next.
    pub fn extend(&mut self, series: &[SeriesId], times: &[Timestamp], values: &[Value], row: u32) {
        let mut at = 0;
        loop {
            at += self.fill_blocks(&series[at..], &times[at..], &values[at..], row + at as u32);
            let (Some(series), Some(time), Some(value)) = (series.get(at), times.get(at), values.get(at)) else {
                return;
            };
            self.push(*series, *time, *value, row + at as u32);
            at += 1;
        }
    }

    /// Adds [`TICKS_AT_ONCE`] ticks, each with a sample of all `series` in their order: what [`Chains::extend`] does, but a
    /// chain is looked up once for all of them, and its samples are written side by side.
    ///
    /// # Panics
    /// If there are fewer times or values.
    pub fn extend_ticks(&mut self, series: &[SeriesId], times: &[Timestamp], values: &[Value], row: u32) {
        let samples = series.len();
        let times: [&[Timestamp]; TICKS_AT_ONCE] = std::array::from_fn(|tick| &times[tick * samples..][..samples]);
        let values: [&[Value]; TICKS_AT_ONCE] = std::array::from_fn(|tick| &values[tick * samples..][..samples]);
        for (at, series) in series.iter().enumerate() {
            let rows = std::array::from_fn(|tick| ChainRow {
                time: times[tick][at],
                value: values[tick][at],
                row: row + (tick * samples + at) as u32,
            });
            self.extend_chain(*series, &rows);
        }
    }

    /// Adds samples of one series.
    #[inline]
    fn extend_chain(&mut self, series: SeriesId, rows: &[ChainRow; TICKS_AT_ONCE]) {
        let mut at = self.fill_block(series, rows);
        while let Some(first) = rows.get(at) {
            self.push(series, first.time, first.value, first.row);
            at += 1;
            at += self.fill_block(series, &rows[at..]);
        }
    }

    /// Adds samples of one series as long as its last block has room and begins at a time that is near; gives back how
    /// many these are.
    #[inline]
    fn fill_block(&mut self, series: SeriesId, rows: &[ChainRow]) -> usize {
        let number = self.place(series);
        let Self { chains, pages, .. } = self;
        let Some(chain) = chains.get_mut(number.wrapping_sub(1) as usize) else { return 0 };
        let room = chain.room();
        let (page, place) = split(chain.entry.offset.cast_unsigned());
        let free = if room == 0 { &mut [][..] } else { &mut pages[page].0[place..][..room] };
        let mut filled = 0;
        for (entry, ChainRow { time, value, row }) in free.iter_mut().zip(rows) {
            let Some(Ok(offset)) = time.micros().checked_sub(chain.base).map(i32::try_from) else { break };
            *entry = ChainEntry { bits: value.to_bits(), offset, row: row | int_bit(*value) };
            filled += 1;
        }
        chain.take(filled);
        filled as usize
    }

    /// Adds samples as long as the last blocks of their series have room and begin at a time that is near; gives back how
    /// many these are. Nothing is made meanwhile, so that what is looked up stays where it is.
    fn fill_blocks(&mut self, series: &[SeriesId], times: &[Timestamp], values: &[Value], first_row: u32) -> usize {
        let Self { places, chains, pages, .. } = self;
        let (places, pages) = (&places[..], &mut pages[..]);
        for (at, ((series, time), value)) in series.iter().zip(times).zip(values).enumerate() {
            let (page, place) = split_place(*series);
            let Some(number) = places.get(page).and_then(|page| page.get(place)) else { return at };
            let Some(chain) = chains.get_mut(number.wrapping_sub(1) as usize) else { return at };
            let Some(Ok(offset)) = time.micros().checked_sub(chain.base).map(i32::try_from) else { return at };
            let Some(place) = chain.take_place() else { return at };
            let (page, place) = split(place);
            let row = (first_row + at as u32) | int_bit(*value);
            pages[page].0[place] = ChainEntry { bits: value.to_bits(), offset, row };
        }
        times.len()
    }

    /// The first or second sample of a series, one that needs a new block, or one that is far from those before.
    #[inline(never)]
    fn push(&mut self, series: SeriesId, time: Timestamp, value: Value, row: u32) {
        let entry = ChainEntry { bits: value.to_bits(), offset: 0, row: row | int_bit(value) };
        let at = match self.place(series).checked_sub(1) {
            Some(at) => at as usize,
            None => return self.start(Chain { series, samples: 1, base: time.micros(), entry }),
        };
        let mut chain = self.chains[at];
        let offset = time.micros().checked_sub(chain.base).and_then(|offset| i32::try_from(offset).ok());
        if chain.samples == 1 {
            // From now on it is a head with several entries.
            let block = self.cut(BLOCK_FIRST);
            let (page, head) = split(block);
            self.pages[page].0[head] = ChainEntry::head(chain.base);
            self.pages[page].0[head + 1] = chain.entry;
            chain.set_places(ChainPlaces { first: block, block, at: block + 2, end: block + BLOCK_FIRST });
        }
        let places = chain.places();
        let offset = match offset {
            Some(offset) if places.at < places.end => offset,
            fits => {
                chain.set_places(self.open_block(places, time.micros(), fits.is_some()));
                chain.base = time.micros();
                0
            }
        };
        // There is one: of a new block, or of the first.
        if let Some(place) = chain.take_place_of_several() {
            let (page, place) = split(place);
            self.pages[page].0[place] = ChainEntry { offset, ..entry };
        }
        self.chains[at] = chain;
    }

    /// Memory that samples take.
    pub fn bytes(&self) -> u64 {
        let entries: usize = match self.pages.split_last() {
            Some((last, full)) => full.len() * PAGE_ROOM + last.0.len(),
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

    /// The samples of `series` below row `rows`, in their order, if all are of one type; false, and some of them, if not.
    pub fn fill(&self, series: SeriesId, rows: u32, columns: &mut ChainColumns) -> bool {
        columns.clear();
        let mut walk = self.of(series, rows);
        let mut has_block = !walk.entries.is_empty() || walk.advance().is_some();
        while has_block {
            let (base, block) = (walk.base, std::mem::take(&mut walk.entries));
            // The head of the next block is asked for before these samples are copied: each block lies somewhere else, and
            // who waits for one after the other waits most of the time.
            has_block = walk.advance().is_some();
            let is_seen = |entry: &ChainEntry| entry.row & !INT_BIT < rows;
            // Rows ascend. Mostly all are seen, and they are read in the order in which they lie.
            let seen = if block.last().is_some_and(is_seen) { block.len() } else { block.partition_point(is_seen) };
            let entries = &block[..seen];
            columns.times.extend(entries.iter().map(|entry| base + i64::from(entry.offset)));
            let ints = entries.iter().filter(|entry| entry.row & INT_BIT != 0).count();
            if ints == 0 {
                columns.floats.extend(entries.iter().map(|entry| f64::from_bits(entry.bits)));
            } else if ints == entries.len() {
                columns.ints.extend(entries.iter().map(|entry| entry.bits.cast_signed()));
            } else {
                return false;
            }
            if seen < block.len() {
                break;
            }
        }
        columns.ints.is_empty() || columns.floats.is_empty()
    }

    /// Brings the first blocks of `series` near, of which each is then read by [`Chains::fill`]. A step to the next block of a
    /// chain waits for memory; here the steps of all these chains wait at the same time.
    pub fn bring_near(&self, series: &[SeriesId]) {
        let several = |id: &SeriesId| self.chain(*id).filter(|chain| chain.samples > 1);
        let mut chains: Vec<(u32, u32)> = series
            .iter()
            .filter_map(several)
            .map(|chain| chain.places())
            .map(|places| (places.first, places.block))
            .collect();
        let mut seen = 0;
        for _ in 0..BLOCKS_NEAR {
            chains.retain_mut(|(block, last)| {
                let (page, at) = split(*block);
                let page = &self.pages[page].0;
                let head = page[at];
                let is_last = block == last;
                let end = if is_last { at + 1 } else { at + 1 + head.row as usize };
                seen ^= page[at..end].iter().step_by(LINE).fold(0, |seen, entry| seen ^ entry.row);
                *block = head.offset.cast_unsigned();
                !is_last
            });
        }
        // Else the compiler finds that nobody wants to know.
        std::hint::black_box(seen);
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
        self.chains.get(self.place(series).checked_sub(1)? as usize)
    }

    #[inline]
    fn place(&self, series: SeriesId) -> u32 {
        let (page, at) = split_place(series);
        self.places.get(page).and_then(|page| page.get(at)).copied().unwrap_or(0)
    }

    /// Adds the chain of a series that has none yet.
    fn start(&mut self, chain: Chain) {
        self.chains.push(chain);
        // There are no more chains than rows.
        *place(&mut self.places, chain.series) = self.chains.len() as u32;
    }

    /// Gives a chain room for a sample at `base`; `full` tells that there was none, rather than that the time is far from
    /// the others.
    fn open_block(&mut self, before: ChainPlaces, base: i64, full: bool) -> ChainPlaces {
        let size = if full { (2 * (before.end - before.block)).min(BLOCK_MAX) } else { BLOCK_MIN };
        let block = self.cut(size);
        let (page, head) = split(block);
        self.pages[page].0[head] = ChainEntry::head(base);
        let (page, head) = split(before.block);
        let head = &mut self.pages[page].0[head];
        head.offset = block.cast_signed();
        head.row = before.at - before.block - 1;
        ChainPlaces { first: before.first, block, at: block + 1, end: block + size }
    }

    /// A new block of `size` entries.
    fn cut(&mut self, size: u32) -> u32 {
        let has_room = self.pages.last().is_some_and(|page| page.0.len() + size as usize <= PAGE_ROOM);
        if !has_room {
            let spare = self.spare.as_ref().and_then(|spare| spare.take());
            self.pages.push(spare.unwrap_or_else(ChainPage::new));
        }
        let number = self.pages.len() - 1;
        let page = &mut self.pages[number].0;
        let start = page.len();
        page.extend_from_slice(&EMPTY[..size as usize]);
        // See ROWS_MAX.
        (number * PAGE + start) as u32
    }
}

fn int_bit(value: Value) -> u32 {
    if value.is_int() { INT_BIT } else { 0 }
}

/// The page of an entry and its place there.
fn split(at: u32) -> (usize, usize) {
    (at as usize / PAGE, at as usize % PAGE)
}

/// The page of a series' place and where it is there.
fn split_place(series: SeriesId) -> (usize, usize) {
    (series.0 as usize / PLACES_PAGE, series.0 as usize % PLACES_PAGE)
}

/// The place of `series`, with room made for it.
fn place(places: &mut Vec<Box<[u32]>>, series: SeriesId) -> &mut u32 {
    let (page, at) = split_place(series);
    if page >= places.len() {
        places.resize_with(page + 1, Box::default);
    }
    let page = &mut places[page];
    if page.is_empty() {
        *page = vec![0; PLACES_PAGE].into();
    }
    &mut page[at]
}

/// Goes through samples of a series.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    pages: &'a [ChainPage],
    /// Samples of this block that are left.
    entries: &'a [ChainEntry],
    base: i64,
    /// The block after this one; `None` in the last.
    next: Option<u32>,
    /// The last block, and the place behind its last sample.
    last: (u32, u32),
    rows: u32,
}

impl<'a> Walk<'a> {
    fn new(pages: &'a [ChainPage], chain: Option<&'a Chain>, rows: u32) -> Self {
        let none = Self { pages, entries: &[], base: 0, next: None, last: (0, 0), rows };
        match chain {
            None => none,
            Some(chain) if chain.samples == 1 => {
                Self { entries: std::slice::from_ref(&chain.entry), base: chain.base, ..none }
            }
            Some(chain) => {
                let places = chain.places();
                Self { next: Some(places.first), last: (places.block, places.at), ..none }
            }
        }
    }

    /// Goes on with the next block.
    fn advance(&mut self) -> Option<()> {
        let (block, (last, end)) = (self.next?, self.last);
        let (page, at) = split(block);
        let page: &'a [ChainEntry] = &self.pages[page].0;
        let head = page[at];
        self.base = head.bits.cast_signed();
        let samples = if block == last { end - block - 1 } else { head.row };
        self.next = (block != last).then_some(head.offset.cast_unsigned());
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
