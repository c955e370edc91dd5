//! The batches that wait to be appended, bounded in samples and in batches.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use telem_engine::{Durability, SampleBatch};

use super::{Ack, WriteError};

#[derive(Debug)]
pub(super) struct WriteJob {
    pub batch: SampleBatch,
    pub durability: Durability,
    /// No client would send it again.
    pub keep: bool,
    pub ack: Ack,
}

#[derive(Debug)]
pub(super) struct Queue {
    samples_max: usize,
    batches_max: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<WriteJob>,
    /// Of all jobs together.
    samples: usize,
    closed: bool,
}

impl Queue {
    pub fn new(samples_max: usize, batches_max: usize) -> Self {
        Self { samples_max, batches_max, waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// # Errors
    /// Busy, TooLarge or Stopped; the job is dropped.
    pub fn push(&self, job: WriteJob) -> Result<(), WriteError> {
        let samples = job.batch.len();
        if samples > self.samples_max {
            return Err(WriteError::TooLarge { samples, max: self.samples_max });
        }
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(WriteError::Stopped);
        }
        let batches = waiting.jobs.len();
        if batches >= self.batches_max {
            let (what, option) = ("batches", "queue_batches_max");
            return Err(WriteError::Busy { what, waiting: batches, max: self.batches_max, option });
        }
        if waiting.samples + samples > self.samples_max {
            let (what, option) = ("samples", "queue_samples_max");
            return Err(WriteError::Busy { what, waiting: waiting.samples, max: self.samples_max, option });
        }
        waiting.samples += samples;
        waiting.jobs.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// The next job, once there is one; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<WriteJob> {
        let waiting = self.lock();
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.closed;
        let mut waiting = self.changed.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        let job = waiting.jobs.pop_front()?;
        waiting.samples -= job.batch.len();
        Some(job)
    }

    /// Of all jobs that wait.
    pub fn waiting_samples(&self) -> usize {
        self.lock().samples
    }

    /// Later pushes fail; what waits is still handed out.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub fn clear(&self) {
        let mut waiting = self.lock();
        waiting.jobs.clear();
        waiting.samples = 0;
    }

    /// No code panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
