//! Translates an error of DataFusion for users: its kind, and its text without the layers that it passed through.

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;

use super::crossing::Crossing;
use super::{Error, ErrorKind};

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            // Ours, on its way back.
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(inner) => Error::DataFusion(Box::new(DataFusionError::External(inner))),
            },
            DataFusionError::Context(_, inner) => Error::from(*inner),
            error => match (Crossing::of(&error), error.find_root()) {
                (Some(told), _) => Error::from(told),
                (None, DataFusionError::ResourcesExhausted(text)) => Error::Memory(shortage(text)),
                (None, _) => Error::DataFusion(Box::new(error)),
            },
        }
    }
}

pub(super) fn kind(error: &DataFusionError) -> ErrorKind {
    match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(ours) => ours.kind(),
            None if inner.is::<regex::Error>() => ErrorKind::Invalid,
            None => ErrorKind::Internal,
        },
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::ExternalError(_) | ArrowError::IoError(..) | ArrowError::SchemaError(_) => ErrorKind::Internal,
            // They depend on the data: a division by zero, a text that is not a number.
            _ => ErrorKind::Invalid,
        },
        DataFusionError::Collection(errors) => errors.first().map_or(ErrorKind::Internal, kind),
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Configuration(_)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::ResourcesExhausted(_)
        | DataFusionError::Execution(_) => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    }
}

/// Other databases' way to say it, which the parser half knows.
const ASOF_JOIN: &str = "ASOF JOIN is a table here: SELECT * FROM asof('left', 'right', tolerance => '10 seconds', by => \
                         'host')";

pub(super) fn text(error: &DataFusionError) -> String {
    let mut text = one_line(&layered_text(error));
    if text.starts_with("Unsupported JOIN operator AsOf") || text.contains("Expected: MATCH_CONDITION") {
        return ASOF_JOIN.to_owned();
    }
    if let Some(text) = reworded(&text) {
        return text;
    }
    text.push_str(hint(&text));
    // A function's own message about its arguments comes wrapped in the layers that called it.
    let Some((_, told)) = text.split_once("coercion failed with: ") else { return text };
    let told = told.split(" No function matches the given name").next().unwrap_or(told);
    told.rsplit("Error during planning: ").next().unwrap_or(told).trim_end_matches('.').to_owned()
}

/// Functions of other databases that are here under another name.
const QUANTILES: [&str; 9] =
    ["quantile", "percentile", "percentile_approx", "approx_quantile", "p50", "p90", "p95", "p99", "p999"];

/// What a library says in words of its own, for people who do not know it.
fn reworded(text: &str) -> Option<String> {
    if text == "TOP" {
        return Some("TOP is not understood; write LIMIT 10 at the end of the query".to_owned());
    }
    if let Some((_, rest)) = text.split_once("Invalid function '") {
        let name = rest.split('\'').next().filter(|name| QUANTILES.contains(name))?;
        return Some(format!(
            "there is no function '{name}'; a quantile is percentile_cont(0.99) WITHIN GROUP (ORDER BY value), and of \
             many samples approx_percentile_cont, in the same way"
        ));
    }
    let told = text.strip_prefix("Column in SELECT must be in GROUP BY or an aggregate function: ")?;
    let column = told.split("column \"").nth(1)?.split('"').next()?;
    Some(format!("{column} is in SELECT, but neither in GROUP BY nor in an aggregate function such as max()"))
}

/// What to write instead, where the words of a library do not say it.
fn hint(text: &str) -> &'static str {
    let is = |parts: &[&str]| parts.iter().all(|part| text.contains(part));
    if is(&["Invalid input syntax for type interval"]) {
        "; write it as '5 minutes' or '100 milliseconds'"
    } else if is(&["Regular expression did not compile: CompiledTooBig"]) {
        " bytes are the most that one may take: it is too large; shorten it, above all repetitions such as {1000}"
    } else if is(&["Cannot infer common argument type for comparison", "Timestamp("]) {
        "; write a time as '2026-01-31T12:00:00Z' or '5m-ago', or to_timestamp(SECONDS)"
    } else if is(&["Error parsing timestamp from"]) {
        "; write a time as '2026-01-31T12:00:00Z', or '5m-ago'"
    } else if is(&["cannot read the SQL", "end of statement, found: /"])
        || is(&["cannot read the SQL", "end of statement, found: -"])
    {
        "; a name with other characters than letters, digits and _ needs quotes: \"train/loss\""
    } else if is(&["cannot read the SQL", "Expected: JOIN, found: LEFT"]) {
        "; an ASOF LEFT JOIN is a table here: SELECT * FROM asof('left', 'right')"
    } else {
        ""
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn layered_text(error: &DataFusionError) -> String {
    let root = error.find_root();
    match root {
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::Collection(errors) => errors.first().map_or_else(|| root.to_string(), layered_text),
        DataFusionError::SQL(error, _) => format!("cannot read the SQL: {error}"),
        DataFusionError::SchemaError(error, _) => schema_text(error),
        DataFusionError::ArrowError(error, _) => error.to_string(),
        _ if kind(root) == ErrorKind::Internal => format!("bug in telem: {}", root.message()),
        _ => root.message().into_owned(),
    }
}

fn schema_text(error: &SchemaError) -> String {
    let SchemaError::FieldNotFound { field, valid_fields } = error else { return error.to_string() };
    let mut known: Vec<String> = Vec::new();
    for column in valid_fields {
        let name = column.quoted_flat_name();
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let name = field.quoted_flat_name();
    let other_case = valid_fields.iter().find(|known| known.name.eq_ignore_ascii_case(&field.name));
    let has_tags = valid_fields.iter().any(|known| known.name == "tags");
    let hint = match other_case {
        Some(column) => format!("; is {} meant? Names are case-sensitive", column.quoted_flat_name()),
        None if known.is_empty() => String::new(),
        None if has_tags => format!("; there are {}; a tag is tags['{}']", known.join(", "), field.name),
        None => format!("; there are {}", known.join(", ")),
    };
    format!("there is no column {name}{hint}")
}

/// The line that says what was asked for and what was left, of a text that lists operators first.
fn shortage(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text).trim();
    line.strip_prefix("Error: ").unwrap_or(line).to_owned()
}
