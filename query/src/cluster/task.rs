//! The plan of a task at a node: its errors are sent as data to the node that requested the task.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

use crate::error::crossing::Crossing;
use crate::operator::rebuilt;

/// Hands on what `plan` yields; its errors as `node` tells them ([`Crossing::told_by`]).
#[derive(Debug)]
pub(super) struct TaskExec {
    node: Arc<str>,
    plan: Arc<dyn ExecutionPlan>,
}

impl TaskExec {
    pub fn new(node: Arc<str>, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { node, plan }
    }

    fn over(&self, children: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
        let [plan] = children else { return internal_err!("a task of {} plans", children.len()) };
        Ok(Arc::new(Self::new(Arc::clone(&self.node), Arc::clone(plan))))
    }
}

impl DisplayAs for TaskExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskExec: on {}", self.node)
    }
}

impl ExecutionPlan for TaskExec {
    fn name(&self) -> &str {
        "TaskExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    rebuilt!(|task, children| task.over(&children));

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let node = Arc::clone(&self.node);
        let told = move |error| Crossing::told_by(&node, error).into();
        let batches = self.plan.execute(partition, task).map_err(&told)?;
        let schema = batches.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.map(move |batch| batch.map_err(&told)))))
    }
}
