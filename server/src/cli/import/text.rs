//! CSV: text with a header line. Cells have no types; the first rows tell which columns have numbers.

use std::cell::Cell as Counter;
use std::io::{self, Read};
use std::rc::Rc;

use ::csv::{ByteRecord, Position, ReaderBuilder, StringRecord};

use super::Importing;
use super::cell::Cell;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::table::{ColumnKind, ImportTable, KindCounts, kind_of_text};
use crate::cli::CliFailure;

/// Rows that tell what columns have.
const ROWS_LOOKED_AT: usize = 1_000;
/// Longest row: an open quote would take the rest of the file for one.
const ROW_BYTES_MAX: u64 = 16 << 20;
/// Most columns.
const COLUMNS_MAX: usize = 10_000;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Rows between two looks at whether the user has had enough.
const ROWS_A_LOOK: u64 = 4_096;

/// Takes the samples of a file.
///
/// # Errors
/// Failed when it cannot be read, or its header says nothing that can be used.
pub fn read(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut text = file.text()?;
    let start = text.fill_buf().map_err(|error| file.cannot_read(error))?;
    let delimiter = delimiter(start);
    let read = Rc::new(Counter::new(0));
    let allowed = Rc::new(Counter::new(ROW_BYTES_MAX));
    let bounded = RowBounded { text, read: Rc::clone(&read), allowed: Rc::clone(&allowed) };
    let mut csv = ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(bounded);
    let header = csv.headers().map_err(|error| file.cannot_read(error))?.clone();
    if header.len() > COLUMNS_MAX {
        return Err(file.failed(format!("{} columns; at most {COLUMNS_MAX} are read", header.len())));
    }
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    let mut rows = TextRows { file, columns: names.len(), table: None, rows: 0 };
    let (mut first, mut first_bytes) = (Vec::with_capacity(ROWS_LOOKED_AT), 0);
    let mut record = ByteRecord::new();
    let mut line = csv.position().line();
    loop {
        allowed.set(read.get() + ROW_BYTES_MAX);
        let is_row = csv.read_byte_record(&mut record).map_err(|error| file.cannot_read(told(&error)))?;
        if !is_row {
            break;
        }
        line = record.position().map_or(line, Position::line);
        if rows.table.is_some() {
            rows.take(&record, line, importing)?;
            importing.report.at(read.get(), importing.store.accepted());
            continue;
        }
        first_bytes += record.as_slice().len() as u64;
        first.push((line, record.clone()));
        if first.len() == ROWS_LOOKED_AT || first_bytes >= ROW_BYTES_MAX {
            rows.begin(&names, std::mem::take(&mut first), importing)?;
        }
    }
    if rows.table.is_none() {
        rows.begin(&names, first, importing)?;
    }
    Ok(())
}

struct TextRows<'f> {
    file: &'f ImportFile,
    columns: usize,
    /// Once the first rows told what columns have.
    table: Option<ImportTable>,
    rows: u64,
}

impl TextRows<'_> {
    /// Looks at the first rows, and takes them.
    fn begin(
        &mut self,
        names: &[&str],
        first: Vec<(u64, ByteRecord)>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        let kinds = (0..names.len()).map(|at| {
            let cells = first.iter().filter_map(|(_, record)| std::str::from_utf8(record.get(at)?).ok());
            let mut counts = KindCounts::default();
            cells.map(kind_of_text).for_each(|kind| counts.add(kind));
            counts.kind()
        });
        let columns: Vec<(String, ColumnKind)> =
            names.iter().zip(kinds).map(|(name, kind)| ((*name).to_owned(), kind)).collect();
        self.table = Some(ImportTable::of(&columns, self.file, importing)?);
        for (line, record) in first {
            self.take(&record, line, importing)?;
        }
        Ok(())
    }

    fn take(&mut self, record: &ByteRecord, line: u64, importing: &mut Importing) -> Result<(), CliFailure> {
        let place = RowPlace::Line(&self.file.name, line);
        self.rows += 1;
        if self.rows.is_multiple_of(ROWS_A_LOOK) {
            importing.store.check_stop()?;
        }
        if record.len() != self.columns {
            let why = format!("the row has {} fields, and the header {}", record.len(), self.columns);
            return importing.report.refuse(place, RefusedKind::Row, &why);
        }
        let record = match StringRecord::from_byte_record(record.clone()) {
            Ok(record) => record,
            Err(_) => return importing.report.refuse(place, RefusedKind::Row, "the row is not UTF-8"),
        };
        let cells: Vec<Cell<'_>> =
            record.iter().map(|text| if text.is_empty() { Cell::Null } else { Cell::Text(text) }).collect();
        match &mut self.table {
            Some(table) => table.row(&cells, place, importing),
            None => Ok(()),
        }
    }
}

/// Fails where one row is too long, before it fills the memory.
struct RowBounded<R> {
    text: R,
    read: Rc<Counter<u64>>,
    /// Up to which byte the row may go.
    allowed: Rc<Counter<u64>>,
}

impl<R: Read> Read for RowBounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read.get() > self.allowed.get() {
            let why = format!("a row is longer than {ROW_BYTES_MAX} bytes; is a quote left open?");
            return Err(io::Error::other(why));
        }
        let bytes = self.text.read(into)?;
        self.read.set(self.read.get() + bytes as u64);
        Ok(bytes)
    }
}

/// What its header has most of.
fn delimiter(start: &[u8]) -> u8 {
    let header = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: &u8| header.iter().filter(|byte| *byte == delimiter).count();
    // Of two the first wins, so that a comma does where there is none of them.
    DELIMITERS.into_iter().rev().max_by_key(count).unwrap_or(b',')
}

/// What reading failed of, without what CSV makes of it.
fn told(error: &::csv::Error) -> String {
    match error.kind() {
        ::csv::ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    }
}
