//! A Parquet file that is made: row groups as they come, then what the caller puts behind them, then page indexes and the
//! footer.
//!
//! Parquet's own writer states each column chunk where it stands. Here a row group whose times are those of an earlier
//! one names the chunk of that one: samples that were taken together have the same times in every metric, and a file
//! states them once. Readers go where the footer points, so they need not know.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ahash::AHashMap;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetColumnIndex, ParquetMetaDataBuilder, ParquetMetaDataWriter,
    ParquetOffsetIndex, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};

use super::growing::{GrowingFile, WrittenPart};
use super::internal;
use super::packing::Packing;
use crate::disk::Disk;
use crate::error::Result;
use crate::segment::schema;

const MAGIC: &[u8] = b"PAR1";
/// Data pages have version 2.
const PARQUET_VERSION: i32 = 2;

/// The pages of a column of a row group, and what is said of them: all places are counted from its first byte.
pub struct ClosedChunk {
    pub bytes: Vec<u8>,
    pub metadata: ColumnChunkMetaData,
    pub column_index: ColumnIndexMetaData,
    pub offset_index: OffsetIndexMetaData,
}

/// A column of a row group in the file.
#[derive(Clone)]
pub struct PlacedChunk {
    metadata: ColumnChunkMetaData,
    column_index: ColumnIndexMetaData,
    offset_index: OffsetIndexMetaData,
}

pub struct ParquetFile {
    bytes: GrowingFile,
    schema: SchemaDescPtr,
    packing: Packing,
    groups: Vec<RowGroupMetaData>,
    column_indexes: ParquetColumnIndex,
    offset_indexes: ParquetOffsetIndex,
    /// Chunks that others may name too, by what their bytes hash to.
    named_again: AHashMap<u64, PlacedChunk>,
}

impl ParquetFile {
    /// # Errors
    /// Internal when Parquet refuses our schema.
    pub fn new(packing: Packing) -> Result<Self> {
        let schema = parquet::arrow::ArrowSchemaConverter::new().convert(&schema()).map_err(internal)?;
        Ok(Self {
            bytes: GrowingFile::new(MAGIC.to_vec()),
            schema: Arc::new(SchemaDescriptor::new(schema.root_schema_ptr())),
            packing,
            groups: Vec::new(),
            column_indexes: Vec::new(),
            offset_indexes: Vec::new(),
            named_again: AHashMap::new(),
        })
    }

    /// From now on row groups go to a new file, `path`, as they end.
    pub fn write_to(&mut self, disk: Arc<dyn Disk>, path: PathBuf) {
        self.bytes.write_to(disk, path);
    }

    pub fn schema(&self) -> &SchemaDescriptor {
        &self.schema
    }

    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// All row groups so far.
    pub fn bytes(&self) -> &GrowingFile {
        &self.bytes
    }

    /// Adds a chunk of the next row group.
    ///
    /// # Errors
    /// Internal when Parquet refuses it.
    pub fn add(&mut self, chunk: ClosedChunk) -> Result<PlacedChunk> {
        let start = self.bytes.len() as i64;
        self.bytes.push(&chunk.bytes);
        let mut offset_index = chunk.offset_index;
        let metadata = moved_by(start, chunk.metadata, &mut offset_index)?;
        Ok(PlacedChunk { metadata, column_index: chunk.column_index, offset_index })
    }

    /// The same, but for a chunk that is there already it gives back the place of that.
    ///
    /// # Errors
    /// As [`ParquetFile::add`]; Io when it is on a disk and cannot be compared.
    pub fn add_once(&mut self, chunk: ClosedChunk) -> Result<PlacedChunk> {
        let hash = hash_of(&chunk.bytes);
        if let Some(placed) = self.named_again.get(&hash)
            && self.bytes.has_at(placed.metadata.byte_range().0 as usize, &chunk.bytes)?
        {
            return Ok(placed.clone());
        }
        let placed = self.add(chunk)?;
        self.named_again.insert(hash, placed.clone());
        Ok(placed)
    }

    /// Ends a row group of these columns.
    ///
    /// # Errors
    /// Internal when Parquet refuses it; Io when it cannot be written.
    pub fn end_group(&mut self, rows: usize, columns: Vec<PlacedChunk>) -> Result<()> {
        let unpacked = columns.iter().map(|column| column.metadata.uncompressed_size()).sum();
        let start = columns.first().map_or(0, |column| column.metadata.byte_range().0 as i64);
        let ordinal = i16::try_from(self.groups.len())
            .map_err(|_| internal(parquet::errors::ParquetError::General("too many row groups".to_owned())))?;
        let (mut chunks, mut column_index, mut offset_index) = (Vec::new(), Vec::new(), Vec::new());
        for column in columns {
            chunks.push(column.metadata);
            column_index.push(column.column_index);
            offset_index.push(column.offset_index);
        }
        let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_column_metadata(chunks)
            .set_total_byte_size(unpacked)
            .set_num_rows(rows as i64)
            .set_ordinal(ordinal)
            .set_file_offset(start)
            .build()
            .map_err(internal)?;
        self.groups.push(group);
        self.column_indexes.push(column_index);
        self.offset_indexes.push(offset_index);
        self.bytes.settle()
    }

    /// Gives a row group a copy of a chunk of its own, at the end, where it has few bytes beside those that it only
    /// names. A reader that shares out a file by its bytes looks for a row group where half of its bytes are, counted
    /// from its first chunk on (parquet-java does), and would find one behind the end of the file in no part of it.
    ///
    /// # Errors
    /// Internal when Parquet refuses it.
    pub fn keep_groups_inside(&mut self) -> Result<()> {
        // Each copy moves the end away from the row groups before.
        for at in (0..self.groups.len()).rev() {
            let start = self.groups[at].column(0).byte_range().0;
            if start + self.groups[at].compressed_size() as u64 / 2 < self.bytes.len() as u64 {
                continue;
            }
            let mut columns = self.groups[at].columns().to_vec();
            for (column, chunk) in columns.iter_mut().enumerate() {
                let (first, len) = chunk.byte_range();
                if first >= start {
                    continue;
                }
                let moved = self.bytes.len() as i64 - first as i64;
                self.bytes.push_again(first as usize..(first + len) as usize)?;
                *chunk = moved_by(moved, chunk.clone(), &mut self.offset_indexes[at][column])?;
            }
            let group = self.groups[at].clone().into_builder().set_column_metadata(columns).build();
            self.groups[at] = group.map_err(internal)?;
        }
        Ok(())
    }

    /// What was written of the file, and the bytes behind that, with `between` between its row groups and its page
    /// indexes.
    ///
    /// # Errors
    /// Internal when Parquet refuses it.
    pub fn finish(mut self, between: &[u8], labels: Vec<KeyValue>) -> Result<(Option<WrittenPart>, Vec<u8>)> {
        self.bytes.push(between);
        let rows = self.groups.iter().map(RowGroupMetaData::num_rows).sum();
        let by = concat!("telem ", env!("CARGO_PKG_VERSION")).to_owned();
        let file = FileMetaData::new(PARQUET_VERSION, rows, Some(by), Some(labels), self.schema, None);
        let metadata = ParquetMetaDataBuilder::new(file)
            .set_row_groups(self.groups)
            .set_column_index(Some(self.column_indexes))
            .set_offset_index(Some(self.offset_indexes))
            .build();
        let mut end = Vec::new();
        let mut behind = TrackedWrite::new(Behind { passed: self.bytes.len(), end: &mut end });
        let mut ahead = self.bytes.len();
        while ahead > 0 {
            let part = ahead.min(PASSED.len());
            behind.write_all(&PASSED[..part]).map_err(super::no_room)?;
            ahead -= part;
        }
        ParquetMetaDataWriter::new_with_tracked(behind, &metadata).finish().map_err(internal)?;
        self.bytes.push(&end);
        Ok(self.bytes.finish())
    }
}

/// What is said of a chunk that lies so many bytes further on.
fn moved_by(bytes: i64, chunk: ColumnChunkMetaData, pages: &mut OffsetIndexMetaData) -> Result<ColumnChunkMetaData> {
    for page in &mut pages.page_locations {
        page.offset += bytes;
    }
    let (first, dictionary) = (chunk.data_page_offset(), chunk.dictionary_page_offset());
    chunk
        .into_builder()
        .set_data_page_offset(first + bytes)
        .set_dictionary_page_offset(dictionary.map(|at| at + bytes))
        .build()
        .map_err(internal)
}

fn hash_of(bytes: &[u8]) -> u64 {
    u64::from(crc32fast::hash(bytes)) << 32 | bytes.len() as u64
}

/// Stands for bytes that are there already.
const PASSED: [u8; 16 << 10] = [0; 16 << 10];

/// Takes only what comes behind the bytes that are there already: Parquet counts them.
struct Behind<'a> {
    passed: usize,
    end: &'a mut Vec<u8>,
}

impl Write for Behind<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let passed = self.passed.min(bytes.len());
        self.passed -= passed;
        self.end.extend_from_slice(&bytes[passed..]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
