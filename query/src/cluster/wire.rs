//! How a leaf crosses the network: as JSON within the plan's protobuf, read by the same version of telem.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::{exec_datafusion_err, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};

use crate::leaf::{KnownSeries, NodeLeafExec, Request};

/// What is sent: the nodes that it is for, the request, and the names and types of the answer's columns.
#[derive(Serialize, Deserialize)]
struct Leaf {
    node: String,
    partitions: usize,
    told: Option<KnownSeries>,
    request: Request,
    /// Of rows; the columns of series follow from what is asked.
    columns: Vec<String>,
}

/// Writes and reads [`NodeLeafExec`], and nothing else.
#[derive(Debug)]
pub(super) struct LeafCodec;

impl PhysicalExtensionCodec for LeafCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _task: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let unreadable = |error| exec_datafusion_err!("a leaf that cannot be read: {error}");
        let leaf: Leaf = serde_json::from_slice(bytes).map_err(unreadable)?;
        let schema = match &leaf.request {
            Request::Series(request) => request.schema(),
            Request::Rows(request) if request.columns.len() == leaf.columns.len() => {
                let named = request.columns.iter().zip(&leaf.columns);
                Arc::new(Schema::new(named.map(|(column, name)| column.field(name)).collect::<Vec<Field>>()))
            }
            Request::Rows(request) => {
                let (found, expected) = (leaf.columns.len(), request.columns.len());
                return Err(exec_datafusion_err!("a leaf of {expected} columns names {found}"));
            }
        };
        let made = NodeLeafExec::new(leaf.node, leaf.request, schema).with_partitions(leaf.partitions);
        Ok(Arc::new(made.with_told(leaf.told)))
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        out: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> datafusion::error::Result<()> {
        let Some(leaf) = plan.downcast_ref::<NodeLeafExec>() else {
            return internal_err!("{} cannot be sent to a node", plan.name());
        };
        let leaf = Leaf {
            node: leaf.node().to_owned(),
            partitions: plan.properties().partitioning.partition_count(),
            told: leaf.told(),
            columns: match leaf.request() {
                Request::Rows(_) => plan.schema().fields().iter().map(|field| field.name().clone()).collect(),
                Request::Series(_) => Vec::new(),
            },
            request: leaf.request().clone(),
        };
        serde_json::to_writer(out, &leaf).map_err(|error| exec_datafusion_err!("a leaf that cannot be sent: {error}"))
    }
}

#[cfg(test)]
mod tests;
