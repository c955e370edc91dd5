//! The entry point of queries: bounded in number, time and memory, and cancelled when no client waits.
//!
//! Queries run on threads of their own at low priority, so that neither a heavy query nor a slow disk delays ingest.
//! [`bounded`] holds the limits, [`crate::lanes`] the threads of SQL, and [`sql`] turns text into a plan. [`ask`] runs
//! a query, and repeats it if nodes are lost meanwhile.

pub(crate) mod ask;
pub(crate) mod bounded;
mod places;
pub(crate) mod sql;
#[cfg(test)]
mod tests;
mod together;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telem_engine::{Db, JOB_TAG, SeriesId, SeriesIndex, Snapshot};
use tokio::task::AbortHandle;

use crate::answer::{FoldSink, LastAnswer, MissingNode, SqlAnswer, TsAnswer};
use crate::cluster::head::Head;
use crate::cluster::{Members, Wire, WorkerService};
use crate::error::{Error, Result};
use crate::jobs::JobTags;
use crate::leaf::series::is_added_up;
use crate::leaf::{LeafContext, LeafThread};
use crate::options::{QueryOptions, QueryStats, RowOrder};
use crate::plan;
use crate::question::TsQuery;
use crate::selection::{select_bound, select_named};
use crate::session::Session;
use crate::view::View;
use bounded::{QueryDeadline, QueryLanguage, Workers};
use together::QuestionList;

/// Most series of a metric that are selected from before a query has its thread: some tenths of a millisecond.
const SELECTED_AT_ONCE_MAX: usize = 4_096;

/// Most questions that are asked together, before the deadline and the client are looked at again from outside.
const TOGETHER_MAX: usize = 64;
/// Values of answers after which no further question is asked together with those: they wait in memory.
const TOGETHER_VALUES_MAX: usize = 64 << 10;

/// Answers questions about one database. Clones share its threads and limits.
#[derive(Clone, Debug)]
pub struct Queries {
    inner: Arc<QueryService>,
}

#[derive(Debug)]
struct QueryService {
    db: Db,
    options: QueryOptions,
    session: Session,
    /// Sends queries to other nodes; `None` if there are none.
    head: Option<Arc<Head>>,
    /// Answers other heads.
    worker: Option<WorkerService>,
    /// Ends what goes on behind questions.
    background: Option<AbortHandle>,
    workers: Workers,
}

impl Drop for QueryService {
    fn drop(&mut self) {
        if let Some(background) = &self.background {
            background.abort();
        }
    }
}

impl Queries {
    /// About one database.
    ///
    /// # Errors
    /// Unavailable when the threads that execute plans cannot be started.
    pub fn new(db: Db, options: QueryOptions) -> Result<Self> {
        let session = Session::new(&options)?;
        let workers = Workers::new(&options, session.memory_pool())?;
        let inner = QueryService { db, options, session, head: None, worker: None, background: None, workers };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// About our own database and those of `members`, which may be none yet and come and go; what answers other heads
    /// is [`Queries::worker`].
    ///
    /// # Errors
    /// As [`Queries::new`].
    pub fn over(db: Db, members: Members, wire: Wire, options: QueryOptions) -> Result<Self> {
        let mut session = Session::new(&options)?;
        let workers = Workers::new(&options, session.memory_pool())?;
        let reading = workers.reading();
        let (head, worker, config) =
            Head::new(db.clone(), members, wire, &options, session.template(), reading, workers.threads())?;
        session.configure(config);
        let (head, threads) = (Arc::new(head), workers.threads());
        let background = threads.spawn(Arc::clone(&head).probe()).abort_handle();
        let worker = WorkerService::new(worker, workers.lanes(), threads);
        let (head, worker, background) = (Some(head), Some(worker), Some(background));
        Ok(Self { inner: Arc::new(QueryService { db, options, session, head, worker, background, workers }) })
    }

    /// What answers other heads about our own database; `None` of [`Queries::new`].
    pub fn worker(&self) -> Option<WorkerService> {
        self.inner.worker.clone()
    }

    /// The nodes beside our own; `None` of [`Queries::new`].
    pub fn members(&self) -> Option<&Members> {
        self.inner.head.as_ref().map(|head| head.members())
    }

    /// A node that has not been heard of for a while is asked whether it is there, and is down if it does not answer.
    pub async fn suspect(&self, node: &str) {
        if let Some(head) = &self.inner.head {
            head.suspect(node).await;
        }
    }

    /// The names of all series that can be asked for.
    pub fn index(&self) -> Arc<SeriesIndex> {
        Arc::clone(self.inner.view(self.inner.db.snapshot()).index())
    }

    pub fn options(&self) -> &QueryOptions {
        &self.inner.options
    }

    pub fn db(&self) -> &Db {
        &self.inner.db
    }

    pub fn stats(&self) -> QueryStats {
        self.inner.workers.stats()
    }

    /// Begins the questions of one request; their deadline runs from here on.
    pub fn round(&self) -> Round {
        Round { queries: self.clone(), snapshot: self.inner.db.snapshot(), due: self.inner.workers.due() }
    }

    /// Answers one question, a round of its own.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn timeseries(&self, query: TsQuery) -> Result<TsAnswer> {
        self.round().timeseries(query).await
    }

    /// Folds the samples of `query` into `sink`, see [`plan::fold`]; gives it back with the nodes that did not answer.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn fold<S: FoldSink>(&self, query: TsQuery, sink: S) -> Result<(S, Vec<MissingNode>)> {
        let inner = &self.inner;
        let ticket = inner.workers.admit(QueryLanguage::TimeSeries, inner.workers.due()).await?;
        let context = inner.leaf_context(inner.db.snapshot());
        let (inner, stop, due) = (Arc::clone(inner), context.stop.clone(), ticket.due());
        let mut sink = sink;
        let folded = async move {
            let missing = ask::fold(&inner, context, &query, due, &mut sink).await?;
            Ok((sink, missing))
        };
        let (sink, mut missing) = self.inner.workers.run(ticket, stop, LeafThread::OfItsOwn, folded).await?;
        missing.extend_from_slice(&self.inner.options.absent);
        Ok((sink, missing))
    }

    /// The newest sample of each of these series of [`Queries::index`].
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn last(&self, series: Vec<SeriesId>) -> Result<LastAnswer> {
        let inner = &self.inner;
        let ticket = inner.workers.admit(QueryLanguage::TimeSeries, inner.workers.due()).await?;
        let context = inner.leaf_context(inner.db.snapshot());
        let (inner, stop, due) = (Arc::clone(inner), context.stop.clone(), ticket.due());
        let answered = async move { ask::last(&inner, context, &series, due).await };
        let mut answer: LastAnswer = self.inner.workers.run(ticket, stop, LeafThread::OfItsOwn, answered).await?;
        answer.missing.extend_from_slice(&self.inner.options.absent);
        Ok(answer)
    }

    /// Plans one statement of SQL and starts it. Names keep their case (see [`crate::session`]).
    ///
    /// # Errors
    /// See [`crate::Error`]. What goes wrong after the first batch is the last item of the answer.
    pub async fn sql(&self, text: &str) -> Result<SqlAnswer> {
        self.sql_in(RowOrder::Any, text).await
    }

    /// As [`Queries::sql`], with rows in `order` where the statement itself asks for none.
    ///
    /// # Errors
    /// As [`Queries::sql`].
    pub async fn sql_in(&self, order: RowOrder, text: &str) -> Result<SqlAnswer> {
        let inner = &self.inner;
        let ticket = inner.workers.admit(QueryLanguage::Sql, inner.workers.due()).await?;
        let context = inner.leaf_context(inner.db.snapshot());
        let (stop, missing) = (context.stop.clone(), Arc::new(Mutex::new(Vec::new())));
        let question = ask::SqlQuestion {
            text: text.to_owned(),
            order,
            context,
            due: ticket.due(),
            missing: Arc::clone(&missing),
        };
        // Planning has a large future, and it is handed on several times before it runs.
        let asked = Box::pin(ask::sql(Arc::clone(inner), question));
        let batches = inner.workers.stream(ticket, stop, asked).await?;
        let mut missing = std::mem::take(&mut *missing.lock().unwrap_or_else(PoisonError::into_inner));
        missing.extend_from_slice(&inner.options.absent);
        Ok(SqlAnswer { batches, missing })
    }

    /// How one statement of SQL would be executed, one operator a line.
    ///
    /// # Errors
    /// As [`Queries::sql`].
    pub async fn explain(&self, text: &str) -> Result<String> {
        let ticket = self.inner.workers.admit(QueryLanguage::Sql, self.inner.workers.due()).await?;
        let context = self.inner.leaf_context(self.inner.db.snapshot());
        let (inner, stop, text) = (Arc::clone(&self.inner), context.stop.clone(), text.to_owned());
        let explained = async move { ask::explain(&inner, &context, &text).await };
        self.inner.workers.run_on_lane(ticket, stop, explained)?.await
    }

    /// The memory that queries hold, by their own count.
    pub fn memory_reserved(&self) -> usize {
        self.inner.session.memory_pool().reserved()
    }

    /// Every function of SQL, by kind and name.
    #[cfg(test)]
    pub(crate) fn function_names(&self) -> std::collections::BTreeSet<String> {
        let known = self.inner.session.template();
        let scalar = known.scalar_functions().values().map(|function| format!("scalar {}", function.name()));
        let aggregate = known.aggregate_functions().values().map(|function| format!("aggregate {}", function.name()));
        let window = known.window_functions().values().map(|function| format!("window {}", function.name()));
        let table = known.table_functions().keys().map(|name| format!("table {name}"));
        let lambda = known.higher_order_functions().values().map(|function| format!("lambda {}", function.name()));
        scalar.chain(aggregate).chain(window).chain(table).chain(lambda).collect()
    }
}

/// Questions of one request, asked one after another: together they have the time of one query, and they
/// see one state of the database.
#[derive(Debug)]
pub struct Round {
    queries: Queries,
    snapshot: Snapshot,
    due: QueryDeadline,
}

impl Round {
    /// What can be known to be wrong with `query` before it is answered.
    ///
    /// # Errors
    /// Invalid, UnknownName.
    pub fn check(&self, query: &TsQuery) -> Result<()> {
        let inner = &self.queries.inner;
        if inner.job_tags().are_asked_for(query, &self.snapshot) {
            // Which jobs there are is known when it is answered.
            let filters = query.filters.iter().filter(|filter| filter.key != JOB_TAG).cloned().collect();
            return plan::check(&TsQuery { filters, ..query.clone() }, &inner.view(self.snapshot.clone()));
        }
        plan::check(query, &inner.view(self.snapshot.clone()))
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn timeseries(&self, query: TsQuery) -> Result<TsAnswer> {
        let thread = self.queries.inner.thread_of(&query, &self.snapshot);
        let answered = self.on_one_thread(vec![query], thread).await?;
        let first = answered.into_iter().next().map(|timed| timed.answer);
        first.unwrap_or_else(|| Err(Error::Internal("a question was not asked".to_owned())))
    }

    /// Answers some questions from the first on: that one, and those behind it as long as none waits for another thread.
    /// None is asked after one without an answer, nor after answers of [`TOGETHER_VALUES_MAX`] values, nor after a second.
    ///
    /// # Errors
    /// Busy, Deadline, and what ends all of them.
    pub async fn timeseries_together<'a>(
        &self,
        mut questions: impl Iterator<Item = &'a TsQuery> + Send,
    ) -> Result<Vec<TimedAnswer>> {
        let inner = &self.queries.inner;
        let Some(first) = questions.next() else { return Ok(Vec::new()) };
        let thread = inner.thread_of(first, &self.snapshot);
        let mut together = vec![first.clone()];
        if thread == LeafThread::OfTheQuery {
            let others = questions.take(TOGETHER_MAX - 1);
            together.extend(others.take_while(|query| inner.thread_of(query, &self.snapshot) == thread).cloned());
        }
        self.on_one_thread(together, thread).await
    }

    async fn on_one_thread(&self, questions: Vec<TsQuery>, thread: LeafThread) -> Result<Vec<TimedAnswer>> {
        let inner = &self.queries.inner;
        let ticket = inner.workers.admit(QueryLanguage::TimeSeries, self.due).await?;
        let context = LeafContext { thread, ..inner.leaf_context(self.snapshot.clone()) };
        let (inner, stop, due) = (Arc::clone(inner), context.stop.clone(), ticket.due());
        let together = QuestionList::new(inner, context, due, questions);
        let answered = async move { Ok(together.answers().await) };
        self.queries.inner.workers.run(ticket, stop, thread, answered).await
    }
}

/// The answer of one question of several.
#[derive(Debug)]
pub struct TimedAnswer {
    pub answer: Result<TsAnswer>,
    pub took: Duration,
}

impl QueryService {
    fn job_tags(&self) -> JobTags {
        if self.head.is_some() { JobTags::Unknown } else { JobTags::Known }
    }

    fn leaf_context(&self, snapshot: Snapshot) -> LeafContext {
        LeafContext {
            spare: self.workers.spare().of_another(),
            ..LeafContext::counted(snapshot, self.workers.reading())
        }
    }

    /// Where the leaves of a query read: on its thread where it is about a few series of ours alone, since handing them
    /// over takes longer, or where other threads take pieces of its leaf. What selects series other than by names, or among
    /// many, is looked at later, as it takes its time: whoever asks waits on a thread of the network.
    fn thread_of(&self, query: &TsQuery, snapshot: &Snapshot) -> LeafThread {
        let is_alone = self.head.as_ref().is_none_or(|head| head.members().is_empty());
        let by_name = query.series.is_none() && query.filters.iter().all(|filter| filter.matcher.is_by_name());
        let index = snapshot.index();
        let among_few = || index.series_count(&query.metric) <= SELECTED_AT_ONCE_MAX;
        let few_are_selected = || {
            plan::is_of_one_part(select_bound(query, index))
                || among_few() && plan::is_of_one_part(select_named(query, index).len())
        };
        let in_pieces = || is_added_up(query) && !self.job_tags().are_asked_for(query, snapshot);
        match is_alone && (in_pieces() || by_name && few_are_selected()) {
            true => LeafThread::OfTheQuery,
            false => LeafThread::OfItsOwn,
        }
    }

    /// What a question that begins now sees.
    fn view(&self, snapshot: Snapshot) -> View {
        match &self.head {
            None => View::alone(snapshot),
            Some(head) => {
                head.members().learn_ours(&self.db);
                View::over(snapshot, Arc::clone(head))
            }
        }
    }
}
