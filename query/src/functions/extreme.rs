//! `min` and `max` of floats, under DataFusion's names, with answers that do not depend on the order of rows.
//!
//! DataFusion's versions forget their state when they meet NaN, and keep whichever of -0.0 and 0.0 came first. Here
//! floats have one order: -0.0 is less than 0.0, and NaN is greater than all others. So `min` is NaN only if every
//! value is, and `max` is NaN if any value is. All other types are left to DataFusion.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator, StatisticsArgs};

use super::ours::{OurAggregate, Ours};
use super::passes;
use crate::question::aggregator::Side;

pub fn min() -> AggregateUDF {
    Ours(ExtremeFunction { inner: min_udaf(), side: Side::Least }).into()
}

pub fn max() -> AggregateUDF {
    Ours(ExtremeFunction { inner: max_udaf(), side: Side::Greatest }).into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeFunction {
    inner: Arc<AggregateUDF>,
    side: Side,
}

fn is_float(fields: &[FieldRef]) -> bool {
    matches!(fields, [field] if *field.data_type() == DataType::Float64)
}

impl OurAggregate for ExtremeFunction {
    fn inner(&self) -> &Arc<AggregateUDF> {
        &self.inner
    }

    fn accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn Accumulator>>> {
        is_float(args.expr_fields).then(|| Ok(Box::new(ExtremeAccumulator { side: self.side, kept: None }) as _))
    }

    fn groups_accumulator_supported(&self, args: &AccumulatorArgs<'_>) -> Option<bool> {
        is_float(args.expr_fields).then_some(true)
    }

    fn groups_accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn GroupsAccumulator>>> {
        is_float(args.expr_fields).then(|| Ok(Box::new(ExtremeGroups { side: self.side, kept: Vec::new() }) as _))
    }

    /// Extremes are not rounded.
    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.inner().value_from_stats(statistics)
    }
}

#[derive(Debug)]
struct ExtremeAccumulator {
    side: Side,
    kept: Option<f64>,
}

impl Accumulator for ExtremeAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.side.take(&mut self.kept, value);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.kept))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Float64(self.kept)])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

struct ExtremeGroups {
    side: Side,
    kept: Vec<Option<f64>>,
}

impl GroupsAccumulator for ExtremeGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.kept.resize(total.max(self.kept.len()), None);
        let values = values[0].as_primitive::<Float64Type>();
        for (at, group) in groups.iter().enumerate() {
            if passes(filter, at) && values.is_valid(at) {
                self.side.take(&mut self.kept[*group], values.value(at));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(emit.take_needed(&mut self.kept).into_iter().collect::<Float64Array>()))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = ExtremeGroups { side: self.side, kept: Vec::new() };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.kept.capacity() * size_of::<Option<f64>>()
    }
}
