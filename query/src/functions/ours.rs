//! DataFusion's aggregates with our implementations. Their names, arguments and types stay DataFusion's, and so does
//! the work on everything but floats.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// What is ours of an aggregate. `None` leaves the call to DataFusion's.
pub(super) trait OurAggregate: Debug + Eq + Hash + Send + Sync + 'static {
    /// DataFusion's function.
    fn inner(&self) -> &Arc<AggregateUDF>;

    fn accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn Accumulator>>>;

    fn groups_accumulator_supported(&self, args: &AccumulatorArgs<'_>) -> Option<bool>;

    fn groups_accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn GroupsAccumulator>>>;

    fn sliding_accumulator(&self, _args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn Accumulator>>> {
        None
    }

    fn state_fields(&self, _args: &StateFieldsArgs<'_>) -> Option<Vec<FieldRef>> {
        None
    }

    /// None, unless statistics are passed on: those of floats may be rounded.
    fn value_from_stats(&self, _statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        None
    }
}

/// The function that plans have. The order of rows never matters to it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Ours<F>(pub F);

impl<F: OurAggregate> AggregateUDFImpl for Ours<F> {
    fn name(&self) -> &str {
        self.0.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.0.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.inner().signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.0.inner().inner().return_type(given)
    }

    fn return_field(&self, given: &[FieldRef]) -> Result<FieldRef> {
        self.0.inner().inner().return_field(given)
    }

    fn is_nullable(&self) -> bool {
        self.0.inner().inner().is_nullable()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().inner().coerce_types(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(&args).unwrap_or_else(|| self.0.inner().accumulator(args))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match self.0.state_fields(&args) {
            Some(fields) => Ok(fields),
            None => self.0.inner().state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        let ours = self.0.groups_accumulator_supported(&args);
        ours.unwrap_or_else(|| self.0.inner().groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.groups_accumulator(&args).unwrap_or_else(|| self.0.inner().create_groups_accumulator(args))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.sliding_accumulator(&args).unwrap_or_else(|| self.0.inner().create_sliding_accumulator(args))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        let inner = self.0.inner().inner();
        inner.simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn is_descending(&self) -> Option<bool> {
        self.0.inner().inner().is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.0.value_from_stats(statistics)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.inner().inner().default_value(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.inner().documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.inner().inner().set_monotonicity(data_type)
    }
}
