//! The output of rows: a table for people, or one of the formats for programs, on stdout or into a file.
//!
//! A file appears as a whole or not at all: it is written beside its final name and renamed at the end. Parquet and
//! Arrow files are written for other programs, so text is plain text in them, whatever encoding telem uses itself.

#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use clap::ValueEnum;

use super::CliFailure;
use super::pending::Pending;
use super::table::{Counted, TableError, TableOptions, TextTable};
use crate::rows::{self, Encoder, cast_to, plain_schema};

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
                let schema = plain_schema(schema);
                let zstd = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
                let writer = zstd.and_then(|options| FileWriter::try_new_with_options(out, &schema, options));
                Sink::Arrow(Box::new(writer.map_err(arrow_failure)?), schema)
            }
            OutputFormat::Parquet => Sink::Encoded(encoded(rows::Format::Parquet)?, out),
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
                let batch = cast_to(batch, schema).map_err(arrow_failure)?;
                writer.write(&batch).map_err(arrow_failure)?;
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
        }
        self.file.map_or(Ok(()), Pending::keep)
    }
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
