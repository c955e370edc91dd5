//! The answers to queries, in the form in which callers get them.

use std::collections::BTreeMap;

use datafusion::execution::SendableRecordBatchStream;
use telem_engine::{SeriesKey, Timestamp, Value};

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
