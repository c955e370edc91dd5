//! Turns put bodies without a fault into a batch, by their raw bytes.
//!
//! A typical body resembles the ones before it: every series in it is known and every point is good. Such a body is
//! read here in one pass, see [`crate::decode::opentsdb::scan`]. Any other body, above all one with a fault, is left
//! whole to the complete decoder, which can say what is wrong; up to then nothing has been changed.

#[cfg(test)]
mod tests;

use telem_engine::{Db, SampleBatch, SeriesId, SeriesKey, Timestamp};

use super::{AcceptCounters, Limits, check_time};
use crate::decode::opentsdb::PutRules;
use crate::decode::opentsdb::scan::{Next, PointForesight, PointScan, RawPoint};
use crate::decode::words::starts_with;
use crate::default_tags::DefaultTags;
use crate::known::{At, Keys};

/// What the raw metric and tags of a point, or of a `put` line, mean.
#[derive(Clone, Copy, Debug)]
pub struct PointSeries {
    /// How much of the raw key is the metric; the rest is the tags.
    pub(super) metric_len: usize,
    /// As many as were sent.
    pub(super) tags: usize,
    pub(super) series: SeriesId,
}

/// The samples of `body` if all of it is good, and `None` otherwise. New series get their ids once that is known, and
/// the tags of [`Keys::tags`] that they lack.
pub fn accept(
    db: &Db,
    now: Timestamp,
    limits: &Limits,
    counters: &AcceptCounters,
    keys: &mut Keys<PointSeries>,
    rules: &PutRules,
    body: &[u8],
) -> Option<SampleBatch> {
    let tags = keys.tags().clone();
    let sorter = PointSorter { db, now, limits, tags: &tags, rules };
    let mut new = Vec::new();
    let mut batch = sorter.read(keys, &mut new, body)?;
    if !new.is_empty() {
        // Only now: a body with a fault may not leave series behind.
        for key in new.drain(..) {
            db.series(&key).ok()?;
        }
        batch = sorter.read(keys, &mut new, body)?;
    }
    let whole = new.is_empty() && !batch.is_empty();
    whole.then(|| counters.count(batch.len(), 0))?;
    Some(batch)
}

struct PointSorter<'a> {
    db: &'a Db,
    now: Timestamp,
    limits: &'a Limits,
    tags: &'a DefaultTags,
    rules: &'a PutRules,
}

impl PointSorter<'_> {
    /// The samples of `body`; those of series that the database does not have are left out, and the series stand in
    /// `new`, some of them several times.
    fn read(&self, keys: &mut Keys<PointSeries>, new: &mut Vec<SeriesKey>, body: &[u8]) -> Option<SampleBatch> {
        let mut points = PointScan::new(body, self.rules);
        let mut seer = PointSeer { keys, foreseen: None, metric: false, tags: false };
        // A point takes about a hundred bytes.
        let mut batch = SampleBatch::with_capacity((body.len() / 96).min(self.limits.batch_samples_max));
        let mut raw_key = Vec::new();
        let tags_max = self.rules.tags_max.min(self.limits.tags_max);
        loop {
            let point = match points.next(&mut seer) {
                Next::Point(point) => point,
                Next::End => return Some(batch),
                Next::Unusual => return None,
            };
            if batch.len() + new.len() >= self.limits.batch_samples_max {
                return None;
            }
            check_time(point.time, self.now, self.limits).ok()?;
            let series = match seer.known(&point, &mut raw_key) {
                Some(known) if known.tags > tags_max => return None,
                Some(known) => Some(known.series),
                None => self.series(seer.keys, &point, &raw_key, new)?,
            };
            if let Some(series) = series {
                batch.push(series, point.time, point.value);
            }
        }
    }

    /// The series of a point that is not known by its bytes; the inner `None` where it is a new one. The outer one where
    /// it can have none.
    fn series(
        &self,
        keys: &mut Keys<PointSeries>,
        point: &RawPoint<'_>,
        raw_key: &[u8],
        new: &mut Vec<SeriesKey>,
    ) -> Option<Option<SeriesId>> {
        point.with_sample(self.rules, |sample| {
            if sample.tags.len() > self.limits.tags_max {
                return None;
            }
            let count = sample.tags.len();
            let tags = self.tags.complete(&sample.tags, self.limits.tags_max).ok()?;
            let key = SeriesKey::new(&sample.metric, tags).ok()?;
            let Some(series) = self.db.index().id(&key) else {
                new.push(key);
                return Some(None);
            };
            let known = PointSeries { metric_len: point.metric.len(), tags: count, series };
            if let Some(at) = keys.insert(raw_key, known) {
                keys.follow(at);
            }
            Some(Some(series))
        })
    }
}

/// Foresees metric and tags from the [`Keys`] of a decoder.
struct PointSeer<'k> {
    keys: &'k mut Keys<PointSeries>,
    /// The key that should come now, and how much of it is the metric.
    foreseen: Option<(At, usize)>,
    /// Whether its metric, and its tags, came indeed.
    metric: bool,
    tags: bool,
}

impl PointSeer<'_> {
    fn foreseen(&self) -> Option<(&[u8], &[u8])> {
        let (at, metric_len) = self.foreseen?;
        self.keys.key(at)?.split_at_checked(metric_len)
    }

    /// What the raw names of `point` mean. Where they were not foreseen, they stand in `raw_key` afterwards.
    fn known(&mut self, point: &RawPoint<'_>, raw_key: &mut Vec<u8>) -> Option<PointSeries> {
        let at = match self.foreseen {
            Some((at, _)) if self.metric && self.tags => at,
            _ => {
                raw_key.clear();
                raw_key.extend_from_slice(point.metric);
                raw_key.extend_from_slice(point.tags);
                self.keys.find(raw_key)?
            }
        };
        self.keys.follow(at);
        self.keys.meaning(at).copied()
    }
}

impl PointForesight for PointSeer<'_> {
    fn begin(&mut self) {
        (self.metric, self.tags) = (false, false);
        let foreseen = self.keys.foreseen().map(|(at, _)| at);
        self.foreseen = foreseen.and_then(|at| Some((at, self.keys.meaning(at)?.metric_len)));
    }

    fn metric(&mut self, rest: &[u8]) -> Option<usize> {
        let (metric, _) = self.foreseen().filter(|(metric, _)| starts_with(rest, metric))?;
        let len = metric.len();
        self.metric = true;
        Some(len)
    }

    fn tags(&mut self, rest: &[u8]) -> Option<usize> {
        let (_, tags) = self.foreseen().filter(|(_, tags)| starts_with(rest, tags))?;
        let len = tags.len();
        self.tags = true;
        Some(len)
    }
}
