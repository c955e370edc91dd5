//! The contributions of series to every bucket of a fixed grid, added up group by group as far as the memory limit
//! [`STATES_MAX`] allows, so that little work is left for the operators above.

use std::sync::Arc;

use ahash::AHashMap;
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::{ExactSum, Timestamp};

use super::naming::SeriesNumbers;
use super::{BATCH_ROWS, NameColumn, SeriesLines, SeriesSource, external, times_array};
use crate::pipeline::Pipeline;
use crate::pipeline::contribution::Contribution;
use crate::pipeline::grid::Grid;
use crate::question::aggregator::{Parts, Side};
use crate::question::tags::encode_tags;
use crate::selection::group_key;

/// Buckets of groups that are added up before they are handed out (48 bytes each, more where sums need it).
pub const STATES_MAX: u64 = 64 << 10;

pub(super) struct BucketBatches {
    source: SeriesSource,
    pipeline: Pipeline,
    lines: SeriesLines,
    walk: Option<SeriesWalk>,
    /// `None` where series are handed out as they are.
    sums: Option<Sums>,
    /// Added up, and the next to be handed out.
    ready: std::vec::IntoIter<RecordBatch>,
    /// Group and tags of every series that was there, where they are to be named in the end.
    named: Option<Vec<(String, String)>>,
    numbered: SeriesNumbers,
}

impl BucketBatches {
    pub(super) fn new(source: SeriesSource, named: bool) -> Self {
        let pipeline = Pipeline::new(&source.query);
        let lines = source.lines(&pipeline);
        let sums = Sums::new(source.query.aggregator.parts(), &pipeline);
        let named = named.then(Vec::new);
        let numbered = SeriesNumbers::new(&source.context);
        Self { source, pipeline, lines, walk: None, sums, ready: Vec::new().into_iter(), named, numbered }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        if let Some(batch) = self.ready.next() {
            return Ok(Some(batch));
        }
        while let Some(mut sums) = self.sums.take() {
            let more = self.add_up(&mut sums)?;
            let mut batches = sums.batches(&self.source)?.into_iter();
            let first = batches.next();
            self.ready = batches;
            if !more {
                // What is left is handed out, and then nothing follows.
                self.lines = Box::new(std::iter::empty());
                return if first.is_some() { Ok(first) } else { self.names() };
            }
            self.sums = Some(sums);
            if first.is_some() {
                return Ok(first);
            }
        }
        self.rows()
    }

    /// Adds up series until the room for that is taken; whether more come.
    fn add_up(&mut self, sums: &mut Sums) -> Result<bool, DataFusionError> {
        let parts = self.source.query.aggregator.parts();
        let mut rows = BucketRows::default();
        loop {
            if self.walk.is_none() && !self.next_series()? {
                return Ok(false);
            }
            let Some(walk) = &mut self.walk else { return Ok(false) };
            let Some(group) = sums.group(&walk.group) else { return Ok(true) };
            let finished = walk.fill(&mut rows, BATCH_ROWS, parts);
            sums.add(group, &rows);
            rows.clear();
            if finished {
                self.walk = None;
            }
        }
    }

    /// What series contribute, one after the other.
    fn rows(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let parts = self.source.query.aggregator.parts();
        let mut names = NameColumn::default();
        let mut rows = BucketRows::default();
        while rows.times.len() < BATCH_ROWS {
            if self.walk.is_none() && !self.next_series()? {
                break;
            }
            let Some(walk) = &mut self.walk else { break };
            let before = rows.times.len();
            let finished = walk.fill(&mut rows, BATCH_ROWS, parts);
            names.push(&walk.group, rows.times.len() - before)?;
            if finished {
                self.walk = None;
            }
        }
        if rows.times.is_empty() {
            return self.names();
        }
        let counts = rows.values.iter().map(|value| i64::from(!parts.is_nothing(*value))).collect();
        batch(&self.source, names, rows, counts).map(Some)
    }

    fn next_series(&mut self) -> Result<bool, DataFusionError> {
        for line in self.lines.by_ref() {
            self.source.check_wanted()?;
            let (series, line) = line.map_err(|error| external(error.into()))?;
            if let Some(named) = &mut self.named
                && !self.numbered.take(series, &self.source.context)
            {
                let key = self.source.key(series)?;
                named.push((group_key(&self.source.query, &key), encode_tags(key.tags())));
            }
            let contribution = self.pipeline.contribution(line);
            if let Some(walk) = SeriesWalk::new(contribution, &self.pipeline) {
                let group = group_key(&self.source.query, &self.source.key(series)?);
                self.walk = Some(SeriesWalk { group, ..walk });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rows that name series, once all others are out.
    fn names(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(named) = &mut self.named else { return Ok(None) };
        named.extend(self.numbered.word(&self.source.context).map(|word| (String::new(), word)));
        if named.is_empty() {
            return Ok(None);
        }
        let rest = named.split_off(named.len().min(BATCH_ROWS));
        let batch = std::mem::replace(named, rest);
        let rows = batch.len();
        let (mut groups, mut series) = (NameColumn::default(), NameColumn::default());
        for (group, tags) in &batch {
            groups.push(group, 1)?;
            series.push(tags, 1)?;
        }
        let times = TimestampMicrosecondArray::new_null(rows).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            groups.finish(),
            Arc::new(times),
            Arc::new(Float64Array::new_null(rows)),
            Arc::new(Int64Array::from(vec![0; rows])),
            Arc::new(BooleanArray::from(vec![false; rows])),
            series.finish(),
        ];
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.source.schema), columns)?))
    }
}

impl Iterator for BucketBatches {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

/// A missing value is NULL, on a row that does not continue the one before it.
fn batch(
    source: &SeriesSource,
    mut names: NameColumn,
    rows: BucketRows,
    counts: Vec<i64>,
) -> Result<RecordBatch, DataFusionError> {
    let more = |at: usize| rows.more.last().is_some_and(|last| at <= *last) && rows.more.binary_search(&at).is_ok();
    let values = rows.values.iter().zip(&counts).enumerate();
    let values: Float64Array = values.map(|(at, (value, count))| (*count > 0 || more(at)).then_some(*value)).collect();
    let length = rows.times.len();
    let mut columns = vec![
        names.finish(),
        times_array(rows.times),
        Arc::new(values),
        Arc::new(Int64Array::from(counts)),
        Arc::new(BooleanArray::from(rows.reals)),
    ];
    if source.schema.fields().len() > columns.len() {
        columns.push(Arc::new(StringViewArray::new_null(length)));
    }
    Ok(RecordBatch::try_new(Arc::clone(&source.schema), columns)?)
}

/// Contributions added up: of each group every bucket of the grid between start and end.
struct Sums {
    parts: Parts,
    first: Timestamp,
    step_micros: i64,
    /// Buckets of a group.
    steps: usize,
    places: AHashMap<String, usize>,
    groups: Vec<String>,
    /// Group by group.
    states: Vec<BucketState>,
}

#[derive(Clone)]
struct BucketState {
    /// The least or the greatest.
    extreme: f64,
    sum: ExactSum,
    /// How many contributions are in it.
    count: i64,
    /// Whether any series has this bucket in its contribution, and whether one really has a value there.
    there: bool,
    real: bool,
}

impl Sums {
    /// `None` where series are not added up, or a group has too many buckets for that, or none.
    fn new(parts: Parts, pipeline: &Pipeline) -> Option<Self> {
        if parts == Parts::EachSeries {
            return None;
        }
        let (first, step_micros) = match pipeline.buckets?.grid {
            Grid::Fixed(step) => (step.ceil(pipeline.start), step.micros()),
            Grid::All { start, .. } => (start, i64::MAX),
            Grid::Calendar { .. } => return None,
        };
        let steps = pipeline.steps().filter(|steps| (1..=STATES_MAX).contains(steps))?;
        let steps = usize::try_from(steps).ok()?;
        let (places, groups, states) = (AHashMap::new(), Vec::new(), Vec::new());
        Some(Self { parts, first, step_micros, steps, places, groups, states })
    }

    /// The place of a group; `None` for a new group without room.
    fn group(&mut self, name: &str) -> Option<usize> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        if (self.states.len() + self.steps) as u64 > STATES_MAX {
            return None;
        }
        let place = self.groups.len();
        self.groups.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        let (extreme, sum) = (self.parts.identity(), ExactSum::default());
        let empty = BucketState { extreme, sum, count: 0, there: false, real: false };
        self.states.resize(self.states.len() + self.steps, empty);
        Some(place)
    }

    /// Takes in what one series contributes.
    fn add(&mut self, group: usize, rows: &BucketRows) {
        let states = &mut self.states[group * self.steps..][..self.steps];
        for ((time, value), real) in rows.times.iter().zip(&rows.values).zip(&rows.reals) {
            let at = time.micros().saturating_sub(self.first.micros()) / self.step_micros;
            let Some(state) = usize::try_from(at).ok().and_then(|at| states.get_mut(at)) else { continue };
            state.there = true;
            state.real |= real;
            if !self.parts.is_nothing(*value) {
                state.count += 1;
                match self.parts {
                    Parts::Count => {}
                    Parts::Least => state.extreme = Side::Least.of(state.extreme, *value),
                    Parts::Greatest => state.extreme = Side::Greatest.of(state.extreme, *value),
                    _ => state.sum.add(*value),
                }
            }
        }
    }

    /// What was added up, and forgets it.
    fn batches(&mut self, source: &SeriesSource) -> Result<Vec<RecordBatch>, DataFusionError> {
        let mut batches = Vec::new();
        let (mut names, mut rows, mut counts) = (NameColumn::default(), BucketRows::default(), Vec::new());
        for (name, states) in self.groups.iter().zip(self.states.chunks(self.steps)) {
            for (from, states) in states.chunks(BATCH_ROWS).enumerate() {
                let before = rows.times.len();
                for (at, state) in states.iter().enumerate().filter(|(_, state)| state.there) {
                    let after = ((from * BATCH_ROWS + at) as i64).saturating_mul(self.step_micros);
                    let time = self.first.saturating_add_micros(after);
                    let terms = match self.parts {
                        Parts::Least | Parts::Greatest => Vec::new(),
                        _ => state.sum.terms(),
                    };
                    let (first, others) = match terms.split_first() {
                        Some((first, others)) => (*first, others),
                        None => (state.extreme, &[][..]),
                    };
                    rows.push(time, first, state.real);
                    counts.push(state.count);
                    // A sum that one float cannot hold has rows of its own: the operator that adds up gets all of it.
                    for term in others {
                        rows.more.push(rows.times.len());
                        rows.push(time, *term, state.real);
                        counts.push(0);
                    }
                }
                names.push(name, rows.times.len() - before)?;
                if rows.times.len() >= BATCH_ROWS {
                    let rows = std::mem::take(&mut rows);
                    batches.push(batch(source, std::mem::take(&mut names), rows, std::mem::take(&mut counts))?);
                }
            }
        }
        if !rows.times.is_empty() {
            batches.push(batch(source, names, rows, counts)?);
        }
        self.places.clear();
        self.groups.clear();
        self.states.clear();
        Ok(batches)
    }
}

#[derive(Default)]
struct BucketRows {
    times: Vec<Timestamp>,
    values: Vec<f64>,
    reals: Vec<bool>,
    /// Those that are more of the value before them, ascending.
    more: Vec<usize>,
}

impl BucketRows {
    fn push(&mut self, time: Timestamp, value: f64, real: bool) {
        self.times.push(time);
        self.values.push(value);
        self.reals.push(real);
    }

    fn clear(&mut self) {
        self.more.clear();
        self.times.clear();
        self.values.clear();
        self.reals.clear();
    }
}

/// A series on its way along the grid.
struct SeriesWalk {
    group: String,
    contribution: Contribution,
    grid: Grid,
    /// Points at or before `at` as far as is known.
    passed: usize,
    at: Timestamp,
    last: Timestamp,
}

impl SeriesWalk {
    /// `None` where the series brings nothing to the range of the query.
    fn new(contribution: Contribution, pipeline: &Pipeline) -> Option<Self> {
        let grid = pipeline.buckets?.grid;
        let (alive_from, alive_to) = contribution.alive()?;
        let (from, last) = (alive_from.max(pipeline.start), alive_to.min(pipeline.end));
        let at = match grid {
            // One bucket, there if the series really has a value in it.
            Grid::All { start, .. } => contribution.next_real(0).filter(|time| *time == start)?,
            Grid::Fixed(_) | Grid::Calendar { .. } => grid.ceil(from),
        };
        let passed = contribution.before(at);
        (at <= last).then_some(Self { group: String::new(), contribution, grid, passed, at, last })
    }

    /// Adds rows until there are `rows_max` or the series ends; whether it ended.
    fn fill(&mut self, rows: &mut BucketRows, rows_max: usize, parts: Parts) -> bool {
        while self.at <= self.last {
            if rows.times.len() == rows_max {
                return false;
            }
            self.passed = self.contribution.pass(self.passed, self.at);
            let real = self.contribution.is_real(self.passed, self.at);
            // Of a group of one series nothing but its own points is shown.
            if real || parts != Parts::EachSeries {
                let value = self.contribution.float(self.passed, self.at);
                rows.push(self.at, if parts == Parts::SumOfSquares { value * value } else { value }, real);
            }
            let next = match self.grid {
                Grid::All { .. } => return true,
                _ => self.grid.next(self.at),
            };
            if next <= self.at {
                return true;
            }
            self.at = next;
        }
        true
    }
}
