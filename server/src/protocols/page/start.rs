//! `GET /api/page`: what the page starts from, bounded: jobs, time, nodes, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use serde::Serialize;
use serde_json::Value as Json;
use telem_engine::{Db, ErrorKind, Meta, MetricKind, SeriesIndex};
use telem_ingest::collect;

use super::millis;
use super::nodes::{AbsentNode, NODES_MAX, PageNode, nodes};
use super::panels::{COLUMNS_MAX, LINES_MAX, PANELS_MAX, ROWS_MAX};
use crate::footprint::Footprint;
use crate::http::asker::Asker;
use crate::http::{ApiError, Params};
use crate::info::jobs_of;
use crate::state::State;
use crate::walks::StopSign;

/// Metrics that are told at once; a search finds the others.
pub(crate) const METRICS_MAX: usize = 1_000;
/// Jobs that are told.
pub(crate) const JOBS_MAX: usize = 100;

#[derive(Debug, Serialize)]
struct PageStart {
    version: &'static str,
    live: bool,
    node: Arc<str>,
    level: Option<u8>,
    now: f64,
    first: Option<f64>,
    last: Option<f64>,
    /// Of the database that answers.
    samples: u64,
    cost: Option<PageCost>,
    jobs: Vec<PageJob>,
    jobs_left_out: usize,
    nodes: Vec<PageNode>,
    nodes_left_out: usize,
    missing: Vec<AbsentNode>,
    metrics: Vec<PageMetric>,
    metrics_left_out: usize,
    endpoints: PageEndpoints,
    limits: PageLimits,
}

#[derive(Debug, Serialize)]
struct PageJob {
    id: Option<String>,
    name: Option<String>,
    command: Option<String>,
    begin: Option<i64>,
    end: Option<i64>,
    exit_code: Option<i64>,
    signal: Option<i64>,
    nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PageMetric {
    name: Arc<str>,
    kind: MetricKind,
    unit: String,
    help: String,
    series: usize,
    tags: BTreeMap<Arc<str>, usize>,
    own: bool,
    level: Option<u8>,
}

/// What this telem took so far.
#[derive(Debug, Serialize)]
struct PageCost {
    cpu_seconds: f64,
    memory_bytes_max: u64,
}

impl From<Footprint> for PageCost {
    fn from(Footprint { cpu_seconds, memory_bytes_max }: Footprint) -> Self {
        Self { cpu_seconds, memory_bytes_max }
    }
}

#[derive(Debug, Serialize)]
struct PageEndpoints {
    sql: bool,
    jobs: bool,
    alarms: bool,
    profiles: bool,
}

#[derive(Debug, Serialize)]
struct PageLimits {
    panels: usize,
    columns: usize,
    lines: usize,
    rows: usize,
}

/// All that this version has.
const ENDPOINTS: PageEndpoints = PageEndpoints { sql: true, jobs: true, alarms: true, profiles: true };
const LIMITS: PageLimits = PageLimits { panels: PANELS_MAX, columns: COLUMNS_MAX, lines: LINES_MAX, rows: ROWS_MAX };

pub async fn start(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri().query().unwrap_or_default());
    let search = params.get("search").unwrap_or_default().to_lowercase();
    let asker = Asker::of(&request);
    let walked = Arc::clone(&state);
    let start = state.limits.walks.walk(&asker, move |stop| of(&walked, &search, stop)).await?;
    let text = serde_json::to_string(&start)
        .map_err(|error| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {error}")))?;
    Ok(([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response())
}

/// Looks at every metric, and waits for a lock that the writer holds while it appends.
fn of(state: &State, search: &str, stop: &StopSign) -> Result<PageStart, ApiError> {
    let (index, info) = (state.index(), state.db.info()?);
    let bounds = info.time_bounds;
    let (jobs, jobs_left_out) = jobs(&state.db);
    let (nodes, nodes_left_out, missing) = nodes(state);
    let found: Vec<Arc<str>> =
        index.metrics().into_iter().filter(|name| name.to_lowercase().contains(search)).collect();
    let (mut metrics, snapshot) = (Vec::new(), state.db.snapshot());
    for name in found.iter().take(METRICS_MAX) {
        stop.check()?;
        metrics.push(metric(&index, snapshot.meta(), name));
    }
    let live = state.writer.is_some();
    Ok(PageStart {
        version: state.version,
        live,
        node: Arc::clone(&state.node),
        level: live.then_some(state.level),
        now: millis(state.clock.now()),
        first: bounds.map(|(first, _)| millis(first)),
        last: bounds.map(|(_, last)| millis(last)),
        samples: info.samples,
        cost: Footprint::now().map(PageCost::from),
        jobs,
        jobs_left_out,
        nodes,
        nodes_left_out,
        missing,
        metrics_left_out: found.len() - metrics.len(),
        metrics,
        endpoints: ENDPOINTS,
        limits: LIMITS,
    })
}

fn jobs(db: &Db) -> (Vec<PageJob>, usize) {
    let described = db.described_jobs();
    let known = jobs_of(described.iter().map(|(node, job)| (&**node, job)));
    let told = known.iter().take(JOBS_MAX).map(|known| {
        let job = known.job();
        let text = |name: &str| job[name].as_str().map(str::to_owned);
        let time = |name: &str| DateTime::parse_from_rfc3339(job[name].as_str()?).ok().map(|at| at.timestamp_millis());
        PageJob {
            id: text("id"),
            name: text("name"),
            command: command(&job["command"]),
            begin: time("start"),
            end: time("end"),
            exit_code: job["exit_code"].as_i64(),
            signal: job["signal"].as_i64(),
            nodes: known.nodes().iter().take(NODES_MAX).cloned().collect(),
        }
    });
    (told.collect(), known.len().saturating_sub(JOBS_MAX))
}

/// Words of a command are text, or a list of it.
fn command(command: &Json) -> Option<String> {
    match command {
        Json::String(text) => Some(text.clone()),
        Json::Array(words) => Some(words.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

fn metric(index: &SeriesIndex, known: &Meta, name: &Arc<str>) -> PageMetric {
    let described = collect::describe(name);
    let meta = known.metric(name).cloned().or_else(|| described.map(|described| described.meta()));
    let meta = meta.unwrap_or_default();
    PageMetric {
        name: Arc::clone(name),
        kind: meta.kind,
        unit: meta.unit,
        help: meta.help,
        series: index.series_count(name),
        tags: index.tag_value_counts(name).into_iter().collect(),
        own: described.is_none(),
        level: described.map(|described| described.level),
    }
}
