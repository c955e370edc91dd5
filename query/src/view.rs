//! What one question sees: a snapshot of our own database, and the nodes beside it.
//!
//! Where there are none, everything here is the snapshot's. Whoever plans asks the view which names exist and whom
//! a request concerns; whoever executes has a snapshot alone ([`crate::leaf::LeafContext`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use telem_engine::{SeriesId, SeriesIndex, SeriesKey, Snapshot};

use crate::dist::head::{Head, Planned};
use crate::dist::members::Owner;
use crate::leaf::{NodeLeafExec, Request};
use crate::run::MissingNode;

#[derive(Clone, Debug)]
pub struct View {
    pub snapshot: Snapshot,
    others: Option<Others>,
}

#[derive(Clone, Debug)]
struct Others {
    head: Arc<Head>,
    /// Nodes that a plan would have asked, and why it does not.
    missing: Arc<Mutex<BTreeMap<Arc<str>, String>>>,
}

impl View {
    /// Of one database.
    pub fn alone(snapshot: Snapshot) -> Self {
        Self { snapshot, others: None }
    }

    /// Of our own database and of those of others.
    pub(crate) fn over(snapshot: Snapshot, head: Arc<Head>) -> Self {
        Self { snapshot, others: Some(Others { head, missing: Arc::default() }) }
    }

    /// The names of all series.
    pub fn index(&self) -> &Arc<SeriesIndex> {
        match &self.others {
            Some(others) => others.head.members().index(),
            None => self.snapshot.index(),
        }
    }

    /// How many nodes there are, our own included.
    pub fn nodes(&self) -> usize {
        1 + self.others.as_ref().map_or(0, |others| others.head.members().len())
    }

    /// Whether anybody but our own database is asked.
    pub fn has_others(&self) -> bool {
        self.others.is_some()
    }

    /// Those of `series` that stand on several nodes.
    pub fn on_several(&self, series: &[SeriesId]) -> Vec<SeriesId> {
        self.others.as_ref().map_or_else(Vec::new, |others| others.head.members().on_several(series))
    }

    /// A series that `node` has, whether or not it told of it.
    pub(crate) fn find(&self, node: &str, key: &SeriesKey) {
        if let Some(others) = &self.others {
            others.head.members().find(node, key);
        }
    }

    /// A leaf that asks whom it concerns: the owners of `series` (all, where that is `None`) among the nodes that
    /// pass. Nodes that cannot be asked are missing from then on.
    pub(crate) fn leaf(
        &self,
        request: Request,
        schema: SchemaRef,
        series: Option<&[SeriesId]>,
        passes: &dyn Fn(&str) -> bool,
    ) -> NodeLeafExec {
        let leaf = NodeLeafExec::new(self.snapshot.node().to_owned(), request, schema);
        let Some(others) = &self.others else { return leaf };
        let concerned = others.head.members().concerned(series, passes);
        let mut missing = others.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.extend(concerned.missing);
        if concerned.owners.is_empty() {
            return leaf;
        }
        // Our own database is asked in any case: that costs nothing, and a boundary needs two ends.
        let ours = Owner { node: Arc::from(self.snapshot.node()), url: others.head.ours().clone() };
        leaf.over(std::iter::once(ours).chain(concerned.owners).collect())
    }

    /// The plan as it can be executed.
    ///
    /// # Errors
    /// When the plan cannot be cut into stages.
    pub(crate) async fn distribute(&self, plan: Arc<dyn ExecutionPlan>) -> datafusion::error::Result<Planned> {
        match &self.others {
            Some(others) => others.head.distribute(plan).await,
            None => Ok(Planned { plan, distributed: false, reduced: true }),
        }
    }

    /// The nodes that plans would have asked.
    pub(crate) fn missing(&self) -> Vec<MissingNode> {
        let Some(others) = &self.others else { return Vec::new() };
        let missing = others.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.iter().map(|(node, reason)| MissingNode { node: node.to_string(), reason: reason.clone() }).collect()
    }
}
