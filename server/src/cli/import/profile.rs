//! Profiles that Metric Proxy v2 left: `JOBID.profile`, each a job with its last values as JSON.
//!
//! Each becomes a record of a run that is over, so that a server over the database lists it among its profiles and makes
//! models of it, and a sample of each counter at the job's end, so that SQL knows it too. The sums of that server leave it
//! out: what ran then was never counted by it.

use std::io::Read;

use telem_engine::{MetaChange, Timestamp, Value};
use telem_ingest::counters::CounterValue;
use telem_ingest::decode::proxy::label::FullName;

use super::Importing;
use super::input::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::store::SeriesRefusal;
use crate::cli::CliFailure;
use crate::protocols::proxy::keeping;
use crate::protocols::proxy::runs::{FinishedRun, JOB_TAG};
use crate::protocols::proxy::shapes::{JobProfile, ProxyMetric};

/// How the files are called.
pub const EXTENSION: &str = "profile";
/// What such a file begins with, but for blanks.
pub const START: &[u8] = b"{\"desc\":";
/// A larger file was not written by Metric Proxy.
const PROFILE_BYTES_MAX: u64 = 1 << 30;
/// Times below are in seconds, as older versions wrote them.
const SECONDS_MAX: u64 = 100_000_000_000;

/// Takes one profile. One that is damaged costs itself only.
///
/// # Errors
/// Failed when the file cannot be opened, or the store fails.
pub fn read(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut text = Vec::new();
    file.text()?.take(PROFILE_BYTES_MAX).read_to_end(&mut text).map_err(|error| file.cannot_read(error))?;
    let place = RowPlace::Record(&file.name, 1);
    let profile: JobProfile = match serde_json::from_slice(&text) {
        Ok(profile) => profile,
        Err(error) => return importing.report.refuse(place, RefusedKind::Record, &error.to_string()),
    };
    let JobProfile { mut desc, counters } = profile;
    for time in [&mut desc.start_time, &mut desc.end_time] {
        if *time < SECONDS_MAX {
            *time *= 1_000;
        }
    }
    let moment = |millis: u64| Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    let begin = moment(desc.start_time);
    let end = moment(desc.end_time).max(begin);
    for counter in &counters {
        sample(importing, file, &desc.jobid, counter, end)?;
    }
    let node = importing.store.default_node();
    let key = format!("{}/{}/{}", node, begin.micros(), desc.jobid).into();
    let run = FinishedRun { key, desc, begin, end, slot: None };
    for record in keeping::imported_records(&run, &counters) {
        importing.store.put_meta(MetaChange::Record(record))?;
    }
    Ok(())
}

/// The last value of one counter.
fn sample(
    importing: &mut Importing,
    file: &ImportFile,
    job: &str,
    counter: &ProxyMetric<'_>,
    end: Timestamp,
) -> Result<(), CliFailure> {
    let value = match counter.ctype.value() {
        CounterValue::Counter(value) => value,
        CounterValue::Gauge(gauge) => gauge.average(),
    };
    let place = RowPlace::Record(&file.name, 1);
    if !value.is_finite() {
        let why = format!("{} has no value", counter.name);
        return importing.report.refuse(place, RefusedKind::Value, &why);
    }
    let FullName { base, labels } = FullName::new(&counter.name);
    let job = job.escape_debug().to_string();
    let mut tags: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, &**value)).collect();
    tags.retain(|(key, _)| *key != JOB_TAG);
    // No tag has an empty value: such a job is none.
    if !job.is_empty() {
        tags.push((JOB_TAG, &job));
    }
    let known = format!("{job}\n{}", counter.name);
    match importing.store.series(known.as_bytes(), None, base, tags) {
        Ok(series) => importing.store.push(series, end, Value::Float(value)),
        Err(SeriesRefusal::Name(why)) => importing.report.refuse(place, RefusedKind::Name, &why),
        Err(SeriesRefusal::Failed(failure)) => Err(failure),
    }
}
