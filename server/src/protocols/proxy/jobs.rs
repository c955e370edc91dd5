//! `/job` and `/job/list`: what is live, and what it counts.

use std::sync::Arc;

use axum::extract::{Path, Request, State as Of};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use futures::{FutureExt, stream};
use telem_ingest::counters::{CounterReading, ScopeId};

use super::climb;
use super::live::{BesideReadings, ProxyLive};
use super::pages;
use super::reply::{self, ProxyState, RequestParams};
use super::shapes::{JobDesc, PROFILE_TAIL, write_metrics, write_profile_head};
use super::targets::LINEAGE;
use super::targets::fetch::{OWN_NODE, OWN_NODE_WHOLE};
use super::told::{SINCE, ToldAnswer};
use super::tree::Poller;
use crate::http::asker::{Asker, ShownToken};

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/job", any(profiles))
        .route("/job/", any(profiles))
        .route("/job/list", any(list))
        .route("/job/list/", any(list))
        .route("/job/{*other}", any(reply::unknown_segment))
        // As the original's documentation calls it.
        .route("/joblist", any(list))
        .route("/joblist/", any(list))
        // Of originals that poll this server, each time that it joined.
        .route(&format!("{SINCE}{{join}}/job"), any(since))
        .route(&format!("{SINCE}{{join}}/is_admire_proxy.html"), any(mark))
}

async fn list(Of(live): ProxyState) -> Response {
    let jobs: Vec<JobDesc> = live.live_jobs().into_iter().map(|(desc, _)| desc).collect();
    reply::json(&jobs)
}

async fn profiles(
    Of(live): ProxyState,
    headers: HeaderMap,
    shown: Option<Extension<ShownToken>>,
    RequestParams(params): RequestParams,
) -> Response {
    match params.get("job") {
        Some(id) => match live.live_job(id) {
            Some((desc, scope)) => {
                reply::streamed(reply::JSON, ProfileWriter::new(live, vec![(desc, scope)], ProfileChoice::One).parts())
            }
            None => reply::refused("No such Job ID"),
        },
        None if headers.get(LINEAGE).is_some_and(|asker| live.targets.polls(asker.as_bytes())) => {
            let why = "this server polls the one that asks; each would count what the other one has, again and again";
            reply::failed(StatusCode::CONFLICT, why)
        }
        None => {
            let poller = if headers.contains_key(LINEAGE) { Poller::Ours } else { Poller::Original };
            live.tree.note_poll(live.state.clock.monotonic(), poller);
            // Others may ask for this node alone, and a node that ends does not wait for them.
            let is_head = shown.is_some() && headers.contains_key(OWN_NODE);
            let look = is_head.then(|| live.options.looks.begin());
            // To the head of its job a node also tells what ended a moment ago: else the last values would be missed.
            let (jobs, choice) = match headers.get(OWN_NODE) {
                Some(wanted) if wanted == OWN_NODE_WHOLE => (live.recent_jobs(), ProfileChoice::Whole),
                Some(_) => (live.recent_jobs(), ProfileChoice::All),
                None => (live.live_jobs(), ProfileChoice::All),
            };
            let lineage = live.targets.lineage().and_then(|id| id.parse().ok());
            let mut writer = ProfileWriter::new(live, jobs, choice);
            writer.look = look;
            let mut answer = reply::streamed(reply::JSON, writer.parts());
            if let Some(lineage) = lineage {
                answer.headers_mut().insert(LINEAGE, lineage);
            }
            answer
        }
    }
}

/// What was counted since this server joined.
async fn since(Of(live): ProxyState, Path(join): Path<u64>, request: Request) -> Response {
    let now = live.state.clock.monotonic();
    // One that polls for an earlier join stops for good, as it would count all of it beside.
    let Some(told) = live.told.answer(join, now) else { return reply::nothing_there() };
    live.tree.note_poll(now, Poller::Original);
    if live.told.is_first_with_counts() {
        climb::note_told(&live);
    }
    let jobs = live.live_jobs();
    let mut writer = ProfileWriter::new(live, jobs, ProfileChoice::All);
    writer.told = Some((told, Asker::of(&request)));
    reply::streamed(reply::JSON, writer.parts())
}

async fn mark(Of(live): ProxyState, Path(join): Path<u64>) -> Response {
    match live.told.is_last(join) {
        true => pages::mark().await,
        false => reply::nothing_there(),
    }
}

/// What an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileChoice {
    /// An array of jobs, with the counters that have data.
    All,
    /// An array of jobs, with all of their counters.
    Whole,
    /// One job, with all of its counters.
    One,
}

/// Writes jobs with their counters, a block of counters at a time.
struct ProfileWriter {
    live: Arc<ProxyLive>,
    jobs: std::vec::IntoIter<(JobDesc, ScopeId)>,
    choice: ProfileChoice,
    ts: u64,
    /// What is being written.
    open: Option<OpenJob>,
    /// What belongs to it beside.
    beside: BesideReadings,
    is_first_job: bool,
    is_over: bool,
    /// The look of a head that it answers.
    look: Option<u64>,
    /// What an original is told.
    told: Option<(ToldAnswer, Asker)>,
}

/// A job that is being written.
struct OpenJob {
    id: String,
    scope: ScopeId,
    /// How many of its counters are.
    written: usize,
    is_first: bool,
}

impl ProfileWriter {
    fn new(live: Arc<ProxyLive>, jobs: Vec<(JobDesc, ScopeId)>, choice: ProfileChoice) -> Self {
        let ts = live.now_ms().saturating_mul(1_000);
        let (jobs, beside) = (jobs.into_iter(), BesideReadings::default());
        Self { live, jobs, choice, ts, open: None, beside, is_first_job: true, is_over: false, look: None, told: None }
    }

    fn parts(self) -> impl futures::Stream<Item = Bytes> + Send + 'static {
        stream::unfold(self, |mut writer| async move {
            let part = writer.next()?;
            Some((part, writer))
        })
    }

    /// Leaves of readings what the answer has of them; `None` where it is none any more.
    fn choose(&mut self, id: &str, readings: &mut Vec<CounterReading>) -> Option<()> {
        if let Some((told, _)) = &mut self.told {
            return self.live.told.tell(told, id, readings).then_some(());
        }
        if self.choice == ProfileChoice::All {
            readings.retain(|reading| reading.value.has_data());
        }
        Some(())
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            if let Some(look) = self.look.take() {
                self.live.options.looks.end(look);
            }
            // Who gave up before the end counts nothing of it.
            if let Some((told, asker)) = self.told.take()
                && asker.gone().now_or_never().is_none()
            {
                let runs = &self.live.runs;
                self.live.told.end(&told, |id, begin| runs.begin(id) == Some(begin));
            }
            return None;
        }
        let mut text = Vec::new();
        match self.open.take() {
            Some(mut job) => {
                let mut readings = self.live.table.readings(job.scope, job.written);
                if readings.is_empty() {
                    if let Some((told, _)) = &self.told {
                        let again = self.live.told.vanished(told, &job.id)?;
                        write_metrics(&again, self.ts, &mut job.is_first, &mut text);
                    }
                    text.extend_from_slice(PROFILE_TAIL);
                } else {
                    job.written += readings.len();
                    readings.retain(|reading| !self.beside.has(&reading.name));
                    self.choose(&job.id, &mut readings)?;
                    write_metrics(&readings, self.ts, &mut job.is_first, &mut text);
                    self.open = Some(job);
                }
            }
            None => match self.jobs.next() {
                Some((desc, scope)) => {
                    text.extend_from_slice(match (self.choice, std::mem::take(&mut self.is_first_job)) {
                        (ProfileChoice::One, _) => b"",
                        (_, true) => b"[",
                        (_, false) => b",",
                    });
                    write_profile_head(&desc, &mut text);
                    if let Some((told, _)) = &self.told {
                        self.live.told.begin_job(told, &desc.jobid, self.live.runs.begin(&desc.jobid));
                    }
                    let mut job = OpenJob { id: desc.jobid, scope, written: 0, is_first: true };
                    self.beside = self.live.beside(scope);
                    let mut readings = std::mem::take(&mut self.beside.readings);
                    self.choose(&job.id, &mut readings)?;
                    write_metrics(&readings, self.ts, &mut job.is_first, &mut text);
                    self.open = Some(job);
                }
                None => {
                    self.is_over = true;
                    match (self.choice, self.is_first_job) {
                        (ProfileChoice::One, _) => return None,
                        (_, true) => text.extend_from_slice(b"[]"),
                        (_, false) => text.push(b']'),
                    }
                }
            },
        }
        Some(text.into())
    }
}
