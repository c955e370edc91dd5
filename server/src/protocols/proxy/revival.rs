//! What a server does first with a database in which others counted before: makes the sums of what they
//! [kept](super::keeping) and of their last samples, closes runs that were live when the last of them ended, and lets runs
//! go on whose clients may come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::{SeriesId, SeriesKey, Timestamp, Value};
use telem_ingest::counters::naming::{self, NAME_RECORD, counter_name};
use telem_ingest::counters::{CounterReading, CounterValue, GaugeSource, LaneTags, ScopeId};
use telem_ingest::decode::proxy::CounterKind;
use telem_ingest::default_tags::HOST;

use super::forgetting::{self, CounterBase};
use super::keeping::{self, COUNTER, HttpCounter, RUN, RunRecord};
use super::live::{JOBLESS_RECORD, ProxyLive};
use super::runs::{FinishedRun, RETURN_MAX, ms};
use super::tags::{CHILD_LANE, HTTP_LANE, JOB_TAG, JOBLESS_LANE, LANE_TAG, NODES_PREFIX, TARGET_TAG, jobless_tags};
use super::{scrapes, seats};

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
    let mut base = CounterBase::read(&snapshot);
    let (kind, key) = JOBLESS_RECORD;
    let has_jobless = meta.record(kind, key).is_some();
    if runs.is_empty() && counters.is_empty() && base.is_empty() && !has_jobless && live.targets.is_empty() {
        return;
    }
    let stored = StoredLanes::find(live, &runs);
    let now = live.state.clock.now();
    // What was being forgotten is forgotten.
    let (halves, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(|(key, _)| base.has(key));
    let mut passed: Vec<Arc<FinishedRun>> = halves.iter().map(|(key, record)| Arc::new(run_of(key, record))).collect();
    for run in &passed {
        base.add(&run.key, keeping::own_profile(live, run));
    }
    add_passed(live, base.readings());
    for (key, record) in runs {
        let mut run = run_of(&key, &record);
        let begin = run.begin;
        run.is_servers_own = stored.is_servers_own(live, &run);
        if record.is_imported {
            live.runs.add_finished(run);
            continue;
        }
        let is_passing = record.is_passing || (record.end.is_none() && !live.options.has_profiles);
        let mut told = BTreeMap::new();
        let own = match record.end {
            Some(_) => keeping::own_profile(live, &run),
            None => {
                let Closed { end, own, children } = stored.close(live, &run);
                run.end = end.unwrap_or(begin);
                run.desc.end_time = ms(run.end);
                if live.state.writer.is_some() {
                    let all = merged(&own, &children);
                    keeping::keep_profile(live, &run, &all, (!children.is_empty()).then_some(&own));
                    tracing::info!(job = %run.desc.jobid, "a job of Metric Proxy was live when the server ended; it is closed");
                }
                told = children;
                own
            }
        };
        let silent = now.micros().saturating_sub(run.end.micros());
        let mut silent = Duration::from_micros(u64::try_from(silent).unwrap_or(0));
        if !told.is_empty() || (record.end.is_none() && live.targets.was_on_a_node(&run.desc.jobid)) {
            // Its children will say whether they still have it.
            silent = Duration::ZERO;
        }
        if silent < RETURN_MAX && live.state.writer.is_some() {
            let tags = live.job_tags(&run.desc.jobid, run.slot);
            let lane = live.table.open_lane(tags, GaugeSource::OWN, &[live.node, live.main]);
            put(live, lane, &own);
            seats::resume(live, &run, lane, silent, &told);
            if !is_passing {
                live.runs.add_finished(run);
            }
            continue;
        }
        add_passed(live, own);
        match is_passing {
            true => passed.push(Arc::new(run)),
            false => live.runs.add_finished(run),
        }
    }
    forgetting::forget(live, &passed);
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
        // By `/set` it may be no number, which nothing adds.
        let adds = value.is_finite();
        restore_one(live, live.http, &name, &counter.doc, CounterKind::Counter, if adds { value } else { 0.0 });
        if !adds && let Err(refusal) = live.table.replace(live.http, live.main, &name, &counter.doc, value) {
            tracing::warn!(%refusal, "a counter does not come back");
        }
    }
    for (name, (kind, value)) in stored.of_lane(live, JOBLESS_LANE) {
        let doc = stored.doc(&name);
        restore_one(live, live.jobless, &name, &doc, kind, value);
    }
    scrapes::restore(live, |target, tags| stored.of_target(live, target, tags));
    // All of it is stored already.
    live.table.forget_changes();
}

/// As its record has it.
fn run_of(key: &str, record: &RunRecord) -> FinishedRun {
    FinishedRun {
        key: key.into(),
        desc: record.desc.clone(),
        begin: Timestamp::from_micros(record.begin),
        end: Timestamp::from_micros(record.end.unwrap_or(record.begin)),
        slot: record.slot,
        is_imported: record.is_imported,
        is_servers_own: false,
    }
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
            Some(_) => live.is_servers_own(id, run.slot),
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
            let tags = jobless_tags(&node, lane);
            let (kind, value) = (self.kind(key), float(value));
            let known = values.entry(self.name(key, &tags)).or_insert((kind, 0.0));
            known.1 = if kind == CounterKind::Counter { known.1 + value } else { value };
        }
        values
    }

    /// What the samples of a run say that nobody ended.
    fn close(&self, live: &ProxyLive, run: &FinishedRun) -> Closed {
        let own_tags = live.job_tags(&run.desc.jobid, run.slot);
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
                    let tags = live.part_tags(&run.desc.jobid, run.slot, child);
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
