//! Exact sums of groups of rows, and of all rows.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use telem_engine::ExactSum;

use super::field;
use super::measure::{INPUTS_MAX, Measure};
use crate::functions::passes;

/// Columns of one sum in a state: two floats, and bytes where these do not hold it.
const COLUMNS: usize = 3;

/// A state: how many rows, and each sum as the columns that [`ExactSum::parts`] gives.
pub(super) fn state_fields(name: &str, measure: Measure) -> Vec<FieldRef> {
    let mut fields = vec![field(name, "count", DataType::UInt64)];
    for sum in 0..measure.sums() {
        let parts = [("high", DataType::Float64), ("low", DataType::Float64), ("rest", DataType::Binary)];
        fields.extend(parts.into_iter().map(|(part, data_type)| field(name, &format!("{part} {sum}"), data_type)));
    }
    fields
}

/// The sums of every group.
#[derive(Debug)]
pub(super) struct Totals {
    measure: Measure,
    counts: Vec<u64>,
    /// Group by group.
    sums: Vec<ExactSum>,
    /// Bytes that sums have on the heap.
    heap_bytes: usize,
}

impl Totals {
    pub fn new(measure: Measure) -> Self {
        Self { measure, counts: Vec::new(), sums: Vec::new(), heap_bytes: 0 }
    }

    /// Sets the number of groups from now on.
    pub fn reach(&mut self, groups: usize) {
        if groups > self.counts.len() {
            self.counts.resize(groups, 0);
            self.sums.resize(groups * self.measure.sums(), ExactSum::default());
        }
    }

    /// Takes in a row of a group, or takes it away where `sign` is -1.
    pub fn add(&mut self, group: usize, row: [f64; INPUTS_MAX], sign: f64) {
        let width = self.measure.sums();
        let sums = &mut self.sums[group * width..][..width];
        let before = heap_bytes(sums);
        self.measure.add(sums, row, sign);
        self.heap_bytes = self.heap_bytes + heap_bytes(sums) - before;
        let count = &mut self.counts[group];
        *count = if sign < 0.0 { count.saturating_sub(1) } else { *count + 1 };
    }

    /// The value of the first group.
    pub fn value(&self) -> Option<f64> {
        self.measure.of(self.counts[0], &self.sums[..self.measure.sums()])
    }

    fn add_state(&mut self, group: usize, states: &[ArrayRef], row: usize) -> Result<()> {
        let width = self.measure.sums();
        self.counts[group] += states[0].as_primitive::<UInt64Type>().value(row);
        for (at, columns) in states[1..].chunks(COLUMNS).enumerate() {
            let [high, low, rest] = columns else { return exec_err!("a sum comes in {} parts", columns.len()) };
            let (high, low) = (high.as_primitive::<Float64Type>(), low.as_primitive::<Float64Type>());
            let sum = &mut self.sums[group * width + at];
            let before = sum.heap_bytes();
            if rest.is_null(row) {
                sum.add(high.value(row));
                sum.add(low.value(row));
            } else {
                let rest = rest.as_binary::<i32>().value(row);
                let Some(part) = ExactSum::from_parts(high.value(row), low.value(row), Some(rest)) else {
                    return exec_err!("{} bytes are no part of a sum", rest.len());
                };
                sum.merge(&part);
            }
            self.heap_bytes = self.heap_bytes + sum.heap_bytes() - before;
        }
        Ok(())
    }

    fn take(&mut self, emit: EmitTo) -> (Vec<u64>, Vec<ExactSum>) {
        let counts = emit.take_needed(&mut self.counts);
        let sums = match emit {
            EmitTo::All => EmitTo::All,
            EmitTo::First(groups) => EmitTo::First(groups * self.measure.sums()),
        };
        let sums = sums.take_needed(&mut self.sums);
        self.heap_bytes = self.heap_bytes.saturating_sub(heap_bytes(&sums));
        (counts, sums)
    }

    fn values(&mut self, emit: EmitTo) -> Float64Array {
        let (counts, sums) = self.take(emit);
        let groups = counts.iter().zip(sums.chunks(self.measure.sums()));
        groups.map(|(count, sums)| self.measure.of(*count, sums)).collect()
    }

    fn states(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        let (counts, sums) = self.take(emit);
        let width = self.measure.sums();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(counts))];
        for at in 0..width {
            let parts: Vec<_> = sums.iter().skip(at).step_by(width).map(ExactSum::parts).collect();
            columns.push(Arc::new(parts.iter().map(|(high, ..)| Some(*high)).collect::<Float64Array>()));
            columns.push(Arc::new(parts.iter().map(|(_, low, _)| Some(*low)).collect::<Float64Array>()));
            let mut rests = BinaryBuilder::new();
            parts.into_iter().for_each(|(.., rest)| rests.append_option(rest));
            columns.push(Arc::new(rests.finish()));
        }
        columns
    }
}

impl GroupsAccumulator for Totals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.reach(total);
        if let ([values], None, 1) = (values, filter, self.measure.sums())
            && values.null_count() == 0
        {
            for (group, value) in groups.iter().zip(values.as_primitive::<Float64Type>().values()) {
                let sum = &mut self.sums[*group];
                if !sum.try_add(*value) {
                    let before = sum.heap_bytes();
                    sum.add(*value);
                    self.heap_bytes = self.heap_bytes + sum.heap_bytes() - before;
                }
                self.counts[*group] += 1;
            }
            return Ok(());
        }
        for_rows(values, filter, |at, row| self.add(groups[at], row, 1.0));
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(self.values(emit)))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.states(emit))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.reach(total);
        groups.iter().enumerate().try_for_each(|(row, group)| self.add_state(*group, states, row))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Totals::new(self.measure);
        each.reach(values[0].len());
        for_rows(values, filter, |at, row| each.add(at, row, 1.0));
        Ok(each.states(EmitTo::All))
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<u64>() + self.sums.capacity() * size_of::<ExactSum>() + self.heap_bytes
    }
}

/// The sums of all rows.
#[derive(Debug)]
pub(super) struct SingleTotal(Totals);

impl SingleTotal {
    pub fn new(measure: Measure) -> Self {
        let mut totals = Totals::new(measure);
        totals.reach(1);
        Self(totals)
    }
}

impl Accumulator for SingleTotal {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let ([values], [sum]) = (values, &mut self.0.sums[..])
            && values.null_count() == 0
        {
            sum.add_all(values.as_primitive::<Float64Type>().values());
            self.0.counts[0] += values.len() as u64;
            self.0.heap_bytes = sum.heap_bytes();
            return Ok(());
        }
        for_rows(values, None, |_, row| self.0.add(0, row, 1.0));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        (0..states[0].len()).try_for_each(|row| self.0.add_state(0, states, row))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.0.value()))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = self.0.states(EmitTo::All);
        self.0.reach(1);
        columns.iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + GroupsAccumulator::size(&self.0)
    }
}

/// Calls `take` for every row in which no value is NULL and that passes the filter.
pub(super) fn for_rows(
    values: &[ArrayRef],
    filter: Option<&BooleanArray>,
    mut take: impl FnMut(usize, [f64; INPUTS_MAX]),
) {
    let columns: Vec<&Float64Array> = values.iter().map(|column| column.as_primitive::<Float64Type>()).collect();
    let (Some(y), x) = (columns.first(), columns.get(1)) else { return };
    for at in 0..y.len() {
        if passes(filter, at) && columns.iter().all(|column| column.is_valid(at)) {
            take(at, [y.value(at), x.map_or(0.0, |x| x.value(at))]);
        }
    }
}

fn heap_bytes(sums: &[ExactSum]) -> usize {
    sums.iter().map(ExactSum::heap_bytes).sum()
}
