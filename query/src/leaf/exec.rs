//! The leaf as a DataFusion plan node.
//!
//! A leaf for several nodes is not executed itself. Instead its variants are, each by its node
//! ([`NodeLeafExec::pinned`]).
//!
//! The engine blocks, and DataFusion must not. So a blocking thread answers the request. It fills a channel of
//! [`CHANNEL_BATCHES`] and stops when a send finds no receiver. A query that itself runs on a thread that may block has
//! its leaf read there ([`LeafThread`]).

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use telem_engine::SeriesId;
use url::Url;

use super::{KnownSeries, LeafContext, LeafThread, Part, Request, RowsRequest, Stop, stopped};
use crate::error::crossing::Crossing;
use crate::operator::rebuilt;

/// Batches that a leaf makes ahead of the reader.
const CHANNEL_BATCHES: usize = 2;

/// A node to ask, as a plan names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub node: Arc<str>,
    pub url: Url,
    /// The series that it need not name.
    pub told: Option<KnownSeries>,
}

/// Asks `node` for `request` and yields its answer, which has exactly the schema given.
#[derive(Clone, Debug)]
pub struct NodeLeafExec {
    node: String,
    /// Where that node is, of a leaf that was made for several.
    url: Option<Url>,
    /// All nodes of a leaf that is not pinned yet.
    owners: Arc<[Owner]>,
    /// The series of that node that the head knows by number.
    told: Option<KnownSeries>,
    /// Those that the head selected, of a leaf that is executed where it was made.
    selected: Option<Arc<[SeriesId]>>,
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
        let properties = properties.with_scheduling_type(SchedulingType::Cooperative);
        let (url, owners, told) = (None, Arc::from([]), None);
        Self {
            node,
            url,
            owners,
            told,
            selected: None,
            request,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same leaf, for a head that knows these series by number.
    #[must_use]
    pub fn with_told(mut self, told: Option<KnownSeries>) -> Self {
        self.told = told;
        self
    }

    /// The same leaf, made where it will be executed by a head that has selected these series already.
    #[must_use]
    pub fn with_selected(mut self, selected: &[SeriesId]) -> Self {
        self.selected = Some(Arc::from(selected));
        self
    }

    /// The same leaf, asked of all these nodes.
    #[must_use]
    pub fn over(mut self, owners: Vec<Owner>) -> Self {
        self.owners = owners.into();
        self
    }

    /// One leaf for each node that is asked; `None` for a leaf of one node.
    pub fn pinned(&self) -> Option<Vec<Arc<dyn ExecutionPlan>>> {
        let pin = |owner: &Owner| {
            let pinned = Self {
                node: owner.node.to_string(),
                url: Some(owner.url.clone()),
                told: owner.told,
                owners: Arc::from([]),
                metrics: ExecutionPlanMetricsSet::new(),
                ..self.clone()
            };
            Arc::new(pinned) as Arc<dyn ExecutionPlan>
        };
        (!self.owners.is_empty()).then(|| self.owners.iter().map(pin).collect())
    }

    /// Where the node is that this leaf is pinned to.
    pub fn url(&self) -> Option<&Url> {
        self.url.as_ref()
    }

    /// The same leaf, answered in `count` parts at once. With two or more, DataFusion splits the
    /// aggregates above it into partial and final ones.
    #[must_use]
    pub fn with_partitions(mut self, count: usize) -> Self {
        let properties = PlanProperties::clone(&self.properties);
        self.properties = Arc::new(properties.with_partitioning(Partitioning::UnknownPartitioning(count.max(1))));
        self
    }

    /// The same leaf, where it is known that the rows of each part come in this order.
    #[must_use]
    pub fn with_order(mut self, order: LexOrdering) -> Self {
        let properties = PlanProperties::clone(&self.properties);
        let order = EquivalenceProperties::new_with_orderings(self.schema(), [order]);
        self.properties = Arc::new(properties.with_eq_properties(order));
        self
    }

    /// The same leaf with the columns of a projection that is made of its columns and of single tags out of its map of
    /// tags: the leaf looks up a tag once a series, and the projection would do so in each row.
    fn projected(&self, projection: &ProjectionExec) -> Option<Self> {
        let Request::Rows(request) = &self.request else { return None };
        if self.properties.output_ordering().is_some() {
            return None;
        }
        let columns =
            projection.expr().iter().map(|wanted| request.column(&*wanted.expr)).collect::<Option<Vec<_>>>()?;
        let request = Request::Rows(RowsRequest { columns, ..request.clone() });
        let partitions = self.properties.partitioning.partition_count();
        let leaf = Self::new(self.node.clone(), request, projection.schema());
        let Self { url, owners, told, .. } = self.clone();
        Some(Self { url, owners, told, ..leaf }.with_partitions(partitions))
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn told(&self) -> Option<KnownSeries> {
        self.told
    }

    pub fn request(&self) -> &Request {
        &self.request
    }
}

impl DisplayAs for NodeLeafExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeLeafExec: {}: {}", self.request.name(), self.request)?;
        match (&self.url, self.owners.len()) {
            (Some(_), _) => write!(f, ", on {}", self.node),
            (None, 0) => Ok(()),
            (None, nodes) => write!(f, ", on {nodes} nodes"),
        }
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

    rebuilt!(|leaf, _children| Ok(leaf));

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(self.projected(projection).map(|leaf| Arc::new(leaf) as _))
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if !self.owners.is_empty() {
            return internal_err!("a leaf over {} nodes is executed as if it were one", self.owners.len());
        }
        let Some(context) = task.session_config().get_extension::<LeafContext>() else {
            return internal_err!("a leaf for node {} is executed where there is no snapshot", self.node);
        };
        if context.snapshot.node() != self.node {
            // The addresses of two nodes got mixed up: never the samples of one as those of the other.
            let node = context.snapshot.node();
            return Err(Crossing::unable(node, format!("it calls itself {node}, not {}", self.node)).into());
        }
        let part = Part { index: partition, count: self.properties.partitioning.partition_count() };
        let (request, schema) = (self.request.clone(), self.schema());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        // Another leaf of the query may go on when this one is not waited for any more.
        let stop = context.stop.of_its_own();
        let (told, selected) = (self.told, self.selected.clone());
        let context = LeafContext { stop: stop.clone(), told, selected, ..LeafContext::clone(&context) };
        let stopped_when_dropped = StopLeafWhenDropped(stop);
        // Started by the first poll, not here: a leaf that waits for its turn (the probe side of
        // a join) must not hold a blocking thread that another leaf needs in order to finish.
        let answer = futures::stream::once(async move {
            if context.thread == LeafThread::OfTheQuery && part == Part::WHOLE {
                let batches = futures::stream::iter(read(&request, &context, &schema, part));
                return Box::pin(RecordBatchStreamAdapter::new(schema, batches)) as SendableRecordBatchStream;
            }
            let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&schema), CHANNEL_BATCHES);
            let batches = builder.tx();
            builder.spawn_blocking(move || {
                for batch in read(&request, &context, &schema, part) {
                    if batches.blocking_send(batch).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            builder.build()
        });
        let counted = answer.flatten().map(move |batch| {
            let _held = &stopped_when_dropped;
            batch.inspect(|batch| metrics.record_output(batch.num_rows()))
        });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), counted))))
    }
}

/// The answer of one part, on this thread, up to the first error.
pub(super) fn read(
    request: &Request,
    context: &LeafContext,
    schema: &SchemaRef,
    part: Part,
) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
    let (counted, stop) = (context.reading.begin(), context.stop.clone());
    let mut batches = request.batches(context, schema, part);
    let mut ended = false;
    std::iter::from_fn(move || {
        let _counted = &counted;
        if ended {
            return None;
        }
        let mut batch = None;
        while !stop.is_asked() {
            batch = batches.next();
            // Of many samples that were read none may be wanted.
            if !matches!(&batch, Some(Ok(batch)) if batch.num_rows() == 0) {
                break;
            }
        }
        ended = !matches!(batch, Some(Ok(_)));
        // Never a quiet end: the request itself may have stopped, and what was handed out so far is not the answer.
        if batch.is_none() && stop.is_asked() {
            return Some(Err(stopped()));
        }
        batch
    })
}

/// The work for a stream without a reader ends, wherever it was.
struct StopLeafWhenDropped(Stop);

impl Drop for StopLeafWhenDropped {
    fn drop(&mut self) {
        self.0.ask();
    }
}
