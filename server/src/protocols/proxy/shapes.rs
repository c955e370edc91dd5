//! The shapes of Metric Proxy's answers: jobs, counters, gauges.

use std::borrow::Cow;
use std::io::Write;

use serde::{Deserialize, Serialize};
use telem_ingest::counters::{CounterReading, CounterValue, GaugeValue};
use telem_ingest::decode::proxy::{DescribedJob, in_milliseconds};

/// A job, by its fields in the API. Times are milliseconds since 1970, 0 where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobDesc {
    pub jobid: String,
    pub command: String,
    pub size: i32,
    pub nodelist: String,
    pub partition: String,
    pub cluster: String,
    pub run_dir: String,
    pub start_time: u64,
    pub end_time: u64,
}

impl From<DescribedJob> for JobDesc {
    fn from(told: DescribedJob) -> Self {
        let DescribedJob { jobid, command, size, nodelist, partition, cluster, run_dir, start_time, end_time } = told;
        Self { jobid, command, size, nodelist, partition, cluster, run_dir, start_time, end_time }
    }
}

impl JobDesc {
    /// Has its times in milliseconds, where a client or an older version said them in seconds.
    pub fn settle_times(&mut self) {
        for time in [&mut self.start_time, &mut self.end_time] {
            *time = in_milliseconds(*time);
        }
    }
}

/// About what a counter takes as JSON, besides its name and documentation.
const METRIC_BYTES: usize = 96;
/// The counter that the duration of a run becomes in its profile.
pub const WALLTIME: &str = "walltime";
pub const WALLTIME_DOC: &str = "Duration of the application";

/// A number that JSON can write: 0 in the place of NaN and of infinities.
pub fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// A counter or gauge, by its fields in the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyMetric<'a> {
    pub name: Cow<'a, str>,
    pub doc: Cow<'a, str>,
    pub ctype: MetricValue,
}

/// Its value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum MetricValue {
    Counter { ts: u64, value: f64 },
    Gauge { min: f64, max: f64, hits: f64, total: f64 },
}

impl MetricValue {
    /// With zeros in place of numbers that JSON cannot write, and which parents could not read.
    pub fn of(value: CounterValue, ts: u64) -> Self {
        match value {
            CounterValue::Counter(value) => Self::Counter { ts, value: if value.is_finite() { value } else { 0.0 } },
            CounterValue::Gauge(GaugeValue { min, max, hits, total })
                if [min, max, hits, total].iter().all(|number| number.is_finite()) =>
            {
                Self::Gauge { min, max, hits, total }
            }
            CounterValue::Gauge(_) => Self::Gauge { min: 0.0, max: 0.0, hits: 0.0, total: 0.0 },
        }
    }

    pub fn value(self) -> CounterValue {
        match self {
            Self::Counter { value, .. } => CounterValue::Counter(value),
            Self::Gauge { min, max, hits, total } => CounterValue::Gauge(GaugeValue { min, max, hits, total }),
        }
    }
}

impl<'a> ProxyMetric<'a> {
    pub fn of(reading: &'a CounterReading, ts: u64) -> Self {
        Self { name: (&*reading.name).into(), doc: (&*reading.doc).into(), ctype: MetricValue::of(reading.value, ts) }
    }

    /// About how many bytes it takes as JSON, and mostly not more.
    pub fn json_room(&self) -> usize {
        self.name.len() + self.doc.len() + METRIC_BYTES
    }

    pub fn reading(self) -> CounterReading {
        CounterReading { name: self.name.into(), doc: self.doc.into(), value: self.ctype.value() }
    }
}

/// A job with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobProfile {
    pub desc: JobDesc,
    pub counters: Vec<ProxyMetric<'static>>,
}

/// Writes readings as an array's elements; `is_first` says whether a comma is to come before them.
pub fn write_metrics(readings: &[CounterReading], ts: u64, is_first: &mut bool, to: &mut Vec<u8>) {
    // In one piece: what grows leaves behind as much as it takes.
    to.reserve(readings.iter().map(|reading| ProxyMetric::of(reading, ts).json_room()).sum());
    for reading in readings {
        if !std::mem::take(is_first) {
            to.push(b',');
        }
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut *to, &ProxyMetric::of(reading, ts));
    }
}

/// Writes the text of a job up to its first counter.
pub fn write_profile_head(desc: &JobDesc, to: &mut Vec<u8>) {
    let _ = write!(to, "{{\"desc\":{},\"counters\":[", serde_json::to_string(desc).unwrap_or_default());
}

/// And what comes behind its last.
pub const PROFILE_TAIL: &[u8] = b"]}";
