//! The way in for questions: bounded in number, time and memory, cancelled when nobody waits.
//!
//! Questions are worked on by threads of their own, at low priority, so that neither a heavy
//! query nor a slow disk delays those who take samples in. [`bounded`] holds the limits,
//! [`lanes`] the threads of SQL, [`sql`] turns text into a plan, and [`ask`] asks, again where nodes are lost meanwhile.

mod ask;
mod bounded;
pub(crate) mod lanes;
pub(crate) mod relative;
mod sql;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use telem_engine::{Clock, Db, SeriesId, SeriesIndex, SeriesKey, Snapshot, Timestamp, Value};
use tokio::task::AbortHandle;

use crate::dist::head::Head;
use crate::dist::{Members, Wire, WorkerService};
use crate::error::Result;
use crate::leaf::LeafContext;
use crate::plan;
use crate::question::TsQuery;
use crate::session::Session;
use crate::view::View;
use bounded::{Due, Language, Workers};

/// Limits of queries. [`QueryOptions::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Most queries that run at once; one more waits. 16.
    pub queries_max: usize,
    /// Most queries that wait for one of those to end; one more is Busy at once. 64: the panels
    /// of a dashboard ask together.
    pub queries_waiting_max: usize,
    /// Longest that a query waits for its turn before it is Busy. 5 s.
    pub queue_wait: Duration,
    /// Longest that the queries of one request may take, planning and reading their answers included. 60 s.
    pub deadline: Duration,
    /// Memory that all queries share. 512 MiB.
    pub memory_bytes_max: usize,
    /// Most samples that a query without pushed-down aggregation may bring to the head. 50 million.
    pub points_max: u64,
    /// Most values (groups times times) in the answer of a time-series query. 10 million.
    pub answer_values_max: u64,
    /// Most questions in SQL that go on after their time, because their code does not come to an end; beyond that no
    /// SQL is taken until one of them does. 8.
    pub left_behind_max: usize,
    /// Threads that execute plans: of all time series together, and of each question in SQL. As many as the machine
    /// runs at once, 8 at most.
    pub threads: usize,
    /// Whether a question that not every node answers is an error. No.
    pub strict: bool,
    /// Nodes whose databases are not there to be asked, and why: every answer lacks them. None.
    pub absent: Vec<MissingNode>,
    /// Up to so many nodes send their parts of an answer straight to the head; more are reduced in a tree. 16.
    pub flat_max: usize,
    /// Most tasks that run on nodes at once, of all queries together; a query that would be past that waits for its
    /// turn. 4,096: three queries over a thousand nodes.
    pub tasks_max: usize,
    pub clock: Arc<dyn Clock>,
}

impl QueryOptions {
    /// The defaults.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            queries_max: 16,
            queries_waiting_max: 64,
            queue_wait: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
            memory_bytes_max: 512 << 20,
            points_max: 50_000_000,
            answer_values_max: 10_000_000,
            left_behind_max: 8,
            threads: cores.min(8),
            strict: false,
            absent: Vec::new(),
            flat_max: 16,
            tasks_max: 4_096,
            clock,
        }
    }
}

/// A node that did not answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingNode {
    pub node: String,
    pub reason: String,
}

/// The answer to a [`TsQuery`].
#[derive(Clone, Debug, Default)]
pub struct TsAnswer {
    /// In canonical order of the group's tags.
    pub groups: Vec<TsGroup>,
    pub missing: Vec<MissingNode>,
}

/// One line of a graph.
#[derive(Clone, Debug)]
pub struct TsGroup {
    /// Tags on which all series of the group that carry the key agree.
    pub tags: BTreeMap<String, String>,
    /// Keys on which they differ, sorted.
    pub aggregate_tags: Vec<String>,
    /// The series behind the group, in canonical order.
    pub series: Vec<SeriesKey>,
    /// Ascending in time, within start..=end. A gap that a fill policy filled is `Float(NaN)`.
    pub points: Vec<(Timestamp, Value)>,
}

/// The newest samples of series.
#[derive(Clone, Debug, Default)]
pub struct LastAnswer {
    /// In the order of the question; a series without samples is left out.
    pub samples: Vec<(SeriesKey, Timestamp, Value)>,
    pub missing: Vec<MissingNode>,
}

/// In which order the rows of an answer to SQL come where the question does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// In any: all threads work on it at once.
    #[default]
    Any,
    /// As samples are stored: metric by metric, of each its series in canonical order, of each its samples by
    /// time. One thread works on it, and nothing is sorted or held.
    Stored,
}

/// The answer to SQL, produced while it is read; dropping it cancels the query.
pub struct SqlAnswer {
    /// Its errors are [`crate::Error`]s on their way through DataFusion: `crate::Error::from` finds them.
    pub batches: SendableRecordBatchStream,
    pub missing: Vec<MissingNode>,
}

impl std::fmt::Debug for SqlAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { batches, missing } = self;
        f.debug_struct("SqlAnswer").field("schema", &batches.schema()).field("missing", missing).finish()
    }
}

/// Queries since the start, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Those that found a place among the running ones.
    pub admitted: u64,
    /// Those that found none in time.
    pub refused: u64,
    /// Those that run now.
    pub running: u64,
    /// Those in SQL whose time is over, and whose code has not come to its end.
    pub left_behind: u64,
    /// What is read from our own database now: for these, and for those of heads.
    pub leaves: u64,
}

/// Answers questions about one database. Clones share its threads and limits.
#[derive(Clone, Debug)]
pub struct Queries {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    db: Db,
    options: QueryOptions,
    session: Session,
    /// Who asks other nodes; `None` where there are none.
    head: Option<Arc<Head>>,
    /// Who answers other heads.
    worker: Option<WorkerService>,
    /// Ends what goes on behind questions.
    background: Option<AbortHandle>,
    workers: Workers,
}

impl Drop for Inner {
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
        let inner = Inner { db, options, session, head: None, worker: None, background: None, workers };
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
        Ok(Self { inner: Arc::new(Inner { db, options, session, head, worker, background, workers }) })
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

    /// The newest sample of each of these series of [`Queries::index`].
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn last(&self, series: Vec<SeriesId>) -> Result<LastAnswer> {
        let inner = &self.inner;
        let ticket = inner.workers.admit(Language::TimeSeries, inner.workers.due()).await?;
        let context = self.leaf_context();
        let (inner, stop, due) = (Arc::clone(inner), context.stop.clone(), ticket.due());
        let answered = async move { ask::last(&inner, context, &series, due).await };
        let mut answer: LastAnswer = self.inner.workers.run(ticket, stop, answered).await?;
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
        let ticket = inner.workers.admit(Language::Sql, inner.workers.due()).await?;
        let context = self.leaf_context();
        let (stop, missing) = (context.stop.clone(), Arc::new(Mutex::new(Vec::new())));
        let question =
            ask::Question { text: text.to_owned(), order, context, due: ticket.due(), missing: Arc::clone(&missing) };
        let asked = ask::sql(Arc::clone(inner), question);
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
        let ticket = self.inner.workers.admit(Language::Sql, self.inner.workers.due()).await?;
        let context = self.leaf_context();
        let (inner, stop, text) = (Arc::clone(&self.inner), context.stop.clone(), text.to_owned());
        let explained = async move { ask::explain(&inner, &context, &text).await };
        self.inner.workers.run_on_lane(ticket, stop, explained)?.await
    }

    /// The memory that queries hold.
    #[cfg(test)]
    pub(crate) fn memory_reserved(&self) -> usize {
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

    fn leaf_context(&self) -> LeafContext {
        LeafContext::counted(self.inner.db.snapshot(), self.inner.workers.reading())
    }
}

/// Questions of one request, asked one after another: together they have the time of one query, and they
/// see one state of the database.
#[derive(Debug)]
pub struct Round {
    queries: Queries,
    snapshot: Snapshot,
    due: Due,
}

impl Round {
    /// What can be known to be wrong with `query` before it is answered.
    ///
    /// # Errors
    /// Invalid, UnknownName.
    pub fn check(&self, query: &TsQuery) -> Result<()> {
        plan::check(query, &self.queries.inner.view(self.snapshot.clone()))
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn timeseries(&self, query: TsQuery) -> Result<TsAnswer> {
        let inner = &self.queries.inner;
        let ticket = inner.workers.admit(Language::TimeSeries, self.due).await?;
        let context = LeafContext::counted(self.snapshot.clone(), inner.workers.reading());
        let (inner, stop, due) = (Arc::clone(inner), context.stop.clone(), ticket.due());
        let answered = async move { ask::timeseries(&inner, context, &query, due).await };
        let mut answer: TsAnswer = self.queries.inner.workers.run(ticket, stop, answered).await?;
        answer.missing.extend_from_slice(&self.queries.inner.options.absent);
        Ok(answer)
    }
}

impl Inner {
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
