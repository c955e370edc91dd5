//! The report as one page with pictures, which loads nothing.

use std::fmt::Write;

use super::RunReport;
use super::text::{cells, facts, headline, told};
use super::view::ReportTable;
use crate::cli::page::{STYLE, colour, escaped, figure, table};
use crate::info::counted;

/// Nodes, or ranks, that one picture shows; more could not be told apart.
const CURVES_MAX: usize = 24;
/// The curves of nodes, with the unit of each.
const CURVES: [(&str, &str); 3] = [
    ("cpu_percent", "CPU in use (%)"),
    ("used_RAM", "Memory in use (%)"),
    ("gpu_utilization_percent", "GPUs in use (%)"),
];

pub fn page(report: &RunReport) -> String {
    let mut page = String::new();
    write_page(report, &mut page).unwrap_or_default();
    page
}

fn write_page(report: &RunReport, page: &mut String) -> std::fmt::Result {
    let headline = escaped(&headline(report));
    write!(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{headline}</title>")?;
    write!(page, "<style>{STYLE}li.warning{{color:#a30000}}</style></head>\n<body><h1>{headline}</h1>\n<ul>")?;
    for (what, value) in facts(report) {
        write!(page, "<li>{what}: {}</li>", escaped(&value))?;
    }
    let warnings = match report.warnings.len() {
        0 => "No warnings".to_owned(),
        some => counted(some as u64, "warning"),
    };
    write!(page, "</ul>\n<h2>{warnings}</h2>\n<ul>")?;
    for line in told(&report.warnings) {
        write!(page, "<li class=\"warning\">{}</li>", escaped(&line))?;
    }
    writeln!(page, "</ul>")?;
    if let Some(curves) = report.answers.get("report_curves") {
        for (metric, title) in CURVES {
            picture(page, title, &of_metric(curves, metric))?;
        }
    }
    if let Some(memory) = report.answers.get("report_memory") {
        picture(page, "Memory of the job's ranks (bytes)", &of_ranks(memory))?;
    }
    for section in report.shown() {
        let (rows, more) = cells(section.table);
        let mut rows = rows.into_iter();
        let head = rows.next().unwrap_or_default();
        table(page, &escaped(section.title), head, rows)?;
        if more > 0 {
            writeln!(page, "<p>and {more} more rows</p>")?;
        }
    }
    writeln!(page, "</body></html>")
}

/// A curve and what it is called.
type NamedCurve = (String, Vec<(f64, f64)>);

fn picture(page: &mut String, title: &str, curves: &[NamedCurve]) -> std::fmt::Result {
    let shown = &curves[..curves.len().min(CURVES_MAX)];
    let points: Vec<Vec<(f64, f64)>> = shown.iter().map(|(_, points)| points.clone()).collect();
    figure(page, title, " s", &points)?;
    if shown.is_empty() {
        return Ok(());
    }
    let mut names: Vec<String> = shown
        .iter()
        .enumerate()
        .map(|(at, (name, _))| format!("<span style=\"color:{}\">{}</span>", colour(at), escaped(name)))
        .collect();
    if curves.len() > shown.len() {
        names.push(format!("and {} more", curves.len() - shown.len()));
    }
    writeln!(page, "<p>{}</p>", names.join(" · "))
}

fn of_metric(table: &ReportTable, metric: &str) -> Vec<NamedCurve> {
    let rows = table.rows().filter(|row| row.text("metric") == Some(metric));
    curves(rows.filter_map(|row| Some((row.text("node")?.to_owned(), row.number("since_us")?, row.number("mean")?))))
}

fn of_ranks(table: &ReportTable) -> Vec<NamedCurve> {
    curves(table.rows().filter_map(|row| {
        let name = format!("rank {} on {}", row.text("rank")?, row.text("node")?);
        Some((name, row.number("since_us")?, row.number("resident_bytes")?))
    }))
}

/// The points of each name, which come together; seconds since the start.
fn curves(points: impl Iterator<Item = (String, f64, f64)>) -> Vec<NamedCurve> {
    let mut curves: Vec<NamedCurve> = Vec::new();
    for (name, since_us, value) in points {
        match curves.last_mut() {
            Some((known, points)) if *known == name => points.push((since_us / 1e6, value)),
            _ => curves.push((name, vec![(since_us / 1e6, value)])),
        }
    }
    curves
}
