//! Jobs that share a database: for how long each ran on its node, and which series hold its samples.
//!
//! Series are told apart by slots, not by jobs: a job that begins takes the lowest slot that is free, and its series
//! have the number of the slot as a tag. So there are as many series as jobs ever ran at once, however many there were.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{exact, micros, micros_or_none};
use crate::series::SeriesKey;
use crate::time::{TimeRange, Timestamp};

/// The tag of series whose samples came from a job among several: the number of its slot.
pub const JOB_SLOT_TAG: &str = "job.slot";
/// Most intervals that a database keeps. Beyond that it forgets those that ended first, and their samples belong to no
/// job.
pub const JOB_INTERVALS_MAX: usize = 10_000;
/// Most memory that their descriptions take together, bytes, as [`weight`] counts.
pub const JOB_INTERVALS_BYTES_MAX: usize = 64 << 20;
/// What a value of JSON takes beside its text.
const JSON_BYTES: usize = size_of::<serde_json::Value>();

/// What a database knows of one job among several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobInterval {
    pub slot: u32,
    /// From then on the samples of the slot are this job's, until the next one takes it: a sample may be a little
    /// older than the moment at which its job was first heard of. `None` where no job had the slot before.
    #[serde(with = "micros_or_none", default)]
    pub since: Option<Timestamp>,
    #[serde(with = "micros")]
    pub begin: Timestamp,
    /// `None` while it runs.
    #[serde(with = "micros_or_none", default)]
    pub end: Option<Timestamp>,
    /// A JSON object whose fields are its writer's; `id` names the job.
    #[serde(serialize_with = "exact::serialize_shared", deserialize_with = "exact::deserialize_shared")]
    pub job: Arc<serde_json::Value>,
}

impl JobInterval {
    /// What orders intervals, and tells them apart.
    pub(super) fn place(&self) -> (Timestamp, u32) {
        (self.begin, self.slot)
    }

    /// While it ran on the node.
    fn ran(&self) -> TimeRange {
        let end = self.end.map_or(Timestamp::MAX, |end| Timestamp::from_micros(end.micros().saturating_add(1)));
        TimeRange::new(self.begin, end)
    }
}

/// About what a description takes in memory, in bytes.
pub(super) fn weight(job: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    JSON_BYTES
        + match job {
            Json::Null | Json::Bool(_) | Json::Number(_) => 0,
            Json::String(text) => text.len(),
            Json::Array(items) => items.iter().map(weight).sum(),
            Json::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        }
}

/// The job whose samples a series has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesOwner {
    /// Whose they are does not matter.
    Any,
    /// Of the node, or of a sender that belongs to no job.
    Node,
    /// Of the jobs that had this slot.
    Slot(u32),
    /// Of a slot that none of these is.
    OtherSlot(Arc<[u32]>),
}

impl SeriesOwner {
    pub(crate) fn owns(&self, key: &SeriesKey) -> bool {
        let slot = key.tags().get(JOB_SLOT_TAG);
        let number = || slot.and_then(|slot| slot.parse::<u32>().ok());
        match self {
            SeriesOwner::Any => true,
            SeriesOwner::Node => slot.is_none(),
            SeriesOwner::Slot(wanted) => number() == Some(*wanted),
            SeriesOwner::OtherSlot(known) => {
                slot.is_some() && number().is_none_or(|number| known.binary_search(&number).is_err())
            }
        }
    }
}

/// Series that are a job's for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStretch {
    pub owner: SeriesOwner,
    /// Ascending, without overlap.
    pub ranges: Vec<TimeRange>,
}

/// What belongs to each of `intervals`, which are sorted by begin; and last what belongs to none of them. Together that
/// is every sample, and those of the node as often as jobs ran there at once.
pub(crate) fn stretches(intervals: &[JobInterval]) -> Vec<Vec<JobStretch>> {
    let mut of_slots: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, interval) in intervals.iter().enumerate() {
        of_slots.entry(interval.slot).or_default().push(at);
    }
    let since = |at: usize| intervals[at].since.unwrap_or(intervals[at].begin);
    let mut slot_ranges = vec![TimeRange::ALL; intervals.len()];
    let mut rest = Vec::new();
    for (slot, at) in &of_slots {
        for pair in at.windows(2) {
            slot_ranges[pair[0]].end = since(pair[1]);
            slot_ranges[pair[1]].start = since(pair[1]);
        }
        if let Some(forgotten) = at.first().and_then(|first| intervals[*first].since) {
            slot_ranges[at[0]].start = forgotten;
            let ranges = vec![TimeRange::new(Timestamp::MIN, forgotten)];
            rest.push(JobStretch { owner: SeriesOwner::Slot(*slot), ranges });
        }
    }
    let known = of_slots.into_keys().collect();
    rest.push(JobStretch { owner: SeriesOwner::OtherSlot(known), ranges: vec![TimeRange::ALL] });
    let (mut idle, mut idle_from) = (Vec::new(), Timestamp::MIN);
    for ran in intervals.iter().map(JobInterval::ran) {
        idle.push(TimeRange::new(idle_from, ran.start));
        idle_from = idle_from.max(ran.end);
    }
    idle.push(TimeRange::new(idle_from, Timestamp::MAX));
    idle.retain(|range| !range.is_empty());
    rest.push(JobStretch { owner: SeriesOwner::Node, ranges: idle });
    let of_job = |(interval, range): (&JobInterval, TimeRange)| {
        let node = JobStretch { owner: SeriesOwner::Node, ranges: vec![interval.ran()] };
        vec![JobStretch { owner: SeriesOwner::Slot(interval.slot), ranges: vec![range] }, node]
    };
    intervals.iter().zip(slot_ranges).map(of_job).chain([rest]).collect()
}

#[cfg(test)]
mod tests;
