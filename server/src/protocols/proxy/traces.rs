//! `/trace`: what was counted over time, out of the samples that are stored anyway.
//!
//! Samples are written when a value changed. The API has a point each period for everything that has data: values are
//! filled forward over a grid of periods, whose step is doubled until the points are few enough. The last point is what
//! stands in the live table, so that a trace ends where `/job` is.
//!
//! The trace of a job is that of its lane. Those of the sums are put together from the lanes below them: each run begins
//! at 0, so what a series rises within its runs is added up, and what nobody knows any more, such as runs whose samples
//! retention dropped, counts from the beginning.
//!
//! What the [`node`] was like has samples under telem's own names. A run that another server saw, and that was imported,
//! has its own samples of that, and is in no sum.

mod grid;
mod node;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde::{Deserialize, Serialize};
use telem_engine::{TimeRange, Timestamp};
use telem_ingest::counters::{CounterReading, CounterValue, GaugeValue, ScopeId};
use telem_ingest::decode::proxy::CounterKind;

use self::grid::{TraceGrid, counted, latest_of};
use self::node::NodeSource;
use self::source::TraceSource;
use super::keeping;
use super::live::ProxyLive;
use super::profiles;
use super::reply::{self, ProxyRequest, ProxyState, RequestParams, asked};
use super::runs::FinishedRun;
use super::shapes::{JobDesc, MetricValue, finite};

/// Most points of one metric.
pub const TRACE_POINTS_MAX: usize = 10_000;
/// Most points of all metrics of a trace together.
pub const TRACE_VALUES_MAX: usize = 2_000_000;
/// About what the text of a counter in a profile takes, in bytes.
const COUNTER_TEXT_BYTES: u64 = 100;
/// The largest whole number that every reader of JSON takes exactly.
const JSON_INTEGER_MAX: u64 = (1 << 53) - 1;
const NO_JOB: &str = "No job GET parameter passed";
const NO_FILTER: &str = "No filter GET parameter passed";
/// What the change per second of a metric is called.
const DERIVED: &str = "deriv__";

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/trace", any(bare))
        .route("/trace/", any(bare))
        .route("/trace/list", any(list))
        .route("/trace/list/", any(list))
        .route("/trace/metrics", any(metrics))
        .route("/trace/metrics/", any(metrics))
        .route("/trace/read", any(read))
        .route("/trace/read/", any(read))
        .route("/trace/plot", any(plot))
        .route("/trace/plot/", any(plot))
        .route("/trace/json", any(whole))
        .route("/trace/json/", any(whole))
        .route("/trace/size", any(size))
        .route("/trace/size/", any(size))
        .route("/trace/{*other}", any(reply::unknown_segment))
}

async fn bare(uri: Uri) -> Response {
    reply::refused(uri.path())
}

/// A trace, by its fields in the API.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    desc: JobDesc,
    /// About how many bytes its samples take.
    size: u64,
    /// Seconds since 1970.
    lastwrite: u64,
}

/// The job that it is the trace of.
enum TraceOf {
    /// A sum, which is always live.
    Sum(ScopeId),
    /// A run with clients, and since when it is one.
    Live {
        scope: ScopeId,
        slot: Option<u32>,
        begin: Timestamp,
    },
    Finished(Arc<FinishedRun>),
}

/// Something that has a trace.
pub struct Trace {
    pub desc: JobDesc,
    of: TraceOf,
}

/// A metric of a trace.
struct TracedMetric {
    name: Arc<str>,
    kind: CounterKind,
    /// Its value at the end.
    last: CounterValue,
}

impl TracedMetric {
    fn of(reading: CounterReading) -> Self {
        Self { kind: reading.value.kind(), name: reading.name, last: reading.value }
    }
}

impl Trace {
    /// That of a job: the live one, or its latest run.
    pub fn find(live: &ProxyLive, id: &str) -> Option<Self> {
        if let Some((desc, scope)) = live.sums().into_iter().find(|(desc, _)| desc.jobid == id) {
            return Some(Self { desc, of: TraceOf::Sum(scope) });
        }
        if let Some((desc, scope)) = live.runs.live_one(id) {
            let (slot, begin) = live.runs.place(id).unwrap_or((None, live.state.clock.now()));
            return Some(Self { desc, of: TraceOf::Live { scope, slot, begin } });
        }
        let run = live.runs.finished_one(id, None)?;
        Some(Self { desc: run.desc.clone(), of: TraceOf::Finished(run) })
    }

    /// Those of everything that is live, and of the latest run of everything else.
    pub fn all(live: &ProxyLive) -> Vec<Self> {
        let ids: Vec<String> = live.live_jobs().into_iter().map(|(desc, _)| desc.jobid).collect();
        let finished = live.runs.finished();
        let over = profiles::latest(&finished).into_iter().filter(|run| !ids.contains(&run.desc.jobid));
        let over = over.map(|run| Self { desc: run.desc.clone(), of: TraceOf::Finished(Arc::clone(run)) });
        let over: Vec<Self> = over.collect();
        ids.iter().filter_map(|id| Self::find(live, id)).chain(over).collect()
    }

    /// Whether another server saw it.
    fn is_imported(&self) -> bool {
        matches!(&self.of, TraceOf::Finished(run) if run.is_imported)
    }

    /// Whether a metric of it is one of the node's, which this server samples under names of its own.
    fn is_of_node(&self, live: &ProxyLive, name: &str) -> bool {
        !self.is_imported() && live.system.doc(name).is_some()
    }

    fn info(&self, live: &ProxyLive, sample_bytes: f64) -> TraceInfo {
        let now = live.state.clock.now();
        let (counters, begin, end) = match &self.of {
            TraceOf::Sum(scope) => (live.table.len(*scope) as u64, None, now),
            TraceOf::Live { scope, begin, .. } => (live.table.len(*scope) as u64, Some(*begin), now),
            TraceOf::Finished(run) => {
                let bytes = keeping::profile_bytes(live, run);
                (bytes / COUNTER_TEXT_BYTES, Some(run.begin), run.end)
            }
        };
        let has_samples = counters > 0;
        let period = live.options.period.as_micros().max(1) as f64;
        let begin = begin.unwrap_or(live.started);
        let ticks = (end.micros().saturating_sub(begin.micros()).max(0) as f64 / period).max(1.0);
        let size = counters as f64 * ticks * sample_bytes;
        let lastwrite = if has_samples { u64::try_from(end.seconds()).unwrap_or(0) } else { 0 };
        TraceInfo { desc: self.desc.clone(), size: size as u64, lastwrite }
    }

    /// The metrics that have data: of the node those that are sampled.
    fn metrics(&self, live: &ProxyLive) -> Vec<TracedMetric> {
        let snapshot = live.state.db.snapshot();
        let is_sampled = |metric: &TracedMetric| {
            let source = NodeSource::of(&metric.name);
            source.is_some_and(|source| source.is_sampled(&snapshot, self.node(live)))
        };
        let mut metrics = self.of_clients(live);
        metrics.extend(self.of_node(live).into_iter().filter(is_sampled));
        metrics
    }

    /// What the node is like, or was when the run ended. Nothing where other nodes are told, too.
    fn of_node(&self, live: &ProxyLive) -> Vec<TracedMetric> {
        let readings = match &self.of {
            TraceOf::Sum(scope) if *scope == live.main && !live.targets.is_empty() => Vec::new(),
            TraceOf::Live { scope, .. } if !live.runs.is_here(*scope) => Vec::new(),
            TraceOf::Sum(_) | TraceOf::Live { .. } => live.system.readings().to_vec(),
            TraceOf::Finished(run) => keeping::profile(live, run),
        };
        let is_of_one = |value: CounterValue| match value {
            CounterValue::Counter(_) => true,
            CounterValue::Gauge(gauge) => gauge.hits == 1.0,
        };
        let of_node = readings.into_iter().filter(|reading| self.is_of_node(live, &reading.name));
        let with_data = of_node.filter(|reading| reading.value.has_data() && is_of_one(reading.value));
        with_data.map(TracedMetric::of).collect()
    }

    /// The node whose samples tell of it.
    fn node<'a>(&'a self, live: &'a ProxyLive) -> &'a str {
        match &self.of {
            TraceOf::Finished(run) => run.node(),
            TraceOf::Sum(_) | TraceOf::Live { .. } => live.stored_nodes.first().unwrap_or(&live.state.node),
        }
    }

    /// When the node's samples count. Those of a sum begin with this server.
    fn time_of_node(&self, live: &ProxyLive) -> TimeRange {
        match &self.of {
            TraceOf::Sum(_) if live.store.is_none() => TimeRange::ALL,
            TraceOf::Sum(_) => TimeRange::new(live.started, Timestamp::MAX),
            TraceOf::Live { begin, .. } => TimeRange::new(*begin, Timestamp::MAX),
            TraceOf::Finished(run) => TimeRange::new(run.begin, run.end),
        }
    }

    fn of_clients(&self, live: &ProxyLive) -> Vec<TracedMetric> {
        let readings = match &self.of {
            TraceOf::Sum(scope) | TraceOf::Live { scope, .. } => live.table.all(*scope),
            TraceOf::Finished(run) => keeping::profile(live, run),
        };
        let is_counted = |reading: &CounterReading| !self.is_of_node(live, &reading.name);
        let counted = readings.into_iter().filter(|reading| reading.value.has_data() && is_counted(reading));
        counted.map(TracedMetric::of).collect()
    }

    fn metric(&self, live: &ProxyLive, name: &str) -> Option<TracedMetric> {
        if self.is_of_node(live, name) {
            return self.metrics(live).into_iter().find(|metric| *metric.name == *name);
        }
        let reading = match &self.of {
            TraceOf::Sum(scope) | TraceOf::Live { scope, .. } => live.table.find(*scope, name)?,
            TraceOf::Finished(_) => return self.metrics(live).into_iter().find(|metric| *metric.name == *name),
        };
        reading.value.has_data().then(|| TracedMetric::of(reading))
    }

    /// When it ends: now, or when its run did.
    fn end(&self, live: &ProxyLive) -> Timestamp {
        match &self.of {
            TraceOf::Finished(run) => run.end,
            TraceOf::Sum(_) | TraceOf::Live { .. } => live.state.clock.now(),
        }
    }

    /// Where the samples of its metrics are, as they stand now.
    fn source<'a>(&self, live: &'a ProxyLive) -> TraceSource<'a> {
        match &self.of {
            TraceOf::Live { slot, begin, .. } => TraceSource::of_live(live, &self.desc.jobid, *slot, *begin),
            TraceOf::Finished(run) => TraceSource::of_run(live, run),
            TraceOf::Sum(_) => TraceSource::of_sum(live, &self.desc.jobid),
        }
    }

    /// The samples of a metric, by time: totals of a counter, values of a gauge.
    fn samples(
        &self,
        live: &ProxyLive,
        source: &mut TraceSource<'_>,
        metric: &TracedMetric,
    ) -> telem_engine::Result<Vec<(Timestamp, f64)>> {
        let name = &*metric.name;
        if self.is_of_node(live, name) {
            let Some(of_node) = NodeSource::of(name) else { return Ok(Vec::new()) };
            return of_node.samples(source.snapshot(), self.node(live), self.time_of_node(live));
        }
        let pieces = source.pieces(name)?;
        Ok(match metric.kind {
            CounterKind::Gauge => latest_of(pieces),
            CounterKind::Counter => {
                let mut totals = counted(pieces);
                // Of a sum, what no sample tells any more was there from the beginning.
                if let (TraceOf::Sum(_), CounterValue::Counter(last)) = (&self.of, metric.last)
                    && let Some((_, told)) = totals.last().copied()
                {
                    let untold = last - told - source.unstored(name)?;
                    if untold.is_finite() {
                        totals.iter_mut().for_each(|(_, total)| *total += untold);
                    }
                }
                totals
            }
        })
    }

    /// A metric on a grid of its own.
    fn series(&self, live: &ProxyLive, metric: &TracedMetric) -> telem_engine::Result<Vec<(Timestamp, f64)>> {
        let samples = self.samples(live, &mut self.source(live), metric)?;
        let last = number(metric.last);
        let end = samples.last().map_or(Timestamp::MIN, |(time, _)| *time).max(self.end(live));
        let begin = samples.first().map_or(end, |(time, _)| *time);
        let grid = TraceGrid::new(begin, end, live.options.period, TRACE_POINTS_MAX);
        Ok(grid.fill(&samples, last))
    }
}

fn number(value: CounterValue) -> f64 {
    match value {
        CounterValue::Counter(value) => value,
        CounterValue::Gauge(gauge) => gauge.average(),
    }
}

/// About what a sample takes.
fn sample_bytes(live: &ProxyLive) -> f64 {
    const UNKNOWN: f64 = 2.0;
    let Ok(info) = live.state.db.info() else { return UNKNOWN };
    let flushed = info.samples.saturating_sub(info.samples_unflushed);
    if flushed == 0 { UNKNOWN } else { info.storage.segment_bytes as f64 / flushed as f64 }
}

async fn list(Of(live): ProxyState) -> Response {
    reply::beside(live, |live| {
        let bytes = sample_bytes(live);
        reply::json(&Trace::all(live).iter().map(|trace| trace.info(live, bytes)).collect::<Vec<_>>())
    })
    .await
}

async fn metrics(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("job").map(str::to_owned) else { return reply::refused(NO_JOB) };
    reply::beside(live, move |live| match Trace::find(live, &id) {
        Some(trace) => {
            let names: Vec<Arc<str>> = trace.metrics(live).into_iter().map(|metric| metric.name).collect();
            reply::json(&names.iter().map(|name| &**name).collect::<Vec<&str>>())
        }
        None => reply::refused("Failed to generate data No such jobid"),
    })
    .await
}

/// Seconds since 1970, with three decimals.
fn seconds(time: Timestamp) -> f64 {
    (time.micros() as f64 / 1e3).round() / 1e3
}

#[derive(Debug, Serialize)]
struct ReadTrace {
    info: TraceInfo,
    time_serie: Vec<(f64, MetricValue)>,
}

async fn read(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("job").map(str::to_owned) else { return reply::refused(NO_JOB) };
    let filter = params.get("filter").map(str::to_owned);
    reply::beside(live, move |live| {
        let Some(trace) = Trace::find(live, &id) else {
            return reply::refused(&format!("Failed to generate data No such trace id {id}"));
        };
        let info = trace.info(live, sample_bytes(live));
        let Some(filter) = filter else { return reply::json(&ReadTrace { info, time_serie: Vec::new() }) };
        let (kind, points) = match filtered(live, &trace, &filter) {
            Ok(found) => found,
            Err((status, why)) => return reply::failed(status, &why),
        };
        let value = |time: Timestamp, value: f64| match kind {
            CounterKind::Counter => MetricValue::of(CounterValue::Counter(value), time.micros().max(0).unsigned_abs()),
            CounterKind::Gauge => MetricValue::of(CounterValue::Gauge(GaugeValue::of(value)), 0),
        };
        let points = points.into_iter().map(|(time, number)| (seconds(time), value(time, number)));
        reply::json(&ReadTrace { info, time_serie: points.collect() })
    })
    .await
}

/// What is plotted of one metric.
type TracedPoints = (CounterKind, Vec<(Timestamp, f64)>);

/// One metric of a trace, or the status and text that are answered where there is none.
fn filtered(live: &ProxyLive, trace: &Trace, name: &str) -> Result<TracedPoints, (StatusCode, String)> {
    let unknown = || (StatusCode::BAD_REQUEST, format!("Failed to generate data No such metric {name}"));
    let metric = trace.metric(live, name).ok_or_else(unknown)?;
    let points = trace
        .series(live, &metric)
        .map_err(|error| (crate::http::status(error.kind()), format!("Failed to generate data {error}")))?;
    Ok((metric.kind, points))
}

#[derive(Debug, Deserialize)]
struct TracePlot {
    jobid: String,
    filter: String,
    derivate: bool,
}

async fn plot(Of(live): ProxyState, request: Request) -> Response {
    let plot = match asked::<TracePlot>(request, &live.state).await {
        Ok(ProxyRequest::Query(params)) => match (params.get("filter"), params.get("jobid")) {
            (None, _) => Err(NO_FILTER),
            (Some(_), None) => Err(NO_JOB),
            (Some(filter), Some(jobid)) => {
                let derivate = matches!(params.get("derivate"), Some("1" | "true"));
                Ok(TracePlot { jobid: jobid.to_owned(), filter: filter.to_owned(), derivate })
            }
        },
        Ok(ProxyRequest::Body(plot)) => Ok(plot),
        Ok(ProxyRequest::Other(_)) => Err(NO_FILTER),
        Err(_) => Err("Failed to parse plot POST request"),
    };
    let TracePlot { jobid, filter, derivate } = match plot {
        Ok(plot) => plot,
        Err(why) => return reply::refused(why),
    };
    reply::beside(live, move |live| {
        let Some(trace) = Trace::find(live, &jobid) else {
            return reply::refused(&format!("Failed to generate data No such trace id {jobid}"));
        };
        match filtered(live, &trace, &filter) {
            Ok((_, points)) => {
                let points = points.into_iter().map(|(time, value)| (seconds(time), finite(value))).collect();
                reply::json(&if derivate { derived(points) } else { points })
            }
            Err((status, why)) => reply::failed(status, &why),
        }
    })
    .await
}

/// The change per second to the point before.
fn derived(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut before: Option<(f64, f64)> = None;
    let rate = |(time, value): (f64, f64)| {
        let rate = match before.replace((time, value)) {
            Some((earlier, old)) if time > earlier => (value - old) / (time - earlier),
            _ => 0.0,
        };
        (time, finite(rate))
    };
    points.into_iter().map(rate).collect()
}

#[derive(Debug, Serialize)]
struct WholeTrace {
    infos: TraceInfo,
    metrics: BTreeMap<String, Vec<(f64, f64)>>,
}

async fn whole(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid").map(str::to_owned) else {
        return reply::refused("A GET parameter jobid must be passed");
    };
    reply::beside(live, move |live| match Trace::find(live, &id) {
        Some(trace) => match whole_text(live, &trace) {
            Ok(text) => ([(header::CONTENT_TYPE, reply::JSON)], text).into_response(),
            Err(error) => reply::failed(crate::http::status(error.kind()), &format!("Failed to get {id}: {error}")),
        },
        None => reply::refused(&format!("Failed to get {id}")),
    })
    .await
}

/// All of a trace as JSON, with times since its first sample; what FTIO reads, too.
///
/// # Errors
/// Those of the engine.
pub fn whole_text(live: &ProxyLive, trace: &Trace) -> telem_engine::Result<String> {
    let mut source = trace.source(live);
    let traced = trace.metrics(live);
    let mut all = Vec::with_capacity(traced.len());
    for metric in &traced {
        all.push(trace.samples(live, &mut source, metric)?);
    }
    let end =
        all.iter().filter_map(|samples| samples.last()).map(|(time, _)| *time).fold(trace.end(live), Timestamp::max);
    let begin = all.iter().filter_map(|samples| samples.first()).map(|(time, _)| *time).min().unwrap_or(end);
    let most = (TRACE_VALUES_MAX / traced.len().max(1)).clamp(2, TRACE_POINTS_MAX);
    let grid = TraceGrid::new(begin, end, live.options.period, most);
    let since = |time: Timestamp| time.micros().saturating_sub(begin.micros()) as f64 / 1e6;
    let mut metrics = BTreeMap::new();
    for (metric, samples) in traced.iter().zip(all) {
        let points = grid.fill(&samples, number(metric.last));
        let points: Vec<(f64, f64)> = points.into_iter().map(|(time, value)| (since(time), finite(value))).collect();
        metrics.insert(format!("{DERIVED}{}", metric.name), derived(points.clone()));
        metrics.insert(metric.name.to_string(), points);
    }
    let infos = trace.info(live, sample_bytes(live));
    Ok(serde_json::to_string(&WholeTrace { infos, metrics }).unwrap_or_default())
}

/// As the successor of the original: how many bytes a trace takes, and how many it may.
async fn size(Of(live): ProxyState, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid").map(str::to_owned) else { return reply::refused(NO_JOB) };
    reply::beside(live, move |live| match Trace::find(live, &id) {
        Some(trace) => {
            let most = live.state.db.retention().bytes.unwrap_or(JSON_INTEGER_MAX);
            reply::json(&(trace.info(live, sample_bytes(live)).size, most))
        }
        None => reply::refused(&format!("No such jobid {id}")),
    })
    .await
}
