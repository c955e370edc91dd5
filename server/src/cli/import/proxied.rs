//! What Metric Proxy v2 left of jobs becomes, whichever of its files says it: series as a live job's counters have them,
//! an interval of each run, so that SQL names its job, and a record, so that a server over the database lists it among
//! its profiles.
//!
//! A run may have left two files. Its trace has values by time, and its profile the last ones: both together are one run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use telem_engine::limits::count;
use telem_engine::{JOB_INTERVALS_MAX, JobInterval, MetaChange, MetricKind, MetricMeta, Timestamp};
use telem_ingest::counters::naming::SpelledSeries;
use telem_ingest::decode::proxy::CounterKind;

use super::Importing;
use super::report::{RefusedKind, RowPlace};
use super::store::{SeriesPlace, SeriesRefusal};
use crate::cli::CliFailure;
use crate::info::rfc3339;
use crate::protocols::proxy::keeping;
use crate::protocols::proxy::runs::{FinishedRun, ms};
use crate::protocols::proxy::shapes::{JobDesc, ProxyMetric};
use crate::protocols::proxy::tags::imported_tags;
use crate::slots::{JobId, told_end};

/// The runs of an import, and what is known of their metrics.
#[derive(Debug, Default)]
pub struct ProxiedRuns {
    by_job: HashMap<String, Vec<ProxiedRun>>,
    /// Of each job that can have one: by it the series of its samples are told from those of others.
    slots: HashMap<String, Option<JobSlot>>,
    described: HashSet<String>,
}

/// Which file says something of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedFile {
    Trace,
    Profile,
}

/// A job, as SQL names it, and its number.
#[derive(Clone, Debug)]
struct JobSlot {
    job: JobId,
    slot: u32,
}

/// A run that has a record.
#[derive(Clone, Debug)]
struct ProxiedRun {
    file: String,
    kind: ProxiedFile,
    key: Arc<str>,
    desc_start: u64,
    command: String,
    run_dir: String,
    begin: Timestamp,
    end: Timestamp,
    counters: usize,
}

impl ProxiedRuns {
    /// The number of a job; `None` of one whose id names none.
    fn slot(&mut self, id: &str) -> Option<u32> {
        if let Some(known) = self.slots.get(id) {
            return known.as_ref().map(|known| known.slot);
        }
        let number = u32::try_from(self.slots.len()).ok();
        let job = JobId::new(&id.escape_debug().to_string()).ok().flatten();
        let known = number.zip(job).map(|(slot, job)| JobSlot { job, slot });
        let slot = known.as_ref().map(|known| known.slot);
        self.slots.insert(id.to_owned(), known);
        slot
    }

    /// When which job ran, each in turn.
    fn intervals(&self) -> Vec<JobInterval> {
        let mut intervals = Vec::new();
        for (id, runs) in &self.by_job {
            let Some(Some(JobSlot { job, slot })) = self.slots.get(id) else { continue };
            let mut runs: Vec<&ProxiedRun> = runs.iter().collect();
            runs.sort_by_key(|run| run.begin);
            let mut since = None;
            for run in runs {
                intervals.push(run.interval(job, *slot, since));
                let after = Timestamp::from_micros(run.end.micros().saturating_add(1));
                since = since.max(Some(after));
            }
        }
        intervals.sort_by_key(|interval| (interval.begin, interval.slot));
        intervals
    }

    /// The file of another trace of the job that has values of this time.
    pub fn traced_in(&self, job: &str, time: Timestamp) -> Option<&str> {
        let runs = self.by_job.get(job).into_iter().flatten();
        let mut others = runs.filter(|run| run.kind == ProxiedFile::Trace && run.begin <= time && time <= run.end);
        others.next().map(|run| &*run.file)
    }
}

impl ProxiedRun {
    fn interval(&self, job: &JobId, slot: u32, since: Option<Timestamp>) -> JobInterval {
        let mut description = json!({ "id": job.to_string(), "start": rfc3339(self.begin) });
        for (name, value) in [("command", json!([self.command])), ("cwd", json!(self.run_dir))] {
            if value != json!([""]) && value != json!("") {
                description[name] = value;
            }
        }
        told_end(&mut description, self.end);
        JobInterval { slot, since, begin: self.begin, end: Some(self.end), job: Arc::new(description) }
    }
}

/// Milliseconds since 1970.
///
/// # Errors
/// A sentence for the user, where no sample can have such a time.
pub fn moment(millis: u64) -> Result<Timestamp, String> {
    let moment = Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    match moment < Timestamp::MAX {
        true => Ok(moment),
        false => Err(format!("{millis} is no time that can be kept; expected milliseconds since 1970")),
    }
}

/// The series of a job's counter; `None` where it is not wanted, or refused, which is told then.
///
/// # Errors
/// Failed when the store fails, or nothing may be refused.
pub fn series(
    importing: &mut Importing,
    place: RowPlace<'_>,
    job: &str,
    counter: &ProxyMetric<'_>,
) -> Result<Option<SeriesPlace>, CliFailure> {
    let slot = importing.proxied.slot(job);
    let tags = imported_tags(importing.store.default_node(), job, slot);
    let mut spelled = SpelledSeries::new(importing.store.snapshot()?);
    let key = match spelled.key(&Arc::from(&*counter.name), &tags) {
        Ok(key) => key,
        Err(error) => {
            importing.report.refuse(place, RefusedKind::Name, &error.to_string())?;
            return Ok(None);
        }
    };
    let globs = &importing.rules.metrics;
    if !globs.is_empty() && !globs.iter().any(|glob| glob.matches(key.metric()) || glob.matches(&counter.name)) {
        return Ok(None);
    }
    let known = format!("{job}\n{}", counter.name);
    let series = match importing.store.series_of(known.as_bytes(), None, &key) {
        Ok(series) => series,
        Err(SeriesRefusal::Name(why)) => {
            importing.report.refuse(place, RefusedKind::Name, &why)?;
            return Ok(None);
        }
        Err(SeriesRefusal::Failed(failure)) => return Err(failure),
    };
    // Whose it is, where its own metric and tags do not say so.
    for record in spelled.records() {
        importing.store.put_meta(MetaChange::Record(record))?;
    }
    // The first that says something of a metric counts.
    if !importing.proxied.described.contains(key.metric()) {
        importing.proxied.described.insert(key.metric().to_owned());
        let kind = match counter.ctype.value().kind() {
            CounterKind::Counter => MetricKind::Counter,
            CounterKind::Gauge => MetricKind::Gauge,
        };
        let meta = MetricMeta { kind, unit: String::new(), help: counter.doc.clone().into_owned() };
        importing.store.put_meta(MetaChange::Metric { name: Arc::clone(key.metric_shared()), meta })?;
    }
    Ok(Some(series))
}

/// Keeps the record of a run with its last values. What its trace said before, its profile completes; of another run of
/// the job the user is told.
///
/// # Errors
/// Failed when the store fails.
pub fn keep(
    importing: &mut Importing,
    (file, kind): (&str, ProxiedFile),
    mut desc: JobDesc,
    (mut begin, mut end): (Timestamp, Timestamp),
    counters: &[ProxyMetric<'_>],
) -> Result<(), CliFailure> {
    let node = importing.store.default_node().to_owned();
    let slot = importing.proxied.slot(&desc.jobid);
    let mut key: Arc<str> = format!("{node}/{}/{}", begin.micros(), desc.jobid).into();
    let runs = importing.proxied.by_job.entry(desc.jobid.clone()).or_default();
    let is_same = |run: &&mut ProxiedRun| {
        let meets = run.begin <= end && begin <= run.end;
        run.key == key || kind == ProxiedFile::Profile && run.kind == ProxiedFile::Trace && meets
    };
    let mut counters_before = 0;
    let mut told = None;
    let shown = desc.jobid.escape_debug().to_string();
    if let Some(known) = runs.iter_mut().find(is_same) {
        if known.kind == kind {
            told = Some(format!("{file}: the run of job '{shown}' in {} is this one, and counts no more", known.file));
        }
        // Each of its processes described it, and began a little later.
        (begin, end) = (begin.min(known.begin), end.max(known.end));
        if known.desc_start > 0 && known.desc_start < desc.start_time {
            desc.start_time = known.desc_start;
        }
        desc.end_time = desc.end_time.max(ms(known.end));
        key = Arc::clone(&known.key);
        counters_before = known.counters;
        (known.begin, known.end, known.counters) = (begin, end, counters.len());
    } else {
        if let Some(other) = runs.last() {
            let (from, to) = (rfc3339(other.begin), rfc3339(other.end));
            told = Some(format!("{file}: another run of job '{shown}', from {from} to {to}, is in {}", other.file));
        }
        let (file, key, desc_start) = (file.to_owned(), Arc::clone(&key), desc.start_time);
        let (command, run_dir, counters) = (desc.command.clone(), desc.run_dir.clone(), counters.len());
        runs.push(ProxiedRun { file, kind, key, desc_start, command, run_dir, begin, end, counters });
    }
    if let Some(told) = told {
        importing.report.say(&told);
    }
    let run = FinishedRun { key, desc, begin, end, slot, is_imported: true, is_servers_own: false };
    for record in keeping::imported_records(&run, counters, counters_before) {
        importing.store.put_meta(MetaChange::Record(record))?;
    }
    Ok(())
}

/// Keeps when which job ran, once all of them are known.
///
/// # Errors
/// Failed when the store fails.
pub fn finish(importing: &mut Importing) -> Result<(), CliFailure> {
    let intervals = importing.proxied.intervals();
    let surplus = intervals.len().saturating_sub(JOB_INTERVALS_MAX);
    if surplus > 0 {
        let [surplus, most] = [surplus, JOB_INTERVALS_MAX].map(count);
        importing.report.say(&format!(
            "SQL names the jobs of {most} runs; those of the {surplus} that ended first are not known there"
        ));
    }
    for interval in intervals {
        importing.store.put_meta(MetaChange::JobInterval(interval))?;
    }
    Ok(())
}
