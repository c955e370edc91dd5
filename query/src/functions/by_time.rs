//! `first(value, ts)` and `last(value, ts)`: the value at the earliest and at the latest time.
//!
//! The state is one value and its time, so partial results can be merged anywhere. Rows in which either is NULL do not
//! count. Of several values at one time the greatest counts, so that the answer does not depend on the order of rows.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::two_arguments;
use crate::leaf::time_type;

pub fn first() -> AggregateUDF {
    AggregateUDF::from(ByTime { end: ByTimeEnd::First, signature: Signature::user_defined(Volatility::Immutable) })
}

pub fn last() -> AggregateUDF {
    AggregateUDF::from(ByTime { end: ByTimeEnd::Last, signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ByTimeEnd {
    First,
    Last,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByTime {
    end: ByTimeEnd,
    signature: Signature,
}

impl AggregateUDFImpl for ByTime {
    fn name(&self) -> &str {
        match self.end {
            ByTimeEnd::First => "first",
            ByTimeEnd::Last => "last",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        two_arguments(self.name(), given)?;
        Ok(vec![given[0].clone(), time_type()])
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(Chosen { end: self.end, time: None, value }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), args.return_field.data_type().clone(), true)),
            Arc::new(Field::new(format!("{}[ts]", args.name), time_type(), true)),
        ])
    }
}

/// The best row so far. `value` is NULL, of its type, until there is one.
#[derive(Debug)]
struct Chosen {
    end: ByTimeEnd,
    time: Option<i64>,
    value: ScalarValue,
}

impl Chosen {
    /// Whether a row at `time` comes before the one that stands, after it, or at the same time.
    fn compare(&self, time: i64) -> Ordering {
        match (self.time, self.end) {
            (None, _) => Ordering::Greater,
            (Some(standing), ByTimeEnd::Last) => time.cmp(&standing),
            (Some(standing), ByTimeEnd::First) => standing.cmp(&time),
        }
    }
}

impl Accumulator for Chosen {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (values, times) = (&values[0], values[1].as_primitive::<TimestampMicrosecondType>());
        for (at, time) in times.iter().enumerate() {
            let Some(time) = time else { continue };
            let better = self.compare(time);
            if better == Ordering::Less || values.is_null(at) {
                continue;
            }
            let value = ScalarValue::try_from_array(values, at)?;
            if better == Ordering::Greater || value.partial_cmp(&self.value) == Some(Ordering::Greater) {
                // Compacted: a view must not keep the buffers of its whole batch alive.
                self.value = value;
                self.value.compact();
                self.time = Some(time);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::TimestampMicrosecond(self.time, Some(Arc::from("UTC")))])
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }
}
