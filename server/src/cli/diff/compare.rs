//! The comparison itself: what differs of the descriptions, and how much each metric changed. No input and no output.
//!
//! How much a metric changed is the median, over all stretches of time (or steps) that both runs have, of the
//! difference relative to the mean of both amounts, times the share by which one direction prevails. A value that is
//! higher throughout counts in full, one that is higher here and lower there hardly, and a few outliers not at all.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::stats::{Significance, quantile, welch};

/// Changes in one band are equal as far as the order is concerned: there the program's own metrics come first.
const BANDS: [f64; 6] = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01];

/// One run as it was read.
#[derive(Clone, Debug, Default)]
pub struct DiffRun {
    /// As it was named.
    pub label: String,
    /// Texts by what they describe, in the order of [`FACTS`], then settings and tags.
    pub facts: BTreeMap<Fact, String>,
    pub metrics: BTreeMap<String, DiffMetric>,
}

/// What is known of a run before any sample. The order is that of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    Setting(String),
    Tag(String),
    Name,
    Command,
    Commit,
    Nodes,
    State,
    ExitCode,
    Duration,
}

impl Fact {
    pub fn name(&self) -> String {
        match self {
            Fact::Setting(key) => key.clone(),
            Fact::Tag(key) => format!("tag {key}"),
            Fact::Name => "name".to_owned(),
            Fact::Command => "command".to_owned(),
            Fact::Commit => "git commit".to_owned(),
            Fact::Nodes => "nodes".to_owned(),
            Fact::State => "state".to_owned(),
            Fact::ExitCode => "exit code".to_owned(),
            Fact::Duration => "duration".to_owned(),
        }
    }
}

/// What a metric's numbers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricNumbers {
    #[default]
    Value,
    /// Of a counter: its increase per second.
    Rate,
}

/// The sender of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    #[default]
    Program,
    Telem,
}

/// One metric of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffMetric {
    pub measured: MetricNumbers,
    pub sender: Sender,
    pub unit: Option<String>,
    pub figures: DiffFigures,
    /// The mean of each series.
    pub series_means: Vec<f64>,
    /// The mean over series, by stretch of time or by step.
    pub curve: BTreeMap<i64, f64>,
}

/// The figures of one metric of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiffFigures {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub max: Option<f64>,
    pub last: Option<f64>,
    pub samples: u64,
    /// Samples that are no numbers; the figures leave them out.
    pub nan: u64,
    pub series: usize,
}

impl DiffFigures {
    /// Of the values themselves, which come by time or by step.
    pub fn of_curve(curve: &BTreeMap<i64, f64>) -> Self {
        let mut sorted: Vec<f64> = curve.values().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        Self {
            mean: (count > 0).then(|| sorted.iter().sum::<f64>() / count as f64),
            p50: quantile(&sorted, 0.5),
            p95: quantile(&sorted, 0.95),
            max: sorted.last().copied(),
            last: curve.last_key_value().map(|(_, value)| *value),
            samples: count as u64,
            nan: 0,
            series: 0,
        }
    }
}

/// What places of curves mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Alignment {
    /// Stretches of the time since the start: between its values a run keeps the last one.
    Time,
    /// Steps: only those that both runs have are compared.
    Step,
}

/// How a metric differs from that of the first run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiffChange {
    /// Of the means, relative to the first run's.
    pub relative: Option<f64>,
    /// The mean difference at equal times or steps.
    pub difference: Option<f64>,
    /// How many times or steps are compared.
    pub compared: usize,
    /// What the order is made by, from 0 to 2.
    pub measure: f64,
    pub significance: Option<Significance>,
}

/// One metric of all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricDiff {
    pub metric: String,
    pub measured: MetricNumbers,
    pub sender: Sender,
    pub unit: Option<String>,
    /// In the order of the runs.
    pub figures: Vec<Option<DiffFigures>>,
    /// Of the runs behind the first.
    pub changes: Vec<Option<DiffChange>>,
    pub curves: Vec<BTreeMap<i64, f64>>,
}

impl MetricDiff {
    pub fn measure(&self) -> f64 {
        self.changes.iter().flatten().map(|change| change.measure).fold(0.0, f64::max)
    }

    /// That of the band that its greatest change is in; 0 is the greatest.
    fn band(&self) -> usize {
        let measure = self.measure();
        let found = BANDS.iter().position(|least| measure >= *least);
        found.unwrap_or(if measure > 0.0 { BANDS.len() } else { BANDS.len() + 1 })
    }
}

/// A fact that is not the same for all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactDiff {
    pub fact: Fact,
    pub values: Vec<Option<String>>,
}

/// Everything that differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunsDiff {
    pub facts: Vec<FactDiff>,
    /// Those that the first run and another one have, by how much they changed.
    pub metrics: Vec<MetricDiff>,
    /// Other metrics, with the runs that have them.
    pub not_compared: Vec<(String, Vec<usize>)>,
}

/// Compares the runs behind the first with the first.
pub fn compare(runs: &[DiffRun], alignment: Alignment) -> RunsDiff {
    let Some((first, others)) = runs.split_first() else { return RunsDiff::default() };
    let facts: BTreeSet<&Fact> = runs.iter().flat_map(|run| run.facts.keys()).collect();
    let facts = facts.into_iter().filter_map(|fact| {
        let values: Vec<Option<String>> = runs.iter().map(|run| run.facts.get(fact).cloned()).collect();
        let differs = values.windows(2).any(|two| two[0] != two[1]);
        differs.then(|| FactDiff { fact: fact.clone(), values })
    });
    let facts = facts.collect();
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.metrics.keys()).collect();
    let (mut metrics, mut not_compared) = (Vec::new(), Vec::new());
    for name in names {
        let found: Vec<Option<&DiffMetric>> = runs.iter().map(|run| run.metrics.get(name)).collect();
        let with: Vec<usize> = (0..runs.len()).filter(|at| found[*at].is_some()).collect();
        if with.len() < runs.len() {
            not_compared.push((name.clone(), with));
        }
        let Some(of_first) = first.metrics.get(name) else { continue };
        let changes: Vec<Option<DiffChange>> =
            others.iter().map(|run| Some(change(of_first, run.metrics.get(name)?, alignment))).collect();
        if changes.iter().all(Option::is_none) {
            continue;
        }
        metrics.push(MetricDiff {
            metric: name.clone(),
            measured: of_first.measured,
            sender: of_first.sender,
            unit: of_first.unit.clone(),
            figures: found.iter().map(|metric| metric.map(|metric| metric.figures.clone())).collect(),
            changes,
            curves: found.iter().map(|metric| metric.map_or_else(BTreeMap::new, |one| one.curve.clone())).collect(),
        });
    }
    metrics.sort_by(|a, b| {
        let by_band = a.band().cmp(&b.band()).then(a.sender.cmp(&b.sender));
        by_band.then(b.measure().total_cmp(&a.measure())).then_with(|| a.metric.cmp(&b.metric))
    });
    RunsDiff { facts, metrics, not_compared }
}

/// How `b` differs from `a`.
pub fn change(a: &DiffMetric, b: &DiffMetric, alignment: Alignment) -> DiffChange {
    let mut pairs = aligned(&a.curve, &b.curve, alignment);
    let compared = pairs.len();
    let of_means = a.figures.mean.zip(b.figures.mean);
    if pairs.is_empty() {
        pairs.extend(of_means);
    }
    let count = pairs.len().max(1) as f64;
    let difference = (!pairs.is_empty()).then(|| pairs.iter().map(|(a, b)| b - a).sum::<f64>() / count);
    let relative = match alignment {
        Alignment::Time => of_means.and_then(|(a, b)| relative(b - a, a)),
        Alignment::Step => {
            let of_first = pairs.iter().map(|(a, _)| a).sum::<f64>() / count;
            difference.and_then(|difference| relative(difference, of_first))
        }
    };
    let significance = welch(&a.series_means, &b.series_means);
    // A loss that is no number any more is the first thing to know.
    let measure = if (a.figures.nan == 0) == (b.figures.nan == 0) { measure(&pairs) } else { MEASURE_MAX };
    DiffChange { relative, difference, compared, measure, significance }
}

fn relative(difference: f64, base: f64) -> Option<f64> {
    let relative = if difference == 0.0 { 0.0 } else { difference / base.abs() };
    relative.is_finite().then_some(relative)
}

/// The greatest measure of a change.
const MEASURE_MAX: f64 = 2.0;

/// What the order of metrics is made by: see the head of this file. From 0 to 2, the same either way round.
fn measure(pairs: &[(f64, f64)]) -> f64 {
    let each = pairs.iter().map(|(a, b)| {
        let amount = (a.abs() + b.abs()) / 2.0;
        if a == b || amount == 0.0 {
            return 0.0;
        }
        // What diverged changed as much as can be.
        if amount.is_infinite() {
            return MEASURE_MAX.copysign(b - a);
        }
        ((b - a) / amount).clamp(-MEASURE_MAX, MEASURE_MAX)
    });
    let mut each: Vec<f64> = each.filter(|change| !change.is_nan()).collect();
    each.sort_by(f64::total_cmp);
    let (up, down) = (each.iter().filter(|d| **d > 0.0).count(), each.iter().filter(|d| **d < 0.0).count());
    let prevails = up.abs_diff(down) as f64 / each.len().max(1) as f64;
    // Halves of the two in the middle, which are the same from both sides.
    let median = match each.len() {
        0 => 0.0,
        count => (each[(count - 1) / 2] + each[count / 2]) / 2.0,
    };
    median.abs() * prevails
}

/// The values of two curves at the places that both have.
fn aligned(a: &BTreeMap<i64, f64>, b: &BTreeMap<i64, f64>, alignment: Alignment) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (
        a.keys().next().max(b.keys().next()).copied(),
        a.keys().next_back().zip(b.keys().next_back()).map(|(a, b)| *a.min(b)),
    ) else {
        return Vec::new();
    };
    if a.is_empty() || b.is_empty() || first > last {
        return Vec::new();
    }
    match alignment {
        Alignment::Step => a.range(first..=last).filter_map(|(step, value)| Some((*value, *b.get(step)?))).collect(),
        Alignment::Time => {
            let places: BTreeSet<i64> = a.range(first..=last).chain(b.range(first..=last)).map(|(at, _)| *at).collect();
            let at =
                |curve: &BTreeMap<i64, f64>, place: i64| curve.range(..=place).next_back().map(|(_, value)| *value);
            places.into_iter().filter_map(|place| at(a, place).zip(at(b, place))).collect()
        }
    }
}
