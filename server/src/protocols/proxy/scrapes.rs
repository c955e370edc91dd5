//! Polling: each of the [targets](super::targets) has a [task](poll) of its own. `/join` and `-s` add them.
//!
//! What a target counts is a lane of the live table, below the sums that it belongs to. A [child](child) tells totals
//! that may begin anew; here they never fall. An [exporter](exporter) shows values, which are taken as they are.

mod child;
mod exporter;
mod passed;
mod poll;
mod profile;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::routing::any;
use telem_ingest::counters::{CounterReading, CounterValue, LaneTags};
use tokio::task::JoinSet;

pub use self::child::CHILD_JOBS_MAX;
pub use self::profile::{PROFILES_BYTES_MAX, PROFILES_MAX};
use super::JoinPolicy;
use super::live::ProxyLive;
use super::reply::{self, RequestParams};
use super::targets::fetch::{self, PlaceFailure, TargetReach};
use super::targets::{ScrapeRow, TARGETS_MAX, TargetAddress};
use crate::http::asker::{NO_TOKEN, ShownToken};

/// The period of `/join`, where none is named.
const PERIOD_OF_JOIN: Duration = Duration::from_secs(1);
/// How long is waited after a task died of a bug.
const BUG_PAUSE: Duration = Duration::from_secs(1);

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/join", any(join))
        .route("/join/", any(join))
        .route("/join/list", any(list))
        .route("/join/list/", any(list))
        .route("/join/multiple", any(join_multiple))
        .route("/join/multiple/", any(join_multiple))
        .route("/join/{*other}", any(reply::unknown_segment))
}

/// The client that asks for something to be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAsker {
    /// It showed the token, or is the command line.
    Trusted,
    Untrusted,
}

impl JoinAsker {
    fn of(request: &Request) -> Self {
        let is_shown = request.extensions().get::<ShownToken>().is_some();
        // Handed on by a node of our own job, whose own token that is.
        match is_shown && !request.headers().contains_key(NO_TOKEN) {
            true => Self::Trusted,
            false => Self::Untrusted,
        }
    }
}

/// Counts what children counted before this process began; `stored` says what that is.
pub fn restore(live: &ProxyLive, stored: impl Fn(&str, &LaneTags) -> Vec<CounterReading>) {
    for target in live.targets.all().into_iter().filter(|target| !target.is_exporter()) {
        let tags = live.child_tags(&target.key);
        let mut readings = stored(&target.key, &tags);
        // Gauges are about the present.
        readings.retain(|reading| matches!(reading.value, CounterValue::Counter(_)));
        if !readings.is_empty() {
            target.main_lane(|| child::open_main(live, tags, target.source(), &readings));
        }
    }
}

/// Polls every target in a task of its own.
pub async fn run(live: &Arc<ProxyLive>) {
    if live.state.writer.is_none() {
        return;
    }
    let mut tasks = JoinSet::new();
    loop {
        for target in live.targets.take_idle() {
            tasks.spawn(poll::poll(Arc::clone(live), target));
        }
        tokio::select! {
            () = live.targets.changed() => {}
            Some(ended) = tasks.join_next() => if let Err(panic) = ended {
                tracing::error!(%panic, "polling a target died of a bug");
                tokio::time::sleep(BUG_PAUSE).await;
            },
        }
    }
}

/// Finds out what a target is, and polls it from now on.
///
/// # Errors
/// In the words of the original, or why it is not allowed.
async fn poll_also(live: &ProxyLive, to: &str, period: Duration, asker: JoinAsker) -> Result<(), String> {
    let failed = |why: &str| format!("Failed to add {to} for scraping : {why}");
    let address = TargetAddress::parse(to).map_err(|why| failed(&why))?;
    let reach = match (live.options.join, asker) {
        (JoinPolicy::Nobody, _) => {
            return Err(failed("this server was started with --proxy-join none, and polls what -s names alone"));
        }
        (JoinPolicy::Anywhere, _) | (JoinPolicy::Here, JoinAsker::Trusted) => TargetReach::Anywhere,
        (JoinPolicy::Here, JoinAsker::Untrusted) => TargetReach::Here,
    };
    if live.state.writer.is_none() {
        return Err(failed(live.state.refusal.message()));
    }
    if let Err(PlaceFailure::NotHere(why)) = fetch::check_reach(&address, reach).await {
        tracing::info!(at = %address, %why, "a target was not added");
        return Err(failed(&address.censored(&why)));
    }
    let kind = fetch::probe(&address, reach).await.map_err(|why| {
        tracing::info!(at = %address, %why, "a target was not added");
        failed(&format!("Failed to determine type of {to}"))
    })?;
    if live.targets.has_another_path(&address, kind) {
        let place = address.authority();
        let why = format!(
            "another path of {place} is polled; one of a place can be, and /disconnect?target={place} ends that"
        );
        return Err(failed(&why));
    }
    live.targets.add(&address, period, Some(kind), reach).map_err(|why| failed(&why))
}

fn period(text: Option<&str>) -> Duration {
    text.and_then(|text| text.parse().ok()).map_or(PERIOD_OF_JOIN, Duration::from_millis)
}

/// What `to` must not be.
fn check_to(to: &str) -> Result<(), &'static str> {
    match to.contains("http") {
        true => Err("To should not be an URL (with http://) but host:port"),
        false => Ok(()),
    }
}

async fn join(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let (params, asker) = (reply::params(request.uri()), JoinAsker::of(&request));
    let Some(to) = params.get("to") else { return reply::refused("No to parameter passed") };
    if let Err(why) = check_to(to) {
        return reply::refused(why);
    }
    match poll_also(&live, to, period(params.get("period")), asker).await {
        Ok(()) => reply::done(&format!("Added {to} for scraping")),
        Err(why) => reply::refused(&why),
    }
}

/// Several at once, with `&` between them.
async fn join_multiple(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let (params, asker) = (reply::params(request.uri()), JoinAsker::of(&request));
    let Some(all) = params.get("to") else { return reply::refused("No to parameter passed") };
    if let Err(why) = check_to(all) {
        return reply::refused(why);
    }
    // One that is named twice is one.
    let targets: BTreeSet<&str> = all.split('&').map(str::trim).filter(|to| !to.is_empty()).collect();
    if targets.len() > TARGETS_MAX {
        return reply::refused(&format!("{} targets are named; at most {TARGETS_MAX} are polled", targets.len()));
    }
    let period = period(params.get("period"));
    let joins = targets.iter().map(|to| poll_also(&live, to, period, asker));
    let failed: Vec<String> = futures::future::join_all(joins).await.into_iter().filter_map(Result::err).collect();
    match failed.is_empty() {
        true => reply::done(&format!("Added {all} for scraping")),
        false => reply::refused(&failed.join("; ")),
    }
}

async fn list(Of(live): Of<Arc<ProxyLive>>, RequestParams(_): RequestParams) -> Response {
    let mut rows = vec![ScrapeRow {
        target_url: "/system".to_owned(),
        ttype: "System",
        period: u64::try_from(live.options.period.as_millis()).unwrap_or(u64::MAX),
        last_scrape: live.now_ms() / 1_000,
        error: None,
        failures: None,
    }];
    rows.extend(live.targets.rows());
    reply::json(&rows)
}
