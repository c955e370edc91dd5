//! `first(value, ts)` and `last(value, ts)`: the value at the earliest and at the latest time.
//!
//! The state is one value and its time, so partial results can be merged anywhere. Rows in which either is NULL do not
//! count. Of several values at one time the greatest counts, so that the answer does not depend on the order of rows.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::{passes, two_arguments};
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

    /// Samples have values of two types. Others are chosen group by group.
    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        matches!(args.return_field.data_type(), DataType::Float64 | DataType::Int64)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Float64 => Ok(Box::new(ChosenOfGroups::<Float64Type> { end: self.end, kept: Vec::new() })),
            DataType::Int64 => Ok(Box::new(ChosenOfGroups::<Int64Type> { end: self.end, kept: Vec::new() })),
            other => internal_err!("{} chooses among values of type {other} group by group", self.name()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), args.return_field.data_type().clone(), true)),
            Arc::new(Field::new(format!("{}[ts]", args.name), time_type(), true)),
        ])
    }
}

impl ByTimeEnd {
    /// Whether a row at `time` comes before the one that stands, after it, or at the same time.
    fn compare(self, time: i64, standing: Option<i64>) -> Ordering {
        match (standing, self) {
            (None, _) => Ordering::Greater,
            (Some(standing), ByTimeEnd::Last) => time.cmp(&standing),
            (Some(standing), ByTimeEnd::First) => standing.cmp(&time),
        }
    }
}

/// The best row so far. `value` is NULL, of its type, until there is one.
#[derive(Debug)]
struct Chosen {
    end: ByTimeEnd,
    time: Option<i64>,
    value: ScalarValue,
}

impl Accumulator for Chosen {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (values, times) = (&values[0], values[1].as_primitive::<TimestampMicrosecondType>());
        for (at, time) in times.iter().enumerate() {
            let Some(time) = time else { continue };
            let better = self.end.compare(time, self.time);
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

/// The best row of each group so far: its time and value.
struct ChosenOfGroups<T: ArrowPrimitiveType> {
    end: ByTimeEnd,
    kept: Vec<Option<(i64, T::Native)>>,
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for ChosenOfGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.kept.resize(total.max(self.kept.len()), None);
        let (values, times) = (values[0].as_primitive::<T>(), values[1].as_primitive::<TimestampMicrosecondType>());
        for (at, group) in groups.iter().enumerate() {
            if !passes(filter, at) || values.is_null(at) || times.is_null(at) {
                continue;
            }
            let (time, value) = (times.value(at), values.value(at));
            let kept = &mut self.kept[*group];
            let better = self.end.compare(time, kept.map(|(standing, _)| standing));
            if better.then_with(|| kept.map_or(Ordering::Greater, |(_, kept)| value.compare(kept))) == Ordering::Greater
            {
                *kept = Some((time, value));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let kept = emit.take_needed(&mut self.kept);
        Ok(Arc::new(kept.into_iter().map(|kept| kept.map(|(_, value)| value)).collect::<PrimitiveArray<T>>()))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let kept = emit.take_needed(&mut self.kept);
        let values: PrimitiveArray<T> = kept.iter().map(|kept| kept.map(|(_, value)| value)).collect();
        let times: TimestampMicrosecondArray = kept.iter().map(|kept| kept.map(|(time, _)| time)).collect();
        Ok(vec![Arc::new(values), Arc::new(times.with_timezone("UTC"))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = ChosenOfGroups::<T> { end: self.end, kept: Vec::new() };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.kept.capacity() * size_of::<Option<(i64, T::Native)>>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, UInt32Array};
    use arrow::compute::take;
    use proptest::prelude::*;

    use super::*;

    const GROUPS: usize = 3;

    fn chosen(end: ByTimeEnd) -> Chosen {
        Chosen { end, time: None, value: ScalarValue::Float64(None) }
    }

    fn of_groups(end: ByTimeEnd) -> ChosenOfGroups<Float64Type> {
        ChosenOfGroups { end, kept: Vec::new() }
    }

    proptest! {
        /// In two parts that are merged, with rows that a filter leaves out, NULL and equal times among them.
        #[test]
        fn groups_choose_what_each_chooses_by_itself(
            rows in prop::collection::vec(
                (prop::option::weighted(0.9, -3.0..3.0_f64), prop::option::weighted(0.9, 0..6_i64), 0..GROUPS, any::<Option<bool>>()),
                0..60,
            ),
            is_last in any::<bool>(),
            cut in 0..60_usize,
        ) {
            let end = if is_last { ByTimeEnd::Last } else { ByTimeEnd::First };
            let mut merged = of_groups(end);
            let mut alone: Vec<Chosen> = (0..GROUPS).map(|_| chosen(end)).collect();
            let (early, late) = rows.split_at(cut.min(rows.len()));
            for part in [early, late] {
                let values: ArrayRef = Arc::new(part.iter().map(|row| row.0.map(f64::round)).collect::<Float64Array>());
                let times = part.iter().map(|row| row.1).collect::<TimestampMicrosecondArray>().with_timezone("UTC");
                let columns = [values, Arc::new(times) as ArrayRef];
                let groups: Vec<usize> = part.iter().map(|row| row.2).collect();
                let filter: BooleanArray = part.iter().map(|row| row.3).collect();
                let mut partial = of_groups(end);
                partial.update_batch(&columns, &groups, Some(&filter), GROUPS)?;
                merged.merge_batch(&partial.state(EmitTo::All)?, &[0, 1, 2], GROUPS)?;
                for (group, alone) in alone.iter_mut().enumerate() {
                    let passes = |at: &u32| groups[*at as usize] == group && part[*at as usize].3 == Some(true);
                    let its = UInt32Array::from_iter_values((0..part.len() as u32).filter(passes));
                    alone.update_batch(&[take(&columns[0], &its, None)?, take(&columns[1], &its, None)?])?;
                }
            }
            let found = merged.evaluate(EmitTo::All)?;
            for (group, mut alone) in alone.into_iter().enumerate() {
                prop_assert_eq!(ScalarValue::try_from_array(&found, group)?, alone.evaluate()?);
            }
        }
    }
}
