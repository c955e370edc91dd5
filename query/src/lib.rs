//! Everything that turns a question into an answer: SQL, time-series queries, DataFusion.
//!
//! Knows no HTTP and no OpenTSDB names. A question comes in as [`TsQuery`] or as SQL text
//! through [`run::Queries`]; both reach the data through the one [`leaf`].

pub mod catalog;
pub mod dist;
pub mod error;
pub mod functions;
mod guard;
pub mod leaf;
pub mod pipeline;
pub mod plan;
pub mod question;
pub mod run;
mod selection;
pub mod session;
pub mod table;
#[cfg(test)]
mod testing;
pub mod view;

pub use error::{Error, ErrorKind, Result};
pub use question::{TsQuery, ago, expression, tsq};
pub use run::{LastAnswer, MissingNode, Queries, QueryOptions, QueryStats, RowOrder, SqlAnswer, TsAnswer, TsGroup};
