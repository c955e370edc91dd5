//! The contributions of series to every bucket of a fixed grid, added up group by group, as many groups at a time as the
//! memory limit [`STATES_MAX`] allows, so that little work is left for the operators above.

use std::ops::Range;
use std::sync::Arc;
use std::vec;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::{ExactSum, SeriesId, Snapshot, Step, TimeRange, Timestamp};

use super::grouped::{ChunkCut, GroupChunk};
use super::naming::SeriesNumbers;
use super::{BATCH_ROWS, NameColumn, SeriesLines, SeriesSource, Yield, external, times_array};
use crate::leaf::Part;
use crate::pipeline::contribution::Contribution;
use crate::pipeline::grid::Grid;
use crate::pipeline::{Line, Pipeline};
use crate::question::TsQuery;
use crate::question::aggregator::{Parts, Side};
use crate::question::tags::encode_tags;

/// Buckets of groups that are added up before they are handed out (48 bytes each, more where sums need it).
pub const STATES_MAX: u64 = 64 << 10;

/// Groups are kept whole when there are so many for each piece that all pieces have about as many series.
const GROUPS_OF_PIECE_MIN: usize = 4;
/// Rows that are read for each bucket that is added to those of another piece, at the least.
const ROWS_OF_STATE_MIN: u64 = 2;
/// Of how many series it is looked up how many samples they have, to know it of all about.
const LOOKED_AT_MAX: usize = 8;

pub(super) struct BucketBatches {
    source: Arc<SeriesSource>,
    pipeline: Pipeline,
    chunks: vec::IntoIter<GroupChunk>,
    /// The series of a chunk that are handed out as they are.
    open: Option<(GroupChunk, SeriesLines)>,
    walk: Option<SeriesWalk>,
    /// Added up, and the next to be handed out.
    ready: vec::IntoIter<RecordBatch>,
    /// Every series that was there, where they are to be named in the end.
    named: Option<PresentSeries>,
}

/// Whether what series contribute to the buckets of `query` is added up in the leaf.
pub fn is_added_up(query: &TsQuery) -> bool {
    let parts = query.aggregator.parts();
    parts != Parts::None && SumGrid::of(parts, &Pipeline::new(query)).is_some()
}

/// Whether a leaf of one part over so many groups, which lie together or not, with so many buckets each can be read in as
/// many pieces as there are cores, where these are spare.
pub fn is_cut(groups: usize, together: bool, steps: u64, cores: usize) -> bool {
    let chunk = groups.min(usize::try_from(STATES_MAX / steps.max(1)).unwrap_or(usize::MAX));
    let whole = together && chunk >= GROUPS_OF_PIECE_MIN * cores;
    whole || steps.saturating_mul((groups * cores) as u64) <= STATES_MAX
}

/// How many groups of `query` are added up at once: all of them where series are handed out as they are.
pub(super) fn groups_max(query: &TsQuery) -> usize {
    SumGrid::of(query.aggregator.parts(), &Pipeline::new(query))
        .map_or(usize::MAX, |grid| (STATES_MAX as usize / grid.steps).max(1))
}

impl BucketBatches {
    pub(super) fn new(source: SeriesSource, chunks: vec::IntoIter<GroupChunk>, yields: &Yield) -> Self {
        let pipeline = Pipeline::new(&source.query);
        let named = (*yields == Yield::NamedBuckets).then(|| PresentSeries::new(&source));
        let source = Arc::new(source);
        Self { source, pipeline, chunks, open: None, walk: None, ready: Vec::new().into_iter(), named }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(grid) = SumGrid::of(self.source.query.aggregator.parts(), &self.pipeline) else {
            return self.rows();
        };
        loop {
            if let Some(batch) = self.ready.next() {
                return Ok(Some(batch));
            }
            let Some(chunk) = self.chunks.next() else { return self.names() };
            self.ready = self.added_up(chunk, grid)?.into_iter();
        }
    }

    /// What all series of some groups contribute.
    fn added_up(&mut self, mut chunk: GroupChunk, grid: SumGrid) -> Result<Vec<RecordBatch>, DataFusionError> {
        let lines = match self.pieces(&chunk, grid) {
            ChunkPieces::OfSeries(pieces, at) => return self.added_up_in(pieces, at, chunk, grid),
            ChunkPieces::One => self.source.lines(&self.pipeline, chunk.series.clone()),
            ChunkPieces::OfTime(ranges) => self.lines_of(ranges, chunk.series.clone())?,
        };
        let sums = added_up(&self.source, &self.pipeline, grid, &mut chunk, lines, self.named.as_mut())?;
        sums.batches(&self.source, &chunk.names)
    }

    /// The same, from pieces of the chunk.
    fn added_up_in(
        &mut self,
        pieces: usize,
        at: ChunkCut,
        chunk: GroupChunk,
        grid: SumGrid,
    ) -> Result<Vec<RecordBatch>, DataFusionError> {
        let whole = at == ChunkCut::BetweenGroups;
        let (source, pipeline, is_named) = (Arc::clone(&self.source), self.pipeline, self.named.is_some());
        let names = Arc::clone(&chunk.names);
        let pieces = chunk.cut(pieces, at);
        let made = self.source.context.worked_off(pieces, move |mut piece| {
            let mut named = is_named.then(|| PresentSeries::new(&source));
            let lines = source.lines(&pipeline, piece.series.clone());
            let sums = added_up(&source, &pipeline, grid, &mut piece, lines, named.as_mut())?;
            let added =
                if whole { PieceSums::Whole(sums.batches(&source, &piece.names)?) } else { PieceSums::Partly(sums) };
            Ok((added, named))
        })?;
        let (mut batches, mut sums) = (Vec::new(), None::<Sums>);
        for (added, named) in made {
            if let (Some(all), Some(named)) = (&mut self.named, named) {
                all.append(named);
            }
            match (added, &mut sums) {
                (PieceSums::Whole(of_piece), _) => batches.extend(of_piece),
                (PieceSums::Partly(of_piece), Some(sums)) => sums.merge(of_piece),
                (PieceSums::Partly(of_piece), none) => *none = Some(of_piece),
            }
        }
        if let Some(sums) = sums {
            batches.extend(sums.batches(&self.source, &names)?);
        }
        Ok(batches)
    }

    /// How a chunk is cut, so that several threads read it.
    fn pieces(&self, chunk: &GroupChunk, grid: SumGrid) -> ChunkPieces {
        let SeriesSource { context, part, .. } = &*self.source;
        // Parts have threads of their own.
        if *part != Part::WHOLE || context.by_job.is_some() {
            return ChunkPieces::One;
        }
        let series = chunk.series.len();
        let rows = || rows_about(&context.snapshot, &chunk.series, self.pipeline.window);
        let (pieces, rows) = context.pieces(series, rows);
        if pieces == 1 {
            return ChunkPieces::One;
        }
        if series < pieces
            && let Some(ranges) = self.ranges(pieces, &chunk.series)
        {
            return ChunkPieces::OfTime(ranges);
        }
        let pieces = pieces.min(series);
        if pieces > 1 && chunk.is_together() && chunk.groups.len() >= GROUPS_OF_PIECE_MIN * pieces {
            return ChunkPieces::OfSeries(pieces, ChunkCut::BetweenGroups);
        }
        // Buckets of all pieces wait, and are put together.
        let states = (grid.steps as u64).saturating_mul(chunk.groups.len() as u64);
        let waiting = usize::try_from(STATES_MAX / states.max(1)).unwrap_or(usize::MAX);
        match pieces.min(waiting) {
            pieces if pieces > 1 && rows / ROWS_OF_STATE_MIN >= states => {
                ChunkPieces::OfSeries(pieces, ChunkCut::Anywhere)
            }
            _ => ChunkPieces::One,
        }
    }

    /// The window in so many ranges, or fewer, for series whose buckets are made of their samples alone.
    fn ranges(&self, count: usize, series: &[SeriesId]) -> Option<Vec<TimeRange>> {
        let (step, _) = self.pipeline.in_engine()?;
        // What cannot be read is told by who reads it.
        let bounds = self.source.context.snapshot.time_bounds(series).ok()?.into_iter().flatten();
        let bounds = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
        whole_ranges(self.pipeline.window, step, bounds, count)
    }

    /// The lines of series, of each range by another thread.
    fn lines_of(&self, ranges: Vec<TimeRange>, series: Vec<SeriesId>) -> Result<SeriesLines, DataFusionError> {
        let (source, pipeline, of_all) = (Arc::clone(&self.source), self.pipeline, series.clone());
        let made = self.source.context.worked_off(ranges, move |window| {
            let lines = source.lines(&pipeline.of_window(window), of_all.clone());
            lines
                .map(|line| {
                    source.check_wanted()?;
                    line.map_err(|error| external(error.into()))
                })
                .collect::<Result<Vec<_>, _>>()
        })?;
        // A series that has no samples in some range is not there.
        let mut made: Vec<_> = made.into_iter().map(|lines| lines.into_iter().peekable()).collect();
        let whole = series.into_iter().filter_map(move |series| {
            let mut whole = None::<Line>;
            for lines in &mut made {
                let Some((_, later)) = lines.next_if(|(next, _)| *next == series) else { continue };
                match &mut whole {
                    Some(whole) => whole.append(later),
                    none => *none = Some(later),
                }
            }
            whole.map(|whole| Ok((series, whole)))
        });
        Ok(Box::new(whole))
    }

    /// What series contribute, one after the other.
    fn rows(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let parts = self.source.query.aggregator.parts();
        let mut names = NameColumn::default();
        let mut rows = BucketRows::default();
        while rows.times.len() < BATCH_ROWS {
            let Some((mut chunk, mut lines)) = self.open.take().or_else(|| self.open_chunk()) else { break };
            if self.walk.is_none() {
                let next = next_series(&self.source, &self.pipeline, &mut chunk, &mut lines, self.named.as_mut())?;
                let Some(walk) = next else { continue };
                self.walk = Some(walk);
            }
            if let Some(walk) = &mut self.walk {
                let before = rows.times.len();
                let finished = walk.fill(&mut rows, BATCH_ROWS, parts);
                names.push(&chunk.names[walk.place], rows.times.len() - before)?;
                if finished {
                    self.walk = None;
                }
            }
            self.open = Some((chunk, lines));
        }
        if rows.times.is_empty() {
            return self.names();
        }
        let counts = rows.values.iter().map(|value| i64::from(!parts.is_nothing(*value))).collect();
        batch(&self.source, names, rows, counts).map(Some)
    }

    fn open_chunk(&mut self) -> Option<(GroupChunk, SeriesLines)> {
        let chunk = self.chunks.next()?;
        let lines = self.source.lines(&self.pipeline, chunk.series.clone());
        Some((chunk, lines))
    }

    /// The rows that name series, once all others are out.
    fn names(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(PresentSeries { named, numbered }) = &mut self.named else { return Ok(None) };
        named.extend(numbered.word(&self.source.context).map(|word| (String::new(), word)));
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

/// The series that were there.
struct PresentSeries {
    /// Group and tags.
    named: Vec<(String, String)>,
    numbered: SeriesNumbers,
}

impl PresentSeries {
    fn new(source: &SeriesSource) -> Self {
        Self { named: Vec::new(), numbered: SeriesNumbers::new(&source.context) }
    }

    fn take(&mut self, source: &SeriesSource, series: SeriesId, group: &str) -> Result<(), DataFusionError> {
        if !self.numbered.take(series, &source.context) {
            self.named.push((group.to_owned(), encode_tags(source.key(series)?.tags())));
        }
        Ok(())
    }

    /// Takes in those of a later piece.
    fn append(&mut self, later: PresentSeries) {
        self.named.extend(later.named);
        self.numbered.append(later.numbered);
    }
}

/// `window` in so many ranges, or fewer, each with whole buckets, and with about as much of the time between the first and
/// the last sample; `None` where these are in one bucket.
pub(super) fn whole_ranges(
    window: TimeRange,
    step: Step,
    (first, last): (Timestamp, Timestamp),
    count: usize,
) -> Option<Vec<TimeRange>> {
    let micros = i128::from(step.micros());
    let first = i128::from(step.ceil(first.max(window.start)).micros());
    let steps = (i128::from(last.min(window.end).micros()) - first) / micros;
    let count = count.min(usize::try_from(steps).unwrap_or(0));
    if count < 2 {
        return None;
    }
    let cut = |piece: usize| {
        let at = first + steps * piece as i128 / count as i128 * micros;
        i64::try_from(at).ok().map(Timestamp::from_micros)
    };
    let inner = (1..count).map(cut).collect::<Option<Vec<_>>>()?;
    let bounds: Vec<Timestamp> = [window.start].into_iter().chain(inner).chain([window.end]).collect();
    Some(bounds.windows(2).map(|bounds| TimeRange::new(bounds[0], bounds[1])).collect())
}

/// How a chunk is cut.
enum ChunkPieces {
    One,
    /// In so many.
    OfSeries(usize, ChunkCut),
    /// All series in each.
    OfTime(Vec<TimeRange>),
}

/// What a piece of a chunk comes to.
enum PieceSums {
    /// Of groups that no other piece has.
    Whole(Vec<RecordBatch>),
    Partly(Sums),
}

/// What all series of a chunk, or of a piece of one, contribute: those with `lines`.
fn added_up(
    source: &SeriesSource,
    pipeline: &Pipeline,
    grid: SumGrid,
    chunk: &mut GroupChunk,
    mut lines: SeriesLines,
    mut named: Option<&mut PresentSeries>,
) -> Result<Sums, DataFusionError> {
    let mut sums = Sums::new(grid, chunk.groups.clone());
    let mut rows = BucketRows::default();
    while let Some(mut walk) = next_series(source, pipeline, chunk, &mut lines, named.as_deref_mut())? {
        let mut finished = false;
        while !finished {
            finished = walk.fill(&mut rows, BATCH_ROWS, grid.parts);
            sums.add(walk.place, &rows);
            rows.clear();
        }
    }
    Ok(sums)
}

/// The next series that brings something, on its way along the grid.
fn next_series(
    source: &SeriesSource,
    pipeline: &Pipeline,
    chunk: &mut GroupChunk,
    lines: &mut SeriesLines,
    mut named: Option<&mut PresentSeries>,
) -> Result<Option<SeriesWalk>, DataFusionError> {
    for line in lines {
        source.check_wanted()?;
        let (series, line) = line.map_err(|error| external(error.into()))?;
        let place = chunk.place(series);
        if let Some(named) = &mut named {
            named.take(source, series, &chunk.names[place])?;
        }
        if let Some(walk) = SeriesWalk::new(place, pipeline.contribution(line), pipeline) {
            return Ok(Some(walk));
        }
    }
    Ok(None)
}

/// How many samples `series` have in `range`, as far as some of them tell.
fn rows_about(snapshot: &Snapshot, series: &[SeriesId], range: TimeRange) -> u64 {
    let apart = series.len().div_ceil(LOOKED_AT_MAX).max(1);
    let some: Vec<SeriesId> = series.iter().copied().step_by(apart).collect();
    let looked_at = some.len().max(1) as u64;
    // What cannot be read is told by who reads it.
    let rows = snapshot.samples_max(some, range).unwrap_or(0);
    rows.saturating_mul(series.len() as u64) / looked_at
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

/// The buckets of every group, between start and end.
#[derive(Clone, Copy, Debug)]
struct SumGrid {
    parts: Parts,
    first: Timestamp,
    step_micros: i64,
    /// How many there are.
    steps: usize,
}

impl SumGrid {
    /// `None` where series are not added up, or a group has too many buckets for that, or none.
    fn of(parts: Parts, pipeline: &Pipeline) -> Option<Self> {
        if parts == Parts::EachSeries {
            return None;
        }
        let (first, step_micros) = match pipeline.buckets?.grid {
            Grid::Fixed(step) => (step.ceil(pipeline.start), step.micros()),
            Grid::All { start, .. } => (start, i64::MAX),
            Grid::Calendar { .. } => return None,
        };
        let steps = pipeline.steps().filter(|steps| (1..=STATES_MAX).contains(steps))?;
        Some(Self { parts, first, step_micros, steps: usize::try_from(steps).ok()? })
    }
}

/// Contributions added up: of each group every bucket of the grid.
struct Sums {
    grid: SumGrid,
    /// The places of these groups.
    groups: Range<usize>,
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

impl BucketState {
    fn new(parts: Parts) -> Self {
        Self { extreme: parts.identity(), sum: ExactSum::default(), count: 0, there: false, real: false }
    }

    /// Takes in that of later series, which may have nothing.
    fn merge(&mut self, later: BucketState, parts: Parts) {
        if !later.there {
            return;
        }
        if !self.there {
            *self = later;
            return;
        }
        self.real |= later.real;
        self.count += later.count;
        match parts {
            Parts::Count => {}
            Parts::Least => self.extreme = Side::Least.of(self.extreme, later.extreme),
            Parts::Greatest => self.extreme = Side::Greatest.of(self.extreme, later.extreme),
            _ => self.sum.merge(&later.sum),
        }
    }
}

impl Sums {
    fn new(grid: SumGrid, groups: Range<usize>) -> Self {
        let states = vec![BucketState::new(grid.parts); groups.len() * grid.steps];
        Self { grid, groups, states }
    }

    /// Takes in those of later series.
    fn merge(&mut self, later: Sums) {
        let SumGrid { parts, steps, .. } = self.grid;
        let groups = self.groups.start.min(later.groups.start)..self.groups.end.max(later.groups.end);
        if groups != self.groups {
            let empty = |groups: usize| (0..groups * steps).map(|_| BucketState::new(parts));
            self.states.splice(..0, empty(self.groups.start - groups.start));
            self.states.extend(empty(groups.end - self.groups.end));
            self.groups = groups;
        }
        let from = (later.groups.start - self.groups.start) * steps;
        for (state, later) in self.states[from..].iter_mut().zip(later.states) {
            state.merge(later, parts);
        }
    }

    /// Takes in what one series contributes.
    fn add(&mut self, group: usize, rows: &BucketRows) {
        let SumGrid { parts, first, step_micros, steps } = self.grid;
        let states = &mut self.states[(group - self.groups.start) * steps..][..steps];
        for ((time, value), real) in rows.times.iter().zip(&rows.values).zip(&rows.reals) {
            let at = time.micros().saturating_sub(first.micros()) / step_micros;
            let Some(state) = usize::try_from(at).ok().and_then(|at| states.get_mut(at)) else { continue };
            state.there = true;
            state.real |= real;
            if !parts.is_nothing(*value) {
                state.count += 1;
                match parts {
                    Parts::Count => {}
                    Parts::Least => state.extreme = Side::Least.of(state.extreme, *value),
                    Parts::Greatest => state.extreme = Side::Greatest.of(state.extreme, *value),
                    _ => state.sum.add(*value),
                }
            }
        }
    }

    /// What was added up of its groups, which have these names among others.
    fn batches(&self, source: &SeriesSource, names: &[String]) -> Result<Vec<RecordBatch>, DataFusionError> {
        let groups = &names[self.groups.clone()];
        let SumGrid { parts, first, step_micros, steps } = self.grid;
        let mut batches = Vec::new();
        let (mut names, mut rows, mut counts) = (NameColumn::default(), BucketRows::default(), Vec::new());
        for (name, states) in groups.iter().zip(self.states.chunks(steps)) {
            for (from, states) in states.chunks(BATCH_ROWS).enumerate() {
                let before = rows.times.len();
                for (at, state) in states.iter().enumerate().filter(|(_, state)| state.there) {
                    let after = ((from * BATCH_ROWS + at) as i64).saturating_mul(step_micros);
                    let time = first.saturating_add_micros(after);
                    let terms = match parts {
                        Parts::Least | Parts::Greatest => Vec::new(),
                        _ => state.sum.terms(),
                    };
                    let (term, others) = match terms.split_first() {
                        Some((term, others)) => (*term, others),
                        None => (state.extreme, &[][..]),
                    };
                    rows.push(time, term, state.real);
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
    /// That of its group.
    place: usize,
    contribution: Contribution,
    grid: Grid,
    /// Points at or before `at` as far as is known.
    passed: usize,
    at: Timestamp,
    last: Timestamp,
}

impl SeriesWalk {
    /// `None` where the series brings nothing to the range of the query.
    fn new(place: usize, contribution: Contribution, pipeline: &Pipeline) -> Option<Self> {
        let grid = pipeline.buckets?.grid;
        let (alive_from, alive_to) = contribution.alive()?;
        let (from, last) = (alive_from.max(pipeline.start), alive_to.min(pipeline.end));
        let at = match grid {
            // One bucket, there if the series really has a value in it.
            Grid::All { start, .. } => contribution.next_real(0).filter(|time| *time == start)?,
            Grid::Fixed(_) | Grid::Calendar { .. } => grid.ceil(from),
        };
        let passed = contribution.before(at);
        (at <= last).then_some(Self { place, contribution, grid, passed, at, last })
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
