//! Aggregates whose answer grows with their input: lists and texts. The operator that feeds them counts their state.
//! This module bounds one value and the values that one aggregate returns for a moving window, and counts the memory of
//! the copy that becomes the answer.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};

use super::bounds::TooMuch;
use super::{COUNTED_BYTES_MIN, OUTPUT_BYTES_MAX, PIECE_BYTES, PLANNED_BYTES_MAX, VALUE_BYTES_MAX, bounds, size};

/// Those whose answer grows.
const GROWING: [&str; 3] = ["array_agg", "string_agg", "nth_value"];

/// The same aggregate within bounds, unless it is already or needs none.
pub(super) fn guarded(function: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    match GROWING.contains(&function.name()) && !function.inner().is::<GuardedAggregate>() {
        true => Arc::new(AggregateUDF::new_from_impl(GuardedAggregate { inner: function })),
        false => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GuardedAggregate {
    inner: Arc<AggregateUDF>,
}

impl GuardedAggregate {
    fn limit(&self) -> Limit {
        let name = self.inner.name();
        let value_bytes_max = if name == "string_agg" { VALUE_BYTES_MAX } else { OUTPUT_BYTES_MAX };
        Limit { function: name.to_owned(), value_bytes_max }
    }
}

#[derive(Clone, Debug)]
struct Limit {
    function: String,
    value_bytes_max: u64,
}

impl Limit {
    fn value_max(&self) -> u64 {
        // A list may be longer than a text, but not where rows are multiplied.
        let here = bounds::value_bytes_max();
        if here < PLANNED_BYTES_MAX { here } else { self.value_bytes_max }
    }

    fn check_value(&self, found: u64) -> Result<()> {
        self.check(found, self.value_max(), "bytes of one value")
    }

    fn check(&self, found: u64, max: u64, what: &'static str) -> Result<()> {
        if found <= max {
            return Ok(());
        }
        let function = self.function.clone();
        Err(bounds::refuse(TooMuch { function, what, found, max }))
    }
}

#[derive(Debug)]
struct GuardedAccumulator {
    inner: Box<dyn Accumulator>,
    limit: Limit,
    /// Bytes that came since its size was looked at.
    taken: u64,
    /// Bytes of all answers so far: a window asks again and again.
    given: u64,
}

impl GuardedAccumulator {
    fn take(&mut self, values: &[ArrayRef]) -> Result<()> {
        bounds::check()?;
        self.taken += values.iter().map(|values| size::bytes(values, 0..values.len())).sum::<u64>();
        if self.taken > PIECE_BYTES {
            self.taken = 0;
            // Half of what it holds may be room for more.
            self.limit.check_value(self.inner.size() as u64 / 2)?;
        }
        Ok(())
    }

    fn give<T>(&mut self, answer: impl FnOnce(&mut dyn Accumulator) -> Result<T>) -> Result<T> {
        bounds::check()?;
        let bytes = self.inner.size();
        let _copy = if bytes as u64 >= COUNTED_BYTES_MIN { bounds::reserve(bytes)? } else { None };
        answer(&mut *self.inner)
    }
}

impl Accumulator for GuardedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.give(|inner| inner.evaluate())?;
        let bytes = size::of_scalar(&value);
        self.limit.check_value(bytes)?;
        self.given += bytes;
        self.limit.check(self.given, OUTPUT_BYTES_MAX, "bytes over one window")?;
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.give(|inner| inner.state())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.take(states)?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        bounds::check()?;
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct GuardedGroups {
    inner: Box<dyn GroupsAccumulator>,
    limit: Limit,
}

impl GuardedGroups {
    fn give<T>(&mut self, answer: impl FnOnce(&mut dyn GroupsAccumulator) -> Result<T>) -> Result<T> {
        bounds::check()?;
        let bytes = self.inner.size();
        let _copy = if bytes as u64 >= COUNTED_BYTES_MIN { bounds::reserve(bytes)? } else { None };
        answer(&mut *self.inner)
    }
}

impl GroupsAccumulator for GuardedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        bounds::check()?;
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let answer = self.give(|inner| inner.evaluate(emit_to))?;
        if size::bytes(&answer, 0..answer.len()) > self.limit.value_max() {
            let largest = (0..answer.len()).map(|row| size::bytes(&answer, row..row + 1)).max().unwrap_or(0);
            self.limit.check_value(largest)?;
        }
        Ok(answer)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.give(|inner| inner.state(emit_to))
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        bounds::check()?;
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

#[warn(clippy::missing_trait_methods)] // It must hand on every one of them.
impl AggregateUDFImpl for GuardedAggregate {
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let inner = self.inner.accumulator(args)?;
        Ok(Box::new(GuardedAccumulator { inner, limit: self.limit(), taken: 0, given: 0 }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let inner = self.inner.create_sliding_accumulator(args)?;
        Ok(Box::new(GuardedAccumulator { inner, limit: self.limit(), taken: 0, given: 0 }))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(Box::new(GuardedGroups { inner, limit: self.limit() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = AggregateUDF::clone(&self.inner).with_beneficial_ordering(beneficial_ordering)?;
        Ok(inner.map(|inner| Arc::new(Self { inner: Arc::new(inner) }) as Arc<dyn AggregateUDFImpl>))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(reversed) => ReversedUDAF::Reversed(guarded(reversed)),
            other => other,
        }
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        agg_function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        lit: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(agg_function, arg, op, lit, arg_is_left)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, statistics_args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(statistics_args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
