//! The output of rows: a table for people, or one of the formats for programs, on stdout or into a file.
//!
//! A file appears as a whole or not at all: it is written beside its final name and renamed at the end. Parquet and
//! Arrow files are written for other programs, so text is plain text in them, whatever encoding telem uses itself.

#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use clap::ValueEnum;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::CliFailure;
use super::pending::Pending;
use super::table::{Counted, TableError, TableOptions, TextTable};
use crate::rows::{self, Encoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table for people: short numbers and times, and on a terminal only the first rows
    Table,
    /// A header line, then one line per row
    Csv,
    /// One array of row objects
    Json,
    /// One row object per line
    Ndjson,
    /// An Arrow IPC file (Feather); on stdout, and in a file named *.arrows, an IPC stream
    Arrow,
    /// A Parquet file
    Parquet,
}

impl OutputFormat {
    /// The format that a file name asks for by its end.
    pub fn of_file(path: &Path) -> Option<OutputFormat> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "arrow" | "arrows" | "feather" => Some(Self::Arrow),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    fn is_binary(self) -> bool {
        matches!(self, Self::Arrow | Self::Parquet)
    }
}

/// A row group of a Parquet file ends at this many rows or bytes: what is written of it stays in memory until then.
const ROW_GROUP_ROWS: usize = 1 << 20;
const ROW_GROUP_BYTES: usize = 128 << 20;
const ZSTD_LEVEL: i32 = 3;

/// Takes the batches of one answer.
pub struct Output {
    sink: Sink,
    /// The final name of the file, and its temporary one.
    file: Option<Pending>,
}

enum Sink {
    Table(Box<TextTable>),
    Encoded(Encoder, Box<dyn Write + Send>),
    Arrow(Box<FileWriter<Box<dyn Write + Send>>>, SchemaRef),
    Parquet(Box<ArrowWriter<Box<dyn Write + Send>>>, SchemaRef),
}

impl Output {
    /// Writes to `file`, or to stdout.
    pub fn new(
        format: OutputFormat,
        schema: &SchemaRef,
        file: Option<&Path>,
        table: TableOptions,
    ) -> Result<Self, CliFailure> {
        if file.is_none() && format.is_binary() && io::stdout().is_terminal() {
            return Err(CliFailure::usage("this format is not for a terminal; give -o FILE, or pipe it on"));
        }
        // A stream can be read while it is written, a file from any place in it.
        let is_file = file.is_some_and(|path| path.extension().is_none_or(|end| !end.eq_ignore_ascii_case("arrows")));
        let (out, file): (Box<dyn Write + Send>, _) = match file {
            Some(path) => {
                let (out, pending) = Pending::create(path)?;
                (Box::new(out), pending)
            }
            None => (Box::new(BufWriter::new(io::stdout())), None),
        };
        let encoded = |format| Encoder::new(format, schema).map_err(CliFailure::failed);
        let sink = match format {
            OutputFormat::Table => Sink::Table(Box::new(TextTable::new(schema, table, out))),
            OutputFormat::Csv => Sink::Encoded(encoded(rows::Format::Csv)?, out),
            OutputFormat::Json => Sink::Encoded(encoded(rows::Format::Json)?, out),
            OutputFormat::Ndjson => Sink::Encoded(encoded(rows::Format::Ndjson)?, out),
            OutputFormat::Arrow if !is_file => Sink::Encoded(encoded(rows::Format::Arrow)?, out),
            OutputFormat::Arrow => {
                let schema = plain(schema);
                let zstd = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
                let writer = zstd.and_then(|options| FileWriter::try_new_with_options(out, &schema, options));
                Sink::Arrow(Box::new(writer.map_err(arrow_failure)?), schema)
            }
            OutputFormat::Parquet => {
                let schema = plain(schema);
                let properties = parquet_properties(&schema).map_err(parquet_failure)?;
                let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties));
                Sink::Parquet(Box::new(writer.map_err(parquet_failure)?), schema)
            }
        };
        Ok(Self { sink, file })
    }

    /// Rows that came and are not shown: more of them are of no use but to be counted.
    pub fn more(&self) -> u64 {
        match &self.sink {
            Sink::Table(table) => table.more(),
            _ => 0,
        }
    }

    pub fn batch(&mut self, batch: &RecordBatch) -> Result<(), CliFailure> {
        match &mut self.sink {
            Sink::Table(table) => table.batch(batch)?,
            Sink::Encoded(encoder, out) => out.write_all(&encoder.batch(batch).map_err(CliFailure::failed)?)?,
            Sink::Arrow(writer, schema) => {
                let batch = as_schema(batch, schema).map_err(arrow_failure)?;
                writer.write(&batch).map_err(arrow_failure)?;
            }
            Sink::Parquet(writer, schema) => {
                writer.write(&as_schema(batch, schema).map_err(arrow_failure)?).map_err(parquet_failure)?;
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Result<(), CliFailure> {
        self.finish_counted(Counted::All)
    }

    /// As [`Output::finish`], where perhaps not all rows came that are not shown.
    pub fn finish_counted(self, counted: Counted) -> Result<(), CliFailure> {
        match self.sink {
            Sink::Table(table) => table.finish(counted)?,
            Sink::Encoded(mut encoder, mut out) => {
                out.write_all(&encoder.finish().map_err(CliFailure::failed)?)?;
                out.flush()?;
            }
            // Ends the file, too.
            Sink::Arrow(writer, _) => writer.into_inner().map_err(arrow_failure)?.flush()?,
            Sink::Parquet(writer, _) => writer.into_inner().map_err(parquet_failure)?.flush()?,
        }
        self.file.map_or(Ok(()), Pending::keep)
    }
}

/// The schema with plain text and bytes in place of views of them, which not every reader knows.
fn plain(schema: &Schema) -> SchemaRef {
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
fn as_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() { Ok(Arc::clone(column)) } else { cast(column, field.data_type()) }
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

/// Names repeat and get dictionaries. Times and integers rarely repeat, and their differences are small.
fn parquet_properties(schema: &Schema) -> Result<WriterProperties, ParquetError> {
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

impl From<TableError> for CliFailure {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Write(error) => CliFailure::from(error),
            TableError::Value(error) => CliFailure::failed(error),
        }
    }
}

/// A broken pipe is not a failure of ours, not even within Arrow.
fn arrow_failure(error: ArrowError) -> CliFailure {
    match error {
        ArrowError::IoError(_, io) => CliFailure::from(io),
        error => CliFailure::failed(error),
    }
}

/// A broken pipe is not a failure of ours, not even within Parquet.
fn parquet_failure(error: ParquetError) -> CliFailure {
    if let ParquetError::External(source) = &error
        && let Some(io) = source.downcast_ref::<io::Error>()
        && io.kind() == io::ErrorKind::BrokenPipe
    {
        return CliFailure::ReaderGone;
    }
    CliFailure::Failed(format!("cannot write the output: {error}"))
}
