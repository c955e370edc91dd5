//! Record batches as the columns of the client protocol: six types, and text for all others.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType, UInt64Type,
};
use arrow::error::ArrowError;

use super::limits::{ANSWER_BYTES_MAX, ROWS_BYTES};
use super::outbox::{head, kind, put_text};
use crate::rows::text_column;

/// How a column is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentType {
    Boolean,
    Int,
    UInt,
    Float,
    Text,
    Time,
}

impl SentType {
    fn of(kind: &DataType) -> Self {
        match kind {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Self::Int,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Self::UInt,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Self::Time,
            DataType::Dictionary(_, values) => Self::of(values),
            DataType::RunEndEncoded(_, values) => Self::of(values.data_type()),
            _ => Self::Text,
        }
    }

    /// As Arrow's C data interface calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "b",
            Self::Int => "l",
            Self::UInt => "L",
            Self::Float => "g",
            Self::Text => "u",
            Self::Time => "tsu:UTC",
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::UInt => DataType::UInt64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }
}

/// The columns of one answer.
#[derive(Debug)]
pub struct SentColumns {
    types: Vec<SentType>,
    schema: SchemaRef,
}

impl SentColumns {
    /// With the frame that names them.
    ///
    /// # Errors
    /// When there are more than a frame can say.
    pub fn new(number: u32, schema: &Schema) -> Result<(Self, Vec<u8>), String> {
        let types: Vec<SentType> = schema.fields().iter().map(|field| SentType::of(field.data_type())).collect();
        let count = u32::try_from(types.len()).map_err(|_| "the answer has too many columns".to_owned())?;
        let mut body = number.to_le_bytes().to_vec();
        body.extend_from_slice(&count.to_le_bytes());
        for (field, sent) in schema.fields().iter().zip(&types) {
            put_text(&mut body, field.name());
            put_text(&mut body, sent.name());
        }
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .zip(&types)
            .map(|(field, sent)| Field::new(field.name(), sent.data_type(), true))
            .collect();
        let frame = framed(kind::COLUMNS, body)?;
        Ok((Self { types, schema: Arc::new(Schema::new(fields)) }, frame))
    }

    /// A batch with the types that are sent alone.
    ///
    /// # Errors
    /// When a column cannot be shown.
    pub fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns()).zip(&self.types);
        let plain = columns.map(|((field, column), sent)| {
            let shown = match sent {
                SentType::Text => text_column(field, column),
                other => cast(column, &other.data_type()),
            };
            shown.map_err(|error| format!("the column '{}' cannot be sent: {error}; CAST it", field.name()))
        });
        let plain = plain.collect::<Result<Vec<ArrayRef>, String>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let plain = RecordBatch::try_new_with_options(Arc::clone(&self.schema), plain, &options);
        plain.map_err(|error: ArrowError| format!("bug in telem: an answer: {error}"))
    }
}

/// The rows of a [plain](SentColumns::plain) batch, in frames of about [`ROWS_BYTES`].
///
/// # Errors
/// When one row is longer than a frame may be.
pub fn frames(number: u32, batch: &RecordBatch, out: &mut VecDeque<Vec<u8>>) -> Result<(), String> {
    let mut parts = vec![batch.clone()];
    while let Some(part) = parts.pop() {
        let (rows, bytes) = (part.num_rows(), size(&part));
        if rows > 1 && bytes > ROWS_BYTES {
            let half = rows / 2;
            // The first half comes next.
            parts.push(part.slice(half, rows - half));
            parts.push(part.slice(0, half));
        } else if rows > 0 {
            out.push_back(frame(number, &part)?);
        }
    }
    Ok(())
}

/// About as many bytes as a frame of it has.
fn size(batch: &RecordBatch) -> usize {
    let rows = batch.num_rows();
    let of = |column: &ArrayRef| match column.as_string_opt::<i32>() {
        Some(texts) => {
            let offsets = texts.value_offsets();
            let bytes = offsets.last().zip(offsets.first()).map_or(0, |(last, first)| last - first);
            4 * rows + usize::try_from(bytes).unwrap_or(0)
        }
        None => 8 * rows,
    };
    batch.columns().iter().map(of).sum()
}

fn frame(number: u32, batch: &RecordBatch) -> Result<Vec<u8>, String> {
    let rows = u32::try_from(batch.num_rows()).map_err(|_| "a batch has too many rows".to_owned())?;
    let mut body = number.to_le_bytes().to_vec();
    body.extend_from_slice(&rows.to_le_bytes());
    for column in batch.columns() {
        put_column(&mut body, column);
    }
    framed(kind::ROWS, body)
}

fn framed(kind: u8, body: Vec<u8>) -> Result<Vec<u8>, String> {
    if body.len() > ANSWER_BYTES_MAX {
        let found = body.len();
        return Err(format!("a row of the answer has {found} bytes; a frame holds {ANSWER_BYTES_MAX} at most"));
    }
    let mut frame = head(kind, body.len()).to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

fn put_column(out: &mut Vec<u8>, column: &ArrayRef) {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    out.extend_from_slice(&[u8::from(nulls.is_some()), 0, 0, 0, 0, 0, 0, 0]);
    if let Some(nulls) = nulls {
        put_bits(out, nulls.iter());
    }
    match column.data_type() {
        DataType::Boolean => put_bits(out, column.as_boolean().values().iter()),
        DataType::Int64 => put_all(out, column.as_primitive::<Int64Type>().values(), |value| value.to_le_bytes()),
        DataType::UInt64 => put_all(out, column.as_primitive::<UInt64Type>().values(), |value| value.to_le_bytes()),
        DataType::Float64 => {
            put_all(out, column.as_primitive::<Float64Type>().values(), |value| value.to_bits().to_le_bytes());
        }
        DataType::Timestamp(..) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            put_all(out, times.values(), |time| time.to_le_bytes());
        }
        _ => {
            let texts = column.as_string::<i32>();
            let offsets = texts.value_offsets();
            let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
            put_all(out, offsets, |offset| (offset - first).to_le_bytes());
            pad(out);
            let (first, last) = (usize::try_from(first).unwrap_or(0), usize::try_from(last).unwrap_or(0));
            out.extend_from_slice(&texts.value_data()[first..last]);
            pad(out);
        }
    }
}

fn put_all<T: Copy, const N: usize>(out: &mut Vec<u8>, all: &[T], bytes: impl Fn(T) -> [u8; N]) {
    out.reserve(N * all.len());
    all.iter().for_each(|one| out.extend_from_slice(&bytes(*one)));
}

/// The lowest bit first.
fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let mut byte = 0;
    let mut at = 0;
    for bit in bits {
        byte |= u8::from(bit) << at;
        at += 1;
        if at == 8 {
            out.push(byte);
            (byte, at) = (0, 0);
        }
    }
    if at > 0 {
        out.push(byte);
    }
    pad(out);
}

/// Bodies of frames begin at a multiple of 8, so that their own length tells.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}
