//! Decides which segments are dropped, as a pure function.
//!
//! Only whole segments are dropped; samples in memory and in the WAL stay until they are flushed. So samples are kept
//! for the configured age, and some of them longer by the window of their segment.
//!
//! Age counts from the newest stored sample, or from now if that is earlier. So a database that no process writes any
//! more keeps its last samples, and a clock that is far ahead drops nothing by itself.

use std::time::Duration;

use crate::manifest::SegmentEntry;
use crate::time::DAY;
use crate::time::Timestamp;

/// Part of the bytes that segments may fill whatever else takes room, so that large series files alone drop nothing.
const SEGMENTS_PART: u64 = 2;
/// Part of the bytes that one merged segment may have: with one too large, much would be dropped at once.
const SEGMENT_PART: u64 = 8;
/// Days are joined where the age is this many times as long: a day file goes when its last sample may.
const DAYS_AGE: i64 = 4;

/// What is kept. Everything by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Samples of this age and younger.
    pub age: Option<Duration>,
    /// The newest segments, as long as all files together have at most this many bytes.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Whether anything is ever dropped.
    pub fn is_bounded(&self) -> bool {
        self.age.is_some() || self.bytes.is_some()
    }

    /// The time from which samples are kept at `now` if `newest` is the newest; `None` without such a limit.
    pub fn oldest_kept(&self, newest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let age = i64::try_from(self.age?.as_micros()).unwrap_or(i64::MAX);
        Some(Timestamp::from_micros(newest.min(now).micros().saturating_sub(age)))
    }

    /// Most bytes of one merged segment.
    pub fn segment_bytes_max(&self) -> u64 {
        self.bytes.map_or(u64::MAX, |bytes| bytes / SEGMENT_PART)
    }

    /// Whether hours may be joined to a day.
    pub fn allows_days(&self) -> bool {
        self.age.is_none_or(|age| age.as_micros() >= (DAYS_AGE * DAY) as u128)
    }
}

/// The names of the segments that go, oldest first. `other_bytes` are those of all files that are not segments.
///
/// A segment never goes before one that was written earlier and has samples of the same times: a value that was
/// overwritten in the one would be read again from the other.
pub fn choose(entries: &[SegmentEntry], other_bytes: u64, retention: &Retention, now: Timestamp) -> Vec<String> {
    let newest = entries.iter().map(|entry| entry.last).max().map_or(Timestamp::MIN, Timestamp::from_micros);
    let oldest_kept = retention.oldest_kept(newest, now).map_or(i64::MIN, |time| time.micros());
    let room = retention.bytes.map_or(u64::MAX, |max| max.saturating_sub(other_bytes).max(max / SEGMENTS_PART));
    let mut bytes: u64 = entries.iter().map(|entry| entry.file.bytes).sum();
    // Nearly always.
    if bytes <= room && entries.iter().all(|entry| entry.last >= oldest_kept) {
        return Vec::new();
    }
    let mut gone = Vec::new();
    for (entry, last) in by_age(entries) {
        if last >= oldest_kept && bytes <= room {
            break;
        }
        bytes -= entry.file.bytes;
        gone.push(entry.file.file.clone());
    }
    gone
}

/// In the order in which they may go, each with the time of the last sample that keeps it.
fn by_age(entries: &[SegmentEntry]) -> Vec<(&SegmentEntry, i64)> {
    let mut written: Vec<&SegmentEntry> = entries.iter().collect();
    written.sort_by_key(|entry| (entry.sequence_max, entry.window_start));
    let mut aged: Vec<(&SegmentEntry, i64)> = Vec::with_capacity(written.len());
    for entry in written {
        let shares_time = |before: &&(&SegmentEntry, i64)| before.0.first <= entry.last && entry.first <= before.0.last;
        let kept_by = aged.iter().filter(shares_time).map(|(_, last)| *last);
        let last = kept_by.fold(entry.last, i64::max);
        aged.push((entry, last));
    }
    // Stable: of those that keep each other the one that was written first goes first.
    aged.sort_by_key(|(_, last)| *last);
    aged
}

#[cfg(test)]
mod tests;
