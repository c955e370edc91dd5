//! `POST /api/put`: samples in. Good ones are stored (unless the server's level says to store nothing), and each bad
//! one is reported if the request asks for it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use telem_engine::{Durability, SampleBatch};
use telem_ingest::accept::{Accepted, REJECTS_TOLD_MAX};
use telem_ingest::decode::opentsdb::{self, BodyError, DataPoint, NonFinite, Precision, PutRules};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::Writer;
use telem_query::tsq::Fidelity;

use super::call::Call;
use super::errors::OpenTsdbError;
use super::{Answer, allow, json};
use crate::http::body::{self, BodyLimits};
use crate::slots;
use crate::state::State;

/// What users send is of this level: a server of level 0 checks it, says that all is well, and keeps nothing of it.
pub(super) const LEVEL: u8 = 1;

/// The parameter of a request whose samples get no tags from their connection: the client knows better.
pub const AS_SENT: &str = "as_sent";

/// Most bad points that an answer lists, and how many bytes those may take; the others are counted.
pub(crate) const LISTED_MAX: usize = REJECTS_TOLD_MAX;
pub(crate) const LISTED_BYTES_MAX: usize = 4 << 20;

/// Points of a body with bad ones that are kept at once.
const GROUP_POINTS: usize = 4_096;

/// How much the answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutDetail {
    /// Nothing, or that something was wrong.
    Plain,
    /// How many were good and how many were not.
    Summary,
    /// Also each bad point with its reason; of very many, how many are listed.
    Details,
}

/// How a body is to be read.
#[derive(Clone, Copy, Debug)]
struct PutOptions {
    report: PutDetail,
    rules: PutRules,
    /// Whether good points are stored; else they are checked and counted only.
    keep: bool,
}

/// What became of a body's data points.
#[derive(Debug, Default)]
struct DecodedPoints {
    batch: SampleBatch,
    /// Good points, stored or not.
    good: usize,
    failed: usize,
    /// Bad points and their reasons, as JSON objects, in their order and as many as are listed; empty
    /// unless details are wanted.
    errors: Vec<Vec<u8>>,
}

/// The bad points of a body, while it is sorted.
#[derive(Debug, Default)]
struct RejectedPoints {
    count: usize,
    /// The first [`LISTED_MAX`], by their numbers.
    told: Vec<(usize, String)>,
}

impl RejectedPoints {
    fn add(&mut self, index: usize, reason: &impl ToString) {
        self.count += 1;
        if self.told.len() < LISTED_MAX {
            self.told.push((index, reason.to_string()));
        }
    }
}

pub async fn answer(state: &Arc<State>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::POST])?;
    let Some(writer) = state.writer.clone() else {
        return Err(OpenTsdbError::new(state.refusal.status(), state.refusal.message()));
    };
    let report = report(call);
    let patience = patience(call, state.fidelity)?;
    let durability = if call.params.has("sync") { Durability::Synced } else { Durability::Buffered };
    let wanted = PutOptions { report, rules: rules(call, state.fidelity)?, keep: state.level >= LEVEL };
    let tags = slots::tags_of(&request).await;
    let tags = if call.params.has(AS_SENT) { tags.of_slot_alone() } else { tags };
    let sorted = sort(&writer, request, wanted, tags, &state.limits.bodies).await?;
    if sorted.good == 0 && sorted.failed == 0 {
        return Err(OpenTsdbError::bad_request("No datapoints found in content"));
    }
    let written = writer.submit(sorted.batch, durability);
    let written = match patience {
        Some(patience) => tokio::time::timeout(patience, written).await,
        None => Ok(written.await),
    };
    match written {
        Ok(written) => written?,
        Err(_) => return timed_out(report, sorted.good, sorted.failed, &sorted.errors),
    }
    render(report, sorted.good, sorted.failed, &sorted.errors)
}

/// Answers a body of points of which none can be stored, each for the same `reason`.
pub async fn refuse(state: &State, call: &Call, request: Request, reason: &str) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::POST])?;
    let (report, reason) = (report(call), reason.to_owned());
    let read = body::read_and_decode(request, &state.limits.bodies, move |body| {
        opentsdb::with_points(body, LISTED_MAX, |points| {
            let failed = points.kept.len() + points.beyond;
            let told: Vec<(usize, String)> = match report {
                PutDetail::Details => (0..points.kept.len()).map(|at| (at, reason.clone())).collect(),
                PutDetail::Plain | PutDetail::Summary => Vec::new(),
            };
            let mut listing = ErrorListing::default();
            listing.add(&points.kept, &told);
            (failed, listing.errors)
        })
    });
    let (failed, errors) = read.await?.map_err(unreadable)?;
    if failed == 0 {
        return Err(OpenTsdbError::bad_request("No datapoints found in content"));
    }
    render(report, 0, failed, &errors)
}

fn report(call: &Call) -> PutDetail {
    if call.params.has("details") {
        PutDetail::Details
    } else if call.params.has("summary") {
        PutDetail::Summary
    } else {
        PutDetail::Plain
    }
}

/// How long the answer waits for the points to be stored, if the request says so; 0 is for ever.
fn patience(call: &Call, fidelity: Fidelity) -> Result<Option<Duration>, OpenTsdbError> {
    let Some(text) = call.params.get("sync_timeout") else { return Ok(None) };
    let millis: i32 = text.parse().map_err(|_| {
        OpenTsdbError::unforeseen(call.fidelity(fidelity), "Unable to parse 'sync_timeout' as a number")
            .details(format!("found '{text}', expected milliseconds"))
    })?;
    Ok(u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis))
}

/// Nobody knows yet what becomes of the good points: they wait in the writer's queue, and are stored in their turn.
pub fn timed_out(report: PutDetail, good: usize, failed: usize, errors: &[Vec<u8>]) -> Result<Answer, OpenTsdbError> {
    if report == PutDetail::Plain {
        let text = format!(
            "The put call has timed out with 0 successful writes, {failed} failed writes and {good} timed out writes."
        );
        return Err(
            OpenTsdbError::bad_request(text).details("what timed out is still stored, unless the server dies before")
        );
    }
    let mut out = format!("{{\"success\":0,\"failed\":{failed},\"timeouts\":{good}").into_bytes();
    if report == PutDetail::Details {
        out.extend_from_slice(b",\"errors\":");
        json::list(&mut out, errors, |out, error| out.extend_from_slice(error));
    }
    out.push(b'}');
    Ok(Answer::with_status(StatusCode::BAD_REQUEST, out))
}

/// What the points of this request mean: as recorded from OpenTSDB unless the request says otherwise.
fn rules(call: &Call, fidelity: Fidelity) -> Result<PutRules, OpenTsdbError> {
    let tags_max = match call.fidelity(fidelity) {
        Fidelity::Sensible => telem_engine::series::TAGS_MAX,
        Fidelity::OpenTsdb => opentsdb::TAGS_MAX,
    };
    let precision = match call.params.get("precision") {
        None => Precision::BySize,
        Some(name) => Precision::by_name(name).ok_or_else(|| {
            OpenTsdbError::bad_request("Unknown precision of timestamps")
                .details(format!("found '{name}', expected s, ms or us"))
        })?,
    };
    let non_finite = match call.params.get("non_finite") {
        None => NonFinite::Refuse,
        Some("keep") => NonFinite::Keep,
        Some(other) => {
            return Err(OpenTsdbError::bad_request("Unknown wish for values that are no finite numbers")
                .details(format!("found '{other}', expected keep")));
        }
    };
    Ok(PutRules { tags_max, precision, non_finite })
}

async fn sort(
    writer: &Writer,
    request: Request,
    wanted: PutOptions,
    tags: DefaultTags,
    limits: &BodyLimits,
) -> Result<DecodedPoints, OpenTsdbError> {
    let writer = writer.clone();
    let sorted = body::read_and_decode(request, limits, move |body| sort_points(&writer, body, wanted, &tags)).await?;
    sorted.map_err(unreadable)
}

fn unreadable(error: BodyError) -> OpenTsdbError {
    match &error {
        BodyError::NotJson(cause) => OpenTsdbError::not_json(cause.to_string()),
        BodyError::Empty | BodyError::NotAnObjectOrArray => OpenTsdbError::bad_request(error.to_string()),
    }
}

fn sort_points(
    writer: &Writer,
    body: &[u8],
    wanted: PutOptions,
    tags: &DefaultTags,
) -> Result<DecodedPoints, BodyError> {
    // Most bodies are good, and that is found out faster than what is wrong with one.
    if wanted.keep
        && let Some(batch) = writer.accept_points(tags, &wanted.rules, body)
    {
        return Ok(DecodedPoints { good: batch.len(), batch, ..DecodedPoints::default() });
    }
    let points_max = writer.limits().batch_samples_max;
    let (mut sorted, mut listing) = (DecodedPoints::default(), ErrorListing::default());
    let beyond = opentsdb::with_groups(body, points_max, GROUP_POINTS, |points| {
        let mut bad = RejectedPoints::default();
        let samples = points.iter().enumerate().filter_map(|(index, point)| match point.sample(&wanted.rules) {
            Ok(sample) => Some((index, sample)),
            Err(error) => {
                bad.add(index, &error);
                None
            }
        });
        let (good, accepted) = if wanted.keep {
            let accepted = writer.accept(tags, samples);
            (accepted.batch.len(), accepted)
        } else {
            (samples.count(), Accepted::default())
        };
        sorted.good += good;
        sorted.failed += bad.count + accepted.rejected;
        for (series, time, value) in accepted.batch.iter() {
            sorted.batch.push(series, time, value);
        }
        if wanted.report == PutDetail::Details {
            let rejects = accepted.rejects.iter().map(|reject| (reject.index, reject.reason.to_string()));
            let mut told: Vec<(usize, String)> = bad.told.into_iter().chain(rejects).collect();
            told.sort_by_key(|(index, _)| *index);
            listing.add(points, &told);
        }
    })?;
    sorted.errors = listing.errors;
    sorted.failed += beyond;
    if beyond > 0 && wanted.report == PutDetail::Details {
        let reason = format!(
            "{beyond} data points were not looked at: the request holds more than {points_max}; send the rest in \
             another"
        );
        sorted.errors.push(error_object(&DataPoint::default(), &reason));
    }
    Ok(sorted)
}

/// Bad points with their reasons, as far as an answer lists them.
#[derive(Debug, Default)]
struct ErrorListing {
    errors: Vec<Vec<u8>>,
    bytes: usize,
}

impl ErrorListing {
    /// Adds those of some points, by their numbers among them.
    fn add(&mut self, points: &[DataPoint<'_>], told: &[(usize, String)]) {
        for (index, reason) in told {
            if self.errors.len() == LISTED_MAX || self.bytes > LISTED_BYTES_MAX {
                return;
            }
            let object = error_object(&points[*index], reason);
            self.bytes += object.len();
            if self.bytes <= LISTED_BYTES_MAX {
                self.errors.push(object);
            }
        }
    }
}

/// `{"datapoint":{...as sent...},"error":"..."}`; what was missing or null is left out.
fn error_object(point: &DataPoint<'_>, reason: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    out.extend_from_slice(b"{\"datapoint\":{");
    if let Some(metric) = &point.metric {
        out.extend_from_slice(b"\"metric\":");
        json::string(&mut out, metric);
        out.push(b',');
    }
    out.extend_from_slice(b"\"timestamp\":");
    json::int(&mut out, point.timestamp);
    if let Some(value) = &point.value {
        out.extend_from_slice(b",\"value\":");
        json::string(&mut out, value);
    }
    if let Some(tags) = &point.tags {
        out.extend_from_slice(b",\"tags\":{");
        for (at, (key, value)) in tags.entries.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::string(&mut out, key);
            out.push(b':');
            match value {
                Some(value) => json::string(&mut out, value),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"},\"error\":");
    json::string(&mut out, reason);
    out.push(b'}');
    out
}

fn render(report: PutDetail, good: usize, failed: usize, errors: &[Vec<u8>]) -> Result<Answer, OpenTsdbError> {
    if report == PutDetail::Plain {
        return match failed {
            0 => Ok(Answer::no_content()),
            _ => Err(OpenTsdbError::bad_request("One or more data points had errors")
                .details("Please see the TSD logs or append \"details\" to the put request")),
        };
    }
    let mut out = format!("{{\"success\":{good},\"failed\":{failed}").into_bytes();
    if report == PutDetail::Details {
        out.extend_from_slice(b",\"errors\":");
        json::list(&mut out, errors, |out, error| out.extend_from_slice(error));
        if errors.len() < failed {
            out.extend_from_slice(format!(",\"errors_listed\":{}", errors.len()).as_bytes());
        }
    }
    out.push(b'}');
    let status = if failed == 0 { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    Ok(Answer::with_status(status, out))
}
