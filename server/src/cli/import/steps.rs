//! Steps beside values: what programs log by step becomes values by time, and a metric `step` with the same times and
//! tags, as clients of telem write it.
//!
//! Two values of one series never get one time, and neither do two steps: the later moves to the next free microsecond.
//! That holds as far back as [`MOMENTS_MAX`] times, which bounds the memory.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};

use telem_engine::{Timestamp, Value};

use super::Importing;
use super::report::{RefusedKind, RowPlace};
use super::store::SeriesRefusal;
use crate::cli::CliFailure;

/// The metric of steps.
pub const STEP: &str = "step";
const MOMENTS_MAX: usize = 1 << 16;

/// The times of one writer, and what it wrote at them.
#[derive(Debug, Default)]
pub struct Moments {
    by_time: HashMap<i64, StepMoment>,
    /// In the order in which they came.
    order: VecDeque<i64>,
}

#[derive(Debug)]
struct StepMoment {
    step: Option<i64>,
    /// Which of the writer's metrics have a value then.
    metrics: Vec<u32>,
}

impl Moments {
    /// The time for values of `metrics` at a step: `micros`, or the first behind it that has no other step and none of
    /// the metrics yet. Whether the step has to be written, too.
    pub fn place(&mut self, micros: i64, step: Option<i64>, metrics: &[u32]) -> (i64, bool) {
        let mut at = micros;
        loop {
            match self.by_time.get_mut(&at) {
                None => {
                    if self.order.len() >= MOMENTS_MAX
                        && let Some(oldest) = self.order.pop_front()
                    {
                        self.by_time.remove(&oldest);
                    }
                    self.by_time.insert(at, StepMoment { step, metrics: metrics.to_vec() });
                    self.order.push_back(at);
                    return (at, step.is_some());
                }
                Some(moment) => {
                    let is_free = metrics.iter().all(|metric| !moment.metrics.contains(metric));
                    let fits = step.is_none() || moment.step.is_none() || moment.step == step;
                    if is_free && fits {
                        moment.metrics.extend_from_slice(metrics);
                        let is_new = step.is_some() && moment.step.is_none();
                        moment.step = moment.step.or(step);
                        return (at, is_new);
                    }
                }
            }
            // The end of time is refused by who takes the sample.
            at = at.saturating_add(1);
            if at == i64::MAX {
                return (at, step.is_some());
            }
        }
    }
}

/// A writer of values by step: one run of TensorBoard, or of wandb.
#[derive(Debug, Default)]
pub struct StepWriter {
    tags: Vec<(String, String)>,
    moments: Moments,
    /// The metrics of this writer by the name that it gave them.
    metrics: BTreeMap<String, (u32, String)>,
}

impl StepWriter {
    pub fn new(tags: Vec<(String, String)>) -> Self {
        Self { tags, ..Self::default() }
    }

    /// Takes the values of one moment. `metrics` are called as their writer did.
    ///
    /// # Errors
    /// Failed when the store fails.
    pub fn put(
        &mut self,
        micros: i64,
        step: Option<i64>,
        values: &[(String, Value)],
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        importing.names.reserve(STEP);
        let mut chosen = Vec::with_capacity(values.len());
        for (raw, value) in values {
            let (id, name) = match self.metrics.get(raw) {
                Some(known) => known.clone(),
                None => {
                    let report = &importing.report;
                    let name = importing.names.metric(raw, |line| report.say(&line));
                    let id = u32::try_from(self.metrics.len()).unwrap_or(u32::MAX);
                    self.metrics.insert(raw.clone(), (id, name.clone()));
                    (id, name)
                }
            };
            let globs = &importing.rules.metrics;
            if globs.is_empty() || globs.iter().any(|glob| glob.matches(raw) || glob.matches(&name)) {
                chosen.push((id, name, *value));
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = chosen.iter().map(|(id, _, _)| *id).collect();
        let (at, is_new_step) = self.moments.place(micros, step, &ids);
        if at == i64::MAX {
            return importing.report.refuse(place, RefusedKind::Time, "the time is the end of time");
        }
        let at = Timestamp::from_micros(at);
        for (_, name, value) in chosen {
            self.sample(&name, at, value, place, importing)?;
        }
        match step {
            Some(step) if is_new_step => self.sample(STEP, at, Value::Int(step), place, importing),
            _ => Ok(()),
        }
    }

    fn sample(
        &self,
        metric: &str,
        at: Timestamp,
        value: Value,
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        let mut known = b"S".to_vec();
        for text in self.tags.iter().flat_map(|(key, value)| [&**key, &**value]).chain([metric]) {
            known.extend_from_slice(&(text.len() as u64).to_le_bytes());
            known.extend_from_slice(text.as_bytes());
        }
        let store = &mut importing.store;
        let tags = self.tags.iter().map(|(key, value)| (&**key, &**value));
        let series = match store.known(&known) {
            Some(series) => Ok(series),
            None => store.series(&known, None, metric, tags),
        };
        match series {
            Ok(series) => store.push(series, at, value),
            Err(SeriesRefusal::Name(why)) => importing.report.refuse(place, RefusedKind::Name, &why),
            Err(SeriesRefusal::Failed(failure)) => Err(failure),
        }
    }
}
