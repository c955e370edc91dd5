//! Where the samples of a trace are: the series of each of its metrics, and what of them belongs to it.

use ahash::AHashMap;
use telem_engine::{JOB_SLOT_TAG, SeriesKey, Snapshot, TagPredicate, TagSet, TimeRange, Timestamp, Value};
use telem_ingest::counters::naming::{NAME_RECORD, is_of_name, own_metric, stored_key};
use telem_ingest::counters::{CounterValue, LaneTags, ScopeId};
use telem_ingest::decode::proxy::label::FullName;
use telem_ingest::default_tags::HOST;

use super::super::live::ProxyLive;
use super::super::runs::FinishedRun;
use super::super::shapes::JobDesc;
use super::super::tags::{
    CHILD_LANE, EXPORTER_LANE, HTTP_LANE, JOB_TAG, JOBLESS_LANE, LANE_TAG, MAIN, NODES_PREFIX, TARGET_TAG, jobless_tags,
};
use super::grid::TracePiece;

/// Tags that are no labels of a counter, unless it has one that is called so.
const OURS: [&str; 5] = [LANE_TAG, TARGET_TAG, JOB_TAG, JOB_SLOT_TAG, HOST];

/// Where the samples of one trace are, at one moment.
pub struct TraceSource<'a> {
    live: &'a ProxyLive,
    snapshot: Snapshot,
    of: SourceOf,
    told: ToldSeries,
}

enum SourceOf {
    /// A run: its series, while they are its own.
    Run { tags: LaneTags, slot: Option<u32>, range: TimeRange },
    /// A sum: the series of the runs below it, with when each that had them began.
    Sum { is_main: bool, runs: Vec<(LaneTags, Vec<Timestamp>)> },
}

/// Where the samples of a run are.
struct RunPlace {
    /// Of its series, and of those of other runs that share them.
    tags: LaneTags,
    slot: Option<u32>,
    begin: Timestamp,
    is_imported: bool,
}

impl RunPlace {
    fn of(run: &FinishedRun) -> Self {
        Self { tags: run.tags(), slot: run.slot, begin: run.begin, is_imported: run.is_imported }
    }

    fn of_live(live: &ProxyLive, id: &str, slot: Option<u32>, begin: Timestamp) -> Self {
        Self { tags: live.job_tags(id, slot), slot, begin, is_imported: false }
    }

    /// Those of all runs, by begin.
    fn all(live: &ProxyLive) -> Vec<Self> {
        let finished = live.runs.finished();
        let over = finished.iter().map(|run| Self::of(run));
        let live_ids = live.runs.live().into_iter().map(|(desc, _)| desc.jobid);
        let running = live_ids.filter_map(|id| {
            let (slot, begin) = live.runs.place(&id)?;
            Some(Self::of_live(live, &id, slot, begin))
        });
        let mut places: Vec<Self> = over.chain(running).collect();
        places.sort_by_key(|place| place.begin);
        places
    }
}

impl<'a> TraceSource<'a> {
    fn new(live: &'a ProxyLive, of: SourceOf) -> Self {
        Self { live, snapshot: live.state.db.snapshot(), of, told: ToldSeries::default() }
    }

    pub fn of_run(live: &'a ProxyLive, run: &FinishedRun) -> Self {
        Self::of_place(live, RunPlace::of(run))
    }

    pub fn of_live(live: &'a ProxyLive, id: &str, slot: Option<u32>, begin: Timestamp) -> Self {
        Self::of_place(live, RunPlace::of_live(live, id, slot, begin))
    }

    fn of_place(live: &'a ProxyLive, run: RunPlace) -> Self {
        let places = RunPlace::all(live);
        let next = places.iter().find(|place| place.begin > run.begin && place.tags == run.tags);
        let range = TimeRange::new(run.begin, next.map_or(Timestamp::MAX, |next| next.begin));
        Self::new(live, SourceOf::Run { tags: run.tags, slot: run.slot, range })
    }

    pub fn of_sum(live: &'a ProxyLive, id: &str) -> Self {
        // Of runs that share series, those are read once.
        let mut by_tags: AHashMap<LaneTags, Vec<Timestamp>> = AHashMap::new();
        for place in RunPlace::all(live).into_iter().filter(|place| !place.is_imported) {
            by_tags.entry(place.tags).or_default().push(place.begin);
        }
        let mut runs: Vec<_> = by_tags.into_iter().collect();
        // Floats that are added up in one order always make the same sum.
        runs.sort_by(|(_, one), (_, other)| one.cmp(other));
        Self::new(live, SourceOf::Sum { is_main: id == MAIN, runs })
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The samples of a metric, a piece for each series and run.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn pieces(&mut self, name: &str) -> telem_engine::Result<Vec<TracePiece>> {
        let Self { live, snapshot, of, told } = self;
        let mut all = Vec::new();
        match of {
            SourceOf::Run { tags, slot, range } => {
                if let Some(key) = stored_key(snapshot, name, tags) {
                    all = pieces(snapshot, &key, *range, &[])?;
                }
                // What other servers told of the job.
                let slot = slot.map(|slot| slot.to_string());
                let job = tags.more.iter().find(|(tag, _)| **tag == *JOB_TAG);
                let is_of_run = |tags: &TagSet| {
                    tags.get(LANE_TAG).is_none()
                        && tags.get(JOB_SLOT_TAG) == slot.as_deref()
                        && tags.get(JOB_TAG) == job.map(|(_, job)| &**job)
                };
                for key in told.of_name(snapshot, name, is_of_run) {
                    all.extend(pieces(snapshot, &key, *range, &[])?);
                }
            }
            SourceOf::Sum { is_main, runs } => {
                for lane in if *is_main { &[JOBLESS_LANE, HTTP_LANE][..] } else { &[JOBLESS_LANE][..] } {
                    for node in &*live.stored_nodes {
                        if let Some(key) = stored_key(snapshot, name, &jobless_tags(node, lane)) {
                            all.extend(pieces(snapshot, &key, TimeRange::ALL, &[])?);
                        }
                    }
                }
                // All that a child counts is one lane, whatever its jobs are.
                let lanes: &[&str] = if *is_main { &[CHILD_LANE, EXPORTER_LANE] } else { &[EXPORTER_LANE] };
                let is_of_sum = |tags: &TagSet| tags.get(LANE_TAG).is_some_and(|lane| lanes.contains(&lane));
                for key in told.of_name(snapshot, name, is_of_sum) {
                    all.extend(pieces(snapshot, &key, TimeRange::ALL, &[])?);
                }
                for (tags, begins) in runs {
                    if let Some(key) = stored_key(snapshot, name, tags) {
                        all.extend(pieces(snapshot, &key, TimeRange::ALL, begins)?);
                    }
                }
            }
        }
        Ok(all)
    }

    /// What lanes below a sum counted since the last tick, which samples are still to tell.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn unstored(&self, name: &str) -> telem_engine::Result<f64> {
        let Self { live, snapshot, of, .. } = self;
        let SourceOf::Sum { is_main, .. } = of else { return Ok(0.0) };
        if live.store.is_none() {
            return Ok(0.0);
        }
        let node = &live.state.node;
        let jobless = (live.jobless, jobless_tags(node, JOBLESS_LANE), Timestamp::MIN);
        let http = is_main.then(|| (live.http, jobless_tags(node, HTTP_LANE), Timestamp::MIN));
        let of_run = |(desc, _): (JobDesc, ScopeId)| {
            let (slot, begin) = live.runs.place(&desc.jobid)?;
            Some((live.runs.lane(&desc.jobid)?, live.job_tags(&desc.jobid, slot), begin))
        };
        let mut recent = 0.0;
        for (lane, tags, begin) in live.runs.live().into_iter().filter_map(of_run).chain([jobless]).chain(http) {
            let Some(CounterValue::Counter(now)) = live.table.find(lane, name).map(|reading| reading.value) else {
                continue;
            };
            let key = stored_key(snapshot, name, &tags);
            let stored = match key.and_then(|key| snapshot.index().id(&key)) {
                Some(series) => snapshot.last(series)?.filter(|(time, _)| *time >= begin),
                None => None,
            };
            recent += now - stored.map_or(0.0, |(_, value)| float(value));
        }
        Ok(recent)
    }
}

/// The series of what other servers told of, by metric, as far as it was asked for: a metric may have as many of them as a
/// trace has counters.
#[derive(Default)]
struct ToldSeries(AHashMap<String, ToldMetric>);

/// Those of one metric.
#[derive(Default)]
struct ToldMetric {
    /// By the tags that are labels of any counter.
    by_labels: AHashMap<Vec<(String, String)>, Vec<SeriesKey>>,
    /// By the name that a record gives them.
    by_record: AHashMap<String, Vec<SeriesKey>>,
}

impl ToldMetric {
    fn find(snapshot: &Snapshot, metric: &str) -> Self {
        let any = TagPredicate { key: TARGET_TAG, accepts: &|_| true, among: None };
        let mut found = Self::default();
        for key in snapshot.select(metric, &[any]).into_iter().filter_map(|id| snapshot.index().key(id)) {
            match snapshot.meta().record(NAME_RECORD, &key.to_string()) {
                Some(name) => found.by_record.entry(name.to_string()).or_default().push(key),
                None => {
                    let labels = key.tags().iter().filter(|(tag, _)| !OURS.contains(tag));
                    let labels = labels.map(|(tag, value)| (tag.to_owned(), value.to_owned())).collect();
                    found.by_labels.entry(labels).or_default().push(key);
                }
            }
        }
        found
    }
}

impl ToldSeries {
    /// Those of a counter that are wanted.
    fn of_name(&mut self, snapshot: &Snapshot, name: &str, is_wanted: impl Fn(&TagSet) -> bool) -> Vec<SeriesKey> {
        let FullName { base, mut labels } = FullName::new(name);
        labels.sort();
        let has_label = |name: &str| labels.iter().any(|(label, _)| *label == name);
        let is_named = |tags: &TagSet| {
            let told = tags.iter().filter(|(key, _)| !OURS.contains(key) || has_label(key));
            told.eq(labels.iter().map(|(label, value)| (*label, &**value)))
        };
        let of_any = labels.iter().filter(|(label, _)| !OURS.contains(label));
        let of_any: Vec<(String, String)> =
            of_any.map(|(label, value)| ((*label).to_owned(), value.to_string())).collect();
        let mut found = Vec::new();
        for prefix in ["", NODES_PREFIX] {
            let (plain, own) = (format!("{prefix}{base}"), own_metric(name, prefix));
            // Both are one for most names.
            let other = (own != plain).then_some(own);
            for metric in std::iter::once(plain).chain(other) {
                let told = match self.0.get(&metric) {
                    Some(told) => told,
                    None => {
                        let told = ToldMetric::find(snapshot, &metric);
                        self.0.entry(metric).or_insert(told)
                    }
                };
                let spelled = told.by_labels.get(&of_any).into_iter().flatten();
                let recorded = told.by_record.get(name).into_iter().flatten();
                let keys = spelled.chain(recorded).filter(|key| is_wanted(key.tags()));
                found.extend(keys.filter(|key| is_of_name(snapshot, key, name, || is_named(key.tags()))).cloned());
            }
        }
        found
    }
}

fn float(value: Value) -> f64 {
    match value {
        Value::Int(value) => value as f64,
        Value::Float(value) => value,
    }
}

/// The samples of a series, a piece for each run that begins at one of `begins`.
///
/// # Errors
/// Those of the engine.
pub fn pieces(
    snapshot: &Snapshot,
    key: &SeriesKey,
    range: TimeRange,
    begins: &[Timestamp],
) -> telem_engine::Result<Vec<TracePiece>> {
    let Some(id) = snapshot.index().id(key) else { return Ok(Vec::new()) };
    let mut samples = Vec::new();
    for points in snapshot.points(vec![id], range) {
        let points = points?;
        samples.extend(points.times.iter().copied().zip(points.values.iter().map(float)));
    }
    let run_of = |time: Timestamp| begins.partition_point(|begin| *begin <= time);
    let of_runs = samples.chunk_by(|one, other| run_of(one.0) == run_of(other.0));
    Ok(of_runs.map(<[_]>::to_vec).collect())
}
