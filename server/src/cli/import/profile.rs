//! Profiles that Metric Proxy v2 left: `JOBID.profile`, each a job with its last values as JSON.
//!
//! Each becomes a record of a run that is over, so that a server over the database lists it among its profiles and makes
//! models of it, and a sample of each counter at the job's end, so that SQL knows it too. The sums of that server leave it
//! out: what ran then was never counted by it.

use std::io::Read;

use telem_engine::{Timestamp, Value};
use telem_ingest::counters::CounterValue;

use super::Importing;
use super::file::ImportFile;
use super::proxied::{self, ProxiedFile};
use super::report::{RefusedKind, RowPlace};
use crate::cli::CliFailure;
use crate::protocols::proxy::shapes::{JobProfile, ProxyMetric};

/// How the files are called.
pub const EXTENSION: &str = "profile";
/// What such a file begins with, but for blanks.
pub const START: &[u8] = b"{\"desc\":";
/// A larger file was not written by Metric Proxy.
const PROFILE_BYTES_MAX: u64 = 1 << 30;

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
    desc.settle_times();
    let (begin, end) = match (proxied::moment(desc.start_time), proxied::moment(desc.end_time)) {
        (Ok(begin), Ok(end)) => (begin, end.max(begin)),
        (Err(why), _) | (_, Err(why)) => return importing.report.refuse(place, RefusedKind::Record, &why),
    };
    for counter in &counters {
        sample(importing, place, &desc.jobid, counter, end)?;
    }
    proxied::keep(importing, (&file.name, ProxiedFile::Profile), desc, (begin, end), &counters)
}

/// The last value of one counter.
fn sample(
    importing: &mut Importing,
    place: RowPlace<'_>,
    job: &str,
    counter: &ProxyMetric<'_>,
    end: Timestamp,
) -> Result<(), CliFailure> {
    let value = match counter.ctype.value() {
        CounterValue::Counter(value) => value,
        CounterValue::Gauge(gauge) => gauge.average(),
    };
    if !value.is_finite() {
        let why = format!("{} has no value", counter.name);
        return importing.report.refuse(place, RefusedKind::Value, &why);
    }
    match proxied::series(importing, place, job, counter)? {
        Some(series) => importing.store.push(series, end, Value::Float(value)),
        None => Ok(()),
    }
}
