//! Alarms: a condition on the last value of a metric, and whether it is met.
//!
//! The one idea: an alarm decides without a clock and without a database. Whoever asks brings the time and the value, and
//! gets what changed. So its state can be written down and go on elsewhere: after a restart an alarm is raised no second
//! time, and a condition that must hold for a while has not to begin anew.

pub mod history;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of the name of an alarm.
pub const ALARM_NAME_BYTES_MAX: usize = 256;
/// Seconds that a condition can be asked to hold: a year.
pub const ALARM_HOLD_S_MAX: f64 = 366.0 * 86_400.0;

/// What a value must be compared with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum AlarmCondition {
    More(f64),
    Less(f64),
    /// Exactly, as floats are.
    Equal(f64),
}

impl AlarmCondition {
    /// From the sign before a limit.
    ///
    /// # Errors
    /// Where it is none of `>`, `<` and `=`.
    pub fn new(sign: &str, limit: f64) -> Result<Self, AlarmError> {
        match sign {
            ">" => Ok(Self::More(limit)),
            "<" => Ok(Self::Less(limit)),
            "=" => Ok(Self::Equal(limit)),
            _ => Err(AlarmError::Sign { found: sign.to_owned() }),
        }
    }

    pub fn sign(self) -> &'static str {
        match self {
            Self::More(_) => ">",
            Self::Less(_) => "<",
            Self::Equal(_) => "=",
        }
    }

    pub fn limit(self) -> f64 {
        let (Self::More(limit) | Self::Less(limit) | Self::Equal(limit)) = self;
        limit
    }

    /// Never of what is no number.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::More(limit) => value > limit,
            Self::Less(limit) => value < limit,
            Self::Equal(limit) => value == limit,
        }
    }

    /// Whether a raised alarm ends: the value came back to `clear`, or to the limit without one. Never of what is no
    /// number.
    fn is_over(self, value: f64, clear: Option<f64>) -> bool {
        match self {
            Self::More(limit) => value <= clear.unwrap_or(limit),
            Self::Less(limit) => value >= clear.unwrap_or(limit),
            Self::Equal(limit) => value != limit && !value.is_nan(),
        }
    }
}

/// `> 5`.
impl fmt::Display for AlarmCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.sign(), self.limit())
    }
}

/// Why there can be no such alarm.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AlarmError {
    #[error("No operator for {found} only has = < and >")]
    Sign { found: String },
    #[error("the name of the alarm has {found} bytes: expected 1 to {max}")]
    Name { found: usize, max: usize },
    #[error("the limit of the alarm is {found}: expected a finite number")]
    Limit { found: f64 },
    #[error("\"for\" is {found}: expected seconds from 0 to {max}")]
    Hold { found: f64, max: f64 },
    #[error("\"clear\" is {found}: expected a finite number that {condition} is not met by")]
    Clear { found: f64, condition: AlarmCondition },
    #[error("\"clear\" is {found}: expected none, because = ends with any other value")]
    ClearOfEqual { found: f64 },
}

/// What somebody wants to be told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlarmDefinition {
    pub name: String,
    /// The id of a job.
    pub target: String,
    /// The full name of a metric, labels included.
    pub metric: String,
    #[serde(rename = "operator")]
    pub condition: AlarmCondition,
    /// Seconds that the condition must hold before it counts.
    #[serde(rename = "for", default)]
    pub hold_s: f64,
    /// What the value must come back to before the alarm ends; the limit itself where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear: Option<f64>,
}

impl AlarmDefinition {
    /// # Errors
    /// Names what cannot be, such as an end that lies behind the limit.
    pub fn check(&self) -> Result<(), AlarmError> {
        let (len, max) = (self.name.len(), ALARM_NAME_BYTES_MAX);
        if len == 0 || len > max {
            return Err(AlarmError::Name { found: len, max });
        }
        let limit = self.condition.limit();
        if !limit.is_finite() {
            return Err(AlarmError::Limit { found: limit });
        }
        if !(0.0..=ALARM_HOLD_S_MAX).contains(&self.hold_s) {
            return Err(AlarmError::Hold { found: self.hold_s, max: ALARM_HOLD_S_MAX });
        }
        let Some(clear) = self.clear else { return Ok(()) };
        match self.condition {
            AlarmCondition::Equal(_) => Err(AlarmError::ClearOfEqual { found: clear }),
            condition if !clear.is_finite() || condition.is_met(clear) => {
                Err(AlarmError::Clear { found: clear, condition })
            }
            _ => Ok(()),
        }
    }

    fn hold_ms(&self) -> i64 {
        // Within a year, once it was checked; a cast of anything else saturates.
        (self.hold_s * 1e3).round() as i64
    }
}

/// Where an alarm stands. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmState {
    #[default]
    Quiet,
    /// The condition is met, and has not held for long enough.
    Pending {
        since_ms: i64,
    },
    Raised {
        since_ms: i64,
    },
}

/// What a step changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmEvent {
    Raised,
    Cleared,
}

/// A definition and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    #[serde(flatten)]
    pub definition: AlarmDefinition,
    #[serde(default)]
    pub state: AlarmState,
}

impl Alarm {
    pub fn new(definition: AlarmDefinition) -> Self {
        Self { definition, state: AlarmState::Quiet }
    }

    pub fn is_raised(&self) -> bool {
        matches!(self.state, AlarmState::Raised { .. })
    }

    /// Looks at a value; `None` is no value and changes nothing. What is no number raises nothing, ends nothing, and
    /// breaks what must hold. A clock that went back lets a condition begin to hold anew.
    pub fn step(&mut self, now_ms: i64, value: Option<f64>) -> Option<AlarmEvent> {
        let value = value?;
        let AlarmDefinition { condition, clear, .. } = self.definition;
        let (state, event) = match self.state {
            AlarmState::Raised { .. } if condition.is_over(value, clear) => {
                (AlarmState::Quiet, Some(AlarmEvent::Cleared))
            }
            AlarmState::Raised { .. } => return None,
            _ if !condition.is_met(value) => (AlarmState::Quiet, None),
            before => {
                let since_ms = match before {
                    AlarmState::Pending { since_ms } if since_ms <= now_ms => since_ms,
                    _ => now_ms,
                };
                match now_ms.saturating_sub(since_ms) >= self.definition.hold_ms() {
                    true => (AlarmState::Raised { since_ms: now_ms }, Some(AlarmEvent::Raised)),
                    false => (AlarmState::Pending { since_ms }, None),
                }
            }
        };
        self.state = state;
        event
    }
}
