//! Where queries run, and what bounds them: how many at once, for how long, and only as long as a client waits.
//!
//! Time-series queries share the threads of queries, because their code yields its thread again and again. SQL may be
//! busy with code that does not yield, so each SQL query has a lane of its own ([`crate::lanes`]) and is watched from
//! the shared threads ([`super::watch`]). When its time is over its place is free again, whatever its lane still does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, timeout_at};

use super::places::QueryPlaces;
use super::watch::{HeldLane, LaneHold, LaneWatch};
use crate::error::{Error, Result};
use crate::lanes::{BLOCKING_THREADS_MAX, Lanes, NICENESS, STACK_BYTES};
use crate::leaf::{LeafThread, Reading, SpareCores, Stop};
use crate::options::{QueryOptions, QueryStats};

/// Batches made ahead of a client that reads slowly.
const ANSWER_BATCHES: usize = 2;
/// Of the queries at once one of so many places is for time series alone, whatever runs in SQL.
pub(crate) const TIME_SERIES_SHARE: usize = 4;

#[derive(Debug)]
pub(super) struct Workers {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    watch: Arc<LaneWatch>,
    running: Arc<Semaphore>,
    /// Those of them that SQL may have: it never takes the last quarter from time series.
    running_sql: Arc<Semaphore>,
    waiting: Semaphore,
    running_max: usize,
    queue_wait: Duration,
    deadline: Duration,
    admitted: AtomicU64,
    refused: AtomicU64,
    reading: Reading,
    spare: SpareCores,
}

/// A query's place among those that run, and when it must be done.
#[derive(Debug)]
pub(super) struct Ticket {
    places: QueryPlaces,
    due: QueryDeadline,
}

/// In which language a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryLanguage {
    TimeSeries,
    Sql,
}

/// When queries must be done, and how long that was when they began.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryDeadline {
    pub(super) at: Instant,
    pub(super) after: Duration,
}

impl Ticket {
    pub(super) fn due(&self) -> QueryDeadline {
        self.due
    }
}

impl Workers {
    /// What SQL makes is counted in `pool`.
    pub(super) fn new(options: &QueryOptions, pool: Arc<dyn MemoryPool>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("telem-query")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(|| {
                // Of this thread only: that is what "this process" means to Linux here. Where it
                // is refused queries are merely less polite.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .enable_time()
            // Nodes are asked from here.
            .enable_io()
            .build()
            .map_err(|source| Error::Threads { source })?;
        let running_max = options.queries_max.max(1);
        let lanes = Arc::new(Lanes::new(options, pool));
        Ok(Self {
            watch: Arc::new(LaneWatch::new(lanes, runtime.handle().clone())),
            runtime: Some(runtime),
            running: Arc::new(Semaphore::new(running_max)),
            running_sql: Arc::new(Semaphore::new(running_max - running_max / TIME_SERIES_SHARE)),
            waiting: Semaphore::new(options.queries_waiting_max),
            running_max,
            queue_wait: options.queue_wait,
            deadline: options.deadline,
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reading: Reading::default(),
            spare: SpareCores::of(options.threads.max(1), Arc::clone(&options.clock)),
        })
    }

    pub(super) fn stats(&self) -> QueryStats {
        QueryStats {
            admitted: self.admitted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            running: self.running_max.saturating_sub(self.running.available_permits()) as u64,
            left_behind: self.watch.lanes().left_behind() as u64,
            leaves: self.reading.leaves(),
        }
    }

    /// Counts the leaves of all queries.
    pub(super) fn reading(&self) -> Reading {
        self.reading.clone()
    }

    /// The cores that no query uses.
    pub(super) fn spare(&self) -> SpareCores {
        self.spare.clone()
    }

    /// The threads that SQL has to itself.
    pub(super) fn lanes(&self) -> Arc<Lanes> {
        Arc::clone(self.watch.lanes())
    }

    /// The threads of queries, for what else is to give way to the job.
    pub(super) fn threads(&self) -> Handle {
        self.runtime().handle().clone()
    }

    /// The deadline of what begins now.
    pub(super) fn due(&self) -> QueryDeadline {
        QueryDeadline { at: now() + self.deadline, after: self.deadline }
    }

    /// Waits for a place among the queries that run.
    ///
    /// # Errors
    /// Busy when too many wait already, none ends in time, or too much SQL outlived its question; Deadline when that is
    /// over before it begins.
    pub(super) async fn admit(&self, language: QueryLanguage, due: QueryDeadline) -> Result<Ticket> {
        // Whether a short one would still be done before anybody looks at the time is chance.
        if now() >= due.at {
            return Err(Error::Deadline { after: due.after });
        }
        let admitted = self.places(language, due).await;
        let counter = if admitted.is_ok() { &self.admitted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { places: admitted?, due })
    }

    async fn places(&self, language: QueryLanguage, due: QueryDeadline) -> Result<QueryPlaces> {
        if language == QueryLanguage::Sql && self.watch.lanes().are_exhausted() {
            return Err(Error::LeftBehind { count: self.watch.lanes().left_behind() });
        }
        let too_many = || Error::TooManyQueries { running: self.running_max };
        let at_once = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let places = match language {
            QueryLanguage::TimeSeries => at_once(&self.running).map(|running| (running, None)),
            QueryLanguage::Sql => at_once(&self.running_sql).and_then(|sql| Some((at_once(&self.running)?, Some(sql)))),
        };
        if let Some((_running, _running_sql)) = places {
            return Ok(QueryPlaces { _running, _running_sql, _counted: self.spare.begin() });
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| too_many())?;
        let waited = async {
            let _running_sql = match language {
                QueryLanguage::TimeSeries => None,
                QueryLanguage::Sql => Some(Arc::clone(&self.running_sql).acquire_owned().await.ok()?),
            };
            let _running = Arc::clone(&self.running).acquire_owned().await.ok()?;
            Some(QueryPlaces { _running, _running_sql, _counted: self.spare.begin() })
        };
        let until = due.at.min(now() + self.queue_wait);
        timeout_at(until, waited).await.ok().flatten().ok_or_else(too_many)
    }

    /// Does `work` on the threads that time series share, or where its leaves read on the thread of the query, on one
    /// that may block. Dropping what is returned stops it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        ticket: Ticket,
        stop: Stop,
        thread: LeafThread,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> RunningQuery<T> {
        let Ticket { places, due } = ticket;
        let (wanted, unwanted) = oneshot::channel::<()>();
        let stopped_at_the_end = StopAtEnd(stop.clone());
        let bounded = async move {
            let _held = (places, stopped_at_the_end);
            timeout_at(due.at, work).await.unwrap_or(Err(Error::Deadline { after: due.after }))
        };
        let task = match thread {
            LeafThread::OfItsOwn => self.runtime().spawn(bounded),
            LeafThread::OfTheQuery => {
                let threads = self.threads();
                // What blocks cannot be aborted.
                let wanted = async move {
                    tokio::select! {
                        done = bounded => done,
                        _ = unwanted => Err(Error::ShuttingDown),
                    }
                };
                self.runtime().spawn_blocking(move || threads.block_on(wanted))
            }
        };
        let sleep = Box::pin(tokio::time::sleep_until(due.at));
        RunningQuery { task, due, sleep, stop, _wanted: Wanted::OnThreads { _wanted: wanted } }
    }

    /// Does `work`, which may not yield, on a lane of its own. Dropping what is returned stops it, as far as it can be
    /// stopped.
    ///
    /// # Errors
    /// Threads, where no more can be started.
    pub(super) fn run_on_lane<T: Send + 'static>(
        &self,
        ticket: Ticket,
        stop: Stop,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<RunningQuery<T>> {
        let Ticket { places, due } = ticket;
        let lane = self.watch.lanes().take()?;
        let stopped_at_the_end = StopAtEnd(stop.clone());
        let bounded = async move {
            let _held = stopped_at_the_end;
            let late = || Error::Deadline { after: due.after };
            let done = timeout_at(due.at, work).await.unwrap_or_else(|_| Err(late()));
            // A query that is told to stop ends with an error of its own.
            done.map_err(|error| if now() < due.at { error } else { late() })
        };
        let task = lane.handle().spawn(bounded);
        let (ending, leaves) = (task.abort_handle(), stop.clone());
        let held =
            self.watch.hold(HeldLane { lane, places, ending, leaves, begun: now(), due: due.at, gave_way: false });
        let sleep = Box::pin(tokio::time::sleep_until(due.at));
        Ok(RunningQuery { task, due, sleep, stop, _wanted: Wanted::OnLane { _held: held } })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime is taken only when the workers are dropped")
    }

    /// Plans and executes on a lane, and hands the answer out batch by batch: one of few rows at once, if it comes to its
    /// end without waiting for anything.
    pub(super) async fn stream(
        &self,
        ticket: Ticket,
        stop: Stop,
        planned: impl Future<Output = Result<StartedAnswer>> + Send + 'static,
    ) -> Result<SendableRecordBatchStream> {
        let (begin, begun) = oneshot::channel();
        let due = ticket.due;
        let running = self.run_on_lane(ticket, stop, async move {
            let StartedAnswer { mut batches, is_little } = planned.await?;
            let mut answer = AnswerBegin { schema: batches.schema(), first: Vec::new(), is_whole: false, rest: None };
            let mut failed = Ok(());
            while is_little && !answer.is_whole && answer.first.len() < ANSWER_BATCHES {
                match batches.next().now_or_never() {
                    Some(None) => answer.is_whole = true,
                    Some(Some(Ok(batch))) => answer.first.push(batch),
                    Some(Some(Err(error))) => {
                        failed = Err(error);
                        break;
                    }
                    None => break,
                }
            }
            if answer.is_whole {
                let _ = begin.send(answer);
                return Ok(());
            }
            let (batches_out, batches_in) = mpsc::channel(ANSWER_BATCHES);
            answer.rest = Some(batches_in);
            if begin.send(answer).is_err() {
                return Ok(());
            }
            failed?;
            while let Some(batch) = batches.next().await {
                if batches_out.send(batch?).await.is_err() {
                    break;
                }
            }
            Ok(())
        })?;
        match timeout_at(due.at, begun).await {
            Ok(Ok(AnswerBegin { schema, first, is_whole, rest })) => {
                // Of an answer that is whole nothing runs any more.
                let running = (!is_whole).then_some(running);
                Ok(Box::pin(AnswerStream { schema, first: first.into_iter(), rest, running }))
            }
            // The task ended before there was a plan to execute; its result says why.
            Ok(Err(_)) => match running.await {
                Err(error) => Err(error),
                Ok(()) => Err(Error::Internal("a query ended without an answer".to_owned())),
            },
            Err(_) => Err(Error::Deadline { after: due.after }),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.watch.clear();
        // A runtime may not be waited for where other async code runs, and need not be: queries
        // only read.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn now() -> Instant {
    // Tokio's clock, which its timers follow; tests may pause it.
    Instant::now()
}

/// A query at work on the other threads.
pub(super) struct RunningQuery<T> {
    task: JoinHandle<Result<T>>,
    due: QueryDeadline,
    sleep: Pin<Box<Sleep>>,
    stop: Stop,
    _wanted: Wanted,
}

/// Tells when nobody waits for a query any more, by being dropped.
enum Wanted {
    /// What cannot be aborted.
    OnThreads {
        _wanted: oneshot::Sender<()>,
    },
    OnLane {
        _held: LaneHold,
    },
}

impl<T> Future for RunningQuery<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.task.poll_unpin(cx) {
            Poll::Ready(Ok(result)) => Poll::Ready(result),
            Poll::Ready(Err(error)) if error.is_panic() => {
                let panic = error.into_panic();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
                tracing::error!(panic = text, "a query panicked");
                Poll::Ready(Err(Error::Internal(format!("the query panicked: {text}"))))
            }
            // The watcher of a lane ends overdue work, and may have come first.
            Poll::Ready(Err(_)) if now() >= self.due.at => Poll::Ready(Err(Error::Deadline { after: self.due.after })),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Error::ShuttingDown)),
            Poll::Pending => match self.sleep.poll_unpin(cx) {
                Poll::Ready(()) => Poll::Ready(Err(Error::Deadline { after: self.due.after })),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<T> Drop for RunningQuery<T> {
    fn drop(&mut self) {
        self.stop.ask();
        self.task.abort();
    }
}

/// Lets the leaves go however the task ends.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// An answer that is executed from here on.
pub(super) struct StartedAnswer {
    pub batches: SendableRecordBatchStream,
    /// Whether it is of so few rows that all of it is made on one thread.
    pub is_little: bool,
}

/// An answer that begins.
struct AnswerBegin {
    schema: SchemaRef,
    first: Vec<RecordBatch>,
    /// Whether these are all of it.
    is_whole: bool,
    rest: Option<mpsc::Receiver<RecordBatch>>,
}

/// The answer as it is made; how the query ended is its last item.
struct AnswerStream {
    schema: SchemaRef,
    first: std::vec::IntoIter<RecordBatch>,
    rest: Option<mpsc::Receiver<RecordBatch>>,
    /// Taken when it is over; `None` of an answer that is whole.
    running: Option<RunningQuery<()>>,
}

impl Stream for AnswerStream {
    type Item = datafusion::error::Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(batch) = self.first.next() {
            return Poll::Ready(Some(Ok(batch)));
        }
        let Some(mut running) = self.running.take() else { return Poll::Ready(None) };
        let next = self.rest.as_mut().map_or(Poll::Ready(None), |rest| rest.poll_recv(cx));
        let over = match next {
            Poll::Ready(Some(batch)) => {
                self.running = Some(running);
                return Poll::Ready(Some(Ok(batch)));
            }
            Poll::Ready(None) => running.poll_unpin(cx),
            // Nothing yet: only the deadline can end it now.
            Poll::Pending => running.sleep.poll_unpin(cx).map(|()| Err(Error::Deadline { after: running.due.after })),
        };
        match over {
            Poll::Ready(Ok(())) => Poll::Ready(None),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(DataFusionError::External(Box::new(error))))),
            Poll::Pending => {
                self.running = Some(running);
                Poll::Pending
            }
        }
    }
}

impl RecordBatchStream for AnswerStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
