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
//! | `proxy.base` | `main` | what runs counted whose profiles are forgotten |
//!
//! The sums are not stored: at a start they are made of these and of the last samples.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telem_engine::{Db, SeriesId, SeriesKey, StateRecord, Timestamp, Value};
use telem_ingest::counters::naming::{self, NAME_RECORD, counter_name};
use telem_ingest::counters::{CounterReading, CounterValue, GaugeSource, LaneTags, ScopeId};
use telem_ingest::decode::proxy::CounterKind;
use telem_ingest::default_tags::HOST;

use super::live::{CHILD_LANE, HTTP_LANE, JOBLESS_LANE, LANE_TAG, NODES_PREFIX, ProxyLive, TARGET_TAG};
use super::runs::{FinishedRun, JOB_TAG, RETURN_MAX, is_servers_own, lane_tags, ms, part_tags};
use super::scrapes::records;
use super::shapes::{JobDesc, ProxyMetric};

pub const RUN: &str = "proxy.run";
pub const PROFILE: &str = "proxy.profile";
pub const COUNTER: &str = "proxy.counter";
const OWN: &str = "proxy.own";
const LANE: &str = "proxy.lane";
const BASE: &str = "proxy.base";
/// The one record of the kind `proxy.base`.
const BASE_KEY: &str = "main";
/// Most counters in one part of a profile.
const PART_COUNTERS: usize = 8_192;
/// About what a counter takes in it, besides its name and documentation.
const METRIC_BYTES: usize = 96;

/// A run's record.
#[derive(Debug, Serialize, Deserialize)]
struct RunRecord {
    desc: JobDesc,
    begin: i64,
    end: Option<i64>,
    slot: Option<u32>,
    #[serde(default)]
    parts: usize,
    /// It ran under another server, and counts in no sum of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_imported: bool,
    /// Parts of what clients here counted; all of the profile is that, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<usize>,
}

/// A counter that came by HTTP.
#[derive(Debug, Default, Serialize, Deserialize)]
struct HttpCounter {
    #[serde(default)]
    doc: String,
    /// Only where its samples cannot hold it. Text, as JSON knows no NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The first documentation of its name, where its own was taken away with a new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_doc: Option<String>,
}

fn text(record: &impl Serialize) -> String {
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
        own: None,
    };
    StateRecord::new(RUN, key, text(&record))
}

/// The record that says that clients without a job counted something.
pub fn jobless_record() -> StateRecord {
    StateRecord::new(LANE, JOBLESS_LANE, "{}")
}

/// The removal of a run's record.
pub fn no_record(key: &str) -> StateRecord {
    StateRecord::removal(RUN, key)
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
        let room = metrics.iter().map(|metric| metric.name.len() + metric.doc.len() + METRIC_BYTES).sum();
        let mut text = Vec::with_capacity(room);
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
        own: None,
    };
    records.push(StateRecord::new(RUN, &*run.key, text(&record)));
    records
}

fn part_key(key: &str, part: usize) -> String {
    format!("{key}/{part}")
}

/// The counters of a run that is over.
pub fn profile(live: &ProxyLive, run: &FinishedRun) -> Vec<CounterReading> {
    kept(live, run, |record| (PROFILE, record.parts))
}

/// What clients here counted of them.
fn own_profile(live: &ProxyLive, run: &FinishedRun) -> Vec<CounterReading> {
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
    [RUN, COUNTER, LANE, BASE].into_iter().any(|kind| meta.record_keys(kind).next().is_some())
        || records::has_targets(&snapshot)
}

/// Keeps a counter that came by HTTP.
pub fn keep_counter(live: &ProxyLive, name: &str, doc: &str) {
    let first = live.table.first_doc(name).filter(|first| **first != *doc && !first.is_empty());
    let record = HttpCounter { doc: doc.to_owned(), value: None, first_doc: first.map(|first| first.to_string()) };
    live.keep(StateRecord::new(COUNTER, name, text(&record)));
}

/// Makes the sums of what was kept, closes runs that were live when the last process ended, and brings back counters.
pub fn restore(live: &Arc<ProxyLive>) {
    let snapshot = live.state.db.snapshot();
    let meta = snapshot.meta();
    let runs: Vec<(String, RunRecord)> = meta
        .records(RUN)
        .filter_map(|(key, text)| match serde_json::from_str(&text) {
            Ok(record) => Some((key.to_owned(), record)),
            Err(error) => {
                tracing::warn!(%error, run = key, "the record of a run cannot be read");
                None
            }
        })
        .collect();
    let counters: Vec<(String, HttpCounter)> = meta
        .records(COUNTER)
        .map(|(name, text)| (name.to_owned(), serde_json::from_str(&text).unwrap_or_default()))
        .collect();
    let base =
        meta.record(BASE, BASE_KEY).and_then(|text| serde_json::from_str::<Vec<ProxyMetric<'static>>>(&text).ok());
    let has_jobless = meta.record(LANE, JOBLESS_LANE).is_some();
    if runs.is_empty() && counters.is_empty() && base.is_none() && !has_jobless && live.scrapes.is_empty() {
        return;
    }
    let stored = StoredLanes::find(live, &runs);
    let now = live.state.clock.now();
    add_passed(live, base.into_iter().flatten().map(ProxyMetric::reading).collect());
    for (key, record) in runs {
        let begin = Timestamp::from_micros(record.begin);
        let mut run = FinishedRun {
            key: key.into(),
            desc: record.desc,
            begin,
            end: Timestamp::from_micros(record.end.unwrap_or(record.begin)),
            slot: record.slot,
            is_imported: record.is_imported,
            is_servers_own: false,
        };
        run.is_servers_own = stored.is_servers_own(live, &run);
        if record.is_imported {
            live.runs.add_finished(run);
            continue;
        }
        let mut told = BTreeMap::new();
        let own = match record.end {
            Some(_) => own_profile(live, &run),
            None => {
                let Closed { end, own, children } = stored.close(live, &run);
                run.end = end.unwrap_or(begin);
                run.desc.end_time = ms(run.end);
                if live.state.writer.is_some() {
                    let all = merged(&own, &children);
                    keep_profile(live, &run, &all, (!children.is_empty()).then_some(&own));
                    tracing::info!(job = %run.desc.jobid, "a job of Metric Proxy was live when the server ended; it is closed");
                }
                told = children;
                own
            }
        };
        let silent = now.micros().saturating_sub(run.end.micros());
        let mut silent = Duration::from_micros(u64::try_from(silent).unwrap_or(0));
        if !told.is_empty() || (record.end.is_none() && live.scrapes.was_on_a_node(&run.desc.jobid)) {
            // Its children will say whether they still have it.
            silent = Duration::ZERO;
        }
        if silent < RETURN_MAX && live.state.writer.is_some() {
            let tags = lane_tags(live, &run.desc.jobid, run.slot);
            let lane = live.table.open_lane(tags, GaugeSource::OWN, &[live.node, live.main]);
            put(live, lane, &own);
            live.runs.resume(live, &run, lane, silent, &told);
        } else {
            add_passed(live, own);
        }
        live.runs.add_finished(run);
    }
    for (name, counter) in counters {
        let series = stored.of_lane(live, HTTP_LANE).remove(&name);
        let value = counter.value.as_deref().and_then(|value| value.parse().ok());
        let value = series.map(|(_, value)| value).or(value).unwrap_or(0.0);
        if let Some(first) = &counter.first_doc {
            // The first that is said of a name stays, wherever that was.
            let passing = live.table.open_part(GaugeSource::OWN, &[]);
            restore_one(live, passing, &name, first, CounterKind::Counter, 0.0);
            live.table.close(passing);
        }
        restore_one(live, live.http, &name, &counter.doc, CounterKind::Counter, value);
    }
    for (name, (kind, value)) in stored.of_lane(live, JOBLESS_LANE) {
        let doc = stored.doc(&name);
        restore_one(live, live.jobless, &name, &doc, kind, value);
    }
    live.scrapes.restore(live, |target, tags| stored.of_target(live, target, tags));
    // All of it is stored already.
    live.table.forget_changes();
}

/// What clients here and children counted together.
fn merged(own: &[CounterReading], children: &BTreeMap<Arc<str>, Vec<CounterReading>>) -> Vec<CounterReading> {
    let mut sums: BTreeMap<Arc<str>, CounterReading> = BTreeMap::new();
    for reading in own.iter().chain(children.values().flatten()) {
        match sums.get_mut(&reading.name) {
            Some(known) => known.value = known.value.with(reading.value),
            None => {
                sums.insert(Arc::clone(&reading.name), reading.clone());
            }
        }
    }
    sums.into_values().collect()
}

/// Adds what counted for this node once to the sums.
fn add_passed(live: &ProxyLive, readings: Vec<CounterReading>) {
    let lane = live.table.open_lane(LaneTags::default(), GaugeSource::OWN, &[live.node, live.main]);
    put(live, lane, &readings);
    live.table.close(lane);
}

fn put(live: &ProxyLive, lane: ScopeId, readings: &[CounterReading]) {
    for reading in readings {
        match reading.value {
            CounterValue::Counter(value) => {
                restore_one(live, lane, &reading.name, &reading.doc, CounterKind::Counter, value);
            }
            CounterValue::Gauge(gauge) => {
                restore_one(live, lane, &reading.name, &reading.doc, CounterKind::Gauge, f64::NAN);
                let _ = live.table.set_gauge(lane, &reading.name, gauge);
            }
        }
    }
}

fn restore_one(live: &ProxyLive, lane: ScopeId, name: &str, doc: &str, kind: CounterKind, value: f64) {
    if let Err(refusal) = live.table.declare(lane, name, doc, kind, value) {
        tracing::warn!(%refusal, "a counter does not come back");
    }
}

/// The end of a run that nobody ended.
struct Closed {
    end: Option<Timestamp>,
    /// Of clients here.
    own: Vec<CounterReading>,
    /// Of children, by where they are.
    children: BTreeMap<Arc<str>, Vec<CounterReading>>,
}

/// The series of lanes, as an earlier process left them.
struct StoredLanes {
    /// By the value of their lane's tag.
    lanes: BTreeMap<String, Vec<(SeriesId, SeriesKey)>>,
    /// By slot, where a run was live.
    slots: BTreeMap<u32, Vec<(SeriesId, SeriesKey)>>,
    /// By the tag of their job, where jobs have no slots.
    jobs: BTreeMap<String, Vec<(SeriesId, SeriesKey)>>,
    names: BTreeMap<String, Arc<str>>,
    kinds: BTreeMap<String, (CounterKind, String)>,
}

impl StoredLanes {
    /// Looks through all series once.
    fn find(live: &ProxyLive, runs: &[(String, RunRecord)]) -> Self {
        let snapshot = live.state.db.snapshot();
        let (index, meta) = (snapshot.index(), snapshot.meta());
        let open: Vec<u32> = runs.iter().filter(|(_, run)| run.end.is_none()).filter_map(|(_, run)| run.slot).collect();
        let (mut lanes, mut slots) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        let mut jobs = BTreeMap::<_, Vec<_>>::new();
        for number in 0..u32::try_from(index.len()).unwrap_or(u32::MAX) {
            let id = SeriesId(number);
            let Some(key) = index.key(id) else { continue };
            if let Some(lane) = key.tags().get(LANE_TAG) {
                lanes.entry(lane.to_owned()).or_default().push((id, key));
            } else if let Some(job) = key.tags().get(JOB_TAG) {
                jobs.entry(job.to_owned()).or_default().push((id, key));
            } else if let Some(slot) = key.tags().get(telem_engine::JOB_SLOT_TAG).and_then(|slot| slot.parse().ok())
                && open.contains(&slot)
            {
                slots.entry(slot).or_default().push((id, key));
            }
        }
        let names = meta.records(NAME_RECORD).map(|(key, name)| (key.to_owned(), name)).collect();
        let kinds = meta.metrics().map(|(name, meta)| {
            let kind = match meta.kind {
                telem_engine::MetricKind::Gauge => CounterKind::Gauge,
                _ => CounterKind::Counter,
            };
            (name.to_owned(), (kind, meta.help.clone()))
        });
        let kinds = kinds.collect();
        Self { lanes, slots, jobs, names, kinds }
    }

    fn name(&self, key: &SeriesKey, tags: &LaneTags) -> String {
        self.names.get(&key.to_string()).map_or_else(|| counter_name(key, tags), |name| name.to_string())
    }

    fn doc(&self, name: &str) -> String {
        let known = ["", NODES_PREFIX].into_iter().find_map(|prefix| self.kinds.get(&naming::own_metric(name, prefix)));
        known.map(|(_, doc)| doc.clone()).unwrap_or_default()
    }

    fn kind(&self, key: &SeriesKey) -> CounterKind {
        self.kinds.get(key.metric()).map_or(CounterKind::Counter, |(kind, _)| *kind)
    }

    /// Whether the samples of a run say no job, as those of the server's own. Which one that was, a saved database tells by
    /// its series.
    fn is_servers_own(&self, live: &ProxyLive, run: &FinishedRun) -> bool {
        let id = &run.desc.jobid;
        match live.store {
            Some(_) => is_servers_own(live, id, run.slot),
            None => run.slot.is_none() && !self.jobs.contains_key(&id.escape_debug().to_string()),
        }
    }

    /// The last values of a lane without a job, by name. Several nodes counted one counter together.
    fn of_lane(&self, live: &ProxyLive, lane: &str) -> BTreeMap<String, (CounterKind, f64)> {
        let mut values: BTreeMap<String, (CounterKind, f64)> = BTreeMap::new();
        for (id, key) in self.lanes.get(lane).into_iter().flatten() {
            let Ok(Some((_, value))) = live.state.db.last(*id) else { continue };
            // Another host is a label of the counter itself.
            let node = live.stored_nodes.iter().find(|node| key.tags().get(HOST) == Some(&***node));
            let node = Arc::clone(node.unwrap_or(&live.state.node));
            let tags = LaneTags {
                default: telem_ingest::default_tags::DefaultTags::of_process(node, None),
                more: vec![(LANE_TAG.into(), lane.into())],
                prefix: "",
            };
            let (kind, value) = (self.kind(key), float(value));
            let known = values.entry(self.name(key, &tags)).or_insert((kind, 0.0));
            known.1 = if kind == CounterKind::Counter { known.1 + value } else { value };
        }
        values
    }

    /// What the samples of a run say that nobody ended.
    fn close(&self, live: &ProxyLive, run: &FinishedRun) -> Closed {
        let own_tags = lane_tags(live, &run.desc.jobid, run.slot);
        let series = match run.slot {
            Some(slot) => self.slots.get(&slot),
            None => own_tags.more.iter().find(|(tag, _)| **tag == *JOB_TAG).and_then(|(_, job)| self.jobs.get(&**job)),
        };
        let series = series.map(Vec::as_slice).unwrap_or_default();
        let mut closed = Closed { end: None, own: Vec::new(), children: BTreeMap::new() };
        for (id, key) in series {
            let Ok(Some((time, value))) = live.state.db.last(*id) else { continue };
            // An earlier job of the slot left it.
            if time < run.begin {
                continue;
            }
            closed.end = closed.end.max(Some(time));
            match key.tags().get(TARGET_TAG) {
                Some(child) => {
                    let tags = part_tags(live, &run.desc.jobid, run.slot, child);
                    closed.children.entry(child.into()).or_default().push(self.reading(key, &tags, value));
                }
                None => closed.own.push(self.reading(key, &own_tags, value)),
            }
        }
        closed
    }

    fn reading(&self, key: &SeriesKey, tags: &LaneTags, value: Value) -> CounterReading {
        let name: Arc<str> = self.name(key, tags).into();
        let doc = self.doc(&name).into();
        let value = match self.kind(key) {
            CounterKind::Counter => CounterValue::Counter(float(value)),
            CounterKind::Gauge => CounterValue::Gauge(telem_ingest::counters::GaugeValue::of(float(value))),
        };
        CounterReading { name, doc, value }
    }

    /// The last values of the sum of a child.
    fn of_target(&self, live: &ProxyLive, target: &str, tags: &LaneTags) -> Vec<CounterReading> {
        let series = self.lanes.get(CHILD_LANE).map(Vec::as_slice).unwrap_or_default();
        let of_target = series.iter().filter(|(_, key)| key.tags().get(TARGET_TAG) == Some(target));
        let last = |(id, key): &(SeriesId, SeriesKey)| {
            let (_, value) = live.state.db.last(*id).ok()??;
            Some(self.reading(key, tags, value))
        };
        of_target.filter_map(last).collect()
    }
}

fn float(value: Value) -> f64 {
    match value {
        Value::Int(value) => value as f64,
        Value::Float(value) => value,
    }
}

/// Forgets profiles that are older than they are kept. What they counted stays in the sums.
pub fn forget_old_profiles(live: &ProxyLive) {
    let now = live.state.clock.now();
    let keep = i64::try_from(live.options.profiles_keep.as_micros()).unwrap_or(i64::MAX);
    let is_old = |run: &FinishedRun| now.micros().saturating_sub(run.end.micros()) > keep;
    let old: Vec<Arc<FinishedRun>> = live.runs.finished().into_iter().filter(|run| is_old(run)).collect();
    if old.is_empty() || live.state.writer.is_none() {
        return;
    }
    let snapshot = live.state.db.snapshot();
    let base = snapshot.meta().record(BASE, BASE_KEY);
    let base = base.and_then(|text| serde_json::from_str::<Vec<ProxyMetric<'static>>>(&text).ok()).unwrap_or_default();
    let mut sums: BTreeMap<Arc<str>, CounterReading> =
        base.into_iter().map(ProxyMetric::reading).map(|reading| (Arc::clone(&reading.name), reading)).collect();
    for run in old.iter().filter(|run| !run.is_imported) {
        for reading in own_profile(live, run) {
            let CounterValue::Counter(value) = reading.value else { continue };
            let sum = sums.entry(Arc::clone(&reading.name));
            let sum = sum.or_insert_with(|| CounterReading { value: CounterValue::Counter(0.0), ..reading });
            if let CounterValue::Counter(known) = &mut sum.value {
                *known += value;
            }
        }
    }
    let sums: Vec<ProxyMetric<'_>> = sums.values().map(|reading| ProxyMetric::of(reading, 0)).collect();
    live.keep(StateRecord::new(BASE, BASE_KEY, text(&sums)));
    for run in old {
        for kind in [PROFILE, OWN] {
            let parts = snapshot.meta().record_keys(kind).filter(|key| {
                key.strip_prefix(&*run.key)
                    .is_some_and(|rest| rest.strip_prefix('/').is_some_and(|part| part.parse::<usize>().is_ok()))
            });
            for part in parts {
                live.keep(StateRecord::removal(kind, part));
            }
        }
        live.keep(StateRecord::removal(RUN, &*run.key));
        live.runs.remove_finished(&run.key);
    }
}
