//! `/api/query`: a query in JSON ([`parse`]) or in a URI ([`uri`]) becomes time-series queries ([`resolve`]), and their
//! answers become OpenTSDB's JSON ([`render`]): at once or, if they are large, while the client reads ([`pieces`]).

mod downsample;
pub mod expression;
pub mod filters;
mod gaps;
pub mod graphite;
pub mod manner;
pub mod parse;
mod pieces;
mod render;
pub mod request;
pub mod resolve;
mod stats;
#[cfg(test)]
mod tests;
mod uri;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use telem_engine::{Clock, NameKind};
use telem_ingest::collect;
use telem_query::MissingNode;
use telem_query::TsAnswer;
use telem_query::pipeline::window::window;
use telem_query::run::{Round, TimedAnswer};
use telem_query::tsq::Fidelity;

use self::manner::{Manner, OPENTSDB, QueryReading};
pub use self::pieces::Pieces;
use self::render::AnswerBuffer;
use self::request::QueryRequest;
use self::resolve::{ResolvedQuery, SubQuerySource};
use self::stats::Stats;
use super::annotation::{DeliveredNotes, NoteScope};
use super::call::Call;
use super::errors::OpenTsdbError;
use super::{Answer, allow, names, text_body, walk};
use crate::http::ApiError;
use crate::state::State;

/// The header that counts values which the answer does not show, because a JSON object holds a time once.
pub const HIDDEN: &str = "x-telem-hidden";

/// Answers that are written on the threads of the network, in points: some tenths of a millisecond.
const INLINE_WEIGHT_MAX: usize = 10_000;

/// Questions that are read there, in bytes: some microseconds. A URI is never longer.
const INLINE_BODY_BYTES_MAX: usize = 16 << 10;

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    answer_in(OPENTSDB, state, call, request).await
}

/// Answers in the manner of a view.
///
/// # Errors
/// As OpenTSDB reports them.
pub async fn answer_in(
    manner: Manner,
    state: &Arc<State>,
    call: &Call,
    request: Request,
) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST, Method::DELETE])?;
    let fidelity = manner.fidelity.unwrap_or_else(|| call.fidelity(state.fidelity));
    let body = if call.method == Method::POST && request.method() == Method::POST {
        Some(text_body(state, request).await?)
    } else {
        None
    };
    let stats = Stats::new(Arc::clone(&state.clock));
    let (asked, question) = understand(state, call, body, QueryReading { fidelity, manner }).await?;
    let notes = notes(state, &asked, &question);
    let held = state.limits.answers.start();
    let mut out = AnswerBuffer::new(Arc::new(asked), notes, state.index(), held, stats);
    let mut answering = Answering::new(state, question, fidelity);
    answering.nothing_is_an_answer = manner.nothing_is_an_answer;
    while answering.values <= state.limits.answer_values_waiting {
        let Some((sub, answer, took)) = answering.next().await? else { break };
        out.add(&sub, answer.groups, took)?;
    }
    let missing = answering.announce();
    let hidden = out.hidden();
    if answering.is_done() && out.weight() <= INLINE_WEIGHT_MAX {
        let (json, held) = out.whole()?;
        return Ok(Answer { held: Some(held), hidden, ..Answer::ok(json) }.lacking(&missing));
    }
    answering.check_rest()?;
    Ok(Answer { pieces: Some(Pieces::new(out, answering)), hidden, ..Answer::ok(Vec::new()) }.lacking(&missing))
}

/// The sub-queries of a request, answered one after another: one request takes one place among the running queries.
/// Small ones are asked together.
pub struct Answering {
    state: Arc<State>,
    round: Round,
    rest: std::vec::IntoIter<ResolvedQuery>,
    /// The answers of the first queries of `rest`.
    ahead: VecDeque<TimedAnswer>,
    fidelity: Fidelity,
    /// Whether names that nobody carries are no error.
    nothing_is_an_answer: bool,
    /// Nodes that any of the answers lacks, and why.
    missing: BTreeMap<String, String>,
    /// How many of them the head of the answer names, once that is sent.
    announced: Option<usize>,
    /// Of all answers together.
    values: u64,
    values_max: u64,
}

impl Answering {
    pub fn new(state: &Arc<State>, question: Vec<ResolvedQuery>, fidelity: Fidelity) -> Self {
        Answering {
            round: state.queries.round(),
            rest: question.into_iter(),
            ahead: VecDeque::new(),
            fidelity,
            nothing_is_an_answer: false,
            missing: BTreeMap::new(),
            announced: None,
            values: 0,
            values_max: state.queries.options().answer_values_max,
            state: Arc::clone(state),
        }
    }

    /// The nodes that the answers so far lack. Another one after this is an error: the head of the answer is sent.
    pub fn announce(&mut self) -> Vec<MissingNode> {
        self.announced = Some(self.missing.len());
        let missing = |(node, reason): (&String, &String)| MissingNode { node: node.clone(), reason: reason.clone() };
        self.missing.iter().map(missing).collect()
    }

    fn lacks(&self) -> String {
        self.missing.iter().map(|(node, reason)| format!("{node} ({reason})")).collect::<Vec<_>>().join(", ")
    }

    /// The next sub-query that has an answer, its answer, and how long it took.
    pub async fn next(&mut self) -> Result<Option<(ResolvedQuery, TsAnswer, Duration)>, OpenTsdbError> {
        while let Some(sub) = self.rest.next() {
            let SubQuerySource::Query(query) = &sub.source else { continue };
            if self.ahead.is_empty() {
                let rest = self.rest.as_slice().iter().filter_map(ResolvedQuery::query);
                let asked = self.round.timeseries_together(std::iter::once(&**query).chain(rest)).await?;
                self.ahead = asked.into();
            }
            let Some(TimedAnswer { answer, took }) = self.ahead.pop_front() else { continue };
            let answer = match answer {
                Err(error) if self.is_nothing(&error) => continue,
                answered => answered?,
            };
            self.missing.extend(answer.missing.iter().map(|missing| (missing.node.clone(), missing.reason.clone())));
            if self.announced.is_some_and(|announced| self.missing.len() > announced) {
                let what = format!("nodes were lost after the answer had begun: {}", self.lacks());
                return Err(ApiError::of_kind(telem_engine::ErrorKind::Unavailable, what).into());
            }
            self.values += answer.groups.iter().map(|group| group.points.len() as u64).sum::<u64>();
            if self.values > self.values_max {
                return Err(telem_query::Error::TooLarge { what: "values", max: self.values_max }.into());
            }
            return Ok(Some((sub, answer, took)));
        }
        Ok(None)
    }

    /// Whether a sub-query that fails so has no answer, and is not wrong.
    fn is_nothing(&self, error: &telem_query::Error) -> bool {
        let tolerated = self.nothing_is_an_answer && matches!(error, telem_query::Error::UnknownName { .. });
        tolerated || is_known(&self.state, error, self.fidelity)
    }

    fn is_done(&self) -> bool {
        self.rest.as_slice().is_empty()
    }

    /// What can be known to be wrong before the answer begins: later it could only be cut off.
    fn check_rest(&self) -> Result<(), OpenTsdbError> {
        for query in self.rest.as_slice().iter().filter_map(ResolvedQuery::query) {
            match self.round.check(query) {
                Err(error) if self.is_nothing(&error) => {}
                checked => checked?,
            }
        }
        Ok(())
    }
}

/// What is asked, in a body or else in the URI. What is long, or asks for series by regular expression or by number, takes
/// its time, and takes it beside the threads of the network.
pub async fn understand(
    state: &Arc<State>,
    call: &Call,
    body: Option<String>,
    reading: impl Into<QueryReading>,
) -> Result<(QueryRequest, Vec<ResolvedQuery>), OpenTsdbError> {
    let reading = reading.into();
    let asked = match body {
        Some(body) if body.len() > INLINE_BODY_BYTES_MAX => {
            state.limits.walks.render(move || parse::body(&body, reading)).await?
        }
        Some(body) => parse::body(&body, reading)?,
        None => uri::query(&call.params, reading)?,
    };
    if asked.is_light() {
        return resolved(asked, state, call, reading);
    }
    let (owned, asking) = (Arc::clone(state), call.clone());
    walk(state, call, move |_| resolved(asked, &owned, &asking, reading)).await
}

/// What is asked of which series.
fn resolved(
    mut asked: QueryRequest,
    state: &State,
    call: &Call,
    reading: QueryReading,
) -> Result<(QueryRequest, Vec<ResolvedQuery>), OpenTsdbError> {
    let QueryReading { fidelity, manner } = reading;
    let delete = call.method == Method::DELETE || asked.delete;
    let refused = || {
        OpenTsdbError::bad_request("Deleting data is not enabled")
            .details("telem keeps what it was sent; ask without delete")
    };
    if delete && fidelity == Fidelity::Sensible {
        return Err(refused());
    }
    asked.arrays |= call.params.has("arrays");
    asked.gaps = asked.requested_gaps(call)?;
    let now = now_millis(&*state.clock);
    if manner.nothing_is_an_answer && resolve::is_backwards(&asked, now) {
        return Ok((asked, Vec::new()));
    }
    let mut question = resolve::resolve(&asked, &state.index(), now, fidelity)?;
    (manner.lines)(&asked, &mut question);
    if delete {
        // The original looks names up before it deletes.
        let round = state.queries.round();
        question.iter().filter_map(ResolvedQuery::query).try_for_each(|query| round.check(query))?;
        return Err(refused());
    }
    Ok((asked, question))
}

/// The annotations of the stretch that all sub-queries share.
fn notes(state: &State, asked: &QueryRequest, question: &[ResolvedQuery]) -> DeliveredNotes {
    let query = question.iter().find_map(ResolvedQuery::query);
    let snapshot = state.db.snapshot();
    match (query, snapshot.meta().annotations()) {
        (_, []) | (None, _) => DeliveredNotes::default(),
        _ if asked.no_annotations => DeliveredNotes::default(),
        (Some(query), held) => {
            let (start, end) = (query.start, query.end);
            let scope = if asked.global_annotations { NoteScope::WithGlobal } else { NoteScope::OfSeries };
            DeliveredNotes::new(held, window(start, end, None), start, end, scope)
        }
    }
}

/// Whether the name that a query fails for is known, though no series carries it: it was assigned, or telem defines it,
/// so that a dashboard may ask for what the level leaves out.
fn is_known(state: &State, error: &telem_query::Error, fidelity: Fidelity) -> bool {
    let telem_query::Error::UnknownName { kind, name } = error else { return false };
    fidelity == Fidelity::Sensible && defined_by_telem(*kind, name) || names::is_assigned(&state.db, *kind, name)
}

/// Whether telem's own metrics carry this name.
pub fn defined_by_telem(kind: NameKind, name: &str) -> bool {
    match kind {
        NameKind::Metric => collect::describe(name).is_some(),
        NameKind::TagKey => collect::is_tag_key(name),
        NameKind::TagValue => false,
    }
}

fn now_millis(clock: &dyn Clock) -> i64 {
    clock.now().millis()
}
