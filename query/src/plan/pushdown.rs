//! Aggregates that are made of parts: exact `sum`, `count`, `min` and `max` of the contributions of series to buckets,
//! partial where the series are stored, final here. A bucket in which no series had a real value is dropped only here,
//! because only here all series of a group are known.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{Array, RecordBatch};
use arrow::compute::{filter_record_batch, is_null};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::functions_aggregate::bool_and_or::bool_or_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::expressions::col;
use futures::StreamExt;
use telem_engine::{ExactSum, Timestamp, Value};

use super::AnswerLines;
use super::groups::{self, Groups};
use crate::error::Result;
use crate::functions;
use crate::question::aggregator::Parts;
use crate::question::{Aggregator, TsQuery};
use crate::view::View;

/// The column that names series, where there is one.
const SERIES: &str = "series";

/// Whether the aggregator can be made of parts, with states of fixed size that DataFusion has.
pub(super) fn can(aggregator: Aggregator) -> bool {
    aggregator.parts() != Parts::None
}

/// The aggregates that the final value is made of, by the name of the column that they are made of and become.
fn aggregates(parts: Parts) -> Vec<(&'static str, Arc<AggregateUDF>)> {
    let sum = || Arc::new(functions::sum());
    match parts {
        Parts::Sum | Parts::SumOfSquares => vec![("value", sum())],
        Parts::SumAndCount => vec![("value", sum()), ("count", sum())],
        Parts::Count => vec![("count", sum())],
        Parts::Least => vec![("value", Arc::new(functions::min()))],
        Parts::Greatest => vec![("value", Arc::new(functions::max()))],
        Parts::None | Parts::EachSeries => Vec::new(),
    }
}

/// Over a leaf that yields buckets: one row a group and bucket, in no order. They are sorted group
/// by group where they end up: a sort of all would need several times the memory of the answer.
pub(super) fn plan(query: &TsQuery, leaf: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match query.aggregator.parts() {
        Parts::EachSeries => Ok(Arc::new(CoalescePartitionsExec::new(leaf))),
        parts => {
            let mut wanted = aggregates(parts);
            wanted.push(("real", bool_or_udaf()));
            aggregate(leaf, &["group", "ts", SERIES], wanted)
        }
    }
}

/// One row for equal `keys`, as far as the leaf has them: partial aggregates where the leaf is, final ones here. Each is
/// made of a column and has its name.
pub(super) fn aggregate(
    leaf: Arc<dyn ExecutionPlan>,
    keys: &[&str],
    wanted: Vec<(&str, Arc<AggregateUDF>)>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = leaf.schema();
    let mut aggregates: Vec<Arc<AggregateFunctionExpr>> = Vec::new();
    for (name, function) in wanted {
        let built = AggregateExprBuilder::new(function, vec![col(name, &schema)?]).schema(Arc::clone(&schema));
        aggregates.push(Arc::new(built.alias(name).build()?));
    }
    let filters = vec![None; aggregates.len()];
    let keys = keys.iter().filter(|name| schema.index_of(name).is_ok());
    let keys = keys.map(|name| Ok((col(name, &schema)?, (*name).to_owned()))).collect::<Result<Vec<_>>>()?;
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(keys),
        aggregates.clone(),
        filters.clone(),
        leaf,
        Arc::clone(&schema),
    )?;
    let keys = partial.group_expr().as_final();
    // Partial states of many nodes meet between these two.
    let met = Arc::new(CoalescePartitionsExec::new(Arc::new(partial)));
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Final, keys, aggregates, filters, met, schema)?))
}

/// Makes final values of the rows of [`plan`].
pub(super) async fn finish(
    aggregator: Aggregator,
    mut rows: SendableRecordBatchStream,
    groups: &Groups,
    mut lines: AnswerLines,
) -> Result<AnswerLines> {
    while let Some(batch) = rows.next().await {
        add(aggregator, &batch?, groups, &mut lines)?;
    }
    Ok(lines)
}

/// As [`finish`], of rows that name their groups themselves: values wait until all are there.
pub(super) async fn finish_named(
    query: &TsQuery,
    mut rows: SendableRecordBatchStream,
    view: &View,
    memory: &mut MemoryReservation,
) -> Result<(Groups, Vec<RecordBatch>)> {
    let mut naming = groups::GroupNaming::default();
    let mut waiting = Vec::new();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        for tags in named(&batch, SERIES).as_string_view().iter().flatten() {
            naming.add(query, tags, view)?;
        }
        let of_buckets = is_null(named(&batch, SERIES)).map_err(DataFusionError::from)?;
        if of_buckets.true_count() > 0 {
            let batch = filter_record_batch(&batch, &of_buckets).map_err(DataFusionError::from)?;
            memory.try_grow(batch.get_array_memory_size())?;
            waiting.push(batch);
        }
    }
    Ok((naming.groups(query, view)?, waiting))
}

/// Makes final values of some rows.
pub(super) fn add(aggregator: Aggregator, batch: &RecordBatch, groups: &Groups, lines: &mut AnswerLines) -> Result<()> {
    let names = named(batch, "group").as_string_view();
    let times = named(batch, "ts").as_primitive::<TimestampMicrosecondType>().values();
    let real = named(batch, "real").as_boolean();
    let value = final_value(aggregator, batch);
    // Rows of one leaf have the same text at the same place, and those of several leaves have not.
    let views = names.views();
    let has_name_of = |row: usize, other: usize| views[row] == views[other] || names.value(row) == names.value(other);
    let mut group = None;
    let mut next = 0;
    while next < batch.num_rows() {
        let row = next;
        next += 1;
        // A sum that one float cannot hold is on several rows.
        while next < batch.num_rows() && times[next] == times[row] && has_name_of(next, row) {
            next += 1;
        }
        if !real.value(row) {
            continue;
        }
        let place = match group {
            Some((last, place)) if has_name_of(last, row) => place,
            _ => groups.find(names.value(row))?,
        };
        group = Some((row, place));
        lines.push(place, Timestamp::from_micros(times[row]), Value::Float(value(row..next)))?;
    }
    Ok(())
}

/// The final value of a bucket, which is all of some rows: NULL, which says that all contributions were NaN, is NaN again.
fn final_value(aggregator: Aggregator, batch: &RecordBatch) -> Box<dyn Fn(Range<usize>) -> f64 + Send + '_> {
    let float = |name: &str| {
        let column = named(batch, name).as_primitive::<Float64Type>();
        move |rows: Range<usize>| if column.is_null(rows.start) { f64::NAN } else { column.value(rows.start) }
    };
    let sum = |name: &str| {
        let column = named(batch, name).as_primitive::<Float64Type>();
        move |rows: Range<usize>| {
            if column.is_null(rows.start) {
                return f64::NAN;
            }
            let mut sum = ExactSum::default();
            rows.for_each(|row| sum.add(column.value(row)));
            sum.value()
        }
    };
    let count = |name: &str| {
        let column = named(batch, name).as_primitive::<Int64Type>();
        move |rows: Range<usize>| rows.map(|row| column.value(row)).sum::<i64>() as f64
    };
    match aggregator.parts() {
        Parts::SumAndCount => {
            let (sum, count) = (sum("value"), count("count"));
            Box::new(move |rows: Range<usize>| sum(rows.clone()) / count(rows))
        }
        Parts::Count => Box::new(count("count")),
        Parts::Least | Parts::Greatest | Parts::EachSeries => Box::new(float("value")),
        Parts::Sum | Parts::SumOfSquares | Parts::None => Box::new(sum("value")),
    }
}

/// A column that the plan has made.
fn named<'a>(batch: &'a RecordBatch, name: &str) -> &'a dyn Array {
    batch.column_by_name(name).expect("the plan above names its columns so").as_ref()
}
