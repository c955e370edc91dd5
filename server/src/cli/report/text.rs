//! The report for people: text for a terminal, and Markdown.

use serde_json::Value as Json;

use super::RunReport;
use super::warnings::ReportWarning;
use crate::cli::aligned::{ColumnSide, lines, printable};
use crate::info::{counted, human, rfc3339};
use telem_engine::Timestamp;

/// Rows of a section, and warnings of a code; JSON has all.
const ROWS_MAX: usize = 24;
const WARNINGS_MAX: usize = 5;

pub fn text(report: &RunReport, width: Option<usize>) -> String {
    let mut text = format!("{}\n", headline(report));
    for (what, value) in facts(report) {
        text.push_str(&format!("  {what:<9} {value}\n"));
    }
    text.push('\n');
    match &*report.warnings {
        [] => text.push_str("No warnings\n"),
        warnings => {
            text.push_str(&format!("{}\n", counted(warnings.len() as u64, "warning")));
            for line in told(warnings) {
                text.push_str(&format!("  ! {}\n", printable(&line)));
            }
        }
    }
    for section in report.shown() {
        text.push_str(&format!("\n{}\n", printable(section.title)));
        let (rows, more) = cells(section.table);
        text.push_str(&lines(&rows, ColumnSide::Right, width));
        if more > 0 {
            text.push_str(&format!("and {more} more rows: --json\n"));
        }
    }
    text
}

pub fn markdown(report: &RunReport) -> String {
    let mut text = format!("# {}\n\n", escaped(&headline(report)));
    for (what, value) in facts(report) {
        text.push_str(&format!("* **{what}**: {}\n", escaped(&value)));
    }
    match &*report.warnings {
        [] => text.push_str("\nNo warnings.\n"),
        warnings => {
            text.push_str(&format!("\n## {}\n\n", counted(warnings.len() as u64, "warning")));
            for line in told(warnings) {
                text.push_str(&format!("* {}\n", escaped(&line)));
            }
        }
    }
    for section in report.shown() {
        text.push_str(&format!("\n## {}\n\n", escaped(section.title)));
        let (rows, more) = cells(section.table);
        for (at, row) in rows.iter().enumerate() {
            let row: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if at == 0 {
                let sides: Vec<&str> =
                    row.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "---:" }).collect();
                text.push_str(&format!("| {} |\n", sides.join(" | ")));
            }
        }
        if more > 0 {
            text.push_str(&format!("\nand {more} more rows\n"));
        }
    }
    text
}

/// What ran and how it ended, in one line.
pub fn headline(report: &RunReport) -> String {
    let job = &report.job;
    let name = job.name.as_deref().or(job.job.as_deref()).unwrap_or(&report.run);
    let end = match (job.exit_code, job.signal) {
        (Some(code), _) => format!(", exit code {code}"),
        (None, Some(signal)) => format!(", signal {signal}"),
        (None, None) => String::new(),
    };
    format!("{}: {}{end}", printable(name), job.state.as_deref().unwrap_or("running"))
}

/// What else there is to say of the run.
pub fn facts(report: &RunReport) -> Vec<(&'static str, String)> {
    let job = &report.job;
    let mut facts = vec![("run", printable(&report.run))];
    facts.extend(job.job.iter().map(|id| ("job", printable(id))));
    facts.extend(job.command.iter().map(|command| ("command", printable(command))));
    facts.extend(job.user.iter().map(|user| ("user", printable(user))));
    facts.push(("began", rfc3339(Timestamp::from_micros(job.begin_us))));
    facts.push(("took", human::stretch(job.duration_us)));
    facts.push(("nodes", job.nodes.to_string()));
    for (what, field) in [("settings", "settings"), ("tags", "tags")] {
        let pairs = job.description[field].as_object().into_iter().flatten();
        let pairs: Vec<String> = pairs
            .map(|(key, value)| format!("{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        if !pairs.is_empty() {
            facts.push((what, printable(&pairs.join(" "))));
        }
    }
    facts
}

/// The worst of each code, and how many more there are.
pub fn told(warnings: &[ReportWarning]) -> Vec<String> {
    let mut lines = Vec::new();
    for of_code in warnings.chunk_by(|a, b| a.code == b.code) {
        lines.extend(of_code.iter().take(WARNINGS_MAX).map(|warning| warning.text.clone()));
        if of_code.len() > WARNINGS_MAX {
            lines.push(format!("and {} more like these: --json", of_code.len() - WARNINGS_MAX));
        }
    }
    lines
}

/// The head and the rows of a table as texts, and how many more rows there are.
pub fn cells(table: &super::view::ReportTable) -> (Vec<Vec<String>>, usize) {
    let mut rows = vec![table.columns.iter().map(|column| title(column)).collect::<Vec<_>>()];
    for row in table.rows.iter().take(ROWS_MAX) {
        rows.push(table.columns.iter().zip(row).map(|(column, value)| cell(column, value)).collect());
    }
    (rows, table.rows.len().saturating_sub(ROWS_MAX))
}

/// Endings of the names of columns, which say what is in them.
const UNITS: [&str; 5] = ["_bytes", "_share", "_seconds", "_hertz", "_watts"];

fn title(column: &str) -> String {
    let bare = UNITS.iter().find_map(|unit| column.strip_suffix(unit)).unwrap_or(column);
    printable(bare).replace("_per_second", "/s").replace('_', " ")
}

fn cell(column: &str, value: &Json) -> String {
    let Some(number) = value.as_f64() else {
        return match value {
            Json::Null => "-".to_owned(),
            Json::String(text) => printable(text),
            other => other.to_string(),
        };
    };
    match UNITS.iter().find(|unit| column.ends_with(**unit)) {
        Some(&"_bytes") => human::bytes(number),
        Some(&"_share") => format!("{:.1} %", number * 100.0),
        Some(&"_seconds") => format!("{} s", human::short(number)),
        Some(&"_hertz") => format!("{:.2} GHz", number / 1e9),
        Some(&"_watts") => format!("{number:.0} W"),
        _ => value.as_u64().map_or_else(|| human::short(rounded(number)), human::grouped),
    }
}

/// Four digits are enough for a report.
fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

/// Without what Markdown takes for its own.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
