//! The comparison as one page: tables, and the curves of every metric with all runs above each other. It loads nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::{Alignment, MetricDiff, MetricNumbers};
use super::text::{number, p_value, percent};
use super::{DiffReport, letter};
use crate::cli::page::{self, STYLE, colour, escaped, table};

pub fn page(report: &DiffReport, top: usize) -> String {
    let mut html = String::new();
    write_page(report, top, &mut html).unwrap_or_default();
    html
}

fn write_page(report: &DiffReport, top: usize, page: &mut String) -> std::fmt::Result {
    let named: Vec<String> = report.runs.iter().map(|run| escaped(run)).collect();
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>",
        named.join(", ")
    )?;
    write!(page, "<style>{STYLE}</style></head>\n<body><h1>Runs compared</h1>\n<ul>")?;
    for (at, run) in named.iter().enumerate() {
        write!(page, "<li><b style=\"color:{}\">{}</b> {run}</li>", colour(at), letter(at))?;
    }
    writeln!(page, "</ul>")?;
    let letters: Vec<String> = (0..report.runs.len()).map(letter).collect();
    if !report.diff.facts.is_empty() {
        let rows = report.diff.facts.iter().map(|one| {
            let values = one.values.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned()));
            [one.fact.name()].into_iter().chain(values).collect()
        });
        table(page, "What differs", ["differs".to_owned()].into_iter().chain(letters.clone()).collect(), rows)?;
    }
    let shown = &report.diff.metrics[..top.min(report.diff.metrics.len())];
    table(page, "Metrics by how much they changed", metric_head(&letters), shown.iter().map(metric_row))?;
    if !report.goals.is_empty() {
        let rows = report.goals.iter().map(|(goal, reached)| {
            let seconds = reached.iter().map(|one| number(one.map(|one| one.seconds)));
            [goal.to_string()].into_iter().chain(seconds).collect()
        });
        let head = ["seconds until".to_owned()].into_iter().chain(letters.clone()).collect();
        table(page, "Time to a value", head, rows)?;
    }
    if !report.energy.is_empty() {
        let rows = report.energy.iter().map(|(metric, joules)| {
            let joules = joules.iter().map(|joules| number(*joules));
            [metric.clone()].into_iter().chain(joules).collect()
        });
        table(page, "Energy", ["joules".to_owned()].into_iter().chain(letters).collect(), rows)?;
    }
    for metric in shown.iter().filter(|metric| metric.measure() > 0.0) {
        figure(page, report, metric)?;
    }
    if !report.diff.not_compared.is_empty() {
        let names: Vec<String> = report.diff.not_compared.iter().map(|(metric, _)| escaped(metric)).collect();
        writeln!(page, "<p>Not in all runs: {}</p>", names.join(", "))?;
    }
    writeln!(page, "</body></html>")
}

fn metric_head(letters: &[String]) -> Vec<String> {
    let changes = letters.iter().skip(1).flat_map(|letter| [format!("change {letter}"), "p".to_owned()]);
    let figures = ["mean", "p50", "p95", "max", "last"];
    let figures = figures.iter().flat_map(|figure| letters.iter().map(move |letter| format!("{figure} {letter}")));
    ["metric".to_owned()].into_iter().chain(changes).chain(figures).collect()
}

fn metric_row(metric: &MetricDiff) -> Vec<String> {
    let mut row = vec![title(metric)];
    row.extend(metric.changes.iter().flat_map(|change| [percent(change.as_ref()), p_value(change.as_ref())]));
    let of = |figure: fn(&super::compare::DiffFigures) -> Option<f64>| {
        let figures = metric.figures.iter().map(move |figures| number(figures.as_ref().and_then(figure)));
        figures.collect::<Vec<_>>()
    };
    row.extend(of(|figures| figures.mean));
    row.extend(of(|figures| figures.p50));
    row.extend(of(|figures| figures.p95));
    row.extend(of(|figures| figures.max));
    row.extend(of(|figures| figures.last));
    row
}

fn title(metric: &MetricDiff) -> String {
    let unit = metric.unit.as_deref().map(|unit| format!(" ({unit})")).unwrap_or_default();
    format!("{}{unit}{}", metric.metric, if metric.measured == MetricNumbers::Rate { " per second" } else { "" })
}

fn figure(page: &mut String, report: &DiffReport, metric: &MetricDiff) -> std::fmt::Result {
    let points =
        |curve: &BTreeMap<i64, f64>| curve.iter().map(|(place, value)| (report.axis(*place), *value)).collect();
    let curves: Vec<Vec<(f64, f64)>> = metric.curves.iter().map(points).collect();
    let unit = match report.alignment {
        Alignment::Time => " s",
        Alignment::Step => "",
    };
    page::figure(page, &title(metric), unit, &curves)
}
