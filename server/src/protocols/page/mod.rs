//! The built-in page: its shell at `/` (see [`crate::page`]), what it starts from at `GET /api/page` ([`start`]), and its
//! panels at `POST /api/panels` ([`panels`]).

pub(crate) mod nodes;
pub(crate) mod panels;
pub(crate) mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use telem_engine::Timestamp;

use crate::page::PageShell;
use crate::protocol::Protocol;
use crate::state::State;

/// What the page is served with.
#[derive(Debug)]
pub struct PageApi {
    state: Arc<State>,
    shell: Arc<PageShell>,
}

impl PageApi {
    pub fn new(state: Arc<State>) -> Self {
        Self { state, shell: Arc::default() }
    }
}

impl Protocol for PageApi {
    fn routes(self: Arc<Self>) -> Router {
        let api = Router::new().route("/api/page", get(start::start)).route("/api/panels", post(panels::panels));
        let api = api.with_state(Arc::clone(&self.state));
        api.merge(Arc::clone(&self.shell).routes())
    }
}

/// With a fraction where it is not whole.
fn millis(time: Timestamp) -> f64 {
    time.micros() as f64 / 1e3
}
