//! `/api/query/exp`: arithmetic on sub-queries whose series have equal tags.
//!
//! [`ask`] reads the request, its metrics are answered as those of `/api/query`, [`join`] finds the series that belong
//! together, and [`arithmetic`] works out the values.

mod arithmetic;
mod ask;
pub mod join;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use telem_engine::{Timestamp, Value};
use telem_query::TsGroup;

use self::ask::{Ask, Named, Output};
use self::join::Side;
use super::{Answering, now_millis, resolve};
use crate::answers::Held;
use crate::protocols::opentsdb::call::Call;
use crate::protocols::opentsdb::errors::Failure;
use crate::protocols::opentsdb::{Answer, allow, beside, json, text_body};
use crate::state::State;

/// What a value takes while expressions work on it, and then as text.
const VALUE_BYTES: usize = 64;
/// Most values of the outputs of one request: rows times columns.
const VALUES_MAX: usize = 5_000_000;

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, Failure> {
    allow(call, &[Method::GET, Method::POST, Method::DELETE])?;
    let fidelity = call.fidelity(state.fidelity);
    if call.method != Method::POST {
        return Err(Failure::unforeseen(fidelity, "Incoming data was null or empty").details("POST the expressions"));
    }
    let body = text_body(state, request).await?;
    let (ask, question) = {
        let state = Arc::clone(state);
        beside(move || {
            let ask = ask::read(&body).map_err(|why| Failure::unforeseen(fidelity, why))?;
            let now = now_millis(&*state.clock);
            let question = resolve::resolve(&ask.asked, &state.index(), now, fidelity);
            let question = question.map_err(|failure| Failure::unforeseen(fidelity, failure.message))?;
            Ok((ask, question))
        })
        .await?
    };
    let mut held = state.limits.answers.start();
    let mut answers: Vec<Vec<TsGroup>> = vec![Vec::new(); question.len()];
    let mut answering = Answering::new(state, question, fidelity);
    let mut points = 0;
    while let Some((sub, answer, _)) = answering.next().await? {
        points += answer.groups.iter().map(|group| group.points.len()).sum::<usize>();
        held.grow(points * VALUE_BYTES)?;
        answers[sub.index] = answer.groups;
    }
    let missing = answering.announce();
    let (json, held) = beside(move || render(&ask, answers, held)).await?;
    Ok(Answer { held: Some(held), ..Answer::ok(json) }.lacking(&missing))
}

/// A variable's series, and what stands where one has no value.
struct Worked {
    groups: Vec<TsGroup>,
    query_keys: BTreeSet<String>,
    fill: f64,
}

fn render(ask: &Ask, answers: Vec<Vec<TsGroup>>, mut held: Held) -> Result<(Vec<u8>, Held), Failure> {
    let mut worked: BTreeMap<&str, Worked> = BTreeMap::new();
    for ((metric, sub), groups) in ask.metrics.iter().zip(&ask.asked.subs).zip(answers) {
        // Series without a point in the range take no part.
        let groups = groups.into_iter().filter(|group| !group.points.is_empty()).collect();
        let query_keys = sub.filters.iter().map(|filter| filter.key.clone()).collect();
        worked.insert(&metric.id, Worked { groups, query_keys, fill: metric.fill });
    }
    let mut budget = Budget { held: &mut held, values: 0 };
    for named in in_order(&ask.expressions)? {
        let groups = work_out(named, &worked, &mut budget)?;
        worked.insert(&named.id, Worked { groups, query_keys: BTreeSet::new(), fill: named.fill });
    }
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"outputs\":");
    let shown: Vec<(&Output, &Worked)> =
        ask.outputs.iter().filter_map(|output| Some((output, worked.get(output.id.as_str())?))).collect();
    for (_, worked) in &shown {
        budget.take(worked.groups.iter().map(|group| group.points.len()).sum())?;
    }
    json::list(&mut out, shown, |out, (name, worked)| output(out, name, worked));
    out.extend_from_slice(b",\"query\":");
    out.extend_from_slice(ask.echo.to_string().as_bytes());
    out.push(b'}');
    held.grow(out.capacity())?;
    Ok((out, held))
}

/// How much is worked on at once.
struct Budget<'a> {
    held: &'a mut Held,
    values: usize,
}

impl Budget<'_> {
    fn take(&mut self, values: usize) -> Result<(), Failure> {
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            return Err(telem_query::Error::TooLarge { what: "values", max: VALUES_MAX as u64 }.into());
        }
        Ok(self.held.grow(self.values * VALUE_BYTES)?)
    }
}

/// Every expression after those that it names.
fn in_order(expressions: &[Named]) -> Result<Vec<&Named>, Failure> {
    let mut waiting: Vec<&Named> = expressions.iter().collect();
    let mut order: Vec<&Named> = Vec::new();
    while !waiting.is_empty() {
        let open: BTreeSet<&str> = waiting.iter().map(|named| named.id.as_str()).collect();
        let (ready, rest): (Vec<&Named>, Vec<&Named>) =
            waiting.into_iter().partition(|named| named.expression.variables().is_disjoint(&open));
        if ready.is_empty() {
            let id = &rest[0].id;
            return Err(Failure::bad_request(format!("Circular reference found: {id}")));
        }
        order.extend(ready);
        waiting = rest;
    }
    Ok(order)
}

/// The series of an expression: one for each row, all with the same times.
fn work_out(named: &Named, worked: &BTreeMap<&str, Worked>, budget: &mut Budget<'_>) -> Result<Vec<TsGroup>, Failure> {
    let names: Vec<&str> = named.expression.variables().into_iter().collect();
    let inputs: Vec<&Worked> = names.iter().filter_map(|name| worked.get(name)).collect();
    let sides: Vec<Side<'_>> = inputs
        .iter()
        .map(|input| Side {
            groups: input.groups.iter().collect(),
            query_keys: input.query_keys.iter().map(String::as_str).collect(),
        })
        .collect();
    let rows = join::rows(&sides, named.operator, named.by).map_err(Failure::bad_request)?;
    let times: BTreeSet<Timestamp> = rows
        .iter()
        .flat_map(|row| row.members.iter().flatten())
        .flat_map(|group| group.points.iter().map(|(time, _)| *time))
        .collect();
    budget.take(times.len().saturating_mul(rows.len()).saturating_mul(names.len()))?;
    let mut groups = Vec::new();
    for row in &rows {
        let mut at = vec![0; names.len()];
        let mut points = Vec::with_capacity(times.len());
        for time in &times {
            let values: Vec<f64> = (0..names.len())
                .map(|place| value(row.members[place], &mut at[place], *time).unwrap_or(inputs[place].fill))
                .collect();
            let value =
                |name: &str| names.iter().position(|known| *known == name).map_or(f64::NAN, |place| values[place]);
            points.push((*time, Value::Float(named.expression.work_out(&value).float())));
        }
        groups.push(TsGroup {
            tags: row.tags(),
            aggregate_tags: row.aggregate_tags(),
            series: row.members.iter().flatten().flat_map(|group| group.series.iter().cloned()).collect(),
            points,
        });
    }
    Ok(groups)
}

/// The value at `time`, if there is one and it is a number; `at` points lie before.
fn value(group: Option<&TsGroup>, at: &mut usize, time: Timestamp) -> Option<f64> {
    let points = &group?.points;
    while points.get(*at).is_some_and(|(point, _)| *point < time) {
        *at += 1;
    }
    let (point, value) = points.get(*at)?;
    (*point == time).then(|| value.as_f64()).filter(|value| !value.is_nan())
}

/// One output: a row for each time, in it the time and the value of every series.
fn output(out: &mut Vec<u8>, name: &Output, worked: &Worked) {
    let times: BTreeSet<Timestamp> =
        worked.groups.iter().flat_map(|group| group.points.iter().map(|(time, _)| *time)).collect();
    out.extend_from_slice(b"{\"id\":");
    json::string(out, &name.id);
    if let Some(alias) = &name.alias {
        out.extend_from_slice(b",\"alias\":");
        json::string(out, alias);
    }
    out.extend_from_slice(b",\"dps\":");
    let mut at = vec![0; worked.groups.len()];
    json::list(out, &times, |out, time| {
        out.push(b'[');
        json::int(out, time.millis());
        for (place, group) in worked.groups.iter().enumerate() {
            out.push(b',');
            let points = &group.points;
            while points.get(at[place]).is_some_and(|(point, _)| point < time) {
                at[place] += 1;
            }
            let here = points.get(at[place]).filter(|(point, _)| point == time);
            number(out, here.map_or(worked.fill, |(_, value)| value.as_f64()));
        }
        out.push(b']');
    });
    let last = if times.len() > 1 { times.last() } else { None };
    out.extend_from_slice(b",\"dpsMeta\":{\"firstTimestamp\":");
    json::int(out, times.first().map_or(0, |time| time.millis()));
    out.extend_from_slice(b",\"lastTimestamp\":");
    // The original sees a last time only behind a first.
    json::int(out, last.map_or(0, |time| time.millis()));
    out.extend_from_slice(b",\"setCount\":");
    json::int(out, i64::try_from(times.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(b",\"series\":");
    json::int(out, i64::try_from(worked.groups.len()).unwrap_or(i64::MAX));
    out.push(b'}');
    if !worked.groups.is_empty() {
        meta(out, &worked.groups);
    }
    out.push(b'}');
}

/// What each column holds.
fn meta(out: &mut Vec<u8>, groups: &[TsGroup]) {
    let metrics: BTreeSet<&str> =
        groups.iter().take(1).flat_map(|group| &group.series).map(|key| key.metric()).collect();
    out.extend_from_slice(b",\"meta\":[{\"index\":0,\"metrics\":[\"timestamp\"]}");
    for (at, group) in groups.iter().enumerate() {
        out.extend_from_slice(b",{\"index\":");
        json::int(out, i64::try_from(at + 1).unwrap_or(i64::MAX));
        out.extend_from_slice(b",\"metrics\":");
        json::list(out, &metrics, |out, metric| json::string(out, metric));
        out.extend_from_slice(b",\"commonTags\":");
        json::string_map(out, group.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        out.extend_from_slice(b",\"aggregatedTags\":");
        json::list(out, &group.aggregate_tags, |out, key| json::string(out, key));
        out.push(b'}');
    }
    out.push(b']');
}

fn number(out: &mut Vec<u8>, value: f64) {
    match value {
        value if value.is_finite() => json::float(out, value),
        value if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        value => json::string(out, if value > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}
