//! The tree of proxies: those that joined, and the parent of each.
//!
//! A child asks `/pivot` for its parent and then that one's `/join`; from then on the parent polls. All children stand
//! below the server that they ask, unless `--proxy-branches` says otherwise, and each address stands once. A child that
//! does not answer is lost until it does, and one that leaves is gone.

mod climb;
mod leave;
mod placement;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::Response;
use axum::routing::any;
use telem_engine::{Durability, MetaChange, StateRecord};
use tokio::sync::Notify;

use self::leave::TreePlace;
pub use self::placement::TreeShape;
use self::placement::{TreeEntry, key_of, place};
use super::ProxyOptions;
use super::live::ProxyLive;
use super::reply;
use super::targets::TargetAddress;
use crate::http::asker::{ASKED_AT, PathPrefix};
use crate::state::State;

/// The record of all children that asked for a place.
const TREE: &str = "proxy.tree";
const ENTRIES: &str = "entries";
/// Most children.
pub const CHILDREN_MAX: usize = 10_000;

pub fn routes() -> Router<Arc<ProxyLive>> {
    let mut routes = Router::new();
    for (path, call) in [
        ("/leave", TreeCall::Leave),
        ("/remove", TreeCall::Remove),
        ("/disconnect", TreeCall::Disconnect),
        ("/period", TreeCall::Period),
    ] {
        let take = any(move |live: Of<Arc<ProxyLive>>, request: Request| change(live, call, request));
        routes = routes.route(path, take.clone()).route(&format!("{path}/"), take);
    }
    // A further segment means nothing.
    for path in ["/pivot", "/pivot/", "/pivot/{*ignored}"] {
        routes = routes.route(path, any(pivot));
    }
    for path in ["/topo", "/topo/", "/topo/{*ignored}"] {
        routes = routes.route(path, any(topo));
    }
    routes
}

/// What the successor of the original is told about a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeCall {
    /// `from` goes.
    Leave,
    /// `from` says that `target` is dead.
    Remove,
    /// `target` is to be polled no more.
    Disconnect,
    /// How often is polled.
    Period,
}

/// A server that polls this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poller {
    /// It is telem.
    Ours,
    /// It is Metric Proxy.
    Original,
}

/// The children that asked for a place here.
pub struct ProxyTree {
    state: Arc<State>,
    shape: TreeShape,
    root: Option<(TargetAddress, Duration)>,
    entries: Mutex<Vec<TreeEntry>>,
    /// When somebody polled us last, in milliseconds of a clock that never jumps.
    polled_ms: AtomicU64,
    /// Who did that is one of ours.
    is_polled_by_ours: AtomicBool,
    /// When it was another one; `u64::MAX` where it never was.
    polled_by_others_ms: AtomicU64,
    polled: Notify,
    /// Where this server stands, once it does.
    standing: Mutex<Option<TreePlace>>,
}

impl fmt::Debug for ProxyTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTree").field("shape", &self.shape).field("root", &self.root).finish_non_exhaustive()
    }
}

impl ProxyTree {
    pub fn start(state: &Arc<State>, options: &ProxyOptions) -> Self {
        let snapshot = state.db.snapshot();
        let entries = snapshot.meta().record(TREE, ENTRIES).map_or_else(Vec::new, |text| {
            serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, "who stood below this server cannot be read"))
                .unwrap_or_default()
        });
        Self {
            state: Arc::clone(state),
            shape: options.shape,
            root: options.root.clone(),
            entries: Mutex::new(entries),
            polled_ms: AtomicU64::new(0),
            is_polled_by_ours: AtomicBool::new(false),
            polled_by_others_ms: AtomicU64::new(u64::MAX),
            polled: Notify::new(),
            standing: Mutex::new(None),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<TreeEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, entries: &[TreeEntry]) {
        if self.state.writer.is_none() {
            return;
        }
        let text = serde_json::to_string(entries).unwrap_or_default();
        let record = StateRecord::new(TREE, ENTRIES, text);
        if let Err(error) = self.state.db.put_meta(MetaChange::Record(record), Durability::Buffered) {
            tracing::warn!(%error, "who stands below this server will not outlive this process");
        }
    }

    /// Somebody polls us.
    pub fn note_poll(&self, now: Duration, poller: Poller) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.is_polled_by_ours.store(poller == Poller::Ours, Ordering::Relaxed);
        if poller == Poller::Original {
            self.polled_by_others_ms.store(now_ms, Ordering::Relaxed);
        }
        self.polled_ms.store(now_ms, Ordering::Relaxed);
        self.polled.notify_waiters();
    }

    /// It was asked for a poll, which is waited for from now on.
    fn note_join(&self, now: Duration) {
        self.polled_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Tells who stands above that this server goes, after what it counted last is handed on.
    pub async fn leave(&self, live: &ProxyLive) {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(standing) = standing {
            leave::leave(live, &standing).await;
        }
    }

    /// Whether one that is none of ours polled within this time: an original, or whoever else asks for all jobs.
    pub fn is_polled_by_others(&self, now: Duration, within: Duration) -> bool {
        match self.polled_by_others_ms.load(Ordering::Relaxed) {
            u64::MAX => false,
            polled_ms => now.saturating_sub(Duration::from_millis(polled_ms)) < within,
        }
    }

    /// Whether anybody polled within this time, or was asked to.
    pub fn is_polled(&self, now: Duration, within: Duration) -> bool {
        let polled_at = self.polled_at();
        !polled_at.is_zero() && now.saturating_sub(polled_at) < within
    }

    fn stand(&self, standing: Option<TreePlace>) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    fn polled_at(&self) -> Duration {
        Duration::from_millis(self.polled_ms.load(Ordering::Relaxed))
    }

    /// The parent of a child that comes; `None` where that is this server.
    fn place(&self, from: &str) -> Result<Option<String>, String> {
        let mut entries = self.entries();
        if entries.len() >= CHILDREN_MAX && !entries.iter().any(|entry| entry.key() == key_of(from)) {
            return Err(format!("{CHILDREN_MAX} proxies stand below this one; no more are taken"));
        }
        let before = entries.clone();
        let parent = place(&mut entries, from, self.shape);
        if *entries != before {
            self.keep(&entries);
        }
        Ok(parent)
    }

    /// A child does not answer.
    pub fn lose(&self, key: &str) {
        self.mark(key, true);
    }

    /// It answers.
    pub fn find_again(&self, key: &str) {
        self.mark(key, false);
    }

    fn mark(&self, key: &str, is_lost: bool) {
        let mut entries = self.entries();
        let Some(entry) = entries.iter_mut().find(|entry| entry.key() == key) else { return };
        if entry.is_lost != is_lost {
            entry.is_lost = is_lost;
            self.keep(&entries);
        }
    }

    fn remove(&self, key: &str) -> bool {
        let mut entries = self.entries();
        let was_there = placement::remove(&mut entries, key);
        if was_there {
            self.keep(&entries);
        }
        was_there
    }

    /// Stands below another proxy, where that is wanted.
    pub async fn climb(&self, live: &Arc<ProxyLive>) {
        if let Some((root, period)) = &self.root {
            climb::climb(live, root, *period).await;
        }
    }
}

/// The address by which a request asked: a name of this machine may lead elsewhere.
fn asked_at(live: &ProxyLive, request: &Request) -> String {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    match host {
        Some(host) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => host.to_owned(),
        Some(host) => format!("{host}:80"),
        None => {
            let port = live.options.place().and_then(|place| place.port).unwrap_or(super::DEFAULT_PORT);
            format!("{}:{port}", live.host)
        }
    }
}

async fn pivot(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let params = reply::params(request.uri());
    let Some(from) = params.get("from") else { return reply::refused("No from parameter passed") };
    if from.contains("http") {
        return reply::refused("From should not be an URL (with http://) but host:port");
    }
    let from = match TargetAddress::parse(from) {
        Ok(from) => from.secret_text(),
        Err(why) => return reply::refused(&format!("From should be host:port: {why}")),
    };
    match live.tree.place(&from) {
        Ok(Some(parent)) => reply::done(&parent),
        Ok(None) => {
            // Of a client of a node it is where that was asked, which hands the next request on as well.
            if let Some(place) = request.headers().get(ASKED_AT).and_then(|place| place.to_str().ok()) {
                return reply::done(place);
            }
            let prefix = request.extensions().get::<PathPrefix>().map_or("", |prefix| &prefix.0);
            reply::done(&format!("{}{prefix}", asked_at(&live, &request)))
        }
        Err(why) => reply::refused(&why),
    }
}

/// Pairs of parent and child; of one that is lost, that stands third.
async fn topo(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    // Under the machine's own name, as children call themselves.
    let asked = asked_at(&live, &request);
    let own = asked.rsplit_once(':').map_or_else(|| live.host.clone(), |(_, port)| format!("{}:{port}", live.host));
    let entries = live.tree.entries().clone();
    if entries.is_empty() {
        return reply::json(&[[&own, &own]]);
    }
    let pair = |entry: &TreeEntry| {
        let parent = entry.parent.clone().unwrap_or_else(|| own.clone());
        let mut pair = vec![parent, entry.key().to_owned()];
        if entry.is_lost {
            pair.push("lost".to_owned());
        }
        pair
    };
    reply::json(&entries.iter().map(pair).collect::<Vec<_>>())
}

async fn change(Of(live): Of<Arc<ProxyLive>>, call: TreeCall, request: Request) -> Response {
    let params = reply::params(request.uri());
    let key = |name: &str| match params.get(name) {
        Some(text) => TargetAddress::parse(text).map(|address| address.authority().to_owned()),
        None => Err(format!("No {name} parameter passed")),
    };
    let done = match call {
        TreeCall::Leave => match key("from") {
            Ok(from) => left(&live, &from).await.map(|()| format!("{from} left")),
            Err(why) => Err(why),
        },
        TreeCall::Disconnect => {
            key("target").and_then(|target| gone(&live, &target).map(|()| format!("Disconnected {target}")))
        }
        TreeCall::Remove => key("from").and(key("target")).and_then(|target| {
            if live.targets.answers(&target) {
                return Err(format!("{target} answers here"));
            }
            gone(&live, &target).map(|()| format!("Removed {target}"))
        }),
        TreeCall::Period => period(&live, &params, key("target").ok()),
    };
    match done {
        Ok(operation) => reply::done(&operation),
        Err(why) => reply::refused(&why),
    }
}

/// A child goes: what it counted last is counted first.
async fn left(live: &ProxyLive, key: &str) -> Result<(), String> {
    let was_polled = live.targets.leave(key).await;
    match live.tree.remove(key) || was_polled {
        true => Ok(()),
        false => Err(unknown(key)),
    }
}

/// A child is no child any more.
fn gone(live: &ProxyLive, key: &str) -> Result<(), String> {
    let (stood, was_polled) = (live.tree.remove(key), live.targets.remove(key));
    match stood || was_polled {
        true => Ok(()),
        false => Err(unknown(key)),
    }
}

fn unknown(key: &str) -> String {
    format!("{key} is not known here")
}

/// The period of one target, or of all; without a number it is told.
fn period(live: &ProxyLive, params: &crate::http::Params, target: Option<String>) -> Result<String, String> {
    let Some(text) = params.get("period") else { return Ok(live.options.period.as_millis().to_string()) };
    let period = text.parse().map(Duration::from_millis);
    let period = period.map_err(|_| format!("'{text}' is no period; expected milliseconds, such as 500"))?;
    match live.targets.set_period(target.as_deref(), period) {
        true => Ok(format!("period {text}")),
        false => Err("nothing is polled here".to_owned()),
    }
}
