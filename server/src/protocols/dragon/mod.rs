//! What programs and dashboards that were made for Dragon Telemetry talk to: [`node`] is the server that Dragon runs on
//! every node, on a port of its own.

pub mod config;
pub mod node;

use std::sync::Arc;

use self::node::{DragonOptions, NodeServer};
use crate::protocol::{OwnListener, Protocol};
use crate::state::State;

/// Dragon Telemetry, as far as others speak to it.
#[derive(Debug)]
pub struct Dragon {
    state: Arc<State>,
    /// `None`: its node server is not wanted.
    node: Option<DragonOptions>,
}

impl Dragon {
    pub fn new(state: Arc<State>, node: Option<DragonOptions>) -> Self {
        Self { state, node }
    }
}

impl Protocol for Dragon {
    fn listeners(self: Arc<Self>) -> Vec<OwnListener> {
        let Some(options) = &self.node else { return Vec::new() };
        Arc::new(NodeServer::new(Arc::clone(&self.state))).listeners(&options.port)
    }
}
