//! What children ask of this server as their parent: `/pivot` for a place in the [tree](super::tree), and what the
//! successor of the original tells about places. A child asks `/pivot` for its parent and then that one's `/join`; from
//! then on the parent polls.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::Response;
use axum::routing::any;

use super::live::ProxyLive;
use super::reply;
use super::targets::{LINEAGE, TargetAddress};
use super::tree::TreeEntry;
use crate::http::Params;
use crate::http::asker::{ASKED_AT, PathPrefix};

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
    for path in ["/pivot", "/pivot/", "/pivot/{ignored}"] {
        routes = routes.route(path, any(pivot));
    }
    for path in ["/topo", "/topo/", "/topo/{ignored}"] {
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
    let entries = live.tree.entries();
    let pair = |entry: &TreeEntry| {
        let parent = entry.parent.clone().unwrap_or_else(|| own.clone());
        let mut pair = vec![parent, entry.key().to_owned()];
        if entry.is_lost {
            pair.push("lost".to_owned());
        }
        pair
    };
    let mut answer = match entries.is_empty() {
        true => reply::json(&[[&own, &own]]),
        false => reply::json(&entries.iter().map(pair).collect::<Vec<_>>()),
    };
    // Who is to be polled from here learns that this is no original.
    if let Some(lineage) = live.targets.lineage().and_then(|id| id.parse().ok()) {
        answer.headers_mut().insert(LINEAGE, lineage);
    }
    answer
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
        TreeCall::Period => {
            let target = params.get("target").map(|_| key("target")).transpose();
            target.and_then(|target| period(&live, &params, target))
        }
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
fn period(live: &ProxyLive, params: &Params, target: Option<String>) -> Result<String, String> {
    let Some(text) = params.get("period") else { return Ok(live.options.period.as_millis().to_string()) };
    let period = text.parse().map(Duration::from_millis);
    let period = period.map_err(|_| format!("'{text}' is no period; expected milliseconds, such as 500"))?;
    match live.targets.set_period(target.as_deref(), period) {
        true => Ok(format!("period {text}")),
        false => Err(target.map_or_else(|| "nothing is polled here".to_owned(), |target| unknown(&target))),
    }
}
