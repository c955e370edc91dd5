//! `asof(left, right, ...)`: each sample of one metric beside the latest one of another, as a table.
//!
//! ```sql
//! SELECT ts, host, loss, node_load1 FROM asof('loss', 'node_load1', tolerance => '10 seconds', by => 'host')
//! ```
//!
//! The columns are `ts`, the tags of the left metric, those of `by` first, and the two values under the names of the
//! metrics. A row is a sample of the left metric; its right value is that of the latest sample at or before its time,
//! and at most `tolerance` before, among the series that have the same tags of `by`. It is NULL where there is none.
//! Without `by`, these are the tags that both metrics have. Both sides come sorted from the nodes that have them and
//! are merged, a batch of each at a time ([`exec`]).

mod exec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use telem_engine::{TimeRange, Timestamp, ValueRange};

use super::constants::{Constants, MetricChoice, RelativeTimes};
use super::pushdown::Pushed;
use super::shape::TableShape;
use super::{sorted_leaf, tag_column};
use crate::leaf::names::{NameSubject, NameTest};
use crate::leaf::rows::{Column, RowKind, RowsRequest};
use crate::leaf::time_type;
use crate::relative::Anchor;
use crate::view::View;
use exec::{AsofColumn, AsofExec, AsofRule};

/// The name of the function.
pub const NAME: &str = "asof";
/// In the order in which they may be given without names. All but the first two may be left out.
pub(crate) const PARAMETERS: [&str; 6] = ["left", "right", "tolerance", "by", "start", "stop"];

/// See the module.
#[derive(Debug)]
pub struct AsofFunction;

impl TableFunctionImpl for AsofFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let config = args.session().config();
        let (Some(view), Some(anchor)) = (config.get_extension::<View>(), config.get_extension::<Anchor>()) else {
            return internal_err!("{NAME} is planned where there is nothing to see");
        };
        Ok(Arc::new(AsofCall::parse(args.exprs(), View::clone(&view), &|text| anchor.resolve(text))?))
    }
}

/// One call of the function, as a table.
#[derive(Debug)]
struct AsofCall {
    view: View,
    left: MetricChoice,
    right: MetricChoice,
    /// Microseconds.
    tolerance: Option<i64>,
    /// Of samples of the left metric.
    range: TimeRange,
    /// The tags that must be equal: the first ones of `tags`.
    by: usize,
    /// Those of the left metric.
    tags: Vec<String>,
    /// `ts`, the tags, and both values.
    shape: TableShape,
}

impl AsofCall {
    fn parse(given: &[Expr], view: View, relative: RelativeTimes<'_>) -> Result<Self> {
        let given = Constants::read(NAME, &PARAMETERS, given)?;
        let index = view.index();
        let (Some(left), Some(right)) = (given.metric(0, index)?, given.metric(1, index)?) else {
            return plan_err!(
                "{NAME} needs two metrics, as in {NAME}('loss', 'node_load1', tolerance => '10 seconds')"
            );
        };
        let keys = |metric: &str| -> Vec<String> { index.tag_keys(metric).iter().map(|key| key.to_string()).collect() };
        let (of_left, of_right) = (keys(&left.metric), keys(&right.metric));
        let by = match given.words(3)? {
            None => of_left.iter().filter(|key| of_right.contains(key)).cloned().collect(),
            Some(by) => by,
        };
        for (choice, known) in [(&left, &of_left), (&right, &of_right)] {
            if let Some(unknown) = by.iter().find(|key| !known.contains(key)) {
                let metric = &choice.metric;
                let both: Vec<&str> = of_left.iter().filter(|key| of_right.contains(key)).map(String::as_str).collect();
                return plan_err!(
                    "{NAME}: by names the tag '{unknown}', which {metric} has not; expected tags that both metrics \
                     have: {}",
                    if both.is_empty() { "there is none, so by => ''".to_owned() } else { both.join(", ") }
                );
            }
        }
        let mut tags: Vec<String> = Vec::with_capacity(of_left.len());
        for key in by.into_iter() {
            if !tags.contains(&key) {
                tags.push(key);
            }
        }
        let by = tags.len();
        tags.extend(of_left.into_iter().filter(|key| !tags.contains(key)).collect::<Vec<_>>());
        let (tolerance, range) = (given.duration(2, 0)?, given.range(4, 5, relative)?);
        let shape = shape(&tags, &left.metric, &right.metric);
        Ok(Self { view, left, right, tolerance, range, by, tags, shape })
    }

    /// When samples of the right metric can belong to samples of the left one in `range`.
    fn range_of_right(&self, range: TimeRange) -> TimeRange {
        if range.is_empty() {
            return range;
        }
        let start = match self.tolerance {
            Some(tolerance) => range.start.saturating_add_micros(-tolerance),
            None => Timestamp::MIN,
        };
        TimeRange::new(start, range.end)
    }
}

fn shape(tags: &[String], left: &str, right: &str) -> TableShape {
    let mut fields = vec![Field::new("ts", time_type(), false)];
    let mut columns = vec![Column::Ts];
    for key in tags {
        fields.push(Field::new(tag_column(key), DataType::Utf8View, true));
        columns.push(Column::Tag(key.clone()));
    }
    for (metric, side, column) in [(left, "left", Column::Value), (right, "right", Column::LastValue)] {
        let mut name = metric.to_owned();
        while fields.iter().any(|field| *field.name() == name) {
            name = format!("{name}_{side}");
        }
        fields.push(Field::new(name, DataType::Float64, true));
        columns.push(column);
    }
    TableShape { rows: RowKind::Sample, schema: Arc::new(Schema::new(fields)), columns }
}

#[async_trait]
impl TableProvider for AsofCall {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // They choose samples of the left metric, and every row is one.
        Ok(self.shape.support(filters, &TableProviderFilterPushDown::Exact))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut range = self.range;
        let (mut of_left, mut of_right) = (self.left.tests(), self.right.tests());
        for filter in filters {
            match self.shape.push(filter) {
                Some(Pushed::Range(asked)) => range = range.intersect(asked),
                Some(Pushed::Test(subject, test)) => {
                    if is_among(&subject, &self.tags[..self.by]) {
                        of_right.push((subject.clone(), NameTest::clone(&test)));
                    }
                    of_left.push((subject, test));
                }
                _ => return internal_err!("{NAME} promised to apply the filter {filter}, and cannot"),
            }
        }
        let (columns, schema) = self.shape.keep(projection)?;
        // Both sides: the time, the tags by which they meet, and what else is asked for.
        let keys = || std::iter::once(Column::Ts).chain(self.tags[..self.by].iter().cloned().map(Column::Tag));
        let mut left: Vec<Column> = keys().collect();
        let mut output = Vec::with_capacity(columns.len());
        for column in columns {
            output.push(match left.iter().position(|known| *known == column) {
                _ if column == Column::LastValue => AsofColumn::Right,
                Some(at) => AsofColumn::Left(at),
                None => {
                    left.push(column);
                    AsofColumn::Left(left.len() - 1)
                }
            });
        }
        let side = |columns: Vec<Column>, tests, range| {
            let request = RowsRequest {
                rows: RowKind::Sample,
                columns,
                tests,
                range,
                values: ValueRange::ALL,
                limit: None,
                sorted_by: None,
            };
            sorted_leaf(&self.view, request, &self.tags[..self.by], state)
        };
        let right = side(keys().chain([Column::Value]).collect(), of_right, self.range_of_right(range))?;
        let left = side(left, of_left, range)?;
        let rule =
            AsofRule { by: self.tags[..self.by].to_vec(), tolerance: self.tolerance, right: self.right.metric.clone() };
        Ok(Arc::new(AsofExec::new(left, right, rule, output, schema)))
    }
}

fn is_among(subject: &NameSubject, tags: &[String]) -> bool {
    matches!(subject, NameSubject::Tag(key) if tags.contains(key))
}
