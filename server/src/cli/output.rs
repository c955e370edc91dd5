//! Where rows go: a table for people, or one of the formats for programs, on stdout or into a file.
//!
//! A file is whole or not there: it is written beside its name and takes it at the end.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_options;
use clap::ValueEnum;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::Failure;
use crate::rows::{self, Encoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Lines and columns, for people; only the first rows
    Table,
    /// A line of names, then one line a row
    Csv,
    /// One array of row objects
    Json,
    /// One row object a line
    Ndjson,
    /// An Arrow IPC stream
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
            "arrow" | "arrows" => Some(Self::Arrow),
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
    /// The file at its end, and where it stands until then.
    file: Option<Pending>,
}

enum Sink {
    Table(Table),
    Encoded(Encoder, Box<dyn Write + Send>),
    Parquet(Box<ArrowWriter<Box<dyn Write + Send>>>),
}

struct Table {
    schema: SchemaRef,
    shown: Vec<RecordBatch>,
    rows: usize,
    rows_max: usize,
    out: Box<dyn Write + Send>,
}

/// What a table needs to know.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    pub rows_max: usize,
}

impl Output {
    /// Writes to `file`, or to stdout.
    pub fn new(
        format: OutputFormat,
        schema: &SchemaRef,
        file: Option<&Path>,
        table: TableOptions,
    ) -> Result<Self, Failure> {
        if file.is_none() && format.is_binary() && io::stdout().is_terminal() {
            return Err(Failure::usage("this format is not for a terminal; give -o FILE, or pipe it on"));
        }
        let (out, file): (Box<dyn Write + Send>, _) = match file {
            Some(path) => {
                let (out, pending) = Pending::create(path)?;
                (Box::new(out), pending)
            }
            None => (Box::new(BufWriter::new(io::stdout())), None),
        };
        let encoded = |format| Encoder::new(format, schema).map_err(Failure::failed);
        let sink = match format {
            OutputFormat::Table => Sink::Table(Table {
                schema: SchemaRef::clone(schema),
                shown: Vec::new(),
                rows: 0,
                rows_max: table.rows_max,
                out,
            }),
            OutputFormat::Csv => Sink::Encoded(encoded(rows::Format::Csv)?, out),
            OutputFormat::Json => Sink::Encoded(encoded(rows::Format::Json)?, out),
            OutputFormat::Ndjson => Sink::Encoded(encoded(rows::Format::Ndjson)?, out),
            OutputFormat::Arrow => Sink::Encoded(encoded(rows::Format::Arrow)?, out),
            OutputFormat::Parquet => {
                let zstd = Compression::ZSTD(ZstdLevel::try_new(3).map_err(Failure::failed)?);
                let properties = WriterProperties::builder().set_compression(zstd).build();
                let writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties));
                Sink::Parquet(Box::new(writer.map_err(parquet_failure)?))
            }
        };
        Ok(Self { sink, file })
    }

    /// Whether more rows are of any use.
    pub fn is_full(&self) -> bool {
        matches!(&self.sink, Sink::Table(table) if table.rows > table.rows_max)
    }

    pub fn batch(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        match &mut self.sink {
            Sink::Table(table) => {
                let room = table.rows_max.saturating_sub(table.rows);
                table.shown.push(batch.slice(0, batch.num_rows().min(room)));
                table.rows += batch.num_rows();
            }
            Sink::Encoded(encoder, out) => out.write_all(&encoder.batch(batch).map_err(Failure::failed)?)?,
            Sink::Parquet(writer) => writer.write(batch).map_err(parquet_failure)?,
        }
        Ok(())
    }

    pub fn finish(self) -> Result<(), Failure> {
        match self.sink {
            Sink::Table(table) => table.print()?,
            Sink::Encoded(mut encoder, mut out) => {
                out.write_all(&encoder.finish().map_err(Failure::failed)?)?;
                out.flush()?;
            }
            Sink::Parquet(writer) => writer.into_inner().map_err(parquet_failure)?.flush()?,
        }
        self.file.map_or(Ok(()), Pending::keep)
    }
}

impl Table {
    fn print(mut self) -> Result<(), Failure> {
        let options = FormatOptions::default().with_timestamp_format(Some("%Y-%m-%dT%H:%M:%S%.fZ"));
        // An answer without rows still shows its columns.
        self.shown.push(RecordBatch::new_empty(self.schema));
        let text = pretty_format_batches_with_options(&self.shown, &options);
        writeln!(self.out, "{}", text.map_err(Failure::failed)?)?;
        self.out.flush()?;
        if self.rows > self.rows_max {
            let notice = format!("the first {} rows; --rows-max N shows more, --format csv all", self.rows_max);
            writeln!(io::stderr(), "{notice}").unwrap_or_default();
        }
        Ok(())
    }
}

/// A pipe that broke is no failure of ours, also below Parquet.
fn parquet_failure(error: ParquetError) -> Failure {
    if let ParquetError::External(source) = &error
        && let Some(io) = source.downcast_ref::<io::Error>()
        && io.kind() == io::ErrorKind::BrokenPipe
    {
        return Failure::ReaderGone;
    }
    Failure::failed(error)
}

/// A file that has another name until it is whole. Dropped before that, it goes.
struct Pending {
    path: PathBuf,
    until_then: PathBuf,
    kept: bool,
}

impl Pending {
    /// `None` for what is no file (a pipe, /dev/stdout): it is written as it is.
    fn create(path: &Path) -> Result<(BufWriter<File>, Option<Pending>), Failure> {
        let failed = |at: &Path, error: io::Error| Failure::Failed(format!("cannot write {}: {error}", at.display()));
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(path).map_err(|error| failed(path, error))?;
            return Ok((BufWriter::new(file), None));
        }
        let Some(name) = path.file_name() else {
            return Err(Failure::Usage(format!("{} is no name of a file", path.display())));
        };
        let mut new = name.to_owned();
        new.push(format!(".{}.part", std::process::id()));
        let until_then = path.with_file_name(new);
        let file = File::create(&until_then).map_err(|error| failed(&until_then, error))?;
        let pending = Pending { path: path.to_path_buf(), until_then, kept: false };
        Ok((BufWriter::new(file), Some(pending)))
    }

    fn keep(mut self) -> Result<(), Failure> {
        fs::rename(&self.until_then, &self.path)
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", self.path.display())))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.kept {
            // The failure that leads here is the one to report.
            fs::remove_file(&self.until_then).unwrap_or_default();
        }
    }
}
