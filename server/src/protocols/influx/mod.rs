//! What senders of InfluxDB's line protocol speak: `POST /write` (InfluxDB 1.x), `POST /api/v2/write` (2.x),
//! `POST /api/v3/write_lp` (3), and what they ask before they send. Telegraf, InfluxDB's client libraries and
//! `influx -import` need no more.
//!
//! Databases, buckets, organisations and retention policies are taken and mean nothing: there is one database here.

mod answer;
mod greet;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

use crate::state::State;

pub fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/write", post(write::v1))
        .route("/api/v2/write", post(write::v2))
        .route("/api/v3/write_lp", post(write::v3))
        .route("/api/v3/{*rest}", any(greet::not_of_v3))
        .route("/ping", get(greet::ping).post(greet::ping))
        .route("/health", get(greet::health))
        .route("/query", get(greet::query).post(greet::query))
}
