//! Sum, number, least and greatest of all samples of each bucket and group, in one pass over the samples: the engine
//! folds each series, and what it makes is added up here, group by group. Of a rate it is the least and the greatest rise
//! from sample to sample, and the samples have no sum.

use std::sync::Arc;
use std::vec;

use arrow::array::{Float64Array, Int64Array};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::downsample::{FoldRequest, Function, Rising, SeriesFolds, fold_points};
use telem_engine::{ExactSum, SeriesByJob, SeriesId, Step, TimeRange, Timestamp};

use super::buckets::STATES_MAX;
use super::grouped::GroupChunk;
use super::{BATCH_ROWS, NameColumn, SeriesSource, external, times_array};
use crate::question::tsq::Interval;
use crate::question::{Aggregator, TsQuery};

/// What is made of the values in a bucket of a series: number, least, greatest and sum, in this order. Of a rate there is
/// no sum: of numbers one after the other it would say nothing.
fn functions(query: &TsQuery) -> Vec<Function> {
    match query.rate {
        None => vec![Function::Count, Function::Min, Function::Max, Function::Sum],
        Some(rate) => {
            let rising = if rate.counter { Rising::Counter } else { Rising::Gauge };
            vec![Function::Count, Function::LeastRise(rising), Function::GreatestRise(rising)]
        }
    }
}

type FoldedSeries = Box<dyn Iterator<Item = telem_engine::Result<SeriesFolds>> + Send>;

pub(super) struct FoldBatches {
    source: SeriesSource,
    grid: FoldGrid,
    chunks: vec::IntoIter<GroupChunk>,
    ready: vec::IntoIter<RecordBatch>,
}

impl FoldBatches {
    pub(super) fn new(source: SeriesSource, grid: FoldGrid, chunks: vec::IntoIter<GroupChunk>) -> Self {
        Self { source, grid, chunks, ready: Vec::new().into_iter() }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if let Some(batch) = self.ready.next() {
                return Ok(Some(batch));
            }
            let Some(chunk) = self.chunks.next() else { return Ok(None) };
            self.ready = self.added_up(chunk)?.into_iter();
        }
    }

    /// What the samples of some groups come to.
    fn added_up(&self, mut chunk: GroupChunk) -> Result<Vec<RecordBatch>, DataFusionError> {
        let mut states = FoldStates::new(self.grid, &self.source.query, chunk.names.len());
        for folds in folded(&self.source, self.grid, chunk.series.clone()) {
            self.source.check_wanted()?;
            let folds = folds.map_err(|error| external(error.into()))?;
            states.add(chunk.place(folds.series), &folds);
        }
        states.batches(&self.source, &chunk.names)
    }
}

impl Iterator for FoldBatches {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

/// Whole buckets from the start of a query to its end, both inclusive.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldGrid {
    step: Step,
    first: Timestamp,
    range: TimeRange,
    /// How many buckets there are.
    steps: usize,
}

impl FoldGrid {
    /// `None` without buckets of a fixed step, and for more than may be added up.
    pub(super) fn of(query: &TsQuery) -> Option<Self> {
        let Interval::Fixed(step) = query.downsample.as_ref()?.interval else { return None };
        let first = step.ceil(query.start);
        let range = TimeRange::new(first, query.end.saturating_add_micros(1));
        let steps = query.end.micros().checked_sub(first.micros())?.div_euclid(step.micros()).checked_add(1)?;
        let steps = usize::try_from(steps).ok().filter(|steps| (1..=STATES_MAX as usize).contains(steps))?;
        Some(Self { step, first, range, steps })
    }

    /// How many groups are added up at once.
    pub(super) fn groups_max(&self) -> usize {
        (STATES_MAX as usize / self.steps).max(1)
    }
}

/// Whether the least and the greatest of the series of a group are added up: those of a sum of rates. They are rounded at
/// every addition, unlike all other sums: what is shown of them has far fewer digits.
pub fn adds_extremes(query: &TsQuery) -> bool {
    query.rate.is_some() && query.aggregator == Aggregator::Sum
}

/// Of a number and nothing the number.
fn plus(one: f64, other: f64) -> f64 {
    match (one.is_nan(), other.is_nan()) {
        (true, _) => other,
        (_, true) => one,
        _ => one + other,
    }
}

/// Whether the buckets of `query` can be folded.
pub fn can_fold(query: &TsQuery) -> bool {
    FoldGrid::of(query).is_some()
}

fn folded(source: &SeriesSource, FoldGrid { step, range, .. }: FoldGrid, series: Vec<SeriesId>) -> FoldedSeries {
    let functions = functions(&source.query);
    match &source.context.by_job {
        Some(by_job) => {
            let by_job = Arc::clone(by_job);
            let request = FoldRequest { series: Vec::new(), range, step, functions };
            let of_job = move |series| of_job(&by_job, series, &request).transpose();
            Box::new(series.into_iter().filter_map(of_job))
        }
        None => Box::new(source.context.snapshot.fold(FoldRequest { series, range, step, functions })),
    }
}

/// A series of a job; `None` if it has no sample in the range.
fn of_job(by_job: &SeriesByJob, series: SeriesId, request: &FoldRequest) -> telem_engine::Result<Option<SeriesFolds>> {
    // Elsewhere the job may begin within a bucket, of which the engine would have a part alone.
    if let Some((own, of_job)) = by_job.single(series)
        && of_job.intersect(request.range) == request.range
    {
        let request = FoldRequest { series: vec![own.series], ..request.clone() };
        let made = own.snapshot.fold(request).next().transpose()?;
        return Ok(made.map(|made| SeriesFolds { series, ..made }));
    }
    Ok(by_job.points(series, request.range)?.map(|points| fold_points(points, request)))
}

/// What was added up: of each group every bucket.
struct FoldStates {
    grid: FoldGrid,
    adds_extremes: bool,
    /// Group by group.
    states: Vec<FoldState>,
}

#[derive(Clone)]
struct FoldState {
    sum: ExactSum,
    count: i64,
    /// NaN where there is none.
    least: f64,
    greatest: f64,
}

impl FoldStates {
    fn new(grid: FoldGrid, query: &TsQuery, groups: usize) -> Self {
        let empty = FoldState { sum: ExactSum::default(), count: 0, least: f64::NAN, greatest: f64::NAN };
        Self { grid, adds_extremes: adds_extremes(query), states: vec![empty; groups * grid.steps] }
    }

    /// Takes in a series of a group.
    fn add(&mut self, group: usize, folds: &SeriesFolds) {
        let steps = self.grid.steps;
        let [counts, least, greatest, sums @ ..] = &folds.values[..] else { return };
        let states = &mut self.states[group * steps..][..steps];
        for (at, start) in folds.starts.iter().enumerate() {
            let after = start.micros().saturating_sub(self.grid.first.micros()) / self.grid.step.micros();
            let Some(state) = usize::try_from(after).ok().and_then(|after| states.get_mut(after)) else { continue };
            // Where all values are NaN there is nothing.
            if counts[at] > 0.0 {
                if let [sums] = sums {
                    state.sum.add(sums[at]);
                }
                state.count += counts[at] as i64;
                if self.adds_extremes {
                    (state.least, state.greatest) = (plus(state.least, least[at]), plus(state.greatest, greatest[at]));
                } else {
                    state.least = state.least.min(least[at]);
                    state.greatest = state.greatest.max(greatest[at]);
                }
            }
        }
    }

    /// What was added up of the groups with these names.
    fn batches(&self, source: &SeriesSource, groups: &[String]) -> Result<Vec<RecordBatch>, DataFusionError> {
        let (mut batches, mut rows) = (Vec::new(), FoldRows::default());
        for (name, states) in groups.iter().zip(self.states.chunks(self.grid.steps)) {
            let mut before = rows.times.len();
            for (at, state) in states.iter().enumerate().filter(|(_, state)| state.count > 0) {
                let time = self.grid.first.saturating_add_micros((at as i64) * self.grid.step.micros());
                let terms = state.sum.terms();
                let (first, others) = terms.split_first().map_or((0.0, &[][..]), |(first, others)| (*first, others));
                rows.push(time, first, state.count, (state.least, state.greatest));
                // What one float of the sum cannot hold comes on rows of its own.
                others.iter().for_each(|term| rows.push(time, *term, 0, (f64::NAN, f64::NAN)));
                if rows.times.len() >= BATCH_ROWS {
                    rows.names.push(name, rows.times.len() - before)?;
                    batches.push(std::mem::take(&mut rows).batch(source)?);
                    before = 0;
                }
            }
            rows.names.push(name, rows.times.len() - before)?;
        }
        if !rows.times.is_empty() {
            batches.push(rows.batch(source)?);
        }
        Ok(batches)
    }
}

#[derive(Default)]
struct FoldRows {
    names: NameColumn,
    times: Vec<Timestamp>,
    sums: Vec<f64>,
    counts: Vec<i64>,
    least: Vec<Option<f64>>,
    greatest: Vec<Option<f64>>,
}

impl FoldRows {
    fn push(&mut self, time: Timestamp, sum: f64, count: i64, (least, greatest): (f64, f64)) {
        let number = |value: f64| (!value.is_nan()).then_some(value);
        self.times.push(time);
        self.sums.push(sum);
        self.counts.push(count);
        self.least.push(number(least));
        self.greatest.push(number(greatest));
    }

    fn batch(mut self, source: &SeriesSource) -> Result<RecordBatch, DataFusionError> {
        let columns = vec![
            self.names.finish(),
            times_array(self.times),
            Arc::new(Float64Array::from(self.sums)) as _,
            Arc::new(Int64Array::from(self.counts)) as _,
            Arc::new(Float64Array::from(self.least)) as _,
            Arc::new(Float64Array::from(self.greatest)) as _,
        ];
        Ok(RecordBatch::try_new(Arc::clone(&source.schema), columns)?)
    }
}
