//! How what is counted is told apart: the ids of sums, and the tags of the samples of lanes, jobs and targets.

use std::sync::Arc;

use telem_ingest::counters::LaneTags;
use telem_ingest::default_tags::DefaultTags;

/// The id of everything.
pub const MAIN: &str = "main";
/// What the ids of nodes begin with.
pub const NODE: &str = "Node: ";
/// The tag of jobs where a database has samples of one job alone.
pub const JOB_TAG: &str = "proxy.job";
/// The tag that tells what belongs to no job from the samples of jobs.
pub const LANE_TAG: &str = "proxy.lane";
/// Its value for what came by HTTP, and for what clients without a job sent.
pub const HTTP_LANE: &str = "http";
pub const JOBLESS_LANE: &str = "jobless";
/// And for all that a child counts, and what an exporter shows; [`TARGET_TAG`] says which.
pub const CHILD_LANE: &str = "child";
pub const EXPORTER_LANE: &str = "exporter";
/// The tag of what came from a target that is polled: its host and port.
pub const TARGET_TAG: &str = "proxy.target";
/// What stands before the metrics in which a head stores what its nodes count: they store the same themselves, and
/// questions cover all nodes.
pub const NODES_PREFIX: &str = "proxy.node.";

/// Whether an id is that of a sum, which is no job.
pub fn is_sum(id: &str) -> bool {
    id == MAIN || id.starts_with(NODE)
}

/// Whether a target is a node of our own job: others have a port.
pub fn is_node(target: &str) -> bool {
    !target.contains(':')
}

/// What stands before the metrics of what a target counts.
pub fn prefix_of(target: &str) -> &'static str {
    if is_node(target) { NODES_PREFIX } else { "" }
}

/// The tags of what a node counts without a job.
pub fn jobless_tags(node: &Arc<str>, lane: &str) -> LaneTags {
    let default = DefaultTags::of_process(Arc::clone(node), None);
    LaneTags { default, more: vec![(LANE_TAG.into(), lane.into())], prefix: "" }
}

/// The tags of what a node counts for a job, which is `named` where no slot tells it from others.
pub fn job_tags(node: Arc<str>, slot: Option<u32>, named: Option<&str>) -> LaneTags {
    let default = DefaultTags::of_process(node, None).in_slot(slot);
    let more = named.map(|id| (JOB_TAG.into(), id.escape_debug().to_string().into())).into_iter().collect();
    LaneTags { default, more, prefix: "" }
}

/// The tags of what another server of a node counted for a job.
pub fn imported_tags(node: &str, id: &str, slot: Option<u32>) -> LaneTags {
    // No tag has an empty value: such a job is none.
    job_tags(node.into(), slot, Some(id).filter(|id| !id.is_empty()))
}
