//! The comparison for programs: everything, in full precision.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::compare::{Alignment, MetricDiff};
use super::{DiffReport, letter};

pub fn text(report: &DiffReport) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&value(report))?;
    text.push('\n');
    Ok(text)
}

fn value(report: &DiffReport) -> Json {
    let runs: Vec<Json> =
        report.runs.iter().enumerate().map(|(at, run)| json!({"label": letter(at), "run": run})).collect();
    let facts = report.diff.facts.iter().map(|one| json!({"what": one.fact.name(), "values": one.values}));
    let metrics = report.diff.metrics.iter().map(|metric| of_metric(report, metric));
    let not_compared = report.diff.not_compared.iter().map(|(metric, runs)| {
        let runs: Vec<String> = runs.iter().map(|at| letter(*at)).collect();
        json!({"metric": metric, "runs": runs})
    });
    let goals = report.goals.iter().map(|(goal, reached)| {
        let reached: Vec<Json> = reached
            .iter()
            .map(|one| one.map_or(Json::Null, |one| json!({"seconds": one.seconds, "step": one.step})))
            .collect();
        json!({"goal": goal.to_string(), "reached": reached})
    });
    let energy = report.energy.iter().map(|(metric, joules)| json!({"metric": metric, "joules": joules}));
    let stretch = match report.alignment {
        Alignment::Time => json!(report.axis(1)),
        Alignment::Step => Json::Null,
    };
    json!({
        "runs": runs,
        "by": report.alignment,
        "stretch_seconds": stretch,
        "description": facts.collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
        "some_runs_only": not_compared.collect::<Vec<_>>(),
        "until": goals.collect::<Vec<_>>(),
        "energy": energy.collect::<Vec<_>>(),
    })
}

fn of_metric(report: &DiffReport, metric: &MetricDiff) -> Json {
    let curve = |curve: &BTreeMap<i64, f64>| -> Json {
        curve.iter().map(|(place, value)| json!([report.axis(*place), value])).collect()
    };
    json!({
        "metric": metric.metric,
        "unit": metric.unit,
        "measured": metric.measured,
        "sender": metric.sender,
        "measure": metric.measure(),
        "figures": metric.figures,
        "changes": metric.changes,
        "curves": metric.curves.iter().map(curve).collect::<Vec<_>>(),
    })
}
