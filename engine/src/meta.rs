//! Data other than samples: metric metadata, annotations, the descriptions of jobs, and records of small state.
//!
//! Every change is one record of the WAL; a flush writes all of it into one immutable JSON file.
//! The first-seen order of names is not here: it follows from the order of series ids.

pub(crate) mod exact;
mod interval;
pub mod inventory;
mod metrics;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::time::Timestamp;
pub(crate) use interval::stretches;
pub use interval::{JOB_INTERVALS_BYTES_MAX, JOB_INTERVALS_MAX, JOB_SLOT_TAG, JobInterval, JobStretch, SeriesOwner};
use metrics::MetricTable;
use record::StateRecords;
pub use record::{RECORD_BYTES_MAX, RECORDS_BYTES_MAX, StateRecord};

/// Longest text of any field, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Longest description of a job, in bytes of JSON.
pub const JOB_BYTES_MAX: usize = 4 << 20;

/// What kind of measurement a metric is, in the words of OpenMetrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    #[default]
    Unknown,
    Gauge,
    Counter,
    Histogram,
    Summary,
    Info,
    StateSet,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricMeta {
    #[serde(default)]
    pub kind: MetricKind,
    #[serde(default)]
    pub unit: String,
    #[serde(default)]
    pub help: String,
}

impl MetricMeta {
    /// This, with what `said` adds to it: what is known stays.
    #[must_use]
    pub fn completed(&self, said: &MetricMeta) -> MetricMeta {
        let or = |known: &String, said: &String| if known.is_empty() { said.clone() } else { known.clone() };
        let kind = if self.kind == MetricKind::Unknown { said.kind } else { self.kind };
        MetricMeta { kind, unit: or(&self.unit, &said.unit), help: or(&self.help, &said.help) }
    }
}

/// A note on a stretch of time, of one series or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// The series it belongs to, as its protocol names it; `None` is global.
    pub tsuid: Option<String>,
    #[serde(with = "micros")]
    pub start: Timestamp,
    #[serde(with = "micros_or_none", default)]
    pub end: Option<Timestamp>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub notes: String,
    #[serde(default)]
    pub custom: BTreeMap<String, String>,
}

/// One change, as the WAL records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetaChange {
    Metric {
        name: Arc<str>,
        meta: MetricMeta,
    },
    /// Replaces the annotation with the same series and start.
    Annotate(Annotation),
    RemoveAnnotation {
        tsuid: Option<String>,
        #[serde(with = "micros")]
        start: Timestamp,
    },
    /// The description of the job, a JSON object whose fields are its writer's.
    Job(#[serde(deserialize_with = "exact::deserialize")] serde_json::Value),
    /// Replaces the interval with the same slot and begin.
    JobInterval(JobInterval),
    /// Replaces the record with the same kind and key, or removes it.
    Record(StateRecord),
}

/// About what a small change takes as JSON.
const JSON_ROOM: usize = 256;

/// Everything that [`MetaChange`]s made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    #[serde(default)]
    metrics: MetricTable,
    /// Sorted by start and series, every pair once.
    #[serde(default)]
    annotations: Vec<Annotation>,
    #[serde(default, deserialize_with = "exact::deserialize_or_none")]
    job: Option<serde_json::Value>,
    /// Sorted by begin and slot, every pair once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    job_intervals: Vec<JobInterval>,
    /// Some job that had a slot is not among them any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_forgotten_jobs: bool,
    #[serde(default, skip_serializing_if = "StateRecords::is_empty")]
    records: StateRecords,
}

impl Meta {
    pub fn metric(&self, name: &str) -> Option<&MetricMeta> {
        self.metrics.get(name)
    }

    /// Metrics with metadata, by name.
    pub fn metrics(&self) -> impl ExactSizeIterator<Item = (&str, &MetricMeta)> {
        self.metrics.iter()
    }

    /// Sorted by start.
    pub fn annotations(&self) -> &[Annotation] {
        &self.annotations
    }

    pub fn job(&self) -> Option<&serde_json::Value> {
        self.job.as_ref()
    }

    /// The jobs among which the samples are divided, sorted by begin; none where all are of one job.
    pub fn job_intervals(&self) -> &[JobInterval] {
        &self.job_intervals
    }

    /// Whether a slot may have been a job's of which nothing is known any more.
    pub fn has_forgotten_jobs(&self) -> bool {
        self.has_forgotten_jobs
    }

    /// About what it takes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let annotation = |annotation: &Annotation| {
            let texts = annotation.tsuid.as_deref().map_or(0, str::len) + annotation.description.len();
            let custom = annotation.custom.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            size_of::<Annotation>() + texts + annotation.notes.len() + custom
        };
        let interval = |interval: &JobInterval| size_of::<JobInterval>() + interval::weight(&interval.job);
        self.metrics.held_bytes()
            + self.records.held_bytes()
            + self.annotations.iter().map(annotation).sum::<usize>()
            + self.job.as_ref().map_or(0, interval::weight)
            + self.job_intervals.iter().map(interval).sum::<usize>()
    }

    pub(crate) fn apply(&mut self, change: MetaChange) {
        match change {
            MetaChange::Metric { name, meta } => {
                self.metrics.insert(name, meta);
            }
            MetaChange::Annotate(annotation) => match self.find(annotation.start, annotation.tsuid.as_deref()) {
                Ok(at) => self.annotations[at] = annotation,
                Err(at) => self.annotations.insert(at, annotation),
            },
            MetaChange::RemoveAnnotation { tsuid, start } => {
                if let Ok(at) = self.find(start, tsuid.as_deref()) {
                    self.annotations.remove(at);
                }
            }
            MetaChange::Job(job) => self.job = Some(job),
            MetaChange::JobInterval(interval) => self.put_interval(interval),
            MetaChange::Record(record) => self.records.apply(record),
        }
    }

    fn put_interval(&mut self, interval: JobInterval) {
        match self.job_intervals.binary_search_by_key(&interval.place(), JobInterval::place) {
            Ok(at) => self.job_intervals[at] = interval,
            Err(at) => self.job_intervals.insert(at, interval),
        }
        let mut bytes: usize = self.job_intervals.iter().map(|interval| interval::weight(&interval.job)).sum();
        while self.job_intervals.len() > JOB_INTERVALS_MAX || bytes > JOB_INTERVALS_BYTES_MAX {
            let ended = self.job_intervals.iter().enumerate().filter(|(_, interval)| interval.end.is_some());
            let Some((oldest, _)) = ended.min_by_key(|(_, interval)| interval.end) else { return };
            bytes -= interval::weight(&self.job_intervals.remove(oldest).job);
            self.has_forgotten_jobs = true;
        }
    }

    /// Takes in what another database knows, which wins where both know something. What that one notes on
    /// single series stays out: it calls them by numbers of its own. So do intervals of jobs, each of which is one
    /// database's. Devices are called by their nodes.
    pub(crate) fn absorb(&mut self, later: Meta) {
        self.job_intervals.clear();
        self.metrics.absorb(later.metrics);
        self.records.absorb(later.records);
        let is_for_all = |annotation: &Annotation| annotation.tsuid.is_none() || inventory::is_device(annotation);
        for annotation in later.annotations.into_iter().filter(is_for_all) {
            self.apply(MetaChange::Annotate(annotation));
        }
        self.job = match (self.job.take(), later.job) {
            // Of one job the head alone says more than its id.
            (Some(known), Some(later)) if is_fuller(&known, &later) => Some(known),
            (known, later) => later.or(known),
        };
    }

    fn find(&self, start: Timestamp, tsuid: Option<&str>) -> std::result::Result<usize, usize> {
        self.annotations.binary_search_by(|known| (known.start, known.tsuid.as_deref()).cmp(&(start, tsuid)))
    }
}

impl MetaChange {
    /// About how many bytes it takes as JSON, and mostly not more.
    pub(crate) fn json_room(&self) -> usize {
        match self {
            // A text that is JSON itself has a quotation mark every few bytes, which takes two.
            Self::Record(record) => JSON_ROOM + record.bytes() * 5 / 4,
            _ => JSON_ROOM,
        }
    }

    /// Whether it may be applied to `meta`.
    ///
    /// # Errors
    /// Invalid when a text is too long, or there is no room for it.
    pub(crate) fn check(&self, meta: &Meta) -> Result<()> {
        match self {
            MetaChange::Metric { name, meta } => {
                for (what, text) in [("metric", &**name), ("unit", &*meta.unit), ("help", &*meta.help)] {
                    check_text(what, text.len(), TEXT_BYTES_MAX)?;
                }
            }
            MetaChange::Annotate(annotation) => {
                check_text("tsuid", annotation.tsuid.as_deref().map_or(0, str::len), TEXT_BYTES_MAX)?;
                check_text("description", annotation.description.len(), TEXT_BYTES_MAX)?;
                check_text("notes", annotation.notes.len(), TEXT_BYTES_MAX)?;
                let custom: usize = annotation.custom.iter().map(|(key, value)| key.len() + value.len()).sum();
                check_text("custom", custom, TEXT_BYTES_MAX)?;
            }
            MetaChange::RemoveAnnotation { tsuid, .. } => {
                check_text("tsuid", tsuid.as_deref().map_or(0, str::len), TEXT_BYTES_MAX)?;
            }
            MetaChange::Job(job) => check_text("job", job.to_string().len(), JOB_BYTES_MAX)?,
            MetaChange::JobInterval(JobInterval { job, .. }) => {
                check_text("job", job.to_string().len(), JOB_BYTES_MAX)?;
            }
            MetaChange::Record(record) => {
                check_text("record", record.bytes(), RECORD_BYTES_MAX)?;
                if record.text.is_some() {
                    check_text("records", meta.records.bytes() + record.bytes(), RECORDS_BYTES_MAX)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether both describe one job, and `one` says more of it.
pub(crate) fn is_fuller(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    let fields = |job: &serde_json::Value| job.as_object().map_or(0, serde_json::Map::len);
    !one["id"].is_null() && one["id"] == other["id"] && fields(one) > fields(other)
}

fn check_text(what: &'static str, found: usize, max: usize) -> Result<()> {
    if found > max { Err(Error::LongText { what, found, max }) } else { Ok(()) }
}

mod micros {
    use super::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        time.micros().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp::from_micros)
    }
}

mod micros_or_none {
    use super::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        time.map(Timestamp::micros).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(Timestamp::from_micros))
    }
}

#[cfg(test)]
mod tests;
