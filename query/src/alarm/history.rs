//! When alarms were raised and ended, as a database keeps it: annotations, so that graphs show them, and rows of SQL's
//! `alarms`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use telem_engine::{Annotation, Meta, MetaChange, Timestamp};

/// What says that an annotation is one of an alarm.
const ALARM: &str = "alarm";
const NODE: &str = "node";
const JOB: &str = "job";
const METRIC: &str = "metric";
const CONDITION: &str = "condition";
const VALUE: &str = "value";
const ENDED_BY: &str = "ended_by";
/// How many microseconds later an alarm is noted at most where others have the moment already.
const LATER_MAX: i64 = 10_000;

/// Why an alarm is not raised any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmEnd {
    /// The value came back.
    Value,
    /// The job is over.
    Job,
    /// Somebody deleted the alarm.
    Deletion,
}

impl AlarmEnd {
    const ALL: [Self; 3] = [Self::Value, Self::Job, Self::Deletion];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Job => "job",
            Self::Deletion => "deletion",
        }
    }
}

/// One time that an alarm was raised.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmRise {
    /// Where it was noticed.
    pub node: Arc<str>,
    pub job: Arc<str>,
    pub alarm: String,
    pub metric: String,
    /// Such as `> 5`.
    pub condition: String,
    /// What raised it.
    pub value: f64,
    pub raised: Timestamp,
    /// When it ended, and why; `None` while it is raised.
    pub ended: Option<(Timestamp, AlarmEnd)>,
}

impl AlarmRise {
    /// What stores it, in the place of what was known of the same one.
    pub fn change(&self) -> MetaChange {
        let ended_by = self.ended.map(|(_, end)| (ENDED_BY, end.name().to_owned()));
        let fields = [
            (ALARM, self.alarm.clone()),
            (NODE, self.node.to_string()),
            (JOB, self.job.to_string()),
            (METRIC, self.metric.clone()),
            (CONDITION, self.condition.clone()),
            (VALUE, self.value.to_string()),
        ];
        let custom: BTreeMap<String, String> =
            fields.into_iter().chain(ended_by).map(|(key, value)| (key.to_owned(), value)).collect();
        MetaChange::Annotate(Annotation {
            tsuid: None,
            start: self.raised,
            end: self.ended.map(|(end, _)| end),
            description: format!("alarm {}: {} {}, in {}", self.alarm, self.metric, self.condition, self.job),
            notes: format!("the value was {}", self.value),
            custom,
        })
    }

    /// What an annotation says, if it is one of an alarm.
    fn of(annotation: &Annotation) -> Option<Self> {
        let text = |key: &str| annotation.custom.get(key);
        let reason = AlarmEnd::ALL.into_iter().find(|end| text(ENDED_BY).is_some_and(|name| name == end.name()));
        Some(Self {
            alarm: text(ALARM)?.clone(),
            node: text(NODE)?.as_str().into(),
            job: text(JOB)?.as_str().into(),
            metric: text(METRIC)?.clone(),
            condition: text(CONDITION)?.clone(),
            value: text(VALUE)?.parse().ok()?,
            raised: annotation.start,
            ended: annotation.end.map(|end| (end, reason.unwrap_or(AlarmEnd::Value))),
        })
    }

    /// All of them, by time.
    pub fn all(meta: &Meta) -> Vec<Self> {
        meta.annotations().iter().filter(|annotation| annotation.tsuid.is_none()).filter_map(Self::of).collect()
    }

    /// The time at which a rise can be noted that happened `at`: a moment of its own, as annotations have.
    pub fn free_moment(meta: &Meta, at: Timestamp) -> Timestamp {
        let taken =
            |time: &Timestamp| meta.annotations().iter().any(|known| known.tsuid.is_none() && known.start == *time);
        let mut moments = (0..LATER_MAX).map(|later| at.saturating_add_micros(later));
        moments.find(|time| !taken(time)).unwrap_or(at)
    }
}
