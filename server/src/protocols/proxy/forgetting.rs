//! Runs that are forgotten: their records go, and what they counted stays in the sums, as the base that these begin with.
//!
//! The base lies in parts, by names, and each says of which runs it has the counters while these have records still. So a
//! run counts once wherever a process is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use telem_engine::{Snapshot, StateRecord};
use telem_ingest::counters::naming::stable_hash;
use telem_ingest::counters::{CounterReading, CounterValue};

use super::keeping::{self, BASE, OWN, PROFILE, RUN};
use super::live::ProxyLive;
use super::runs::FinishedRun;
use super::shapes::ProxyMetric;

/// How many parts there are, for ever.
const PARTS: u64 = 16;
/// The only key in older databases: all counters, as an array.
const OLD: &str = "main";

/// A part, as it is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BasePart<'a> {
    /// Keys of runs whose counters are in it.
    runs: BTreeSet<String>,
    #[serde(borrow)]
    counters: Vec<ProxyMetric<'a>>,
}

/// What forgotten runs counted.
#[derive(Debug, Default)]
pub struct CounterBase {
    parts: BTreeMap<u64, OpenPart>,
}

#[derive(Debug, Default)]
struct OpenPart {
    runs: BTreeSet<String>,
    counters: BTreeMap<Arc<str>, CounterReading>,
    has_changed: bool,
}

/// Of a name.
fn part_of(name: &str) -> u64 {
    stable_hash(name) % PARTS
}

fn by_name(metrics: Vec<ProxyMetric<'_>>) -> impl Iterator<Item = (Arc<str>, CounterReading)> {
    metrics.into_iter().map(ProxyMetric::reading).map(|reading| (Arc::clone(&reading.name), reading))
}

impl CounterBase {
    pub fn read(snapshot: &Snapshot) -> Self {
        let unreadable = |error: &serde_json::Error| {
            tracing::warn!(%error, "a part of what forgotten jobs counted cannot be read");
        };
        let mut base = Self::default();
        for part in 0..PARTS {
            let Some(text) = snapshot.meta().record(BASE, &part.to_string()) else { continue };
            if let Ok(BasePart { runs, counters }) = serde_json::from_str(&text).inspect_err(unreadable) {
                base.parts.insert(part, OpenPart { runs, counters: by_name(counters).collect(), has_changed: false });
            }
        }
        if let Some(text) = snapshot.meta().record(BASE, OLD)
            && let Ok(counters) = serde_json::from_str(&text).inspect_err(unreadable)
        {
            base.add(OLD, by_name(counters).map(|(_, reading)| reading));
        }
        base
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether it has counters of a run, perhaps not all.
    pub fn has(&self, run: &str) -> bool {
        self.parts.values().any(|part| part.runs.contains(run))
    }

    /// Adds the counters of a run, but those that it has already.
    pub fn add(&mut self, run: &str, readings: impl IntoIterator<Item = CounterReading>) {
        let had: BTreeSet<u64> =
            self.parts.iter().filter(|(_, part)| part.runs.contains(run)).map(|(number, _)| *number).collect();
        for reading in readings {
            let CounterValue::Counter(value) = reading.value else { continue };
            let number = part_of(&reading.name);
            if had.contains(&number) {
                continue;
            }
            let part = self.parts.entry(number).or_default();
            part.has_changed = true;
            part.runs.insert(run.to_owned());
            match part.counters.get_mut(&reading.name) {
                Some(known) => known.value = known.value.with(CounterValue::Counter(value)),
                None => {
                    part.counters.insert(Arc::clone(&reading.name), reading);
                }
            }
        }
    }

    pub fn readings(&self) -> Vec<CounterReading> {
        self.parts.values().flat_map(|part| part.counters.values().cloned()).collect()
    }

    /// Whether all of it is kept now.
    fn keep(&self, live: &ProxyLive, snapshot: &Snapshot) -> bool {
        let has_record = |run: &&String| match run.as_str() {
            OLD => snapshot.meta().record(BASE, OLD).is_some(),
            run => snapshot.meta().record(RUN, run).is_some(),
        };
        let mut is_kept = true;
        for (number, part) in self.parts.iter().filter(|(_, part)| part.has_changed) {
            let runs = part.runs.iter().filter(has_record).cloned().collect();
            let counters = part.counters.values().map(|reading| ProxyMetric::of(reading, 0)).collect();
            let text = keeping::text(&BasePart { runs, counters });
            is_kept &= live.keep(StateRecord::new(BASE, number.to_string(), text));
        }
        is_kept
    }
}

/// Forgets what runs left. What they counted stays in the sums. Where that cannot be kept, nothing is forgotten.
pub fn forget(live: &ProxyLive, runs: &[Arc<FinishedRun>]) {
    if runs.is_empty() || live.state.writer.is_none() {
        return;
    }
    let snapshot = live.state.db.snapshot();
    let mut base = CounterBase::read(&snapshot);
    for run in runs.iter().filter(|run| !run.is_imported) {
        base.add(&run.key, keeping::own_profile(live, run));
    }
    if !base.keep(live, &snapshot) {
        return;
    }
    if snapshot.meta().record(BASE, OLD).is_some() {
        live.keep(StateRecord::removal(BASE, OLD));
    }
    for run in runs {
        live.keep(StateRecord::removal(RUN, &*run.key));
        for kind in [PROFILE, OWN] {
            let keys = (0..).map(|part| keeping::part_key(&run.key, part));
            for key in keys.take_while(|key| snapshot.meta().record_bytes(kind, key).is_some()) {
                live.keep(StateRecord::removal(kind, key));
            }
        }
    }
}

#[cfg(test)]
mod tests;
