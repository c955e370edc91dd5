//! The series of one metric as those of each job: series of their own, with the id of the job as a tag. So runs with
//! equal keys are told apart by whoever knows tags alone. Nothing is stored for it, and no sample is read.

use std::sync::Arc;

use super::jobs::JobPiece;
use super::{SeriesPoints, Snapshot, merge};
use crate::error::Result;
use crate::index::{JOB_TAG, Nodes, SeriesIndex};
use crate::meta::{JOB_SLOT_TAG, SeriesOwner};
use crate::segment::read::Piece;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::{TimeRange, Timestamp};

/// The series of a metric, told apart by job.
#[derive(Clone, Debug)]
pub struct SeriesByJob {
    names: Snapshot,
    pieces: Arc<[JobPiece]>,
    /// By the number of the series: the pieces that have some of it, and its number there.
    places: Arc<[Vec<PieceSeries>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PieceSeries {
    piece: usize,
    series: SeriesId,
}

/// A series of a job that lies in one piece.
#[derive(Clone, Copy, Debug)]
pub struct SeriesOfJob<'a> {
    pub snapshot: &'a Snapshot,
    pub series: SeriesId,
    /// When its samples are the job's.
    pub ranges: &'a [TimeRange],
}

impl SeriesByJob {
    /// The series of `metric` in `snapshot`, of the jobs whose ids are wanted. One that has a tag `job` of its own, or can
    /// have no further tag, keeps its key. Where `is_stopped` says so it ends early, and is of no use then.
    ///
    /// # Errors
    /// Internal ones only.
    pub fn new(
        snapshot: &Snapshot,
        metric: &str,
        is_wanted: impl Fn(&str) -> bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let index = SeriesIndex::default();
        let (mut pieces, mut places): (Vec<JobPiece>, Vec<Vec<PieceSeries>>) = (Vec::new(), Vec::new());
        for recorded in snapshot.jobs(is_wanted) {
            if is_stopped() {
                break;
            }
            for piece in recorded.pieces {
                let selected = piece.snapshot.select(metric, &[]);
                if selected.is_empty() {
                    continue;
                }
                for series in selected {
                    let Some(key) = piece.snapshot.index.key(series) else { continue };
                    let named = with_job(&key, &recorded.job).unwrap_or(key);
                    let (id, is_new) = index.get_or_insert(&named, u32::MAX)?;
                    if is_new {
                        places.push(Vec::new());
                    }
                    places[id.0 as usize].push(PieceSeries { piece: pieces.len(), series });
                }
                pieces.push(piece);
            }
        }
        let names = Snapshot {
            nodes: Nodes::One(Arc::from(snapshot.node())),
            series_end: SeriesId(u32::try_from(index.len()).unwrap_or(u32::MAX)),
            index: Arc::new(index),
            segments: Arc::new([]),
            memtables: Vec::new(),
            parts: None,
            is_narrowed: false,
            owner: SeriesOwner::Any,
            meta: Arc::clone(&snapshot.meta),
        };
        Ok(Self { names, pieces: pieces.into(), places: places.into() })
    }

    /// Knows the series by name, and has no samples.
    pub fn names(&self) -> &Snapshot {
        &self.names
    }

    fn of(&self, series: SeriesId) -> impl Iterator<Item = SeriesOfJob<'_>> {
        let places = self.places.get(series.0 as usize).map_or(&[][..], |places| &places[..]);
        places.iter().map(|place| {
            let JobPiece { snapshot, ranges } = &self.pieces[place.piece];
            SeriesOfJob { snapshot, series: place.series, ranges }
        })
    }

    /// Where `series` lies, and when; `None` if it is put together from several pieces.
    pub fn single(&self, series: SeriesId) -> Option<(SeriesOfJob<'_>, TimeRange)> {
        let mut pieces = self.of(series);
        let piece = pieces.next().filter(|_| pieces.next().is_none())?;
        let [range] = piece.ranges else { return None };
        Some((piece, *range))
    }

    /// As [`Snapshot::has_points`].
    ///
    /// # Errors
    /// As there.
    pub fn has_points(&self, series: SeriesId, range: TimeRange) -> Result<bool> {
        for piece in self.of(series) {
            for own in piece.ranges {
                if piece.snapshot.has_points(piece.series, range.intersect(*own))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The samples of `series` in `range`, as [`Snapshot::points`] has them; `None` if there are none.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn points(&self, series: SeriesId, range: TimeRange) -> Result<Option<SeriesPoints>> {
        let mut pieces = Vec::new();
        for SeriesOfJob { snapshot, series, ranges } in self.of(series) {
            for range in ranges.iter().map(|own| range.intersect(*own)).filter(|range| !range.is_empty()) {
                for points in snapshot.points(vec![series], range) {
                    let SeriesPoints { times, values, .. } = points?;
                    pieces.push(Piece { times: times.into_iter().map(Timestamp::micros).collect(), values });
                }
            }
        }
        Ok(merge(pieces).map(|piece| piece.of(series)))
    }
}

impl Snapshot {
    /// Whether [`SeriesByJob`] gives the series of `metric` the tag `job`: not if some have a tag of that name.
    pub fn can_have_jobs(&self, metric: &str) -> bool {
        !self.index.tag_keys(metric).iter().any(|key| &**key == JOB_TAG)
    }
}

/// The key with the tag `job`, in place of the slot of the job; `None` where it has one, or can have no further tag.
fn with_job(key: &SeriesKey, job: &str) -> Option<SeriesKey> {
    if key.tags().get(JOB_TAG).is_some() {
        return None;
    }
    let own = key.tags().iter().filter(|(key, _)| *key != JOB_SLOT_TAG);
    let tags = TagSet::new(own.chain([(JOB_TAG, job)])).ok()?;
    SeriesKey::new(key.metric(), tags).ok()
}
