//! Rows of the tables that SQL sees.

use std::fmt;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;

use super::{Batches, LeafContext, Part};

#[derive(Clone, Debug, PartialEq)]
pub struct RowsRequest {
    /// Most rows that each part needs to answer.
    pub limit: Option<usize>,
}

impl RowsRequest {
    /// See [`super::Request::batches`].
    pub fn batches(&self, _context: &LeafContext, _schema: &SchemaRef, _part: Part) -> Batches {
        Box::new(std::iter::once(Err(DataFusionError::NotImplemented("rows".to_owned()))))
    }
}

impl fmt::Display for RowsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit={:?}", self.limit)
    }
}
