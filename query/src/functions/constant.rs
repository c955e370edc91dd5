//! Arguments of aggregates that are the same for all rows: they are known before the first row is.

use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::function::AccumulatorArgs;
use std::sync::Arc;

/// The argument at `at` of `function` as a number; `what` says what it is, `expected` what it has to be.
///
/// # Errors
/// Where it depends on rows, or is no number.
pub(super) fn number(function: &str, args: &AccumulatorArgs<'_>, at: usize, what: &str, expected: &str) -> Result<f64> {
    let Some(expr) = args.exprs.get(at) else {
        return exec_err!("{function}: {what} is missing, expected {expected}");
    };
    let no_rows = RecordBatch::new_empty(Arc::new(Schema::empty()));
    match expr.evaluate(&no_rows) {
        Ok(ColumnarValue::Scalar(value)) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(number))) => Ok(number),
            _ => exec_err!("{function}: {what} is {value}, expected {expected}"),
        },
        _ => exec_err!("{function}: {what} is {expr}, which differs from row to row; expected a constant, {expected}"),
    }
}
