//! `/api/query/exp`: arithmetic on sub-queries whose series have equal tags.
//!
//! [`ask`] reads the request, its metrics are answered as those of `/api/query`, [`join`] finds the series that belong
//! together, and [`arithmetic`] computes the values.

pub(crate) mod arithmetic;
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
use telem_query::tsq::Fidelity;

use self::arithmetic::Number;
use self::ask::{Ask, ExpressionOutput, NamedExpression};
use self::join::JoinSide;
use super::resolve::{self, ResolvedQuery, SubQuerySource, Widen};
use super::{Answering, now_millis};
use crate::answers::AnswerCharge;
use crate::protocols::opentsdb::call::Call;
use crate::protocols::opentsdb::errors::OpenTsdbError;
use crate::protocols::opentsdb::{Answer, allow, json, text_body, walk};
use crate::state::State;

/// What a value takes while expressions work on it, and then as text.
const VALUE_BYTES: usize = 64;
/// Most values of the outputs of one request: rows times columns.
pub(crate) const VALUES_MAX: usize = 5_000_000;

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST, Method::DELETE])?;
    let fidelity = call.fidelity(state.fidelity);
    if call.method != Method::POST {
        return Err(
            OpenTsdbError::unforeseen(fidelity, "Incoming data was null or empty").details("POST the expressions")
        );
    }
    let body = match (text_body(state, request).await, fidelity) {
        (Err(_), Fidelity::OpenTsdb) => {
            return Err(OpenTsdbError::unforeseen(fidelity, "Incoming data was null or empty"));
        }
        (body, _) => body?,
    };
    let (ask, question, range) = {
        let owned = Arc::clone(state);
        walk(state, call, move |_| {
            let state = owned;
            let ask = ask::read(&body, fidelity).map_err(|why| OpenTsdbError::unforeseen(fidelity, why))?;
            let now = now_millis(&*state.clock);
            let question = resolve::resolve(&ask.asked, &state.index(), now, fidelity);
            let mut question = question.map_err(|failure| OpenTsdbError::unforeseen(fidelity, failure.message))?;
            let range = range(&question, fidelity);
            if fidelity == Fidelity::OpenTsdb {
                question.iter_mut().for_each(|sub| resolve::widen(sub, Widen::ToAllThatIsRead));
            }
            Ok((ask, question, range))
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
    let (json, held) = state.limits.walks.render(move || render(&ask, answers, range, held)).await?;
    Ok(Answer { held: Some(held), ..Answer::ok(json) }.lacking(&missing))
}

/// The question, and the client that asks it.
#[derive(Clone, Copy)]
struct ExpressionRange {
    start: Timestamp,
    end: Timestamp,
    fidelity: Fidelity,
}

fn range(question: &[ResolvedQuery], fidelity: Fidelity) -> ExpressionRange {
    let asked = question.iter().find_map(|sub| match &sub.source {
        SubQuerySource::Query(query) => Some((query.start, query.end)),
        SubQuerySource::Nothing => None,
    });
    let (start, end) = asked.unwrap_or((Timestamp::MIN, Timestamp::MAX));
    ExpressionRange { start, end, fidelity }
}

/// A variable's series, and the value where one has none.
struct ExpressionValue {
    groups: Vec<TsGroup>,
    query_keys: BTreeSet<String>,
    fill: f64,
    of: ValueOrigin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueOrigin {
    Metric,
    Expression,
}

fn render(
    ask: &Ask,
    answers: Vec<Vec<TsGroup>>,
    range: ExpressionRange,
    mut held: AnswerCharge,
) -> Result<(Vec<u8>, AnswerCharge), OpenTsdbError> {
    let mut worked: BTreeMap<&str, ExpressionValue> = BTreeMap::new();
    for ((metric, sub), groups) in ask.metrics.iter().zip(&ask.asked.subs).zip(answers) {
        // Series without a point in the range take no part. The original looks at all that it reads.
        let takes_part = |group: &TsGroup| range.fidelity == Fidelity::OpenTsdb || !group.points.is_empty();
        let groups = groups.into_iter().filter(takes_part).collect();
        let query_keys = sub.filters.iter().map(|filter| filter.key.clone()).collect();
        worked.insert(&metric.id, ExpressionValue { groups, query_keys, fill: metric.fill, of: ValueOrigin::Metric });
    }
    let mut budget = Budget { held: &mut held, values: 0 };
    for named in in_order(&ask.expressions)? {
        let groups = work_out(named, &worked, range.fidelity, &mut budget)?;
        let query_keys = BTreeSet::new();
        worked.insert(&named.id, ExpressionValue { groups, query_keys, fill: named.fill, of: ValueOrigin::Expression });
    }
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"outputs\":");
    let shown: Vec<(&ExpressionOutput, &ExpressionValue)> =
        ask.outputs.iter().filter_map(|output| Some((output, worked.get(output.id.as_str())?))).collect();
    for (_, worked) in &shown {
        budget.take(worked.groups.iter().map(|group| group.points.len()).sum())?;
    }
    json::list(&mut out, shown, |out, (name, worked)| output(out, name, worked, range));
    out.extend_from_slice(b",\"query\":");
    out.extend_from_slice(ask.echo.to_string().as_bytes());
    out.push(b'}');
    held.grow(out.capacity())?;
    Ok((out, held))
}

/// How much is worked on at once.
struct Budget<'a> {
    held: &'a mut AnswerCharge,
    values: usize,
}

impl Budget<'_> {
    fn take(&mut self, values: usize) -> Result<(), OpenTsdbError> {
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            return Err(telem_query::Error::TooLarge { what: "values", max: VALUES_MAX as u64 }.into());
        }
        Ok(self.held.grow(self.values * VALUE_BYTES)?)
    }
}

/// Every expression after those that it names.
fn in_order(expressions: &[NamedExpression]) -> Result<Vec<&NamedExpression>, OpenTsdbError> {
    let mut waiting: Vec<&NamedExpression> = expressions.iter().collect();
    let mut order: Vec<&NamedExpression> = Vec::new();
    while !waiting.is_empty() {
        let open: BTreeSet<&str> = waiting.iter().map(|named| named.id.as_str()).collect();
        let (ready, rest): (Vec<&NamedExpression>, Vec<&NamedExpression>) =
            waiting.into_iter().partition(|named| named.expression.variables().is_disjoint(&open));
        if ready.is_empty() {
            let id = &rest[0].id;
            return Err(OpenTsdbError::bad_request(format!("Circular reference found: {id}")));
        }
        order.extend(ready);
        waiting = rest;
    }
    Ok(order)
}

/// The series of an expression: one for each row, all with the same times.
fn work_out(
    named: &NamedExpression,
    worked: &BTreeMap<&str, ExpressionValue>,
    fidelity: Fidelity,
    budget: &mut Budget<'_>,
) -> Result<Vec<TsGroup>, OpenTsdbError> {
    let names: Vec<&str> = named.expression.variables().into_iter().collect();
    let inputs: Vec<&ExpressionValue> = names.iter().filter_map(|name| worked.get(name)).collect();
    let sides: Vec<JoinSide<'_>> = inputs
        .iter()
        .map(|input| JoinSide {
            groups: input.groups.iter().collect(),
            query_keys: input.query_keys.iter().map(String::as_str).collect(),
        })
        .collect();
    let rows = join::rows(&sides, named.operator, named.by).map_err(OpenTsdbError::bad_request)?;
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
                .map(|place| match row.members[place] {
                    // Of a series that one side lacks the original makes zeros, whatever the side's policy.
                    None if fidelity == Fidelity::OpenTsdb => 0.0,
                    member => value(member, &mut at[place], *time).unwrap_or(inputs[place].fill),
                })
                .collect();
            let value =
                |name: &str| names.iter().position(|known| *known == name).map_or(f64::NAN, |place| values[place]);
            let result = named.expression.work_out(&value).map_err(OpenTsdbError::bad_request)?;
            if fidelity == Fidelity::OpenTsdb && matches!(result, Number::Int(_)) {
                return Err(OpenTsdbError::bad_request("Expression returned a result of type: java.lang.Integer"));
            }
            points.push((*time, Value::Float(result.float())));
        }
        groups.push(TsGroup {
            tags: row.tags(fidelity),
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
fn output(out: &mut Vec<u8>, name: &ExpressionOutput, worked: &ExpressionValue, range: ExpressionRange) {
    // A metric shows all that was read for it, which is more than the range only where the original is reproduced.
    let shows = |time: &Timestamp| worked.of == ValueOrigin::Metric || (range.start..=range.end).contains(time);
    let times: BTreeSet<Timestamp> =
        worked.groups.iter().flat_map(|group| group.points.iter().map(|(time, _)| *time)).filter(shows).collect();
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
    let of_metric = worked.of == ValueOrigin::Metric && range.fidelity == Fidelity::OpenTsdb;
    // The original sees the last time of an expression only behind a first.
    let last = if times.len() > 1 || of_metric { times.last() } else { None };
    let none = if of_metric { i64::MAX } else { 0 };
    out.extend_from_slice(b",\"dpsMeta\":{\"firstTimestamp\":");
    json::int(out, times.first().map_or(none, |time| time.millis()));
    out.extend_from_slice(b",\"lastTimestamp\":");
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
        json::string_map(out, group.tags.iter());
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
