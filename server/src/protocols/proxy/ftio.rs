//! FTIO: the rhythms of what a job does, where `admire_proxy_invoke_ftio` is on the PATH.
//!
//! Every half minute it is given the trace of each live job. One that fails is asked again the next time. Nothing else
//! waits for it, and a job whose analysis takes long delays no other one.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State as Of;
use axum::response::Response;
use axum::routing::any;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::live::ProxyLive;
use super::profiles::NO_REFERENCE;
use super::program::{PROGRAMS_MAX, Program};
use super::reply::{self, RequestParams};
use super::traces::{self, Trace};

/// The program, as the original calls it.
const FTIO: &str = "admire_proxy_invoke_ftio";
/// How often it is asked.
pub const FTIO_INTERVAL: Duration = Duration::from_secs(30);
/// Longest that it may take for one job.
pub const FTIO_DEADLINE: Duration = Duration::from_secs(60);
/// Jobs about which it is asked at once: others ask programs, too.
const AT_ONCE_MAX: usize = PROGRAMS_MAX / 2;
/// Most that it may say.
const FTIO_OUTPUT_MAX: u64 = 64 << 20;
/// Jobs whose analyses are kept; the ones that were made first are forgotten.
pub const FTIO_JOBS_MAX: usize = 256;

pub fn routes(cache: &Arc<FtioCache>) -> Router<Arc<ProxyLive>> {
    let mut routes = Router::new();
    for path in ["/model/ftio", "/model/ftio/", "/trace/ftio", "/trace/ftio/"] {
        routes = routes.route(path, any(get));
    }
    routes.with_state(Arc::clone(cache))
}

/// The analysis of each metric of a job, as FTIO tells it.
type RhythmModels = BTreeMap<String, Json>;

/// Analyses, by job.
#[derive(Debug, Default)]
pub struct FtioCache {
    known: Mutex<KnownRhythms>,
}

#[derive(Debug, Default)]
struct KnownRhythms {
    /// How many were made.
    made: u64,
    /// Each with its place in the order in which they were made.
    by_job: BTreeMap<String, (u64, Arc<RhythmModels>)>,
}

impl FtioCache {
    fn lock(&self) -> MutexGuard<'_, KnownRhythms> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: &str, models: RhythmModels) {
        let mut known = self.lock();
        known.made += 1;
        let turn = known.made;
        known.by_job.insert(job.to_owned(), (turn, Arc::new(models)));
        while known.by_job.len() > FTIO_JOBS_MAX {
            let oldest = known.by_job.iter().min_by_key(|(_, (turn, _))| *turn).map(|(job, _)| job.clone());
            let Some(oldest) = oldest else { return };
            known.by_job.remove(&oldest);
        }
    }

    fn find(&self, job: &str) -> Option<Arc<RhythmModels>> {
        self.lock().by_job.get(job).map(|(_, models)| Arc::clone(models))
    }
}

/// Asks FTIO about every live job, again and again, for ever.
pub async fn watch(live: Arc<ProxyLive>, cache: Arc<FtioCache>) {
    let places = Arc::new(Semaphore::new(AT_ONCE_MAX));
    // Ends with this, and so do those that run.
    let mut analyses = JoinSet::new();
    let mut asked = HashSet::new();
    let mut round = tokio::time::interval(live.options.ftio_interval);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once.
    round.tick().await;
    loop {
        tokio::select! {
            _ = round.tick() => {}
            Some(done) = analyses.join_next() => {
                match done {
                    Ok(job) => { asked.remove(&job); }
                    // Which one it was is not known: all are asked again.
                    Err(panic) => { tracing::error!(%panic, "bug in telem: an analysis of FTIO"); asked.clear(); }
                }
                continue;
            }
        }
        // It may be installed while this runs.
        if live.programs.find(FTIO).is_err() {
            continue;
        }
        for (desc, _) in live.live_jobs() {
            if asked.insert(desc.jobid.clone()) {
                let (live, cache, places) = (Arc::clone(&live), Arc::clone(&cache), Arc::clone(&places));
                analyses.spawn(async move {
                    let _place = places.acquire().await;
                    match analyse(&live, &desc.jobid).await {
                        Ok(Some(models)) => cache.put(&desc.jobid, models),
                        Ok(None) => {}
                        Err(why) => {
                            tracing::warn!(why, job = %desc.jobid, "FTIO told nothing of a job; it is asked again")
                        }
                    }
                    desc.jobid
                });
            }
        }
    }
}

/// `None` where the job has no trace yet.
async fn analyse(live: &Arc<ProxyLive>, job: &str) -> Result<Option<RhythmModels>, String> {
    let (reader, id) = (Arc::clone(live), job.to_owned());
    let input = tokio::task::spawn_blocking(move || {
        let trace = Trace::find(&reader, &id)?;
        Some(traces::whole_text(&reader, &trace))
    });
    let input = input.await.map_err(|panic| format!("bug in telem: {panic}"))?;
    let Some(input) = input.transpose().map_err(|error| error.to_string())? else { return Ok(None) };
    let program = Program {
        path: live.programs.find(FTIO).map_err(|error| error.to_string())?,
        arguments: vec!["-n".into(), "10".into()],
        environment: Vec::new(),
        input: input.into_bytes(),
        deadline: FTIO_DEADLINE,
        output_bytes_max: FTIO_OUTPUT_MAX,
    };
    let said = live.programs.ask(program).await.map_err(|error| error.to_string())?;
    let told: Vec<Json> =
        serde_json::from_slice(answer_of(&said)).map_err(|error| format!("its answer is no JSON array: {error}"))?;
    let named = told.into_iter().filter_map(|model| Some((model["metric"].as_str()?.to_owned(), model)));
    let models: RhythmModels = named.collect();
    Ok(Some(models).filter(|models| !models.is_empty()))
}

/// Without the lines before the answer: FTIO 0.0.9 says first how long it took to read.
fn answer_of(said: &[u8]) -> &[u8] {
    if said.starts_with(b"[") {
        return said;
    }
    said.windows(2).position(|bytes| bytes == b"\n[").map_or(said, |at| &said[at + 1..])
}

#[derive(Debug, Serialize)]
struct ShownRhythms<'a> {
    models: &'a RhythmModels,
}

/// What FTIO said of a job last.
async fn get(Of(cache): Of<Arc<FtioCache>>, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("jobid") else { return reply::refused(NO_REFERENCE) };
    match cache.find(id) {
        Some(models) => reply::json(&ShownRhythms { models: &models }),
        None => reply::refused("No such jobid"),
    }
}
