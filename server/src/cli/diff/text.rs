//! The comparison for people: tables that fit the terminal.

use super::compare::{DiffChange, DiffFigures, MetricDiff, MetricNumbers};
use super::{DiffReport, letter};
use crate::cli::aligned::{ColumnSide, lines, printable, widest};
use crate::info::human;

/// A figure of a metric in a table.
type FigureColumn = (&'static str, fn(&DiffFigures) -> Option<f64>);
/// In the order in which they stand.
const FIGURES: [FigureColumn; 5] = [
    ("mean", |figures| figures.mean),
    ("p50", |figures| figures.p50),
    ("p95", |figures| figures.p95),
    ("max", |figures| figures.max),
    ("last", |figures| figures.last),
];
/// A terminal that has no room for all figures loses them in this order.
const DROPPED: [&str; 4] = ["p95", "p50", "max", "last"];

pub fn tables(report: &DiffReport, top: usize, width: Option<usize>) -> String {
    let mut text = String::new();
    for (at, run) in report.runs.iter().enumerate() {
        text.push_str(&format!("{}  {}\n", letter(at), printable(run)));
    }
    text.push('\n');
    let letters = || (0..report.runs.len()).map(letter);
    match &*report.diff.facts {
        [] => text.push_str("Nothing differs of what was run: settings, tags, command, commit, nodes, end.\n"),
        facts => {
            let mut rows = vec![["differs".to_owned()].into_iter().chain(letters()).collect::<Vec<_>>()];
            for one in facts {
                let values = one.values.iter().map(|value| value.as_deref().map_or_else(|| "-".to_owned(), printable));
                rows.push([printable(&one.fact.name())].into_iter().chain(values).collect());
            }
            text.push_str(&lines(&rows, ColumnSide::Left, width));
        }
    }
    metrics(report, top, width, &mut text);
    for (goal, reached) in &report.goals {
        let each = reached.iter().zip(letters()).map(|(reached, letter)| match reached {
            None => format!("{letter} never"),
            Some(reached) => {
                let step = reached.step.map_or_else(String::new, |step| format!(" (step {step})"));
                format!("{letter} after {} s{step}", human::short(reached.seconds))
            }
        });
        text.push_str(&format!("\n{}: {}\n", printable(&goal.to_string()), each.collect::<Vec<_>>().join(", ")));
    }
    if !report.energy.is_empty() {
        let mut rows = vec![["energy (kJ)".to_owned()].into_iter().chain(letters()).collect::<Vec<_>>()];
        for (metric, joules) in &report.energy {
            let joules = joules.iter().map(|joules| number(joules.map(|joules| joules / 1e3)));
            rows.push([printable(metric)].into_iter().chain(joules).collect());
        }
        text.push('\n');
        text.push_str(&lines(&rows, ColumnSide::Right, width));
    }
    if !report.diff.not_compared.is_empty() {
        let named = report.diff.not_compared.iter().map(|(metric, runs)| {
            let runs: Vec<String> = runs.iter().map(|at| letter(*at)).collect();
            format!("{} ({})", printable(metric), runs.join(", "))
        });
        text.push_str(&format!("\nnot in all runs: {}\n", named.collect::<Vec<_>>().join(", ")));
    }
    text
}

fn metrics(report: &DiffReport, top: usize, width: Option<usize>, text: &mut String) {
    let all = &report.diff.metrics;
    let shown = &all[..top.min(all.len())];
    if shown.is_empty() {
        text.push_str("\nNo metric is in the first run and in another one.\n");
        return;
    }
    let mut figures = FIGURES.to_vec();
    let mut dropped = Vec::new();
    let table = loop {
        let table = metric_rows(report, shown, &figures);
        let drop = DROPPED.get(dropped.len());
        match (width, drop) {
            (Some(width), Some(drop)) if widest(&table) > width => {
                figures.retain(|(name, _)| name != drop);
                dropped.push(*drop);
            }
            _ => break table,
        }
    };
    text.push('\n');
    text.push_str(&lines(&table, ColumnSide::Right, width));
    let mut notes = Vec::new();
    if shown.iter().any(|metric| metric.measured == MetricNumbers::Rate) {
        notes.push("/s: the rate of a counter".to_owned());
    }
    if shown.iter().flat_map(|one| one.changes.iter().flatten()).any(|change| change.significance.is_some()) {
        notes.push("p: Welch's t-test over series, * < 0.05, ** < 0.01, *** < 0.001".to_owned());
    }
    if !dropped.is_empty() {
        notes.push(format!("no room for {}: --json, or a wider terminal", dropped.join(", ")));
    }
    if all.len() > shown.len() {
        notes.push(format!("{} of {} metrics: --top N shows more", shown.len(), all.len()));
    }
    for note in notes {
        text.push_str(&format!("{note}\n"));
    }
    for metric in shown {
        for (figures, at) in metric.figures.iter().zip(0..).filter_map(|(one, at)| Some((one.as_ref()?, at))) {
            if figures.nan > 0 {
                let (name, all) = (printable(&metric.metric), figures.nan + figures.samples);
                text.push_str(&format!("{name}: {} of {all} samples of {} are NaN\n", figures.nan, letter(at)));
            }
        }
    }
}

fn metric_rows(report: &DiffReport, shown: &[MetricDiff], figures: &[FigureColumn]) -> Vec<Vec<String>> {
    let runs = report.runs.len();
    let tested: Vec<usize> = (0..runs - 1)
        .filter(|at| shown.iter().any(|one| one.changes[*at].as_ref().is_some_and(|one| one.significance.is_some())))
        .collect();
    let mut head = vec!["metric".to_owned()];
    for at in 0..runs - 1 {
        head.push(if runs == 2 { "change".to_owned() } else { format!("change {}", letter(at + 1)) });
        if tested.contains(&at) {
            head.push("p".to_owned());
        }
    }
    head.extend(figures.iter().flat_map(|(name, _)| (0..runs).map(move |at| format!("{name} {}", letter(at)))));
    let mut rows = vec![head];
    for metric in shown {
        let per_second = if metric.measured == MetricNumbers::Rate { " /s" } else { "" };
        let mut row = vec![format!("{}{per_second}", printable(&metric.metric))];
        for (at, change) in metric.changes.iter().enumerate() {
            row.push(percent(change.as_ref()));
            if tested.contains(&at) {
                row.push(p_value(change.as_ref()));
            }
        }
        for (_, of) in figures {
            row.extend(metric.figures.iter().map(|figures| number(figures.as_ref().and_then(of))));
        }
        rows.push(row);
    }
    rows
}

pub fn percent(change: Option<&DiffChange>) -> String {
    match change.and_then(|change| change.relative) {
        None => "-".to_owned(),
        Some(relative) if relative.abs() >= 9.995 => format!("{relative:+.0}x"),
        Some(relative) => format!("{:+.1}%", relative * 100.0),
    }
}

pub fn p_value(change: Option<&DiffChange>) -> String {
    match change.and_then(|change| change.significance) {
        None => String::new(),
        Some(found) if found.p < 0.0001 => format!("<0.0001{}", found.mark()),
        Some(found) => format!("{:.4}{}", found.p, found.mark()),
    }
}

pub fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), human::short)
}
