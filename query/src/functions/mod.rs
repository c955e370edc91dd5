//! The functions of queries: aggregators across series, and the functions that SQL gains.

pub mod aggregator;

pub use aggregator::Aggregator;
