//! Rows in files of other programs: text is plain text there, whatever encoding telem uses itself.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

/// A row group of a Parquet file ends at this many rows or bytes: what is written of it stays in memory until then.
const ROW_GROUP_ROWS: usize = 1 << 20;
const ROW_GROUP_BYTES: usize = 128 << 20;
const ZSTD_LEVEL: i32 = 3;

/// The schema with plain text and bytes in place of views of them, which not every reader knows.
pub fn plain_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let plain = match field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        };
        Arc::new(Field::clone(field).with_data_type(plain))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The batch with columns of the types of `schema`.
pub fn cast_to(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() { Ok(Arc::clone(column)) } else { cast(column, field.data_type()) }
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

/// Names repeat and get dictionaries. Times and integers rarely repeat, and their differences are small.
pub fn parquet_properties(schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES));
    for field in schema.fields() {
        let column = || ColumnPath::from(vec![field.name().clone()]);
        match field.data_type() {
            DataType::Timestamp(..) => {
                properties = properties.set_column_dictionary_enabled(column(), false);
                properties = properties.set_column_encoding(column(), Encoding::DELTA_BINARY_PACKED);
            }
            DataType::Int64 => properties = properties.set_column_encoding(column(), Encoding::DELTA_BINARY_PACKED),
            _ => {}
        }
    }
    Ok(properties.build())
}
