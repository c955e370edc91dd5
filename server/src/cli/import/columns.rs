//! Parquet and Arrow: columns with types, batch by batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, Schema, TimeUnit, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use telem_engine::Timestamp;

use super::Importing;
use super::cell::Cell;
use super::file::ImportFile;
use super::report::RowPlace;
use super::table::{ColumnKind, ImportTable};
use crate::cli::CliFailure;

const BATCH_ROWS: usize = 8_192;
const SECOND: i64 = 1_000_000;
/// Milliseconds of a day, of which dates are made.
const DAY: i64 = 86_400 * SECOND;

/// Takes the samples of a Parquet file.
///
/// # Errors
/// Failed when it cannot be read, or its columns say nothing that can be used.
pub fn parquet(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let opened = file.open()?;
    let builder = guarded(file, || ParquetRecordBatchReaderBuilder::try_new(opened))?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let schema = Arc::clone(builder.schema());
    let table = ImportTable::of(&kinds(&schema), file, importing)?;
    let columns: Vec<usize> = (0..schema.fields().len()).filter(|at| table.needs(*at)).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), columns.clone());
    let mut reader = guarded(file, || builder.with_projection(mask).with_batch_size(BATCH_ROWS).build())?;
    let mut batches = ColumnBatches { file, table, columns, rows: 0, rows_total: rows };
    while let Some(batch) = guarded(file, || reader.next().transpose())? {
        batches.take(&batch, importing)?;
    }
    Ok(())
}

/// Takes the samples of an Arrow IPC file, or of a stream.
///
/// # Errors
/// As [`parquet`].
pub fn arrow(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut start = file.text()?;
    let is_file = start.fill_buf().map_err(|error| file.cannot_read(error))?.starts_with(b"ARROW1");
    let (schema, mut next): (Arc<Schema>, Box<NextBatch>) = if is_file {
        let opened = file.open()?;
        let mut reader = guarded(file, || FileReader::try_new(opened, None))?;
        (reader.schema(), Box::new(move || reader.next().transpose()))
    } else {
        let mut reader = guarded(file, || StreamReader::try_new(start, None))?;
        (reader.schema(), Box::new(move || reader.next().transpose()))
    };
    let table = ImportTable::of(&kinds(&schema), file, importing)?;
    let columns = (0..schema.fields().len()).collect();
    let mut batches = ColumnBatches { file, table, columns, rows: 0, rows_total: 0 };
    while let Some(batch) = guarded(file, &mut next)? {
        batches.take(&batch, importing)?;
    }
    Ok(())
}

type NextBatch = dyn FnMut() -> Result<Option<RecordBatch>, ArrowError>;

/// What `read` comes to. The readers panic on some broken files.
fn guarded<T, E: std::fmt::Display>(file: &ImportFile, read: impl FnOnce() -> Result<T, E>) -> Result<T, CliFailure> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(done) => done.map_err(|error| file.cannot_read(error)),
        Err(_) => Err(file.cannot_read("it is damaged")),
    }
}

struct ColumnBatches<'f> {
    file: &'f ImportFile,
    table: ImportTable,
    /// Which of the file's columns a batch has.
    columns: Vec<usize>,
    rows: u64,
    rows_total: u64,
}

impl ColumnBatches<'_> {
    fn take(&mut self, batch: &RecordBatch, importing: &mut Importing) -> Result<(), CliFailure> {
        importing.store.check_stop()?;
        let width = self.columns.iter().max().map_or(0, |last| last + 1);
        let mut columns: Vec<TypedColumn> = Vec::new();
        columns.resize_with(width, || TypedColumn::Null);
        for (at, column) in self.columns.iter().zip(batch.columns()) {
            if self.table.needs(*at) {
                columns[*at] = TypedColumn::of(column).map_err(|error| self.file.cannot_read(error))?;
            }
        }
        for row in 0..batch.num_rows() {
            let cells: Vec<Cell<'_>> = columns.iter().map(|column| column.cell(row)).collect();
            self.rows += 1;
            self.table.row(&cells, RowPlace::Row(&self.file.name, self.rows), importing)?;
        }
        let share = self.rows as f64 / self.rows_total.max(self.rows).max(1) as f64;
        importing.report.at((self.file.bytes as f64 * share) as u64, importing.store.accepted());
        Ok(())
    }
}

fn kinds(schema: &Schema) -> Vec<(String, ColumnKind)> {
    schema.fields().iter().map(|field| (field.name().clone(), kind(field.data_type()))).collect()
}

fn kind(data_type: &DataType) -> ColumnKind {
    match data_type {
        DataType::Null => ColumnKind::Empty,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnKind::Text,
        DataType::Dictionary(_, values) => kind(values),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => ColumnKind::Time,
        DataType::Boolean => ColumnKind::Number,
        numeric if numeric.is_numeric() => ColumnKind::Number,
        _ => ColumnKind::Other,
    }
}

/// A column in one of few types.
enum TypedColumn {
    Null,
    Text(StringArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    /// What makes microseconds of it.
    Time(Int64Array, TimeScale),
    Other(ArrayRef),
}

#[derive(Clone, Copy)]
enum TimeScale {
    Times(i64),
    Nanos,
}

impl TypedColumn {
    fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        let ints = |column: &ArrayRef| {
            Ok::<_, ArrowError>(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
        };
        Ok(match column.data_type() {
            DataType::Null => Self::Null,
            DataType::Dictionary(_, values) => return Self::of(&cast(column, values)?),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
            }
            DataType::Timestamp(unit, _) => {
                let scale = match unit {
                    TimeUnit::Second => TimeScale::Times(SECOND),
                    TimeUnit::Millisecond => TimeScale::Times(1_000),
                    TimeUnit::Microsecond => TimeScale::Times(1),
                    TimeUnit::Nanosecond => TimeScale::Nanos,
                };
                Self::Time(ints(column)?, scale)
            }
            DataType::Date32 => Self::Time(ints(&cast(column, &DataType::Int32)?)?, TimeScale::Times(DAY)),
            DataType::Date64 => Self::Time(ints(column)?, TimeScale::Times(1_000)),
            DataType::UInt64 => Self::UInt(column.as_primitive::<UInt64Type>().clone()),
            DataType::Boolean => Self::Int(ints(column)?),
            integer if integer.is_integer() => Self::Int(ints(column)?),
            number if number.is_numeric() => {
                Self::Float(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            _ => Self::Other(Arc::clone(column)),
        })
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Text(column) if column.is_valid(row) => Cell::Text(column.value(row)),
            Self::Int(column) if column.is_valid(row) => Cell::Int(column.value(row)),
            Self::UInt(column) if column.is_valid(row) => {
                i64::try_from(column.value(row)).map_or(Cell::TooLarge, Cell::Int)
            }
            Self::Float(column) if column.is_valid(row) => Cell::Float(column.value(row)),
            Self::Time(column, scale) if column.is_valid(row) => match scale {
                TimeScale::Times(micros) => column.value(row).checked_mul(*micros).map_or(Cell::TooLarge, Cell::Time),
                TimeScale::Nanos => Cell::Time(Timestamp::from_nanos(column.value(row)).micros()),
            },
            Self::Other(column) if column.is_valid(row) => Cell::Other,
            _ => Cell::Null,
        }
    }
}
