//! Traces that Metric Proxy v2 left: `JOBID.trace`, each a job with everything that had data, period by period.
//!
//! Its counters and gauges become the series that a job under telem has, with a sample where a value changed, and the job
//! a record of a run, whose last values are its profile; where the [`profile`](super::profile) of the run is imported as
//! well, that is its profile. A file that was cut off counts up to its last whole frame. [`frames`] knows the bytes.

pub mod frames;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use telem_engine::limits::count;
use telem_engine::{Timestamp, Value};
use telem_ingest::counters::CounterValue;
use telem_ingest::decode::proxy::{COUNTER_DOC_BYTES_MAX, COUNTER_NAME_BYTES_MAX};

use self::frames::{FrameFound, FrameValues, TRACE_FRAME_BYTES_MAX, TraceFrame, TraceFrames};
use super::Importing;
use super::file::ImportFile;
use super::proxied::{self, ProxiedFile};
use super::report::{RefusedKind, RowPlace};
use super::store::SeriesPlace;
use crate::cli::CliFailure;
use crate::info::rfc3339;
use crate::protocols::proxy::runs::ms;
use crate::protocols::proxy::shapes::{JobDesc, MetricValue, ProxyMetric};
use crate::protocols::proxy::tags::is_sum;
use crate::slots::JOB_ID_BYTES_MAX;

/// How the files are called.
pub const EXTENSION: &str = "trace";
/// Most counters of one trace.
pub const TRACE_COUNTERS_MAX: usize = 1_000_000;
/// Most bytes of their names and documentation.
pub const TRACE_TEXTS_BYTES_MAX: usize = 64 << 20;

/// Takes one trace, up to what is damaged.
///
/// # Errors
/// Failed when the file cannot be read, or the store fails.
pub fn read(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut frames = TraceFrames::new(file.text()?);
    let mut traced: Option<TracedJob> = None;
    let mut number = 0_u64;
    loop {
        number += 1;
        let place = RowPlace::Record(&file.name, number);
        let refuse = |importing: &mut Importing, why: &str| importing.report.refuse(place, RefusedKind::Record, why);
        let (at, bytes) = match frames.read().map_err(|error| file.cannot_read(error))? {
            FrameFound::Frame { at, bytes } => (at, bytes),
            FrameFound::End => break,
            FrameFound::CutOff { at, expected, found } => {
                let [at, expected, found, whole] = [at, expected, found, number - 1].map(count);
                let why = format!(
                    "the file is cut off in the frame at byte {at}: expected {expected} bytes, found {found}; the \
                     {whole} frames before it count"
                );
                refuse(importing, &why)?;
                break;
            }
            FrameFound::TooLong { at, length } => {
                let [at, most, length] = [at, TRACE_FRAME_BYTES_MAX, length].map(count);
                let why = format!(
                    "byte {at}: expected the length of a frame, at most {most} bytes, found {length}; the rest of the \
                     file is left out"
                );
                refuse(importing, &why)?;
                break;
            }
        };
        let frame = match TraceFrame::decode(bytes, at) {
            Ok(frame) => frame,
            Err(fault) => {
                refuse(importing, &fault.to_string())?;
                continue;
            }
        };
        let Some(job) = &mut traced else {
            let TraceFrame::Desc { time, desc } = frame else {
                return refuse(importing, "the first frame of a trace describes its job, and this one does not");
            };
            if is_sum(&desc.jobid) {
                // No damage: every server has them.
                let id = desc.jobid.escape_debug();
                importing.report.describe(&format!("{}: left out: '{id}' is no job, but a sum over jobs", file.name));
                return Ok(());
            }
            match TracedJob::begin(desc, time) {
                Ok(job) => traced = Some(job),
                Err(why) => return refuse(importing, &why),
            }
            continue;
        };
        match frame {
            TraceFrame::Desc { desc, .. } if desc.jobid == job.desc.jobid => {}
            TraceFrame::Desc { desc, .. } => {
                let id = desc.jobid.escape_debug();
                let why = format!("job '{id}' is described in the trace of another; the rest of the file is left out");
                refuse(importing, &why)?;
                break;
            }
            TraceFrame::Named { id, name, doc } => job.name(importing, place, id, name, doc)?,
            TraceFrame::Values { time, values } => {
                if let Some(other) = importing.proxied.traced_in(&job.desc.jobid, time) {
                    let why = format!(
                        "{other} has values of job '{}' at {} already; the rest of the file is left out: import traces \
                         of several nodes one by one, each with a --node and a --save of its own",
                        job.desc.jobid.escape_debug(),
                        rfc3339(time)
                    );
                    refuse(importing, &why)?;
                    break;
                }
                job.values(importing, place, time, values)?;
                importing.store.check_stop()?;
            }
        }
        importing.report.at(frames.at(), importing.store.accepted());
    }
    match traced {
        Some(job) => job.end(importing, file),
        None => Ok(()),
    }
}

/// A job whose trace is read.
#[derive(Debug)]
struct TracedJob {
    desc: JobDesc,
    begin: Timestamp,
    end: Timestamp,
    /// By the numbers that stand for them; `None` of those that are refused, which was told.
    counters: HashMap<u64, Option<TracedCounter>>,
    /// Of names and documentation.
    text_bytes: usize,
    /// Frames with values.
    periods: u64,
}

/// A counter or gauge of a job.
#[derive(Debug)]
struct TracedCounter {
    name: String,
    doc: String,
    /// What it was last, and where its samples are: nowhere if they are not wanted.
    last: Option<(CounterValue, Option<SeriesPlace>)>,
    /// A value of it was refused.
    is_told: bool,
}

impl TracedJob {
    /// # Errors
    /// Why that is no job.
    fn begin(mut desc: JobDesc, time: Timestamp) -> Result<Self, String> {
        let bytes = desc.jobid.escape_debug().to_string().len();
        if bytes > JOB_ID_BYTES_MAX {
            let [most, found] = [JOB_ID_BYTES_MAX, bytes].map(count);
            return Err(format!("the id of the job has {found} bytes; expected at most {most}"));
        }
        desc.settle_times();
        if desc.start_time == 0 {
            desc.start_time = ms(time);
        }
        // The clock of a client may be wrong, and no sample lies before its run.
        let begin = proxied::moment(desc.start_time).map_or(time, |begin| begin.min(time));
        Ok(Self { desc, begin, end: time, counters: HashMap::new(), text_bytes: 0, periods: 0 })
    }

    /// Learns what a number stands for.
    fn name(
        &mut self,
        importing: &mut Importing,
        place: RowPlace<'_>,
        id: u64,
        name: &str,
        doc: &str,
    ) -> Result<(), CliFailure> {
        let why = match self.counters.get(&id) {
            Some(Some(known)) if known.name != name => {
                let [known, name] = [&*known.name, name].map(str::escape_debug);
                format!("counter {} is '{known}' already, and now '{name}'", count(id))
            }
            Some(_) => return Ok(()),
            None => {
                let texts = self.text_bytes + name.len() + doc.len();
                match refusal(id, name, doc, self.counters.len(), texts) {
                    Some(why) => {
                        self.refuse(id);
                        why
                    }
                    None => {
                        self.text_bytes = texts;
                        let (name, doc) = (name.to_owned(), doc.to_owned());
                        self.counters.insert(id, Some(TracedCounter { name, doc, last: None, is_told: false }));
                        return Ok(());
                    }
                }
            }
        };
        importing.report.refuse(place, RefusedKind::Name, &why)
    }

    /// Values of a counter are left out silently from here on.
    fn refuse(&mut self, id: u64) {
        if self.counters.len() < TRACE_COUNTERS_MAX {
            self.counters.insert(id, None);
        }
    }

    /// Takes what stands at one time.
    fn values(
        &mut self,
        importing: &mut Importing,
        place: RowPlace<'_>,
        time: Timestamp,
        values: FrameValues<'_>,
    ) -> Result<(), CliFailure> {
        (self.begin, self.end) = (self.begin.min(time), self.end.max(time));
        self.periods += 1;
        for (id, value) in values {
            match self.counters.get_mut(&id) {
                Some(Some(counter)) => counter.take(importing, place, &self.desc.jobid, time, value)?,
                Some(None) => {}
                None => {
                    self.refuse(id);
                    let why = format!("counter {} has a value, and no frame before it names it", count(id));
                    importing.report.refuse(place, RefusedKind::Name, &why)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps the record of the run.
    fn end(self, importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
        let Self { mut desc, begin, end, counters, periods, .. } = self;
        if periods == 0 && importing.proxied.traced_in(&desc.jobid, end).is_some() {
            return Ok(());
        }
        let valued = counters.into_iter().filter_map(|(id, counter)| {
            let TracedCounter { name, doc, last, .. } = counter?;
            let ctype = MetricValue::of(last?.0, 0);
            Some((id, ProxyMetric { name: name.into(), doc: doc.into(), ctype }))
        });
        let mut valued: Vec<(u64, ProxyMetric<'_>)> = valued.collect();
        valued.sort_unstable_by_key(|(id, _)| *id);
        let valued: Vec<ProxyMetric<'_>> = valued.into_iter().map(|(_, counter)| counter).collect();
        importing.report.describe(&format!(
            "{}: job '{}', {} to {}, {} counters, {} periods",
            file.name,
            desc.jobid.escape_debug(),
            rfc3339(begin),
            rfc3339(end),
            count(valued.len()),
            count(periods)
        ));
        desc.end_time = desc.end_time.max(ms(end));
        proxied::keep(importing, (&file.name, ProxiedFile::Trace), desc, (begin, end), &valued)
    }
}

/// Why a counter is not taken, which would be one beside `known` others whose texts have `texts` bytes then.
fn refusal(id: u64, name: &str, doc: &str, known: usize, texts: usize) -> Option<String> {
    let found = |what: &str, bytes: usize, most: usize| {
        Some(format!("{what} of counter {} has {} bytes; expected at most {}", count(id), count(bytes), count(most)))
    };
    if name.len() > COUNTER_NAME_BYTES_MAX {
        found("the name", name.len(), COUNTER_NAME_BYTES_MAX)
    } else if doc.len() > COUNTER_DOC_BYTES_MAX {
        found("the documentation", doc.len(), COUNTER_DOC_BYTES_MAX)
    } else if known >= TRACE_COUNTERS_MAX {
        Some(format!("counter {} is one too many; a trace has at most {}", count(id), count(TRACE_COUNTERS_MAX)))
    } else if texts > TRACE_TEXTS_BYTES_MAX {
        let most = count(TRACE_TEXTS_BYTES_MAX);
        Some(format!("counter {} is one too many; names and documentation have at most {most} bytes", count(id)))
    } else {
        None
    }
}

impl TracedCounter {
    /// Takes a value, which is a sample where the number is another than before.
    fn take(
        &mut self,
        importing: &mut Importing,
        place: RowPlace<'_>,
        job: &str,
        time: Timestamp,
        value: CounterValue,
    ) -> Result<(), CliFailure> {
        let number = number_of(value);
        let why = match self.last {
            _ if !number.is_finite() => Some(format!("{} has no value", self.name.escape_debug())),
            Some((last, _)) if last.kind() != value.kind() => {
                let (name, known, found) = (self.name.escape_debug(), last.kind().name(), value.kind().name());
                Some(format!("{name} is a {known}, and now a {found}"))
            }
            _ => None,
        };
        if let Some(why) = why {
            // It may be so in every period.
            return match std::mem::replace(&mut self.is_told, true) {
                true => Ok(()),
                false => importing.report.refuse(place, RefusedKind::Value, &why),
            };
        }
        let (is_new, series) = match self.last {
            Some((last, series)) => (number_of(last) != number, series),
            None => {
                let (name, doc) = ((&*self.name).into(), (&*self.doc).into());
                let counter = ProxyMetric { name, doc, ctype: MetricValue::of(value, 0) };
                (true, proxied::series(importing, place, job, &counter)?)
            }
        };
        self.last = Some((value, series));
        match series {
            Some(series) if is_new => importing.store.push(series, time, Value::Float(number)),
            _ => Ok(()),
        }
    }
}

fn number_of(value: CounterValue) -> f64 {
    match value {
        CounterValue::Counter(number) => number,
        CounterValue::Gauge(gauge) => gauge.average(),
    }
}
