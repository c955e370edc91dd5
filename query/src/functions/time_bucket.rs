//! `time_bucket(width, ts [, origin])`: the start of the bucket that holds a time.
//!
//! This is DataFusion's `date_bin` under the name that people look for, and it accepts widths as text too. Buckets
//! count from 1970-01-01 00:00 UTC unless an origin is given, like the buckets of downsampling. So weeks start on a
//! Thursday, and months and years where the calendar has them.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::functions::datetime::date_bin;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

pub fn time_bucket() -> ScalarUDF {
    ScalarUDF::from(TimeBucket { signature: Signature::user_defined(Volatility::Immutable), bin: date_bin() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeBucket {
    signature: Signature,
    bin: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (2 | 3) = given.len() else {
            return plan_err!(
                "time_bucket takes a width, a time and perhaps an origin; {} arguments given",
                given.len()
            );
        };
        let width = match &given[0] {
            DataType::Interval(IntervalUnit::DayTime) => given[0].clone(),
            DataType::Interval(_) | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            other => {
                return plan_err!(
                    "time_bucket: the width is a {other}, expected an interval such as '5 minutes' or INTERVAL '1 hour'"
                );
            }
        };
        let time = super::as_time("time_bucket", &given[1])?;
        let mut wanted = vec![width, time];
        if given.len() == 3 {
            super::as_time("time_bucket", &given[2])?;
            wanted.push(DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("UTC"))));
        }
        Ok(wanted)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[1].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.bin.invoke_with_args(args)
    }

    fn output_ordering(
        &self,
        inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
    ) -> Result<datafusion::logical_expr::sort_properties::SortProperties> {
        self.bin.output_ordering(inputs)
    }
}
