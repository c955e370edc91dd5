//! Record batches as bytes: JSON, NDJSON, CSV, Arrow IPC, Parquet. HTTP and the command line share this encoder.
//!
//! * Times are RFC 3339 with `Z`. All times of a CSV column have the same number of digits, since readers derive the
//!   format from the first. Maps and structs are objects, lists are arrays; in CSV they are JSON text.
//! * Integers keep all their digits. JSON has no NaN and no infinity: both are `null` there; CSV writes `NaN`, `inf`,
//!   `-inf`.
//! * NULL is `null` in JSON, where every row has every key, and an empty field in CSV.

mod files;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::csv;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{EncoderOptions, JsonArray, LineDelimited, make_encoder};
use arrow::json::{self, WriterBuilder};
use parquet::arrow::ArrowWriter;

pub use self::files::{cast_to, plain_schema};

/// How DataFusion's times without a zone are written: they are UTC.
const UTC_TIME: &str = "%Y-%m-%dT%H:%M:%S%.fZ";

/// A way to write rows down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// An array of row objects.
    Json,
    /// One row object a line.
    Ndjson,
    /// A line of names, then one line a row.
    Csv,
    /// An Arrow IPC stream.
    Arrow,
    /// A Parquet file; one that was cut off has no footer, so no reader takes it for whole.
    Parquet,
}

impl Format {
    pub const ALL: [Format; 5] = [Format::Json, Format::Ndjson, Format::Csv, Format::Arrow, Format::Parquet];

    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Ndjson => "ndjson",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
        }
    }

    pub fn by_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// With its parameters, for the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json; charset=UTF-8",
            Format::Ndjson => "application/x-ndjson; charset=UTF-8",
            Format::Csv => "text/csv; charset=UTF-8; header=present",
            Format::Arrow => "application/vnd.apache.arrow.stream",
            Format::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// Encodes the batches of one answer, one after the other; holds no more than one, of Parquet no more than a
/// group of rows.
pub struct Encoder(EncoderKind);

enum EncoderKind {
    Json(json::Writer<Vec<u8>, JsonArray>),
    Ndjson(json::Writer<Vec<u8>, LineDelimited>),
    Csv { head: Vec<u8> },
    Arrow(Box<StreamWriter<Vec<u8>>>),
    Parquet(Box<ArrowWriter<Vec<u8>>>, SchemaRef),
}

impl Encoder {
    /// # Errors
    /// When a column has a type that `format` cannot show.
    pub fn new(format: Format, schema: &SchemaRef) -> Result<Self, ArrowError> {
        let json = || {
            let builder = WriterBuilder::new().with_explicit_nulls(true).with_timestamp_format(UTC_TIME.to_owned());
            builder.with_encoder_factory(Arc::new(times::TimeTexts))
        };
        Ok(Self(match format {
            Format::Json => EncoderKind::Json(json().build(Vec::new())),
            Format::Ndjson => EncoderKind::Ndjson(json().build(Vec::new())),
            // The line of names comes also when no row does.
            Format::Csv => EncoderKind::Csv { head: csv(&RecordBatch::new_empty(Arc::clone(schema)), true)? },
            Format::Arrow => EncoderKind::Arrow(Box::new(StreamWriter::try_new(Vec::new(), schema)?)),
            Format::Parquet => {
                let schema = plain_schema(schema);
                let properties = files::parquet_properties(&schema)?;
                let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
                EncoderKind::Parquet(Box::new(writer), schema)
            }
        }))
    }

    /// The bytes of `batch`, and those before it that are not yet given out.
    ///
    /// # Errors
    /// When a value cannot be shown in this format.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        match &mut self.0 {
            EncoderKind::Json(writer) => {
                writer.write(batch)?;
                Ok(std::mem::take(writer.get_mut()))
            }
            EncoderKind::Ndjson(writer) => {
                writer.write(batch)?;
                Ok(std::mem::take(writer.get_mut()))
            }
            EncoderKind::Csv { head } => {
                let mut bytes = std::mem::take(head);
                bytes.extend(csv(batch, false)?);
                Ok(bytes)
            }
            EncoderKind::Arrow(writer) => {
                writer.write(batch)?;
                Ok(std::mem::take(writer.get_mut()))
            }
            EncoderKind::Parquet(writer, schema) => {
                writer.write(&cast_to(batch, schema)?)?;
                Ok(std::mem::take(writer.inner_mut()))
            }
        }
    }

    /// The bytes after the last batch.
    ///
    /// # Errors
    /// When the format cannot be ended.
    pub fn finish(&mut self) -> Result<Vec<u8>, ArrowError> {
        match &mut self.0 {
            EncoderKind::Json(writer) => {
                writer.finish()?;
                let mut bytes = std::mem::take(writer.get_mut());
                bytes.push(b'\n');
                Ok(bytes)
            }
            EncoderKind::Ndjson(writer) => {
                writer.finish()?;
                Ok(std::mem::take(writer.get_mut()))
            }
            EncoderKind::Csv { head } => Ok(std::mem::take(head)),
            EncoderKind::Arrow(writer) => {
                writer.finish()?;
                Ok(std::mem::take(writer.get_mut()))
            }
            EncoderKind::Parquet(writer, _) => {
                writer.finish()?;
                Ok(std::mem::take(writer.inner_mut()))
            }
        }
    }
}

fn csv(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, ArrowError> {
    let flat = flat(batch)?;
    let mut bytes = Vec::new();
    let mut writer = csv::WriterBuilder::new().with_header(header);
    let zones = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(unit, zone) => Some((*unit, zone.clone())),
        _ => None,
    };
    let (zoned, plain): (Vec<_>, Vec<_>) =
        flat.schema().fields().iter().filter_map(zones).partition(|(_, zone)| zone.is_some());
    writer = writer.with_timestamp_format(format!("%Y-%m-%dT%H:%M:%S{}Z", fraction(&plain)));
    let utc = zoned.iter().all(|(_, zone)| zone.as_deref().is_some_and(is_utc));
    let zone = if utc { "Z" } else { "%:z" };
    writer = writer.with_timestamp_tz_format(format!("%Y-%m-%dT%H:%M:%S{}{zone}", fraction(&zoned)));
    writer.build(&mut bytes).write(&flat)?;
    Ok(bytes)
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Z" | "+00:00")
}

/// The digits of a second that the finest of `times` has, six at least.
fn fraction(times: &[(TimeUnit, Option<Arc<str>>)]) -> &'static str {
    if times.iter().any(|(unit, _)| *unit == TimeUnit::Nanosecond) { "%.9f" } else { "%.6f" }
}

/// The batch with text in place of what CSV cannot hold: JSON for nested columns.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if field.data_type().is_nested() {
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(Arc::new(json_text(field, column)?));
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// A column of any type as text: what is text already, and else what JSON shows.
///
/// # Errors
/// When a value cannot be shown.
pub fn text_column(field: &Arc<Field>, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut kind = field.data_type();
    while let DataType::Dictionary(_, values) = kind {
        kind = values;
    }
    if matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null) {
        return cast(column, &DataType::Utf8);
    }
    let texts = json_text(field, column)?;
    if kind.is_nested() {
        return Ok(Arc::new(texts));
    }
    // A text of JSON without its quotes.
    let plain = |text: &str| serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
    Ok(Arc::new(texts.iter().map(|text| text.map(plain)).collect::<StringArray>()))
}

fn json_text(field: &Arc<Field>, column: &ArrayRef) -> Result<StringArray, ArrowError> {
    let options = EncoderOptions::default().with_explicit_nulls(true).with_timestamp_format(UTC_TIME.to_owned());
    let mut encoder = make_encoder(field, column, &options)?;
    let texts = (0..column.len()).map(|row| {
        if encoder.is_null(row) {
            return Ok(None);
        }
        let mut text = Vec::new();
        encoder.encode(row, &mut text);
        String::from_utf8(text).map(Some).map_err(|error| ArrowError::ExternalError(Box::new(error)))
    });
    texts.collect()
}
