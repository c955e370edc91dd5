//! The tables that SQL sees. A table is a schema and the request that a scan of it becomes.
//!
//! Every table has its columns by name, each with what it means to the leaf ([`Column`]); a scan
//! keeps the columns it needs and hands every filter it understands to the leaf ([`pushdown`]).

pub(crate) mod pushdown;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use telem_engine::{Snapshot, TimeRange};

use crate::leaf::names::{NameTest, Subject};
use crate::leaf::rows::{Column, Rows, RowsRequest, tags_type};
use crate::leaf::{NodeLeafExec, Request};
use crate::run::RowOrder;
use pushdown::Pushed;

/// Columns of a metric's table that are no tags. A tag of such a name appears behind [`TAG_PREFIX`].
const FIXED_COLUMNS: [&str; 4] = ["ts", "value", "value_int", "node"];
const TAG_PREFIX: &str = "tag_";
/// With fewer, DataFusion would aggregate in one step above the leaf.
const PARTITIONS_MIN: usize = 2;

#[derive(Debug)]
pub struct Table {
    node: String,
    rows: Rows,
    schema: SchemaRef,
    /// What each field of `schema` means.
    columns: Vec<Column>,
    /// What makes this table this table: its metric.
    tests: Vec<(Subject, NameTest)>,
}

impl Table {
    /// All samples of all metrics.
    pub fn samples(snapshot: &Snapshot) -> Self {
        let columns = vec![
            (name_field("metric"), Column::Metric),
            (tag_field("host"), Column::Tag("host".to_owned())),
            (name_field("node"), Column::Node),
            (Field::new("tags", tags_type(), false), Column::Tags),
            (ts_field("ts", false), Column::Ts),
            (Field::new("value", DataType::Float64, false), Column::Value),
            (Field::new("value_int", DataType::Int64, true), Column::ValueInt),
        ];
        Self::new(snapshot, Rows::Sample, columns, Vec::new())
    }

    /// The samples of one metric, its tags as columns. `None` when no series carries the metric.
    pub fn metric(snapshot: &Snapshot, metric: &str) -> Option<Self> {
        let index = snapshot.index();
        let keys = index.tag_keys(metric);
        // A metric whose series all have no tags is a table without tag columns.
        if keys.is_empty() && !index.knows(telem_engine::NameKind::Metric, metric) {
            return None;
        }
        let mut columns = vec![
            (ts_field("ts", false), Column::Ts),
            (Field::new("value", DataType::Float64, false), Column::Value),
            (Field::new("value_int", DataType::Int64, true), Column::ValueInt),
            (name_field("node"), Column::Node),
        ];
        columns.extend(keys.iter().map(|key| (tag_field(&tag_column(key)), Column::Tag(key.to_string()))));
        let this_metric = NameTest::In { names: vec![metric.to_owned()], negated: false };
        Some(Self::new(snapshot, Rows::Sample, columns, vec![(Subject::Metric, this_metric)]))
    }

    /// One row a series, with its first and last sample.
    pub fn series(snapshot: &Snapshot) -> Self {
        let columns = vec![
            (name_field("metric"), Column::Metric),
            (tag_field("host"), Column::Tag("host".to_owned())),
            (name_field("node"), Column::Node),
            (Field::new("tags", tags_type(), false), Column::Tags),
            (Field::new("id", DataType::UInt32, false), Column::Id),
            (ts_field("first_ts", true), Column::FirstTs),
            (ts_field("last_ts", true), Column::LastTs),
            (Field::new("last_value", DataType::Float64, true), Column::LastValue),
        ];
        Self::new(snapshot, Rows::Series, columns, Vec::new())
    }

    /// One row a metric; its type in the words of OpenMetrics. NULL where nobody said.
    pub fn metrics(snapshot: &Snapshot) -> Self {
        let columns = vec![
            (name_field("metric"), Column::Metric),
            (name_field("node"), Column::Node),
            (Field::new("type", DataType::Utf8View, true), Column::Kind),
            (Field::new("unit", DataType::Utf8View, true), Column::Unit),
            (Field::new("help", DataType::Utf8View, true), Column::Help),
            (Field::new("series", DataType::Int64, false), Column::SeriesCount),
        ];
        Self::new(snapshot, Rows::Metric, columns, Vec::new())
    }

    /// One row a node.
    pub fn nodes(snapshot: &Snapshot) -> Self {
        let columns = vec![
            (name_field("node"), Column::Node),
            (Field::new("metrics", DataType::Int64, false), Column::MetricCount),
            (Field::new("series", DataType::Int64, false), Column::SeriesCount),
        ];
        Self::new(snapshot, Rows::Node, columns, Vec::new())
    }

    fn new(snapshot: &Snapshot, rows: Rows, columns: Vec<(Field, Column)>, tests: Vec<(Subject, NameTest)>) -> Self {
        let (fields, columns): (Vec<Field>, Vec<Column>) = columns.into_iter().unzip();
        Self { node: snapshot.node().to_owned(), rows, schema: Arc::new(Schema::new(fields)), columns, tests }
    }

    fn push(&self, filter: &Expr) -> Option<Pushed> {
        pushdown::push(filter, self.rows, &|name| {
            let at = self.schema.index_of(name).ok()?;
            Some(&self.columns[at])
        })
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Never Inexact: the leaf either applies a filter wholly or does not see it.
        Ok(filters
            .iter()
            .map(|filter| match self.push(filter) {
                Some(_) => TableProviderFilterPushDown::Exact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kept: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..self.columns.len()).collect());
        let mut request = RowsRequest {
            rows: self.rows,
            columns: kept.iter().map(|at| self.columns[*at].clone()).collect(),
            tests: self.tests.clone(),
            range: TimeRange::ALL,
            limit,
        };
        for filter in filters {
            match self.push(filter) {
                Some(Pushed::Test(subject, test)) => request.tests.push((subject, test)),
                Some(Pushed::Range(range)) => request.range = request.range.intersect(range),
                // Filters that were not promised stay above the leaf.
                None => request.limit = None,
            }
        }
        let schema = Arc::new(self.schema.project(&kept)?);
        let order = state.config().get_extension::<RowOrder>();
        let partitions = match order.as_deref() {
            Some(RowOrder::Stored) => 1,
            _ => state.config().target_partitions().max(PARTITIONS_MIN),
        };
        let leaf = NodeLeafExec::new(self.node.clone(), Request::Rows(request), schema);
        Ok(Arc::new(leaf.with_partitions(partitions)))
    }
}

/// The column that shows tag `key` in its metric's table: its own name, except that
/// names of fixed columns (and names that already look like that) get one more prefix.
pub fn tag_column(key: &str) -> String {
    let mut bare = key;
    while let Some(rest) = bare.strip_prefix(TAG_PREFIX) {
        bare = rest;
    }
    if FIXED_COLUMNS.contains(&bare) { format!("{TAG_PREFIX}{key}") } else { key.to_owned() }
}

fn name_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8View, false)
}

/// A node answers NULL for a tag it has not, so every tag may be NULL.
fn tag_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8View, true)
}

fn ts_field(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))), nullable)
}
