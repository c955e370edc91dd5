//! `/api/query/gexp`: functions of queries, written as Graphite does: `scale(sum:1m-avg:metric{host=*},8)`.
//!
//! [`parse`] reads them, their queries are answered as those of `/api/query`, and [`functions`] works on the answers.

mod functions;
pub(crate) mod parse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use telem_engine::{NameKind, SeriesIndex, Timestamp};
use telem_query::MissingNode;
use telem_query::tsq::Fidelity;

use self::functions::{Curve, CurveOrigin, Scope};
use self::parse::{Argument, GraphiteFunction, GraphiteTree};
use super::gaps::GapFilling;
use super::render::{AnnotationNotes, AnswerBuffer};
use super::request::QueryRequest;
use super::resolve::{ResolvedQuery, SubQuerySource, Widen};
use super::stats::Stats;
use super::{Answering, now_millis, resolve, uri};
use crate::answers::AnswerCharge;
use crate::http::Params;
use crate::protocols::opentsdb::annotation::DeliveredNotes;
use crate::protocols::opentsdb::call::Call;
use crate::protocols::opentsdb::errors::OpenTsdbError;
use crate::protocols::opentsdb::{Answer, allow, walk};
use crate::state::State;

/// What a point takes while functions work on it.
const POINT_BYTES: usize = 48;

/// The expressions of a request, and the questions in them.
#[derive(Debug)]
struct Expressions {
    trees: Vec<GraphiteTree>,
    /// Of each query in the trees its place among the sub-queries.
    places: Vec<usize>,
    asked: QueryRequest,
    question: Vec<ResolvedQuery>,
    scope: Scope,
}

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST, Method::DELETE])?;
    let fidelity = call.fidelity(state.fidelity);
    if call.method != Method::GET {
        drop(request);
        return Err(
            OpenTsdbError::unforeseen(fidelity, "An expression stands in the URI").details("send a GET with exp=")
        );
    }
    let stats = Stats::new(Arc::clone(&state.clock));
    let (state_, params) = (Arc::clone(state), call.params.clone());
    let Expressions { trees, places, mut asked, question, scope } = walk(state, call, move |_| {
        let now = now_millis(&*state_.clock);
        understand(&params, &state_.index(), now, fidelity)
    })
    .await?;
    asked.gaps = asked.requested_gaps(call)?;
    let fillings: Vec<GapFilling> = question.iter().map(|sub| sub.filling).collect();
    let mut held = state.limits.answers.start();
    let (answers, missing) = collect(state, question, fidelity, &mut held).await?;
    let (asked, index) = (Arc::new(asked), state.index());
    let rendered = state.limits.walks.render(move || {
        let answers = places.iter().map(|at| answers.get(*at).cloned().unwrap_or_default()).collect::<Vec<_>>();
        let mut out = AnswerBuffer::new(asked, DeliveredNotes::default(), Arc::clone(&index), held, stats);
        for tree in &trees {
            let curves = functions::evaluate(tree, &answers, scope).map_err(OpenTsdbError::bad_request)?;
            for curve in curves {
                let filling = fillings.get(curve.sub).copied().unwrap_or_default();
                let sub = ResolvedQuery { index: curve.sub, source: SubQuerySource::Nothing, filling };
                let notes = match (curve.made, fidelity) {
                    (CurveOrigin::FromSeveral, Fidelity::OpenTsdb) => AnnotationNotes::None,
                    _ => AnnotationNotes::OfItsSeries,
                };
                let groups = vec![shown(curve, scope, &index)?.group];
                out.add_with(&sub, groups, std::time::Duration::ZERO, notes)?;
            }
        }
        Ok::<_, OpenTsdbError>(out.whole()?)
    });
    let (json, held) = rendered.await?;
    Ok(Answer { held: Some(held), ..Answer::ok(json) }.lacking(&missing))
}

fn understand(
    params: &Params,
    index: &SeriesIndex,
    now: i64,
    fidelity: Fidelity,
) -> Result<Expressions, OpenTsdbError> {
    let mut queries = Vec::new();
    let trees = params.all("exp").map(|text| parse::parse(text, &mut queries, fidelity));
    let trees: Vec<GraphiteTree> =
        trees.collect::<Result<_, _>>().map_err(|why| OpenTsdbError::unforeseen(fidelity, why))?;
    if fidelity == Fidelity::OpenTsdb {
        trees.iter().try_for_each(in_opentsdb)?;
    }
    let (asked, places) = uri::query_with(params, &queries, fidelity)?;
    let mut question = resolve::resolve(&asked, index, now, fidelity)?;
    // The original counts in all sub-queries of the request, of which it keeps every one once.
    let places = if fidelity == Fidelity::OpenTsdb { (0..queries.len()).collect() } else { places };
    if let Some(beyond) = places.iter().find(|place| **place >= asked.subs.len()) {
        return Err(OpenTsdbError::bad_request(format!("Index: {beyond}, Size: {}", asked.subs.len())));
    }
    let scope = question.iter().find_map(|sub| match &sub.source {
        SubQuerySource::Query(query) => Some(Scope { start: query.start, end: query.end, fidelity }),
        SubQuerySource::Nothing => None,
    });
    let scope = scope.unwrap_or(Scope { start: Timestamp::MIN, end: Timestamp::MAX, fidelity });
    if trees.iter().any(looks_back) {
        question.iter_mut().for_each(|sub| resolve::widen(sub, Widen::ToTheStartOfTheHour));
    }
    Ok(Expressions { trees, places, asked, question, scope })
}

/// The original's order of arguments: queries before parameters.
fn in_opentsdb(tree: &GraphiteTree) -> Result<(), OpenTsdbError> {
    let parameters = tree.arguments.iter().skip_while(|argument| !matches!(argument, Argument::Parameter(_)));
    if parameters.clone().any(|argument| !matches!(argument, Argument::Parameter(_))) {
        return Err(OpenTsdbError::bad_request("Unknown parameter type: null"));
    }
    tree.arguments.iter().try_for_each(|argument| match argument {
        Argument::Function(tree) => in_opentsdb(tree),
        _ => Ok(()),
    })
}

/// Whether points before the start decide what is shown.
fn looks_back(tree: &GraphiteTree) -> bool {
    let inner = |argument: &Argument| matches!(argument, Argument::Function(tree) if looks_back(tree));
    matches!(tree.function, GraphiteFunction::TimeShift | GraphiteFunction::FirstDifference)
        || tree.arguments.iter().any(inner)
}

/// The answers of all sub-queries, by their places, and the nodes that they lack.
async fn collect(
    state: &Arc<State>,
    question: Vec<ResolvedQuery>,
    fidelity: Fidelity,
    held: &mut AnswerCharge,
) -> Result<(Vec<Vec<Curve>>, Vec<MissingNode>), OpenTsdbError> {
    let mut answers = vec![Vec::new(); question.len()];
    let mut answering = Answering::new(state, question, fidelity);
    let mut points = 0;
    while let Some((sub, answer, _)) = answering.next().await? {
        points += answer.groups.iter().map(|group| group.points.len()).sum::<usize>();
        held.grow(points * POINT_BYTES)?;
        answers[sub.index] = answer
            .groups
            .into_iter()
            .map(|group| Curve { sub: sub.index, group, made: CurveOrigin::FromOne })
            .collect();
    }
    Ok((answers, answering.announce()))
}

/// What a curve shows: only the range, and the metric that was seen first.
fn shown(mut curve: Curve, scope: Scope, index: &SeriesIndex) -> Result<Curve, OpenTsdbError> {
    curve.group.points.retain(|(time, _)| scope.start <= *time && *time <= scope.end);
    if let Some((time, value)) = curve.group.points.iter().find(|(_, value)| value.as_f64().is_infinite()) {
        let (at_millis, value) = (time.millis(), value.as_f64());
        return Err(telem_query::Error::Infinite { at_millis, value }.into());
    }
    curve.group.series.sort_by_cached_key(|key| index.ordinal(NameKind::Metric, key.metric()));
    Ok(curve)
}
