//! What a child tells: its jobs with their counters.
//!
//! `main` of a child is a lane below our `main`, and each of its jobs is a part of the job of the same id. Their totals
//! are kept apart ([`passed`](super::passed)): so `main` is exact whenever all of a child's jobs are not, as an answer is
//! no snapshot, and what a child counts without a job is in its `main` alone. `Node: x` stands beside our own.
//!
//! What a job counts between the last poll and its end is in its [`profile`] at the child, which is asked for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use serde::Deserialize;
use telem_ingest::counters::{
    CounterReading, CounterRefusal, CounterValue, GaugeSource, GaugeValue, LaneTags, ScopeId, Withdrawal,
};

use super::super::live::ProxyLive;
use super::super::runs::RunSeat;
use super::super::seats;
use super::super::shapes::{JobDesc, WALLTIME, WALLTIME_DOC};
use super::super::tags::{MAIN, NODE, is_node};
use super::super::targets::fetch::{NodeChoice, TargetAnswer};
use super::super::targets::{ScrapeTarget, records};
use super::passed::{CounterFall, PassedCounters};
use super::profile::{self, ChildPlace, PROFILES_BYTES_MAX, PROFILES_MAX, ProfileHope};

/// Most jobs of one child.
pub const CHILD_JOBS_MAX: usize = 10_000;
/// After so many polls a node is to tell counters that are 0, too, unless a job began.
const WHOLE_POLLS: u32 = 16;
/// What every proxy counts of itself: lower than before, it was started anew.
const LOOKS: &str = "proxy_scrape_total";

/// A job of a child, as it tells it.
#[derive(Debug, Deserialize)]
struct ChildJob {
    desc: JobDesc,
    counters: Vec<ChildMetric>,
}

#[derive(Debug, Deserialize)]
struct ChildMetric {
    name: String,
    #[serde(default)]
    doc: String,
    ctype: ChildValue,
}

/// An original writes `null` for what is no number.
#[derive(Debug, Deserialize)]
enum ChildValue {
    Counter { value: Option<f64> },
    Gauge { min: Option<f64>, max: Option<f64>, hits: Option<f64>, total: Option<f64> },
}

/// A job of a child that is live.
#[derive(Debug)]
struct ChildScope {
    start_time: u64,
    lane: ScopeId,
    /// Of a job: what the node of the child is like, which is no part of what is stored of it.
    beside: Option<ScopeId>,
    counters: PassedCounters,
    place: ScopePlace,
}

#[derive(Debug)]
enum ScopePlace {
    Main,
    /// Beside our own.
    Node,
    /// Our own, too.
    OwnNode,
    Job(RunSeat),
}

impl ChildScope {
    /// A profile, where it is of this run, without what every profile has.
    fn going_on(&self, mut profile: ChildJob) -> Option<ChildJob> {
        profile
            .counters
            .retain(|metric| metric.name != WALLTIME || metric.doc != WALLTIME_DOC || self.counters.has(WALLTIME));
        let counted = profile.counters.iter().filter_map(|metric| match metric.ctype {
            ChildValue::Counter { value } => Some((&*metric.name, value.unwrap_or(0.0))),
            ChildValue::Gauge { .. } => None,
        });
        // An original's profile has the begin of whichever client left last. Of a run that counted nothing yet any
        // other run's would do.
        let is_known = profile.desc.start_time == self.start_time || self.counters.has_counted();
        (is_known && self.counters.goes_on(counted)).then_some(profile)
    }
}

/// All that a child has.
#[derive(Debug)]
pub struct ChildScopes {
    target: Arc<ScrapeTarget>,
    scopes: BTreeMap<String, ChildScope>,
    /// Jobs of a node that it told to be over, and when they ended: it tells them for a while.
    over: BTreeMap<String, u64>,
    /// Polls until a node is to tell counters that are 0, too.
    until_whole: u32,
    /// Whether a profile may come a moment after its job went.
    hope: ProfileHope,
}

/// Whether a child goes on where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildLife {
    GoesOn,
    BeganAnew,
}

impl ChildScopes {
    pub fn new(target: &Arc<ScrapeTarget>) -> Self {
        let (scopes, over) = Default::default();
        Self { target: Arc::clone(target), scopes, over, until_whole: 0, hope: ProfileHope::Soon }
    }

    /// Takes what it tells now. `place` is where else it can be asked; a node of our own job tells all by itself.
    ///
    /// # Errors
    /// When that is no list of jobs, or nothing that may be counted here.
    pub async fn take(
        &mut self,
        live: &Arc<ProxyLive>,
        answer: TargetAnswer,
        place: Option<ChildPlace>,
    ) -> Result<(), String> {
        let told = tokio::task::spawn_blocking(move || parse(&answer)).await;
        let (lineage, mut jobs) = told.map_err(|panic| format!("its answer cannot be read: {panic}"))??;
        live.targets.check_lineage(&live.table, &self.target, lineage.as_deref())?;
        let over = self.take_ended(&mut jobs);
        let known = self.scopes.len();
        for job in &jobs {
            if let Err(refusal) = self.open(live, &job.desc).await {
                live.refuse(&refusal);
            }
        }
        let (fall, life) = self.begin_poll(lineage.as_deref(), &jobs);
        let starts = self.starts(live, &jobs);
        let ids: BTreeSet<String> = jobs.iter().map(|job| job.desc.jobid.clone()).collect();
        let is_over = |id: &String| !ids.contains(id) || over.contains(id);
        let gone: Vec<String> = self.scopes.keys().filter(|id| is_over(id)).cloned().collect();
        self.count(live, jobs, fall).await?;
        // What a child that began anew told before is an offset by now: a profile of then would come on top of it.
        if let (Some(place), ChildLife::GoesOn, false) = (place, life, self.target.is_leaving()) {
            self.count_last(live, &place, lineage.is_some(), &gone).await?;
        }
        // Behind the offsets: without them it would not be known that the child began anew.
        self.target.keep_child(&live.state, lineage, starts);
        self.until_whole =
            if self.scopes.len() > known { 0 } else { self.until_whole.checked_sub(1).unwrap_or(WHOLE_POLLS) };
        for id in gone {
            self.end(live, &id).await;
        }
        Ok(())
    }

    /// Takes the counters of jobs that have a place.
    async fn count(&mut self, live: &Arc<ProxyLive>, jobs: Vec<ChildJob>, fall: CounterFall) -> Result<(), String> {
        let mut scopes = std::mem::take(&mut self.scopes);
        let (worker, target) = (Arc::clone(live), Arc::clone(&self.target));
        // Of many counters that is work for a while.
        let applied = tokio::task::spawn_blocking(move || {
            for job in jobs {
                if let Some(scope) = scopes.get_mut(&job.desc.jobid) {
                    apply(&worker, &target, scope, job, fall);
                }
            }
            scopes
        });
        self.scopes = applied.await.map_err(|panic| format!("its values cannot be taken: {panic}"))?;
        Ok(())
    }

    /// Takes what jobs counted until they went, as far as the child says so in time.
    async fn count_last(
        &mut self,
        live: &Arc<ProxyLive>,
        place: &ChildPlace,
        is_ours: bool,
        gone: &[String],
    ) -> Result<(), String> {
        let of_job = |id: &String| match self.scopes.get(id)? {
            ChildScope { place: ScopePlace::Job(_), start_time, .. } => {
                Some((id.clone(), is_ours.then_some(*start_time)))
            }
            _ => None,
        };
        let hope = if is_ours { self.hope } else { ProfileHope::None };
        let mut answers = profile::answers(place, gone.iter().filter_map(of_job).collect(), hope);
        let late = tokio::time::sleep(PROFILES_MAX);
        tokio::pin!(late);
        let mut bytes = 0;
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                () = &mut late => break,
            };
            match answer {
                None => return Ok(()),
                Some((_, Ok(answer))) if bytes + answer.body.len() > PROFILES_BYTES_MAX => break,
                Some((id, Ok(answer))) => {
                    bytes += answer.body.len();
                    self.hope = ProfileHope::Soon;
                    self.take_profile(live, id, is_ours, answer).await?;
                }
                Some((_, Err(why))) => {
                    self.hope = ProfileHope::None;
                    tracing::debug!(%why, "a job of a child is over, and it has no profile of it");
                }
            }
        }
        tracing::warn!(at = %self.target.key, "a child did not tell in time what its jobs counted last");
        Ok(())
    }

    async fn take_profile(
        &mut self,
        live: &Arc<ProxyLive>,
        id: String,
        is_ours: bool,
        answer: TargetAnswer,
    ) -> Result<(), String> {
        let Some(mut scope) = self.scopes.remove(&id) else { return Ok(()) };
        let (worker, target, of) = (Arc::clone(live), Arc::clone(&self.target), id.clone());
        let taken = tokio::task::spawn_blocking(move || {
            match parse_profile(&answer, of, is_ours).map(|job| scope.going_on(job)) {
                // Its counters do not fall, so that it does not matter what that would mean.
                Ok(Some(job)) => apply(&worker, &target, &mut scope, job, CounterFall::Loss),
                Ok(None) => tracing::debug!(at = %target.key, "a profile of a child is of another run"),
                Err(why) => tracing::debug!(at = %target.key, %why, "a profile of a child is left out"),
            }
            scope
        });
        self.scopes.insert(id, taken.await.map_err(|panic| format!("a profile cannot be taken: {panic}"))?);
        Ok(())
    }

    /// What a node is to tell next.
    pub fn choice(&self) -> NodeChoice {
        if self.until_whole == 0 { NodeChoice::Whole } else { NodeChoice::Data }
    }

    /// Jobs that a node tells for the last time, with their last values. Those of which it told that before are left out.
    fn take_ended(&mut self, jobs: &mut Vec<ChildJob>) -> BTreeSet<String> {
        if !is_node(&self.target.key) {
            return BTreeSet::new();
        }
        let ended = jobs.iter().filter(|job| job.desc.end_time > 0);
        let ended: BTreeMap<String, u64> = ended.map(|job| (job.desc.jobid.clone(), job.desc.end_time)).collect();
        let before = std::mem::replace(&mut self.over, ended);
        jobs.retain(|job| job.desc.end_time == 0 || before.get(&job.desc.jobid) != Some(&job.desc.end_time));
        jobs.iter().filter(|job| job.desc.end_time > 0).map(|job| job.desc.jobid.clone()).collect()
    }

    /// What lower counters mean this time. Of a child that was started anew, all begin anew.
    fn begin_poll(&mut self, lineage: Option<&str>, jobs: &[ChildJob]) -> (CounterFall, ChildLife) {
        let is_anew = match (self.target.lineage().as_deref(), lineage) {
            (Some(before), Some(now)) => before != now,
            (Some(_), None) | (None, Some(_)) => true,
            (None, None) => self.looks_anew(jobs),
        };
        if is_anew {
            for scope in self.scopes.values_mut() {
                scope.counters.begin_anew();
            }
        }
        let fall = if lineage.is_some() { CounterFall::Loss } else { CounterFall::Reset };
        (fall, if is_anew { ChildLife::BeganAnew } else { ChildLife::GoesOn })
    }

    /// Whether a child that does not say it was started anew.
    fn looks_anew(&self, jobs: &[ChildJob]) -> bool {
        let Some((name, before)) = self.scopes.get(MAIN).and_then(|main| main.counters.with_prefix(LOOKS)) else {
            return false;
        };
        let main = jobs.iter().find(|job| job.desc.jobid == MAIN);
        let now = main.and_then(|main| main.counters.iter().find(|metric| *metric.name == *name));
        match now.map(|metric| &metric.ctype) {
            Some(ChildValue::Counter { value: Some(now) }) => *now < before,
            _ => before > 0.0,
        }
    }

    /// Makes a place for a job, unless it has one.
    async fn open(&mut self, live: &Arc<ProxyLive>, desc: &JobDesc) -> Result<(), CounterRefusal> {
        let id = &desc.jobid;
        if let Some(scope) = self.scopes.get_mut(id) {
            if scope.start_time != desc.start_time {
                // Another run of it, with counters of its own.
                scope.counters.begin_anew();
                scope.start_time = desc.start_time;
            }
            return Ok(());
        }
        let source = self.target.source();
        let (lane, sum, place) = if id == MAIN {
            (self.main_lane(live), None, ScopePlace::Main)
        } else if *id == live.node_id() {
            (self.own_node(live), None, ScopePlace::OwnNode)
        } else if id.starts_with(NODE) {
            (live.targets.open_node(&live.table, desc, source), None, ScopePlace::Node)
        } else if id.is_empty() {
            return Ok(());
        } else {
            let (seat, sum) = seats::join_part(live, desc.clone(), &self.target.key, source).await?;
            (seat.lane, Some(sum), ScopePlace::Job(seat))
        };
        let totals = live.table.all(lane).into_iter().filter_map(|reading| match reading.value {
            CounterValue::Counter(total) => Some((reading.name, total)),
            CounterValue::Gauge(_) => None,
        });
        let offsets = records::offsets(&live.state, &self.target.key, id);
        let mut counters = PassedCounters::resume(totals, &offsets);
        if self.target.starts().get(id).is_some_and(|start| *start != desc.start_time) {
            counters.begin_anew();
        }
        let beside = sum.map(|sum| live.table.open_part(source, &[sum]));
        let scope = ChildScope { start_time: desc.start_time, lane, beside, counters, place };
        self.scopes.insert(id.clone(), scope);
        Ok(())
    }

    fn main_lane(&self, live: &ProxyLive) -> ScopeId {
        let target = &self.target;
        target.main_lane(|| open_main(live, live.child_tags(&target.key), target.source(), &[]))
    }

    fn own_node(&self, live: &ProxyLive) -> ScopeId {
        self.target.own_node(|| live.table.open_part(self.target.source(), &[live.node]))
    }

    /// When its jobs began, and those that may come back.
    fn starts(&self, live: &ProxyLive, jobs: &[ChildJob]) -> BTreeMap<String, u64> {
        let earlier = self.target.starts().into_iter().filter(|(id, _)| live.runs.has_part(id, &self.target.key));
        let now = jobs.iter().map(|job| (job.desc.jobid.clone(), job.desc.start_time));
        earlier.chain(now).collect()
    }

    /// A job is not live there any more.
    async fn end(&mut self, live: &Arc<ProxyLive>, id: &str) {
        let Some(scope) = self.scopes.remove(id) else { return };
        match scope.place {
            ScopePlace::Main | ScopePlace::OwnNode => live.table.withdraw(scope.lane, Withdrawal::Gauges),
            ScopePlace::Node => {
                live.table.withdraw(scope.lane, Withdrawal::Gauges);
                live.targets.close_node(&live.table, id, scope.lane);
            }
            ScopePlace::Job(seat) => {
                if !seats::leave(live, seat).await {
                    // It goes on elsewhere, and what is true there alone counts.
                    live.table.withdraw(scope.lane, Withdrawal::Gauges);
                }
            }
        }
        if let Some(beside) = scope.beside {
            // Should the job come back, it is told anew.
            live.table.withdraw(beside, Withdrawal::All);
            live.table.close(beside);
        }
    }

    /// The child is lost, or is not polled any more: what it had ends. What it counted stays.
    pub async fn lose(&mut self, live: &Arc<ProxyLive>) {
        let ids: Vec<String> = self.scopes.keys().cloned().collect();
        for id in ids {
            self.end(live, &id).await;
        }
    }
}

/// A profile, which is one of the id that was asked for.
fn parse_profile(answer: &TargetAnswer, id: String, is_ours: bool) -> Result<ChildJob, String> {
    let job = serde_json::from_slice(&answer.body);
    let mut job: ChildJob = job.map_err(|error| format!("the profile of {id} cannot be read: {error}"))?;
    job.desc.jobid = id;
    if !is_ours {
        job.desc.settle_times();
    }
    Ok(job)
}

fn parse(answer: &TargetAnswer) -> Result<(Option<String>, Vec<ChildJob>), String> {
    let mut jobs: Vec<ChildJob> = serde_json::from_slice(&answer.body)
        .map_err(|error| format!("its /job is no list of jobs with their counters: {error}"))?;
    if jobs.len() > CHILD_JOBS_MAX {
        return Err(format!("it has {} jobs; at most {CHILD_JOBS_MAX} are taken", jobs.len()));
    }
    // What an original tells is what its client sent.
    if answer.lineage.is_none() {
        jobs.iter_mut().for_each(|job| job.desc.settle_times());
    }
    // One that is there twice would be counted twice.
    let mut known = BTreeSet::new();
    jobs.retain(|job| known.insert(job.desc.jobid.clone()));
    Ok((answer.lineage.clone(), jobs))
}

fn apply(live: &ProxyLive, target: &ScrapeTarget, scope: &mut ChildScope, job: ChildJob, fall: CounterFall) {
    let id = job.desc.jobid;
    let is_job = scope.beside.is_some();
    let mut readings = Vec::with_capacity(job.counters.len());
    let mut beside = Vec::new();
    for ChildMetric { name, doc, ctype } in job.counters {
        let is_of_node = live.system.doc(&name).is_some();
        // Both read the same machine.
        if is_of_node && matches!(scope.place, ScopePlace::OwnNode) {
            continue;
        }
        let value = match ctype {
            ChildValue::Counter { value: Some(told) } if told.is_finite() => {
                // The counters of a node are in all of its jobs, and are the node's.
                let is_apart = is_of_node && is_job;
                CounterValue::Counter(if is_apart { told } else { scope.counters.total(&name, told, fall) })
            }
            ChildValue::Gauge { min: Some(min), max: Some(max), hits: Some(hits), total: Some(total) } => {
                CounterValue::Gauge(GaugeValue { min, max, hits, total })
            }
            ChildValue::Counter { .. } | ChildValue::Gauge { .. } => continue,
        };
        let reading = CounterReading { name: name.into(), doc: doc.into(), value };
        if is_of_node && is_job { beside.push(reading) } else { readings.push(reading) }
    }
    scope.counters.end_poll(fall);
    // First, so that no total is written that its offset does not explain.
    if let Some(offsets) = scope.counters.changed_offsets() {
        records::keep_offsets(&live.state, &target.key, &id, &offsets);
    }
    let mut refusals = live.table.tell(scope.lane, &readings);
    if let Some(lane) = scope.beside {
        refusals.extend(live.table.tell(lane, &beside));
    }
    for refusal in refusals {
        live.refuse(&refusal);
    }
}

/// The lane of all that a child counts, with what it counted before.
pub fn open_main(live: &ProxyLive, tags: LaneTags, source: GaugeSource, readings: &[CounterReading]) -> ScopeId {
    let lane = live.table.open_lane(tags, source, &[live.main]);
    for refusal in live.table.tell(lane, readings) {
        live.refuse(&refusal);
    }
    lane
}
