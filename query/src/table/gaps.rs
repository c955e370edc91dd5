//! `gaps(metric, longer_than, ...)`: where samples are missing, as a table.
//!
//! ```sql
//! SELECT host, start, stop, seconds FROM gaps('node_load1', longer_than => '5 seconds') WHERE host LIKE 'n%'
//! ```
//!
//! A row is a gap of a series: two samples that follow each other and are further apart than `longer_than`. The columns
//! are the tags of the metric, `start` and `stop` (the times of the two samples), and `seconds` between them. Each node
//! reads its samples and answers with stretches without a gap; what is between stretches is computed from those
//! ([`exec`]), so a series on several nodes has the gaps of all its samples.

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
use telem_engine::{TimeRange, ValueRange};

use super::constants::{Constants, MetricChoice, RelativeTimes};
use super::pushdown::Pushed;
use super::shape::TableShape;
use super::{rows_leaf, tag_column};
use crate::leaf::rows::{Column, RowKind, RowsRequest};
use crate::leaf::time_type;
use crate::relative::Anchor;
use crate::view::View;
use exec::{GapColumn, GapsExec};

/// The name of the function.
pub const NAME: &str = "gaps";
/// In the order in which they may be given without names. All but the first two may be left out.
pub(crate) const PARAMETERS: [&str; 4] = ["metric", "longer_than", "start", "stop"];
/// The columns behind the tags. A tag of such a name appears behind `tag_`.
const COLUMNS: [&str; 3] = ["start", "stop", "seconds"];

/// See the module.
#[derive(Debug)]
pub struct GapsFunction;

impl TableFunctionImpl for GapsFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let config = args.session().config();
        let (Some(view), Some(anchor)) = (config.get_extension::<View>(), config.get_extension::<Anchor>()) else {
            return internal_err!("{NAME} is planned where there is nothing to see");
        };
        Ok(Arc::new(GapsCall::parse(args.exprs(), View::clone(&view), &|text| anchor.resolve(text))?))
    }
}

/// One call of the function, as a table.
#[derive(Debug)]
struct GapsCall {
    view: View,
    metric: MetricChoice,
    /// Microseconds.
    longer_than: i64,
    range: TimeRange,
    shape: TableShape,
}

impl GapsCall {
    fn parse(given: &[Expr], view: View, relative: RelativeTimes<'_>) -> Result<Self> {
        let given = Constants::read(NAME, &PARAMETERS, given)?;
        let index = view.index();
        let (Some(metric), Some(longer_than)) = (given.metric(0, index)?, given.duration(1, 1)?) else {
            return plan_err!(
                "{NAME} needs a metric and how long a gap is at least, as in {NAME}('node_load1', longer_than => \
                 '5 seconds')"
            );
        };
        let range = given.range(2, 3, relative)?;
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for key in index.tag_keys(&metric.metric) {
            let name = if COLUMNS.contains(&&*key) { format!("tag_{key}") } else { tag_column(&key) };
            fields.push(Field::new(name, DataType::Utf8View, true));
            columns.push(Column::Tag(key.to_string()));
        }
        let types = [time_type(), time_type(), DataType::Float64];
        fields.extend(COLUMNS.into_iter().zip(types).map(|(name, data_type)| Field::new(name, data_type, false)));
        columns.extend([Column::FirstTs, Column::LastTs, Column::LastValue]);
        let shape = TableShape {
            rows: RowKind::Stretch { apart: longer_than },
            schema: Arc::new(Schema::new(fields)),
            columns,
        };
        Ok(Self { view, metric, longer_than, range, shape })
    }
}

#[async_trait]
impl TableProvider for GapsCall {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Those of tags alone: a range of time would cut gaps.
        Ok(self.shape.support(filters, &TableProviderFilterPushDown::Exact))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut tests = self.metric.tests();
        for filter in filters {
            match self.shape.push(filter) {
                Some(Pushed::Test(subject, test)) => tests.push((subject, test)),
                _ => return internal_err!("{NAME} promised to apply the filter {filter}, and cannot"),
            }
        }
        // A series is known by all its tags, whatever is asked for.
        let tags = self.shape.columns.len() - COLUMNS.len();
        let columns = self.shape.columns[..tags].iter().cloned().chain([Column::FirstTs, Column::LastTs]).collect();
        let rows = RowKind::Stretch { apart: self.longer_than };
        let request = RowsRequest {
            rows,
            columns,
            tests,
            range: self.range,
            values: ValueRange::ALL,
            limit: None,
            sorted_by: None,
        };
        let leaf = rows_leaf(&self.view, request, state)?;
        let (kept, schema) = self.shape.keep(projection)?;
        let output = kept.into_iter().map(|column| match column {
            Column::FirstTs => GapColumn::Start,
            Column::LastTs => GapColumn::Stop,
            Column::LastValue => GapColumn::Seconds,
            tag => GapColumn::Tag(self.shape.columns.iter().position(|known| *known == tag).unwrap_or(tags)),
        });
        Ok(Arc::new(GapsExec::new(Arc::new(leaf), tags, self.longer_than, output.collect(), schema)))
    }
}
