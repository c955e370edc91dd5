//! `/model`: how what a command counts grows with the size of its jobs.
//!
//! Extra-P fits the models where it is on the PATH, and telem itself elsewhere, with `fit=telem`, and where Extra-P fails.
//! Models are kept until another run of their command is over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::Uri;
use axum::response::Response;
use axum::routing::any;
use serde::Deserialize;
use telem_engine::Timestamp;
use telem_query::model::ScalingModel;
use telem_query::model::extrap;
use telem_query::model::formula::Formula;

use super::live::ProxyLive;
use super::profiles::{self, NO_REFERENCE};
use super::program::Program;
use super::reply::{self, PartState, ProxyRequest, RequestParams, asked};
use crate::http::Params;
use crate::private_dir::{self, Privacy};
use crate::private_file;

/// Longest that Extra-P may take.
pub const EXTRAP_DEADLINE: Duration = Duration::from_secs(120);
/// Most that it may say.
const EXTRAP_OUTPUT_MAX: u64 = 64 << 20;
/// Commands whose models are kept.
pub const COMMANDS_KEPT_MAX: usize = 64;
/// Most points of a plot.
pub const PLOT_POINTS_MAX: usize = 100_000;

pub fn routes(live: &Arc<ProxyLive>, cache: &Arc<ModelCache>) -> Router<Arc<ProxyLive>> {
    let fitted = Router::new()
        .route("/model/get", any(get))
        .route("/model/get/", any(get))
        .route("/model/plot", any(plot))
        .route("/model/plot/", any(plot))
        .with_state((Arc::clone(live), Arc::clone(cache)));
    Router::new()
        .merge(fitted)
        .route("/model", any(bare))
        .route("/model/", any(bare))
        .route("/model/download", any(profiles::model_input))
        .route("/model/download/", any(profiles::model_input))
        .route("/model/{*other}", any(reply::unknown_segment))
}

async fn bare(uri: Uri) -> Response {
    reply::refused(uri.path())
}

/// The law of one metric.
#[derive(Clone, Debug)]
struct MetricModel {
    name: String,
    formula: Formula,
    rss: f64,
}

/// The thread that fits models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fitter {
    Extrap,
    Telem,
}

/// The models of one command.
#[derive(Debug)]
struct CommandModels {
    /// The runs that they were made of.
    runs: Vec<(Arc<str>, Timestamp)>,
    models: Vec<MetricModel>,
    /// When they were asked for last, in the order of all that was asked.
    turn: u64,
}

/// Models that were made, by command.
#[derive(Debug, Default)]
pub struct ModelCache {
    known: Mutex<BTreeMap<(String, Fitter), Arc<CommandModels>>>,
    turns: AtomicU64,
}

impl ModelCache {
    fn find(&self, key: &(String, Fitter), runs: &[(Arc<str>, Timestamp)]) -> Option<Arc<CommandModels>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|models| models.runs == *runs).cloned()
    }

    fn put(
        &self,
        key: (String, Fitter),
        runs: Vec<(Arc<str>, Timestamp)>,
        models: Vec<MetricModel>,
    ) -> Arc<CommandModels> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let models = Arc::new(CommandModels { runs, models, turn });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, Arc::clone(&models));
        while known.len() > COMMANDS_KEPT_MAX {
            let Some(oldest) = known.iter().min_by_key(|(_, models)| models.turn).map(|(key, _)| key.clone()) else {
                break;
            };
            known.remove(&oldest);
        }
        models
    }
}

/// The models of the command of a job.
async fn models_of(
    (live, cache): &(Arc<ProxyLive>, Arc<ModelCache>),
    id: &str,
    wanted: Option<&str>,
) -> Result<Arc<CommandModels>, String> {
    let command = profiles::command_of(live, id).ok_or("No such jobid")?;
    let runs = profiles::runs_of(live, &command);
    if runs.is_empty() {
        return Err(format!("Failed to get {id}"));
    }
    let names: Vec<(Arc<str>, Timestamp)> = runs.iter().map(|run| (Arc::clone(&run.key), run.end)).collect();
    let extrap = live.programs.find("extrap").ok().filter(|_| wanted != Some("telem"));
    let fitter = if extrap.is_some() { Fitter::Extrap } else { Fitter::Telem };
    let key = (command, fitter);
    if let Some(known) = cache.find(&key, &names) {
        return Ok(known);
    }
    let reader = Arc::clone(live);
    let points = tokio::task::spawn_blocking(move || profiles::scaling_points(&reader, &runs));
    let points = points.await.map_err(|panic| format!("bug in telem: {panic}"))?;
    if let Some(path) = extrap {
        match ask_extrap(live, path, profiles::extrap_lines(&points)).await {
            Ok(models) => return Ok(cache.put(key, names, models)),
            Err(why) => tracing::warn!(why, command = %key.0, "Extra-P made no models; telem fits them itself"),
        }
    }
    let fit = move || -> Vec<MetricModel> {
        let model = |(name, points): (&Arc<str>, &Vec<_>)| {
            let model = ScalingModel::fit(points)?;
            // What a model is displayed as is a formula.
            let formula = model.to_string().parse().ok()?;
            Some(MetricModel { name: name.to_string(), formula, rss: model.rss })
        };
        points.iter().filter_map(model).collect()
    };
    let models = tokio::task::spawn_blocking(fit).await.map_err(|panic| format!("bug in telem: {panic}"))?;
    Ok(cache.put(key, names, models))
}

/// A file that only its user can read, until it is dropped.
struct ScratchFile(PathBuf);

impl ScratchFile {
    fn write(content: &str) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let uid = rustix::process::getuid().as_raw();
        let dir = private_dir::below(Path::new("/tmp"), &format!("telem-models-{uid}"), uid, Privacy::Closed);
        let dir = dir.map_err(|error| error.to_string())?.path;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{}-{number}.jsonl", std::process::id()));
        private_file::write(&path, content.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // One that stays is small, and nobody else can read it.
        let _ = fs::remove_file(&self.0);
    }
}

async fn ask_extrap(live: &ProxyLive, path: PathBuf, lines: String) -> Result<Vec<MetricModel>, String> {
    let file = tokio::task::spawn_blocking(move || ScratchFile::write(&lines));
    let file = file.await.map_err(|panic| format!("bug in telem: {panic}"))??;
    let program = Program {
        path,
        arguments: vec![OsString::from("--json"), file.0.clone().into()],
        environment: Vec::new(),
        input: Vec::new(),
        deadline: EXTRAP_DEADLINE,
        output_bytes_max: EXTRAP_OUTPUT_MAX,
    };
    let report = live.programs.ask(program).await.map_err(|error| error.to_string())?;
    let model = |model: extrap::ExtrapModel| match model.formula {
        Ok(formula) => Some(MetricModel { name: model.name, formula, rss: model.rss }),
        Err(error) => {
            tracing::debug!(%error, metric = %model.name, "a model of Extra-P cannot be read");
            None
        }
    };
    Ok(extrap::models(&String::from_utf8_lossy(&report)).into_iter().filter_map(model).collect())
}

async fn get(Of(state): PartState<ModelCache>, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid") else { return reply::refused(NO_REFERENCE) };
    match models_of(&state, id, params.get("fit")).await {
        Ok(models) => {
            let row = |model: &MetricModel| {
                (model.name.clone(), model.formula.in_natural_logarithms(), super::shapes::finite(model.rss))
            };
            reply::json(&models.models.iter().map(row).collect::<Vec<_>>())
        }
        Err(why) => reply::refused(&why),
    }
}

#[derive(Debug, Deserialize)]
struct PlotBody {
    jobid: String,
    metric: String,
    start: f64,
    end: f64,
    #[serde(default)]
    step: Option<f64>,
    #[serde(default)]
    fit: Option<String>,
}

fn number(text: &str, what: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("Failed to parse the {what} parameter as an integer"))
}

fn step_of(params: &Params) -> Result<Option<f64>, String> {
    params.get("step").map(|step| number(step, "step")).transpose()
}

/// What is to be plotted.
struct ModelPlot {
    jobid: String,
    metric: String,
    fit: Option<String>,
    start: f64,
    end: f64,
    step: f64,
}

impl ModelPlot {
    fn of_params(params: &Params) -> Result<Self, String> {
        let text = |name: &str| params.get(name).map(str::to_owned).ok_or("Missing 'name' GET parameter");
        let (jobid, metric, start, end) = (text("jobid")?, text("metric")?, text("start")?, text("end")?);
        let step = step_of(params)?.unwrap_or(1.0);
        let (start, end) = (number(&start, "start/end")?, number(&end, "start/end")?);
        Ok(Self { jobid, metric, fit: params.get("fit").map(str::to_owned), start, end, step })
    }

    /// The places at which the model is evaluated.
    fn places(&self) -> Result<Vec<f64>, String> {
        let Self { start, end, step, .. } = *self;
        if !(step > 0.0 && start <= end) {
            return Err("Failed to generate range End cannot be smaller than start".to_owned());
        }
        let count = ((end - start) / step).ceil();
        if count.is_nan() || count > PLOT_POINTS_MAX as f64 {
            return Err(format!("Failed to generate range of {count} points: at most {PLOT_POINTS_MAX} are plotted"));
        }
        Ok((0..count as usize).map(|at| start + at as f64 * step).filter(|at| *at < end).collect())
    }
}

async fn plot(Of(state): PartState<ModelCache>, request: Request) -> Response {
    // The original reads that of a body from here.
    let step_beside = step_of(&reply::params(request.uri()));
    let plot = match asked::<PlotBody>(request, &state.0.state).await {
        Ok(ProxyRequest::Query(params)) => ModelPlot::of_params(&params),
        Ok(ProxyRequest::Body(PlotBody { jobid, metric, start, end, step, fit })) => {
            step_beside.map(|beside| ModelPlot { jobid, metric, fit, start, end, step: step.or(beside).unwrap_or(1.0) })
        }
        Ok(ProxyRequest::Other(_)) => Err("No such request type".to_owned()),
        Err(why) => Err(format!("Failed to parse json {why}")),
    };
    match plot_answer(&state, plot).await {
        Ok(points) => reply::json(&points),
        Err(why) => reply::refused(&why),
    }
}

async fn plot_answer(
    state: &(Arc<ProxyLive>, Arc<ModelCache>),
    plot: Result<ModelPlot, String>,
) -> Result<Vec<(f64, f64)>, String> {
    let plot = plot?;
    if profiles::command_of(&state.0, &plot.jobid).is_none() {
        return Err("No such jobid".to_owned());
    }
    let places = plot.places()?;
    let models = models_of(state, &plot.jobid, plot.fit.as_deref()).await?;
    let model = models.models.iter().find(|model| model.name == plot.metric);
    let model = model.ok_or_else(|| format!("Failed to plot No model for metric {}", plot.metric))?;
    Ok(places.into_iter().map(|at| (at, model.formula.at(at))).filter(|(_, value)| value.is_finite()).collect())
}

#[cfg(test)]
mod tests;
