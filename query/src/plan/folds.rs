//! Folds: of every line (a group of series) and bucket the sum, the number, the least and the greatest of all samples, in
//! one pass where the samples are; of a rate the least and the greatest rise from sample to sample, added up over series
//! where the query adds up. Rows go to a [`FoldSink`] as they come, and nothing is held here.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::array::cast::AsArray;
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use telem_engine::Timestamp;

use super::{LeafSize, PlanContext, check, execute, leaf, pushdown};
use crate::answer::{FoldSink, FoldedRows, MissingNode};
use crate::error::{Error, Result};
use crate::functions;
use crate::leaf::series::{STATES_MAX, Yield, adds_extremes, can_fold};
use crate::pipeline::Pipeline;
use crate::question::TsQuery;
use crate::question::tags::SEPARATOR;
use crate::selection::group_keys;

/// Folds the samples of `query`: its metric, filters and groups, from start to end in the buckets of its downsampling,
/// whose function does not matter.
///
/// # Errors
/// Invalid, UnknownName, Memory; Engine when samples cannot be read.
pub async fn fold(query: &TsQuery, context: &PlanContext<'_>, sink: &mut impl FoldSink) -> Result<Vec<MissingNode>> {
    check(query, &context.view)?;
    if !can_fold(query) {
        return Err(Error::Invalid(format!("a fold takes 1 to {STATES_MAX} buckets of a fixed step")));
    }
    let (query, keys) = (Arc::new(query.clone()), group_keys(query));
    let mut rows = execute(plan(&query, context)?, context).await?;
    let mut open = OpenRows::default();
    while let Some(batch) = rows.next().await {
        if !open.hand_over(&batch?, &keys, sink) {
            break;
        }
    }
    Ok(context.view.missing())
}

/// Nodes send their rows directly, unless lines have series of many nodes: then states meet on the way.
fn plan(query: &Arc<TsQuery>, context: &PlanContext<'_>) -> Result<Arc<dyn ExecutionPlan>> {
    let selected = context.view.select(query);
    let steps = Pipeline::new(query).steps().unwrap_or(u64::MAX);
    let size = LeafSize::of_groups(query, &context.view, &selected, steps)?;
    let leaf = leaf(query, Yield::Folds, &selected, size, context);
    if context.view.is_alone() || 2 * size.groups >= context.view.nodes() {
        return Ok(leaf);
    }
    let (least, greatest) = match adds_extremes(query) {
        true => (functions::sum(), functions::sum()),
        false => (functions::min(), functions::max()),
    };
    let sum = || Arc::new(functions::sum());
    let parts = vec![("sum", sum()), ("count", sum()), ("least", Arc::new(least)), ("greatest", Arc::new(greatest))];
    pushdown::aggregate(leaf, &["group", "ts"], parts)
}

/// The columns of a batch, for the stretches of rows that are of one line.
#[derive(Default)]
struct OpenRows {
    times: Vec<Timestamp>,
    counts: Vec<u64>,
    least: Vec<f64>,
    greatest: Vec<f64>,
}

impl OpenRows {
    /// False where no more is wanted.
    fn hand_over(&mut self, batch: &RecordBatch, keys: &[&str], sink: &mut impl FoldSink) -> bool {
        let names = batch.column(0).as_string_view();
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>().values();
        let sums = batch.column(2).as_primitive::<Float64Type>();
        let counts = batch.column(3).as_primitive::<Int64Type>().values();
        self.times.clear();
        self.times.extend(times.iter().map(|micros| Timestamp::from_micros(*micros)));
        self.counts.clear();
        self.counts.extend(counts.iter().map(|count| u64::try_from(*count).unwrap_or(0)));
        for (floats, at) in [(&mut self.least, 4), (&mut self.greatest, 5)] {
            floats.clear();
            floats.extend(batch.column(at).as_primitive::<Float64Type>().iter().map(|one| one.unwrap_or(f64::NAN)));
        }
        let mut from = 0;
        while from < batch.num_rows() {
            let name = names.value(from);
            let same = (from + 1..batch.num_rows()).take_while(|row| names.value(*row) == name).count();
            let rows = from..from + 1 + same;
            from = rows.end;
            let mut values = name.split(SEPARATOR);
            let tags: Vec<(&str, Option<&str>)> =
                keys.iter().map(|key| (*key, values.next().filter(|value| !value.is_empty()))).collect();
            let line = FoldedRows {
                tags: &tags,
                times: &self.times[rows.clone()],
                sums: &sums.values()[rows.clone()],
                counts: &self.counts[rows.clone()],
                least: &self.least[rows.clone()],
                greatest: &self.greatest[rows],
            };
            if !sink.take(&line) {
                return false;
            }
        }
        true
    }
}
