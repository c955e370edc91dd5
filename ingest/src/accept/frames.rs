//! The samples of a frame of the client protocol: their series are numbers that a table of the connection explains, so
//! that a sample costs no search.

#[cfg(test)]
mod tests;

use telem_engine::{SampleBatch, SeriesId, Timestamp};

use super::{AcceptCounters, Limits, Reason, check_time};
use crate::decode::frames::{FrameError, RawTimes, SampleBlock, SampleBlocks};

/// What a number of a connection stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberedSeries {
    Stored(SeriesId),
    /// It was not looked up since the sender's tags changed.
    Unresolved,
    /// Its name was refused: so are its samples.
    Refused,
    /// Its level is above that of the job: its samples are neither stored nor refused.
    AboveLevel,
}

/// The series that a connection has named, by their numbers.
pub trait SeriesTable {
    /// `None` for a number that was not named.
    fn find(&mut self, number: u32) -> Option<NumberedSeries>;
}

/// Samples of one series that were refused for one reason.
#[derive(Debug)]
pub struct FrameReject {
    pub series: u32,
    pub samples: u64,
    pub reason: Reason,
}

/// Most [`FrameReject`]s of a frame; what else is refused is counted with the last of them.
pub const FRAME_REJECTS_MAX: usize = 1_000;

/// What became of the samples of a frame.
#[derive(Debug, Default)]
pub struct AcceptedFrame {
    pub batch: SampleBatch,
    /// Samples that are refused, those of series that are refused among them.
    pub refused: u64,
    /// Those whose reason the sender does not know yet.
    pub rejects: Vec<FrameReject>,
}

/// Why a frame of samples ends its connection: nothing of it is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error(transparent)]
    Shape(#[from] FrameError),
    #[error("series {number} has samples and no name; name it before, in a frame of type 1")]
    Unnamed { number: u32 },
}

/// Sorts the samples of a frame into a batch and rejects; `now` is the wall clock.
///
/// # Errors
/// [`BadFrame`].
pub fn accept(
    now: Timestamp,
    limits: &Limits,
    counters: &AcceptCounters,
    table: &mut impl SeriesTable,
    blocks: SampleBlocks<'_>,
) -> Result<AcceptedFrame, BadFrame> {
    // Columns have 16 bytes a sample, rows 12.
    let expected = blocks.samples_max().min(limits.batch_samples_max) * 3 / 4;
    let batch = SampleBatch::with_capacity(expected);
    let mut accepting = Accepting { now, limits, accepted: AcceptedFrame { batch, ..AcceptedFrame::default() } };
    for block in blocks {
        match block? {
            SampleBlock::Column { series, times, values } => {
                let found = table.find(series).ok_or(BadFrame::Unnamed { number: series })?;
                let samples = values.len() as u64;
                match found {
                    NumberedSeries::Stored(id) if accepting.are_good(times) => {
                        accepting.accepted.batch.extend_column(id, times.iter(), values.iter());
                    }
                    NumberedSeries::Stored(id) => {
                        for (time, value) in times.iter().zip(values.iter()) {
                            match check_time(time, now, limits) {
                                Ok(()) => accepting.accepted.batch.push(id, time, value),
                                Err(reason) => accepting.reject(series, reason),
                            }
                        }
                    }
                    NumberedSeries::Refused | NumberedSeries::Unresolved => accepting.accepted.refused += samples,
                    NumberedSeries::AboveLevel => {}
                }
            }
            SampleBlock::Row { time, series, values } => {
                let is_good = check_time(time, now, limits).is_ok();
                for (number, value) in series.iter().zip(values.iter()) {
                    match table.find(number).ok_or(BadFrame::Unnamed { number })? {
                        NumberedSeries::Stored(id) if is_good => accepting.accepted.batch.push(id, time, value),
                        NumberedSeries::Stored(_) => {
                            if let Err(reason) = check_time(time, now, limits) {
                                accepting.reject(number, reason);
                            }
                        }
                        NumberedSeries::Refused | NumberedSeries::Unresolved => accepting.accepted.refused += 1,
                        NumberedSeries::AboveLevel => {}
                    }
                }
            }
        }
    }
    let accepted = accepting.accepted;
    counters.count(accepted.batch.len(), usize::try_from(accepted.refused).unwrap_or(usize::MAX));
    Ok(accepted)
}

struct Accepting<'a> {
    now: Timestamp,
    limits: &'a Limits,
    accepted: AcceptedFrame,
}

impl Accepting<'_> {
    /// Whether all of `times` are within the limits: mostly they are, and then none is looked at alone.
    fn are_good(&self, times: RawTimes<'_>) -> bool {
        let bounds = |(first, last): (i64, i64), time: Timestamp| (first.min(time.micros()), last.max(time.micros()));
        let (first, last) = times.iter().fold((i64::MAX, i64::MIN), bounds);
        let is_good = |time: i64| check_time(Timestamp::from_micros(time), self.now, self.limits).is_ok();
        first > last || is_good(first) && is_good(last)
    }

    fn reject(&mut self, series: u32, reason: Reason) {
        self.accepted.refused += 1;
        let rejects = &mut self.accepted.rejects;
        let is_full = rejects.len() >= FRAME_REJECTS_MAX;
        match rejects.last_mut() {
            Some(last) if is_full || last.series == series => last.samples += 1,
            _ => rejects.push(FrameReject { series, samples: 1, reason }),
        }
    }
}
