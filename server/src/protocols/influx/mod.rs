//! The API for senders of InfluxDB's line protocol: `POST /write` (InfluxDB 1.x), `POST /api/v2/write` (2.x),
//! `POST /api/v3/write_lp` (3), and the requests that they make before. Telegraf, InfluxDB's client libraries and
//! `influx -import` need no more.
//!
//! Databases, buckets, organisations and retention policies are accepted and have no effect: there is one database
//! here.

mod answer;
mod greet;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

use crate::protocol::Protocol;
use crate::state::State;

/// InfluxDB's line protocol over HTTP.
#[derive(Debug)]
pub struct Influx {
    state: Arc<State>,
}

impl Influx {
    pub fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl Protocol for Influx {
    fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/write", post(write::v1))
            .route("/api/v2/write", post(write::v2))
            .route("/api/v3/write_lp", post(write::v3))
            .route("/api/v3/{*rest}", any(greet::not_of_v3))
            .route("/ping", get(greet::ping).post(greet::ping))
            .route("/health", get(greet::health))
            .route("/query", get(greet::query).post(greet::query))
            .with_state(Arc::clone(&self.state))
    }
}
