//! The tables of SQL. A table is a schema and the request that a scan of it becomes.
//!
//! A table has its columns by name, each with its meaning to the leaf ([`Column`]). A scan keeps the columns that it
//! needs and passes every filter that the leaf can apply on to the leaf ([`pushdown`]).

pub mod asof;
mod constants;
mod digests;
pub mod downsample;
pub mod gaps;
mod keys;
mod named;
pub(crate) mod pushdown;
mod shape;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr, expressions as physical};
use datafusion::physical_plan::ExecutionPlan;
use telem_engine::{TimeRange, ValueRange};

use crate::leaf::names::{NameSubject, NameTest};
use crate::leaf::rows::{
    AlarmField, Column, DeviceField, EnergyField, JobField, MERGED_MAX, NoteField, RowKind, RowsRequest, groups,
    has_steps,
};
use crate::leaf::{LeafContext, LeafThread, NodeLeafExec, Request};
use crate::options::RowOrder;
use crate::view::View;
pub(crate) use digests::AskDigests;
pub use named::NamedArguments;
use pushdown::Pushed;
use shape::TableShape;

/// Columns of a metric's table that are not tags. A tag of such a name appears behind [`TAG_PREFIX`].
const FIXED_COLUMNS: [&str; 5] = ["ts", "value", "value_int", "node", "job"];
/// The column of steps, where the metric has any and no tag of that name.
const STEP_COLUMN: &str = "step";
const TAG_PREFIX: &str = "tag_";
/// With fewer, DataFusion would aggregate in one step above the leaf.
const PARTITIONS_MIN: usize = 2;

#[derive(Debug)]
pub struct Table {
    view: View,
    shape: TableShape,
    /// What makes this table this table: its metric.
    tests: Vec<(NameSubject, NameTest)>,
}

impl Table {
    /// All samples of all metrics.
    pub fn samples(view: &View) -> Self {
        let columns = vec![
            ("metric".to_owned(), Column::Metric),
            ("host".to_owned(), Column::Tag("host".to_owned())),
            ("node".to_owned(), Column::Node),
            ("job".to_owned(), Column::Job),
            ("tags".to_owned(), Column::Tags),
            ("ts".to_owned(), Column::Ts),
            ("value".to_owned(), Column::Value),
            ("value_int".to_owned(), Column::ValueInt),
            (STEP_COLUMN.to_owned(), Column::Step),
        ];
        Self::new(view, RowKind::Sample, columns, Vec::new())
    }

    /// The samples of one metric, its tags as columns. `None` when no series has the metric.
    pub fn metric(view: &View, metric: &str) -> Option<Self> {
        let index = view.index();
        let keys = index.tag_keys(metric);
        // A metric whose series all have no tags is a table without tag columns.
        if keys.is_empty() && !index.knows(telem_engine::NameKind::Metric, metric) {
            return None;
        }
        let mut columns = vec![
            ("ts".to_owned(), Column::Ts),
            ("value".to_owned(), Column::Value),
            ("value_int".to_owned(), Column::ValueInt),
        ];
        // A tag of that name was there first.
        if has_steps(index, metric) && !keys.iter().any(|key| &**key == STEP_COLUMN) {
            columns.push((STEP_COLUMN.to_owned(), Column::Step));
        }
        columns.push(("node".to_owned(), Column::Node));
        columns.push(("job".to_owned(), Column::Job));
        columns.extend(keys.iter().map(|key| (tag_column(key), Column::Tag(key.to_string()))));
        let this_metric = NameTest::In { names: vec![metric.to_owned()], negated: false };
        Some(Self::new(view, RowKind::Sample, columns, vec![(NameSubject::Metric, this_metric)]))
    }

    /// One row a series, with its first and last sample.
    pub fn series(view: &View) -> Self {
        let columns = vec![
            ("metric".to_owned(), Column::Metric),
            ("host".to_owned(), Column::Tag("host".to_owned())),
            ("node".to_owned(), Column::Node),
            ("job".to_owned(), Column::Job),
            ("tags".to_owned(), Column::Tags),
            ("id".to_owned(), Column::Id),
            ("first_ts".to_owned(), Column::FirstTs),
            ("last_ts".to_owned(), Column::LastTs),
            ("last_value".to_owned(), Column::LastValue),
        ];
        Self::new(view, RowKind::Series, columns, Vec::new())
    }

    /// One row a metric; its type in the words of OpenMetrics. NULL if it is unknown.
    pub fn metrics(view: &View) -> Self {
        let columns = vec![
            ("metric".to_owned(), Column::Metric),
            ("node".to_owned(), Column::Node),
            ("type".to_owned(), Column::Kind),
            ("unit".to_owned(), Column::Unit),
            ("help".to_owned(), Column::Help),
            ("series".to_owned(), Column::SeriesCount),
        ];
        Self::new(view, RowKind::Metric, columns, Vec::new())
    }

    /// One row a node.
    pub fn nodes(view: &View) -> Self {
        let columns = vec![
            ("node".to_owned(), Column::Node),
            ("metrics".to_owned(), Column::MetricCount),
            ("series".to_owned(), Column::SeriesCount),
        ];
        Self::new(view, RowKind::Node, columns, Vec::new())
    }

    /// One row a job and node that recorded it: what ran, and how it ended. NULL where nothing says so.
    pub fn jobs(view: &View) -> Self {
        let mut columns = vec![("job".to_owned(), Column::Job), ("node".to_owned(), Column::Node)];
        columns.extend(JobField::ALL.map(|field| (field.name().to_owned(), Column::OfJob(field))));
        Self::new(view, RowKind::Job, columns, Vec::new())
    }

    /// One row a device and node; also of what is there and cannot be read.
    pub fn inventory(view: &View) -> Self {
        let mut columns = vec![("node".to_owned(), Column::Node)];
        columns.extend(DeviceField::ALL.map(|field| (field.name().to_owned(), Column::OfDevice(field))));
        Self::new(view, RowKind::Device, columns, Vec::new())
    }

    /// One row a job and node, and one a GPU: what it took of energy, as far as that is known.
    pub fn job_energy(view: &View) -> Self {
        let mut columns = vec![("job".to_owned(), Column::Job), ("node".to_owned(), Column::Node)];
        columns.extend(EnergyField::ALL.map(|field| (field.name().to_owned(), Column::OfEnergy(field))));
        Self::new(view, RowKind::Energy, columns, Vec::new())
    }

    /// One row each time that an alarm was raised.
    pub fn alarms(view: &View) -> Self {
        let mut columns = vec![("job".to_owned(), Column::Job), ("node".to_owned(), Column::Node)];
        columns.extend(AlarmField::ALL.map(|field| (field.name().to_owned(), Column::OfAlarm(field))));
        Self::new(view, RowKind::Alarm, columns, Vec::new())
    }

    /// One row a note on a moment or a stretch of time.
    pub fn notes(view: &View) -> Self {
        let columns = NoteField::ALL.map(|field| (field.name().to_owned(), Column::OfNote(field)));
        Self::new(view, RowKind::Note, columns.into(), Vec::new())
    }

    pub(crate) fn is_of_digests(&self) -> bool {
        self.shape.rows == RowKind::Digest
    }

    /// What `filter` asks of the leaf, if all of it can be asked there.
    fn push(&self, filter: &Expr) -> Option<Pushed> {
        self.shape.push(filter).or_else(|| self.shape.push_values(filter))
    }

    /// Most rows that a scan reads, where that is told without reading any: see [`RowsRequest::rows_max`].
    ///
    /// # Errors
    /// Io and Corrupt, from the indexes of segments.
    pub(crate) fn rows_max(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        series_max: usize,
    ) -> Result<Option<u64>> {
        let (request, _) = self.request(projection, filters, None)?;
        request.rows_max(&self.view.snapshot, series_max)
    }

    /// What a scan asks of the leaf, and the columns of its answer.
    fn request(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<(RowsRequest, SchemaRef)> {
        let (columns, schema) = self.shape.keep(projection)?;
        let (rows, tests) = (self.shape.rows, self.tests.clone());
        let (range, values) = (TimeRange::ALL, ValueRange::ALL);
        let mut request = RowsRequest { rows, columns, tests, range, values, limit, sorted_by: None };
        for filter in filters {
            match self.push(filter) {
                Some(Pushed::Test(subject, test)) => request.tests.push((subject, test)),
                Some(Pushed::Range(range)) => request.range = request.range.intersect(range),
                Some(Pushed::Values(values)) => request.values = request.values.intersect(values),
                // Filters that were not promised stay above the leaf.
                None => request.limit = None,
            }
        }
        Ok((request, schema))
    }

    fn new(view: &View, rows: RowKind, columns: Vec<(String, Column)>, tests: Vec<(NameSubject, NameTest)>) -> Self {
        let fields: Vec<Field> = columns.iter().map(|(name, column)| column.field(name)).collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        Self { view: view.clone(), shape: TableShape { rows, schema: Arc::new(Schema::new(fields)), columns }, tests }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Never Inexact: the leaf either applies a filter wholly or does not see it.
        let support = |filter: &&Expr| match self.push(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (request, schema) = self.request(projection, filters, limit)?;
        Ok(Arc::new(leaf_of(&self.view, request, schema, state)?))
    }
}

/// The leaf that answers `request` in columns of these names.
fn leaf_of(view: &View, request: RowsRequest, schema: SchemaRef, state: &dyn Session) -> Result<NodeLeafExec> {
    let (order, context) = (state.config().get_extension::<RowOrder>(), state.config().get_extension::<LeafContext>());
    let on_one_thread = context.is_some_and(|context| context.thread == LeafThread::OfTheQuery);
    let partitions = match order.as_deref() {
        Some(RowOrder::Stored) => 1,
        _ if on_one_thread => 1,
        _ => state.config().target_partitions().max(PARTITIONS_MIN),
    };
    if !view.has_others() {
        return Ok(view.leaf(Request::Rows(request), schema, None, &|_| true).with_partitions(partitions));
    }
    let (series, passes) = (request.named(view.index())?, request.passes()?);
    let leaf = view.leaf(Request::Rows(request), schema, series.as_deref(), &passes);
    Ok(leaf.with_partitions(partitions))
}

/// The same for a function, which knows columns by their places.
fn rows_leaf(view: &View, request: RowsRequest, state: &dyn Session) -> Result<NodeLeafExec> {
    let fields: Vec<Field> = request.columns.iter().map(|column| column.field(&column.to_string())).collect();
    leaf_of(view, request, Arc::new(Schema::new(fields)), state)
}

/// The same of samples, sorted by the first columns: by `by` tags behind the time, and by the time. Nodes make that order
/// as they read if few series have equal tags; otherwise the samples are sorted.
fn sorted_leaf(
    view: &View,
    mut request: RowsRequest,
    by: &[String],
    state: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let series = request.named(view.index())?.unwrap_or_default();
    let are_small = groups(by, &series, view.index()).iter().all(|group| group.len() <= MERGED_MAX);
    request.sorted_by = are_small.then(|| by.to_vec());
    let leaf = rows_leaf(view, request, state)?;
    let order = ordering(&leaf.schema(), (1..=by.len()).chain([0])).filter(|_| are_small);
    Ok(match order {
        Some(order) => Arc::new(leaf.with_order(order)),
        None => Arc::new(leaf),
    })
}

/// Rows sorted by these columns, ascending, NULL first.
fn ordering(schema: &SchemaRef, columns: impl IntoIterator<Item = usize>) -> Option<LexOrdering> {
    let options = SortOptions { descending: false, nulls_first: true };
    let by = columns.into_iter().map(|at| {
        let column = physical::Column::new(schema.field(at).name(), at);
        PhysicalSortExpr::new(Arc::new(column), options)
    });
    LexOrdering::new(by)
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
