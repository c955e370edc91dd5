//! DataFusion's aggregates over floats, under their own names, with sums that are exact until the end.
//!
//! A sum that is rounded after every addition depends on the order of rows and on how they are cut into batches,
//! threads and nodes, and a query specifies none of these. Here partial results are [`ExactSum`]s of the values and of
//! their products, and only the final value is rounded. So the same rows give the same bits wherever they are stored.
//! All other types (integers, decimals, durations) are left to DataFusion, whose sums of them are exact.

mod distinct;
mod measure;
mod sliding;
#[cfg(test)]
mod tests;
mod totals;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::functions_aggregate as theirs;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, GroupsAccumulator};

use super::ours::{OurAggregate, Ours};
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
    measured.into_iter().map(|(inner, measure)| Ours(Exact { inner, measure }).into()).collect()
}

/// `sum`, for plans that are built without SQL.
pub fn sum() -> AggregateUDF {
    Ours(Exact { inner: theirs::sum::sum_udaf(), measure: Measure::Sum }).into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    /// DataFusion's function: its name, its arguments, and everything that is not a float.
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

impl OurAggregate for Exact {
    fn inner(&self) -> &Arc<AggregateUDF> {
        &self.inner
    }

    fn accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn Accumulator>>> {
        self.is_ours(args.expr_fields, args.is_distinct).then(|| match args.is_distinct {
            true => Ok(Box::new(Distinct::new(self.measure)) as _),
            false => Ok(Box::new(SingleTotal::new(self.measure)) as _),
        })
    }

    fn state_fields(&self, args: &StateFieldsArgs<'_>) -> Option<Vec<FieldRef>> {
        self.is_ours(args.input_fields, args.is_distinct).then(|| match args.is_distinct {
            true => vec![distinct::state_field(args.name)],
            false => totals::state_fields(args.name, self.measure),
        })
    }

    fn groups_accumulator_supported(&self, args: &AccumulatorArgs<'_>) -> Option<bool> {
        self.is_ours(args.expr_fields, args.is_distinct).then_some(!args.is_distinct)
    }

    fn groups_accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn GroupsAccumulator>>> {
        self.is_ours(args.expr_fields, args.is_distinct).then(|| match args.is_distinct {
            true => internal_err!("{}: groups of distinct values", self.inner.name()),
            false => Ok(Box::new(Totals::new(self.measure)) as _),
        })
    }

    fn sliding_accumulator(&self, args: &AccumulatorArgs<'_>) -> Option<Result<Box<dyn Accumulator>>> {
        let is_ours = self.is_ours(args.expr_fields, args.is_distinct) && !args.is_distinct;
        is_ours.then(|| Ok(Box::new(Sliding::new(self.measure)) as _))
    }
}

fn field(name: &str, of: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(format!("{name}[{of}]"), data_type, true))
}
