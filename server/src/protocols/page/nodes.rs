//! The nodes that the page shows, and those that an answer lacks.

use std::collections::BTreeMap;

use serde::Serialize;
use telem_query::MissingNode;
use telem_query::cluster::NodeState;

use crate::state::State;

/// Nodes that are told at once; a search finds the others.
pub(crate) const NODES_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
pub struct PageNode {
    name: String,
    state: &'static str,
    reason: Option<String>,
}

/// A node that an answer lacks.
#[derive(Clone, Debug, Serialize)]
pub struct AbsentNode {
    pub node: String,
    pub reason: String,
}

impl From<&MissingNode> for AbsentNode {
    fn from(missing: &MissingNode) -> Self {
        Self { node: missing.node.clone(), reason: missing.reason.clone() }
    }
}

/// The nodes, how many more there are, and those that do not answer.
pub fn nodes(state: &State) -> (Vec<PageNode>, usize, Vec<AbsentNode>) {
    let mut nodes: BTreeMap<String, PageNode> = BTreeMap::new();
    let own = if state.writer.is_some() { "up" } else { "saved" };
    for name in state.db.snapshot().nodes() {
        let name = name.to_string();
        nodes.insert(name.clone(), PageNode { name, state: own, reason: None });
    }
    let mut missing: Vec<AbsentNode> = state.queries.options().absent.iter().map(AbsentNode::from).collect();
    for member in state.queries.members().map(|members| members.list()).unwrap_or_default() {
        let (name, reason) = (
            member.node.to_string(),
            match member.state {
                NodeState::Up => None,
                NodeState::Down { reason } | NodeState::Left { reason } => Some(reason),
            },
        );
        missing.extend(reason.clone().map(|reason| AbsentNode { node: name.clone(), reason }));
        let state = if reason.is_none() { "up" } else { "down" };
        nodes.insert(name.clone(), PageNode { name, state, reason });
    }
    let left_out = nodes.len().saturating_sub(NODES_MAX);
    (nodes.into_values().take(NODES_MAX).collect(), left_out, missing)
}

/// The nodes that do not answer, as far as that is known.
pub fn missing(state: &State) -> Vec<AbsentNode> {
    nodes(state).2
}
