//! Turns `put` lines of OpenTSDB's telnet into a batch. Good lines are kept; each bad line is reported.
//!
//! The line of a known series is not taken apart: its metric and its tags, as raw bytes, lead to the id, see
//! [`crate::known`], and only time and value are read. All other lines go through [`telnet::put`], as does every one in
//! which anything is unusual.

#[cfg(test)]
mod tests;

use telem_engine::{Db, SampleBatch, Timestamp, Value};

use super::points::PointSeries;
use super::{AcceptCounters, Accepted, Judge, Limits, Reason, check_time};
use crate::decode::opentsdb::telnet::{self, PutError, PutTimes, TelnetRules};
use crate::decode::words::starts_with;
use crate::known::{At, Keys};

/// What became of lines.
#[derive(Debug, Default)]
pub struct AcceptedPuts {
    pub accepted: Accepted,
    /// Those that are no samples, by the caller's numbers.
    pub refused: Vec<(usize, PutError)>,
}

/// Sorts the samples of `lines`, which come with the caller's numbers, into a batch and rejects. New series get their
/// ids, and the tags of [`Keys::tags`] that they lack.
pub fn accept<'a>(
    db: &Db,
    now: Timestamp,
    limits: &Limits,
    counters: &AcceptCounters,
    keys: &mut Keys<PointSeries>,
    rules: &TelnetRules,
    lines: impl IntoIterator<Item = (usize, &'a str)>,
) -> AcceptedPuts {
    let lines = lines.into_iter();
    let tags = keys.tags().clone();
    let mut sorter = PutSorter {
        judge: Judge { db, now, limits, tags: &tags },
        rules,
        keys,
        times: PutTimes::default(),
        raw_key: Vec::new(),
    };
    let expected = lines.size_hint().0.min(limits.batch_samples_max);
    let mut puts = AcceptedPuts::default();
    puts.accepted.batch = SampleBatch::with_capacity(expected);
    for (index, line) in lines {
        let batch = &mut puts.accepted.batch;
        let judged = match sorter.known(line) {
            Some((series, time, value)) => sorter.take(batch, series, time, value),
            None => match sorter.parse(batch, line) {
                Ok(judged) => judged,
                Err(error) => {
                    puts.refused.push((index, error));
                    continue;
                }
            },
        };
        if let Err(reason) = judged {
            puts.accepted.reject(index, reason);
        }
    }
    counters.count(puts.accepted.batch.len(), puts.accepted.rejected);
    puts
}

struct PutSorter<'a, 'k> {
    judge: Judge<'k>,
    rules: &'k TelnetRules,
    keys: &'k mut Keys<PointSeries>,
    times: PutTimes<'a>,
    /// Of the line that was not known, if it is to be remembered: its metric, and its tags with the blank before them.
    raw_key: Vec<u8>,
}

impl<'a> PutSorter<'a, '_> {
    /// The series of a line that is known by its bytes, its time and its value.
    fn known(&mut self, line: &'a str) -> Option<(PointSeries, Timestamp, Value)> {
        self.raw_key.clear();
        let rest = line.as_bytes().strip_prefix(b"put ")?;
        let foreseen = self.foreseen(rest);
        let metric_len = match foreseen {
            Some((_, metric_len)) => metric_len,
            None => rest.iter().position(|byte| *byte == b' ')?,
        };
        let (metric, rest) = rest.split_at(metric_len);
        let (time, value, tags) = self.times.time_and_value(rest.get(1..)?)?;
        let at = match foreseen {
            Some((at, _)) if self.keys.key(at).is_some_and(|key| key[metric_len..] == *tags) => at,
            _ => {
                self.raw_key.extend_from_slice(metric);
                self.raw_key.extend_from_slice(tags);
                self.keys.find(&self.raw_key)?
            }
        };
        let series = *self.keys.meaning(at)?;
        let tags_max = self.rules.tags_max.min(self.judge.limits.tags_max);
        // The bytes of a point could be those of a line that has its first blank elsewhere.
        if series.metric_len != metric_len || series.tags > tags_max {
            return None;
        }
        self.keys.follow(at);
        Some((series, time, value))
    }

    /// The key that should come now and the length of its metric, if that comes indeed.
    fn foreseen(&self, rest: &[u8]) -> Option<(At, usize)> {
        let (at, key) = self.keys.foreseen()?;
        let metric_len = self.keys.meaning(at)?.metric_len;
        let with_blank = key.get(..=metric_len).filter(|key| key.ends_with(b" "))?;
        starts_with(rest, with_blank).then_some((at, metric_len))
    }

    /// The checks are those of any sample.
    fn take(&self, batch: &mut SampleBatch, series: PointSeries, time: Timestamp, value: Value) -> Result<(), Reason> {
        let Limits { batch_samples_max: max, .. } = *self.judge.limits;
        if batch.len() >= max {
            return Err(Reason::BatchFull { max });
        }
        check_time(time, self.judge.now, self.judge.limits)?;
        batch.push(series.series, time, value);
        Ok(())
    }

    /// # Errors
    /// What is wrong with the line; the inner one is why its sample is not taken.
    fn parse(&mut self, batch: &mut SampleBatch, line: &str) -> Result<Result<(), Reason>, PutError> {
        let sample = telnet::put(line, self.rules)?;
        let series = match self.judge.series(batch, &sample, None) {
            Ok(series) => series,
            Err(reason) => return Ok(Err(reason)),
        };
        batch.push(series, sample.time, sample.value);
        if !self.raw_key.is_empty() {
            let known = PointSeries { metric_len: sample.metric.len(), tags: sample.tags.len(), series };
            if let Some(at) = self.keys.insert(&self.raw_key, known) {
                self.keys.follow(at);
            }
        }
        Ok(Ok(()))
    }
}
