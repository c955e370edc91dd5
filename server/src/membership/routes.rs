//! The requests of nodes to their head, and the list of nodes, which every process has.
//!
//! A node that wants to join shows the token, even on loopback: not all processes of a user belong to one job.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use telem_engine::{Clock, ErrorKind};
use telem_query::Queries;
use telem_query::cluster::{WORKER_PATH, WorkerService};

use super::NodeRoster;
use super::messages::{self, JoinRequest, Listed, NodeReport};
use super::own::OwnNode;
use super::registry::NodeRefusal;
use crate::http::ApiError;
use crate::http::body::{self, BodyLimits};
use crate::net::access;
use crate::token::Token;

/// Longest reason of another process that is told, in characters.
const WHY_CHARS_MAX: usize = 200;

/// What the requests need.
#[derive(Clone, Debug)]
pub struct Membership {
    pub own: OwnNode,
    /// `None` if this is not a head.
    pub nodes: Option<NodeRoster>,
    pub queries: Queries,
    pub clock: Arc<dyn Clock>,
    pub token: Token,
    pub limits: BodyLimits,
}

/// The list of nodes; at a head also what nodes ask of it.
pub fn routes(membership: Membership) -> Router {
    let list = Router::new().route(messages::LIST, get(list));
    let token = membership.token.clone();
    let joining = Router::new()
        .route(messages::JOIN, post(join))
        .route(messages::REPORT, post(report))
        .route(messages::LEAVE, post(leave))
        .layer(middleware::from_fn_with_state(token, needs_token));
    let is_head = membership.nodes.is_some();
    let routes = if is_head { list.merge(joining) } else { list };
    routes.with_state(Arc::new(membership))
}

/// What answers heads and other nodes about our own database.
pub fn worker(service: WorkerService, token: Token) -> Router {
    let worker = Router::new().route_service(&format!("{WORKER_PATH}/{{*method}}"), service);
    worker.layer(middleware::from_fn_with_state(token, needs_token))
}

/// Refuses every request without the token, wherever it comes from.
pub async fn needs_token(Of(token): Of<Token>, request: Request, next: Next) -> Response {
    if access::shows(request.headers(), &token) {
        return next.run(request).await;
    }
    if request.headers().contains_key(header::AUTHORIZATION) {
        tracing::warn!(path = request.uri().path(), "a node with a wrong token was refused");
    }
    let what =
        "nodes of a job need its token; an agent has it from the join file of its head (`telem node --join FILE`)";
    ApiError::new(StatusCode::UNAUTHORIZED, what).into_response()
}

async fn join(Of(membership): Of<Arc<Membership>>, request: Request) -> Result<Response, ApiError> {
    let nodes = head(&membership)?;
    let request: JoinRequest = read(request, &membership.limits).await?;
    let joined = nodes.join(&request)?;
    if let Some((port, why)) = &request.dragon_moved {
        // It was written by another process.
        let why: String = why.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
        tracing::warn!("on {} Dragon's port {port} {why}; DRAGON_TELEMETRY_CONFIG tells programs there", joined.node);
    }
    Ok(json(&joined))
}

async fn report(Of(membership): Of<Arc<Membership>>, request: Request) -> Result<Response, ApiError> {
    let nodes = head(&membership)?;
    let report: NodeReport = read(request, &membership.limits).await?;
    if report.known.is_none() {
        return Ok(json(&nodes.report(report)?));
    }
    let nodes = nodes.clone();
    let reported = tokio::task::spawn_blocking(move || nodes.report(report)).await;
    let reported =
        reported.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))?;
    Ok(json(&reported?))
}

async fn leave(Of(membership): Of<Arc<Membership>>, request: Request) -> Result<Response, ApiError> {
    let nodes = head(&membership)?;
    nodes.leave(&read(request, &membership.limits).await?)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list(Of(membership): Of<Arc<Membership>>) -> Result<Response, ApiError> {
    let own = Arc::clone(&membership);
    // Waits for a lock that the writer holds while it appends.
    let own = tokio::task::spawn_blocking(move || own.own.listed(&own.queries, &*own.clock)).await;
    let own = own.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))?;
    let others = membership.nodes.as_ref().map(NodeRoster::list).unwrap_or_default();
    let all: Vec<Listed> = std::iter::once(own).chain(others).collect();
    Ok(json(&all))
}

fn head(membership: &Membership) -> Result<&NodeRoster, ApiError> {
    let none = || ApiError::new(StatusCode::NOT_FOUND, "this process is not the head of a job");
    membership.nodes.as_ref().ok_or_else(none)
}

async fn read<T: DeserializeOwned>(request: Request, limits: &BodyLimits) -> Result<T, ApiError> {
    let body = body::read(request, limits).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let what = format!("the node says what this head does not understand ({error}); are they of one version?");
        ApiError::new(StatusCode::BAD_REQUEST, what)
    })
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response(),
        Err(error) => ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {error}")).into_response(),
    }
}

impl From<NodeRefusal> for ApiError {
    fn from(refusal: NodeRefusal) -> Self {
        let status = match &refusal {
            NodeRefusal::Version { .. } | NodeRefusal::Job { .. } | NodeRefusal::Taken { .. } => StatusCode::CONFLICT,
            NodeRefusal::Name(_) | NodeRefusal::Url { .. } => StatusCode::BAD_REQUEST,
            NodeRefusal::Full { .. } => StatusCode::SERVICE_UNAVAILABLE,
            NodeRefusal::Unknown => StatusCode::NOT_FOUND,
        };
        ApiError::new(status, refusal.to_string())
    }
}
