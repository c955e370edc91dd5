//! Databases of Dragon's telemetry: SQLite files with a row a point, of one node (`ts_USER_HOST.db`), copies of those
//! (`ts_USER_HOST_DATE_TIME.db`), or merged ones with a table a host.
//!
//! [`open`] has SQLite read what SQLite can read; of damaged files [`pages`] finds what is left. [`origin`] says which
//! node a file is of. [`spread`] keeps points of one second apart, and counts a row that is in several files once. The
//! table `flags` holds a pickled object of Python, and is never read.

pub mod open;
mod origin;
pub mod pages;
pub mod spread;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rusqlite::types::ValueRef;
use serde_json::{Map, Value as Json};
use telem_engine::{Timestamp, Value};

use super::cell::Cell;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::store::SeriesRefusal;
use super::table::number_of;
use super::times::{TimeCells, shown};
use super::{Importing, NODE};
use crate::cli::CliFailure;
use crate::info::grouped;
use open::{DragonDb, DragonTable, LostLeaves, TableEnd};
use origin::{DragonName, KnownUsers};
use pages::LeftEnd;
use spread::{SpreadRow, SpreadSorter};

pub const MAGIC: &[u8] = b"SQLite format 3\0";
/// What names of Dragon's files start and end with.
const PREFIX: &str = "ts_";
const SUFFIX: &str = ".db";
const HOST: &str = "host";
/// Tables of one node: as Dragon's code calls it, and as its documentation does.
const OWN_TABLES: [&str; 2] = ["datapoints", "metrics"];
/// About so many bytes of a row are not of its texts.
const ROW_BYTES: u64 = 18;

/// Whether a file is called as Dragon calls its own.
pub fn is_called_so(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// One row of one table, as SQLite has it.
#[derive(Clone, Copy, Debug)]
pub struct DragonRow<'a> {
    pub rowid: i64,
    pub metric: ValueRef<'a>,
    pub time: ValueRef<'a>,
    pub value: ValueRef<'a>,
    pub tags: ValueRef<'a>,
}

/// Takes the rows of all `files`, in the order of their names, however the user ordered them.
///
/// # Errors
/// Failed when a file cannot be read or is none of Dragon's, or the store fails.
pub fn read(importing: &mut Importing, files: &[&ImportFile]) -> Result<(), CliFailure> {
    let mut files = files.to_vec();
    if files.is_empty() {
        return Ok(());
    }
    files.sort_by(|one, other| (one.file_name(), &one.name).cmp(&(other.file_name(), &other.name)));
    let names: Vec<Option<DragonName>> = files.iter().map(|file| DragonName::of(&file.file_name())).collect();
    let users = KnownUsers::of(names.iter().flatten(), files.iter().map(|file| file.path()));
    let sorter = SpreadSorter::new(importing.store.scratch_dir());
    let mut rows = DragonRows { sorter, sources: 0, node: importing.run.node.clone(), nodes: Vec::new() };
    for (file, name) in files.iter().zip(&names) {
        rows.file(importing, file, name.as_ref(), &users)?;
        importing.report.done(file.bytes);
    }
    if importing.run.name.is_none() {
        importing.run.name = origin::run_name(&names);
    }
    rows.sorter.finish(importing)
}

/// What is read so far of all files.
struct DragonRows {
    sorter: SpreadSorter,
    /// Files, and parts of merged tables, so far.
    sources: u32,
    /// What the user calls the node of all files.
    node: Option<String>,
    /// The nodes that names of files and tables tell.
    nodes: Vec<String>,
}

/// Where rows come from.
struct TableReader<'a> {
    file: &'a ImportFile,
    rows: &'a mut DragonRows,
    /// The node of rows without a tag host.
    node: String,
    source: u32,
    /// Of a merged table: the part that each series is in, and its last second.
    parts: Option<HashMap<u32, (u32, i64)>>,
    /// What calls a series in the store.
    key: Vec<u8>,
    bytes: u64,
    count: u64,
}

impl DragonRows {
    fn file(
        &mut self,
        importing: &mut Importing,
        file: &ImportFile,
        name: Option<&DragonName>,
        users: &KnownUsers,
    ) -> Result<(), CliFailure> {
        let db = DragonDb::open(file, importing)?;
        let (tables, others) = db.tables()?;
        if tables.is_empty() {
            let others = if others.is_empty() { String::new() } else { format!("; there is {}", others.join(", ")) };
            return Err(file.failed(format!(
                "is an SQLite database, but none of Dragon: expected a table datapoints, or one a host, with the \
                 columns metric, timestamp, value and tags{others}"
            )));
        }
        for other in others {
            importing.report.say(&format!("{}: left out the table {other}", file.name));
        }
        let is_one = tables.len() == 1;
        let mut bytes = 0;
        for table in &tables {
            let is_own = OWN_TABLES.contains(&&*table.name);
            let hosts = if is_own { db.hosts(table) } else { Vec::new() };
            let found = match (is_own, name) {
                (false, _) => Some((table.name.clone(), "by its table".to_owned())),
                (true, Some(name)) => Some(name.node(&hosts, users)),
                (true, None) => match &*hosts {
                    [one] => Some((one.clone(), "by the tag host of its rows".to_owned())),
                    _ => None,
                },
            };
            let (node, how) = self.choose(file, found, is_one)?;
            importing.report.say(&format!("{}: a database of Dragon, node {} ({how})", file.name, node.escape_debug()));
            self.sources += 1;
            let mut reader = TableReader {
                file,
                source: self.sources,
                rows: self,
                node,
                parts: (!is_own).then(HashMap::new),
                key: Vec::new(),
                bytes,
                count: 0,
            };
            reader.read(importing, &db, table, is_one)?;
            bytes = reader.bytes;
        }
        Ok(())
    }

    /// The node of a table, and how it is known.
    fn choose(
        &mut self,
        file: &ImportFile,
        found: Option<(String, String)>,
        is_one: bool,
    ) -> Result<(String, String), CliFailure> {
        let Some(told) = &self.node else {
            return Ok(found.unwrap_or_else(|| {
                (NODE.to_owned(), "its name is not ts_USER_HOST.db: tell the node with --node".to_owned())
            }));
        };
        self.nodes.extend(found.map(|(node, _)| node));
        self.nodes.sort();
        self.nodes.dedup();
        if !is_one || self.nodes.len() > 1 {
            return Err(CliFailure::usage(format!(
                "--node is the name of one node, but there are several up to {}: {}",
                file.name,
                if is_one { self.nodes.join(", ") } else { "it has a table a host".to_owned() }
            )));
        }
        Ok((told.clone(), "by --node".to_owned()))
    }
}

impl TableReader<'_> {
    /// Takes the rows of a table; of a damaged one those that are left.
    fn read(
        &mut self,
        importing: &mut Importing,
        db: &DragonDb,
        table: &DragonTable,
        is_one: bool,
    ) -> Result<(), CliFailure> {
        let file = self.file;
        let mut after = i64::MIN;
        loop {
            match db.rows(table, after, |row| self.row(importing, row))? {
                TableEnd::Whole => return Ok(()),
                TableEnd::NoRows(why) => {
                    let line = format!("{}: left out the table {}: {why}", file.name, table.name.escape_debug());
                    importing.report.say(&line);
                    return Ok(());
                }
                TableEnd::TooLarge(rowid) => {
                    let why = format!("the row is larger than {} bytes", grouped(pages::ROW_BYTES_MAX));
                    importing.report.refuse(place_of(file, rowid), RefusedKind::Row, &why)?;
                    after = rowid;
                }
                TableEnd::Damaged(rowid) => return self.left(importing, db, table, rowid, is_one),
            }
        }
    }

    /// Takes what is left behind the row `after` of a table in a damaged file.
    fn left(
        &mut self,
        importing: &mut Importing,
        db: &DragonDb,
        table: &DragonTable,
        after: i64,
        is_one: bool,
    ) -> Result<(), CliFailure> {
        let file = self.file;
        let lost = if is_one { LostLeaves::LookedFor } else { LostLeaves::Left };
        let Some(mut left) = db.pages(table, after, lost) else {
            let why = "the rows behind it cannot be read: the file is damaged";
            return importing.report.refuse(place_of(file, after), RefusedKind::Part, why);
        };
        loop {
            let lost = left.next_page(|row| self.row(importing, row))?;
            match lost {
                LeftEnd::More => {}
                LeftEnd::Lost(lost) => {
                    importing.report.refuse(place_of(file, lost.first), RefusedKind::Part, &lost.to_string())?;
                }
                LeftEnd::End => return Ok(()),
            }
        }
    }

    fn row(&mut self, importing: &mut Importing, row: &DragonRow<'_>) -> Result<(), CliFailure> {
        self.count += 1;
        let texts: usize = [row.metric, row.time, row.tags].iter().map(size).sum();
        self.bytes += ROW_BYTES + texts as u64;
        importing.report.at(self.bytes.min(self.file.bytes), self.rows.sorter.rows());
        if self.count.is_multiple_of(open::ROWS_AT_ONCE) {
            importing.store.check_stop()?;
        }
        let place = place_of(self.file, row.rowid);
        let (kind, why) = match self.sample(importing, row)? {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        importing.report.refuse(place, kind, &why)
    }

    /// Takes the sample of a row, or says why there is none.
    fn sample(
        &mut self,
        importing: &mut Importing,
        row: &DragonRow<'_>,
    ) -> Result<Result<(), (RefusedKind, String)>, CliFailure> {
        let Some(metric) = text(row.metric) else {
            return Ok(Err((RefusedKind::Name, format!("the name of the metric is {}", what(row.metric)))));
        };
        // The size of each row's own time tells its unit: programs log what they like.
        let micros = match TimeCells::new(importing.rules.unit).micros(&cell(row.time)) {
            Ok(micros) if micros == Timestamp::MAX.micros() => {
                return Ok(Err((RefusedKind::Time, "the time is the end of time".to_owned())));
            }
            Ok(micros) => micros,
            Err(why) => return Ok(Err((RefusedKind::Time, why))),
        };
        let value = match number(row.value) {
            Ok(value) => value,
            Err(why) => return Ok(Err((RefusedKind::Value, format!("{} is {why}", shown(metric))))),
        };
        let series = match self.series(importing, metric, row.tags)? {
            Ok(Some(series)) => series,
            Ok(None) => return Ok(Ok(())),
            Err(why) => return Ok(Err((RefusedKind::Name, why))),
        };
        let source = self.source_of(series, micros.div_euclid(spread::SECOND));
        let row = SpreadRow::new(series, source, micros, value);
        self.rows.sorter.push(row)?;
        Ok(Ok(()))
    }

    /// Merged tables are dumps one behind the other, which overlap: where the time of a series goes back, another part
    /// begins, which counts as another file.
    fn source_of(&mut self, series: u32, second: i64) -> u32 {
        let Some(parts) = &mut self.parts else { return self.source };
        let (part, last) = parts.entry(series).or_insert((self.source, second));
        if second < *last {
            self.rows.sources += 1;
            *part = self.rows.sources;
        }
        *last = second;
        *part
    }

    /// The series of a row; `None` where the user did not choose its metric, or why it has none.
    fn series(
        &mut self,
        importing: &mut Importing,
        metric: &str,
        tags: ValueRef<'_>,
    ) -> Result<Result<Option<u32>, String>, CliFailure> {
        let raw = match tags {
            ValueRef::Null => &b"null"[..],
            ValueRef::Text(text) => text,
            other => return Ok(Err(format!("the tags are {}, no JSON", what(other)))),
        };
        self.key.clear();
        self.key.push(b'D');
        for part in [self.node.as_bytes(), metric.as_bytes(), raw] {
            self.key.extend_from_slice(&(part.len() as u64).to_le_bytes());
            self.key.extend_from_slice(part);
        }
        let Importing { store, report, names, rules, .. } = importing;
        if let Some(known) = store.known(&self.key) {
            return Ok(Ok(Some(self.rows.sorter.number(known))));
        }
        let clean = names.metric(metric, |line| report.say(&line));
        let is_chosen =
            rules.metrics.is_empty() || rules.metrics.iter().any(|glob| glob.matches(metric) || glob.matches(&clean));
        if !is_chosen {
            return Ok(Ok(None));
        }
        let mut all = match tags_of(raw) {
            Ok(all) => all,
            Err(why) => return Ok(Err(why)),
        };
        for (key, _) in &mut all {
            *key = names.key(key, |line| report.say(&line));
        }
        let node = match all.iter().find(|(key, _)| key == HOST) {
            Some((_, host)) => host.clone(),
            None => {
                all.push((HOST.to_owned(), self.node.clone()));
                self.node.clone()
            }
        };
        let tags = || all.iter().map(|(key, value)| (&**key, &**value));
        let series = match store.series(&self.key, Some(&node), &clean, tags()) {
            // A text that names no directory is a tag all the same.
            Err(SeriesRefusal::Name(_)) if node != self.node => {
                store.series(&self.key, Some(&self.node), &clean, tags())
            }
            other => other,
        };
        match series {
            Ok(place) => Ok(Ok(Some(self.rows.sorter.number(place)))),
            Err(SeriesRefusal::Name(why)) => Ok(Err(why)),
            Err(SeriesRefusal::Failed(failure)) => Err(failure),
        }
    }
}

fn place_of(file: &ImportFile, rowid: i64) -> RowPlace<'_> {
    RowPlace::Row(&file.name, rowid.unsigned_abs())
}

fn size(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 0,
    }
}

fn text<'a>(value: ValueRef<'a>) -> Option<&'a str> {
    match value {
        ValueRef::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// What a message calls a value that is not what it should be.
fn what(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(int) => format!("the number {int}"),
        ValueRef::Real(float) => format!("the number {float}"),
        ValueRef::Text(text) => format!("'{}'", shown(&String::from_utf8_lossy(text))),
        ValueRef::Blob(bytes) => format!("{} bytes", grouped(bytes.len() as u64)),
    }
}

fn cell(value: ValueRef<'_>) -> Cell<'_> {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(int) => Cell::Int(int),
        ValueRef::Real(float) => Cell::Float(float),
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).map_or(Cell::Other, Cell::Text),
        ValueRef::Blob(_) => Cell::Other,
    }
}

/// A number, or a text that is one: Dragon stores whatever a program logs.
fn number(value: ValueRef<'_>) -> Result<Value, String> {
    match value {
        ValueRef::Integer(int) => Ok(Value::Int(int)),
        ValueRef::Real(float) => Ok(Value::Float(float)),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            match text.trim() {
                "" => Err("an empty text, no number".to_owned()),
                text => number_of(text),
            }
        }
        other => Err(format!("{}, no number", what(other))),
    }
}

/// The tags of a row. Numbers are texts, and null is no tag.
fn tags_of(json: &[u8]) -> Result<Vec<(String, String)>, String> {
    let none = || format!("the tags are '{}', no JSON object", shown(&String::from_utf8_lossy(json)));
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let tags: Option<Map<String, Json>> = serde_json::from_slice(json).map_err(|_| none())?;
    let mut all = Vec::new();
    for (key, value) in tags.unwrap_or_default() {
        let text = match value {
            Json::Null => continue,
            Json::String(text) if text.is_empty() => continue,
            Json::String(text) => text,
            Json::Number(number) => number.to_string(),
            Json::Bool(truth) => truth.to_string(),
            Json::Array(_) => return Err(format!("the tag '{}' is a list, no text", shown(&key))),
            Json::Object(_) => return Err(format!("the tag '{}' is an object, no text", shown(&key))),
        };
        all.push((key, text));
    }
    Ok(all)
}
