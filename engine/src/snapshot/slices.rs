//! A long series, part after part of its time, so that nobody holds all of it.

use std::collections::VecDeque;
use std::ops::Range;

use super::sources::{Cluster, Sources};
use crate::error::Result;
use crate::segment::Run;
use crate::segment::read::Piece;
use crate::series::SeriesId;
use crate::time::TimeRange;

/// What is left of one series.
#[derive(Debug)]
pub(super) struct Slices {
    pub series: SeriesId,
    clusters: VecDeque<Cluster>,
    now: Now,
}

/// What is left of the cluster that is being read.
#[derive(Debug)]
enum Now {
    Nothing,
    /// Rows of a run that stands alone.
    Rows {
        segment: usize,
        run: Run,
        rows: Range<usize>,
    },
    Spans {
        cluster: Cluster,
        spans: VecDeque<TimeRange>,
    },
}

impl Slices {
    pub fn new(series: SeriesId, clusters: Vec<Cluster>) -> Self {
        Self { series, clusters: clusters.into(), now: Now::Nothing }
    }

    /// The samples that come next: of about `rows_max` rows.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn next(&mut self, sources: &Sources, rows_max: u64) -> Result<Option<Piece>> {
        loop {
            match &mut self.now {
                Now::Rows { segment, run, rows } if rows.start < rows.end => {
                    let count = usize::try_from(rows_max).unwrap_or(usize::MAX).min(rows.len());
                    let part = rows.start..rows.start + count;
                    rows.start = part.end;
                    let piece = sources.segments[*segment].load()?.read_rows(run, part, sources.range)?;
                    if !piece.times.is_empty() {
                        return Ok(Some(piece));
                    }
                }
                Now::Spans { cluster, spans } if !spans.is_empty() => {
                    let Some(span) = spans.pop_front() else { continue };
                    if let Some(piece) = sources.read(self.series, cluster, span)? {
                        return Ok(Some(piece));
                    }
                }
                _ => {
                    let Some(cluster) = self.clusters.pop_front() else { return Ok(None) };
                    self.now = match cluster.alone() {
                        Some((segment, run)) => {
                            let rows = sources.segments[segment].load()?.rows(&run, sources.range);
                            Now::Rows { segment, run, rows }
                        }
                        None => Now::Spans { spans: sources.spans(&cluster, rows_max).collect(), cluster },
                    };
                }
            }
        }
    }
}
