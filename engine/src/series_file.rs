//! Series increments: immutable Parquet files, each with the keys of a stretch of new ids.
//!
//! Columns `id u32`, `metric utf8`, `tags map<utf8, utf8>`, rows in the order of ids. An increment
//! is durable before the first segment that uses its ids.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

use std::borrow::Borrow;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, MapArray, MapBuilder, StringArray, StringBuilder, UInt32Array};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use crate::error::{Error, ErrorKind, Result};
use crate::guarded::{guarded, plainly};
use crate::segment::blocks::FileBytes;
use crate::series::{RawKey, SeriesId, SeriesKey, TagSet};

/// Rows handled at a time.
const BATCH_ROWS: usize = 16 << 10;

/// The bytes of an increment with `keys`, whose ids start at `first_id`; they are asked for as they are written.
///
/// # Errors
/// Internal when Parquet refuses them.
pub fn encode<K: Borrow<SeriesKey>>(first_id: u32, keys: impl IntoIterator<Item = K>) -> Result<Vec<u8>> {
    let internal =
        |error: &dyn std::fmt::Display| Error::Internal { what: format!("a series file cannot be encoded: {error}") };
    let mut keys = keys.into_iter();
    let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
    let mut id = first_id;
    loop {
        let chunk: Vec<K> = keys.by_ref().take(BATCH_ROWS).collect();
        if chunk.is_empty()
            && let Some(writer) = writer.take()
        {
            return writer.into_inner().map_err(|error| internal(&error));
        }
        // Also of no keys: the schema comes from a batch.
        let batch = batch(id, &chunk).map_err(|error| internal(&error))?;
        id += chunk.len() as u32;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let zstd = Compression::ZSTD(ZstdLevel::try_new(1).map_err(|error| internal(&error))?);
                let format = KeyValue::new("telem.format".to_owned(), "1".to_owned());
                let properties = WriterProperties::builder()
                    .set_compression(zstd)
                    // One follows the other: a dictionary of them would be half of the file.
                    .set_column_dictionary_enabled(ColumnPath::from("id"), false)
                    .set_column_encoding(ColumnPath::from("id"), Encoding::DELTA_BINARY_PACKED)
                    .set_created_by(concat!("telem ", env!("CARGO_PKG_VERSION")).to_owned())
                    .set_key_value_metadata(Some(vec![format]))
                    .build();
                // Parquet's own schema says all that Arrow's would.
                let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
                none.insert(
                    ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options)
                        .map_err(|error| internal(&error))?,
                )
            }
        };
        writer.write(&batch).map_err(|error| internal(&error))?;
    }
}

fn batch(first_id: u32, keys: &[impl Borrow<SeriesKey>]) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let ids: UInt32Array = (first_id..).take(keys.len()).collect();
    let metrics = StringArray::from_iter_values(keys.iter().map(|key| key.borrow().metric()));
    let mut tags = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for key in keys {
        for (tag_key, tag_value) in key.borrow().tags().iter() {
            tags.keys().append_value(tag_key);
            tags.values().append_value(tag_value);
        }
        tags.append(true)?;
    }
    let columns: Vec<(&str, ArrayRef)> =
        vec![("id", Arc::new(ids)), ("metric", Arc::new(metrics)), ("tags", Arc::new(tags.finish()))];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), false)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, column)| column).collect())
}

/// Hands every key of an increment to `take`. The bytes have been checked against the manifest.
///
/// # Errors
/// Corrupt when it is not an increment of ids from `first_id` on, `count` of them.
pub fn decode(
    path: &Path,
    bytes: Vec<u8>,
    first_id: u32,
    count: u32,
    mut take: impl FnMut(SeriesId, SeriesKey) -> Result<()>,
) -> Result<()> {
    decode_raw(path, bytes, first_id, count, |id, raw| {
        let key = TagSet::new(raw.tags.iter().copied()).and_then(|tags| SeriesKey::new(raw.metric, tags));
        take(id, key.map_err(|error| bad_key(path, &error))?)
    })
}

/// [`decode`] without looking at names: `take` says of a key that breaks a rule that it is Invalid, and
/// then the increment is Corrupt.
///
/// # Errors
/// As [`decode`].
pub fn decode_raw(
    path: &Path,
    bytes: Vec<u8>,
    first_id: u32,
    count: u32,
    mut take: impl FnMut(SeriesId, &RawKey<'_>) -> Result<()>,
) -> Result<()> {
    let unreadable =
        |error: &dyn std::fmt::Display| corrupt(path, "its Parquet", plainly(error), "a series file".to_owned());
    // Parquet's own schema says enough; of the one that Arrow leaves beside it a part that it does not know ends the
    // process.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let mut reader = guarded(path, || {
        ParquetRecordBatchReaderBuilder::try_new_with_options(FileBytes(Bytes::from(bytes)), options)
            .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
            .map_err(|error| unreadable(&error))
    })?;
    let mut next = first_id;
    while let Some(batch) = guarded(path, || reader.next().transpose().map_err(|error| unreadable(&error)))? {
        let columns = KeyColumns::of(&batch)
            .map_err(|name| corrupt(path, "its columns", format!("no `{name}`"), "id, metric, tags".to_owned()))?;
        let mut tags = Vec::new();
        for row in 0..batch.num_rows() {
            let id = columns.ids.value(row);
            if id != next {
                return Err(corrupt(path, "its ids", id.to_string(), next.to_string()));
            }
            tags.clear();
            let pairs = columns.ends[row] as usize..columns.ends[row + 1] as usize;
            tags.extend(pairs.map(|at| (columns.keys.value(at), columns.values.value(at))));
            take(SeriesId(next), &RawKey { metric: columns.metrics.value(row), tags: &tags }).map_err(|error| {
                match error.kind() {
                    ErrorKind::Invalid => bad_key(path, &error),
                    _ => error,
                }
            })?;
            next = next.checked_add(1).ok_or_else(|| corrupt(path, "its ids", next.to_string(), "less".to_owned()))?;
        }
    }
    if next - first_id != count {
        return Err(corrupt(path, "its number of series", (next - first_id).to_string(), count.to_string()));
    }
    Ok(())
}

fn corrupt(path: &Path, what: &str, found: String, expected: String) -> Error {
    Error::Corrupt { path: path.to_path_buf(), what: what.to_owned(), found, expected }
}

fn bad_key(path: &Path, why: &Error) -> Error {
    corrupt(path, "a series key", why.to_string(), "valid names".to_owned())
}

/// The columns of an increment.
struct KeyColumns<'a> {
    ids: &'a UInt32Array,
    metrics: &'a StringArray,
    /// Where the tags of each row end among all tags.
    ends: &'a [i32],
    keys: &'a StringArray,
    values: &'a StringArray,
}

impl<'a> KeyColumns<'a> {
    /// # Errors
    /// The name of the column that is not there.
    fn of(batch: &'a RecordBatch) -> std::result::Result<Self, &'static str> {
        let column = |name: &'static str| batch.column_by_name(name).map(|column| column.as_any()).ok_or(name);
        let tags = column("tags")?.downcast_ref::<MapArray>().ok_or("tags")?;
        Ok(Self {
            ids: column("id")?.downcast_ref().ok_or("id")?,
            metrics: column("metric")?.downcast_ref().ok_or("metric")?,
            ends: tags.value_offsets(),
            keys: tags.keys().as_any().downcast_ref().ok_or("tags")?,
            values: tags.values().as_any().downcast_ref().ok_or("tags")?,
        })
    }
}

#[cfg(test)]
mod tests;
