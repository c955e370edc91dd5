//! The views that a report is made of, and the rows of their answers.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Map, Number, Value as Json};

/// Those of telem.
pub const OWN: &str = include_str!("views.sql");

/// One section of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportView {
    pub name: String,
    pub title: String,
    pub sql: String,
    pub author: ViewAuthor,
}

/// The author of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAuthor {
    Telem,
    User,
}

/// The views in a file: each begins a line with `CREATE VIEW name AS`, and ends with a `;` at the end of a line. A comment
/// in the line above is its title.
///
/// # Errors
/// A sentence that names the line where something else stands.
pub fn parse(text: &str, author: ViewAuthor) -> Result<Vec<ReportView>, String> {
    let mut views: Vec<ReportView> = Vec::new();
    let mut title = None;
    let mut open: Option<ReportView> = None;
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        if let Some(view) = &mut open {
            view.sql.push('\n');
            view.sql.push_str(line);
        } else if let Some(comment) = line.strip_prefix("--") {
            title = Some(comment.trim().to_owned());
        } else if line.trim().is_empty() {
            title = None;
        } else {
            let (name, rest) =
                head(line).ok_or_else(|| format!("line {number}: expected CREATE VIEW name AS, found '{line}'"))?;
            if views.iter().any(|view| view.name == name) {
                return Err(format!("line {number}: a view '{name}' is there already"));
            }
            let title = title.take().unwrap_or_else(|| name.to_owned());
            open = Some(ReportView { name: name.to_owned(), title, sql: rest.to_owned(), author });
        }
        if line.trim_end().ends_with(';')
            && let Some(mut view) = open.take()
        {
            view.sql = view.sql.trim().trim_end_matches(';').to_owned();
            views.push(view);
        }
    }
    match open {
        Some(view) => Err(format!("the view '{}' does not end: expected a ; at the end of a line", view.name)),
        None => Ok(views),
    }
}

/// The name of a view, and what follows `AS`.
fn head(line: &str) -> Option<(&str, &str)> {
    let mut rest = line;
    for word in ["CREATE", "VIEW"] {
        rest = rest.get(word.len()..).filter(|_| rest[..word.len()].eq_ignore_ascii_case(word))?.trim_start();
    }
    let (name, rest) = rest.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let after = rest.get(2..).filter(|_| rest[..2].eq_ignore_ascii_case("AS"))?;
    (after.is_empty() || after.starts_with(char::is_whitespace)).then_some((name, after.trim_start()))
}

/// The rows of one view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportTable {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Json>>,
}

impl ReportTable {
    /// # Errors
    /// When a column has a type that is no value.
    pub fn of(batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let mut table = Self::default();
        for batch in batches {
            table.columns = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>, _>>()?;
            table
                .rows
                .extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()));
        }
        Ok(table)
    }

    pub fn rows(&self) -> impl Iterator<Item = ReportRow<'_>> {
        self.rows.iter().map(|values| ReportRow { table: self, values })
    }

    /// As objects.
    pub fn objects(&self) -> Vec<Map<String, Json>> {
        let object = |row: &Vec<Json>| self.columns.iter().cloned().zip(row.iter().cloned()).collect();
        self.rows.iter().map(object).collect()
    }
}

/// The answers to all views, by name.
pub type ViewAnswers = BTreeMap<String, ReportTable>;

#[derive(Clone, Copy, Debug)]
pub struct ReportRow<'a> {
    table: &'a ReportTable,
    values: &'a [Json],
}

impl<'a> ReportRow<'a> {
    fn get(self, column: &str) -> Option<&'a Json> {
        let at = self.table.columns.iter().position(|name| name == column)?;
        self.values.get(at)
    }

    pub fn number(self, column: &str) -> Option<f64> {
        self.get(column)?.as_f64()
    }

    pub fn text(self, column: &str) -> Option<&'a str> {
        self.get(column)?.as_str()
    }

    /// A map of texts, such as tags.
    pub fn map(self, column: &str) -> Option<&'a Map<String, Json>> {
        self.get(column)?.as_object()
    }
}

fn values(column: &ArrayRef) -> Result<Vec<Json>, ArrowError> {
    let of = |value: &dyn Fn(usize) -> Json| {
        (0..column.len()).map(|row| if column.is_valid(row) { value(row) } else { Json::Null }).collect()
    };
    Ok(match column.data_type() {
        kind if kind.is_integer() && *kind != DataType::UInt64 => {
            let whole = cast(column, &DataType::Int64)?;
            let whole = whole.as_primitive::<Int64Type>();
            of(&|row| Json::from(whole.value(row)))
        }
        kind if kind.is_numeric() => {
            let floats = cast(column, &DataType::Float64)?;
            let floats = floats.as_primitive::<Float64Type>();
            // JSON has no NaN.
            of(&|row| Number::from_f64(floats.value(row)).map_or(Json::Null, Json::Number))
        }
        DataType::Map(..) => {
            let maps = column.as_map();
            let of_row = |row: usize| {
                let entries = maps.value(row);
                let text = |column: usize| cast(entries.column(column), &DataType::Utf8);
                let (keys, values) = (text(0)?, text(1)?);
                let (keys, values) = (keys.as_string::<i32>(), values.as_string::<i32>());
                let pairs =
                    keys.iter().zip(values).filter_map(|(key, value)| Some((key?.to_owned(), Json::from(value))));
                Ok(Json::Object(pairs.collect()))
            };
            (0..column.len())
                .map(|row| if column.is_valid(row) { of_row(row) } else { Ok(Json::Null) })
                .collect::<Result<_, ArrowError>>()?
        }
        DataType::Boolean => of(&|row| Json::from(column.as_boolean().value(row))),
        _ => {
            let options = FormatOptions::default();
            let texts = ArrayFormatter::try_new(column, &options)?;
            of(&|row| Json::from(texts.value(row).to_string()))
        }
    })
}
