//! The way in for questions: bounded in number, time and memory, cancelled when nobody waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use telem_engine::{Clock, Db, SeriesKey, Timestamp, Value};

use crate::error::Result;
use crate::tsq::TsQuery;

/// Limits of queries.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Most queries that run at once; one more is Busy.
    pub queries_max: usize,
    /// Longest that one query may take.
    pub deadline: Duration,
    /// Memory that all queries share.
    pub memory_bytes_max: usize,
    /// Most samples that a query without pushed-down aggregation may bring to the head.
    pub points_max: u64,
    /// Most values (groups times times) in the answer of a time-series query.
    pub answer_values_max: u64,
    /// Threads that execute plans.
    pub threads: usize,
    pub clock: Arc<dyn Clock>,
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

/// The answer to SQL, produced while it is read; dropping it cancels the query.
pub struct SqlAnswer {
    pub batches: SendableRecordBatchStream,
    pub missing: Vec<MissingNode>,
}

/// Answers questions about one database.
#[derive(Clone, Debug)]
pub struct Queries {
    db: Db,
    options: QueryOptions,
}

impl Queries {
    /// # Errors
    /// Unavailable when the threads that execute plans cannot be started.
    pub fn new(db: Db, options: QueryOptions) -> Result<Self> {
        Ok(Self { db, options })
    }

    pub fn options(&self) -> &QueryOptions {
        &self.options
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn timeseries(&self, query: TsQuery) -> Result<TsAnswer> {
        Err(crate::Error::Invalid(format!("no answer yet for {}", query.metric)))
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn sql(&self, text: &str) -> Result<SqlAnswer> {
        Err(crate::Error::Invalid(format!("no answer yet for {text}")))
    }
}
