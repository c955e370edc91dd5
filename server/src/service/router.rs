//! Maps paths to handlers: the only file that lists protocols, beside the routes between nodes.
//!
//! The router knows no connections and checks no rights: the net module does that before a request comes here.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use crate::http::ApiError;
use crate::net::Services;
use crate::protocol::{Language, OwnListener, Protocol};
use crate::protocols::client::{ClientLimits, ClientProtocol};
use crate::protocols::dragon::Dragon;
use crate::protocols::dragon::node::DragonOptions;
use crate::protocols::influx::Influx;
use crate::protocols::info::InfoApi;
use crate::protocols::job::JobApi;
use crate::protocols::opentsdb::{OpenTsdb, TelnetLimits};
use crate::protocols::page::PageApi;
use crate::protocols::proxy::{MetricProxy, ProxyOptions};
use crate::protocols::sql::SqlApi;
use crate::state::State;

/// What protocols are told that is theirs alone.
#[derive(Clone, Debug, Default)]
pub struct ProtocolOptions {
    pub telnet: TelnetLimits,
    pub client: ClientLimits,
    /// Dragon's node server, where it is wanted.
    pub dragon: Option<DragonOptions>,
    pub proxy: ProxyOptions,
}

/// Every protocol, a line each.
fn protocols(state: &Arc<State>, options: &ProtocolOptions) -> Vec<Arc<dyn Protocol>> {
    let state = || Arc::clone(state);
    let opentsdb = Arc::new(OpenTsdb::new(state(), options.telnet.clone()));
    let proxy = Arc::new(MetricProxy::new(state(), options.proxy.clone()));
    let holders: Vec<Arc<dyn Protocol>> = vec![Arc::<MetricProxy>::clone(&proxy)];
    vec![
        Arc::new(ClientProtocol::new(state(), options.client.clone())),
        Arc::new(Dragon::new(state(), Arc::clone(&opentsdb), options.dragon.clone())),
        Arc::new(Influx::new(state())),
        Arc::new(InfoApi::new(state(), holders)),
        Arc::new(JobApi::new(state())),
        proxy,
        opentsdb,
        Arc::new(PageApi::new(state())),
        Arc::new(SqlApi::new(state())),
    ]
}

/// Every path of the protocols and those of the process, `own`: what nodes say to each other. Beside them, who talks to
/// clients that speak in lines, and ports of protocols' own.
pub fn services(state: &Arc<State>, options: &ProtocolOptions, own: Router) -> Services {
    let protocols = protocols(state, options);
    let mut paths = own;
    for protocol in &protocols {
        paths = paths.merge(Arc::clone(protocol).routes());
    }
    let paths = paths.route(REMOTE_WRITE, any(no_remote_write)).fallback(unknown_path);
    let http = layered(paths.method_not_allowed_fallback(unknown_method));
    Services {
        http,
        lines: protocols.iter().find_map(|protocol| Arc::clone(protocol).lines()),
        frames: protocols.iter().find_map(|protocol| Arc::clone(protocol).frames()),
        values: protocols.iter().find_map(|protocol| Arc::clone(protocol).values()),
        work: protocols.iter().filter_map(|protocol| Arc::clone(protocol).work()).collect(),
        farewells: protocols.iter().filter_map(|protocol| Arc::clone(protocol).farewell()).collect(),
        closings: protocols.iter().filter_map(|protocol| Arc::clone(protocol).close()).collect(),
        listeners: protocols.into_iter().flat_map(Protocol::listeners).map(with_layers).collect(),
    }
}

/// What is true of every path: a handler that panics costs its request alone, and who asks for gzip gets it.
fn layered(paths: Router) -> Router {
    paths.layer(CatchPanicLayer::custom(panicked)).layer(CompressionLayer::new())
}

/// The same of a port of a protocol's own.
fn with_layers(listener: OwnListener) -> OwnListener {
    let language = match listener.language {
        Language::Http(router) => Language::Http(layered(router)),
        other => other,
    };
    OwnListener { language, ..listener }
}

/// Where Prometheus and its agent write to what stores their samples. OpenTSDB's API, whose path it is, has no words for it.
const REMOTE_WRITE: &str = "/api/v1/write";

async fn no_remote_write() -> ApiError {
    let what = "telem takes no remote write of Prometheus: it polls exporters itself (/join?to=HOST:PORT, or `telem proxy \
                -s HOST:PORT`), and takes line protocol (POST /write) and OpenTSDB's put (POST /api/put)";
    ApiError::new(StatusCode::NOT_FOUND, what)
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("nothing is served at '{}'", uri.path()))
}

async fn unknown_method(request: Request) -> ApiError {
    let (path, method) = (request.uri().path(), request.method());
    let what = format!("'{path}' does not answer to {method}; the header Allow says to what");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what)
}

/// A handler that panics costs its request an answer 500, never the server.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    tracing::error!(panic = text, "a request handler panicked");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("bug in telem: {text}")).into_response()
}
