//! Where queries run, and what bounds them: how many at once, for how long, and only as long as
//! somebody waits.
//!
//! The deadline is watched twice: where the query runs, so that one that nobody reads ends and
//! gives its place back, and where it is waited for, so that the one who asked hears of it even
//! while all threads of queries are busy with something that does not yield.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, timeout_at};

use super::{QueryOptions, QueryStats};
use crate::error::{Error, Result};
use crate::leaf::{Reading, Stop};

/// Threads that may block in the engine at once, all queries together; made when needed. A leaf holds
/// one for each of its parts while it is read: 16 queries of two tables in 8 parts each hold 256.
const BLOCKING_THREADS_MAX: usize = 1_024;
/// Batches made ahead of a client that reads slowly.
const ANSWER_BATCHES: usize = 2;
/// Deep plans recurse deeply, most of all in a debug build.
const STACK_BYTES: usize = 8 << 20;
/// Queries give way to the job and to taking samples in.
const NICENESS: i32 = 10;

#[derive(Debug)]
pub(super) struct Workers {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    running: Arc<Semaphore>,
    waiting: Semaphore,
    running_max: usize,
    queue_wait: Duration,
    deadline: Duration,
    admitted: AtomicU64,
    refused: AtomicU64,
    reading: Reading,
}

/// A query's place among those that run, and when it must be done.
#[derive(Debug)]
pub(super) struct Ticket {
    place: OwnedSemaphorePermit,
    due: Due,
}

/// When queries must be done, and how long that was when they began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) after: Duration,
}

impl Ticket {
    pub(super) fn due(&self) -> Due {
        self.due
    }
}

impl Workers {
    pub(super) fn new(options: &QueryOptions) -> Result<Self> {
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
        Ok(Self {
            runtime: Some(runtime),
            running: Arc::new(Semaphore::new(options.queries_max.max(1))),
            waiting: Semaphore::new(options.queries_waiting_max),
            running_max: options.queries_max.max(1),
            queue_wait: options.queue_wait,
            deadline: options.deadline,
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reading: Reading::default(),
        })
    }

    pub(super) fn stats(&self) -> QueryStats {
        QueryStats {
            admitted: self.admitted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            running: self.running_max.saturating_sub(self.running.available_permits()) as u64,
            leaves: self.reading.leaves(),
        }
    }

    /// Counts the leaves of all queries.
    pub(super) fn reading(&self) -> Reading {
        self.reading.clone()
    }

    /// The threads of queries, for what else is to give way to the job.
    pub(super) fn threads(&self) -> Handle {
        self.runtime.as_ref().expect("the runtime is taken only when the workers are dropped").handle().clone()
    }

    /// The deadline of what begins now.
    pub(super) fn due(&self) -> Due {
        Due { at: now() + self.deadline, after: self.deadline }
    }

    /// Waits for a place among the queries that run.
    ///
    /// # Errors
    /// Busy when too many wait already, or none ends in time.
    pub(super) async fn admit(&self, due: Due) -> Result<Ticket> {
        let admitted = self.place(due).await;
        let counter = if admitted.is_ok() { &self.admitted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        admitted
    }

    async fn place(&self, due: Due) -> Result<Ticket> {
        let too_many = || Error::TooManyQueries { running: self.running_max };
        if let Ok(place) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(Ticket { place, due });
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| too_many())?;
        let until = due.at.min(now() + self.queue_wait);
        match timeout_at(until, Arc::clone(&self.running).acquire_owned()).await {
            Ok(Ok(place)) => Ok(Ticket { place, due }),
            _ => Err(too_many()),
        }
    }

    /// Does `work` on the threads of queries. Dropping what is returned stops it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        ticket: Ticket,
        stop: Stop,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Running<T> {
        let Ticket { place, due } = ticket;
        let stopped_at_the_end = StopAtEnd(stop.clone());
        let bounded = async move {
            let _held = (place, stopped_at_the_end);
            timeout_at(due.at, work).await.unwrap_or(Err(Error::Deadline { after: due.after }))
        };
        let runtime = self.runtime.as_ref().expect("the runtime is taken only when the workers are dropped");
        let task = runtime.spawn(bounded);
        Running { task, due, sleep: Box::pin(tokio::time::sleep_until(due.at)), stop }
    }

    /// Plans and executes on the threads of queries, and hands the answer out batch by batch.
    pub(super) async fn stream(
        &self,
        ticket: Ticket,
        stop: Stop,
        planned: impl Future<Output = Result<SendableRecordBatchStream>> + Send + 'static,
    ) -> Result<SendableRecordBatchStream> {
        let (schema_out, schema_in) = oneshot::channel();
        let (batches_out, batches_in) = mpsc::channel(ANSWER_BATCHES);
        let due = ticket.due;
        let running = self.run(ticket, stop, async move {
            let mut batches = planned.await?;
            if schema_out.send(batches.schema()).is_err() {
                return Ok(());
            }
            while let Some(batch) = batches.next().await {
                if batches_out.send(batch?).await.is_err() {
                    break;
                }
            }
            Ok(())
        });
        match timeout_at(due.at, schema_in).await {
            Ok(Ok(schema)) => Ok(Box::pin(Answer { schema, batches: batches_in, running: Some(running) })),
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
pub(super) struct Running<T> {
    task: JoinHandle<Result<T>>,
    due: Due,
    sleep: Pin<Box<Sleep>>,
    stop: Stop,
}

impl<T> Future for Running<T> {
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
            Poll::Ready(Err(_)) => Poll::Ready(Err(Error::ShuttingDown)),
            Poll::Pending => match self.sleep.poll_unpin(cx) {
                Poll::Ready(()) => Poll::Ready(Err(Error::Deadline { after: self.due.after })),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<T> Drop for Running<T> {
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

/// The answer as it is made; how the query ended is its last item.
struct Answer {
    schema: SchemaRef,
    batches: mpsc::Receiver<RecordBatch>,
    /// Taken when it is over.
    running: Option<Running<()>>,
}

impl Stream for Answer {
    type Item = datafusion::error::Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(mut running) = self.running.take() else { return Poll::Ready(None) };
        let over = match self.batches.poll_recv(cx) {
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

impl RecordBatchStream for Answer {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
