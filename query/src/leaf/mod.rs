//! The one leaf of every plan: a request to the node that owns the data, and its answer as batches.
//!
//! The request of a leaf is plain data ([`Request`]), so that it can cross a network. The snapshot that it reads is
//! found where it is executed, in the task's configuration ([`LeafContext`]). The head fixes the schema when it plans,
//! and the owner answers with exactly that schema.

mod exec;
pub mod names;
pub(crate) mod numbers;
pub mod rows;
pub mod series;
mod spare;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use telem_engine::{SeriesByJob, SeriesId, Snapshot, TimeRange};

pub use exec::{NodeLeafExec, Owner};
pub use numbers::KnownSeries;
pub use rows::RowsRequest;
pub use series::SeriesRequest;
pub use spare::SpareCores;
pub(crate) use spare::{LentCore, RunningQuestion};

/// What is asked of the node that owns the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Samples, or what is known about series, as rows of a table.
    Rows(RowsRequest),
    /// The series of a time-series query, worked on one by one.
    Series(SeriesRequest),
}

/// The type of every time in this crate.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// The answer of a leaf. An error is its last item.
pub type Batches = Box<dyn Iterator<Item = datafusion::error::Result<RecordBatch>> + Send>;

impl Request {
    /// One word for EXPLAIN.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Rows(_) => "Rows",
            Request::Series(_) => "Series",
        }
    }

    /// Answers `part` of the request in batches of exactly `schema`. Runs on a thread that may block.
    pub fn batches(&self, context: &LeafContext, schema: &SchemaRef, part: Part) -> Batches {
        match self {
            Request::Rows(request) => request.batches(context, schema, part),
            Request::Series(request) => request.batches(context, schema, part),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Rows(request) => request.fmt(f),
            Request::Series(request) => request.fmt(f),
        }
    }
}

/// What a task carries for the leaves that are executed in it: one snapshot a query, so that
/// all leaves of one query see the same samples.
#[derive(Clone, Debug)]
pub struct LeafContext {
    pub snapshot: Snapshot,
    /// Whose samples alone those are, where jobs are told apart.
    pub job: Option<JobOfRows>,
    /// Where series have their job as a tag: then the snapshot knows their names alone, and this their samples.
    pub by_job: Option<Arc<SeriesByJob>>,
    /// Checked between series: whether a client still waits for the answer.
    pub stop: Stop,
    /// The series that the head knows by number.
    pub told: Option<KnownSeries>,
    /// Those that a time-series query selects, where the head found them in this snapshot.
    pub selected: Option<Arc<[SeriesId]>>,
    /// Where leaves are counted while they read.
    pub reading: Reading,
    pub thread: LeafThread,
    /// Those that may work on a leaf beside its thread.
    pub spare: SpareCores,
}

/// On which thread a leaf reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafThread {
    /// Each part on one of its own: whoever waits for it may not block.
    #[default]
    OfItsOwn,
    /// A leaf of one part on that of the query, which may block: so little is asked that handing it over costs more.
    OfTheQuery,
}

/// The job of all rows, where jobs are told apart.
#[derive(Clone, Debug)]
pub struct JobOfRows {
    pub job: Arc<str>,
    /// When the samples of the snapshot are its own: ascending, without overlap.
    pub ranges: Arc<[TimeRange]>,
}

impl JobOfRows {
    /// Whether all samples of the snapshot are its own.
    pub fn is_always(&self) -> bool {
        *self.ranges == [TimeRange::ALL]
    }
}

impl LeafContext {
    pub fn new(snapshot: Snapshot) -> Self {
        Self::counted(snapshot, Reading::default())
    }

    /// One whose leaves are counted with those of other queries.
    pub fn counted(snapshot: Snapshot, reading: Reading) -> Self {
        Self {
            snapshot,
            job: None,
            by_job: None,
            stop: Stop::default(),
            told: None,
            selected: None,
            reading,
            thread: LeafThread::default(),
            spare: SpareCores::default(),
        }
    }
}

/// How many leaves read now. Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    leaves: Arc<AtomicU64>,
}

impl Reading {
    pub fn leaves(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed)
    }

    /// One more, until what this returns is dropped.
    fn begin(&self) -> LeafRead {
        self.leaves.fetch_add(1, Ordering::Relaxed);
        LeafRead(self.clone())
    }
}

/// A leaf that reads.
struct LeafRead(Reading);

impl Drop for LeafRead {
    fn drop(&mut self) {
        self.0.leaves.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells the leaves of one query that no client waits any longer: the client went away, or the deadline passed. Clones
/// share one state.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// What this is a part of.
    whole: Option<Arc<AtomicBool>>,
}

impl Stop {
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    pub fn is_asked(&self) -> bool {
        let asked = |stop: &AtomicBool| stop.load(Ordering::Relaxed);
        asked(&self.asked) || self.whole.as_deref().is_some_and(asked)
    }

    /// One for a part of the work, which ends with the whole or before.
    #[must_use]
    pub fn of_its_own(&self) -> Stop {
        Stop { asked: Arc::default(), whole: Some(Arc::clone(self.whole.as_ref().unwrap_or(&self.asked))) }
    }
}

/// What a leaf ends with that was asked to stop.
fn stopped() -> DataFusionError {
    DataFusionError::Execution("the query was stopped".to_owned())
}

/// Which of the partitions of a leaf: `index` of `count`. A leaf's partitions together answer
/// its request exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub index: usize,
    pub count: usize,
}

impl Part {
    pub const WHOLE: Part = Part { index: 0, count: 1 };

    /// This part's stretch of `items`: all parts are as even as can be, and in order.
    pub fn of<T>(self, items: &[T]) -> &[T] {
        let cut = |at: usize| items.len() * at / self.count.max(1);
        &items[cut(self.index)..cut(self.index + 1)]
    }
}
