//! The leaf of time-series queries: what is asked of each selected series.

use std::fmt;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;

use super::{Batches, LeafContext, Part};

/// The series of one metric, and what to make of each.
#[derive(Clone, Debug)]
pub struct SeriesRequest {
    pub metric: String,
}

impl SeriesRequest {
    /// See [`super::Request::batches`].
    pub fn batches(&self, _context: &LeafContext, _schema: &SchemaRef, _part: Part) -> Batches {
        let error = DataFusionError::NotImplemented(format!("time-series queries of '{}'", self.metric));
        Box::new(std::iter::once(Err(error)))
    }
}

impl fmt::Display for SeriesRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metric={}", self.metric)
    }
}
