//! What one query sees: a snapshot of our own database, and the other nodes.
//!
//! Without other nodes everything here is the snapshot's. The planner asks the view which names exist and which nodes a
//! request concerns. The code that executes has only a snapshot ([`crate::leaf::LeafContext`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use telem_engine::{SeriesId, SeriesIndex, SeriesKey, Snapshot};

use crate::answer::MissingNode;
use crate::cluster::head::{ExecutablePlan, Head};
use crate::cluster::lost::Attempt;
use crate::error::{Error, Result};
use crate::leaf::{KnownSeries, NodeLeafExec, Owner, Request, numbers};
use crate::question::TsQuery;
use crate::selection;

#[derive(Clone, Debug)]
pub struct View {
    pub snapshot: Snapshot,
    others: Option<OtherNodes>,
}

#[derive(Clone, Debug)]
struct OtherNodes {
    head: Arc<Head>,
    asked: Arc<Mutex<NodeFindings>>,
}

/// What plans of this question found out about the nodes that they ask.
#[derive(Debug, Default)]
struct NodeFindings {
    /// Nodes that a plan would have asked, and why it does not.
    missing: BTreeMap<Arc<str>, String>,
    /// The series that the numbers of each node mean, whatever the node tells from now on.
    numbers: BTreeMap<Arc<str>, Arc<Vec<SeriesId>>>,
}

impl View {
    /// Of one database.
    pub fn alone(snapshot: Snapshot) -> Self {
        Self { snapshot, others: None }
    }

    /// Of our own database and of those of others.
    pub(crate) fn over(snapshot: Snapshot, head: Arc<Head>) -> Self {
        Self { snapshot, others: Some(OtherNodes { head, asked: Arc::default() }) }
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

    /// Whether other nodes take part besides our own database.
    pub fn has_others(&self) -> bool {
        self.others.is_some()
    }

    /// Whether our own database is all that there is to be asked.
    pub fn is_alone(&self) -> bool {
        self.others.as_ref().is_none_or(|others| others.head.members().is_empty())
    }

    /// The series that `query` asks for, in canonical order: of several nodes as far as they told of them.
    pub(crate) fn select(&self, query: &TsQuery) -> Vec<SeriesId> {
        match &self.others {
            Some(_) => selection::select_named(query, self.index()),
            None => selection::select(query, &self.snapshot),
        }
    }

    /// Those of `series` that are on several nodes.
    pub fn on_several(&self, series: &[SeriesId]) -> Vec<SeriesId> {
        self.others.as_ref().map_or_else(Vec::new, |others| others.head.members().on_several(series))
    }

    /// A series of `node`, whether or not it was reported.
    pub(crate) fn find(&self, node: &str, key: &SeriesKey) {
        if let Some(others) = &self.others {
            others.head.members().find(node, key);
        }
    }

    /// A leaf for the nodes that it concerns: the owners of `series` (all, where that is `None`) among the nodes that
    /// pass. Nodes that cannot be asked are missing from then on.
    pub(crate) fn leaf(
        &self,
        request: Request,
        schema: SchemaRef,
        series: Option<&[SeriesId]>,
        passes: &dyn Fn(&str) -> bool,
    ) -> NodeLeafExec {
        let leaf = NodeLeafExec::new(self.snapshot.node().to_owned(), request, schema);
        let Some(others) = &self.others else {
            let leaf = leaf.with_told(Some(KnownSeries::of(self.index())));
            return if let Some(series) = series { leaf.with_selected(series) } else { leaf };
        };
        let concerned = others.head.members().concerned(series, passes);
        let mut asked = others.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.missing.extend(concerned.missing);
        asked.numbers.extend(concerned.numbers);
        drop(asked);
        if concerned.owners.is_empty() {
            return leaf;
        }
        // Our own database is asked in any case: that costs nothing, and a boundary needs two ends.
        let ours = Owner { node: Arc::from(self.snapshot.node()), url: others.head.ours().clone(), told: None };
        leaf.over(std::iter::once(ours).chain(concerned.owners).collect())
    }

    /// The series that a node gave the numbers of, as the index calls them; `None` for a name of a series.
    ///
    /// # Errors
    /// Internal, when no such numbers were reported.
    pub(crate) fn numbered(&self, word: &str) -> Result<Option<Vec<SeriesId>>> {
        let Some((node, runs)) = numbers::decode(word) else { return Ok(None) };
        let untold =
            || Error::Internal(format!("node {node} gives numbers of series that it did not tell the names of"));
        let Some(others) = &self.others else {
            let known = self.index().len();
            let ours = node == self.snapshot.node() && runs.iter().all(|run| (*run.end() as usize) < known);
            return if ours { Ok(Some(runs.into_iter().flatten().map(SeriesId).collect())) } else { Err(untold()) };
        };
        let asked = others.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = Arc::clone(asked.numbers.get(node).ok_or_else(untold)?);
        drop(asked);
        let mut series = Vec::new();
        for run in runs {
            let (first, last) = (*run.start() as usize, *run.end() as usize);
            series.extend(numbers.get(first..=last).ok_or_else(untold)?);
        }
        Ok(Some(series))
    }

    /// The plan as it can be executed.
    ///
    /// # Errors
    /// When the plan cannot be cut into stages.
    pub(crate) async fn distribute(&self, plan: Arc<dyn ExecutionPlan>) -> datafusion::error::Result<ExecutablePlan> {
        match &self.others {
            Some(others) => others.head.distribute(plan).await,
            None => Ok(ExecutablePlan::here(plan)),
        }
    }

    /// Executes the plan, on nodes when it is its turn.
    ///
    /// # Errors
    /// Busy; when the plan cannot be cut into stages.
    pub(crate) async fn execute(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let planned = self.distribute(plan).await?;
        let turn = match (&self.others, task.session_config().get_extension::<Attempt>()) {
            (Some(others), Some(attempt)) if planned.is_distributed() => {
                Some(others.head.turn(planned.tasks, &attempt).await?)
            }
            _ => None,
        };
        let rows = execute_stream(planned.plan, task)?;
        Ok(match turn {
            Some(turn) => turn.of(rows),
            None => rows,
        })
    }

    /// The nodes that plans would have asked.
    pub(crate) fn missing(&self) -> Vec<MissingNode> {
        let Some(others) = &self.others else { return Vec::new() };
        let asked = others.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked
            .missing
            .iter()
            .map(|(node, reason)| MissingNode { node: node.to_string(), reason: reason.clone() })
            .collect()
    }
}
