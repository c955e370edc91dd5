//! Series in the requested order, each cut into stretches of time. For each stretch it is known whether its samples are
//! in a single run, which is then left unread, or whether several sources must be merged.

use std::collections::VecDeque;
use std::ops::Range;

use super::sources::{Cluster, Sources};
use crate::error::Result;
use crate::segment::Run;
use crate::segment::read::Piece;
use crate::series::SeriesId;
use crate::time::TimeRange;

/// Consecutive samples of one series.
#[derive(Debug)]
pub(super) enum Stretch {
    /// These rows of a run, counted from its first. All are in the range, and no other source has samples between.
    Rows {
        segment: usize,
        run: Run,
        rows: Range<usize>,
    },
    Read(Piece),
}

impl Stretch {
    pub fn len(&self) -> usize {
        match self {
            Stretch::Rows { rows, .. } => rows.len(),
            Stretch::Read(piece) => piece.times.len(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stretches {
    pub sources: Sources,
    /// The series that is being handed out, and what is left of it.
    series: SeriesId,
    clusters: VecDeque<Cluster>,
    now: Now,
}

/// What is left of the cluster that is being handed out.
#[derive(Debug)]
enum Now {
    Nothing,
    /// Rows of a run without overlap; only its times, not read yet, tell which of them are in the range.
    Rows {
        segment: usize,
        run: Run,
        rows: Range<usize>,
        all_in_range: bool,
    },
    Spans {
        cluster: Cluster,
        spans: VecDeque<TimeRange>,
    },
}

impl Stretches {
    pub fn new(sources: Sources) -> Self {
        Self { sources, series: SeriesId(0), clusters: VecDeque::new(), now: Now::Nothing }
    }

    /// Forgets the rest: what follows an error would have holes.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.clusters.clear();
        self.now = Now::Nothing;
    }

    /// The samples that come next, and whose: at least one, at most `rows_max` of a run, and of what must be merged
    /// about as many.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn next(&mut self, rows_max: usize) -> Result<Option<(SeriesId, Stretch)>> {
        loop {
            match &mut self.now {
                Now::Rows { segment, run, rows, all_in_range } if rows.start < rows.end => {
                    let part = rows.start..rows.start + rows_max.min(rows.len());
                    rows.start = part.end;
                    if *all_in_range {
                        return Ok(Some((self.series, Stretch::Rows { segment: *segment, run: *run, rows: part })));
                    }
                    let piece = self.sources.segments[*segment].load()?.read_rows(run, part, self.sources.range)?;
                    if !piece.times.is_empty() {
                        return Ok(Some((self.series, Stretch::Read(piece))));
                    }
                }
                Now::Spans { cluster, spans } if !spans.is_empty() => {
                    let Some(span) = spans.pop_front() else { continue };
                    if let Some(piece) = self.sources.read(self.series, cluster, span)? {
                        return Ok(Some((self.series, Stretch::Read(piece))));
                    }
                }
                _ => match self.clusters.pop_front() {
                    Some(cluster) => self.now = self.begin(cluster, rows_max)?,
                    None => {
                        self.now = Now::Nothing;
                        let Some((series, found)) = self.sources.next()? else { return Ok(None) };
                        self.series = series;
                        self.clusters = self.sources.clusters(series, &found).into();
                    }
                },
            }
        }
    }

    fn begin(&self, cluster: Cluster, rows_max: usize) -> Result<Now> {
        let range = self.sources.range;
        Ok(match cluster.alone() {
            Some((segment, run)) => {
                let known = self.sources.segments[segment].load()?.known_rows(&run, range);
                let all_in_range = known.is_some();
                Now::Rows { segment, run, rows: known.unwrap_or(0..run.rows as usize), all_in_range }
            }
            None => Now::Spans { spans: self.sources.spans(&cluster, rows_max as u64).collect(), cluster },
        })
    }
}
