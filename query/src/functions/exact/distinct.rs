//! A measure of distinct values.

use std::mem::size_of;
use std::sync::Arc;

use ahash::AHashSet;
use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use telem_engine::ExactSum;

use super::field;
use super::measure::Measure;
use super::totals::for_rows;

pub(super) fn state_field(name: &str) -> FieldRef {
    field(name, "distinct", DataType::List(item()))
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, true))
}

#[derive(Debug)]
pub(super) struct Distinct {
    measure: Measure,
    /// The bits of every value: one NaN, and no -0.0.
    values: AHashSet<u64>,
}

impl Distinct {
    pub fn new(measure: Measure) -> Self {
        Self { measure, values: AHashSet::new() }
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_rows(&values[..1], None, |_, [value, _]| {
            let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
            self.values.insert(value.to_bits());
        });
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        (0..lists.len()).filter(|at| lists.is_valid(*at)).try_for_each(|at| self.update_batch(&[lists.value(at)]))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sums = vec![ExactSum::default(); self.measure.sums()];
        self.values.iter().for_each(|bits| self.measure.add(&mut sums, [f64::from_bits(*bits), 0.0], 1.0));
        Ok(ScalarValue::Float64(self.measure.of(self.values.len() as u64, &sums)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Float64Array =
            std::mem::take(&mut self.values).into_iter().map(|bits| Some(f64::from_bits(bits))).collect();
        let one = OffsetBuffer::from_lengths([values.len()]);
        Ok(vec![ScalarValue::List(Arc::new(ListArray::try_new(item(), one, Arc::new(values), None)?))])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * (size_of::<u64>() + 1)
    }
}
