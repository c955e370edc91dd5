//! `--until 'loss<=0.1'`: a value that a metric is to get to.

use std::fmt;
use std::str::FromStr;

/// From which side it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalSide {
    AtMost,
    AtLeast,
}

/// A metric, and the value that it is to get to.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricGoal {
    pub metric: String,
    pub side: GoalSide,
    pub value: f64,
}

impl GoalSide {
    pub fn operator(self) -> &'static str {
        match self {
            GoalSide::AtMost => "<=",
            GoalSide::AtLeast => ">=",
        }
    }
}

impl fmt::Display for MetricGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.metric, self.side.operator(), self.value)
    }
}

impl FromStr for MetricGoal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no goal; write METRIC<=NUMBER or METRIC>=NUMBER, in quotes");
        let (metric, rest) = text.split_once("<=").or_else(|| text.split_once(">=")).ok_or_else(wrong)?;
        let side = if text[metric.len()..].starts_with('<') { GoalSide::AtMost } else { GoalSide::AtLeast };
        let value: f64 = rest.trim().parse().map_err(|_| wrong())?;
        let metric = metric.trim();
        if metric.is_empty() || !value.is_finite() {
            return Err(wrong());
        }
        Ok(Self { metric: metric.to_owned(), side, value })
    }
}
