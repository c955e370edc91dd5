//! Reads the numbers of one column directly from its pages.
//!
//! A query over many databases reads a few rows of each of thousands of files, so the cost of starting a read counts as
//! much as the read itself. Parquet's own readers allocate their decoders anew for each column that they open, hundreds
//! of KiB that must be cleared, and build an Arrow array for each stretch. Here Parquet hands out the pages compressed,
//! decoders kept by each thread decompress them, and the numbers are passed on without a copy.

use std::cell::RefCell;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

use super::{Loaded, corrupt, unreadable};
use crate::error::Result;
use crate::guarded::guarded;
use crate::segment::blocks::Blocks;
use crate::segment::index::UNPACKED_PER_BYTE_MAX;

/// Rows decoded at a time: of a column without gaps they stay in a near cache.
const BATCH_ROWS: usize = 16 << 10;

thread_local! {
    /// Made once a thread: a fresh one is larger than most pages.
    static UNPACKING: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Loaded {
    /// Hands out the values of one column in each of `ranges` (rows, sorted, apart, none empty), where none may be
    /// absent: the place of the range, from where in it, and these.
    pub(super) fn each<T: DataType>(
        &self,
        name: &str,
        ranges: &[Range<usize>],
        take: &mut impl FnMut(usize, usize, &[T::T]),
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
                let mut column = PageColumn::<T>::open(&self.path, &self.blocks, footer, (at, group), name)?;
                for stretch in &stretches[from..until] {
                    column.read(within(stretch), &mut |values| sharing.hand_out(values, take))?;
                }
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
    fn open(
        path: &'a Path,
        blocks: &Blocks,
        footer: &ParquetMetaData,
        (at, group): (usize, &RowGroupMetaData),
        name: &'a str,
    ) -> Result<Self> {
        let schema = footer.file_metadata().schema_descr();
        let reader = guarded(path, || {
            let place = schema.columns().iter().position(|column| column.path().string() == name);
            let place = place.ok_or_else(|| corrupt(path, "its columns", format!("no `{name}`"), "one"))?;
            let pages = Pages::open(blocks, footer, (at, group), place).map_err(|error| unreadable(path, &error))?;
            let mut column = schema.column(place);
            if pages.whole {
                let (kind, path) = (column.self_type_ptr(), column.path().clone());
                column = Arc::new(ColumnDescriptor::new(kind, 0, 0, path));
            }
            Ok(get_typed_column_reader(get_column_reader(column, Box::new(pages))))
        })?;
        Ok(Self { path, name, reader, row: 0, values: Vec::new(), levels: Vec::new() })
    }

    /// Hands out the values of `rows`, which begin where those before ended or later.
    fn read(&mut self, rows: Range<usize>, take: &mut impl FnMut(&[T::T])) -> Result<()> {
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
    pages: SerializedPageReader<Blocks>,
    packed: bool,
    /// Whether the column has a value in each row: then its levels are not read.
    whole: bool,
}

impl Pages {
    fn open(
        blocks: &Blocks,
        footer: &ParquetMetaData,
        (at, group): (usize, &RowGroupMetaData),
        column: usize,
    ) -> ParquetResult<Self> {
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
        Ok(Self { pages: SerializedPageReader::new(Arc::new(blocks.clone()), chunk, rows, places)?, packed, whole })
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
                *buf = unpack(buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)?;
            }
            Some(Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. }) => *buf = unpack(buf, 0)?,
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

/// The bytes of a page that is compressed except for its first bytes, the levels.
fn unpack(page: &Bytes, levels: usize) -> ParquetResult<Bytes> {
    let Some((levels, packed)) = page.split_at_checked(levels) else {
        return Err(ParquetError::General(format!("levels of {levels} bytes in a page of {}", page.len())));
    };
    if packed.is_empty() {
        return Ok(page.clone());
    }
    // A number alone takes no memory.
    let room_max = packed.len().saturating_mul(UNPACKED_PER_BYTE_MAX);
    let mut bytes = Vec::new();
    let Some(size) = get_frame_content_size(packed).ok().flatten() else {
        // Not as telem packs.
        bytes.extend_from_slice(levels);
        zstd::stream::read::Decoder::with_buffer(packed)?.take(room_max as u64).read_to_end(&mut bytes)?;
        return Ok(bytes.into());
    };
    bytes.reserve_exact(levels.len() + usize::try_from(size).unwrap_or(usize::MAX).min(room_max));
    bytes.extend_from_slice(levels);
    let mut unpacked = Cursor::new(&mut bytes);
    unpacked.set_position(levels.len() as u64);
    UNPACKING.with_borrow_mut(|unpacking| {
        let unpacking = match unpacking {
            Some(unpacking) => unpacking,
            none => none.insert(Decompressor::new()?),
        };
        unpacking.decompress_to_buffer(packed, &mut unpacked)
    })?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests;
