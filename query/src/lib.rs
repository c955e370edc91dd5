//! Turns queries into answers: SQL, time-series queries, DataFusion.
//!
//! This crate knows no HTTP and no OpenTSDB names. It stands on `telem-engine`; a server, or a program that embeds
//! telem, supplies the queries.
//!
//! # Example
//! This is `examples/ask.rs`; `cargo run -p telem-query --example ask` runs it.
//! ```no_run
#![doc = include_str!("../examples/ask.rs")]
//! ```
//!
//! # Where to begin
//! A query comes in as a [`TsQuery`] or as SQL text through [`Queries`]; both reach the data through the one [`leaf`].
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | the entry point of queries: limits, deadlines, cancellation |
//! | [`question`], [`answer`] | queries and answers as plain data |
//! | [`plan`], [`pipeline`] | a time-series query: its plan, and the steps for each series |
//! | [`session`], [`catalog`], [`table`], [`functions`] | SQL: what queries share, the tables, the functions that telem adds |
//! | [`leaf`] | the one leaf of every plan: a request to the node that owns the data |
//! | [`cluster`], [`view`] | queries over many nodes, and what one query sees |
//! | [`alarm`], [`model`] | conditions on last values, and laws of how figures grow with the size of a job |
//! | [`options`] | the limits of queries |
//! | [`error`] | errors, also on their way between nodes |
//!
//! # Errors
//! [`Error`] is an enum; its [`ErrorKind`] tells what a caller can do. The messages are for people and may change.

pub mod alarm;
pub mod answer;
pub mod catalog;
pub mod cluster;
pub mod energy;
pub mod error;
pub mod functions;
mod guard;
mod jobs;
mod lanes;
pub mod leaf;
pub mod limits;
pub mod model;
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

pub use answer::{FoldSink, FoldedRows, LastAnswer, MissingNode, SqlAnswer, TsAnswer, TsGroup};
pub use error::{Error, ErrorKind, Result};
pub use lanes::{LANE_THREAD, ended_lane_threads};
pub use options::{QueryOptions, QueryStats, RowOrder};
pub use question::{Aggregator, TsQuery, ago, expression, tsq};
pub use run::Queries;
