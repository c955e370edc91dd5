//! Cuts a plan over many nodes into stages: whatever can run where the data is runs there, and the nodes' results are
//! reduced on their way up a tree.
//!
//! Everything between a leaf and the first operator that needs all rows at once runs on the leaf's node: filters,
//! projections, limits, sorts of each part, and partial aggregates. Above a partial aggregate there is a tree whose
//! fan-out is about the square root of the number of nodes. Each inner node merges the states of its group, and the
//! head gets few of them. All other results come directly to the head.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedLeafExec, NetworkCoalesceExec};

use crate::leaf::NodeLeafExec;

type PlanRef = Arc<dyn ExecutionPlan>;

/// The number of children of a node of the tree, for this many leaves: two levels, about as wide as deep. Up to
/// `flat_max` of them send straight to the head: a level of the tree costs a round trip.
pub fn fan(leaves: usize, flat_max: usize) -> usize {
    if leaves <= flat_max {
        return leaves;
    }
    leaves.isqrt() + usize::from(leaves.isqrt().pow(2) < leaves)
}

/// A plan whose leaves over many nodes are pinned, each to its node, with the boundaries of the network in it.
pub(super) struct StagedPlan {
    pub plan: PlanRef,
    /// Whether every boundary carries states of aggregates, which count wholly or not at all.
    pub reduced: bool,
    /// How many tasks run on nodes.
    pub tasks: usize,
}

pub(super) fn cut(plan: PlanRef, flat_max: usize) -> Result<StagedPlan> {
    let mut cutter = PlanCutter { flat_max, raw: 0, tasks: 0 };
    let placed = cutter.place(plan)?;
    let plan = one(cutter.close(placed)?);
    Ok(StagedPlan { plan, reduced: cutter.raw == 0, tasks: cutter.tasks })
}

struct PlanCutter {
    flat_max: usize,
    /// Boundaries that carry rows.
    raw: usize,
    tasks: usize,
}

enum Placement {
    /// Runs at the head.
    Head(PlanRef),
    /// May run on nodes, as so many tasks; with the partial aggregate on its top, if that is what it ends in.
    Nodes { plan: PlanRef, tasks: usize, partial: Option<PlanRef> },
}

impl PlanCutter {
    fn place(&mut self, plan: PlanRef) -> Result<Placement> {
        if let Some(leaf) = plan.downcast_ref::<NodeLeafExec>() {
            return Ok(match leaf.pinned() {
                Some(pinned) => {
                    let tasks = pinned.len();
                    let plan = Arc::new(DistributedLeafExec::try_new(Arc::clone(&plan), pinned)?);
                    Placement::Nodes { plan, tasks, partial: None }
                }
                None => Placement::Head(plan),
            });
        }
        let children: Vec<PlanRef> = plan.children().into_iter().map(Arc::clone).collect();
        let [child] = &children[..] else {
            let mut closed = Vec::with_capacity(children.len());
            for child in children {
                let placed = self.place(child)?;
                closed.push(self.close(placed)?);
            }
            return Ok(Placement::Head(with_children(plan, closed)?));
        };
        match self.place(Arc::clone(child))? {
            Placement::Head(child) => Ok(Placement::Head(with_children(plan, vec![child])?)),
            Placement::Nodes { plan: child, tasks, partial } => self.above(plan, child, tasks, partial),
        }
    }

    /// Where `plan` runs, whose child may run on nodes.
    fn above(&mut self, plan: PlanRef, child: PlanRef, tasks: usize, partial: Option<PlanRef>) -> Result<Placement> {
        let aggregate = plan.downcast_ref::<AggregateExec>();
        if let Some(states) = &partial {
            let is_final = aggregate.is_some_and(|aggregate| {
                matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned)
            });
            if let (true, Some(of)) = (is_final, states.downcast_ref::<AggregateExec>()) {
                let reduced = self.tree(of, child, tasks)?;
                // Those above may rely on how the final aggregate hands out its groups.
                let partitioning = plan.output_partitioning();
                return Ok(Placement::Head(match partitioning {
                    Partitioning::Hash(_, count) if *count > 1 => {
                        Arc::new(RepartitionExec::try_new(reduced, partitioning.clone())?)
                    }
                    _ => reduced,
                }));
            }
            // Exchanges between partial and final aggregates are the tree's business.
            if plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() {
                return Ok(Placement::Nodes { plan: child, tasks, partial });
            }
        } else {
            let between_threads = plan
                .downcast_ref::<RepartitionExec>()
                .is_some_and(|exchange| matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_)));
            if between_threads {
                return Ok(Placement::Nodes { plan: child, tasks, partial });
            }
            if aggregate.is_some_and(|aggregate| *aggregate.mode() == AggregateMode::Partial) {
                let plan = with_children(plan, vec![child])?;
                return Ok(Placement::Nodes { plan: Arc::clone(&plan), tasks, partial: Some(plan) });
            }
            let of_each_row = plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<LocalLimitExec>();
            let of_each_part = plan.downcast_ref::<SortExec>().is_some_and(SortExec::preserve_partitioning);
            if of_each_row || of_each_part {
                return Ok(Placement::Nodes { plan: with_children(plan, vec![child])?, tasks, partial: None });
            }
        }
        let child = self.close(Placement::Nodes { plan: child, tasks, partial })?;
        Ok(Placement::Head(with_children(plan, vec![child])?))
    }

    /// Brings what runs on nodes to the head in one step.
    fn close(&mut self, placed: Placement) -> Result<PlanRef> {
        match placed {
            Placement::Head(plan) => Ok(plan),
            Placement::Nodes { plan, tasks, partial } => {
                self.raw += usize::from(partial.is_none());
                self.tasks += tasks;
                let alone = plan.output_partitioning().partition_count() == 1;
                let sent = Arc::new(NetworkCoalesceExec::try_new(one(plan), tasks, 1)?);
                // Where one partition was planned, those above would read the first node's alone.
                Ok(if alone { one(sent) } else { sent })
            }
        }
    }

    fn tree(&mut self, partial: &AggregateExec, producer: PlanRef, leaves: usize) -> Result<PlanRef> {
        let keys = by_position(partial.group_expr());
        let merged = |mode, input: PlanRef| -> Result<PlanRef> {
            let (aggregates, filters) = (partial.aggr_expr().to_vec(), partial.filter_expr().to_vec());
            let met = Arc::new(CoalescePartitionsExec::new(input));
            let merged = AggregateExec::try_new(mode, keys.clone(), aggregates, filters, met, partial.input_schema())?;
            Ok(Arc::new(merged))
        };
        let fan = fan(leaves, self.flat_max).max(2);
        let (mut plan, mut tasks) = (one(producer), leaves);
        self.tasks += tasks;
        while tasks > fan {
            let groups = tasks.div_ceil(fan);
            let sent = Arc::new(NetworkCoalesceExec::try_new(plan, tasks, groups)?);
            plan = merged(AggregateMode::PartialReduce, sent)?;
            tasks = groups;
            self.tasks += tasks;
        }
        merged(AggregateMode::Final, Arc::new(NetworkCoalesceExec::try_new(plan, tasks, 1)?))
    }
}

/// One partition a task, so that the arithmetic of boundaries never depends on how many a leaf has.
fn one(plan: PlanRef) -> PlanRef {
    if plan.output_partitioning().partition_count() == 1 {
        return plan;
    }
    match plan.output_ordering() {
        Some(order) => Arc::new(SortPreservingMergeExec::new(order.clone(), plan)),
        None => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}

/// The keys as they are in the states: first, in order.
fn by_position(keys: &PhysicalGroupBy) -> PhysicalGroupBy {
    let placed = |keys: &[(Arc<dyn PhysicalExpr>, String)]| -> Vec<(Arc<dyn PhysicalExpr>, String)> {
        keys.iter().enumerate().map(|(at, (_, name))| (Arc::new(Column::new(name, at)) as _, name.clone())).collect()
    };
    PhysicalGroupBy::new(placed(keys.expr()), placed(keys.null_expr()), keys.groups().to_vec(), keys.has_grouping_set())
}

fn with_children(plan: PlanRef, children: Vec<PlanRef>) -> Result<PlanRef> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}
