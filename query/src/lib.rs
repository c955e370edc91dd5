//! Everything that turns a question into an answer: SQL, time-series queries, DataFusion.
//!
//! Knows no HTTP and no OpenTSDB names. A question comes in as [`TsQuery`] or as SQL text
//! through [`run::Queries`]; both reach the data through the one [`leaf`].
//!
//! From a database to answers (`examples/ask.rs`):
//! ```no_run
#![doc = include_str!("../examples/ask.rs")]
//! ```

pub mod answer;
pub mod catalog;
pub mod cluster;
pub mod error;
pub mod functions;
mod guard;
mod lanes;
pub mod leaf;
pub mod limits;
mod operator;
pub mod options;
pub mod pipeline;
pub mod plan;
pub mod question;
mod relative;
pub mod run;
mod selection;
pub mod session;
pub mod table;
#[cfg(test)]
mod testing;
pub mod view;

pub use answer::{LastAnswer, MissingNode, SqlAnswer, TsAnswer, TsGroup};
pub use error::{Error, ErrorKind, Result};
pub use options::{QueryOptions, QueryStats, RowOrder};
pub use question::{Aggregator, TsQuery, ago, expression, tsq};
pub use run::Queries;
