//! SQL over HTTP.

use std::sync::Arc;

use axum::Router;

use crate::state::State;

pub fn routes() -> Router<Arc<State>> {
    Router::new()
}
