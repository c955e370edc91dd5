//! The errors of queries.

pub(crate) mod crossing;
mod datafusion;

use std::time::Duration;

use ::datafusion::error::DataFusionError;
pub use telem_engine::ErrorKind;
use telem_engine::NameKind;

use crate::answer::MissingNode;
use crate::question::aggregator::UnknownAggregator;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The question is wrong: the text says what, where, found against expected.
    #[error("{0}")]
    Invalid(String),
    /// A metric, tag key or literal tag value that no series carries.
    #[error("no series has the {} '{name}'", kind_word(*kind))]
    UnknownName { kind: NameKind, name: String },
    #[error("the result at {at_millis} ms is infinite; use a downsample or aggregator that stays in range")]
    Infinite { at_millis: i64, value: f64 },
    #[error("{running} queries are running, which is the limit (--queries-max); try again in a moment")]
    TooManyQueries { running: usize },
    #[error(
        "{count} SQL queries still run after their time was over, so no more SQL is accepted until one of them ends; time-series queries are answered"
    )]
    LeftBehind { count: usize },
    /// Of code that works for a query whose client is gone.
    #[error("the query was stopped")]
    Stopped,
    #[error("queries run {max} tasks on nodes, which is the limit; try again in a moment")]
    TooManyTasks { max: usize },
    #[error("the query did not finish within {} s (limit --query-deadline); query less time or fewer series", after.as_secs_f64())]
    Deadline { after: Duration },
    /// A table that is not there, and what the asker may have meant.
    #[error("there is no table or metric '{name}'{hint}")]
    UnknownTable { name: String, hint: String },
    #[error(
        "queries ran out of their shared memory (limit --query-memory): {0}; query less time, fewer series or an aggregate"
    )]
    Memory(String),
    #[error("the query produces more than {max} {what}; query less time, fewer series or a coarser downsample")]
    TooLarge { what: &'static str, max: u64 },
    /// Of one function.
    #[error("{function} would make {found} {what}; at most {max} are allowed")]
    TooMuchMade { function: String, what: &'static str, found: u64, max: u64 },
    #[error(transparent)]
    Engine(#[from] telem_engine::Error),
    #[error("cannot start the threads that execute queries: {source}")]
    Threads { source: std::io::Error },
    #[error("the query was stopped because telem is shutting down")]
    ShuttingDown,
    #[error("bug in telem: {0}")]
    Internal(String),
    /// What a node said of its part of the question.
    #[error("{text}")]
    Refused { kind: ErrorKind, text: String },
    /// With [`crate::QueryOptions::strict`] only.
    #[error("{} would be missing from the answer; without --strict it covers the others", missing_nodes(.missing))]
    Incomplete { missing: Vec<MissingNode> },
    #[error("each of {attempts} attempts of the query lost a node; try again in a moment")]
    NodesLost { attempts: u32 },
    /// After rows of it were handed out: before that the question is asked again without it. `node` is its name, or its
    /// address where nobody knows the name.
    #[error(
        "the answer ends here, because the node {node} was lost: {reason}; repeat the query to get an answer that covers the others"
    )]
    NodeLost { node: String, reason: String },
    /// Whatever else DataFusion says of a query. See [`crate::error::datafusion`].
    #[error("{}", datafusion::text(.0))]
    DataFusion(#[source] Box<DataFusionError>),
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Invalid(_)
            | Error::Infinite { .. }
            | Error::TooLarge { .. }
            | Error::TooMuchMade { .. }
            | Error::Memory(_) => ErrorKind::Invalid,
            Error::UnknownName { .. } | Error::UnknownTable { .. } => ErrorKind::NotFound,
            Error::TooManyQueries { .. } | Error::TooManyTasks { .. } | Error::LeftBehind { .. } => ErrorKind::Busy,
            Error::Deadline { .. }
            | Error::Threads { .. }
            | Error::ShuttingDown
            | Error::Stopped
            | Error::Incomplete { .. }
            | Error::NodesLost { .. }
            | Error::NodeLost { .. } => ErrorKind::Unavailable,
            Error::Refused { kind, .. } => *kind,
            Error::Engine(error) => error.kind(),
            Error::Internal(_) => ErrorKind::Internal,
            Error::DataFusion(error) => datafusion::kind(error),
        }
    }
}

impl From<UnknownAggregator> for Error {
    fn from(unknown: UnknownAggregator) -> Self {
        Error::Invalid(unknown.to_string())
    }
}

fn missing_nodes(missing: &[MissingNode]) -> String {
    missing.iter().map(|missing| format!("{} ({})", missing.node, missing.reason)).collect::<Vec<_>>().join(", ")
}

fn kind_word(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Metric => "metric",
        NameKind::TagKey => "tag key",
        NameKind::TagValue => "tag value",
    }
}
