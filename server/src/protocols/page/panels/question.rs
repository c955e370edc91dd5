//! What is asked: the shapes of the request, and what each of its fields may be.

use std::collections::BTreeMap;

use serde::Deserialize;
use telem_engine::{ErrorKind, JOB_TAG, SeriesIndex, Timestamp};

use super::grid::{PanelGrid, round_step};
use super::jobs::JobNaming;
use super::{COLUMNS_MAX, KEYS_MAX, LINES_MAX, NAMES_MAX, PANELS_MAX, ROWS_MAX};
use crate::http::ApiError;

/// The years 1 to 9999, in milliseconds: what a calendar writes.
const MILLIS: std::ops::RangeInclusive<f64> = -62_135_596_800_000.0..=253_402_300_799_999.0;
/// Lines that are sent unless somebody says how many.
const LINES: usize = 16;
const ROWS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanelsQuestion {
    start: f64,
    end: f64,
    pub columns: usize,
    step: Option<i64>,
    pub since: Option<f64>,
    /// Whether panels come as they are ready, whatever their order is.
    #[serde(default)]
    pub as_ready: bool,
    pub panels: Vec<Panel>,
}

/// A question about one metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    pub metric: String,
    /// Series that differ in one of these tags are on lines of their own.
    #[serde(default)]
    pub by: Vec<String>,
    #[serde(default, rename = "where")]
    wanted: BTreeMap<String, ValueFilter>,
    #[serde(default)]
    pub function: LineFunction,
    /// The change a second of each series.
    #[serde(default)]
    pub rate: bool,
    top: Option<LineTop>,
    keep: Option<Vec<BTreeMap<String, Option<String>>>>,
    /// A heat map: a row a line.
    #[serde(default)]
    pub matrix: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ValueFilter {
    Values(Vec<String>),
    /// `*` stands for anything.
    Pattern(String),
}

impl ValueFilter {
    /// Without knowing which values there are: a pattern is a value.
    fn whole(&self) -> TagWish {
        match self {
            Self::Pattern(pattern) if pattern == "*" => TagWish::Any,
            Self::Pattern(value) => TagWish::OneOf(vec![value.clone()]),
            Self::Values(values) => TagWish::OneOf(values.clone()),
        }
    }
}

/// How the series of a line become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineFunction {
    #[default]
    Avg,
    Min,
    Max,
    Sum,
}

impl LineFunction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTop {
    count: Option<usize>,
    order: Option<LineRanking>,
}

/// Which lines come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineRanking {
    Name,
    Max,
    Mean,
    Last,
    /// The distance from the median of all lines.
    Deviation,
}

/// Which lines are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum LineWish {
    First(usize, LineRanking),
    /// Those with these values of the keys of lines.
    Named(Vec<Vec<Option<String>>>),
}

/// What a tag must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagWish {
    Any,
    OneOf(Vec<String>),
}

/// The tags that are filtered by, each once.
pub type PanelFilters = Vec<(String, TagWish)>;

fn invalid(what: String) -> ApiError {
    ApiError::of_kind(ErrorKind::Invalid, what)
}

impl PanelsQuestion {
    /// # Errors
    /// Invalid, with what is wrong.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let question: Self = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body is not a question for panels (docs/page.md): {error}")))?;
        let Self { columns, panels, .. } = &question;
        if !(1..=COLUMNS_MAX).contains(columns) {
            return Err(invalid(format!("columns is {columns}, expected 1 to {COLUMNS_MAX}")));
        }
        if panels.len() > PANELS_MAX {
            return Err(invalid(format!("{} panels, {PANELS_MAX} at most: ask in several requests", panels.len())));
        }
        Ok(question)
    }

    /// The columns of the whole range, and those that are asked for.
    ///
    /// # Errors
    /// Invalid for times that are none, and for more columns than may be.
    pub fn grid(&self) -> Result<(PanelGrid, PanelGrid), ApiError> {
        let (start, end) = (time("start", self.start)?, time("end", self.end)?);
        if end <= start {
            return Err(invalid(format!("end is {}, expected a time after start, {}", self.end, self.start)));
        }
        let step = self.step.unwrap_or_else(|| round_step((self.end - self.start).ceil() as i64, self.columns));
        let whole = PanelGrid::new(start, end, step)?;
        let asked = match self.since {
            Some(since) => whole.since(time("since", since)?),
            None => whole,
        };
        Ok((whole, asked))
    }
}

fn time(name: &str, millis: f64) -> Result<Timestamp, ApiError> {
    if !MILLIS.contains(&millis) {
        return Err(invalid(format!("{name} is {millis}, expected milliseconds since 1970, in the years 1 to 9999")));
    }
    Ok(Timestamp::from_micros((millis * 1e3).round() as i64))
}

impl Panel {
    /// Whether one pass over the samples gives the answer: no series has to be looked at by itself.
    pub fn is_folded(&self) -> bool {
        !self.rate && self.function != LineFunction::Sum
    }

    /// Whether the job that recorded a sample makes lines, or is filtered by.
    pub fn names_job(&self, index: &SeriesIndex) -> bool {
        let is_named = self.by.iter().chain(self.wanted.keys()).any(|key| key == JOB_TAG);
        is_named && !index.tag_keys(&self.metric).iter().any(|known| **known == *JOB_TAG)
    }

    /// What tags must be, as far as series of the metric have them; `None` where no series can match.
    ///
    /// # Errors
    /// Invalid for more than may be asked.
    pub fn filters(&self, index: &SeriesIndex, jobs: &JobNaming) -> Result<Option<PanelFilters>, ApiError> {
        let keys = self.by.len().max(self.wanted.len());
        if keys > KEYS_MAX {
            return Err(invalid(format!("{keys} tags, {KEYS_MAX} at most")));
        }
        let known = index.tag_keys(&self.metric);
        if index.series_count(&self.metric) == 0 {
            return Ok(None);
        }
        let mut filters = Vec::new();
        for (key, filter) in &self.wanted {
            if key == JOB_TAG && !known.iter().any(|known| **known == **key) {
                match (jobs, filter.whole()) {
                    (JobNaming::One(job), TagWish::OneOf(wanted)) if !wanted.contains(job) => {
                        return Ok(None);
                    }
                    (JobNaming::One(_), _) => {}
                    (JobNaming::Tag | JobNaming::Column, wish) => filters.push((key.clone(), wish)),
                }
                continue;
            }
            if !known.iter().any(|known| **known == **key) {
                return Ok(None);
            }
            let there = index.tag_values(&self.metric, key);
            let wish = match filter {
                ValueFilter::Pattern(pattern) if pattern == "*" => TagWish::Any,
                ValueFilter::Pattern(pattern) => {
                    let matching = there.iter().filter(|value| matches(pattern, value));
                    TagWish::OneOf(matching.map(|value| value.to_string()).collect())
                }
                ValueFilter::Values(values) => {
                    let there: std::collections::HashSet<&str> = there.iter().map(|value| &**value).collect();
                    TagWish::OneOf(values.iter().filter(|value| there.contains(&***value)).cloned().collect())
                }
            };
            match &wish {
                TagWish::OneOf(values) if values.is_empty() => return Ok(None),
                TagWish::OneOf(values) if values.len() > NAMES_MAX => {
                    let what = format!("the filter of '{key}' has {} values, {NAMES_MAX} at most", values.len());
                    return Err(invalid(what));
                }
                _ => filters.push((key.clone(), wish)),
            }
        }
        Ok(Some(filters))
    }

    /// Which lines are to be sent.
    pub fn wish(&self) -> LineWish {
        if let Some(named) = &self.keep {
            let of_keys = |tags: &BTreeMap<String, Option<String>>| {
                self.by.iter().map(|key| tags.get(key).cloned().flatten()).collect()
            };
            return LineWish::Named(named.iter().take(self.count_max()).map(of_keys).collect());
        }
        let (count, order) = match self.matrix {
            true => (ROWS, LineRanking::Deviation),
            false => (LINES, LineRanking::Name),
        };
        let top = self.top.unwrap_or(LineTop { count: None, order: None });
        LineWish::First(top.count.unwrap_or(count).min(self.count_max()), top.order.unwrap_or(order))
    }

    fn count_max(&self) -> usize {
        if self.matrix { ROWS_MAX } else { LINES_MAX }
    }
}

/// Whether `text` is what a pattern says, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod pattern_tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in
            [("a*", "a"), ("*", ""), ("a*c", "abc"), ("*b*", "abc"), ("nid*1*", "nid001x"), ("x", "x")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*", "ba"), ("a*a", "a"), ("x", "xy"), ("*b", "abc"), ("a*b*c", "acb")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
