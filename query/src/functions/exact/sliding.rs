//! A measure of the rows in a sliding window: rows leave in the order in which they came.

use arrow::array::ArrayRef;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, GroupsAccumulator};

use super::measure::{INPUTS_MAX, Measure};
use super::totals::{Totals, for_rows};

#[derive(Debug)]
pub(super) struct Sliding {
    measure: Measure,
    /// Of rows with numbers only: what is infinite could not be taken away again.
    finite: Totals,
    nan: u64,
    infinite: u64,
    infinite_below: u64,
}

impl Sliding {
    pub fn new(measure: Measure) -> Self {
        let mut finite = Totals::new(measure);
        finite.reach(1);
        Self { measure, finite, nan: 0, infinite: 0, infinite_below: 0 }
    }

    fn take(&mut self, row: [f64; INPUTS_MAX], sign: f64) {
        let count = match row {
            row if row.iter().all(|value| value.is_finite()) => return self.finite.add(0, row, sign),
            row if row.iter().any(|value| value.is_nan()) => &mut self.nan,
            row if row.contains(&f64::INFINITY) => &mut self.infinite,
            _ => &mut self.infinite_below,
        };
        *count = if sign < 0.0 { count.saturating_sub(1) } else { *count + 1 };
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_rows(values, None, |_, row| self.take(row, 1.0));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_rows(values, None, |_, row| self.take(row, -1.0));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let of_one = self.measure.sums() == 1;
        Ok(ScalarValue::Float64(match (self.nan, self.infinite, self.infinite_below) {
            (0, 0, 0) => self.finite.value(),
            (0, 1.., 0) if of_one => Some(f64::INFINITY),
            (0, 0, 1..) if of_one => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("windows are not made of parts")
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("windows are not made of parts")
    }

    fn size(&self) -> usize {
        size_of_val(self) + GroupsAccumulator::size(&self.finite)
    }
}
