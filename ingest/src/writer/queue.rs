//! The batches that wait to be appended, bounded in samples and in batches.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use telem_engine::{Durability, SampleBatch};
use tokio::sync::Notify;

use super::{Ack, WriteError};

/// Of the room of the queue, those that wait for room leave one part of so many to those that do not.
pub const OTHERS_SHARE: usize = 4;

#[derive(Debug)]
pub(super) struct WriteJob {
    pub batch: SampleBatch,
    pub durability: Durability,
    pub patience: Patience,
    pub ack: Ack,
}

/// What becomes of a batch that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It is refused.
    None,
    /// It waits, and what comes behind it.
    Waits,
    /// It is kept aside: no client would send it again.
    Kept,
}

#[derive(Debug)]
pub(super) struct Queue {
    samples_max: usize,
    batches_max: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Told when a job was taken, and when the queue was closed.
    room: Notify,
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
        Self { samples_max, batches_max, waiting: Mutex::default(), changed: Condvar::new(), room: Notify::new() }
    }

    /// # Errors
    /// Busy, TooLarge or Stopped; the job is dropped.
    pub fn push(&self, job: WriteJob) -> Result<(), WriteError> {
        self.put(self.lock(), job)
    }

    fn put(&self, mut waiting: MutexGuard<'_, Waiting>, job: WriteJob) -> Result<(), WriteError> {
        let samples = job.batch.len();
        if samples > self.samples_max {
            return Err(WriteError::TooLarge { samples, max: self.samples_max });
        }
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

    /// As [`Queue::push`], but where others leave no room it waits for it. To those that do not wait it leaves one part
    /// of the room: see [`OTHERS_SHARE`].
    ///
    /// # Errors
    /// TooLarge or Stopped.
    pub async fn push_patiently(&self, mut job: WriteJob) -> Result<(), WriteError> {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Before it is looked: what is told meanwhile counts.
            room.as_mut().enable();
            match self.try_patiently(job) {
                Ok(pushed) => return pushed,
                Err(waits) => job = waits,
            }
            room.await;
        }
    }

    /// Gives the job back where it has to wait for room.
    fn try_patiently(&self, job: WriteJob) -> Result<Result<(), WriteError>, WriteJob> {
        let (room, samples) = (|max: usize| max - max / OTHERS_SHARE, job.batch.len());
        let waiting = self.lock();
        let has_room =
            waiting.samples + samples <= room(self.samples_max) && waiting.jobs.len() < room(self.batches_max);
        match has_room || waiting.closed || waiting.jobs.is_empty() || samples > self.samples_max {
            true => Ok(self.put(waiting, job)),
            false => Err(job),
        }
    }

    /// The next job, once there is one; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<WriteJob> {
        let waiting = self.lock();
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.closed;
        let mut waiting = self.changed.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        let job = waiting.jobs.pop_front()?;
        waiting.samples -= job.batch.len();
        drop(waiting);
        self.room.notify_waiters();
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
        self.room.notify_waiters();
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
