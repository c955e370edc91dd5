//! Values as the text of cells.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::{DateTime, Utc};

use crate::info::human::short;

/// A value that is not there.
const NULL: &str = "NULL";
/// The cells of some rows, column by column.
#[derive(Debug)]
pub struct Cells {
    pub columns: Vec<CellColumn>,
    rows: usize,
}

#[derive(Debug)]
pub struct CellColumn {
    pub name: String,
    pub side: CellSide,
    pub cells: Vec<String>,
}

/// Where a column's cells stand, and whether they may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellSide {
    /// Numbers: never cut.
    Right,
    /// What is short by itself, as times are: never cut.
    Left,
    /// Text, which may be cut.
    LeftCut,
}

impl Cells {
    /// # Errors
    /// Of Arrow, where a value cannot be written as text.
    pub fn of(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let columns = schema.fields().iter().enumerate().map(|(at, field)| {
            let arrays: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(at)).collect();
            let (side, cells) = cells(field.data_type(), &arrays)?;
            Ok(CellColumn { name: seen(field.name()), side, cells })
        });
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        Ok(Self { columns: columns.collect::<Result<_, ArrowError>>()?, rows })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }
}

fn cells(data_type: &DataType, arrays: &[&ArrayRef]) -> Result<(CellSide, Vec<String>), ArrowError> {
    Ok(match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let mut cells = Vec::new();
            for array in arrays {
                let floats = cast(array, &DataType::Float64)?;
                let floats = floats.as_primitive::<Float64Type>();
                cells.extend(floats.iter().map(|float| float.map_or_else(|| NULL.to_owned(), short)));
            }
            (CellSide::Right, at_the_point(cells))
        }
        DataType::Timestamp(unit, zone) if zone.as_ref().is_none_or(is_utc) => (CellSide::Left, times(*unit, arrays)),
        other => {
            let side = match other {
                _ if other.is_numeric() => CellSide::Right,
                DataType::Boolean | DataType::Date32 | DataType::Timestamp(..) | DataType::Null => CellSide::Left,
                _ => CellSide::LeftCut,
            };
            let options = FormatOptions::default().with_null(NULL);
            let mut cells = Vec::new();
            for array in arrays {
                let formatter = ArrayFormatter::try_new(array, &options)?;
                for row in 0..array.len() {
                    cells.push(seen(&formatter.value(row).try_to_string()?));
                }
            }
            (side, cells)
        }
    })
}

fn is_utc(zone: &Arc<str>) -> bool {
    matches!(&**zone, "UTC" | "Z" | "+00:00")
}

/// Foreign text, without characters that would move a terminal's cursor; line breaks stay.
fn seen(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The cells, padded so that their decimal points are aligned.
fn at_the_point(mut cells: Vec<String>) -> Vec<String> {
    let behind = |cell: &str| cell.find(['.', 'e']).map_or(0, |at| cell.len() - at);
    let is_number = |cell: &str| cell.ends_with(|c: char| c.is_ascii_digit());
    let most = cells.iter().filter(|cell| is_number(cell)).map(|cell| behind(cell)).max().unwrap_or(0);
    for cell in cells.iter_mut().filter(|cell| is_number(cell)) {
        let blanks = most - behind(cell);
        cell.extend(std::iter::repeat_n(' ', blanks));
    }
    cells
}

/// Times in UTC, all with as many decimals as the one that needs most.
fn times(unit: TimeUnit, arrays: &[&ArrayRef]) -> Vec<String> {
    let mut times: Vec<Option<Result<DateTime<Utc>, i64>>> = Vec::new();
    for array in arrays {
        let per_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let value = |row: usize| match unit {
            TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
            TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
            TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
            TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
        };
        let time = |row: usize| {
            let value: i64 = value(row);
            let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
            let nanos = u32::try_from(nanos).unwrap_or(0);
            DateTime::from_timestamp(value.div_euclid(per_second), nanos).ok_or(value)
        };
        times.extend((0..array.len()).map(|row| array.is_valid(row).then(|| time(row))));
    }
    let nanos = times.iter().flatten().flatten().map(DateTime::timestamp_subsec_nanos);
    let format = match nanos.fold(0, |most, nanos| most.max(decimals_of(nanos))) {
        0 => "%Y-%m-%d %H:%M:%S",
        1..=3 => "%Y-%m-%d %H:%M:%S%.3f",
        4..=6 => "%Y-%m-%d %H:%M:%S%.6f",
        _ => "%Y-%m-%d %H:%M:%S%.9f",
    };
    let text = |time: Option<Result<DateTime<Utc>, i64>>| match time {
        None => NULL.to_owned(),
        Some(Ok(time)) => time.format(format).to_string(),
        // Beyond what a calendar holds.
        Some(Err(value)) => value.to_string(),
    };
    times.into_iter().map(text).collect()
}

fn decimals_of(nanos: u32) -> u32 {
    (0..=9).find(|decimals| nanos.is_multiple_of(10_u32.pow(9 - decimals))).unwrap_or(9)
}
