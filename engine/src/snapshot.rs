//! A snapshot: every sample that was appended before it was taken, and none after.
//!
//! It is owned and cheap: nothing is copied, and everything it needs lives until it is dropped.

mod by_job;
mod digests;
mod figures;
mod jobs;
mod scan;
pub(crate) mod sources;
mod stretches;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result};

use crate::index::{Nodes, SeriesIndex, TagPredicate};
use crate::memtable::{Memtable, Rows, keep_last_writes};
use crate::meta::{Meta, SeriesOwner};
use crate::segment::read::{LoadedSegment, Piece};
use crate::segment::{Run, Segment};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::{Value, Values};
pub use by_job::{SeriesByJob, SeriesOfJob};
pub use digests::{DigestPart, DigestRequest, Digests, SeriesDigest};
pub use figures::ValueFigures;
pub(crate) use jobs::PlacedPart;
pub use jobs::{JobPart, JobPiece, RecordedJob};
pub use scan::{Scan, ScanColumn, ScanRequest};
use sources::Sources;

/// Rows of segments that [`Points`] or a [`Scan`] reads in one go, unless a single series has more: enough that
/// pages with many series are decoded once, few enough to stay small (24 bytes each).
const READ_ROWS: u64 = 256 << 10;

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) nodes: Nodes,
    pub(crate) index: Arc<SeriesIndex>,
    /// The first series id that was not there yet.
    pub(crate) series_end: SeriesId,
    pub(crate) meta: Arc<Meta>,
    /// Oldest first.
    pub(crate) segments: Arc<[Arc<Segment>]>,
    /// Oldest first.
    pub(crate) memtables: Vec<Visible>,
    /// The databases, where several are open as one.
    pub(crate) parts: Option<Arc<[PlacedPart]>>,
    /// Whether these are some databases of those whose series the index has.
    pub(crate) is_narrowed: bool,
    /// Of these alone it selects series.
    pub(crate) owner: SeriesOwner,
}

/// What a snapshot sees of a memtable.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    pub memtable: Arc<Memtable>,
    pub rows: Rows,
    /// How many of the snapshot's segments are older; the others are newer, which happens only where several
    /// databases are open as one.
    pub segments_before: usize,
    /// Which of those it belongs to.
    pub part: Option<usize>,
}

/// The samples of one series, sorted by time, every time once. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoints {
    pub series: SeriesId,
    pub times: Vec<Timestamp>,
    pub values: Values,
}

impl Snapshot {
    /// The node that owns these samples; of several all of them, with commas between.
    pub fn node(&self) -> &str {
        self.nodes.all()
    }

    /// The nodes that own these samples, sorted by bytes, each once.
    pub fn nodes(&self) -> &[Arc<str>] {
        self.nodes.names()
    }

    /// The node that owns `series`: if its key is in several databases, the node of the last.
    pub fn node_of(&self, series: SeriesId) -> Arc<str> {
        Arc::clone(self.nodes.of(series))
    }

    /// The live index: it may know series that came after this snapshot.
    pub fn index(&self) -> &Arc<SeriesIndex> {
        &self.index
    }

    /// The metrics that were there, sorted by bytes: the same however often it is asked.
    pub fn metrics(&self) -> Vec<Arc<str>> {
        self.index.metrics_before(self.series_end)
    }

    /// The series of `metric` that were there and satisfy every predicate, in canonical order: the
    /// same however often it is asked, so that several readers can share the work by position.
    pub fn select(&self, metric: &str, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        let mut series = self.index.select_before(self.series_end, metric, predicates);
        if self.is_narrowed {
            series.retain(|series| self.holds(*series));
        }
        if self.owner != SeriesOwner::Any {
            series.retain(|series| self.index.key(*series).is_some_and(|key| self.owner.owns(&key)));
        }
        series
    }

    /// Puts series that one database holds next to each other, where several are open as one; else each keeps its place.
    /// To be read in this order: a page of a database has many of its series, and is unpacked once for all that follow
    /// each other.
    pub fn sort_by_database(&self, series: &mut [SeriesId]) {
        let mut firsts: Vec<SeriesId> = self.segments.iter().filter_map(|one| one.first_of_database()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        if firsts.len() > 1 {
            series.sort_by_cached_key(|series| firsts.partition_point(|first| first <= series));
        }
    }

    /// Metric metadata, annotations and the job.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The samples of every series that has any in `range`, in the order of `series`.
    pub fn points(&self, series: Vec<SeriesId>, range: TimeRange) -> Points {
        Points { sources: Sources::new(self, series, range), ready: VecDeque::new() }
    }

    /// Whether `series` has a sample in `range`; reads as little as that takes.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn has_points(&self, series: SeriesId, range: TimeRange) -> Result<bool> {
        if self.memtables.iter().any(|visible| visible.memtable.has(series, range, visible.rows)) {
            return Ok(true);
        }
        let may = |segment: &&Arc<Segment>| segment.may_hold(series) && segment.entry().overlaps(range);
        for segment in self.segments.iter().filter(may) {
            let loaded = segment.load()?;
            if let Some(run) = loaded.run(series)
                && loaded.has_row(run, range)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The newest sample (by time) of a series.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn last(&self, series: SeriesId) -> Result<Option<(Timestamp, Value)>> {
        // Of equal times the sample of the newest source counts. How old a source is: how many segments are
        // older, and then whether it is a memtable, which is older than the segment that comes next.
        let mut newest: Option<(Timestamp, Value)> = None;
        let mut best: Option<(Timestamp, (usize, bool))> = None;
        for Visible { memtable, rows, segments_before, .. } in &self.memtables {
            if let Some((time, value)) = memtable.last(series, *rows)
                && best <= Some((time, (*segments_before, false)))
            {
                best = Some((time, (*segments_before, false)));
                newest = Some((time, value));
            }
        }
        let mut found: Option<(Arc<LoadedSegment>, Run)> = None;
        let may = |(_, segment): &(usize, &Arc<Segment>)| segment.may_hold(series);
        let mut segments: Vec<(usize, &Arc<Segment>)> = self.segments.iter().enumerate().filter(may).collect();
        segments.sort_by_key(|(age, segment)| Reverse((segment.entry().last, *age)));
        for (age, segment) in segments {
            if best.is_some_and(|(time, _)| time.micros() > segment.entry().last) {
                break;
            }
            let loaded = segment.load()?;
            let Some(run) = loaded.run(series).copied() else { continue };
            if best < Some((run.last, (age, true))) {
                best = Some((run.last, (age, true)));
                found = Some((loaded, run));
            }
        }
        if let Some((loaded, run)) = found {
            newest = loaded.last(&run)?;
        }
        Ok(newest)
    }

    /// The times of the oldest and the newest sample of each of `series`, in their order. Of
    /// segments only the runs are looked at, one segment after the other.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments.
    pub fn time_bounds(&self, series: &[SeriesId]) -> Result<Vec<Option<(Timestamp, Timestamp)>>> {
        let mut bounds: Vec<Option<(Timestamp, Timestamp)>> = vec![None; series.len()];
        let mut meet = |at: usize, first: Timestamp, last: Timestamp| {
            let known = bounds[at].unwrap_or((first, last));
            bounds[at] = Some((known.0.min(first), known.1.max(last)));
        };
        for Visible { memtable, rows, .. } in &self.memtables {
            for (at, series) in series.iter().enumerate() {
                if let Some((first, last)) = memtable.bounds_of(*series, *rows) {
                    meet(at, first, last);
                }
            }
        }
        for segment in self.segments.iter().filter(|segment| series.iter().any(|one| segment.may_hold(*one))) {
            let loaded = segment.load()?;
            for (at, series) in series.iter().enumerate() {
                if let Some(run) = loaded.run(*series) {
                    meet(at, run.first, run.last);
                }
            }
        }
        Ok(bounds)
    }

    /// The samples as Arrow batches, sorted by the order of the request and time. Only what its columns need is read, and of
    /// a long series no more than a part is held.
    pub fn scan(&self, request: ScanRequest) -> Scan {
        Scan::new(self, request)
    }
}

/// See [`Snapshot::points`].
#[derive(Debug)]
pub struct Points {
    sources: Sources,
    /// Read from segments and not handed out.
    ready: VecDeque<(SeriesId, SeriesPieces)>,
}

/// Samples of one series in the order of writing, so that the last of equal times counts.
type SeriesPieces = Vec<Piece>;

impl Points {
    /// Reads the next series from segments, as many as stay within [`READ_ROWS`].
    fn read(&mut self) -> Result<()> {
        let newest = self.sources.segments.len();
        let older = |visible: &&Visible| visible.segments_before < newest;
        let between: Vec<Visible> = self.sources.memtables.iter().filter(older).cloned().collect();
        let taken = self.sources.take(READ_ROWS, |series, runs| {
            let rows: u64 = runs.iter().map(|found| found.rows).sum();
            rows + between.iter().map(|visible| visible.memtable.count(series)).sum::<u64>()
        })?;
        // Per segment the wanted runs, each with the place of its series in `batch`.
        let mut wanted: Vec<Vec<(Run, usize)>> = vec![Vec::new(); newest];
        let mut batch: Vec<(SeriesId, SeriesPieces)> = Vec::with_capacity(taken.len());
        for (series, runs) in taken {
            for found in runs {
                wanted[found.segment].push((found.run, batch.len()));
            }
            batch.push((series, Vec::new()));
        }
        let range = self.sources.range;
        for (at, (segment, wanted)) in self.sources.segments.iter().zip(&mut wanted).enumerate() {
            for visible in between.iter().filter(|visible| visible.segments_before == at) {
                for (series, pieces) in &mut batch {
                    pieces.push(visible.piece(*series, range));
                }
            }
            if !wanted.is_empty() {
                read_runs(&*segment.load()?, wanted, range, &mut batch)?;
            }
        }
        self.ready.extend(batch);
        Ok(())
    }

    /// Adds what the memtables that are newer than all segments have of a series.
    fn merge(&self, series: SeriesId, mut pieces: SeriesPieces) -> Option<SeriesPoints> {
        let Sources { memtables, segments, range, .. } = &self.sources;
        for visible in memtables.iter().filter(|visible| visible.segments_before == segments.len()) {
            pieces.push(visible.piece(series, *range));
        }
        merge(pieces).map(|piece| piece.of(series))
    }

    fn fail(&mut self, error: Error) -> Error {
        self.sources.clear();
        self.ready.clear();
        error
    }
}

impl Piece {
    fn of(self, series: SeriesId) -> SeriesPoints {
        let Piece { times, values } = self;
        SeriesPoints { series, times: times.into_iter().map(Timestamp::from_micros).collect(), values }
    }
}

impl Visible {
    pub(crate) fn piece(&self, series: SeriesId, range: TimeRange) -> Piece {
        let samples = self.memtable.read(series, range, self.rows);
        let times = samples.iter().map(|(time, _)| time.micros()).collect();
        Piece { times, values: samples.into_iter().map(|(_, value)| value).collect() }
    }
}

/// One piece of several, each sorted by time; of equal times the last piece counts. `None` when all are empty.
fn merge(mut pieces: Vec<Piece>) -> Option<Piece> {
    pieces.retain(|piece| !piece.times.is_empty());
    let mut by_time: Vec<usize> = (0..pieces.len()).collect();
    by_time.sort_by_key(|at| pieces[*at].times[0]);
    let apart = by_time.windows(2).all(|pair| pieces[pair[0]].times.last() < pieces[pair[1]].times.first());
    if apart {
        // Pieces of different hours: the common case.
        pieces.sort_by_key(|piece| piece.times[0]);
        return pieces.into_iter().reduce(|mut before, piece| {
            before.append(piece);
            before
        });
    }
    let mut samples: Vec<(Timestamp, Value)> = Vec::with_capacity(pieces.iter().map(|piece| piece.times.len()).sum());
    for piece in &pieces {
        samples.extend(piece.times.iter().map(|time| Timestamp::from_micros(*time)).zip(piece.values.iter()));
    }
    keep_last_writes(&mut samples);
    let times = samples.iter().map(|(time, _)| time.micros()).collect();
    Some(Piece { times, values: samples.into_iter().map(|(_, value)| value).collect() })
}

/// Adds the samples of `wanted` runs of one segment to their series. A series may be asked for twice.
fn read_runs(
    loaded: &LoadedSegment,
    wanted: &mut [(Run, usize)],
    range: TimeRange,
    batch: &mut [(SeriesId, SeriesPieces)],
) -> Result<()> {
    wanted.sort_unstable_by_key(|(run, place)| (run.row, *place));
    let mut runs: Vec<Run> = wanted.iter().map(|(run, _)| *run).collect();
    runs.dedup();
    let mut pieces = loaded.read(&runs, range)?.into_iter();
    for same in wanted.chunk_by(|a, b| a.0.row == b.0.row) {
        let Some(piece) = pieces.next() else { break };
        let Some(((_, last), others)) = same.split_last() else { break };
        for (_, place) in others {
            batch[*place].1.push(piece.clone());
        }
        batch[*last].1.push(piece);
    }
    Ok(())
}

impl Iterator for Points {
    type Item = Result<SeriesPoints>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((series, pieces)) = self.ready.pop_front() {
                if let Some(points) = self.merge(series, pieces) {
                    return Some(Ok(points));
                }
            }
            if self.sources.is_empty() {
                return None;
            }
            if let Err(error) = self.read() {
                return Some(Err(self.fail(error)));
            }
        }
    }
}
