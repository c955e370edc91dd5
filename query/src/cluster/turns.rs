//! Bounds how many tasks run on nodes at once, over all queries together; beyond that, queries take turns.
//!
//! A node that gets a task waits 10 s for its plan (the engine's `WAIT_PLAN_TIMEOUT_SECS`). A head that sends ten
//! thousand tasks at once may be later than that, and would lose healthy nodes.

use std::sync::Arc;

use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct Turns {
    free: Arc<Semaphore>,
    tasks_max: usize,
}

/// The right to run some tasks, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _tasks: OwnedSemaphorePermit,
}

impl Turns {
    /// For this many tasks at once.
    pub fn new(tasks_max: usize) -> Self {
        let tasks_max = tasks_max.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(tasks_max)), tasks_max }
    }

    /// Waits until `tasks` may run, first come first served. A question of more tasks than are allowed runs alone.
    ///
    /// # Errors
    /// Busy when others do not end until `due`.
    pub async fn wait(&self, tasks: usize, due: Instant) -> Result<Turn> {
        let busy = || Error::TooManyTasks { max: self.tasks_max };
        let tasks = u32::try_from(tasks.min(self.tasks_max)).map_err(|_| busy())?;
        let turn = timeout_at(due, Arc::clone(&self.free).acquire_many_owned(tasks)).await;
        Ok(Turn { _tasks: turn.map_err(|_| busy())?.map_err(|_| busy())? })
    }
}

impl Turn {
    /// The same rows; the turn is over when they are.
    pub fn of(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let mut turn = Some(self);
        // What is over holds nothing, even if it is kept.
        let ended = futures::stream::poll_fn(move |_| {
            turn.take();
            std::task::Poll::Ready(None)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(ended)))
    }
}

#[cfg(test)]
mod tests;
