//! The process of a job at the other end of a connection, or of one request.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use telem_ingest::default_tags::DefaultTags;

use super::{JobId, JobSlots, ProcessMark};
use crate::http;

/// What a connection says of its job.
#[derive(Debug)]
pub struct JobTie {
    id: JobId,
    process: Option<ProcessMark>,
    /// From the first sample on.
    seat: Mutex<Option<JobSeat>>,
}

impl JobTie {
    pub fn new(id: JobId, process: Option<ProcessMark>) -> Self {
        Self { id, process, seat: Mutex::default() }
    }
}

/// A connection of a job that runs, until it is dropped.
#[derive(Debug)]
struct JobSeat {
    slots: Arc<JobSlots>,
    id: JobId,
}

impl JobSeat {
    fn take(slots: &Arc<JobSlots>, tie: &JobTie) -> Option<Self> {
        let mut jobs = slots.lock();
        let job = jobs.get_mut(&tie.id)?;
        job.connections += 1;
        job.process = tie.process.or(job.process);
        Some(Self { slots: Arc::clone(slots), id: tie.id.clone() })
    }
}

impl Drop for JobSeat {
    fn drop(&mut self) {
        let now = self.slots.now();
        if let Some(job) = self.slots.lock().get_mut(&self.id) {
            job.connections = job.connections.saturating_sub(1);
            if job.phase == super::JobPhase::Running {
                job.touch(now);
            }
        }
    }
}

/// The sender of a request, where jobs share the server.
#[derive(Clone, Debug)]
pub struct JobCaller {
    slots: Arc<JobSlots>,
    id: JobId,
    tie: Option<Arc<JobTie>>,
}

impl JobCaller {
    /// Of one request, by its header.
    pub fn named(slots: &Arc<JobSlots>, id: JobId) -> Self {
        Self { slots: Arc::clone(slots), id, tie: None }
    }

    /// Of every request of a connection.
    pub fn tied(slots: &Arc<JobSlots>, tie: &Arc<JobTie>) -> Self {
        Self { slots: Arc::clone(slots), id: tie.id.clone(), tie: Some(Arc::clone(tie)) }
    }

    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Whether it is the job of the server itself, which has no slot.
    pub fn is_servers_own(&self) -> bool {
        self.slots.is_own(&self.id)
    }

    pub fn slots(&self) -> &Arc<JobSlots> {
        &self.slots
    }

    /// The slot of what it sends now: its job begins with that, unless it runs. `None` where it can have none.
    pub async fn slot(&self) -> Option<u32> {
        self.slot_once_free(Vec::new()).await
    }

    /// The same, once the slots are free of these jobs, which are over.
    pub async fn slot_once_free(&self, over: Vec<JobId>) -> Option<u32> {
        let slot = match self.slots.hear(&self.id) {
            Some(slot) if over.is_empty() => slot,
            _ => {
                let caller = self.clone();
                // A job that begins is written down, and who ends one waits for a disk.
                let begun = tokio::task::spawn_blocking(move || {
                    over.iter().for_each(|id| caller.slots.release(id));
                    caller.begin()
                });
                begun.await.ok().flatten()?
            }
        };
        if let Some(tie) = &self.tie {
            let mut seat = tie.seat.lock().unwrap_or_else(PoisonError::into_inner);
            if seat.is_none() {
                *seat = JobSeat::take(&self.slots, tie);
            }
        }
        Some(slot)
    }

    /// The same without a seat, on a thread that may wait for a disk.
    pub fn begin(&self) -> Option<u32> {
        self.slots.begin(&self.id, self.tie.as_ref().and_then(|tie| tie.process))
    }
}

/// What the samples of a request get where they lack it. Whoever asks stores them: where jobs share the server, the job of
/// the request begins with that.
pub fn tags_of(request: &Request) -> impl Future<Output = DefaultTags> + Send + use<> {
    let (tags, job) = (http::default_tags(request), request.extensions().get::<JobCaller>().cloned());
    async move {
        match job {
            Some(job) => tags.in_slot(job.slot().await),
            None => tags,
        }
    }
}
