//! The answers to queries, in the form in which callers get them.

use datafusion::execution::SendableRecordBatchStream;
use telem_engine::{SeriesKey, TagSet, Timestamp, Value};

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
    pub tags: TagSet,
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

/// Takes the rows of a fold while they are made, so that nobody holds all of them.
pub trait FoldSink: Send + 'static {
    /// Forgets all that came: the question is asked again, of fewer nodes.
    fn clear(&mut self);

    /// Takes in some buckets of a line; false where no more are wanted.
    fn take(&mut self, rows: &FoldedRows<'_>) -> bool;
}

/// Buckets of one line. One that comes twice is to be added up.
#[derive(Debug)]
pub struct FoldedRows<'a> {
    /// The tags that make lines, by key; of each the value, if its series have it.
    pub tags: &'a [(&'a str, Option<&'a str>)],
    pub times: &'a [Timestamp],
    /// Of all samples of a bucket that are numbers.
    pub sums: &'a [f64],
    pub counts: &'a [u64],
    /// NaN where a row only adds to the sum of another.
    pub least: &'a [f64],
    pub greatest: &'a [f64],
}
