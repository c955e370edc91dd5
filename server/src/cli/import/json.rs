//! JSON lines: an object a line. Objects in objects become names with dots; lists are left out.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use telem_engine::Value;
use telem_ingest::decode::lenient::without_place;

use super::Importing;
use super::cell::Cell;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::table::{ColumnKind, ImportTable, KindCounts, number_of};
use crate::cli::CliFailure;

/// Rows that tell what columns there are; later ones may add more.
const ROWS_LOOKED_AT: usize = 1_000;
/// Longest line.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Most different names.
const COLUMNS_MAX: usize = 10_000;
/// How deep objects may lie in objects.
const DEPTH_MAX: usize = 16;

/// Takes the samples of a file.
///
/// # Errors
/// Failed when it cannot be read, or nothing in its first lines can be used.
pub fn read(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut text = file.text()?;
    let mut rows =
        JsonRows { file, columns: Vec::new(), by_name: HashMap::new(), table: None, first: Vec::new(), first_bytes: 0 };
    let (mut number, mut bytes) = (0, 0);
    loop {
        let mut line = Vec::new();
        let read = (&mut text).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| file.cannot_read(error))? as u64;
        if read == 0 {
            break;
        }
        number += 1;
        bytes += read;
        if read == LINE_BYTES_MAX {
            return Err(file.failed(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
        }
        importing.store.check_stop()?;
        rows.line(line, number, importing)?;
        importing.report.at(bytes, importing.store.accepted());
    }
    rows.begin(importing)
}

struct JsonRows<'f> {
    file: &'f ImportFile,
    columns: Vec<(String, ColumnKind)>,
    by_name: HashMap<String, usize>,
    /// Once the first rows told what columns there are.
    table: Option<ImportTable>,
    /// Those rows.
    first: Vec<(Vec<u8>, u64)>,
    first_bytes: u64,
}

/// What a line has under which name.
type FieldCells = Vec<(String, JsonCell)>;

/// A value of JSON, as a cell that has its text.
#[derive(Clone, Debug, PartialEq)]
enum JsonCell {
    Null,
    Text(String),
    Number(Value),
    TooLarge,
    Other,
}

impl JsonCell {
    fn of(raw: &str) -> Self {
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).map_or(Self::Other, Self::Text),
            Some(b'n') | None => Self::Null,
            Some(b't') => Self::Number(Value::Int(1)),
            Some(b'f') => Self::Number(Value::Int(0)),
            Some(b'[' | b'{') => Self::Other,
            // Never through serde_json's floats, which may be off by their last bit.
            Some(_) => number_of(raw).map_or(Self::TooLarge, Self::Number),
        }
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Text(text) => Cell::Text(text),
            Self::Number(Value::Int(int)) => Cell::Int(*int),
            Self::Number(Value::Float(float)) => Cell::Float(*float),
            Self::TooLarge => Cell::TooLarge,
            Self::Other => Cell::Other,
        }
    }

    fn kind(&self) -> ColumnKind {
        match self {
            Self::Null => ColumnKind::Empty,
            // Not a number of JSON, and written as a text by who has one.
            Self::Text(text) if CONSTANTS.contains(&&**text) => ColumnKind::Number,
            Self::Text(text) if crate::cli::times::date(text).is_some() => ColumnKind::Time,
            Self::Text(_) => ColumnKind::Text,
            Self::Number(_) | Self::TooLarge => ColumnKind::Number,
            Self::Other => ColumnKind::Other,
        }
    }
}

impl JsonRows<'_> {
    fn line(&mut self, line: Vec<u8>, number: u64, importing: &mut Importing) -> Result<(), CliFailure> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.table.is_some() {
            return self.take(&line, number, importing);
        }
        self.first_bytes += line.len() as u64;
        self.first.push((line, number));
        if self.first.len() < ROWS_LOOKED_AT && self.first_bytes < LINE_BYTES_MAX {
            Ok(())
        } else {
            self.begin(importing)
        }
    }

    /// Looks at the first rows, and takes them.
    fn begin(&mut self, importing: &mut Importing) -> Result<(), CliFailure> {
        if self.table.is_some() {
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        let mut counts: Vec<KindCounts> = Vec::new();
        for (line, _) in &first {
            for (name, cell) in fields(line).unwrap_or_default() {
                let at = self.column(name);
                counts.resize(self.columns.len(), KindCounts::default());
                counts[at].add(cell.kind());
            }
            self.check_columns()?;
        }
        for ((_, kind), counts) in self.columns.iter_mut().zip(counts) {
            *kind = counts.kind();
        }
        if self.columns.is_empty() && !first.is_empty() {
            let why = fields(&first[0].0).err().unwrap_or_else(|| "it has no fields".to_owned());
            return Err(self.file.failed(format!("no line is an object with fields; line {}: {why}", first[0].1)));
        }
        self.table = Some(ImportTable::of(&self.columns, self.file, importing)?);
        for (line, number) in first {
            self.take(&line, number, importing)?;
        }
        Ok(())
    }

    fn column(&mut self, name: String) -> usize {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        self.columns.push((name.clone(), ColumnKind::Empty));
        self.by_name.insert(name, self.columns.len() - 1);
        self.columns.len() - 1
    }

    fn check_columns(&self) -> Result<(), CliFailure> {
        match self.columns.len() > COLUMNS_MAX {
            true => Err(self.file.failed(format!("more than {COLUMNS_MAX} different names of fields"))),
            false => Ok(()),
        }
    }

    fn take(&mut self, line: &[u8], number: u64, importing: &mut Importing) -> Result<(), CliFailure> {
        let place = RowPlace::Line(&self.file.name, number);
        let fields = match fields(line) {
            Ok(fields) => fields,
            Err(why) => return importing.report.refuse(place, RefusedKind::Row, &why),
        };
        let Some(mut table) = self.table.take() else { return Ok(()) };
        let mut found = vec![JsonCell::Null; self.columns.len()];
        for (name, cell) in fields {
            let known = self.columns.len();
            let at = self.column(name);
            if at == known {
                self.check_columns()?;
                table.add(&self.columns[at].0, cell.kind(), importing, self.file);
                found.push(cell);
            } else {
                found[at] = cell;
            }
        }
        let cells: Vec<Cell<'_>> = found.iter().map(JsonCell::cell).collect();
        let done = table.row(&cells, place, importing);
        self.table = Some(table);
        done
    }
}

/// What the garbage of tests is given to.
///
/// # Errors
/// As [`fields`].
#[cfg(test)]
pub fn looked_at(line: &[u8]) -> Result<usize, String> {
    fields(line).map(|fields| fields.len())
}

/// The fields of a line, those of inner objects with dots in their names.
///
/// # Errors
/// A sentence for the user.
fn fields(line: &[u8]) -> Result<FieldCells, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').trim();
    let mut found = Vec::new();
    let read = match add(text, "", DEPTH_MAX, &mut found) {
        Ok(()) => Ok(()),
        // As Python writes what JSON lacks.
        Err(_) if CONSTANTS.iter().any(|constant| text.contains(constant)) => {
            found.clear();
            add(&with_constants_as_texts(text), "", DEPTH_MAX, &mut found)
        }
        failed => failed,
    };
    read.map_err(|error| format!("the line is no JSON object: {}", without_place(&error)))?;
    Ok(found)
}

const CONSTANTS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// `text` with quotes around the constants outside of strings.
fn with_constants_as_texts(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut is_in_string) = (text, false);
    while let Some(c) = rest.chars().next() {
        if !is_in_string && let Some(constant) = CONSTANTS.iter().find(|constant| rest.starts_with(**constant)) {
            out.push('"');
            out.push_str(constant);
            out.push('"');
            rest = &rest[constant.len()..];
            continue;
        }
        let taken =
            if is_in_string && c == '\\' { rest.chars().take(2).map(char::len_utf8).sum() } else { c.len_utf8() };
        is_in_string ^= c == '"';
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

fn add(text: &str, before: &str, depth: usize, found: &mut FieldCells) -> serde_json::Result<()> {
    let object: RawObject<'_> = serde_json::from_str(text)?;
    for (key, raw) in object.0 {
        let name = if before.is_empty() { key } else { format!("{before}.{key}") };
        let raw = raw.get();
        if raw.starts_with('{') && depth > 0 {
            add(raw, &name, depth - 1, found)?;
        } else {
            found.push((name, JsonCell::of(raw)));
        }
    }
    Ok(())
}

/// An object whose values are not read yet.
struct RawObject<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    fields.push((key, value));
                }
                Ok(RawObject(fields))
            }
        }
        json.deserialize_map(FieldsVisitor)
    }
}
