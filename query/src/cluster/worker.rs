//! The worker of a node: it receives plans from a head, checks them before anything runs, and runs them over the node's
//! own database.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, exec_err};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_distributed::{
    DistributedExt, NetworkBoundaryExt, Worker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse,
    WorkerQueryContext,
};
use http::{Request, Response};
use telem_engine::Db;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::body::Body;
use tower::Service;

use super::net::Channels;
use super::task::TaskExec;
use super::wire::LeafCodec;
use crate::lanes::{Lane, Lanes};
use crate::leaf::{LeafContext, NodeLeafExec, Reading};
use crate::options::BATCH_ROWS;

/// Where the service is to be mounted: every path below.
pub const WORKER_PATH: &str = "/worker.WorkerService";
/// The request that asks for the version alone.
const PROBE: &str = "/GetWorkerInfo";
/// Largest message with a plan.
pub(crate) const PLAN_BYTES_MAX: usize = 16 << 20;
/// How often it is looked whether threads that work for heads come to take up anything new.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest that they may be busy without.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A worker over `db`. `session` has the functions that plans may name and the memory that they share; `reading` counts
/// the leaves.
pub(super) fn worker(db: Db, session: SessionState, channels: Channels, reading: Reading) -> Worker {
    let runtime = Arc::clone(session.runtime_env());
    let node: Arc<str> = Arc::from(db.snapshot().node());
    Worker::from_session_builder(move |mut context: WorkerQueryContext| {
        let (session, channels, node) = (session.clone(), channels.clone(), Arc::clone(&node));
        let leaves = LeafContext::counted(db.snapshot(), reading.clone());
        async move {
            let config = context.builder.config().take().unwrap_or_default();
            // A state that is built anew registers some hundred functions, which takes longer than many a task.
            let mut state = session;
            *state.config_mut() = config
                .with_batch_size(BATCH_ROWS)
                .with_extension(Arc::new(leaves))
                .with_distributed_user_codec(LeafCodec)
                .with_distributed_channel_resolver(channels)
                .with_distributed_worker_plan_rewrite_handler(move |event: WorkerPlanRewriteEvent<'_>| {
                    only_ours(&event)?;
                    let task = TaskExec::new(Arc::clone(&node), event.plan);
                    Ok(WorkerPlanRewriteEventResponse::new(Arc::new(task)))
                });
            Ok(state)
        }
    })
    .with_runtime_env(runtime)
    .with_version(env!("CARGO_PKG_VERSION"))
}

/// Refuses a plan with any operator that we never send: above all those that read files.
fn only_ours(event: &WorkerPlanRewriteEvent<'_>) -> Result<()> {
    event.plan.apply(|plan| match is_ours(plan) {
        true => Ok(TreeNodeRecursion::Continue),
        false => exec_err!("a node does not run {}", plan.name()),
    })?;
    Ok(())
}

fn is_ours(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<NodeLeafExec>()
        || plan.is::<AggregateExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.as_network_boundary().is_some()
}

/// The gRPC service of this process's database, to be mounted below [`WORKER_PATH`] behind a check of tokens.
///
/// Requests run on threads of their own, so that the threads of connections are never busy, and that what heads send
/// keeps no question of this node waiting.
#[derive(Clone)]
pub struct WorkerService {
    worker: Worker,
    lane: Arc<WorkerLane>,
}

impl WorkerService {
    /// `home` is where those threads are watched from.
    pub(crate) fn new(worker: Worker, lanes: Arc<Lanes>, home: Handle) -> Self {
        let lane = WorkerLane { lanes, home, look_every: LOOK_EVERY, busy_max: BUSY_MAX, current: Mutex::default() };
        Self { worker, lane: Arc::new(lane) }
    }
}

/// The threads that work for heads. Where all of them are busy with something that does not come to an end, others take
/// their place, and what they were at is left behind.
struct WorkerLane {
    lanes: Arc<Lanes>,
    home: Handle,
    look_every: Duration,
    busy_max: Duration,
    current: Mutex<LaneInUse>,
}

#[derive(Default)]
struct LaneInUse {
    lane: Option<Lane>,
    watched: bool,
}

impl WorkerLane {
    /// Where a request is worked on.
    fn handle(self: &Arc<Self>) -> crate::error::Result<Handle> {
        let mut current = self.current();
        let lane = match current.lane.take() {
            Some(lane) => lane,
            None => self.lanes.take_for_heads()?,
        };
        let handle = lane.handle().clone();
        current.lane = Some(lane);
        if !current.watched {
            current.watched = true;
            self.home.spawn(Arc::clone(self).watch());
        }
        Ok(handle)
    }

    /// Looks after the threads for as long as anything is worked on.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.look_every).await;
            let handle = {
                let mut current = self.current();
                let busy = current.lane.as_ref().map(|lane| lane.handle().clone());
                match busy.filter(|handle| handle.metrics().num_alive_tasks() > 0) {
                    Some(handle) => handle,
                    None => {
                        current.watched = false;
                        return;
                    }
                }
            };
            let answered = timeout(self.busy_max, handle.spawn(async {})).await.is_ok();
            if !answered && !self.lanes.are_exhausted() {
                tracing::warn!("all threads that work for heads were busy for too long; others take their place");
                if let Some(lane) = self.current().lane.take() {
                    self.lanes.retire(lane);
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, LaneInUse> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WorkerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerService").finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for WorkerService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut service = self.worker.clone().into_worker_server().max_decoding_message_size(PLAN_BYTES_MAX);
        if request.uri().path().ends_with(PROBE) {
            // A probe: the threads of queries may be busy.
            return service.call(request.map(Body::new));
        }
        let unavailable = |why: String| Ok(tonic::Status::unavailable(why).into_http());
        let threads = match self.lane.handle() {
            Ok(threads) => threads,
            Err(error) => return Box::pin(std::future::ready(unavailable(error.to_string()))),
        };
        let answered = threads.spawn(async move { service.call(request.map(Body::new)).await });
        // A request whose client is gone is dropped.
        let answered = AbortOnDrop(answered);
        Box::pin(async move {
            answered
                .await
                .unwrap_or_else(|_| unavailable("its threads ended, as when telem is shutting down".to_owned()))
        })
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
