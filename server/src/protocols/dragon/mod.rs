//! What programs and dashboards that were made for Dragon Telemetry talk to: [`node`] is the server that Dragon runs on
//! every node, on a port of its own; dashboards ask [`view`].

pub mod config;
pub mod node;
mod python_path;
pub(crate) mod view;

use std::sync::Arc;

use axum::Router;

use self::node::{DragonOptions, NodeServer};
use super::opentsdb::OpenTsdb;
use crate::protocol::{OwnListener, Protocol};
use crate::state::State;

/// Dragon Telemetry, as far as others speak to it.
#[derive(Debug)]
pub struct Dragon {
    state: Arc<State>,
    opentsdb: Arc<OpenTsdb>,
    /// `None`: its node server is not wanted.
    node: Option<DragonOptions>,
}

impl Dragon {
    /// `opentsdb` is the API of the same server, which knows how to read and answer queries.
    pub fn new(state: Arc<State>, opentsdb: Arc<OpenTsdb>, node: Option<DragonOptions>) -> Self {
        Self { state, opentsdb, node }
    }
}

impl Protocol for Dragon {
    fn routes(self: Arc<Self>) -> Router {
        view::routes(Arc::clone(&self.opentsdb))
    }

    fn listeners(self: Arc<Self>) -> Vec<OwnListener> {
        let Some(options) = &self.node else { return Vec::new() };
        Arc::new(NodeServer::new(Arc::clone(&self.state))).listeners(&options.port)
    }
}
