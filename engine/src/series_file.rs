//! Series increments: immutable Parquet files, each with the keys of a stretch of new ids.
//!
//! Columns `id u32`, `metric utf8`, `tags map<utf8, utf8>`, rows in the order of ids. An increment
//! is durable before the first segment that uses its ids.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MapArray, MapBuilder, StringArray, StringBuilder, UInt32Array};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::error::{Error, Result};
use crate::series::{SeriesId, SeriesKey, TagSet};

/// Rows handled at a time.
const BATCH_ROWS: usize = 16 << 10;

/// The bytes of an increment with `keys`, whose ids start at `first_id`.
///
/// # Errors
/// Internal when Parquet refuses them.
pub fn encode(first_id: u32, keys: &[SeriesKey]) -> Result<Vec<u8>> {
    let internal =
        |error: &dyn std::fmt::Display| Error::Internal { what: format!("a series file cannot be encoded: {error}") };
    let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
    let mut id = first_id;
    // One empty chunk for no keys: the schema comes from a batch.
    let empty: [&[SeriesKey]; 1] = [&[]];
    let chunks: Box<dyn Iterator<Item = &[SeriesKey]>> =
        if keys.is_empty() { Box::new(empty.into_iter()) } else { Box::new(keys.chunks(BATCH_ROWS)) };
    for chunk in chunks {
        let batch = batch(id, chunk).map_err(|error| internal(&error))?;
        id += chunk.len() as u32;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let zstd = Compression::ZSTD(ZstdLevel::try_new(1).map_err(|error| internal(&error))?);
                let format = KeyValue::new("telem.format".to_owned(), "1".to_owned());
                let properties = WriterProperties::builder()
                    .set_compression(zstd)
                    .set_created_by(concat!("telem ", env!("CARGO_PKG_VERSION")).to_owned())
                    .set_key_value_metadata(Some(vec![format]))
                    .build();
                none.insert(
                    ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))
                        .map_err(|error| internal(&error))?,
                )
            }
        };
        writer.write(&batch).map_err(|error| internal(&error))?;
    }
    let writer = writer.ok_or_else(|| internal(&"no rows"))?;
    writer.into_inner().map_err(|error| internal(&error))
}

fn batch(first_id: u32, keys: &[SeriesKey]) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let ids: UInt32Array = (first_id..).take(keys.len()).collect();
    let metrics = StringArray::from_iter_values(keys.iter().map(SeriesKey::metric));
    let mut tags = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for key in keys {
        for (tag_key, tag_value) in key.tags().iter() {
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
    let corrupt = |what: &str, found: String, expected: String| Error::Corrupt {
        path: path.to_path_buf(),
        what: what.to_owned(),
        found,
        expected,
    };
    let unreadable =
        |error: &dyn std::fmt::Display| corrupt("its Parquet", error.to_string(), "a series file".to_owned());
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes))
        .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
        .map_err(|error| unreadable(&error))?;
    let mut next = first_id;
    for batch in reader {
        let batch = batch.map_err(|error| unreadable(&error))?;
        let wrong_column = |name: &str| corrupt("its columns", format!("no `{name}`"), "id, metric, tags".to_owned());
        let ids = batch.column_by_name("id").and_then(|column| column.as_any().downcast_ref::<UInt32Array>());
        let metrics = batch.column_by_name("metric").and_then(|column| column.as_any().downcast_ref::<StringArray>());
        let tags = batch.column_by_name("tags").and_then(|column| column.as_any().downcast_ref::<MapArray>());
        let ids = ids.ok_or_else(|| wrong_column("id"))?;
        let metrics = metrics.ok_or_else(|| wrong_column("metric"))?;
        let tags = tags.ok_or_else(|| wrong_column("tags"))?;
        for row in 0..batch.num_rows() {
            if ids.value(row) != next {
                return Err(corrupt("its ids", ids.value(row).to_string(), next.to_string()));
            }
            let key = key(metrics.value(row), &tags.value(row))
                .map_err(|why| corrupt("a series key", why, "valid names".to_owned()))?;
            take(SeriesId(next), key)?;
            next += 1;
        }
    }
    if next - first_id != count {
        return Err(corrupt("its number of series", (next - first_id).to_string(), count.to_string()));
    }
    Ok(())
}

fn key(metric: &str, tags: &arrow::array::StructArray) -> std::result::Result<SeriesKey, String> {
    let texts = |at: usize| tags.columns().get(at).and_then(|column| column.as_any().downcast_ref::<StringArray>());
    let (Some(keys), Some(values)) = (texts(0), texts(1)) else {
        return Err("tags that are no text".to_owned());
    };
    let pairs = (0..tags.len()).map(|at| (keys.value(at), values.value(at)));
    TagSet::new(pairs).and_then(|tags| SeriesKey::new(metric, tags)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
