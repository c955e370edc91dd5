//! `rate(value, ts)`, `increase(value, ts)` and `delta(value, ts)`: how the readings of one series changed within a
//! group.
//!
//! `increase` is for counters: it adds up the rises, and a reading below its predecessor is a counter that started
//! again at 0. `rate` is the increase divided by the seconds between the first and the last reading, without
//! extrapolation. `delta` is for gauges: the last reading minus the first. All three are NULL with fewer than two
//! readings. Rows may come in any order.
//!
//! A group must hold one series. A series has one value at a time, so two different values at one time prove that there
//! are several series. That is an error, because a result computed across them would be meaningless.
//!
//! A reset is visible only between neighbours in time, and partial results may interleave in time. So the state is the
//! readings themselves, and it is counted against the memory of queries.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, TimestampMicrosecondArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, TimestampMicrosecondType};
use chrono::{DateTime, SecondsFormat};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::two_arguments;
use crate::leaf::time_type;

const MICROS_PER_SECOND: f64 = 1e6;

pub fn rate() -> AggregateUDF {
    CounterChange::Rate.into()
}

pub fn increase() -> AggregateUDF {
    CounterChange::Increase.into()
}

pub fn delta() -> AggregateUDF {
    CounterChange::Delta.into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CounterChange {
    Rate,
    Increase,
    Delta,
}

impl From<CounterChange> for AggregateUDF {
    fn from(change: CounterChange) -> Self {
        AggregateUDF::from(Counter { change, signature: Signature::user_defined(Volatility::Immutable) })
    }
}

impl CounterChange {
    fn name(self) -> &'static str {
        match self {
            CounterChange::Rate => "rate",
            CounterChange::Increase => "increase",
            CounterChange::Delta => "delta",
        }
    }

    /// `readings` are sorted by time, every time once. Times in microseconds.
    fn of(self, readings: &[(i64, f64)]) -> Option<f64> {
        let [first, .., last] = readings else { return None };
        let increase = || {
            let rises = readings.windows(2).map(|pair| {
                let (before, now) = (pair[0].1, pair[1].1);
                if now < before { now } else { now - before }
            });
            rises.sum::<f64>()
        };
        Some(match self {
            CounterChange::Delta => last.1 - first.1,
            CounterChange::Increase => increase(),
            CounterChange::Rate => increase() / (last.0.saturating_sub(first.0) as f64 / MICROS_PER_SECOND),
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counter {
    change: CounterChange,
    signature: Signature,
}

impl AggregateUDFImpl for Counter {
    fn name(&self) -> &str {
        self.change.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        two_arguments(self.name(), given)?;
        if !given[0].is_numeric() && !given[0].is_null() {
            return datafusion::common::plan_err!("{}: the value is a {}, expected a number", self.name(), given[0]);
        }
        Ok(vec![DataType::Float64, time_type()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Readings { change: self.change, readings: Vec::new() }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), DataType::List(value_item()), true)),
            Arc::new(Field::new(format!("{}[ts]", args.name), DataType::List(time_item()), true)),
        ])
    }
}

pub(crate) fn rfc3339(micros: i64) -> String {
    let time = DateTime::from_timestamp_micros(micros);
    time.map_or_else(|| format!("{micros} us"), |time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

fn value_item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, true))
}

fn time_item() -> FieldRef {
    Arc::new(Field::new_list_field(time_type(), true))
}

/// All readings of a group, in the order in which they came.
#[derive(Debug)]
struct Readings {
    change: CounterChange,
    /// Microseconds and value.
    readings: Vec<(i64, f64)>,
}

impl Accumulator for Readings {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let times = values[1].as_primitive::<TimestampMicrosecondType>();
        let values = values[0].as_primitive::<Float64Type>();
        let pairs = times.iter().zip(values).filter_map(|(time, value)| Some((time?, value?)));
        // NaN is the absence of a reading, not a reading.
        self.readings.extend(pairs.filter(|(_, value)| !value.is_nan()));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, times) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for at in 0..values.len() {
            if values.is_valid(at) && times.is_valid(at) {
                self.update_batch(&[values.value(at), times.value(at)])?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // By value too, so that the error does not depend on the order of rows.
        self.readings.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        if let Some(&[(time, one), (_, other)]) = self.readings.array_windows().find(|[a, b]| a.0 == b.0 && a.1 != b.1)
        {
            let name = self.change.name();
            return exec_err!(
                "{name}: {one} and {other} are both of {}, so a group holds several series, and expected is one: name all \
                 tags of the metric in GROUP BY (DESCRIBE shows them), and sum around that, as in SELECT host, sum(each) \
                 FROM (SELECT host, mode, {name}(value, ts) AS each FROM ... GROUP BY host, mode) GROUP BY host",
                rfc3339(time)
            );
        }
        // A join may have repeated rows.
        self.readings.dedup_by_key(|(time, _)| *time);
        Ok(ScalarValue::Float64(self.change.of(&self.readings)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let readings = std::mem::take(&mut self.readings);
        let (times, values): (Vec<i64>, Vec<f64>) = readings.into_iter().unzip();
        let one = OffsetBuffer::from_lengths([values.len()]);
        let times = TimestampMicrosecondArray::from(times).with_timezone("UTC");
        let values = ListArray::try_new(value_item(), one.clone(), Arc::new(Float64Array::from(values)), None)?;
        let times = ListArray::try_new(time_item(), one, Arc::new(times), None)?;
        Ok(vec![ScalarValue::List(Arc::new(values)), ScalarValue::List(Arc::new(times))])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.readings.capacity() * size_of::<(i64, f64)>()
    }
}
