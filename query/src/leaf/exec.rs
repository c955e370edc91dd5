//! The leaf as a DataFusion plan node.
//!
//! The engine blocks, DataFusion must not: the request is answered on a blocking thread that
//! fills a channel of [`CHANNEL_BATCHES`] and stops at the first send that nobody receives.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

use super::{LeafContext, Part, Request};

/// Batches that a leaf makes ahead of who reads them.
const CHANNEL_BATCHES: usize = 2;

/// Asks `node` for `request` and yields its answer, which has exactly the schema given.
#[derive(Debug)]
pub struct NodeLeafExec {
    node: String,
    request: Request,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl NodeLeafExec {
    /// A leaf of one partition.
    pub fn new(node: String, request: Request, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { node, request, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The same leaf, answered in `count` parts at once. With two or more, DataFusion splits the
    /// aggregates above it into partial and final ones.
    #[must_use]
    pub fn with_partitions(mut self, count: usize) -> Self {
        let properties = PlanProperties::clone(&self.properties);
        self.properties = Arc::new(properties.with_partitioning(Partitioning::UnknownPartitioning(count.max(1))));
        self
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn request(&self) -> &Request {
        &self.request
    }
}

impl DisplayAs for NodeLeafExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeLeafExec: {}: {}", self.request.name(), self.request)
    }
}

impl ExecutionPlan for NodeLeafExec {
    fn name(&self) -> &str {
        "NodeLeafExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(context) = task.session_config().get_extension::<LeafContext>() else {
            return internal_err!("a leaf for node {} is executed where there is no snapshot", self.node);
        };
        if context.snapshot.node() != self.node {
            return internal_err!("a leaf for node {} is executed on node {}", self.node, context.snapshot.node());
        }
        let part = Part { index: partition, count: self.properties.partitioning.partition_count() };
        let (request, schema) = (self.request.clone(), self.schema());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        // Started by the first poll, not here: a leaf that waits for its turn (the probe side of
        // a join) must not hold a blocking thread that another leaf needs in order to finish.
        let answer = futures::stream::once(async move {
            let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&schema), CHANNEL_BATCHES);
            let batches = builder.tx();
            builder.spawn_blocking(move || {
                for batch in request.batches(&context, &schema, part) {
                    let failed = batch.is_err();
                    if batches.blocking_send(batch).is_err() || failed {
                        return Ok(());
                    }
                    if context.stop.is_asked() {
                        break;
                    }
                }
                // Never a quiet end: the request itself may have stopped, and what was sent so far is not the answer.
                if context.stop.is_asked() {
                    return exec_err!("the query was stopped");
                }
                Ok(())
            });
            builder.build()
        });
        let counted = answer.flatten().inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), counted)))
    }
}
