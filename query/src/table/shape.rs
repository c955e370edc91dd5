//! The columns of a table: their names, and what each means to the leaf.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};

use super::pushdown::{self, Pushed};
use crate::leaf::rows::{Column, RowKind};

#[derive(Debug)]
pub(super) struct TableShape {
    pub rows: RowKind,
    pub schema: SchemaRef,
    /// What each field of `schema` means.
    pub columns: Vec<Column>,
}

impl TableShape {
    /// What `filter` asks of the leaf, if all of it can be asked there.
    pub fn push(&self, filter: &Expr) -> Option<Pushed> {
        pushdown::push(filter, self.rows, &|name| {
            let at = self.schema.index_of(name).ok()?;
            Some(&self.columns[at])
        })
    }

    /// What `filter` asks of the values of samples, where the rows are these as they are stored.
    pub fn push_values(&self, filter: &Expr) -> Option<Pushed> {
        let is_value = |name: &str| {
            let at = self.schema.index_of(name);
            self.rows == RowKind::Sample && at.is_ok_and(|at| self.columns[at] == Column::Value)
        };
        pushdown::push_values(filter, &is_value).map(Pushed::Values)
    }

    /// For each filter `understood`, where the leaf understands it.
    pub fn support(
        &self,
        filters: &[&Expr],
        understood: &TableProviderFilterPushDown,
    ) -> Vec<TableProviderFilterPushDown> {
        let support = |filter: &&Expr| match self.push(filter) {
            Some(_) => understood.clone(),
            None => TableProviderFilterPushDown::Unsupported,
        };
        filters.iter().map(support).collect()
    }

    /// The columns that a scan keeps, all without a projection, and their schema.
    pub fn keep(&self, projection: Option<&Vec<usize>>) -> Result<(Vec<Column>, SchemaRef)> {
        let Some(kept) = projection else { return Ok((self.columns.clone(), Arc::clone(&self.schema))) };
        let schema: Schema = self.schema.project(kept)?;
        Ok((kept.iter().map(|at| self.columns[*at].clone()).collect(), Arc::new(schema)))
    }
}
