//! Runs a query, and repeats it if it loses nodes: the repetition goes to the other nodes, so that an answer covers
//! whole nodes and names the missing ones.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion_distributed::display_plan_ascii;
use futures::StreamExt;
use telem_engine::SeriesId;
use tokio::time::timeout_at;

use super::bounded::{QueryDeadline, StartedAnswer};
use super::{QueryService, sql};
use crate::answer::{FoldSink, LastAnswer, MissingNode, TsAnswer};
use crate::cluster::Members;
use crate::cluster::head::{ExecutablePlan, Head};
use crate::cluster::lost::{self, Attempt, Delivery};
use crate::error::{Error, Result};
use crate::leaf::{LeafContext, LeafThread};
use crate::options::RowOrder;
use crate::plan::{self, PlanContext};
use crate::question::TsQuery;
use crate::relative::Anchor;
use crate::session::{QuestionState, Session};
use crate::view::View;

/// How often a question is asked, at the most. Every further time is the loss of another node.
pub(crate) const ATTEMPTS_MAX: u32 = 5;

/// A question in SQL.
pub(super) struct SqlQuestion {
    pub text: String,
    pub order: RowOrder,
    pub context: LeafContext,
    pub due: QueryDeadline,
    /// Set before the answer begins.
    pub missing: Arc<Mutex<Vec<MissingNode>>>,
}

/// How a time-series query is answered, in one attempt.
trait AttemptedAnswer: Send {
    type Answer: Send;

    fn attempt(
        &mut self,
        query: &TsQuery,
        context: &PlanContext<'_>,
    ) -> impl Future<Output = Result<Self::Answer>> + Send;

    fn missing(answer: &Self::Answer) -> &[MissingNode];
}

/// By an answer that is held until it is complete.
struct HeldAnswer;

impl AttemptedAnswer for HeldAnswer {
    type Answer = TsAnswer;

    async fn attempt(&mut self, query: &TsQuery, context: &PlanContext<'_>) -> Result<TsAnswer> {
        plan::answer(query, context).await
    }

    fn missing(answer: &TsAnswer) -> &[MissingNode] {
        &answer.missing
    }
}

/// By rows that somebody else takes.
struct FoldInto<'a, S>(&'a mut S);

impl<S: FoldSink> AttemptedAnswer for FoldInto<'_, S> {
    type Answer = Vec<MissingNode>;

    async fn attempt(&mut self, query: &TsQuery, context: &PlanContext<'_>) -> Result<Vec<MissingNode>> {
        self.0.clear();
        plan::fold(query, context, self.0).await
    }

    fn missing(missing: &Vec<MissingNode>) -> &[MissingNode] {
        missing
    }
}

/// Answers a time-series query.
pub(super) async fn timeseries(
    inner: &QueryService,
    context: LeafContext,
    query: &TsQuery,
    due: QueryDeadline,
) -> Result<TsAnswer> {
    attempts(inner, context, query, due, HeldAnswer).await
}

/// Folds the samples of a time-series query into `sink`.
pub(super) async fn fold(
    inner: &QueryService,
    context: LeafContext,
    query: &TsQuery,
    due: QueryDeadline,
    sink: &mut impl FoldSink,
) -> Result<Vec<MissingNode>> {
    attempts(inner, context, query, due, FoldInto(sink)).await
}

async fn attempts<A: AttemptedAnswer>(
    inner: &QueryService,
    context: LeafContext,
    query: &TsQuery,
    due: QueryDeadline,
    mut way: A,
) -> Result<A::Answer> {
    let options = &inner.options;
    let mut asked_for_names = false;
    let context = inner.job_tags().context(query, &context)?.unwrap_or(context);
    for _ in 0..ATTEMPTS_MAX {
        let view = inner.view(context.snapshot.clone());
        let attempt = inner.head.as_ref().map(|_| attempt(Delivery::Held, due));
        let task_ctx = inner.session.task_ctx(as_seen(&context, &view), attempt.clone());
        let answer = way.attempt(query, &PlanContext { view, task_ctx, options }).await;
        let unknown = matches!(answer, Err(Error::UnknownName { .. })) && !asked_for_names;
        if unknown && exists(inner, &context, &query.metric, due).await {
            asked_for_names = true;
            continue;
        }
        if !lost(inner.head.as_deref(), attempt.as_deref(), answer.as_ref().err()) {
            let answer = answer?;
            complete(A::missing(&answer), options.strict)?;
            return Ok(answer);
        }
    }
    Err(Error::NodesLost { attempts: ATTEMPTS_MAX })
}

/// The newest sample of each of these series.
pub(super) async fn last(
    inner: &QueryService,
    context: LeafContext,
    series: &[SeriesId],
    due: QueryDeadline,
) -> Result<LastAnswer> {
    for _ in 0..ATTEMPTS_MAX {
        let view = inner.view(context.snapshot.clone());
        let attempt = inner.head.as_ref().map(|_| attempt(Delivery::Held, due));
        let task_ctx = inner.session.task_ctx(context.clone(), attempt.clone());
        let found = plan::last(series, &view, task_ctx).await;
        if !lost(inner.head.as_deref(), attempt.as_deref(), found.as_ref().err()) {
            let answer = found?;
            complete(&answer.missing, inner.options.strict)?;
            return Ok(answer);
        }
    }
    Err(Error::NodesLost { attempts: ATTEMPTS_MAX })
}

/// Plans a question and starts its answer.
pub(super) async fn sql(inner: Arc<QueryService>, question: SqlQuestion) -> Result<StartedAnswer> {
    let mut asked_for_names = false;
    for _ in 0..ATTEMPTS_MAX {
        let planned = planned(&inner, &question.context, question.order, &question.text).await;
        if let (Err(Error::UnknownTable { name, .. }), false) = (&planned, asked_for_names)
            && exists(&inner, &question.context, name, question.due).await
        {
            asked_for_names = true;
            continue;
        }
        let (view, state, planned) = planned?;
        let parts = if planned.reduced { Delivery::Held } else { Delivery::Streamed };
        let attempt = planned.is_distributed().then(|| attempt(parts, question.due));
        // Over when all nodes have their plans: rows that stream may take as long as their reader does.
        let _turn = match (&inner.head, &attempt) {
            (Some(head), Some(attempt)) => Some(head.turn(planned.tasks, attempt).await?),
            _ => None,
        };
        let task = in_attempt(&inner.session, &state, attempt.clone());
        let begun = match execute_stream(planned.plan, Arc::clone(&task)) {
            Ok(batches) => match (&attempt, parts) {
                (None, _) => Ok(batches),
                (Some(_), Delivery::Held) => held(batches, &task).await,
                (Some(attempt), Delivery::Streamed) => begun(batches, attempt).await,
            },
            Err(error) => Err(error),
        };
        let begun = begun.map_err(Error::from);
        if !lost(inner.head.as_deref(), attempt.as_deref(), begun.as_ref().err()) {
            let (batches, missing) = (begun?, view.missing());
            complete(&missing, inner.options.strict)?;
            *question.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
            let batches = match &inner.head {
                Some(head) if attempt.is_some() => named(batches, head.members().clone()),
                _ => batches,
            };
            let context = state.config().get_extension::<LeafContext>();
            let is_little = context.is_some_and(|context| context.thread == LeafThread::OfTheQuery);
            return Ok(StartedAnswer { batches, is_little });
        }
    }
    Err(Error::NodesLost { attempts: ATTEMPTS_MAX })
}

/// What the leaves of a question find that sees this: nodes may have come since it began.
fn as_seen(context: &LeafContext, view: &View) -> LeafContext {
    let thread = if view.is_alone() { context.thread } else { LeafThread::OfItsOwn };
    LeafContext { thread, ..context.clone() }
}

/// Whether any node has a metric that none has reported yet: names take a moment to reach the head.
async fn exists(inner: &QueryService, context: &LeafContext, metric: &str, due: QueryDeadline) -> bool {
    let Some(head) = &inner.head else { return false };
    if head.members().is_empty() {
        return false;
    }
    let attempt = attempt(Delivery::Held, due);
    let task_ctx = inner.session.task_ctx(context.clone(), Some(Arc::clone(&attempt)));
    let found = plan::find(metric, &inner.view(context.snapshot.clone()), task_ctx).await;
    head.take_lost(&attempt);
    found.is_ok_and(|nodes| nodes > 0)
}

/// How a question would be executed, one operator a line.
pub(super) async fn explain(inner: &QueryService, context: &LeafContext, text: &str) -> Result<String> {
    let (_, _, planned) = planned(inner, context, RowOrder::Any, text).await?;
    Ok(match planned.is_distributed() {
        true => display_plan_ascii(&*planned.plan, false),
        false => displayable(&*planned.plan).indent(false).to_string(),
    })
}

async fn planned(
    inner: &QueryService,
    context: &LeafContext,
    order: RowOrder,
    text: &str,
) -> Result<(View, QuestionState, ExecutablePlan)> {
    let view = inner.view(context.snapshot.clone());
    let now = inner.options.clock.now();
    let mut state = inner.session.state(context, &view, now, order);
    state.config_mut().set_extension(Arc::new(Anchor::new(inner.db.clone(), now)));
    state.config_mut().set_extension(Arc::new(inner.job_tags()));
    let planned = sql::plan(text, &mut state, &view, inner.session.plain()).await?;
    Ok((view, state, planned))
}

fn attempt(parts: Delivery, due: QueryDeadline) -> Arc<Attempt> {
    Arc::new(Attempt::new(parts, due.at))
}

/// Whether the attempt lost nodes, so that its answer does not count.
fn lost(head: Option<&Head>, attempt: Option<&Attempt>, error: Option<&Error>) -> bool {
    let (Some(head), Some(attempt)) = (head, attempt) else { return false };
    if let Some(Error::NodeLost { node, reason }) = error {
        attempt.lose_named(node, reason);
    }
    head.take_lost(attempt)
}

fn complete(missing: &[MissingNode], strict: bool) -> Result<()> {
    match strict && !missing.is_empty() {
        true => Err(Error::Incomplete { missing: missing.to_vec() }),
        false => Ok(()),
    }
}

fn in_attempt(session: &Session, state: &SessionState, attempt: Option<Arc<Attempt>>) -> Arc<TaskContext> {
    let Some(attempt) = attempt else { return session.task_of(state.config().clone()) };
    let task = state.task_ctx();
    Arc::new(TaskContext::new(
        None,
        task.session_id(),
        task.session_config().clone().with_extension(attempt),
        task.scalar_functions().clone(),
        Default::default(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        task.runtime_env(),
    ))
}

/// The whole answer, before any of it is handed out.
async fn held(
    mut batches: SendableRecordBatchStream,
    task: &TaskContext,
) -> datafusion::error::Result<SendableRecordBatchStream> {
    let schema = batches.schema();
    let memory = MemoryConsumer::new("answer over many nodes").register(task.memory_pool());
    let mut all = Vec::new();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        memory.try_grow(batch.get_array_memory_size())?;
        all.push(batch);
    }
    Ok(Box::pin(RecordBatchStreamAdapter::new(
        schema,
        futures::stream::iter(BufferedBatches { all: all.into_iter(), _memory: memory }),
    )))
}

/// Batches that wait to be read, and the memory that they have.
struct BufferedBatches {
    all: std::vec::IntoIter<RecordBatch>,
    _memory: MemoryReservation,
}

impl Iterator for BufferedBatches {
    type Item = datafusion::error::Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.all.next().map(Ok)
    }
}

/// The same rows; an error about a lost node names it.
fn named(batches: SendableRecordBatchStream, members: Members) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let batches = batches.map(move |batch| batch.map_err(|error| lost::named(error, &members)));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// The answer once every node that is asked has begun to answer: from then on a node that is lost is an error in it.
async fn begun(
    mut batches: SendableRecordBatchStream,
    attempt: &Attempt,
) -> datafusion::error::Result<SendableRecordBatchStream> {
    let schema = batches.schema();
    let first = match timeout_at(attempt.due(), batches.next()).await {
        Ok(first) => first.transpose()?,
        // Nothing yet, as of a sort of much: nodes that are lost are noted all the same.
        Err(_) => None,
    };
    let _ = timeout_at(attempt.due(), attempt.all_began()).await;
    let first = futures::stream::iter(first.map(Ok::<_, DataFusionError>));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, first.chain(batches))))
}
