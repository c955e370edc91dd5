//! `downsample(...)`: the time-series pipeline as a table, for SQL.
//!
//! ```sql
//! SELECT * FROM downsample('node_load1', '1 minute', 'avg', aggregate => 'sum', by => 'rack',
//!                          fill => 'previous')
//! WHERE ts >= now() - INTERVAL '1 hour'
//! ```
//!
//! Each series of the metric is downsampled on its own, perhaps turned into a rate, and perhaps aggregated with the
//! other series of its group. The columns are `ts` (start of the bucket), `value`, and the tags that distinguish the
//! lines: those of `by`, or all of them without an aggregate. Of saved databases `by` may name the job. The range of time comes from `start` and `stop` or from a
//! filter on `ts`; otherwise it is all time. A range chooses buckets by their start and never cuts one. This table is
//! also how gaps are filled, see [`arguments::GapFill`].

mod arguments;
mod exec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampMicrosecondType};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use telem_engine::{JOB_TAG, NameKind, TimeRange, Timestamp, ValueRange};

use crate::error::Error;
use crate::jobs::JobTags;
use crate::leaf::names::{NameSubject, NameTest};
use crate::leaf::rows::{Column, RowKind, RowsRequest};
use crate::leaf::{Request, time_type};
use crate::pipeline::calendar::Calendar;
use crate::question::Aggregator;
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{Downsample, Fidelity, Interval, Matcher, TagFilter, TsQuery};
use crate::relative::Anchor;
use crate::table::pushdown::Pushed;
use crate::table::shape::TableShape;
use crate::table::tag_column;
use crate::view::View;
use arguments::Arguments;
pub(super) use arguments::PARAMETERS;
use exec::DownsampleExec;

/// The name of the function.
pub const NAME: &str = "downsample";

/// See the module.
#[derive(Debug)]
pub struct DownsampleFunction;

impl TableFunctionImpl for DownsampleFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let config = args.session().config();
        let (Some(view), Some(anchor)) = (config.get_extension::<View>(), config.get_extension::<Anchor>()) else {
            return internal_err!("downsample is planned where there is nothing to see");
        };
        let arguments = Arguments::parse(args.exprs(), &|text| anchor.resolve(text))?;
        let index = view.index();
        if !index.knows(NameKind::Metric, &arguments.metric) {
            let name = arguments.metric;
            return Err(DataFusionError::External(Box::new(Error::UnknownName { kind: NameKind::Metric, name })));
        }
        let tags = match arguments.aggregate {
            Aggregator::None => index.tag_keys(&arguments.metric).iter().map(|key| key.to_string()).collect(),
            _ => arguments.by.clone(),
        };
        let jobs = config.get_extension::<JobTags>();
        let has_jobs = jobs.is_some_and(|jobs| jobs.can_be_of(&arguments.metric, &view.snapshot));
        let named = tags.into_iter().map(|key| match has_jobs && key == JOB_TAG {
            true => (key.clone(), key),
            false => (tag_column(&key), key),
        });
        let named = named.collect();
        Ok(Arc::new(DownsampleCall::new(arguments, named)))
    }
}

/// One call of the function, as a table.
#[derive(Debug)]
struct DownsampleCall {
    arguments: Arguments,
    shape: TableShape,
}

impl DownsampleCall {
    /// `tags` are those of the answer, each with the name of its column.
    fn new(arguments: Arguments, tags: Vec<(String, String)>) -> Self {
        let mut fields = vec![Field::new("ts", time_type(), false), Field::new("value", DataType::Float64, true)];
        let mut columns = vec![Column::Ts, Column::Value];
        for (name, key) in tags {
            fields.push(Field::new(name, DataType::Utf8View, true));
            columns.push(Column::Tag(key));
        }
        let shape = TableShape { rows: RowKind::Sample, schema: Arc::new(Schema::new(fields)), columns };
        Self { arguments, shape }
    }

    fn query(&self, filters: Vec<TagFilter>, range: TimeRange) -> TsQuery {
        let arguments = &self.arguments;
        let by = arguments.by.iter().map(|key| TagFilter {
            key: key.clone(),
            matcher: Matcher::Wildcard("*".to_owned()),
            group_by: true,
        });
        TsQuery {
            metric: arguments.metric.clone(),
            filters: by.chain(filters).collect(),
            explicit_tags: false,
            series: None,
            aggregator: arguments.aggregate,
            downsample: Some(Downsample {
                interval: arguments.interval,
                function: arguments.function,
                fill: arguments.fill.of_buckets(),
            }),
            rate: arguments.rate,
            start: first_millisecond(range.start),
            end: match arguments.interval {
                Interval::All => first_millisecond(range.end),
                // Inclusive there, exclusive here.
                _ => Timestamp::from_millis(range.end.saturating_add_micros(-1).millis()),
            },
            fidelity: Fidelity::Sensible,
        }
    }

    /// The stretch of time asked for: the arguments', narrowed by filters. Where it has no start
    /// or no end, the metric's first and last sample are those.
    async fn range(&self, filtered: TimeRange, state: &dyn Session) -> Result<TimeRange> {
        let Arguments { metric, start, stop, .. } = &self.arguments;
        let asked = TimeRange::new(start.unwrap_or(Timestamp::MIN), stop.unwrap_or(Timestamp::MAX));
        let range = asked.intersect(filtered);
        if range.start > Timestamp::MIN && range.end < Timestamp::MAX {
            return Ok(range);
        }
        let Some((first, last)) = bounds(metric, state).await? else {
            return Ok(TimeRange::new(Timestamp::MAX, Timestamp::MIN));
        };
        // The first bucket starts before its first sample does.
        let first = match self.arguments.interval {
            Interval::Fixed(step) => step.floor(first),
            Interval::All => first,
            Interval::Calendar { count, unit, zone } => Calendar { count, unit, zone }.anchor(first),
        };
        Ok(range.intersect(TimeRange::new(first, last.saturating_add_micros(1))))
    }
}

#[async_trait]
impl TableProvider for DownsampleCall {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // They choose what is read; what is asked of an answer stays above it.
        Ok(self.shape.support(filters, &TableProviderFilterPushDown::Inexact))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut filtered = TimeRange::new(Timestamp::MIN, Timestamp::MAX);
        let mut of_tags = Vec::new();
        for filter in filters {
            match self.shape.push(filter) {
                Some(Pushed::Range(range)) => filtered = filtered.intersect(range),
                Some(Pushed::Test(NameSubject::Tag(key), test)) => {
                    of_tags.extend(matcher(&test).map(|matcher| TagFilter { key, matcher, group_by: false }));
                }
                _ => {}
            }
        }
        let query = self.query(of_tags, self.range(filtered, state).await?);
        let (columns, schema) = self.shape.keep(projection)?;
        Ok(Arc::new(DownsampleExec::new(query, self.arguments.fill, columns, schema)))
    }
}

/// The times of the first and the last sample of a metric, on whatever node.
async fn bounds(metric: &str, state: &dyn Session) -> Result<Option<(Timestamp, Timestamp)>> {
    let Some(view) = state.config().get_extension::<View>() else {
        return internal_err!("downsample is planned where there is nothing to see");
    };
    let of_metric = NameTest::In { names: vec![metric.to_owned()], negated: false };
    let request = RowsRequest {
        rows: RowKind::Series,
        columns: vec![Column::FirstTs, Column::LastTs],
        tests: vec![(NameSubject::Metric, of_metric)],
        range: TimeRange::ALL,
        values: ValueRange::ALL,
        limit: None,
        sorted_by: None,
    };
    let fields = [Column::FirstTs.field("first_ts"), Column::LastTs.field("last_ts")];
    let (schema, series) = (Arc::new(Schema::new(fields.to_vec())), request.named(view.index())?);
    let leaf = view.leaf(Request::Rows(request), schema, series.as_deref(), &|_| true);
    let plan = view.distribute(Arc::new(leaf)).await?.plan;
    let mut rows = execute_stream(plan, state.task_ctx())?;
    let mut bounds: Option<(i64, i64)> = None;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let times = |column: usize| batch.column(column).as_primitive::<TimestampMicrosecondType>();
        if let (Some(first), Some(last)) = (min(times(0)), max(times(1))) {
            let (before, after) = bounds.unwrap_or((first, last));
            bounds = Some((first.min(before), last.max(after)));
        }
    }
    Ok(bounds.map(|(first, last)| (Timestamp::from_micros(first), Timestamp::from_micros(last))))
}

/// At or after `time`.
fn first_millisecond(time: Timestamp) -> Timestamp {
    Timestamp::from_millis(time.saturating_add_micros(999).millis())
}

/// The test as a filter of series, where there is one that accepts the same values. Always as an expression, because a
/// filter by a literal is an error if no series has the literal.
fn matcher(test: &NameTest) -> Option<Matcher> {
    let expression = match test {
        NameTest::In { names, negated: false } => {
            let names: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
            Expression::new(&format!("^(?:{})$", names.join("|")), Case::Matters)
        }
        NameTest::Regex { pattern, case, negated: false } => Expression::new(pattern, *case),
        NameTest::Like { pattern, case, negated: false } => Expression::new(&like_as_regex(pattern), *case),
        _ => return None,
    };
    expression.ok().map(Matcher::Regexp)
}

fn like_as_regex(pattern: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '\\' => regex.push_str(&regex::escape(&chars.next().unwrap_or(char).to_string())),
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex + "$"
}
