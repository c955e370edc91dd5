//! The cells of an answer in the types that a command expects, and texts of questions.

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;

/// A column of texts.
///
/// # Errors
/// When it is no such column, as for the others.
pub fn texts(batch: &RecordBatch, column: usize) -> Result<StringArray, ArrowError> {
    Ok(as_type(batch, column, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A column of whole numbers, or of times in microseconds.
pub fn whole(batch: &RecordBatch, column: usize) -> Result<Int64Array, ArrowError> {
    Ok(as_type(batch, column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A column of numbers.
pub fn numbers(batch: &RecordBatch, column: usize) -> Result<Float64Array, ArrowError> {
    Ok(as_type(batch, column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

fn as_type(batch: &RecordBatch, column: usize, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let found = batch.columns().get(column);
    let found = found.ok_or_else(|| ArrowError::SchemaError(format!("an answer without a column {column}")))?;
    cast(found, wanted)
}

/// A text in SQL.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
