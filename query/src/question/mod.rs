//! Queries as plain data: free of any wire format, of DataFusion, and of the database that answers.

pub mod aggregator;
pub mod ago;
pub mod expression;
pub(crate) mod serial;
pub(crate) mod tags;
pub mod tsq;

pub use aggregator::Aggregator;
pub use tsq::TsQuery;
