//! What programs of Dragon's telemetry speak: its dashboards ask [`view`].

pub(crate) mod view;

use std::sync::Arc;

use axum::Router;

use super::opentsdb::OpenTsdb;
use crate::protocol::Protocol;

/// Dragon's protocols.
#[derive(Debug)]
pub struct Dragon {
    opentsdb: Arc<OpenTsdb>,
}

impl Dragon {
    /// Over the OpenTSDB API of the same server.
    pub fn new(opentsdb: Arc<OpenTsdb>) -> Self {
        Self { opentsdb }
    }
}

impl Protocol for Dragon {
    fn routes(self: Arc<Self>) -> Router {
        view::routes(Arc::clone(&self.opentsdb))
    }
}
