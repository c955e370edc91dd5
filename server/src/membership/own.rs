//! What a process reports about itself as one of the nodes.

use std::path::PathBuf;

use telem_engine::Clock;
use telem_query::Queries;

use super::last_error;
use super::messages::{Figures, Listed, Liveness};
use crate::config;
use crate::footprint::Footprint;
use crate::protocols::proxy::keeping;
use crate::state::VERSION;

/// This process, in the list of nodes.
#[derive(Clone, Debug)]
pub struct OwnNode {
    pub node: String,
    pub is_head: bool,
    pub url: String,
    pub data: PathBuf,
    /// When it began to serve, microseconds since 1970.
    pub since_us: i64,
}

impl OwnNode {
    /// Waits for a lock that the writer holds while it appends.
    pub fn listed(&self, queries: &Queries, clock: &dyn Clock) -> Listed {
        Listed {
            node: self.node.clone(),
            is_head: self.is_head,
            url: self.url.clone(),
            state: Liveness::Up,
            reason: None,
            since_us: self.since_us,
            reported_ms: None,
            figures: figures(queries, clock),
            version: VERSION.to_owned(),
            pid: std::process::id(),
            host: config::host_name(),
            data: self.data.clone(),
            clock_offset_us: None,
            last_error: last_error::last(),
        }
    }
}

/// Whether it counts something for clients of Metric Proxy.
pub fn has_counters(queries: &Queries) -> bool {
    keeping::is_used(queries.db())
}

/// Of the database, of its queries and of this process. Waits for a lock that the writer holds while it appends.
pub fn figures(queries: &Queries, clock: &dyn Clock) -> Figures {
    let footprint = Footprint::now();
    let mut figures = Figures {
        cpu_seconds: footprint.map_or(0.0, |footprint| footprint.cpu_seconds),
        memory_bytes: footprint.map_or(0, |footprint| footprint.memory_bytes_max),
        leaves: queries.stats().leaves,
        ..Figures::default()
    };
    if let Ok(info) = queries.db().info() {
        let age = |last: telem_engine::Timestamp| (clock.now().micros().saturating_sub(last.micros())) / 1_000;
        figures.lag_ms = info.time_bounds.map(|(_, last)| age(last));
        (figures.samples, figures.series, figures.bytes) = (info.samples, info.series, info.bytes);
    }
    figures
}
