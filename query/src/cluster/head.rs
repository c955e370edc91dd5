//! The head of a query over many nodes: it cuts the plan into stages, runs them, and repeats the query without the
//! nodes that it lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DistributedConfig, DistributedExt, DistributedLeafExec, NetworkBoundaryExt, RouteTasksEvent,
    RouteTasksEventResponse, SessionStateBuilderExt, Stage, Worker,
};
use futures::StreamExt;
use telem_engine::Db;
use tokio::runtime::Handle;
use url::Url;

use super::lost::Attempt;
use super::members::{MemberState, Members, NodeState};
use super::net::{Channels, Wire};
use super::tree::{self, StagedPlan};
use super::turns::{Turn, Turns};
use super::wire::LeafCodec;
use super::worker;
use crate::error::Result;
use crate::leaf::{NodeLeafExec, Reading};
use crate::options::QueryOptions;

/// Where our own database is "reached": inside of the process, by comparing addresses.
const OURS: &str = "http://ours.invalid:1/";
/// How often nodes that did not answer are tried again, unless trying takes longer.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Nodes that are tried at once.
const PROBES_AT_ONCE: usize = 256;

/// Everything a head has besides its own database.
pub(crate) struct Head {
    members: Members,
    channels: Channels,
    ours: Url,
    /// See [`crate::QueryOptions::flat_max`].
    flat_max: usize,
    turns: Turns,
    /// What turns plans with boundaries into stages.
    planner: SessionState,
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("members", &self.members).finish_non_exhaustive()
    }
}

/// A plan that can be executed.
#[derive(Debug)]
pub(crate) struct ExecutablePlan {
    pub plan: Arc<dyn ExecutionPlan>,
    /// How many tasks of it run on nodes. None where it asks no others.
    pub tasks: usize,
    /// Whether all that comes from nodes are states of aggregates.
    pub reduced: bool,
}

impl ExecutablePlan {
    /// A plan that asks no other node.
    pub fn here(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan, tasks: 0, reduced: true }
    }

    /// Whether it asks other nodes.
    pub fn is_distributed(&self) -> bool {
        self.tasks > 0
    }
}

/// The plan that [`GivenPlanner`] hands on, an extension of a session's configuration.
struct PlanToStage(Arc<dyn ExecutionPlan>);

/// Plans nothing: the engine turns plans into stages behind a planner, and ours are made already.
#[derive(Debug)]
struct GivenPlanner;

#[async_trait]
impl QueryPlanner for GivenPlanner {
    async fn create_physical_plan(
        &self,
        _logical: &LogicalPlan,
        session: &dyn datafusion::catalog::Session,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        match session.config().get_extension::<PlanToStage>() {
            Some(given) => Ok(Arc::clone(&given.0)),
            None => internal_err!("there is no plan to distribute"),
        }
    }
}

impl Head {
    /// A head, the worker of its own database, and how tasks of its questions are configured from now on.
    ///
    /// # Errors
    /// When the engine refuses these settings.
    pub fn new(
        db: Db,
        members: Members,
        wire: Wire,
        options: &QueryOptions,
        session: &SessionState,
        reading: Reading,
        threads: Handle,
    ) -> datafusion::error::Result<(Head, Worker, SessionConfig)> {
        let ours = Url::parse(OURS).map_err(|error| DataFusionError::Internal(error.to_string()))?;
        let channels = Channels::new(wire, threads);
        let worker = worker::worker(db, session.clone(), channels.clone(), reading);
        let mut config = session.config().clone();
        // Put there by the engine's own setters, all of its settings would go with every task.
        let mut settings = DistributedConfig::default();
        settings.collect_metrics = false;
        config.options_mut().extensions.insert(settings);
        let config = config
            .with_distributed_user_codec(LeafCodec)
            .with_distributed_channel_resolver(channels.clone())
            .with_distributed_route_tasks_handler(route)
            .with_distributed_local_worker_context(worker.to_local_worker_context(ours.clone()));
        let planner = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(session.runtime_env()))
            .with_query_planner(Arc::new(GivenPlanner))
            .with_distributed_planner()
            .build();
        let config = planner.config().clone();
        let (flat_max, turns) = (options.flat_max, Turns::new(options.tasks_max));
        Ok((Head { members, channels, ours, flat_max, turns, planner }, worker, config))
    }

    pub fn members(&self) -> &Members {
        &self.members
    }

    pub fn ours(&self) -> &Url {
        &self.ours
    }

    /// Cuts the plan into stages where it asks other nodes.
    pub async fn distribute(&self, plan: Arc<dyn ExecutionPlan>) -> datafusion::error::Result<ExecutablePlan> {
        let StagedPlan { plan, reduced, tasks } = tree::cut(plan, self.flat_max)?;
        if tasks == 0 {
            return Ok(ExecutablePlan::here(plan));
        }
        let mut session = self.planner.clone();
        session.config_mut().set_extension(Arc::new(PlanToStage(plan)));
        let nothing =
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) });
        let plan = session.query_planner().create_physical_plan(&nothing, &session).await?;
        Ok(ExecutablePlan { plan, tasks, reduced })
    }

    /// Waits until this many tasks may run on nodes, at most as long as the attempt allows.
    ///
    /// # Errors
    /// Busy, past that.
    pub async fn turn(&self, tasks: usize, attempt: &Attempt) -> Result<Turn> {
        let turn = self.turns.wait(tasks, attempt.turn_due()).await?;
        attempt.begin();
        Ok(turn)
    }

    /// Nodes that the attempt lost are not asked again until they answer; whether it lost any.
    pub fn take_lost(&self, attempt: &Attempt) -> bool {
        let lost = attempt.lost();
        for member in self.members.list() {
            if let Some(reason) = lost.get(member.url.as_str()) {
                tracing::warn!(node = %member.node, reason, "a node was lost during a query");
                self.members.mark_down(&member.node, reason);
            }
        }
        !lost.is_empty()
    }

    /// Tries nodes that did not answer or were never asked, for ever: queries shall not pay for finding out, nor for a
    /// thousand connections.
    pub async fn probe(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PROBE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let members = self.members.list().into_iter();
            let probed = members.filter(|member| match member.state {
                NodeState::Down { .. } => true,
                NodeState::Up => !self.channels.has(&member.url),
                NodeState::Left { .. } => false,
            });
            let trials = futures::stream::iter(probed);
            trials.for_each_concurrent(PROBES_AT_ONCE, |member| Arc::clone(&self).try_one(member)).await;
        }
    }

    async fn try_one(self: Arc<Self>, member: MemberState) {
        let answered = self.channels.probe(&member.url).await;
        if answered.is_err() {
            self.channels.forget(&member.url);
        }
        // A node that is up and could not be reached is noticed by the next query, or by its silence.
        if answered.is_ok() && matches!(member.state, NodeState::Down { .. }) {
            self.members.mark_up(&member.node);
        }
    }

    /// Whether a node that has not been heard of answers; it is down if not.
    pub async fn suspect(&self, node: &str) {
        let Some(member) = self.members.list().into_iter().find(|member| *member.node == *node) else { return };
        if member.state != NodeState::Up {
            return;
        }
        if let Err(reason) = self.channels.probe(&member.url).await {
            self.channels.forget(&member.url);
            self.members.mark_down(node, &reason);
        }
    }
}

/// A task runs where its leaf is pinned to; one inside of the tree where the first of its children does, so that it
/// reads that one without a network.
fn route(event: RouteTasksEvent<'_>) -> Option<datafusion::error::Result<RouteTasksEventResponse>> {
    let mut urls: Option<Vec<Url>> = None;
    let walked = event.plan.apply(|plan| {
        if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
            let url = |variant: &Arc<dyn ExecutionPlan>| variant.downcast_ref::<NodeLeafExec>()?.url().cloned();
            urls = leaf.variants().iter().map(url).collect();
            return Ok(TreeNodeRecursion::Stop);
        }
        if let Some(boundary) = plan.as_network_boundary() {
            if let Stage::Remote(stage) = boundary.input_stage() {
                urls = Some(first_of_groups(&stage.workers, event.task_count));
            }
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match walked {
        Err(error) => Some(Err(error)),
        Ok(_) => urls.map(|urls| Ok(RouteTasksEventResponse::new(urls))),
    }
}

/// The first child of each of `groups` groups, which are as even as can be, the larger ones first.
fn first_of_groups(children: &[Url], groups: usize) -> Vec<Url> {
    let (base, more) = (children.len() / groups.max(1), children.len() % groups.max(1));
    (0..groups).filter_map(|group| children.get(group * base + group.min(more)).cloned()).collect()
}
