//! Sum, number, least and greatest of all samples of each bucket and group, in one pass over the samples: the engine
//! folds each series, and what it makes is added up here, group by group. Of a rate it is the least and the greatest rise
//! from sample to sample, and the samples have no sum.

use std::sync::Arc;

use ahash::AHashMap;
use arrow::array::{Float64Array, Int64Array};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::downsample::{FoldRequest, Function, Rising, SeriesFolds, fold_points};
use telem_engine::{ExactSum, SeriesByJob, SeriesId, Step, TimeRange, Timestamp};

use super::buckets::STATES_MAX;
use super::{BATCH_ROWS, NameColumn, SeriesSource, external, times_array};
use crate::question::tsq::Interval;
use crate::question::{Aggregator, TsQuery};
use crate::selection::group_key;

/// What is made of the values in a bucket of a series: sum, number, least and greatest, in this order.
const OF_VALUES: [Function; 4] = [Function::Sum, Function::Count, Function::Min, Function::Max];

fn functions(query: &TsQuery) -> [Function; 4] {
    match query.rate {
        None => OF_VALUES,
        Some(rate) => {
            let rising = if rate.counter { Rising::Counter } else { Rising::Gauge };
            // The sum is that of nothing: of numbers one after the other it would say nothing.
            [Function::Count, Function::Count, Function::LeastRise(rising), Function::GreatestRise(rising)]
        }
    }
}

type FoldedSeries = Box<dyn Iterator<Item = telem_engine::Result<SeriesFolds>> + Send>;

pub(super) struct FoldBatches {
    source: SeriesSource,
    series: FoldedSeries,
    /// One that found no room, and waits until there is some.
    waiting: Option<SeriesFolds>,
    states: FoldStates,
    ready: std::vec::IntoIter<RecordBatch>,
    over: bool,
}

impl FoldBatches {
    /// `None` of a query that has no buckets which can be folded.
    pub(super) fn new(source: SeriesSource) -> Option<Self> {
        let grid = FoldGrid::of(&source.query)?;
        let series = folded(&source, grid);
        let (sums, adds_extremes) = (source.query.rate.is_none(), adds_extremes(&source.query));
        let (places, groups, states) = (AHashMap::new(), Vec::new(), Vec::new());
        let states = FoldStates { grid, sums, adds_extremes, places, groups, states };
        Some(Self { source, series, waiting: None, states, ready: Vec::new().into_iter(), over: false })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if let Some(batch) = self.ready.next() {
                return Ok(Some(batch));
            }
            if self.over {
                return Ok(None);
            }
            self.over = !self.add_up()?;
            self.ready = self.states.batches(&self.source)?.into_iter();
        }
    }

    /// Adds up series until the room for that is taken; whether more come.
    fn add_up(&mut self) -> Result<bool, DataFusionError> {
        loop {
            self.source.check_wanted()?;
            let next = self.waiting.take().map(Ok).or_else(|| self.series.next());
            let Some(folds) = next.transpose().map_err(|error| external(error.into()))? else { return Ok(false) };
            let group = group_key(&self.source.query, &self.source.key(folds.series)?);
            if !self.states.add(&group, &folds) {
                self.waiting = Some(folds);
                return Ok(true);
            }
        }
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
struct FoldGrid {
    step: Step,
    first: Timestamp,
    range: TimeRange,
    /// How many buckets there are.
    steps: usize,
}

impl FoldGrid {
    /// `None` without buckets of a fixed step, and for more than may be added up.
    fn of(query: &TsQuery) -> Option<Self> {
        let Interval::Fixed(step) = query.downsample.as_ref()?.interval else { return None };
        let first = step.ceil(query.start);
        let range = TimeRange::new(first, query.end.saturating_add_micros(1));
        let steps = query.end.micros().checked_sub(first.micros())?.div_euclid(step.micros()).checked_add(1)?;
        let steps = usize::try_from(steps).ok().filter(|steps| (1..=STATES_MAX as usize).contains(steps))?;
        Some(Self { step, first, range, steps })
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

fn folded(source: &SeriesSource, FoldGrid { step, range, .. }: FoldGrid) -> FoldedSeries {
    let (series, functions) = (source.series.clone(), functions(&source.query).to_vec());
    let request = FoldRequest { series, range, step, functions };
    match &source.context.by_job {
        Some(by_job) => {
            let by_job = Arc::clone(by_job);
            let of_job = move |series| of_job(&by_job, series, &request).transpose();
            Box::new(source.series.clone().into_iter().filter_map(of_job))
        }
        None => Box::new(source.context.snapshot.fold(request)),
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
    /// Whether samples are added up.
    sums: bool,
    adds_extremes: bool,
    places: AHashMap<String, usize>,
    groups: Vec<String>,
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
    /// Takes in a series of a group; false for a new group without room.
    fn add(&mut self, group: &str, folds: &SeriesFolds) -> bool {
        let steps = self.grid.steps;
        let place = match self.places.get(group) {
            Some(place) => *place,
            None if (self.states.len() + steps) as u64 > STATES_MAX => return false,
            None => {
                self.groups.push(group.to_owned());
                self.places.insert(group.to_owned(), self.groups.len() - 1);
                let empty = FoldState { sum: ExactSum::default(), count: 0, least: f64::NAN, greatest: f64::NAN };
                self.states.resize(self.states.len() + steps, empty);
                self.groups.len() - 1
            }
        };
        let [sums, counts, least, greatest] = &folds.values[..] else { return true };
        let states = &mut self.states[place * steps..][..steps];
        for (at, start) in folds.starts.iter().enumerate() {
            let after = start.micros().saturating_sub(self.grid.first.micros()) / self.grid.step.micros();
            let Some(state) = usize::try_from(after).ok().and_then(|after| states.get_mut(after)) else { continue };
            // Where all values are NaN there is nothing.
            if counts[at] > 0.0 {
                if self.sums {
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
        true
    }

    /// What was added up, and forgets it.
    fn batches(&mut self, source: &SeriesSource) -> Result<Vec<RecordBatch>, DataFusionError> {
        let (mut batches, mut rows) = (Vec::new(), FoldRows::default());
        for (name, states) in self.groups.iter().zip(self.states.chunks(self.grid.steps)) {
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
        self.places.clear();
        self.groups.clear();
        self.states.clear();
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
