//! `/push`, `/set` and `/accumulate`: counters of everything, without a job, by HTTP.
//!
//! They are acknowledged when they outlive this process.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::routing::any;
use serde::Deserialize;
use telem_ingest::counters::{CounterRefusal, CounterValue};
use telem_ingest::decode::proxy::CounterKind;
use telem_ingest::decode::proxy::label::group_of;

use super::keeping;
use super::live::ProxyLive;
use super::reply::{self, ProxyRequest, asked};
use crate::http::Params;

pub fn routes() -> Router<Arc<ProxyLive>> {
    let mut routes = Router::new();
    for (path, call) in [("/push", PushCall::Push), ("/set", PushCall::Set), ("/accumulate", PushCall::Accumulate)] {
        let take = any(move |live: Of<Arc<ProxyLive>>, request: Request| take(live, call, request));
        // A further segment means nothing.
        routes = routes.route(path, take.clone()).route(&format!("{path}/"), take.clone());
        routes = routes.route(&format!("{path}/{{ignored}}"), take);
    }
    routes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushCall {
    /// Declares a counter.
    Push,
    /// Gives it a value.
    Set,
    /// Adds to it.
    Accumulate,
}

#[derive(Debug, Deserialize)]
struct PushBody {
    key: String,
    value: String,
    #[serde(default)]
    doc: String,
}

/// What a call says.
#[derive(Debug)]
struct PushedCounter {
    key: String,
    doc: String,
    /// `None` where none is needed and none was sent.
    value: Option<f64>,
}

impl PushedCounter {
    fn of_params(call: PushCall, params: &Params) -> Result<Self, String> {
        let missing = |name: &str| format!("Error parsing parameters: the parameter '{name}' is missing");
        let key = params.get("key").ok_or_else(|| missing("key"))?.to_owned();
        let value = params.get("value").map(float).transpose()?;
        if call != PushCall::Push && value.is_none() {
            return Err(missing("value"));
        }
        Ok(Self { key, doc: params.get("doc").unwrap_or_default().to_owned(), value })
    }
}

fn float(text: &str) -> Result<f64, String> {
    text.parse().map_err(|error| format!("Error parsing parameters: {error}"))
}

async fn take(Of(live): Of<Arc<ProxyLive>>, call: PushCall, request: Request) -> Response {
    let told = match asked::<PushBody>(request, &live.state).await {
        Ok(ProxyRequest::Query(params)) => PushedCounter::of_params(call, &params),
        Ok(ProxyRequest::Body(PushBody { key, value, doc })) => {
            float(&value).map(|value| PushedCounter { key, doc, value: Some(value) })
        }
        Ok(ProxyRequest::Other(method)) => Err(format!("Error parsing parameters: No such request type {method}")),
        Err(why) => Err(format!("Error parsing parameters: {why}")),
    };
    let told = match told {
        Ok(told) => told,
        Err(why) => return reply::refused(&why),
    };
    if live.store.is_none() {
        return reply::failed(live.state.refusal.status(), live.state.refusal.message());
    }
    match change(&live, call, &told) {
        Ok(()) => {}
        Err(why) => return reply::refused(&why),
    }
    match live.store_lane(live.http).await {
        Ok(()) => reply::done(match call {
            PushCall::Push => "push",
            PushCall::Set => "set",
            PushCall::Accumulate => "inc",
        }),
        Err(error) => reply::failed(crate::http::status(error.kind()), &error.to_string()),
    }
}

fn change(live: &ProxyLive, call: PushCall, told: &PushedCounter) -> Result<(), String> {
    let PushedCounter { key, doc, value } = told;
    let value = value.unwrap_or(0.0);
    let known = live.table.find(live.main, key);
    let done = match (call, &known) {
        (PushCall::Push, Some(_)) => return Ok(()),
        (PushCall::Push, None) if key.contains('{') && !key.contains('}') => {
            return Err(format!("Bad metric name '{key}' unmatched brackets"));
        }
        (PushCall::Push, None) => {
            live.table
                .declare(live.http, key, doc, CounterKind::Counter, 0.0)
                .map_err(|refusal| refusal.to_string())?;
            keeping::keep_counter(live, key, doc);
            return Ok(());
        }
        (PushCall::Set | PushCall::Accumulate, None) => return Err(no_such_key(live, call, key)),
        (PushCall::Set, Some(_)) => {
            let done = live.table.replace(live.http, live.main, key, "", value);
            if done.is_ok() {
                keeping::keep_counter(live, key, "");
            }
            done
        }
        (PushCall::Accumulate, Some(reading)) => match reading.value {
            CounterValue::Counter(_) => {
                let declared = live.table.find(live.http, key).is_some();
                if !declared {
                    // Others count it already.
                    live.table
                        .declare(live.http, key, &reading.doc, CounterKind::Counter, 0.0)
                        .map_err(|refusal| refusal.to_string())?;
                    keeping::keep_counter(live, key, &reading.doc);
                }
                live.table.update(live.http, key, CounterKind::Counter, value)
            }
            CounterValue::Gauge(gauge) => {
                return Err(format!(
                    "Both instances are not of the same variant: '{key}' is a gauge of {} and {value} was to be added",
                    gauge.average()
                ));
            }
        },
    };
    done.map_err(|refusal| match refusal {
        CounterRefusal::OtherKind { name, is, .. } => {
            format!("'{name}' is a {} and cannot be set as a counter; its clients set it", is.name())
        }
        refusal => refusal.to_string(),
    })?;
    Ok(())
}

fn no_such_key(live: &ProxyLive, call: PushCall, key: &str) -> String {
    match (call, live.table.knows_group(live.main, group_of(key))) {
        (_, false) => format!("No such key {key} cannot set it"),
        (PushCall::Accumulate, true) => format!("Failed to accumulate {key}: it was not declared; /push declares it"),
        (_, true) => "Failed to set counter".to_owned(),
    }
}
