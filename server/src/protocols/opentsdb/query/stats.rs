//! The cost of a request: `showStats` reports that of every group's sub-query, `showSummary` that of the request.
//!
//! Names are OpenTSDB's, times are in milliseconds. Figures that only HBase has are left out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;

use crate::protocols::opentsdb::json;

/// Counts while a request is answered.
pub struct Stats {
    clock: Arc<dyn Clock>,
    started: Duration,
    subs: u32,
    took: Duration,
    took_max: Duration,
    points: usize,
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { subs, took, points, .. } = self;
        f.debug_struct("Stats").field("subs", subs).field("took", took).field("points", points).finish_non_exhaustive()
    }
}

impl Stats {
    /// The request begins now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let started = clock.monotonic();
        Stats { clock, started, subs: 0, took: Duration::ZERO, took_max: Duration::ZERO, points: 0 }
    }

    /// Records the number of points of a sub-query's answer, and its duration.
    pub fn add(&mut self, took: Duration, points: usize) {
        self.subs += 1;
        self.took += took;
        self.took_max = self.took_max.max(took);
        self.points += points;
    }

    /// Of the whole request.
    pub fn summary(&self, out: &mut Vec<u8>) {
        let average = self.took.checked_div(self.subs).unwrap_or_default();
        out.extend_from_slice(b"{\"statsSummary\":{\"avgAggregationTime\":");
        millis(out, average);
        out.extend_from_slice(b",\"maxAggregationTime\":");
        millis(out, self.took_max);
        out.extend_from_slice(b",\"emittedDPs\":");
        count(out, self.points);
        out.extend_from_slice(b",\"totalTime\":");
        millis(out, self.clock.monotonic().saturating_sub(self.started));
        out.extend_from_slice(b"}}");
    }
}

/// Of a group: how many points it has, and how long its sub-query took.
pub fn of_group(out: &mut Vec<u8>, took: Duration, points: usize) {
    out.extend_from_slice(b"{\"aggregationTime\":");
    millis(out, took);
    out.extend_from_slice(b",\"emittedDPs\":");
    count(out, points);
    out.push(b'}');
}

fn millis(out: &mut Vec<u8>, duration: Duration) {
    json::float(out, duration.as_secs_f64() * 1_000.0);
}

fn count(out: &mut Vec<u8>, count: usize) {
    json::int(out, i64::try_from(count).unwrap_or(i64::MAX));
}
