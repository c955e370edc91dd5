//! `histogram(value, lo, hi, n)`: how many values are in each of `n` buckets of equal width between `lo` and `hi`.
//!
//! The answer is a list of `n + 2` counts: of the values below `lo`, of those in each bucket, and of those from `hi` on.
//! A bucket has its lower edge and not its upper one; the edge below bucket `i` of `n`, counted from 0, is
//! `lo + (hi - lo) * i / n`. NULL and NaN are in none. Counts are added up wherever partial results meet, so the answer
//! is exact.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::constant;

const NAME: &str = "histogram";
/// Most buckets of one histogram: each group of a query has as many counts.
pub(crate) const BUCKETS_MAX: usize = 1_000;

pub fn histogram() -> AggregateUDF {
    AggregateUDF::from(Histogram { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Histogram {
    signature: Signature,
}

impl AggregateUDFImpl for Histogram {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() != 4 {
            return plan_err!(
                "{NAME} takes a value, the lower and the upper end and how many buckets, as in \
                 {NAME}(value, 0, 100, 10); {} arguments given",
                given.len()
            );
        }
        for (what, data_type) in ["value", "lower end", "upper end", "number of buckets"].iter().zip(given) {
            if !data_type.is_numeric() && !data_type.is_null() {
                return plan_err!("{NAME}: the {what} is a {data_type}, expected a number");
            }
        }
        Ok(vec![DataType::Float64; 4])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(count_item()))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return exec_err!("{NAME} counts every row; DISTINCT has no meaning in it");
        }
        Ok(Box::new(Counts::new(EvenBuckets::of(&args)?)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[counts]", args.name), DataType::List(count_item()), true))])
    }
}

fn count_item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Int64, true))
}

/// Buckets of equal width.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvenBuckets {
    lo: f64,
    hi: f64,
    count: usize,
}

impl EvenBuckets {
    fn of(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let lo = constant::number(NAME, args, 1, "the lower end", "a number")?;
        let hi = constant::number(NAME, args, 2, "the upper end", "a number above the lower end")?;
        let count = constant::number(NAME, args, 3, "the number of buckets", "a whole number above 0")?;
        Self::new(lo, hi, count)
    }

    /// # Errors
    /// Where these are no buckets.
    pub(super) fn new(lo: f64, hi: f64, count: f64) -> Result<Self> {
        if !(lo < hi && (hi - lo).is_finite()) {
            return exec_err!("{NAME}: the ends are {lo} and {hi}, expected finite numbers, the lower one first");
        }
        if !(count >= 1.0 && count <= BUCKETS_MAX as f64 && count.fract() == 0.0) {
            return exec_err!(
                "{NAME}: the number of buckets is {count}, expected a whole number from 1 to {BUCKETS_MAX}"
            );
        }
        Ok(Self { lo, hi, count: count as usize })
    }

    /// The edge below bucket `at`, from 0 on.
    pub(super) fn edge(&self, at: usize) -> f64 {
        if at == self.count {
            return self.hi;
        }
        self.lo + (self.hi - self.lo) * at as f64 / self.count as f64
    }

    /// Which of the counts a value belongs to: 0 is what is below all buckets.
    pub(super) fn place(&self, value: f64) -> usize {
        if value < self.lo {
            return 0;
        }
        if value >= self.hi {
            return self.count + 1;
        }
        // A quotient would be rounded, and put a value at an edge on either side of it.
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match value < self.edge(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        low + 1
    }
}

#[derive(Debug)]
struct Counts {
    buckets: EvenBuckets,
    counts: Vec<i64>,
}

impl Counts {
    fn new(buckets: EvenBuckets) -> Self {
        Self { buckets, counts: vec![0; buckets.count + 2] }
    }

    fn add(&mut self, values: &[ArrayRef], change: i64) {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten().filter(|value| !value.is_nan()) {
            self.counts[self.buckets.place(value)] += change;
        }
    }

    fn list(&self) -> Result<ScalarValue> {
        let one = OffsetBuffer::from_lengths([self.counts.len()]);
        let counts = Arc::new(Int64Array::from(self.counts.clone()));
        Ok(ScalarValue::List(Arc::new(ListArray::try_new(count_item(), one, counts, None)?)))
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states = states[0].as_list::<i32>();
        for state in states.iter().flatten() {
            let counts = state.as_primitive::<Int64Type>();
            if counts.len() != self.counts.len() {
                return exec_err!("{NAME}: a part has {} counts, expected {}", counts.len(), self.counts.len());
            }
            self.counts.iter_mut().zip(counts.values()).for_each(|(sum, count)| *sum += count);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.list()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.list()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<i64>()
    }
}
