//! `/alarms`: conditions on what is counted, watched at every tick and not only when somebody asks.
//!
//! An alarm belongs to a live job, or to the sum of a node or of everything. Definition and state are records of the
//! database, so that a restart ends none and raises none twice. Each rise and end is an annotation, a row of SQL's
//! `alarms`, a line of the log, and a run of the command of `--on-alarm`. [`telem_query::alarm`] decides.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::response::Response;
use axum::routing::any;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use telem_engine::{Durability, MetaChange, StateRecord, Timestamp};
use telem_ingest::counters::{CounterReading, CounterValue};
use telem_ingest::decode::proxy::label::group_of;
use telem_query::alarm::history::{AlarmEnd, AlarmRise};
use telem_query::alarm::{Alarm, AlarmCondition, AlarmDefinition, AlarmEvent};

use super::live::ProxyLive;
use super::program::Program;
use super::reply::{self, PartState, ProxyRequest, asked};
use super::shapes::finite;
use crate::allocator;

/// The kind of the records of alarms.
pub const ALARM: &str = "proxy.alarm";
/// Most alarms of a server.
pub const ALARMS_MAX: usize = 1_000;
/// Most rises of alarms that a database keeps; beyond, the oldest is forgotten.
pub const RISES_MAX: usize = 10_000;
/// Longest that the command of an alarm may run.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
/// Commands of alarms that run or wait at once.
pub const COMMANDS_MAX: usize = 64;
/// What such a command may say; it goes nowhere.
const COMMAND_OUTPUT_MAX: u64 = 1 << 20;

pub fn routes(live: &Arc<ProxyLive>, alarms: &Arc<ProxyAlarms>) -> Router<Arc<ProxyLive>> {
    let raised = any(|state: PartState<ProxyAlarms>| list(state, Which::Raised));
    let all = any(|state: PartState<ProxyAlarms>| list(state, Which::All));
    Router::new()
        .route("/alarms", raised.clone())
        .route("/alarms/", raised)
        .route("/alarms/list", all.clone())
        .route("/alarms/list/", all)
        .route("/alarms/add", any(add))
        .route("/alarms/add/", any(add))
        .route("/alarms/del", any(delete))
        .route("/alarms/del/", any(delete))
        .route("/alarms/{*other}", any(reply::unknown_segment))
        .with_state((Arc::clone(live), Arc::clone(alarms)))
}

/// All alarms of a server.
#[derive(Debug, Default)]
pub struct ProxyAlarms {
    alarms: Mutex<Vec<Alarm>>,
    /// Held while alarms change and that is written down.
    changing: Mutex<()>,
    /// What commands are still to be run for.
    calls: Mutex<Vec<AlarmCall>>,
}

/// A rise or an end that a command is to be told of.
#[derive(Clone, Debug)]
struct AlarmCall {
    event: AlarmEvent,
    definition: AlarmDefinition,
    value: Option<f64>,
    time: Timestamp,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record_key(definition: &AlarmDefinition) -> String {
    // A list of two texts: nothing in them can be taken for the end of the first.
    serde_json::to_string(&(&definition.target, &definition.name)).unwrap_or_default()
}

fn value_of(reading: &CounterReading) -> f64 {
    match reading.value {
        CounterValue::Counter(value) => value,
        CounterValue::Gauge(gauge) => gauge.average(),
    }
}

/// What an alarm looks at.
enum AlarmSight {
    Value(Option<f64>),
    /// Its job has no client, and may go on.
    Away,
    /// Its job is over since then.
    Over(Timestamp),
}

impl ProxyAlarms {
    /// With what an earlier process of this database kept.
    pub fn restored(live: &ProxyLive) -> Self {
        let snapshot = live.state.db.snapshot();
        let read = |(key, text): (&str, Arc<str>)| {
            serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, alarm = key, "an alarm cannot be read"))
                .ok()
        };
        let alarms = snapshot.meta().records(ALARM).filter_map(read).take(ALARMS_MAX).collect();
        Self { alarms: Mutex::new(alarms), ..Self::default() }
    }

    /// Looks at the value of every alarm.
    pub fn tick(&self, live: &ProxyLive) {
        let _changing = lock(&self.changing);
        let alarms = lock(&self.alarms).clone();
        for mut alarm in alarms {
            match sight(live, &alarm.definition) {
                AlarmSight::Value(value) => self.step(live, &mut alarm, value),
                AlarmSight::Away => {}
                AlarmSight::Over(since) => self.end(live, &alarm, since, AlarmEnd::Job),
            }
        }
    }

    /// One step of one alarm, and what follows from it.
    fn step(&self, live: &ProxyLive, alarm: &mut Alarm, value: Option<f64>) {
        let (before, now) = (alarm.state, live.state.clock.now());
        let event = alarm.step(now.micros().div_euclid(1_000), value);
        if alarm.state == before {
            return;
        }
        {
            let mut alarms = lock(&self.alarms);
            let is_same = |known: &&mut Alarm| is_called(known, &alarm.definition.target, &alarm.definition.name);
            if let Some(known) = alarms.iter_mut().find(is_same) {
                known.state = alarm.state;
            }
        }
        match event {
            Some(AlarmEvent::Raised) => self.note_rise(live, alarm, value.unwrap_or(f64::NAN), now),
            Some(AlarmEvent::Cleared) => self.note_end(live, alarm, now, AlarmEnd::Value, value),
            None => {}
        }
        live.keep(kept(alarm));
    }

    /// Forgets an alarm, which ends if it is raised.
    fn end(&self, live: &ProxyLive, alarm: &Alarm, time: Timestamp, reason: AlarmEnd) {
        let AlarmDefinition { target, name, .. } = &alarm.definition;
        lock(&self.alarms).retain(|known| !is_called(known, target, name));
        if alarm.is_raised() {
            self.note_end(live, alarm, time, reason, None);
        }
        live.keep(StateRecord::removal(ALARM, record_key(&alarm.definition)));
    }

    fn note_rise(&self, live: &ProxyLive, alarm: &Alarm, value: f64, now: Timestamp) {
        let AlarmDefinition { name, target, metric, condition, .. } = &alarm.definition;
        tracing::warn!(alarm = %name, job = %target, %metric, %condition, value, "an alarm is raised");
        let snapshot = live.state.db.snapshot();
        // A process that died between the annotation and the record left it open.
        if open_rise(&snapshot, alarm).is_none() {
            let rise = AlarmRise {
                node: Arc::clone(&live.state.node),
                job: target.as_str().into(),
                alarm: name.clone(),
                metric: metric.clone(),
                condition: condition.to_string(),
                value,
                raised: AlarmRise::free_moment(snapshot.meta(), now),
                ended: None,
            };
            annotate(live, rise.change());
            let known = AlarmRise::all(snapshot.meta());
            if let Some(oldest) = known.first().filter(|_| known.len() >= RISES_MAX) {
                annotate(live, MetaChange::RemoveAnnotation { tsuid: None, start: oldest.raised });
            }
        }
        self.call(AlarmEvent::Raised, alarm, Some(value), now);
    }

    fn note_end(&self, live: &ProxyLive, alarm: &Alarm, time: Timestamp, reason: AlarmEnd, value: Option<f64>) {
        let AlarmDefinition { name, target, metric, condition, .. } = &alarm.definition;
        tracing::info!(alarm = %name, job = %target, %metric, %condition, value, reason = reason.name(), "an alarm ended");
        if let Some(rise) = open_rise(&live.state.db.snapshot(), alarm) {
            annotate(live, AlarmRise { ended: Some((time.max(rise.raised), reason)), ..rise }.change());
        }
        self.call(AlarmEvent::Cleared, alarm, value, time);
    }

    fn call(&self, event: AlarmEvent, alarm: &Alarm, value: Option<f64>, time: Timestamp) {
        let mut calls = lock(&self.calls);
        if calls.len() < COMMANDS_MAX {
            calls.push(AlarmCall { event, definition: alarm.definition.clone(), value, time });
        }
    }

    /// Defines an alarm and looks at its value for the first time.
    fn add(&self, live: &ProxyLive, definition: AlarmDefinition) -> Result<(), String> {
        let _changing = lock(&self.changing);
        let AlarmDefinition { name, target, metric, .. } = &definition;
        let Some((_, scope)) = live.live_job(target) else { return Err(format!("Failed to locate job {target}")) };
        {
            let alarms = lock(&self.alarms);
            if alarms.iter().any(|known| is_called(known, target, name)) {
                return Err(format!("Alarm {name} is already defined"));
            }
            if alarms.len() >= ALARMS_MAX {
                return Err(format!("there are {ALARMS_MAX} alarms, and there can be no more; delete one"));
            }
        }
        let Some(reading) = live.reading(scope, metric) else {
            let group = group_of(metric);
            let is_known = live.table.knows_group(scope, group)
                || live.system.readings().iter().any(|reading| group_of(&reading.name) == group);
            return Err(match is_known {
                true => "Failed to get in metric group".to_owned(),
                false => format!("No such key {metric} cannot get it"),
            });
        };
        definition.check().map_err(|error| error.to_string())?;
        let mut alarm = Alarm::new(definition);
        lock(&self.alarms).push(alarm.clone());
        live.keep(kept(&alarm));
        self.step(live, &mut alarm, Some(value_of(&reading)));
        Ok(())
    }

    fn delete(&self, live: &ProxyLive, target: &str, name: &str) -> Result<(), String> {
        let _changing = lock(&self.changing);
        let found = lock(&self.alarms).iter().find(|known| is_called(known, target, name)).cloned();
        match found {
            Some(alarm) => {
                self.end(live, &alarm, live.state.clock.now(), AlarmEnd::Deletion);
                Ok(())
            }
            None if live.live_job(target).is_none() => Err(format!("Failed to delete Failed to locate job {target}")),
            None => Err(format!("Failed to delete Failed to remove alarm {name}")),
        }
    }
}

fn is_called(alarm: &Alarm, target: &str, name: &str) -> bool {
    alarm.definition.target == target && alarm.definition.name == name
}

fn kept(alarm: &Alarm) -> StateRecord {
    StateRecord::new(ALARM, record_key(&alarm.definition), serde_json::to_string(alarm).unwrap_or_default())
}

fn sight(live: &ProxyLive, definition: &AlarmDefinition) -> AlarmSight {
    let AlarmDefinition { target, metric, .. } = definition;
    match live.live_job(target) {
        Some((_, scope)) => AlarmSight::Value(live.reading(scope, metric).as_ref().map(value_of)),
        None if live.runs.lane(target).is_some() => AlarmSight::Away,
        None => {
            let end = live.runs.finished_one(target, None).map(|run| run.end);
            AlarmSight::Over(end.unwrap_or_else(|| live.state.clock.now()))
        }
    }
}

/// The rise of an alarm that has no end yet.
fn open_rise(snapshot: &telem_engine::Snapshot, alarm: &Alarm) -> Option<AlarmRise> {
    let AlarmDefinition { name, target, .. } = &alarm.definition;
    let is_its = |rise: &AlarmRise| rise.ended.is_none() && rise.alarm == *name && *rise.job == **target;
    AlarmRise::all(snapshot.meta()).into_iter().rev().find(is_its)
}

fn annotate(live: &ProxyLive, change: MetaChange) {
    if let Err(error) = live.state.db.put_meta(change, Durability::Buffered) {
        tracing::warn!(%error, "what an alarm did is not noted in the database");
    }
}

/// Looks at all alarms at every tick, and runs the command of those that were raised or ended, for ever.
pub async fn watch(live: Arc<ProxyLive>, alarms: Arc<ProxyAlarms>) {
    if live.store.is_none() {
        return;
    }
    let mut commands = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(live.options.period) => {
                let (looker, ticking) = (Arc::clone(&live), Arc::clone(&alarms));
                // It writes to the database. The thread that does it is mostly the one that jobs ended on, and would keep
                // what they took for as long as it is asked for ticks.
                let tick = move || {
                    ticking.tick(&looker);
                    allocator::give_back_at_rest();
                };
                if let Err(panic) = tokio::task::spawn_blocking(tick).await {
                    tracing::error!(%panic, "alarms were not looked at");
                }
                let calls = std::mem::take(&mut *lock(&alarms.calls));
                let Some(command) = live.options.on_alarm.clone() else { continue };
                for call in calls {
                    if commands.len() >= COMMANDS_MAX {
                        tracing::warn!(alarm = %call.definition.name, "too many commands of alarms run; one was left out");
                        continue;
                    }
                    commands.push(run_command(Arc::clone(&live), command.clone(), call));
                }
            }
            Some(()) = commands.next(), if !commands.is_empty() => {}
        }
    }
}

async fn run_command(live: Arc<ProxyLive>, command: String, call: AlarmCall) {
    let AlarmCall { event, definition, value, time } = call;
    let AlarmDefinition { name, target, metric, condition, .. } = definition;
    let state = match event {
        AlarmEvent::Raised => "raised",
        AlarmEvent::Cleared => "cleared",
    };
    let program = Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), command.into()],
        environment: vec![
            ("TELEM_ALARM", name.clone().into()),
            ("TELEM_ALARM_STATE", state.into()),
            ("TELEM_ALARM_JOB", target.into()),
            ("TELEM_ALARM_METRIC", metric.into()),
            ("TELEM_ALARM_CONDITION", condition.to_string().into()),
            ("TELEM_ALARM_VALUE", value.map(|value| value.to_string()).unwrap_or_default().into()),
            ("TELEM_ALARM_TIME", crate::info::rfc3339(time).into()),
        ],
        input: Vec::new(),
        deadline: COMMAND_DEADLINE,
        output_bytes_max: COMMAND_OUTPUT_MAX,
    };
    if let Err(error) = live.programs.ask(program).await {
        tracing::warn!(%error, alarm = %name, state, "the command of an alarm failed");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Raised,
    All,
}

/// An alarm, by its fields in the API.
#[derive(Debug, Serialize)]
struct ShownAlarm {
    name: String,
    metric: String,
    operator: AlarmCondition,
    current: f64,
    active: bool,
    pretty: String,
    /// Seconds that the condition must hold; not told where it is none.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    hold_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clear: Option<f64>,
}

async fn list(Of((live, alarms)): PartState<ProxyAlarms>, which: Which) -> Response {
    let jobs = live.live_jobs();
    let mut shown: BTreeMap<String, Vec<ShownAlarm>> = BTreeMap::new();
    let alarms = lock(&alarms.alarms).clone();
    for (desc, scope) in jobs {
        let of_job = alarms.iter().filter(|alarm| alarm.definition.target == desc.jobid);
        let wanted = of_job.filter(|alarm| which == Which::All || alarm.is_raised());
        let wanted = wanted.map(|alarm| show(&live, alarm, live.reading(scope, &alarm.definition.metric))).collect();
        shown.insert(desc.jobid, wanted);
    }
    reply::json(&shown)
}

fn show(live: &ProxyLive, alarm: &Alarm, reading: Option<CounterReading>) -> ShownAlarm {
    let AlarmDefinition { name, metric, condition, hold_s, clear, .. } = &alarm.definition;
    let doc = reading.as_ref().map(|reading| Arc::clone(&reading.doc)).unwrap_or_default();
    let told = match reading.as_ref().map(|reading| reading.value) {
        Some(CounterValue::Counter(value)) => format!("{} {value} COUNTER", live.now_ms().saturating_mul(1_000)),
        Some(CounterValue::Gauge(gauge)) => format!(
            "{} (Min: {}, Max : {}, Hits: {}, Total : {}) GAUGE",
            gauge.average(),
            gauge.min,
            gauge.max,
            gauge.hits,
            gauge.total
        ),
        None => "unknown".to_owned(),
    };
    ShownAlarm {
        name: name.clone(),
        metric: metric.clone(),
        operator: *condition,
        current: finite(reading.as_ref().map_or(0.0, value_of)),
        active: alarm.is_raised(),
        pretty: format!("{name} : {metric} ({doc}) = {told} {condition}"),
        hold_s: Some(*hold_s).filter(|hold_s| *hold_s > 0.0),
        clear: *clear,
    }
}

#[derive(Debug, Deserialize)]
struct NewAlarm {
    name: String,
    target: String,
    metric: String,
    operation: String,
    value: f64,
    #[serde(rename = "for", default)]
    hold_s: f64,
    #[serde(default)]
    clear: Option<f64>,
}

async fn add(Of((live, alarms)): PartState<ProxyAlarms>, request: Request) -> Response {
    let told: NewAlarm = match reply::json_body(request, &live.state.limits.bodies).await {
        Ok(told) => told,
        Err(why) => return reply::refused(&why),
    };
    if live.store.is_none() {
        return reply::failed(live.state.refusal.status(), live.state.refusal.message());
    }
    let NewAlarm { name, target, metric, operation, value, hold_s, clear } = told;
    let condition = match AlarmCondition::new(&operation, value) {
        Ok(condition) => condition,
        Err(error) => return reply::refused(&error.to_string()),
    };
    let definition = AlarmDefinition { name, target, metric, condition, hold_s, clear };
    reply::beside(live, move |live| match alarms.add(live, definition) {
        Ok(()) => reply::done("alarm registered"),
        Err(why) => reply::refused(&why),
    })
    .await
}

#[derive(Debug, Deserialize)]
struct NamedAlarm {
    target: String,
    name: String,
}

async fn delete(Of((live, alarms)): PartState<ProxyAlarms>, request: Request) -> Response {
    let named = match asked::<NamedAlarm>(request, &live.state).await {
        Ok(ProxyRequest::Query(params)) => match (params.get("targetjob"), params.get("name")) {
            (Some(target), Some(name)) => Ok(NamedAlarm { target: target.to_owned(), name: name.to_owned() }),
            _ => Err("Missing 'name' GET parameter".to_owned()),
        },
        Ok(ProxyRequest::Body(named)) => Ok(named),
        Ok(ProxyRequest::Other(_)) => Err("No such request type".to_owned()),
        Err(why) => Err(format!("Failed to parse json {why}")),
    };
    let NamedAlarm { target, name } = match named {
        Ok(named) => named,
        Err(why) => return reply::refused(&why),
    };
    if live.store.is_none() {
        return reply::failed(live.state.refusal.status(), live.state.refusal.message());
    }
    reply::beside(live, move |live| match alarms.delete(live, &target, &name) {
        Ok(()) => reply::done(&format!("Deleted {name} from {target}")),
        Err(why) => reply::refused(&why),
    })
    .await
}
