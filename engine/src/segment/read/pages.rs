//! Reads the numbers of one column directly from its pages.
//!
//! A query over many databases reads a few rows of each of thousands of files, so the cost of starting a read counts as
//! much as the read itself. Parquet's own readers allocate their decoders anew for each column that they open, hundreds
//! of KiB that must be cleared, and build an Arrow array for each stretch. Here Parquet hands out the pages compressed,
//! decoders kept by each thread decompress them, and the numbers are passed on without a copy. Pages of integers, none
//! of them absent, are decoded here too, from near the first row that is wanted ([`DeltaPage`]), and kept for the next
//! question.

use std::cell::RefCell;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

use super::{LoadedSegment, unreadable};
use crate::error::Result;
use crate::guarded::guarded;
use crate::segment::blocks::{Blocks, ReadAhead};
use crate::segment::corrupt;
use crate::segment::delta::{self, DeltaPage};
use crate::segment::index::UNPACKED_PER_BYTE_MAX;

/// Rows decoded at a time: of a column without gaps they stay in a near cache.
const BATCH_ROWS: usize = 16 << 10;

thread_local! {
    /// Made once a thread: a fresh one is larger than most pages.
    static UNPACKING: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl LoadedSegment {
    /// Hands out the integers of one column in each of `ranges` (rows, sorted, apart, none empty), where none may be
    /// absent: the place of the range, from where in it, and these.
    pub(super) fn each_int(
        &self,
        name: &str,
        ranges: &[Range<usize>],
        take: &mut impl FnMut(usize, usize, &[i64]),
    ) -> Result<()> {
        let mut buffer = Vec::new();
        self.each(ranges, take, |place, stretches, take| {
            let mut column = IntColumn::open(self, place, name)?;
            stretches.iter().try_for_each(|stretch| column.read(stretch.clone(), &mut buffer, take))
        })
    }

    /// As [`LoadedSegment::each_int`], of floats.
    pub(super) fn each_float(
        &self,
        name: &str,
        ranges: &[Range<usize>],
        take: &mut impl FnMut(usize, usize, &[f64]),
    ) -> Result<()> {
        self.each(ranges, take, |place, stretches, take| {
            let mut column = PageColumn::<DoubleType>::open(&self.path, &self.blocks, place, name)?;
            stretches.iter().try_for_each(|stretch| column.read(stretch.clone(), take))
        })
    }

    /// Has `read` hand out, row group by row group, what is in `ranges` of it.
    fn each<T>(
        &self,
        ranges: &[Range<usize>],
        take: &mut impl FnMut(usize, usize, &[T]),
        mut read: impl FnMut(GroupPlace<'_>, &[Range<usize>], &mut dyn FnMut(&[T])) -> Result<()>,
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let footer = self.footer()?.metadata();
        let rows = usize::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        if ranges.last().is_some_and(|range| range.end > rows) {
            return Err(corrupt(&self.path, "its rows", rows.to_string(), "those of its run index"));
        }
        let mut sharing = ValueSplit { ranges, at: 0, from: 0 };
        let stretches = joined(ranges);
        let mut first = 0;
        for (at, group) in footer.row_groups().iter().enumerate() {
            let end = first + usize::try_from(group.num_rows()).unwrap_or(0).min(rows - first);
            let from = stretches.partition_point(|stretch| stretch.end <= first);
            let until = stretches.partition_point(|stretch| stretch.start < end);
            if from < until {
                let within = |stretch: &Range<usize>| stretch.start.max(first) - first..stretch.end.min(end) - first;
                let within: Vec<Range<usize>> = stretches[from..until].iter().map(within).collect();
                read(GroupPlace { footer, at, group }, &within, &mut |values| sharing.hand_out(values, take))?;
            }
            first = end;
        }
        if sharing.at < ranges.len() {
            let found = format!("{} of the runs asked for", sharing.at);
            return Err(corrupt(&self.path, "its rows", found, "all"));
        }
        Ok(())
    }
}

impl LoadedSegment {
    /// Checks that each page has the rows that the page index says, by which a reader skips pages. No checksum of the
    /// file's own covers that index.
    ///
    /// # Errors
    /// Io; Corrupt with the first page that has others.
    pub fn verify_pages(&self) -> Result<()> {
        let footer = self.footer()?.metadata();
        for (at, group) in footer.row_groups().iter().enumerate() {
            let place = GroupPlace { footer, at, group };
            for column in footer.file_metadata().schema_descr().columns() {
                let name = column.path().string();
                let (column, locations) = place.column(&self.path, &name)?;
                let expected: Vec<i64> = locations.iter().map(|location| location.first_row_index).collect();
                let firsts = guarded(&self.path, || {
                    first_rows(&self.blocks, group, column).map_err(|error| unreadable(&self.path, &error))
                })?;
                if firsts != expected {
                    let what = format!("the page index of column `{name}` in row group {at}");
                    let found = format!("pages that begin at the rows {expected:?}");
                    return Err(corrupt(&self.path, &what, found, &format!("{firsts:?}, as the pages say")));
                }
            }
        }
        Ok(())
    }
}

/// The first row of each page of a column, as the pages themselves say.
fn first_rows(blocks: &Blocks, group: &RowGroupMetaData, column: usize) -> ParquetResult<Vec<i64>> {
    let rows = usize::try_from(group.num_rows())?;
    let mut pages = SerializedPageReader::new(Arc::new(blocks.clone()), group.column(column), rows, None)?;
    let mut firsts = Vec::new();
    let mut first = 0;
    while let Some(page) = pages.peek_next_page()? {
        if !page.is_dict {
            firsts.push(i64::try_from(first)?);
            first += page.num_rows.ok_or_else(|| ParquetError::General("a data page without its rows".to_owned()))?;
        }
        pages.skip_next_page()?;
    }
    if first != rows {
        return Err(ParquetError::General(format!("pages of {first} rows in a row group of {rows}")));
    }
    Ok(firsts)
}

/// A row group and its place.
#[derive(Clone, Copy)]
struct GroupPlace<'a> {
    footer: &'a ParquetMetaData,
    at: usize,
    group: &'a RowGroupMetaData,
}

impl<'a> GroupPlace<'a> {
    /// The place of a column, and where its pages are.
    fn column(self, path: &Path, name: &str) -> Result<(usize, &'a [PageLocation])> {
        let schema = self.footer.file_metadata().schema_descr();
        let place = schema.columns().iter().position(|column| column.path().string() == name);
        let place = place.ok_or_else(|| corrupt(path, "its columns", format!("no `{name}`"), "one"))?;
        let pages = self.footer.offset_index().and_then(|groups| groups.get(self.at)?.get(place));
        Ok((place, pages.map_or(&[], |pages| pages.page_locations())))
    }
}

/// One column of integers of a row group: what it has not as telem writes it, Parquet's reader reads.
struct IntColumn<'a> {
    loaded: &'a LoadedSegment,
    name: &'a str,
    place: GroupPlace<'a>,
    column: usize,
    locations: &'a [PageLocation],
    /// And which of them comes next; opened when one is to be unpacked.
    pages: Option<(Pages, usize)>,
    other: Option<PageColumn<'a, Int64Type>>,
}

impl<'a> IntColumn<'a> {
    fn open(loaded: &'a LoadedSegment, place: GroupPlace<'a>, name: &'a str) -> Result<Self> {
        let (column, locations) = place.column(&loaded.path, name)?;
        Ok(Self { loaded, name, place, column, locations, pages: None, other: None })
    }

    /// As [`PageColumn::read`].
    fn read(
        &mut self,
        rows: Range<usize>,
        buffer: &mut Vec<i64>,
        take: &mut (impl FnMut(&[i64]) + ?Sized),
    ) -> Result<()> {
        let mut row = rows.start;
        while row < rows.end {
            let (at, of_page) = self.page_of(row);
            let wanted = row..rows.end.min(of_page.end);
            match self.page(at, of_page.len(), rows.end)? {
                Some(page) => {
                    let within = wanted.start - of_page.start..wanted.end - of_page.start;
                    page.read(within, buffer, &mut |values| take(values)).map_err(|delta::Torn| {
                        let what = format!("a page of column `{}`", self.name);
                        corrupt(&self.loaded.path, &what, "an end within a block".to_owned(), "packed differences")
                    })?;
                }
                None => {
                    let other = match &mut self.other {
                        Some(other) => other,
                        none => none.insert(PageColumn::open(
                            &self.loaded.path,
                            &self.loaded.blocks,
                            self.place,
                            self.name,
                        )?),
                    };
                    other.read(wanted.clone(), take)?;
                }
            }
            row = wanted.end;
        }
        Ok(())
    }

    /// The page with a row, and its rows.
    fn page_of(&self, row: usize) -> (usize, Range<usize>) {
        let first = |location: &PageLocation| usize::try_from(location.first_row_index).unwrap_or(usize::MAX);
        let rows = usize::try_from(self.place.group.num_rows()).unwrap_or(0);
        let after = self.locations.partition_point(|location| first(location) <= row);
        let start = after.checked_sub(1).map_or(0, |at| first(&self.locations[at]));
        let end = self.locations.get(after).map_or(rows, first);
        // Where that is nonsense, the other reader finds out.
        (after.saturating_sub(1), if (start..end).contains(&row) { start..end } else { row..usize::MAX })
    }

    /// The page at this place, of so many rows; `None` where the other reader is to read it. All rows from there until
    /// `end` are wanted.
    fn page(&mut self, at: usize, rows: usize, end: usize) -> Result<Option<Arc<DeltaPage>>> {
        let Some(location) = self.locations.get(at) else { return Ok(None) };
        let key = location.offset.cast_unsigned();
        let kept = self.loaded.pages.as_ref();
        if let Some(page) = kept.and_then(|pages| pages.get(key)) {
            return Ok((page.count() == rows).then_some(page));
        }
        let path = &self.loaded.path;
        let unpacked = guarded(path, || self.unpacked(at, rows, end).map_err(|error| unreadable(path, &error)))?;
        let page = unpacked.map(Arc::new);
        if let (Some(pages), Some(page)) = (kept, &page) {
            pages.add(key, page);
        }
        Ok(page)
    }

    /// Where the page with the row before `end` ends in the file.
    fn end_of(&self, end: usize) -> u64 {
        let last = &self.locations[self.page_of(end - 1).0];
        last.offset.saturating_add(i64::from(last.compressed_page_size)).cast_unsigned()
    }

    fn unpacked(&mut self, at: usize, rows: usize, end: usize) -> ParquetResult<Option<DeltaPage>> {
        let until = self.end_of(end);
        let (pages, next) = match &mut self.pages {
            Some(pages) => pages,
            none => none.insert((Pages::open(&self.loaded.blocks, self.place, self.column)?, 0)),
        };
        let begins = self.locations.first().map(|first| first.offset.cast_unsigned());
        if begins != Some(self.place.group.column(self.column).byte_range().0) || at < *next {
            // A dictionary comes first.
            return Ok(None);
        }
        while *next < at {
            pages.skip_next_page()?;
            *next += 1;
        }
        *next += 1;
        pages.ahead.until(until);
        pages.next_delta(rows)
    }
}

/// Ranges that follow each other as one.
fn joined(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}

/// Whose the next values are.
struct ValueSplit<'a> {
    ranges: &'a [Range<usize>],
    at: usize,
    from: usize,
}

impl ValueSplit<'_> {
    fn hand_out<T>(&mut self, mut values: &[T], take: &mut impl FnMut(usize, usize, &[T])) {
        while !values.is_empty() && self.at < self.ranges.len() {
            let count = (self.ranges[self.at].len() - self.from).min(values.len());
            let (these, others) = values.split_at(count);
            take(self.at, self.from, these);
            values = others;
            self.from += count;
            if self.from == self.ranges[self.at].len() {
                (self.at, self.from) = (self.at + 1, 0);
            }
        }
    }
}

/// One column of a row group.
struct PageColumn<'a, T: DataType> {
    path: &'a Path,
    name: &'a str,
    reader: ColumnReaderImpl<T>,
    /// The row that comes next.
    row: usize,
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<'a, T: DataType> PageColumn<'a, T> {
    fn open(path: &'a Path, blocks: &Blocks, group: GroupPlace<'_>, name: &'a str) -> Result<Self> {
        let reader = guarded(path, || {
            let (place, _) = group.column(path, name)?;
            let pages = Pages::open(blocks, group, place).map_err(|error| unreadable(path, &error))?;
            let mut column = group.footer.file_metadata().schema_descr().column(place);
            if pages.whole {
                let (kind, path) = (column.self_type_ptr(), column.path().clone());
                column = Arc::new(ColumnDescriptor::new(kind, 0, 0, path));
            }
            Ok(get_typed_column_reader(get_column_reader(column, Box::new(pages))))
        })?;
        Ok(Self { path, name, reader, row: 0, values: Vec::new(), levels: Vec::new() })
    }

    /// Hands out the values of `rows`, which begin where those before ended or later.
    fn read(&mut self, rows: Range<usize>, take: &mut (impl FnMut(&[T::T]) + ?Sized)) -> Result<()> {
        let Self { path, name, reader, row, values, levels } = self;
        let ends = |row: usize| {
            let (found, expected) = (format!("{row} rows in column `{name}`"), format!("{} and more", rows.end));
            corrupt(path, "a row group", found, &expected)
        };
        let ahead = rows.start - *row;
        let skipped = guarded(path, || reader.skip_records(ahead).map_err(|error| unreadable(path, &error)))?;
        *row += skipped;
        if skipped < ahead {
            return Err(ends(*row));
        }
        while *row < rows.end {
            values.clear();
            levels.clear();
            let count = (rows.end - *row).min(BATCH_ROWS);
            let (found, present, _) = guarded(path, || {
                reader.read_records(count, Some(levels), None, values).map_err(|error| unreadable(path, &error))
            })?;
            if present < found {
                let what = format!("column `{name}` of a run");
                return Err(corrupt(path, &what, format!("{} rows without", found - present), "none"));
            }
            *row += found;
            if found < count {
                return Err(ends(*row));
            }
            take(values);
        }
        Ok(())
    }
}

/// The pages of a column, unpacked.
struct Pages {
    pages: SerializedPageReader<ReadAhead>,
    ahead: ReadAhead,
    packed: bool,
    /// Whether the column has a value in each row: then its levels are not read.
    whole: bool,
}

impl Pages {
    fn open(blocks: &Blocks, GroupPlace { footer, at, group }: GroupPlace<'_>, column: usize) -> ParquetResult<Self> {
        let chunk = group.column(column);
        let places = footer.offset_index().and_then(|groups| groups.get(at)?.get(column));
        let places = places.map(|index| index.page_locations.clone());
        let rows = usize::try_from(group.num_rows())?;
        let whole = chunk.statistics().and_then(Statistics::null_count_opt) == Some(0);
        let packed = matches!(chunk.compression(), Compression::ZSTD(_));
        let chunk = if packed {
            // What is not packed Parquet hands out as it is.
            &chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?
        } else {
            chunk
        };
        let ahead = ReadAhead::new(blocks.clone());
        let pages = SerializedPageReader::new(Arc::new(ahead.clone()), chunk, rows, places)?;
        Ok(Self { pages, ahead, packed, whole })
    }

    /// The next page, if it is of so many integers as telem packs them, none of them absent.
    fn next_delta(&mut self, rows: usize) -> ParquetResult<Option<DeltaPage>> {
        let Some(Page::DataPageV2 {
            buf,
            num_values,
            encoding: Encoding::DELTA_BINARY_PACKED,
            num_nulls: 0,
            def_levels_byte_len,
            rep_levels_byte_len: 0,
            is_compressed,
            ..
        }) = self.pages.get_next_page()?
        else {
            return Ok(None);
        };
        if num_values as usize != rows {
            return Ok(None);
        }
        let levels = def_levels_byte_len as usize;
        let (bytes, from) = if self.packed && is_compressed {
            (unpack(&buf, levels, delta::PADDING)?, levels)
        } else {
            ([&buf, &[0; delta::PADDING][..]].concat(), levels)
        };
        Ok(DeltaPage::new(bytes, from, rows))
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let mut page = self.pages.get_next_page()?;
        match &page {
            Some(Page::DataPageV2 { num_nulls, .. }) if self.whole && *num_nulls > 0 => {
                let what = format!("a page with {num_nulls} rows without a value, and none in its column");
                return Err(ParquetError::General(what));
            }
            Some(Page::DataPage { .. }) if self.whole => {
                return Err(ParquetError::General("a data page of version 1, not 2".to_owned()));
            }
            _ => {}
        }
        match &mut page {
            _ if !self.packed => {}
            None | Some(Page::DataPageV2 { is_compressed: false, .. }) => {}
            Some(Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. }) => {
                *buf = unpack(buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize, 0)?.into();
            }
            Some(Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. }) => *buf = unpack(buf, 0, 0)?.into(),
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for Pages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// The bytes of a page that is compressed except for its first bytes, the levels, and as many zeros behind them.
fn unpack(page: &Bytes, levels: usize, zeros: usize) -> ParquetResult<Vec<u8>> {
    let Some((levels, packed)) = page.split_at_checked(levels) else {
        return Err(ParquetError::General(format!("levels of {levels} bytes in a page of {}", page.len())));
    };
    // A number alone takes no memory.
    let room_max = packed.len().saturating_mul(UNPACKED_PER_BYTE_MAX);
    let size = get_frame_content_size(packed).ok().flatten();
    let room = size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX).min(room_max));
    let mut bytes = Vec::new();
    bytes.reserve_exact(levels.len() + room + zeros);
    bytes.extend_from_slice(levels);
    match size {
        _ if packed.is_empty() => {}
        // Not as telem packs.
        None => {
            let mut unpacking = zstd::stream::read::Decoder::with_buffer(packed)?.take(room_max as u64);
            unpacking.read_to_end(&mut bytes)?;
        }
        Some(_) => {
            let mut unpacked = Cursor::new(&mut bytes);
            unpacked.set_position(levels.len() as u64);
            UNPACKING.with_borrow_mut(|unpacking| {
                let unpacking = match unpacking {
                    Some(unpacking) => unpacking,
                    none => none.insert(Decompressor::new()?),
                };
                unpacking.decompress_to_buffer(packed, &mut unpacked)
            })?;
        }
    }
    bytes.resize(bytes.len() + zeros, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
