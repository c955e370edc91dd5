//! The comparison as one page: tables, and the curves of every metric with all runs above each other. It loads nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::{Alignment, Measured, MetricDiff};
use super::text::{number, p_value, percent};
use super::{DiffReport, letter};

/// Of the runs, in turn; told apart also by people who see few colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Points of a drawn curve.
const POINTS_MAX: usize = 1_000;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 160.0;
const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}td,th{padding:.2em .7em;text-align:right;\
border-bottom:1px solid #ddd;white-space:nowrap}td:first-child,th:first-child{text-align:left}\
figure{margin:1.5em 0}figcaption{font-weight:600}svg{background:#fafafa;width:100%;max-width:640px;height:auto}\
.axis{font-size:11px;fill:#666}";

pub fn page(report: &DiffReport, top: usize) -> String {
    let mut page = String::new();
    write_page(report, top, &mut page).unwrap_or_default();
    page
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
    format!("{}{unit}{}", metric.metric, if metric.measured == Measured::Rate { " per second" } else { "" })
}

fn table(
    page: &mut String,
    title: &str,
    head: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
) -> std::fmt::Result {
    let cells = |row: &[String], tag: &str| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    writeln!(page, "<h2>{title}</h2>\n<table><tr>{}</tr>", cells(&head, "th"))?;
    for row in rows {
        writeln!(page, "<tr>{}</tr>", cells(&row, "td"))?;
    }
    writeln!(page, "</table>")
}

fn figure(page: &mut String, report: &DiffReport, metric: &MetricDiff) -> std::fmt::Result {
    let points = || metric.curves.iter().flatten().filter(|(_, value)| value.is_finite());
    let places = points().map(|(place, _)| report.axis(*place));
    let (Some((left, right)), Some((low, high))) = (range(places), range(points().map(|(_, value)| *value))) else {
        return Ok(());
    };
    writeln!(page, "<figure><figcaption>{}</figcaption>", escaped(&title(metric)))?;
    writeln!(page, "<svg viewBox=\"-70 -10 {} {}\" role=\"img\">", WIDTH + 80.0, HEIGHT + 35.0)?;
    let across = |x: f64| if right > left { (x - left) / (right - left) * WIDTH } else { WIDTH / 2.0 };
    // Halves, since the difference of the greatest numbers is none.
    let up = |y: f64| {
        if high > low { HEIGHT - (y / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * HEIGHT } else { HEIGHT / 2.0 }
    };
    for (value, y) in [(high, 4.0), (low, HEIGHT)] {
        writeln!(page, "<text class=\"axis\" x=\"-4\" y=\"{y}\" text-anchor=\"end\">{}</text>", number(Some(value)))?;
    }
    let unit = match report.alignment {
        Alignment::Time => " s",
        Alignment::Step => "",
    };
    for (value, x, anchor) in [(left, 0.0, "start"), (right, WIDTH, "end")] {
        let (y, text) = (HEIGHT + 18.0, number(Some(value)));
        writeln!(page, "<text class=\"axis\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}{unit}</text>")?;
    }
    for (at, curve) in metric.curves.iter().enumerate() {
        let points: Vec<String> = thinned(curve)
            .iter()
            .map(|(place, value)| format!("{:.1},{:.1}", across(report.axis(*place)), up(*value)))
            .collect();
        let (colour, joined) = (colour(at), points.join(" "));
        match &*points {
            [] => {}
            [point] => {
                let (x, y) = point.split_once(',').unwrap_or_default();
                writeln!(page, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>")?;
            }
            _ => writeln!(
                page,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{joined}\"/>"
            )?,
        }
    }
    writeln!(page, "</svg></figure>")
}

/// At most so many points: of neighbours the first.
fn thinned(curve: &BTreeMap<i64, f64>) -> Vec<(i64, f64)> {
    let each = curve.len().div_ceil(POINTS_MAX).max(1);
    let points = curve.iter().filter(|(_, value)| value.is_finite());
    points.step_by(each).map(|(place, value)| (*place, *value)).collect()
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
