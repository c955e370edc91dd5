//! `/profiles`: what jobs that are over counted.
//!
//! A job that ran several times has several profiles. Lists have the latest one of each id, or all of them with
//! `runs=all`; `start=` (milliseconds) names one. Points and models are made of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Of;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use telem_ingest::counters::{CounterReading, CounterValue};
use telem_query::model::SizePoint;
use telem_query::model::extrap::ExtrapPoint;

use super::keeping;
use super::live::ProxyLive;
use super::reply::{self, ProxyState, RequestParams};
use super::runs::FinishedRun;
use super::shapes::{JobDesc, PROFILE_TAIL, WALLTIME, WALLTIME_DOC, write_metrics, write_profile_head};
use crate::http::Params;

/// Sizes in which a metric must have been measured.
const SIZES_MIN: usize = 2;
/// What the original says where no job is named.
pub const NO_REFERENCE: &str = "A GET parameter for a reference jobid must be passed";
const TEXT: &str = "text/plain; charset=utf-8";

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/profiles", any(list))
        .route("/profiles/", any(list))
        .route("/profiles/percmd", any(by_command))
        .route("/profiles/percmd/", any(by_command))
        .route("/profiles/get", any(one))
        .route("/profiles/get/", any(one))
        .route("/profiles/points", any(points))
        .route("/profiles/points/", any(points))
        .route("/profiles/extrap", any(model_input))
        .route("/profiles/extrap/", any(model_input))
        .route("/profiles/{*other}", any(reply::unknown_segment))
        // As the original's documentation calls them.
        .route("/percmd", any(by_command))
        .route("/percmd/", any(by_command))
        .route("/get", any(one))
        .route("/get/", any(one))
}

/// Runs that are over, by begin.
fn descs(live: &ProxyLive, params: &Params) -> Vec<JobDesc> {
    let finished = live.runs.finished();
    if params.get("runs") == Some("all") {
        return finished.iter().map(|run| run.desc.clone()).collect();
    }
    latest(&finished).into_iter().map(|run| run.desc.clone()).collect()
}

/// The latest run of each job, by begin.
pub fn latest(finished: &[Arc<FinishedRun>]) -> Vec<&Arc<FinishedRun>> {
    let last: BTreeMap<&str, usize> =
        finished.iter().enumerate().map(|(at, run)| (run.desc.jobid.as_str(), at)).collect();
    let mut places: Vec<usize> = last.into_values().collect();
    places.sort_unstable();
    places.into_iter().map(|at| &finished[at]).collect()
}

async fn list(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    reply::json(&descs(&live, &params))
}

async fn by_command(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let mut commands: BTreeMap<String, Vec<JobDesc>> = BTreeMap::new();
    for desc in descs(&live, &params) {
        commands.entry(desc.command.clone()).or_default().push(desc);
    }
    reply::json(&commands)
}

async fn one(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid") else { return reply::refused("A GET parameter jobid must be passed") };
    let start = match params.get("start").map(str::parse::<u64>).transpose() {
        Ok(start) => start,
        Err(error) => return reply::refused(&format!("the parameter 'start' is no number of milliseconds: {error}")),
    };
    let Some(run) = live.runs.finished_one(id, start) else { return reply::refused(&format!("Failed to get {id}")) };
    reply::beside(live, move |live| {
        let mut text = Vec::new();
        write_profile_head(&run.desc, &mut text);
        write_metrics(&readings(live, &run), 0, &mut true, &mut text);
        text.extend_from_slice(PROFILE_TAIL);
        ([(header::CONTENT_TYPE, reply::JSON)], text).into_response()
    })
    .await
}

/// What a run counted, and how long it took unless it counts something of that name itself.
pub fn readings(live: &ProxyLive, run: &FinishedRun) -> Vec<CounterReading> {
    let mut readings = keeping::profile(live, run);
    let is_known = readings.iter().any(|reading| *reading.name == *WALLTIME);
    let micros = run.end.micros().saturating_sub(run.begin.micros());
    let is_timed = run.desc.start_time > 0 && run.desc.end_time > 0 && micros >= 0;
    if !is_known && is_timed {
        let value = CounterValue::Counter(micros as f64 / 1e3);
        readings.push(CounterReading { name: WALLTIME.into(), doc: WALLTIME_DOC.into(), value });
    }
    readings
}

/// The command of a job that is live, or else of its latest run.
pub fn command_of(live: &ProxyLive, id: &str) -> Option<String> {
    let of_live = live.live_job(id).map(|(desc, _)| desc.command);
    of_live.or_else(|| live.runs.finished_one(id, None).map(|run| run.desc.command.clone()))
}

/// Every run of a command that is over, by begin.
pub fn runs_of(live: &ProxyLive, command: &str) -> Vec<Arc<FinishedRun>> {
    let mut runs = live.runs.finished();
    runs.retain(|run| run.desc.command == command);
    runs
}

/// What those runs measured, metric by metric, by size.
pub fn points_of(live: &ProxyLive, runs: &[Arc<FinishedRun>]) -> BTreeMap<Arc<str>, Vec<SizePoint>> {
    let mut points: BTreeMap<Arc<str>, Vec<SizePoint>> = BTreeMap::new();
    for run in runs {
        for reading in readings(live, run) {
            let value = match reading.value {
                CounterValue::Counter(value) => value,
                CounterValue::Gauge(gauge) => gauge.average(),
            };
            if value.is_finite() {
                let size = f64::from(run.desc.size);
                points.entry(reading.name).or_default().push(SizePoint { size, value });
            }
        }
    }
    for of_metric in points.values_mut() {
        // Points of equal size stay in the order of their runs.
        of_metric.sort_by(|one, other| one.size.total_cmp(&other.size));
    }
    points
}

/// Those of metrics that were measured in several sizes: what a model can be made of.
pub fn scaling_points(live: &ProxyLive, runs: &[Arc<FinishedRun>]) -> BTreeMap<Arc<str>, Vec<SizePoint>> {
    let mut points = points_of(live, runs);
    points.retain(|_, points| points.chunk_by(|one, other| one.size == other.size).count() >= SIZES_MIN);
    points
}

/// The same as Extra-P reads it: a line a point.
pub fn extrap_lines(points: &BTreeMap<Arc<str>, Vec<SizePoint>>) -> String {
    let mut text = String::new();
    for (name, points) in points {
        for SizePoint { size, value } in points {
            text.push_str(&serde_json::to_string(&ExtrapPoint::new(name, *size, *value)).unwrap_or_default());
            text.push('\n');
        }
    }
    text
}

async fn points(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid") else { return reply::refused(NO_REFERENCE) };
    let Some(command) = command_of(&live, id) else { return reply::refused("No such jobid") };
    reply::beside(live, move |live| {
        let runs = runs_of(live, &command);
        if runs.is_empty() {
            return reply::refused(&format!("Failed to find command {command} in previous profiles"));
        }
        // Sizes are whole numbers, and are written so.
        let pairs = |points: Vec<SizePoint>| points.into_iter().map(|point| (point.size as i64, point.value)).collect();
        let points: BTreeMap<Arc<str>, Vec<(i64, f64)>> =
            points_of(live, &runs).into_iter().map(|(name, points)| (name, pairs(points))).collect();
        reply::json(&points.iter().map(|(name, points)| (&**name, points)).collect::<BTreeMap<_, _>>())
    })
    .await
}

/// What Extra-P reads of the runs of a job's command.
pub async fn model_input(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid") else { return reply::refused(NO_REFERENCE) };
    let id = id.to_owned();
    let Some(command) = command_of(&live, &id) else { return reply::refused("No such jobid") };
    reply::beside(live, move |live| {
        input_of(live, &command).unwrap_or_else(|| reply::refused(&format!("Failed to get {id}")))
    })
    .await
}

/// The same of a command; `None` where no run of it is over.
pub fn input_of(live: &ProxyLive, command: &str) -> Option<Response> {
    let runs = runs_of(live, command);
    if runs.is_empty() {
        return None;
    }
    let text = extrap_lines(&scaling_points(live, &runs));
    Some(([(header::CONTENT_TYPE, TEXT)], text).into_response())
}
