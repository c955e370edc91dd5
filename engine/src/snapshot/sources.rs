//! The sources of a series' samples: runs of segments and memtables, in order of precedence.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;

use super::{Snapshot, Visible, merge};
use crate::error::Result;
use crate::segment::read::Piece;
use crate::segment::{Run, Segment};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};

/// Runs that are looked for in one go, unless a single series has more (40 bytes each).
const FIND_RUNS: usize = 256 << 10;

/// The samples of some series in a stretch of time, found series by series.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Those that overlap the range, oldest first.
    pub segments: Vec<Arc<Segment>>,
    /// Oldest first, placed between those segments.
    pub memtables: Vec<Visible>,
    pub range: TimeRange,
    /// Not looked for yet.
    series: VecDeque<SeriesId>,
    /// Found in segments and not taken.
    found: VecDeque<(SeriesId, Vec<FoundRun>)>,
}

/// A run that has samples in the range, as far as that is known without reading it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRun {
    /// The place of its segment.
    pub segment: usize,
    pub run: Run,
    /// In the range, at most.
    pub rows: u64,
}

impl Sources {
    pub fn new(snapshot: &Snapshot, series: Vec<SeriesId>, range: TimeRange) -> Self {
        let all = snapshot.segments.iter().enumerate();
        let kept: Vec<usize> = all.filter(|(_, one)| one.entry().overlaps(range)).map(|(at, _)| at).collect();
        let among_kept = |before: usize| kept.partition_point(|at| *at < before);
        let memtables = snapshot.memtables.iter().map(|visible| {
            let segments_before = among_kept(visible.segments_before);
            Visible { segments_before, ..visible.clone() }
        });
        Self {
            memtables: memtables.collect(),
            segments: kept.iter().map(|at| Arc::clone(&snapshot.segments[*at])).collect(),
            series: series.into(),
            range,
            found: VecDeque::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.found.is_empty()
    }

    /// Forgets the rest: what follows an error would have holes.
    pub fn clear(&mut self) {
        self.series.clear();
        self.found.clear();
    }

    /// The next series, and its runs.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments.
    pub fn next(&mut self) -> Result<Option<(SeriesId, Vec<FoundRun>)>> {
        if self.found.is_empty() && !self.series.is_empty() {
            self.find()?;
        }
        Ok(self.found.pop_front())
    }

    /// The next series and their runs: one at least, and more as long as all have no more than `rows_max` rows, which
    /// `rows` counts.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments.
    pub fn take(
        &mut self,
        rows_max: u64,
        rows: impl Fn(SeriesId, &[FoundRun]) -> u64,
    ) -> Result<Vec<(SeriesId, Vec<FoundRun>)>> {
        if self.found.is_empty() && !self.series.is_empty() {
            self.find()?;
        }
        let mut taken = Vec::new();
        let mut sum = 0;
        while let Some((series, runs)) = self.found.front() {
            sum += rows(*series, runs);
            if !taken.is_empty() && sum > rows_max {
                break;
            }
            taken.extend(self.found.pop_front());
        }
        Ok(taken)
    }

    /// Finds the runs of the next series, as many as stay within [`FIND_RUNS`]. Segments are gone
    /// through once and not held, so that only wanted runs take memory.
    fn find(&mut self) -> Result<()> {
        let count = (FIND_RUNS / self.segments.len().max(1)).clamp(1, self.series.len());
        self.found = self.series.drain(..count).map(|series| (series, Vec::new())).collect();
        let mut places: Vec<(SeriesId, usize)> =
            self.found.iter().enumerate().map(|(place, (series, _))| (*series, place)).collect();
        places.sort_unstable();
        for (at, segment) in self.segments.iter().enumerate() {
            let mut held = segment.may_hold_of(&places).peekable();
            if held.peek().is_none() {
                continue;
            }
            let loaded = segment.load()?;
            for (series, place) in held {
                let run = loaded.run(*series).filter(|run| self.range.overlaps_closed(run.first, run.last));
                let found = run.map(|run| FoundRun { segment: at, run: *run, rows: loaded.rows_in(run, self.range) });
                self.found[*place].1.extend(found.filter(|found| found.rows > 0));
            }
        }
        Ok(())
    }

    /// The stretches of time in which a series has samples, in the order of time.
    pub fn clusters(&self, series: SeriesId, found: &[FoundRun]) -> Vec<Cluster> {
        let segments = found.iter().map(|found| SampleSource {
            first: found.run.first,
            last: found.run.last,
            rows: found.rows,
            place: Place::Segment { at: found.segment, run: found.run },
        });
        let memtables = self.memtables.iter().enumerate().filter_map(|(at, visible)| {
            let (first, last) = visible.memtable.bounds_of(series, visible.rows)?;
            let rows = visible.memtable.count(series);
            let inside = self.range.overlaps_closed(first, last);
            inside.then_some(SampleSource { first, last, rows, place: Place::Memtable { at } })
        });
        let mut sources: Vec<SampleSource> = segments.chain(memtables).collect();
        sources.sort_by_key(|source| source.first);
        let mut clusters: Vec<Cluster> = Vec::with_capacity(sources.len());
        for source in sources {
            match clusters.last_mut() {
                Some(cluster) if source.first <= cluster.last => {
                    cluster.last = cluster.last.max(source.last);
                    cluster.sources.push(source);
                }
                _ => clusters.push(Cluster { first: source.first, last: source.last, sources: vec![source] }),
            }
        }
        for cluster in clusters.iter_mut().filter(|cluster| cluster.sources.len() > 1) {
            cluster.sources.sort_by_key(|source| self.age(source));
        }
        clusters
    }

    /// Grows with how new a source is: of equal times the sample of the newest counts.
    fn age(&self, source: &SampleSource) -> (usize, bool, usize) {
        match source.place {
            Place::Segment { at, .. } => (at, true, 0),
            // Older than the segment that comes next.
            Place::Memtable { at } => (self.memtables[at].segments_before, false, at),
        }
    }

    /// The time of a cluster in parts that hold `rows_max` rows each, as far as these are spread evenly.
    pub fn spans(&self, cluster: &Cluster, rows_max: u64) -> impl Iterator<Item = TimeRange> + use<> {
        let first = i128::from(cluster.first.max(self.range.start).micros());
        let end = i128::from(cluster.last.micros()).saturating_add(1).min(i128::from(self.range.end.micros()));
        let parts = i128::from(cluster.rows().div_ceil(rows_max).max(1));
        let cut = move |part: i128| {
            let at = first + (end - first) * part / parts;
            Timestamp::from_micros(i64::try_from(at).unwrap_or(i64::MAX))
        };
        (0..parts).map(move |part| TimeRange::new(cut(part), cut(part + 1)))
    }

    /// The samples of a cluster in `span`, the last write of each time; `None` when there are none.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn read(&self, series: SeriesId, cluster: &Cluster, span: TimeRange) -> Result<Option<Piece>> {
        let pieces = cluster.sources.iter().map(|source| self.piece(series, source, span));
        Ok(merge(pieces.collect::<Result<Vec<Piece>>>()?))
    }

    /// The samples of a source in `range`.
    fn piece(&self, series: SeriesId, source: &SampleSource, range: TimeRange) -> Result<Piece> {
        match source.place {
            Place::Memtable { at } => Ok(self.memtables[at].piece(series, range)),
            Place::Segment { at, run } => {
                let mut pieces = self.segments[at].load()?.read(slice::from_ref(&run), range)?;
                Ok(pieces.swap_remove(0))
            }
        }
    }
}

/// Samples of one series from one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleSource {
    pub first: Timestamp,
    pub last: Timestamp,
    /// At most.
    pub rows: u64,
    pub place: Place,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Segment { at: usize, run: Run },
    Memtable { at: usize },
}

/// Sources of one series that overlap in time, the oldest first; no other has a sample between `first` and `last`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub first: Timestamp,
    pub last: Timestamp,
    pub sources: Vec<SampleSource>,
}

impl Cluster {
    /// At most.
    pub fn rows(&self) -> u64 {
        self.sources.iter().map(|source| source.rows).sum()
    }

    /// The run that this is, if it is one alone, and the place of its segment.
    pub fn alone(&self) -> Option<(usize, Run)> {
        match self.sources[..] {
            [SampleSource { place: Place::Segment { at, run }, .. }] => Some((at, run)),
            _ => None,
        }
    }
}
