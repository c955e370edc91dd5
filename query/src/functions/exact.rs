//! DataFusion's aggregates over floats, under their names, with sums that are exact until the end.
//!
//! A sum that is rounded after every addition depends on the order of rows and on how they are cut into batches, threads
//! and nodes, none of which a question says. Here partial results are [`ExactSum`]s, of the values and of their products,
//! and rounding happens once, in the final value. So the same rows give the same bits wherever they stand. Everything
//! that is no float (integers, decimals, durations) is left to DataFusion, whose sums of those are exact.

mod distinct;
mod measure;
mod sliding;
#[cfg(test)]
mod tests;
mod totals;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate as theirs;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature,
};

use distinct::Distinct;
use measure::Measure;
use sliding::Sliding;
use totals::{SingleTotal, Totals};

#[cfg(doc)]
use telem_engine::ExactSum;

/// Every aggregate whose value rests on sums of floats.
pub fn exact_functions() -> Vec<AggregateUDF> {
    use Measure::{
        Average, Correlation, Covariance, Deviation, Intercept, MeanX, MeanY, RSquared, Slope, SpreadX, SpreadXy,
        SpreadY, Sum, Variance,
    };
    use measure::Of::{Population, Sample};
    let measured = [
        (theirs::sum::sum_udaf(), Sum),
        (theirs::average::avg_udaf(), Average),
        (theirs::variance::var_samp_udaf(), Variance(Sample)),
        (theirs::variance::var_pop_udaf(), Variance(Population)),
        (theirs::stddev::stddev_udaf(), Deviation(Sample)),
        (theirs::stddev::stddev_pop_udaf(), Deviation(Population)),
        (theirs::covariance::covar_samp_udaf(), Covariance(Sample)),
        (theirs::covariance::covar_pop_udaf(), Covariance(Population)),
        (theirs::correlation::corr_udaf(), Correlation),
        (theirs::regr::regr_slope_udaf(), Slope),
        (theirs::regr::regr_intercept_udaf(), Intercept),
        (theirs::regr::regr_r2_udaf(), RSquared),
        (theirs::regr::regr_avgx_udaf(), MeanX),
        (theirs::regr::regr_avgy_udaf(), MeanY),
        (theirs::regr::regr_sxx_udaf(), SpreadX),
        (theirs::regr::regr_syy_udaf(), SpreadY),
        (theirs::regr::regr_sxy_udaf(), SpreadXy),
    ];
    measured.into_iter().map(|(inner, measure)| Exact { inner, measure }.into()).collect()
}

/// `sum`, for plans that are built without SQL.
pub fn sum() -> AggregateUDF {
    Exact { inner: theirs::sum::sum_udaf(), measure: Measure::Sum }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    /// DataFusion's function: its name, what it takes, and all that is no float.
    inner: Arc<AggregateUDF>,
    measure: Measure,
}

impl Exact {
    fn is_ours(&self, fields: &[FieldRef], is_distinct: bool) -> bool {
        let floats =
            fields.len() == self.measure.inputs() && fields.iter().all(|field| *field.data_type() == DataType::Float64);
        floats && (!is_distinct || self.measure.inputs() == 1)
    }
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(given)
    }

    fn return_field(&self, given: &[FieldRef]) -> Result<FieldRef> {
        self.inner.inner().return_field(given)
    }

    fn is_nullable(&self) -> bool {
        self.inner.inner().is_nullable()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match (self.is_ours(args.expr_fields, args.is_distinct), args.is_distinct) {
            (false, _) => self.inner.accumulator(args),
            (true, true) => Ok(Box::new(Distinct::new(self.measure))),
            (true, false) => Ok(Box::new(SingleTotal::new(self.measure))),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match (self.is_ours(args.input_fields, args.is_distinct), args.is_distinct) {
            (false, _) => self.inner.state_fields(args),
            (true, true) => Ok(vec![distinct::state_field(args.name)]),
            (true, false) => Ok(totals::state_fields(args.name, self.measure)),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.is_ours(args.expr_fields, args.is_distinct) {
            true => !args.is_distinct,
            false => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match self.is_ours(args.expr_fields, args.is_distinct) {
            true if args.is_distinct => internal_err!("{}: groups of distinct values", self.name()),
            true => Ok(Box::new(Totals::new(self.measure))),
            false => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.is_ours(args.expr_fields, args.is_distinct) {
            true if !args.is_distinct => Ok(Box::new(Sliding::new(self.measure))),
            _ => self.inner.create_sliding_accumulator(args),
        }
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
        self.inner.inner().simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.inner().default_value(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

fn field(name: &str, of: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(format!("{name}[{of}]"), data_type, true))
}
