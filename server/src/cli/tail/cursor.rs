//! Which samples are new: every sample comes out once, however often it is read and however late it was written.
//!
//! New samples are looked for from somewhat before the newest, because samples of many senders do not come in the order
//! of their times. What was seen within that stretch is remembered.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// One sample as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub struct TailSample {
    pub micros: i64,
    pub metric: String,
    /// In the order of their keys.
    pub tags: Vec<(String, String)>,
    pub value: f64,
    /// Where it is a whole number, all of its digits.
    pub whole: Option<i64>,
}

impl TailSample {
    /// Oldest first; of one time by series.
    pub fn by_time(&self, other: &Self) -> Ordering {
        (self.micros, &self.metric, &self.tags).cmp(&(other.micros, &other.metric, &other.tags))
    }
}

/// What was read so far.
#[derive(Debug)]
pub struct TailCursor {
    late_us: i64,
    seen_max: usize,
    /// Samples of earlier times are not read any more.
    floor_us: i64,
    /// Their times and series.
    seen: BTreeSet<(i64, u64)>,
    series: HashMap<(String, Vec<(String, String)>), u64>,
    next: u64,
}

impl TailCursor {
    /// Reads from `floor_us` on. A sample may come so late; so many are remembered at most.
    pub fn new(floor_us: i64, late_us: i64, seen_max: usize) -> Self {
        Self { late_us, seen_max, floor_us, seen: BTreeSet::new(), series: HashMap::new(), next: 0 }
    }

    /// The time from which on the next samples are to be read.
    pub fn floor_us(&self) -> i64 {
        self.floor_us
    }

    /// Those of `read` that did not come before, oldest first. `now_us` is the server's time: a sample from the future
    /// does not make those of the present old.
    pub fn unseen(&mut self, read: Vec<TailSample>, now_us: i64) -> Vec<TailSample> {
        let mut newest = i64::MIN;
        let mut new: Vec<TailSample> = Vec::new();
        for sample in read {
            if sample.micros < self.floor_us {
                continue;
            }
            newest = newest.max(sample.micros);
            // Looked up with what is then kept: a clone for each new series alone would need a type of borrowed keys.
            let series = *self.series.entry((sample.metric.clone(), sample.tags.clone())).or_insert(self.next);
            self.next = self.next.max(series + 1);
            if self.seen.insert((sample.micros, series)) {
                new.push(sample);
            }
        }
        if newest > i64::MIN {
            self.forget_before(newest.min(now_us).saturating_sub(self.late_us));
        }
        while self.seen.len() > self.seen_max {
            // Whole times go at once: what shares the time of the oldest would be printed again otherwise.
            let Some((oldest, _)) = self.seen.first().copied() else { break };
            self.forget_before(oldest.saturating_add(1));
        }
        if self.series.len() > self.seen_max {
            let seen: BTreeSet<u64> = self.seen.iter().map(|(_, series)| *series).collect();
            self.series.retain(|_, series| seen.contains(series));
        }
        new.sort_by(TailSample::by_time);
        new
    }

    fn forget_before(&mut self, floor_us: i64) {
        if floor_us > self.floor_us {
            self.floor_us = floor_us;
            self.seen = self.seen.split_off(&(floor_us, 0));
        }
    }
}
