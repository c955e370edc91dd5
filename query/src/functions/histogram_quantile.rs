//! `histogram_quantile(q, le, count)`: a quantile of a histogram that came as buckets.
//!
//! Each row is a bucket: its upper bound `le`, a number or the text of one (`'0.5'`, `'+Inf'`), and how many values are
//! at or below that. Counts of equal bounds are added up, so the buckets of many series make one histogram. The rules
//! are those of Prometheus: values are thought to be spread evenly within their bucket, the first bucket begins at 0
//! unless its bound is not above that, and of a quantile in the bucket `+Inf` the answer is the bound below. NULL where
//! there is no bucket `+Inf`, no other bucket, or no value.
//!
//! The state is the sum of the counts at each bound. Sums are exact, so that no order of rows changes the answer.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use telem_engine::ExactSum;

use super::constant;

const NAME: &str = "histogram_quantile";
/// Most different bounds of one histogram.
pub(crate) const BOUNDS_MAX: usize = 10_000;

pub fn histogram_quantile() -> AggregateUDF {
    AggregateUDF::from(HistogramQuantile { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct HistogramQuantile {
    signature: Signature,
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

impl AggregateUDFImpl for HistogramQuantile {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [quantile, bound, count] = given else {
            return plan_err!(
                "{NAME} takes a quantile, the upper bound of a bucket and its count, as in {NAME}(0.99, le, value); \
                 {} arguments given",
                given.len()
            );
        };
        for (what, data_type) in [("quantile", quantile), ("count", count)] {
            if !data_type.is_numeric() && !data_type.is_null() {
                return plan_err!("{NAME}: the {what} is a {data_type}, expected a number");
            }
        }
        let bound = match bound {
            text if is_text(text) => DataType::Utf8View,
            number if number.is_numeric() || number.is_null() => DataType::Float64,
            other => return plan_err!("{NAME}: the bound is a {other}, expected a number or the text of one"),
        };
        Ok(vec![DataType::Float64, bound, DataType::Float64])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return exec_err!("{NAME} adds up every row; DISTINCT has no meaning in it");
        }
        let quantile = constant::number(NAME, &args, 0, "the quantile", "a number from 0 to 1")?;
        if !(0.0..=1.0).contains(&quantile) {
            return exec_err!("{NAME}: the quantile is {quantile}, expected a number from 0 to 1");
        }
        Ok(Box::new(BucketSums { quantile, sums: BTreeMap::new(), heap_bytes: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field =
            |part: &str, item| Arc::new(Field::new(format!("{}[{part}]", args.name), DataType::List(item), true));
        let (float, bytes) = (item(DataType::Float64), item(DataType::Binary));
        Ok(vec![field("le", float.clone()), field("high", float.clone()), field("low", float), field("rest", bytes)])
    }
}

fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(data_type, true))
}

/// A float in the order of all floats, so that it can be looked up.
#[derive(Clone, Copy, Debug)]
struct Bound(f64);

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The counts of a histogram, by the upper bounds of its buckets.
#[derive(Debug)]
struct BucketSums {
    quantile: f64,
    sums: BTreeMap<Bound, ExactSum>,
    /// Bytes that sums have on the heap.
    heap_bytes: usize,
}

impl BucketSums {
    fn change(&mut self, bound: f64, change: impl FnOnce(&mut ExactSum)) -> Result<()> {
        if bound.is_nan() {
            return exec_err!("{NAME}: a bound is NaN, expected a number or +Inf");
        }
        // -0 is 0.
        let key = Bound(bound + 0.0);
        if self.sums.len() >= BOUNDS_MAX && !self.sums.contains_key(&key) {
            return exec_err!(
                "{NAME}: a histogram has more than {BOUNDS_MAX} buckets, the most that are allowed; the second argument \
                 is the upper bound of a bucket, the third its count"
            );
        }
        let sum = self.sums.entry(key).or_default();
        let before = sum.heap_bytes();
        change(sum);
        self.heap_bytes = self.heap_bytes + sum.heap_bytes() - before;
        Ok(())
    }
}

/// A bound as clients write it in the tag `le`. Some of them cannot send a plus in a tag, and store `_Inf` and `1e_06`.
fn parse_bound(text: &str) -> Result<f64> {
    match text.trim().replace('_', "+").parse::<f64>() {
        Ok(bound) => Ok(bound),
        Err(_) => exec_err!("{NAME}: a bound is '{text}', expected a number or +Inf, as in the tag le of NAME_bucket"),
    }
}

/// The quantile of a histogram by its upper bounds, ascending, and how many values are at or below each.
pub(super) fn quantile_of(quantile: f64, buckets: &[(f64, f64)]) -> Option<f64> {
    let [below @ .., (last, all)] = buckets else { return None };
    if *last != f64::INFINITY || below.is_empty() {
        return None;
    }
    // Counts that were read at different moments may fall; what was below a bound is below the next one too.
    let mut reached = 0.0_f64;
    let rising: Vec<(f64, f64)> = below
        .iter()
        .map(|(bound, count)| {
            reached = reached.max(*count);
            (*bound, reached)
        })
        .collect();
    let all = all.max(reached);
    if all.is_nan() || all <= 0.0 {
        return None;
    }
    let rank = quantile * all;
    let Some(at) = rising.iter().position(|(_, count)| *count > 0.0 && *count >= rank) else {
        return rising.last().map(|(bound, _)| *bound);
    };
    let (end, count) = rising[at];
    let (start, before) = match at.checked_sub(1) {
        Some(previous) => rising[previous],
        None if end <= 0.0 => return Some(end),
        None => (0.0, 0.0),
    };
    Some(start + (end - start) * ((rank - before) / (count - before)))
}

impl Accumulator for BucketSums {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let counts = values[2].as_primitive::<Float64Type>();
        for at in (0..counts.len()).filter(|at| counts.is_valid(*at) && values[1].is_valid(*at)) {
            let count = counts.value(at);
            if count.is_nan() {
                continue;
            }
            let bound = match values[1].as_string_view_opt() {
                Some(texts) => parse_bound(texts.value(at))?,
                None => values[1].as_primitive::<Float64Type>().value(at),
            };
            self.change(bound, |sum| sum.add(count))?;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists: Vec<&ListArray> = states.iter().map(|state| state.as_list::<i32>()).collect();
        let [bounds, highs, lows, rests] = lists[..] else {
            return exec_err!("{NAME}: a part has {} columns, expected 4", lists.len());
        };
        for row in 0..bounds.len() {
            let (bounds, highs, lows, rests) = (bounds.value(row), highs.value(row), lows.value(row), rests.value(row));
            let floats = |array: &ArrayRef| array.as_primitive::<Float64Type>().clone();
            let (bounds, highs, lows) = (floats(&bounds), floats(&highs), floats(&lows));
            let rests = rests.as_binary::<i32>();
            for at in 0..bounds.len() {
                let rest = rests.is_valid(at).then(|| rests.value(at));
                let Some(part) = ExactSum::from_parts(highs.value(at), lows.value(at), rest) else {
                    return exec_err!("{NAME}: {} bytes are no part of a sum", rest.map_or(0, <[u8]>::len));
                };
                self.change(bounds.value(at), |sum| sum.merge(&part))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let buckets: Vec<(f64, f64)> = self.sums.iter().map(|(bound, sum)| (bound.0, sum.value())).collect();
        Ok(ScalarValue::Float64(quantile_of(self.quantile, &buckets)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let one = |values: ArrayRef| {
            let lengths = OffsetBuffer::from_lengths([values.len()]);
            let list = ListArray::try_new(item(values.data_type().clone()), lengths, values, None)?;
            Ok(ScalarValue::List(Arc::new(list)))
        };
        let parts: Vec<_> = self.sums.values().map(ExactSum::parts).collect();
        let bounds = Float64Array::from_iter_values(self.sums.keys().map(|bound| bound.0));
        let highs = Float64Array::from_iter_values(parts.iter().map(|(high, ..)| *high));
        let lows = Float64Array::from_iter_values(parts.iter().map(|(_, low, _)| *low));
        let rests: BinaryArray = parts.iter().map(|(.., rest)| rest.as_deref()).collect();
        [Arc::new(bounds) as ArrayRef, Arc::new(highs), Arc::new(lows), Arc::new(rests)].into_iter().map(one).collect()
    }

    fn size(&self) -> usize {
        // A tree of maps has nodes that are half full.
        size_of_val(self) + self.sums.len() * 2 * size_of::<(Bound, ExactSum)>() + self.heap_bytes
    }
}
