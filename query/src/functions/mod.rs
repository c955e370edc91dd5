//! The functions that telem adds to SQL.

mod by_time;
mod constant;
mod counter;
mod exact;
mod extreme;
mod histogram;
mod histogram_quantile;
mod ours;
#[cfg(test)]
mod tests;
mod time_bucket;

use std::sync::Arc;

use arrow::array::{Array, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

use crate::leaf::time_type;
pub(crate) use counter::rfc3339;
pub(crate) use exact::sum;
pub(crate) use extreme::{max, min};
pub(crate) use histogram::BUCKETS_MAX;
pub(crate) use histogram_quantile::BOUNDS_MAX;

/// The scalar functions that SQL gains. Nodes that work on parts of a query register the same.
pub fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(time_bucket::time_bucket())]
}

/// The aggregates that SQL gains, and those of DataFusion's that ours take the place of. Their partial states merge.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let functions = [by_time::first(), by_time::last(), counter::rate(), counter::increase(), counter::delta()];
    let ordered = [extreme::min(), extreme::max()];
    let histograms = [histogram::histogram(), histogram_quantile::histogram_quantile()];
    let ours = functions.into_iter().chain(histograms);
    ours.chain(exact::exact_functions()).chain(ordered).map(Arc::new).collect()
}

/// Functions of DataFusion's that SQL does not have here: each makes, from a number in the text of
/// a query, any amount of memory that no limit sees. (`generate_series` in FROM makes rows one by one.)
pub const LEFT_OUT: [&str; 7] = ["array_repeat", "array_resize", "generate_series", "lpad", "range", "repeat", "rpad"];

/// The same of those that take a lambda: what it names of its row is copied for each element of all lists of a batch,
/// where nothing can count it before.
pub const LAMBDAS_LEFT_OUT: [&str; 4] = ["array_any_match", "array_filter", "array_first", "array_transform"];

/// The type in which `function` takes a time that is given as `given`.
fn as_time(function: &str, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Timestamp(..) => Ok(given.clone()),
        DataType::Date32 | DataType::Date64 | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Ok(time_type())
        }
        other => plan_err!("{function}: the time is a {other}, expected a timestamp"),
    }
}

/// Whether an aggregate with FILTER counts the row; a row of which the condition is NULL does not count.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Checks the arguments of an aggregate over values and their times.
fn two_arguments(function: &str, given: &[DataType]) -> Result<()> {
    let [_, time] = given else {
        return plan_err!(
            "{function} takes a value and its time, as in {function}(value, ts); {} arguments given",
            given.len()
        );
    };
    as_time(function, time).map(|_| ())
}
