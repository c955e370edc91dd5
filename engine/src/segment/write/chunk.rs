//! One column of a row group: its pages, packed, and what Parquet's footer and page indexes say of them.
//!
//! Parquet's own writers pass values through several layers and keep a compressor for each column. Here a page is
//! encoded at once, and all columns of all segments of a thread share a compressor. Times and floats come out as Parquet
//! writes them. Where pages of the others end, and their dictionaries, are ours: what is read of them is the same.

use std::cell::RefCell;
use std::hash::Hash;

use ahash::AHashMap;
use parquet::basic::{BoundaryOrder, Compression, Encoding, PageType, Type, ZstdLevel};
use parquet::data_type::AsBytes;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::file::ClosedChunk;
use super::packing::Packing;
use super::presence::RowPresence;
use super::{internal, no_room};
use crate::error::Result;
use crate::segment::varint;

/// Bytes that zstd packs at once, at most.
const ZSTD_BLOCK: usize = 128 << 10;
/// Room of a thread that is kept for the next page.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static PACKING: RefCell<PackingRoom> = RefCell::default();
}

/// What each page needs, made once a thread.
#[derive(Default)]
struct PackingRoom {
    compressor: Option<(Packing, Compressor<'static>)>,
    levels: Vec<u8>,
    values: Vec<u8>,
    packed: Vec<u8>,
    /// Values and packed values in another encoding.
    other: (Vec<u8>, Vec<u8>),
}

impl PackingRoom {
    /// Levels and encoded values of a page.
    fn fill<T>(&mut self, presence: Option<&RowPresence>, values: &[T], encode: impl FnOnce(&[T], &mut Vec<u8>)) {
        self.levels.clear();
        self.values.clear();
        self.packed.clear();
        if let Some(presence) = presence {
            presence.encode(&mut self.levels);
        }
        encode(values, &mut self.values);
    }

    fn pack(&mut self, packing: Packing) -> Result<()> {
        self.packed.reserve(zstd::zstd_safe::compress_bound(self.values.len()));
        let compressor = made(&mut self.compressor, packing)?;
        compressor.compress_to_buffer(&self.values, &mut self.packed).map_err(no_room)?;
        Ok(())
    }

    /// Whether the values take no more than `bytes_max`, packed or not. A block at the end that has less room than it
    /// might take would be packed in another way, so there is a block more room.
    fn pack_within(&mut self, bytes_max: usize, packing: Packing) -> Result<bool> {
        if self.values.len() <= bytes_max {
            return self.pack(packing).map(|()| true);
        }
        let room = bytes_max + zstd::zstd_safe::compress_bound(ZSTD_BLOCK);
        self.packed.resize(room.min(zstd::zstd_safe::compress_bound(self.values.len())), 0);
        let compressor = made(&mut self.compressor, packing)?;
        // It fails where there is no room.
        let len = compressor.compress_to_buffer(&self.values, &mut self.packed[..]).unwrap_or(usize::MAX);
        self.packed.truncate(len);
        Ok(len <= bytes_max)
    }

    /// What the values take.
    fn len(&self) -> usize {
        self.values.len().min(self.packed.len())
    }

    /// Encodes the values in another way, too, where the compressor made much of the first one: then it is likely to
    /// make more of bytes that it can see through. Keeps what is shorter.
    fn try_other<T>(&mut self, values: &[T], packing: Packing, encode: impl FnOnce(&[T], &mut Vec<u8>)) -> Result<()> {
        if self.packed.len() > self.values.len() / 2 {
            return Ok(());
        }
        let len = self.len();
        self.swap_other();
        self.values.clear();
        self.packed.clear();
        encode(values, &mut self.values);
        self.pack(packing)?;
        if self.len() >= len {
            self.swap_other();
        }
        Ok(())
    }

    fn swap_other(&mut self) {
        std::mem::swap(&mut self.values, &mut self.other.0);
        std::mem::swap(&mut self.packed, &mut self.other.1);
    }

    /// What is in it could not be given back.
    fn clear(&mut self) {
        for room in [&mut self.values, &mut self.packed, &mut self.other.0, &mut self.other.1] {
            room.clear();
            room.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

/// The compressor, which is made for the first page that is packed so.
fn made<'a>(
    compressor: &'a mut Option<(Packing, Compressor<'static>)>,
    packing: Packing,
) -> Result<&'a mut Compressor<'static>> {
    compressor.take_if(|(made_for, _)| *made_for != packing);
    Ok(match compressor {
        Some((_, compressor)) => compressor,
        none => &mut none.insert((packing, Compressor::new(packing.level()).map_err(no_room)?)).1,
    })
}

/// Gives back what this thread keeps for dense packing, some MB, since merges are far apart.
pub fn forget_dense() {
    PACKING.with_borrow_mut(|room| room.compressor.take_if(|(packing, _)| *packing == Packing::Dense));
}

/// Appends values to bytes, as a page has them.
pub type PageEncoder<T> = fn(&[T], &mut Vec<u8>);

/// Numbers of a column, and the least and the greatest of them as Parquet wants these.
pub trait ColumnNumber: Copy + PartialOrd + AsBytes {
    const TYPE: Type;

    /// `None` if there is none but NaN.
    fn bounds(values: &[Self]) -> Option<(Self, Self)>;

    fn statistics(bounds: Option<(Self, Self)>, absent: u64) -> Statistics;
}

/// The pages of a column so far.
pub struct ColumnChunk<T> {
    column: ColumnDescPtr,
    encoding: Encoding,
    packing: Packing,
    /// Headers and pages.
    bytes: Vec<u8>,
    /// What these would be unpacked.
    unpacked: usize,
    /// Where the first page begins behind a dictionary.
    dictionary: Option<usize>,
    pages: usize,
    rows: usize,
    absent: usize,
    bounds: Option<(T, T)>,
    /// Of the last page that has any.
    bounds_before: Option<(T, T)>,
    ascending: bool,
    descending: bool,
    index: ColumnIndexBuilder,
    places: OffsetIndexBuilder,
}

impl<T: ColumnNumber> ColumnChunk<T> {
    pub fn new(column: ColumnDescPtr, encoding: Encoding, packing: Packing) -> Self {
        Self {
            column,
            encoding,
            packing,
            bytes: Vec::new(),
            unpacked: 0,
            dictionary: None,
            pages: 0,
            rows: 0,
            absent: 0,
            bounds: None,
            bounds_before: None,
            ascending: true,
            descending: true,
            index: ColumnIndexBuilder::new(T::TYPE),
            places: OffsetIndexBuilder::new(),
        }
    }

    /// Bytes of all pages.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a page of `rows`, of which those that are present have `values`; `None` where all must have one. `encode`
    /// appends all values to bytes.
    ///
    /// # Errors
    /// Internal when zstd fails.
    pub fn add_page(
        &mut self,
        rows: usize,
        presence: Option<&RowPresence>,
        values: &[T],
        encode: impl FnOnce(&[T], &mut Vec<u8>),
    ) -> Result<()> {
        PACKING.with_borrow_mut(|room| {
            room.fill(presence, values, encode);
            room.pack(self.packing)?;
            self.add(room, rows, values.len(), T::bounds(values));
            Ok(())
        })
    }

    /// The same with values that can be encoded in two ways: where packing is worth work, the shorter one is taken.
    ///
    /// # Errors
    /// Internal when zstd fails.
    pub fn add_page_of(
        &mut self,
        rows: usize,
        presence: Option<&RowPresence>,
        values: &[T],
        [encode, other]: [PageEncoder<T>; 2],
    ) -> Result<()> {
        PACKING.with_borrow_mut(|room| {
            room.fill(presence, values, encode);
            room.pack(self.packing)?;
            if self.packing == Packing::Dense {
                room.try_other(values, self.packing, other)?;
            }
            self.add(room, rows, values.len(), T::bounds(values));
            Ok(())
        })
    }

    /// [`ColumnChunk::add_page`] with a value in each row, unless the page would take more than `bytes_max`: then packing
    /// ends as soon as that is known, false comes back, and nothing is added. `encode` appends the encoded values, of which
    /// `bounds` are the least and the greatest.
    ///
    /// # Errors
    /// Internal when zstd cannot be used.
    pub fn add_page_within(
        &mut self,
        bytes_max: usize,
        rows: usize,
        bounds: (T, T),
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool> {
        PACKING.with_borrow_mut(|room| {
            room.fill(None, &[], |_: &[T], bytes| encode(bytes));
            let is_within = room.pack_within(bytes_max, self.packing)?;
            if is_within {
                self.add(room, rows, rows, Some(bounds));
            } else {
                room.clear();
            }
            Ok(is_within)
        })
    }

    /// Adds all rows in one page: values that stay the same for many of the rows that have one, as a dictionary of them
    /// and how often each comes. There is one at least.
    ///
    /// # Errors
    /// Internal when zstd fails.
    pub fn add_stretches(&mut self, rows: usize, presence: Option<&RowPresence>, stretches: &[(T, usize)]) -> Result<()>
    where
        T: Ord + Hash,
    {
        let mut places: AHashMap<T, u32> = AHashMap::new();
        let mut values: Vec<T> = Vec::new();
        let mut numbered: Vec<(u32, usize)> = Vec::with_capacity(stretches.len());
        for (value, count) in stretches {
            let place = *places.entry(*value).or_insert_with(|| {
                values.push(*value);
                values.len() as u32 - 1
            });
            numbered.push((place, *count));
        }
        let present = stretches.iter().map(|(_, count)| count).sum();
        PACKING.with_borrow_mut(|room| {
            room.fill(None, &values, |values, bytes| values.iter().for_each(|value| bytes.extend(value.as_bytes())));
            room.pack(self.packing)?;
            put_dictionary_header(values.len(), &room.values, &room.packed, &mut self.bytes);
            self.unpacked += self.bytes.len() + room.values.len();
            self.bytes.extend_from_slice(&room.packed);
            self.dictionary = Some(self.bytes.len());
            let width = u32::BITS - (values.len() as u32 - 1).leading_zeros();
            room.fill(presence, &numbered, |stretches, bytes| put_stretches(stretches, width, bytes));
            room.pack(self.packing)?;
            self.add(room, rows, present, T::bounds(&values));
            Ok(())
        })
    }

    /// Adds what was packed.
    fn add(&mut self, room: &mut PackingRoom, rows: usize, present: usize, bounds: Option<(T, T)>) {
        let PackingRoom { levels, values: encoded, packed, .. } = room;
        let is_packed = packed.len() < levels.len() + encoded.len();
        let page = PageParts { rows, absent: rows - present, levels, encoded, packed: is_packed.then_some(packed) };
        self.note(&page, bounds);
        self.put(&page);
        room.clear();
    }

    /// For the page index.
    fn note(&mut self, page: &PageParts<'_>, bounds: Option<(T, T)>) {
        if page.absent == page.rows {
            self.index.append(true, Vec::new(), Vec::new(), page.absent as i64);
        } else if let Some((least, greatest)) = bounds {
            if let Some((least_before, greatest_before)) = self.bounds_before {
                self.ascending &= !(least_before > least || greatest_before > greatest);
                self.descending &= !(least > least_before || greatest > greatest_before);
            }
            self.bounds_before = bounds;
            let [least, greatest] = [least, greatest].map(|bound| bound.as_bytes().to_vec());
            self.index.append(false, least, greatest, page.absent as i64);
        } else {
            self.index.to_invalid();
        }
        self.bounds = match (self.bounds, bounds) {
            (Some((least, greatest)), Some((low, high))) => {
                Some((if least > low { low } else { least }, if high > greatest { high } else { greatest }))
            }
            (before, here) => before.or(here),
        };
        self.index.append_histograms(&None, &self.histogram(page.rows, page.absent));
    }

    /// How many rows have which level, in a column where that may differ.
    fn histogram(&self, rows: usize, absent: usize) -> Option<LevelHistogram> {
        let mut levels = LevelHistogram::try_new(self.column.max_def_level())?;
        levels.increment_by(0, absent as i64);
        levels.increment_by(1, (rows - absent) as i64);
        Some(levels)
    }

    fn put(&mut self, page: &PageParts<'_>) {
        let start = self.bytes.len();
        let encoding = if self.dictionary.is_some() { Encoding::RLE_DICTIONARY } else { self.encoding };
        page.put_header(encoding, &mut self.bytes);
        self.unpacked += self.bytes.len() - start + page.levels.len() + page.encoded.len();
        self.bytes.extend_from_slice(page.levels);
        self.bytes.extend_from_slice(page.values());
        self.places.append_row_count(page.rows as i64);
        self.places.append_offset_and_size(start as i64, (self.bytes.len() - start) as i32);
        self.pages += 1;
        self.rows += page.rows;
        self.absent += page.absent;
    }

    /// What the footer and the page indexes say of it.
    ///
    /// # Errors
    /// Internal when Parquet refuses it.
    pub fn close(mut self) -> Result<ClosedChunk> {
        self.index.set_boundary_order(match (self.ascending, self.descending) {
            (true, _) => BoundaryOrder::ASCENDING,
            (false, true) => BoundaryOrder::DESCENDING,
            (false, false) => BoundaryOrder::UNORDERED,
        });
        let of_pages = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let (encodings, pages) = match self.dictionary {
            None => {
                let pages = of_pages(PageType::DATA_PAGE_V2, self.encoding, self.pages as i32);
                (vec![Encoding::RLE, self.encoding], vec![pages])
            }
            Some(_) => {
                let of_dictionary = of_pages(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1);
                let pages = of_pages(PageType::DATA_PAGE_V2, Encoding::RLE_DICTIONARY, self.pages as i32);
                (vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY], vec![of_dictionary, pages])
            }
        };
        let zstd = Compression::ZSTD(ZstdLevel::try_new(self.packing.level()).map_err(internal)?);
        let metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(zstd)
            .set_encodings(encodings)
            .set_page_encoding_stats(pages)
            .set_total_compressed_size(self.bytes.len() as i64)
            .set_total_uncompressed_size(self.unpacked as i64)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(self.dictionary.map(|_| 0))
            .set_data_page_offset(self.dictionary.unwrap_or(0) as i64)
            .set_statistics(T::statistics(self.bounds, self.absent as u64))
            .set_definition_level_histogram(self.histogram(self.rows, self.absent))
            .build()
            .map_err(internal)?;
        let column_index =
            if self.index.valid() { self.index.build().map_err(internal)? } else { ColumnIndexMetaData::NONE };
        Ok(ClosedChunk { bytes: self.bytes, metadata, column_index, offset_index: self.places.build() })
    }
}

struct PageParts<'a> {
    rows: usize,
    absent: usize,
    levels: &'a [u8],
    encoded: &'a [u8],
    /// The same values, unless that is no shorter.
    packed: Option<&'a [u8]>,
}

impl PageParts<'_> {
    fn values(&self) -> &[u8] {
        self.packed.unwrap_or(self.encoded)
    }

    fn put_header(&self, encoding: Encoding, bytes: &mut Vec<u8>) {
        const DATA_PAGE: usize = 3;
        let levels = self.levels.len();
        thrift_ints(bytes, &[DATA_PAGE, levels + self.encoded.len(), levels + self.values().len()]);
        bytes.push(thrift::EIGHTH_AFTER_THIRD);
        // No column has lists: there are no levels of repetition.
        thrift_ints(bytes, &[self.rows, self.absent, self.rows, encoding as usize, levels, 0]);
        bytes.push(if self.packed.is_some() { thrift::NEXT_TRUE } else { thrift::NEXT_FALSE });
        bytes.extend_from_slice(&[0, 0]);
    }
}

/// Of a page that lists `count` values, one after the other.
fn put_dictionary_header(count: usize, encoded: &[u8], packed: &[u8], bytes: &mut Vec<u8>) {
    const DICTIONARY_PAGE: usize = 2;
    thrift_ints(bytes, &[DICTIONARY_PAGE, encoded.len(), packed.len()]);
    bytes.push(thrift::SEVENTH_AFTER_THIRD);
    thrift_ints(bytes, &[count, Encoding::PLAIN as usize]);
    bytes.extend_from_slice(&[0, 0]);
}

/// Places in a dictionary, of `width` bits each, and how often each comes.
fn put_stretches(stretches: &[(u32, usize)], width: u32, bytes: &mut Vec<u8>) {
    bytes.push(width as u8);
    for (place, count) in stretches {
        varint::put(bytes, (*count as u64) << 1);
        bytes.extend_from_slice(&place.to_le_bytes()[..width.div_ceil(8) as usize]);
    }
}

/// Headers as Thrift's compact protocol writes them: each field is how far its number is from that of the one before,
/// its type, and its value; a 0 ends a structure.
mod thrift {
    pub const NEXT_INT: u8 = 0x15;
    pub const NEXT_TRUE: u8 = 0x11;
    pub const NEXT_FALSE: u8 = 0x12;
    /// From the third field, the bytes of the page, to what is said of a dictionary.
    pub const SEVENTH_AFTER_THIRD: u8 = 0x4c;
    /// The same, to what is said of a data page.
    pub const EIGHTH_AFTER_THIRD: u8 = 0x5c;
}

fn thrift_ints(bytes: &mut Vec<u8>, ints: &[usize]) {
    for int in ints {
        bytes.push(thrift::NEXT_INT);
        varint::put_signed(bytes, *int as i64);
    }
}

fn bounds_of<T: ColumnNumber + Ord>(values: &[T]) -> Option<(T, T)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(least, greatest), value| (least.min(*value), greatest.max(*value))))
}

fn statistics_of<T>(bounds: Option<(T, T)>, absent: u64) -> ValueStatistics<T> {
    let (least, greatest) = bounds.unzip();
    ValueStatistics::new(least, greatest, None, Some(absent), false)
}

impl ColumnNumber for u32 {
    const TYPE: Type = Type::INT32;

    fn bounds(values: &[Self]) -> Option<(Self, Self)> {
        bounds_of(values)
    }

    fn statistics(bounds: Option<(Self, Self)>, absent: u64) -> Statistics {
        let bounds = bounds.map(|(least, greatest)| (least.cast_signed(), greatest.cast_signed()));
        // What reads the fields of old compares them as signed numbers.
        Statistics::Int32(statistics_of(bounds, absent))
    }
}

impl ColumnNumber for i32 {
    const TYPE: Type = Type::INT32;

    fn bounds(values: &[Self]) -> Option<(Self, Self)> {
        bounds_of(values)
    }

    fn statistics(bounds: Option<(Self, Self)>, absent: u64) -> Statistics {
        Statistics::Int32(statistics_of(bounds, absent).with_backwards_compatible_min_max(true))
    }
}

impl ColumnNumber for i64 {
    const TYPE: Type = Type::INT64;

    fn bounds(values: &[Self]) -> Option<(Self, Self)> {
        bounds_of(values)
    }

    fn statistics(bounds: Option<(Self, Self)>, absent: u64) -> Statistics {
        Statistics::Int64(statistics_of(bounds, absent).with_backwards_compatible_min_max(true))
    }
}

impl ColumnNumber for f64 {
    const TYPE: Type = Type::DOUBLE;

    /// Of zeros the least is -0.0 and the greatest 0.0, as Parquet wants it.
    fn bounds(values: &[Self]) -> Option<(Self, Self)> {
        let first = *values.iter().find(|value| !value.is_nan())?;
        let (mut least, mut greatest) = (first, first);
        for value in values {
            if *value < least {
                least = *value;
            }
            if *value > greatest {
                greatest = *value;
            }
        }
        Some((if least == 0.0 { -0.0 } else { least }, if greatest == 0.0 { 0.0 } else { greatest }))
    }

    fn statistics(bounds: Option<(Self, Self)>, absent: u64) -> Statistics {
        Statistics::Double(statistics_of(bounds, absent).with_backwards_compatible_min_max(true))
    }
}
