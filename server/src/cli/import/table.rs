//! A table of rows: what each column means, and the samples of a row.
//!
//! There are three layouts. A wide table has a column a metric. A long one has a column with the names of metrics and
//! one with values. That of `telem export` is a long one whose names are kept as they are, and whose integers are exact.

use std::borrow::Cow;
use std::collections::HashSet;

use telem_engine::{Timestamp, Value};

use super::Importing;
use super::cell::Cell;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::store::{SeriesPlace, SeriesRefusal};
use super::times::{ImportTimeUnit, TimeCells, shown};
use crate::cli::CliFailure;
use crate::cli::glob::Glob;
use crate::cli::times::date;
use crate::info::rfc3339;

/// Names of columns with times, in any case of letters.
const TIMES: [&str; 9] =
    ["ts", "time", "timestamp", "_timestamp", "datetime", "date", "wall_time", "walltime", "unix_time"];
/// Columns that tell senders apart are tags also where they have numbers.
const TAGS_WITH_NUMBERS: [&str; 3] = ["host", "rank", "pid"];
/// Different texts of a column that nobody called a tag: a message a row would make a series a row.
const TEXTS_MAX: usize = 10_000;
/// The fixed columns of an export, before and behind those of its tags.
const EXPORT_BEFORE: [&str; 3] = ["metric", "host", "node"];
const EXPORT_BEHIND: [&str; 3] = ["ts", "value", "value_int"];
const TAG_PREFIX: &str = "tag_";
/// Columns that a message names.
const NAMED_MAX: usize = 8;
/// Words for no value in a column of numbers.
const NO_VALUE: [&str; 7] = ["", "null", "NULL", "NA", "N/A", "None", "<NA>"];

/// What the user says of tables.
#[derive(Clone, Debug, Default)]
pub struct TableRules {
    pub time: Option<String>,
    pub unit: Option<ImportTimeUnit>,
    pub metric: Option<String>,
    pub value: Option<String>,
    pub tags: Option<Vec<String>>,
    pub metrics: Vec<Glob>,
}

/// What a column holds, as far as its first rows tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Number,
    Text,
    Time,
    /// Nothing so far.
    Empty,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImportLayout {
    Export,
    Long,
    Wide,
}

#[derive(Debug)]
enum ColumnRole {
    Time,
    Node,
    MetricName,
    Value,
    ExactValue,
    Tag {
        key: String,
        /// Where nobody called it a tag: the texts so far.
        texts: Option<HashSet<String>>,
    },
    Metric {
        name: String,
    },
    LeftOut,
}

#[derive(Debug)]
struct TableColumn {
    name: String,
    role: ColumnRole,
}

/// A table of one file.
#[derive(Debug)]
pub struct ImportTable {
    layout: ImportLayout,
    columns: Vec<TableColumn>,
    time: usize,
    times: TimeCells,
    /// The one name of all values of a long table.
    metric: Option<String>,
    /// What calls a series in the store: see [`ImportTable::row`].
    key: Vec<u8>,
}

impl ImportTable {
    /// Decides what columns mean, and says it.
    ///
    /// # Errors
    /// Failed when there is no column of times or values, or one that the user names is not there.
    pub fn of(
        columns: &[(String, ColumnKind)],
        file: &ImportFile,
        importing: &mut Importing,
    ) -> Result<Self, CliFailure> {
        let rules = importing.rules.clone();
        let layout = layout(columns, &rules);
        let time = time_column(columns, &rules, layout).map_err(|why| file.failed(why))?;
        let metric = rules.metric.clone().filter(|name| layout == ImportLayout::Long && place(columns, name).is_none());
        let mut table = Self {
            layout,
            columns: Vec::with_capacity(columns.len()),
            time,
            times: TimeCells::new(rules.unit),
            metric,
            key: Vec::new(),
        };
        for named in rules.tags.iter().flatten().chain(&rules.value) {
            if place(columns, named).is_none() {
                return Err(file.failed(format!("there is no column '{named}'; {}", list(columns))));
            }
        }
        let mut known = HashSet::new();
        for (at, (name, kind)) in columns.iter().enumerate() {
            if !name.is_empty() && !known.insert(name) {
                return Err(file.failed(format!("two columns are called '{name}'")));
            }
            table.add_at(at, name, *kind, importing, file);
        }
        table.check(columns).map_err(|why| file.failed(why))?;
        importing.report.say(&format!("{}: {}", file.name, table.summary()));
        Ok(table)
    }

    /// A column that came later.
    pub fn add(&mut self, name: &str, kind: ColumnKind, importing: &mut Importing, file: &ImportFile) {
        self.add_at(self.columns.len(), name, kind, importing, file);
    }

    fn add_at(&mut self, at: usize, name: &str, kind: ColumnKind, importing: &mut Importing, file: &ImportFile) {
        let role = if at == self.time {
            ColumnRole::Time
        } else {
            match self.layout {
                ImportLayout::Export => export_role(name),
                ImportLayout::Long | ImportLayout::Wide => self.role(name, kind, importing, file),
            }
        };
        self.columns.push(TableColumn { name: name.to_owned(), role });
    }

    fn role(&self, name: &str, kind: ColumnKind, importing: &mut Importing, file: &ImportFile) -> ColumnRole {
        let Importing { rules, names, report, .. } = importing;
        let say = |line: String| report.say(&format!("{}: {line}", file.name));
        let is_long = self.layout == ImportLayout::Long;
        if is_long && self.metric.is_none() && name == rules.metric.as_deref().unwrap_or("metric") {
            return ColumnRole::MetricName;
        }
        if is_long && name == rules.value.as_deref().unwrap_or("value") {
            return ColumnRole::Value;
        }
        if name.is_empty() || name.starts_with("__index_level_") || name == "Unnamed: 0" {
            return ColumnRole::LeftOut;
        }
        let is_sender = TAGS_WITH_NUMBERS.iter().any(|tag| tag.eq_ignore_ascii_case(name));
        match (&rules.tags, kind) {
            (Some(tags), _) if tags.iter().any(|tag| tag == name) => {
                ColumnRole::Tag { key: names.key(name, say), texts: None }
            }
            (None, ColumnKind::Text) => ColumnRole::Tag { key: names.key(name, say), texts: Some(HashSet::new()) },
            (None, ColumnKind::Number) if is_sender => ColumnRole::Tag { key: names.key(name, say), texts: None },
            (_, ColumnKind::Number | ColumnKind::Empty) if !is_long => {
                let clean = names.metric(name, say);
                let is_chosen = rules.metrics.is_empty()
                    || rules.metrics.iter().any(|glob| glob.matches(name) || glob.matches(&clean));
                if is_chosen { ColumnRole::Metric { name: clean } } else { ColumnRole::LeftOut }
            }
            _ => ColumnRole::LeftOut,
        }
    }

    fn check(&self, columns: &[(String, ColumnKind)]) -> Result<(), String> {
        let has = |is: fn(&ColumnRole) -> bool| self.columns.iter().any(|column| is(&column.role));
        match self.layout {
            ImportLayout::Wide if !has(|role| matches!(role, ColumnRole::Metric { .. })) => {
                Err(format!("no column is a metric; {}", list(columns)))
            }
            ImportLayout::Long if !has(|role| matches!(role, ColumnRole::Value)) => {
                Err(format!("no column has the values: name it with --value; {}", list(columns)))
            }
            ImportLayout::Long if self.metric.is_none() && !has(|role| matches!(role, ColumnRole::MetricName)) => {
                Err(format!("no column names the metrics: name it with --metric; {}", list(columns)))
            }
            _ => Ok(()),
        }
    }

    /// What the file was taken for.
    fn summary(&self) -> String {
        if self.layout == ImportLayout::Export {
            return "an export of telem".to_owned();
        }
        let of = |role: fn(&TableColumn) -> Option<&str>| {
            let names: Vec<&str> = self.columns.iter().filter_map(role).collect();
            match names.len() {
                0 => "none".to_owned(),
                few if few <= NAMED_MAX => names.join(", "),
                many => format!("{} and {} more", names[..NAMED_MAX].join(", "), many - NAMED_MAX),
            }
        };
        let tags = of(|column| match &column.role {
            ColumnRole::Tag { key, .. } => Some(key),
            _ => None,
        });
        let left_out = of(|column| matches!(column.role, ColumnRole::LeftOut).then_some(&column.name));
        let left_out = if left_out == "none" { String::new() } else { format!("; left out {left_out}") };
        let time = &self.columns[self.time].name;
        match (self.layout, &self.metric) {
            (ImportLayout::Wide, _) => {
                let metrics = of(|column| match &column.role {
                    ColumnRole::Metric { name } => Some(name),
                    _ => None,
                });
                format!("time {time}; metrics {metrics}; tags {tags}{left_out}")
            }
            (_, Some(metric)) => format!("time {time}; metric {metric}; tags {tags}{left_out}"),
            (_, None) => format!("time {time}; a row a sample; tags {tags}{left_out}"),
        }
    }

    /// Whether the column of this number is needed.
    pub fn needs(&self, at: usize) -> bool {
        !matches!(self.columns[at].role, ColumnRole::LeftOut)
    }

    /// Takes the samples of a row; what cannot be taken is reported. Cells are in the order of columns; those that are
    /// not there are null.
    ///
    /// # Errors
    /// Failed when the store fails, and when a column is no tag after all.
    pub fn row(
        &mut self,
        cells: &[Cell<'_>],
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        let cell = |at: usize| cells.get(at).copied().unwrap_or(Cell::Null);
        let micros = match self.times.micros(&cell(self.time)) {
            Ok(micros) if micros == Timestamp::MAX.micros() => Err("the time is the end of time".to_owned()),
            other => other,
        };
        if let Some(unit) = self.times.guessed() {
            let (column, unit) = (&self.columns[self.time].name, unit.name());
            importing.report.say(&format!("times in {column} are {unit} since 1970, by their size; see --time-unit"));
        }
        let time = match micros {
            Ok(micros) => Timestamp::from_micros(micros),
            Err(why) => return importing.report.refuse(place, RefusedKind::Time, &why),
        };
        self.start_key(cells, place)?;
        let prefix = self.key.len();
        if self.layout == ImportLayout::Wide {
            for at in 0..self.columns.len() {
                let ColumnRole::Metric { .. } = &self.columns[at].role else { continue };
                let value = match number(&cell(at)) {
                    Ok(Some(value)) => value,
                    Ok(None) => continue,
                    Err(why) => {
                        let why = format!("{} is {why}", self.columns[at].name);
                        importing.report.refuse(place, RefusedKind::Value, &why)?;
                        continue;
                    }
                };
                self.key.truncate(prefix);
                match self.series(cells, Some(at), importing)? {
                    Ok(Some(series)) => importing.store.push(series, time, value)?,
                    Ok(None) => {}
                    Err(why) => importing.report.refuse(place, RefusedKind::Name, &why)?,
                }
            }
            return Ok(());
        }
        self.sample(cells, time, place, importing)
    }

    /// The one sample of a row of a long table.
    fn sample(
        &mut self,
        cells: &[Cell<'_>],
        time: Timestamp,
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        let (mut value, mut exact) = (Cell::Null, Cell::Null);
        for (column, cell) in self.columns.iter().zip(cells) {
            match &column.role {
                ColumnRole::Value => value = *cell,
                ColumnRole::ExactValue => exact = *cell,
                _ => {}
            }
        }
        let is_export = self.layout == ImportLayout::Export;
        let value = match (number(&exact), number(&value)) {
            (Ok(Some(exact)), _) => exact,
            // What an export has as a float was one.
            (Ok(None), Ok(Some(value))) if is_export => Value::Float(value.as_f64()),
            (Ok(None), Ok(Some(value))) => value,
            (Ok(None), Ok(None)) => return Ok(()),
            (Err(why), _) | (_, Err(why)) => {
                return importing.report.refuse(place, RefusedKind::Value, &format!("the value is {why}"));
            }
        };
        match self.series(cells, None, importing)? {
            Ok(Some(series)) => importing.store.push(series, time, value),
            Ok(None) => Ok(()),
            Err(why) => importing.report.refuse(place, RefusedKind::Name, &why),
        }
    }

    /// Starts the key of a row's series with all but the metric: every part with its length, so that no two series
    /// have one key.
    fn start_key(&mut self, cells: &[Cell<'_>], place: RowPlace<'_>) -> Result<(), CliFailure> {
        self.key.clear();
        self.key.push(self.layout as u8);
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            let key = match &mut column.role {
                ColumnRole::Node => "",
                ColumnRole::Tag { key, texts } => {
                    if let (Some(texts), Cell::Text(text)) = (texts, cell)
                        && !texts.contains(*text)
                    {
                        if texts.len() >= TEXTS_MAX {
                            return Err(CliFailure::Failed(format!(
                                "{place}: column '{}' has more than {TEXTS_MAX} different texts, each of which would \
                                 be a series; name the columns that are tags with --tags",
                                column.name
                            )));
                        }
                        texts.insert((*text).to_owned());
                    }
                    key
                }
                _ => continue,
            };
            if let Some(text) = text_of(cell) {
                put(&mut self.key, key);
                put(&mut self.key, &text);
            }
        }
        Ok(())
    }

    /// The series of a metric in a row: that of column `metric`, or the one that the row names. `None` where the user
    /// did not choose it, or there is no name; the reason where its name is bad.
    fn series(
        &mut self,
        cells: &[Cell<'_>],
        metric: Option<usize>,
        importing: &mut Importing,
    ) -> Result<Result<Option<SeriesPlace>, String>, CliFailure> {
        let Importing { store, report, names, rules, .. } = importing;
        let named = |at: usize| match &self.columns[at].role {
            ColumnRole::Metric { name } => Some(Cow::Borrowed(&**name)),
            _ => None,
        };
        let of_row = || {
            let at = self.columns.iter().position(|column| matches!(column.role, ColumnRole::MetricName))?;
            text_of(cells.get(at)?)
        };
        let raw = match (metric, &self.metric) {
            (Some(at), _) => named(at),
            (None, Some(one)) => Some(Cow::Borrowed(&**one)),
            (None, None) => of_row(),
        };
        let Some(raw) = raw else { return Ok(Err("the row names no metric".to_owned())) };
        put(&mut self.key, &raw);
        if let Some(known) = store.known(&self.key) {
            return Ok(Ok(Some(known)));
        }
        let metric = match self.layout {
            ImportLayout::Long => Cow::Owned(names.metric(&raw, |line| report.say(&line))),
            ImportLayout::Wide | ImportLayout::Export => raw.clone(),
        };
        let is_chosen = self.layout == ImportLayout::Wide
            || rules.metrics.is_empty()
            || rules.metrics.iter().any(|glob| glob.matches(&raw) || glob.matches(&metric));
        if !is_chosen {
            return Ok(Ok(None));
        }
        let (mut node, mut tags) = (None, Vec::new());
        for (column, cell) in self.columns.iter().zip(cells) {
            match &column.role {
                ColumnRole::Node => node = text_of(cell),
                ColumnRole::Tag { key, .. } => tags.extend(text_of(cell).map(|text| (&**key, text))),
                _ => {}
            }
        }
        let tags = tags.iter().map(|(key, text)| (*key, &**text));
        match store.series(&self.key, node.as_deref(), &metric, tags) {
            Ok(series) => Ok(Ok(Some(series))),
            Err(SeriesRefusal::Name(why)) => Ok(Err(why)),
            Err(SeriesRefusal::Failed(failure)) => Err(failure),
        }
    }
}

fn put(key: &mut Vec<u8>, text: &str) {
    key.extend_from_slice(&(text.len() as u64).to_le_bytes());
    key.extend_from_slice(text.as_bytes());
}

fn place(columns: &[(String, ColumnKind)], name: &str) -> Option<usize> {
    columns.iter().position(|(column, _)| column == name)
}

/// The names of the columns, for a message.
fn list(columns: &[(String, ColumnKind)]) -> String {
    let mut names: Vec<&str> = columns.iter().map(|(name, _)| &**name).take(NAMED_MAX).collect();
    if columns.len() > NAMED_MAX {
        names.push("...");
    }
    format!("there are {}", names.join(", "))
}

fn layout(columns: &[(String, ColumnKind)], rules: &TableRules) -> ImportLayout {
    let names: Vec<&str> = columns.iter().map(|(name, _)| &**name).collect();
    let is_told = rules.metric.is_some() || rules.value.is_some();
    if !is_told && names.starts_with(&EXPORT_BEFORE) && names.ends_with(&EXPORT_BEHIND) {
        return ImportLayout::Export;
    }
    let is_long = is_told || (names.contains(&"metric") && names.contains(&"value"));
    if is_long { ImportLayout::Long } else { ImportLayout::Wide }
}

/// A column of an export; see `column_of` in `cli/export/columns.rs` for the way there.
fn export_role(name: &str) -> ColumnRole {
    match name {
        "metric" => return ColumnRole::MetricName,
        "node" => return ColumnRole::Node,
        "value" => return ColumnRole::Value,
        "value_int" => return ColumnRole::ExactValue,
        _ => {}
    }
    let mut bare = name;
    while let Some(rest) = bare.strip_prefix(TAG_PREFIX) {
        bare = rest;
    }
    let fixed = ["metric", "node", "ts", "value", "value_int"];
    let is_renamed = fixed.iter().any(|fixed| fixed.eq_ignore_ascii_case(bare));
    let key = name.strip_prefix(TAG_PREFIX).filter(|_| is_renamed).unwrap_or(name);
    ColumnRole::Tag { key: key.to_owned(), texts: None }
}

fn time_column(columns: &[(String, ColumnKind)], rules: &TableRules, layout: ImportLayout) -> Result<usize, String> {
    if let Some(name) = &rules.time {
        return place(columns, name).ok_or_else(|| format!("there is no column '{name}'; {}", list(columns)));
    }
    if layout == ImportLayout::Export {
        return Ok(columns.len() - EXPORT_BEHIND.len());
    }
    let by_name = TIMES.iter().find_map(|time| {
        columns.iter().position(|(name, kind)| name.eq_ignore_ascii_case(time) && *kind != ColumnKind::Other)
    });
    let times: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].1 == ColumnKind::Time).collect();
    match (by_name, &*times) {
        (Some(at), _) => Ok(at),
        (None, [one]) => Ok(*one),
        _ => Err(format!("no column is known to be the time: name it with --time; {}", list(columns))),
    }
}

/// The text of a tag; `None` for none.
fn text_of<'a>(cell: &Cell<'a>) -> Option<Cow<'a, str>> {
    match *cell {
        Cell::Null | Cell::Text("") | Cell::Other | Cell::TooLarge => None,
        Cell::Text(text) => Some(Cow::Borrowed(text)),
        Cell::Int(int) => Some(Cow::Owned(int.to_string())),
        Cell::Float(float) => Some(Cow::Owned(float.to_string())),
        Cell::Time(micros) => Some(Cow::Owned(rfc3339(Timestamp::from_micros(micros)))),
    }
}

/// The number in a cell; `None` where there is none.
///
/// # Errors
/// What it is instead.
pub fn number(cell: &Cell<'_>) -> Result<Option<Value>, String> {
    match *cell {
        Cell::Null => Ok(None),
        Cell::Int(int) => Ok(Some(Value::Int(int))),
        Cell::Float(float) => Ok(Some(Value::Float(float))),
        Cell::TooLarge => Err("an integer beyond 64 bits".to_owned()),
        Cell::Time(_) => Err("a time".to_owned()),
        Cell::Other => Err("no number".to_owned()),
        Cell::Text(text) => {
            let text = text.trim();
            if NO_VALUE.contains(&text) {
                return Ok(None);
            }
            number_of(text).map(Some)
        }
    }
}

/// A number as text has it: an integer where it has neither point nor exponent.
///
/// # Errors
/// What it is instead.
pub fn number_of(text: &str) -> Result<Value, String> {
    if let Ok(int) = text.parse() {
        return Ok(Value::Int(int));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{}, an integer beyond 64 bits", shown(text)));
    }
    text.parse().map(Value::Float).map_err(|_| format!("'{}', no number", shown(text)))
}

/// What a text in a column without types may be.
pub fn kind_of_text(text: &str) -> ColumnKind {
    let text = text.trim();
    if NO_VALUE.contains(&text) {
        return ColumnKind::Empty;
    }
    match number_of(text) {
        Ok(_) => ColumnKind::Number,
        Err(_) if date(text).is_some() => ColumnKind::Time,
        Err(_) => ColumnKind::Text,
    }
}

/// How many cells of a column are what.
#[derive(Clone, Copy, Debug, Default)]
pub struct KindCounts {
    numbers: u64,
    texts: u64,
    times: u64,
    others: u64,
}

impl KindCounts {
    pub fn add(&mut self, kind: ColumnKind) {
        match kind {
            ColumnKind::Number => self.numbers += 1,
            ColumnKind::Text => self.texts += 1,
            ColumnKind::Time => self.times += 1,
            ColumnKind::Other => self.others += 1,
            ColumnKind::Empty => {}
        }
    }

    /// What most cells are: a bad value among numbers is refused where it stands, and makes no tag of its column.
    pub fn kind(self) -> ColumnKind {
        let Self { numbers, texts, times, others } = self;
        match numbers.max(texts).max(times).max(others) {
            0 => ColumnKind::Empty,
            most if most == numbers => ColumnKind::Number,
            most if most == texts => ColumnKind::Text,
            most if most == times => ColumnKind::Time,
            _ => ColumnKind::Other,
        }
    }
}

#[cfg(test)]
mod tests;
