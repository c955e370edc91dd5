//! Limits and validation: good samples go on, and each bad one is returned with its reason.
//!
//! A request is never accepted or rejected as a whole, and nothing is dropped silently: a sample that does not reach
//! the [`SampleBatch`] is among the rejects, and both are counted. The engine checks names. This module checks what
//! only the way in can know: the clock, and how much one request may contain.

pub mod frames;
pub mod lines;
mod memory;
pub mod points;
pub mod puts;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use telem_engine::{Db, ErrorKind, SampleBatch, SeriesId, SeriesKey, Timestamp};

pub use self::memory::DecoderMemory;
use crate::decode::Incoming;
use crate::default_tags::DefaultTags;

/// What one request may bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How far ahead of the clock a sample may lie. Further ahead it would stay the newest of its
    /// series for as long as the clocks differ. 1 h by default.
    pub ahead_max: Duration,
    /// How old a sample may be: what the database would drop at once is not taken. Any age by default.
    pub age_max: Option<Duration>,
    /// Most samples in one batch; the rest of it is rejected. A million by default.
    pub batch_samples_max: usize,
    /// Most tags on a sample; the engine takes no more than [`telem_engine::series::TAGS_MAX`],
    /// which is the default.
    pub tags_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ahead_max: Duration::from_secs(3_600),
            age_max: None,
            batch_samples_max: 1_000_000,
            tags_max: telem_engine::series::TAGS_MAX,
        }
    }
}

/// Most rejects of one request that are reported with their reasons; the others are counted.
pub const REJECTS_TOLD_MAX: usize = 10_000;

/// Why a sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error(
        "timestamp {} ms is {:.1} s ahead of this machine's clock; at most {} s are allowed: compare the clocks",
        time.millis(), ahead.as_secs_f64(), max.as_secs()
    )]
    Ahead { time: Timestamp, ahead: Duration, max: Duration },
    #[error(
        "timestamp {} ms is {:.1} s old, and this database keeps samples for {:.1} s (its retention by age)",
        time.millis(), age.as_secs_f64(), max.as_secs_f64()
    )]
    TooOld { time: Timestamp, age: Duration, max: Duration },
    #[error("timestamp {0} is the end of time: no sample may have it")]
    EndOfTime(Timestamp),
    #[error("{found} tags; at most {max} are allowed")]
    TooManyTags { found: usize, max: usize },
    #[error("the request holds more than {max} samples; send the rest in another")]
    BatchFull { max: usize },
    /// A name that breaks its rule, or a database full of series.
    #[error(transparent)]
    Engine(#[from] telem_engine::Error),
}

impl Reason {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Reason::Engine(error) => error.kind(),
            _ => ErrorKind::Invalid,
        }
    }
}

/// A sample that was not taken.
#[derive(Debug)]
pub struct Reject {
    /// The caller's number of the sample.
    pub index: usize,
    pub reason: Reason,
}

/// What became of a request's samples.
#[derive(Debug, Default)]
pub struct Accepted {
    pub batch: SampleBatch,
    /// The first [`REJECTS_TOLD_MAX`], in the order of the samples.
    pub rejects: Vec<Reject>,
    /// The number of rejected samples, reported or not.
    pub rejected: usize,
}

impl Accepted {
    fn reject(&mut self, index: usize, reason: Reason) {
        self.rejected += 1;
        if self.rejects.len() < REJECTS_TOLD_MAX {
            self.rejects.push(Reject { index, reason });
        }
    }
}

/// Samples since the start, by what became of them.
#[derive(Debug, Default)]
pub struct AcceptCounters {
    accepted: AtomicU64,
    rejected: AtomicU64,
}

impl AcceptCounters {
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, accepted: usize, rejected: usize) {
        self.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
        self.rejected.fetch_add(rejected as u64, Ordering::Relaxed);
    }
}

/// Sorts samples into a batch and rejects, giving new series their ids. `samples` come with the
/// caller's number and get `tags` where they lack them; `now` is the wall clock.
pub fn accept<'a>(
    db: &Db,
    now: Timestamp,
    limits: &Limits,
    counters: &AcceptCounters,
    tags: &DefaultTags,
    samples: impl IntoIterator<Item = (usize, Incoming<'a>)>,
) -> Accepted {
    let samples = samples.into_iter();
    let judge = Judge { db, now, limits, tags };
    let expected = samples.size_hint().0.min(limits.batch_samples_max);
    let mut accepted = Accepted { batch: SampleBatch::with_capacity(expected), ..Accepted::default() };
    let mut last: Option<(Incoming<'a>, SeriesId)> = None;
    for (index, sample) in samples {
        match judge.series(&accepted.batch, &sample, last.as_ref()) {
            Ok(series) => {
                accepted.batch.push(series, sample.time, sample.value);
                last = Some((sample, series));
            }
            Err(reason) => accepted.reject(index, reason),
        }
    }
    counters.count(accepted.batch.len(), accepted.rejected);
    accepted
}

/// By what samples are judged.
struct Judge<'j> {
    db: &'j Db,
    now: Timestamp,
    limits: &'j Limits,
    tags: &'j DefaultTags,
}

impl Judge<'_> {
    /// The series of a good sample. `last` is the sample before it: those of one series often come in a row.
    fn series(
        &self,
        batch: &SampleBatch,
        sample: &Incoming<'_>,
        last: Option<&(Incoming<'_>, SeriesId)>,
    ) -> Result<SeriesId, Reason> {
        let limits = self.limits;
        if batch.len() >= limits.batch_samples_max {
            return Err(Reason::BatchFull { max: limits.batch_samples_max });
        }
        check_time(sample.time, self.now, limits)?;
        if sample.tags.len() > limits.tags_max {
            return Err(Reason::TooManyTags { found: sample.tags.len(), max: limits.tags_max });
        }
        if let Some((before, series)) = last
            && before.metric == sample.metric
            && before.tags == sample.tags
        {
            return Ok(*series);
        }
        let tags = self.tags.complete(&sample.tags, limits.tags_max)?;
        Ok(self.db.series(&SeriesKey::new(&sample.metric, tags)?)?)
    }
}

fn check_time(time: Timestamp, now: Timestamp, limits: &Limits) -> Result<(), Reason> {
    if time == Timestamp::MAX {
        return Err(Reason::EndOfTime(time));
    }
    let apart = |later: Timestamp, earlier: Timestamp| {
        Duration::from_micros(u64::try_from(later.micros().saturating_sub(earlier.micros())).unwrap_or(0))
    };
    if time > now {
        let ahead = apart(time, now);
        if ahead > limits.ahead_max {
            return Err(Reason::Ahead { time, ahead, max: limits.ahead_max });
        }
    }
    if let Some(max) = limits.age_max
        && apart(now, time) > max
    {
        return Err(Reason::TooOld { time, age: apart(now, time), max });
    }
    Ok(())
}
