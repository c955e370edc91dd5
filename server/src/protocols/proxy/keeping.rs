//! What must outlive the process beside samples, as records of the database.
//!
//! | kind | key | text |
//! |---|---|---|
//! | `proxy.run` | node, begin and id of a run | its description, begin, end and slot; `end` is null while it is live |
//! | `proxy.profile` | the run's key and the number of a part | its counters |
//! | `proxy.own` | the same | those of clients here alone, where its profile has others, too |
//! | `proxy.counter` | the name of a counter that came by HTTP | its documentation |
//! | `proxy.name` | a series | the name of its counter, where metric and tags do not spell it |
//! | `proxy.lane` | `jobless` | clients without a job counted something |
//! | `proxy.above` | `place` | where this server stood in a tree, and under which addresses |
//! | `proxy.untold` | a number | what an original above was not told of yet |
//! | `proxy.base` | the number of a part | what runs counted that are [forgotten](super::forgetting) |
//!
//! The sums are not stored: at a start they are made of these and of the last samples ([`revival`](super::revival)).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use telem_engine::{Db, StateRecord, Timestamp};
use telem_ingest::counters::CounterReading;

use super::live::{JOBLESS_RECORD, ProxyLive};
use super::runs::FinishedRun;
use super::shapes::{JobDesc, ProxyMetric};
use super::targets::records;

pub const RUN: &str = "proxy.run";
pub const PROFILE: &str = "proxy.profile";
pub const COUNTER: &str = "proxy.counter";
pub const OWN: &str = "proxy.own";
pub const BASE: &str = "proxy.base";
/// Most counters in one part of a profile.
const PART_COUNTERS: usize = 8_192;

/// A run's record.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub desc: JobDesc,
    pub begin: i64,
    pub end: Option<i64>,
    pub slot: Option<u32>,
    #[serde(default)]
    parts: usize,
    /// It ran under another server, and counts in no sum of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_imported: bool,
    /// No profile is wanted (`-i`): what it counted is kept until it cannot go on, for the sums.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_passing: bool,
    /// Parts of what clients here counted; all of the profile is that, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<usize>,
}

/// A counter that came by HTTP.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HttpCounter {
    #[serde(default)]
    pub doc: String,
    /// Only where its samples cannot hold it. Text, as JSON knows no NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The first documentation of its name, where its own was taken away with a new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_doc: Option<String>,
}

pub fn text(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// The record of a run that is live.
pub fn open_record(key: &str, desc: &JobDesc, begin: Timestamp, slot: Option<u32>) -> StateRecord {
    let record = RunRecord {
        desc: desc.clone(),
        begin: begin.micros(),
        end: None,
        slot,
        parts: 0,
        is_imported: false,
        is_passing: false,
        own: None,
    };
    StateRecord::new(RUN, key, text(&record))
}

/// Keeps a run that is over with its last values; and what is `own` of them, where that is not all.
pub fn keep_profile(live: &ProxyLive, run: &FinishedRun, readings: &[CounterReading], own: Option<&[CounterReading]>) {
    let parts = keep_parts(live, PROFILE, &run.key, readings);
    let own = own.map(|own| keep_parts(live, OWN, &run.key, own));
    let record = RunRecord {
        desc: run.desc.clone(),
        begin: run.begin.micros(),
        end: Some(run.end.micros()),
        slot: run.slot,
        parts,
        own,
        is_imported: false,
        is_passing: !live.options.has_profiles,
    };
    live.keep(StateRecord::new(RUN, &*run.key, text(&record)));
}

/// Keeps counters under a run's key; in how many parts.
fn keep_parts(live: &ProxyLive, kind: &str, key: &str, readings: &[CounterReading]) -> usize {
    let mut parts = 0;
    for part in readings.chunks(PART_COUNTERS) {
        // The documentation of a node's metrics is known.
        let metrics: Vec<ProxyMetric<'_>> = part
            .iter()
            .map(|reading| match live.system.doc(&reading.name) {
                Some(doc) if doc == &*reading.doc => ProxyMetric { doc: "".into(), ..ProxyMetric::of(reading, 0) },
                _ => ProxyMetric::of(reading, 0),
            })
            .collect();
        // In one piece: what grows leaves behind as much as it takes.
        let mut text = Vec::with_capacity(metrics.iter().map(ProxyMetric::json_room).sum());
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut text, &metrics);
        live.keep(StateRecord::new(kind, part_key(key, parts), String::from_utf8(text).unwrap_or_default()));
        parts += 1;
    }
    parts
}

/// The records of a run that another server saw, with its last values, in the place of those with `counters_before`.
pub fn imported_records(run: &FinishedRun, metrics: &[ProxyMetric<'_>], counters_before: usize) -> Vec<StateRecord> {
    let parts = metrics.chunks(PART_COUNTERS).enumerate();
    let mut records: Vec<StateRecord> =
        parts.map(|(part, metrics)| StateRecord::new(PROFILE, part_key(&run.key, part), text(&metrics))).collect();
    let parts = records.len();
    let surplus = parts..counters_before.div_ceil(PART_COUNTERS);
    records.extend(surplus.map(|part| StateRecord::removal(PROFILE, part_key(&run.key, part))));
    let record = RunRecord {
        desc: run.desc.clone(),
        begin: run.begin.micros(),
        end: Some(run.end.micros()),
        slot: run.slot,
        parts,
        is_imported: true,
        is_passing: false,
        own: None,
    };
    records.push(StateRecord::new(RUN, &*run.key, text(&record)));
    records
}

pub fn part_key(key: &str, part: usize) -> String {
    format!("{key}/{part}")
}

/// The counters of a run that is over.
pub fn profile(live: &ProxyLive, run: &FinishedRun) -> Vec<CounterReading> {
    kept(live, run, |record| (PROFILE, record.parts))
}

/// What clients here counted of them.
pub fn own_profile(live: &ProxyLive, run: &FinishedRun) -> Vec<CounterReading> {
    let mut own = kept(live, run, |record| record.own.map_or((PROFILE, record.parts), |parts| (OWN, parts)));
    own.retain(|reading| live.system.doc(&reading.name).is_none());
    own
}

fn kept(live: &ProxyLive, run: &FinishedRun, which: fn(&RunRecord) -> (&'static str, usize)) -> Vec<CounterReading> {
    let snapshot = live.state.db.snapshot();
    let meta = snapshot.meta();
    let Some(record) = meta.record(RUN, &run.key).and_then(|text| serde_json::from_str::<RunRecord>(&text).ok()) else {
        return Vec::new();
    };
    let (kind, parts) = which(&record);
    let parts = (0..parts).filter_map(|part| meta.record(kind, &part_key(&run.key, part)));
    let metrics = parts.filter_map(|text| {
        serde_json::from_str::<Vec<ProxyMetric<'static>>>(&text)
            .inspect_err(|error| tracing::warn!(%error, run = %run.key, "a part of a profile cannot be read"))
            .ok()
    });
    let reading = |metric: ProxyMetric<'static>| {
        let reading = metric.reading();
        match live.system.doc(&reading.name) {
            Some(doc) if reading.doc.is_empty() => CounterReading { doc: doc.into(), ..reading },
            _ => reading,
        }
    };
    metrics.flatten().map(reading).collect()
}

/// How long the text of a profile is, in bytes.
pub fn profile_bytes(live: &ProxyLive, run: &FinishedRun) -> u64 {
    let snapshot = live.state.db.snapshot();
    let parts = (0..).map_while(|part| snapshot.meta().record_bytes(PROFILE, &part_key(&run.key, part)));
    parts.map(|bytes| bytes as u64).sum()
}

/// Whether anything was ever counted in a database.
pub fn is_used(db: &Db) -> bool {
    let snapshot = db.snapshot();
    let meta = snapshot.meta();
    [RUN, COUNTER, JOBLESS_RECORD.0, BASE].into_iter().any(|kind| meta.record_keys(kind).next().is_some())
        || records::has_targets(&snapshot)
}

/// Keeps a counter that came by HTTP.
pub fn keep_counter(live: &ProxyLive, name: &str, doc: &str) {
    let first = live.table.first_doc(name).filter(|first| **first != *doc && !first.is_empty());
    let record = HttpCounter { doc: doc.to_owned(), value: None, first_doc: first.map(|first| first.to_string()) };
    live.keep(StateRecord::new(COUNTER, name, text(&record)));
}

/// Runs whose profiles are older than they are kept.
pub fn old_runs(live: &ProxyLive) -> Vec<Arc<FinishedRun>> {
    let now = live.state.clock.now();
    let keep = i64::try_from(live.options.profiles_keep.as_micros()).unwrap_or(i64::MAX);
    let is_old = |run: &FinishedRun| now.micros().saturating_sub(run.end.micros()) > keep;
    if live.state.writer.is_none() {
        return Vec::new();
    }
    live.runs.finished().into_iter().filter(|run| is_old(run)).collect()
}
