//! `/q`: the numbers of a graph, one line each (`metric time value key=value ...`). Drawing graphs is left to Grafana.

use std::sync::Arc;

use axum::http::StatusCode;
use telem_engine::Value;
use telem_query::TsGroup;

use super::call::Call;
use super::errors::OpenTsdbError;
use super::query::{self, Answering};
use super::{Answer, json};
use crate::state::State;

/// What a line takes at most besides names, roughly.
const LINE_BYTES: usize = 40;

pub async fn answer(state: &Arc<State>, call: &Call, query: Option<&str>) -> Result<Answer, OpenTsdbError> {
    if !call.params.has("ascii") {
        return match ["json", "png"].into_iter().find(|kind| call.params.has(kind)) {
            Some(_) => Err(OpenTsdbError::new(StatusCode::NOT_IMPLEMENTED, "telem draws no graphs")
                .details("ask /q?...&ascii or /api/query for the numbers, and Grafana for the graph")),
            // The original sends a browser to its page of graphs.
            None => Ok(Answer::html(redirection(query.unwrap_or_default()))),
        };
    }
    let fidelity = call.fidelity(state.fidelity);
    let (_, question) = query::understand(state, call, None, fidelity).await?;
    let mut answering = Answering::new(state, question, fidelity);
    let mut held = state.limits.answers.start();
    let mut out = Vec::new();
    while let Some((_, answer, _)) = answering.next().await? {
        let written = state.limits.walks.render(move || {
            for group in answer.groups {
                let metric = group.series.first().map_or("", |key| key.metric());
                let names: usize = group.tags.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
                held.grow(out.len() + group.points.len() * (metric.len() + names + LINE_BYTES))?;
                render(&mut out, metric, &group);
            }
            Ok::<_, OpenTsdbError>((out, held))
        });
        (out, held) = written.await?;
    }
    Ok(Answer { held: Some(held), ..Answer::text(out) }.lacking(&answering.announce()))
}

fn render(out: &mut Vec<u8>, metric: &str, group: &TsGroup) {
    for (time, value) in &group.points {
        out.extend_from_slice(metric.as_bytes());
        out.push(b' ');
        json::int(out, time.seconds());
        out.push(b' ');
        match value {
            Value::Int(int) => json::int(out, *int),
            Value::Float(float) if float.is_finite() => json::float(out, *float),
            Value::Float(float) => out.extend_from_slice(if float.is_nan() { b"NaN" } else { b"Infinity" }),
        }
        for (key, value) in group.tags.iter() {
            for text in [" ", key, "=", value] {
                out.extend_from_slice(text.as_bytes());
            }
        }
        out.push(b'\n');
    }
}

/// A page that leads to the page of graphs with the same question.
fn redirection(query: &str) -> String {
    let mut safe = String::with_capacity(query.len());
    for c in query.chars() {
        match c {
            '"' => safe.push_str("%22"),
            '<' => safe.push_str("%3C"),
            '>' => safe.push_str("%3E"),
            '\'' => safe.push_str("%27"),
            c => safe.push(c),
        }
    }
    format!("<html></head><meta http-equiv=\"refresh\" content=\"0; url=/#{safe}\"></head></html>")
}

#[cfg(test)]
mod tests;
