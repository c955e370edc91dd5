//! Checks periodically which nodes have fallen silent, and whether such a node still answers queries.

use std::time::Duration;

use futures::future::join_all;
use telem_query::Queries;

use super::NodeRoster;

/// How often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Looks until it is dropped.
pub async fn watch(nodes: NodeRoster, queries: Queries) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let overdue = nodes.overdue();
        for (node, silent) in &overdue {
            tracing::warn!(node, silent_seconds = silent.as_secs_f64(), "a node has fallen silent");
        }
        // One that does not answer is not asked any more, so that questions need not wait for it.
        join_all(overdue.iter().map(|(node, _)| queries.suspect(node))).await;
    }
}
