//! One run, asked in SQL: a saved one in this process, a live one at its server. Each is opened on its own, so that
//! equal series of two runs stay two.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value as Json;
use telem_ingest::collect::catalog;
use telem_query::RowOrder;

use super::compare::{DiffFigures, DiffMetric, DiffRun, Fact, MetricNumbers, Sender};
use super::counter::{CounterRates, SeriesIntegral, SeriesStretch};
use super::goal::MetricGoal;
use super::stats::quantile;
use crate::cli::CliFailure;
use crate::cli::cells::{literal, numbers, texts, whole};
use crate::cli::glob::Glob;
use crate::cli::source::{RunSource, StrictArg};
use crate::info::human;
use crate::missing::Lacking;

/// Of more samples the percentiles are approximate: the exact ones need all values in memory.
const EXACT_MAX: u64 = 20_000_000;
/// Metrics are asked for together while they have no more: a query has its price, and so have rows in memory.
const SERIES_AT_ONCE: u64 = 1_000;
const SAMPLES_AT_ONCE: u64 = 5_000_000;

/// Where a run is asked, and what is known of it before its samples.
pub struct RunReader {
    label: String,
    source: RunSource,
    /// Microseconds since the epoch.
    begin_us: i64,
    end_us: i64,
    metrics: BTreeMap<String, KnownMetric>,
}

#[derive(Clone, Debug, Default)]
struct KnownMetric {
    is_counter: bool,
    unit: Option<String>,
    series: u64,
}

/// What one metric's samples are, in stretches of time.
#[derive(Clone, Debug, Default)]
struct MetricStretches {
    /// By tags.
    series: BTreeMap<String, Vec<SeriesStretch>>,
    /// Samples that are no numbers.
    nan: u64,
}

/// Energy that a metric tells of, in joules.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricEnergy {
    pub metric: String,
    pub joules: f64,
}

/// When a metric first got to a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalReached {
    pub seconds: f64,
    pub step: Option<i64>,
}

impl RunReader {
    /// # Errors
    /// Failed where there is no such run: names it, and says what else to name.
    pub async fn open(named: &str, strict: StrictArg) -> Result<(Self, DiffRun), CliFailure> {
        let open = async {
            let source = RunSource::open(named, strict)?;
            let mut reader = Self { label: named.to_owned(), source, begin_us: 0, end_us: 0, metrics: BTreeMap::new() };
            let run = reader.describe().await?;
            Ok((reader, run))
        };
        open.await.map_err(|failure: CliFailure| match failure {
            CliFailure::Usage(message) => CliFailure::Usage(message),
            other => CliFailure::Failed(format!(
                "cannot read the run '{named}': {}; `telem ls` lists saved runs, and a running one is named by its URL",
                other.into_message()
            )),
        })
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    /// The nodes that did not answer.
    pub fn lacking(&self) -> &Lacking {
        self.source.lacking()
    }

    pub fn duration_us(&self) -> i64 {
        self.end_us.saturating_sub(self.begin_us).max(0)
    }

    pub fn metrics(&self) -> impl Iterator<Item = &String> {
        self.metrics.keys()
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<RecordBatch>, CliFailure> {
        self.source.ask(sql).await
    }

    /// What ran, when, and which metrics it has.
    async fn describe(&mut self) -> Result<DiffRun, CliFailure> {
        let mut run = DiffRun { label: self.label.clone(), ..DiffRun::default() };
        let series = "SELECT metric, CAST(min(first_ts) AS BIGINT), CAST(max(last_ts) AS BIGINT), count(*) \
                      FROM series GROUP BY 1";
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for batch in self.ask(series).await? {
            let (names, firsts, lasts) = (texts(&batch, 0)?, whole(&batch, 1)?, whole(&batch, 2)?);
            let counts = whole(&batch, 3)?;
            for row in 0..batch.num_rows() {
                let known = self.metrics.entry(names.value(row).to_owned()).or_default();
                known.series = u64::try_from(counts.value(row)).unwrap_or(0);
                first = first.min(firsts.value(row));
                last = last.max(lasts.value(row));
            }
        }
        if self.metrics.is_empty() {
            return Err(CliFailure::Failed(self.source.run().empty()));
        }
        let kinds = "SELECT metric, max(\"type\"), max(unit) FROM metrics GROUP BY 1";
        for batch in self.ask(kinds).await? {
            let [names, kinds, units] = [texts(&batch, 0)?, texts(&batch, 1)?, texts(&batch, 2)?];
            for row in 0..batch.num_rows() {
                let unit = units.is_valid(row).then(|| units.value(row).to_owned()).filter(|unit| !unit.is_empty());
                let kind = if kinds.is_valid(row) { kinds.value(row) } else { "unknown" };
                let name = names.value(row);
                // OpenMetrics ends the names of counters like that; nothing else does.
                let is_counter = kind == "counter" || kind == "unknown" && name.ends_with("_total");
                let known = self.metrics.entry(name.to_owned()).or_default();
                (known.is_counter, known.unit) = (is_counter, unit);
            }
        }
        let mut nodes = 0;
        for batch in self.ask("SELECT count(*) FROM nodes").await? {
            nodes += whole(&batch, 0)?.iter().flatten().sum::<i64>();
        }
        run.facts.insert(Fact::Nodes, nodes.to_string());
        let jobs = "SELECT description, state, command, CAST(\"begin\" AS BIGINT), CAST(\"end\" AS BIGINT), job \
                    FROM jobs";
        let mut ids: BTreeSet<String> = BTreeSet::new();
        let mut described: Vec<JobDescription> = Vec::new();
        for batch in self.ask(jobs).await? {
            let [descriptions, states, commands] = [texts(&batch, 0)?, texts(&batch, 1)?, texts(&batch, 2)?];
            let (begins, ends) = (whole(&batch, 3)?, whole(&batch, 4)?);
            ids.extend(texts(&batch, 5)?.iter().flatten().map(str::to_owned));
            for row in 0..batch.num_rows() {
                let text = |texts: &StringArray| texts.is_valid(row).then(|| texts.value(row).to_owned());
                let time = |times: &Int64Array| times.is_valid(row).then(|| times.value(row));
                described.push(JobDescription {
                    begin_us: time(&begins),
                    end_us: time(&ends),
                    json: text(&descriptions).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                    state: text(&states),
                    command: text(&commands),
                });
            }
        }
        if ids.len() > 1 {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            return Err(CliFailure::Failed(self.source.run().several(&ids)));
        }
        // The head's, which knows most.
        described.sort_by_key(|job| (job.command.is_none(), job.begin_us.unwrap_or(i64::MAX)));
        let job = described.into_iter().next().unwrap_or_default();
        // A job without samples of its own time got them from elsewhere, with the times of there.
        let is_of_job = |begin: i64| last >= begin && job.end_us.is_none_or(|end| first <= end);
        self.begin_us = job.begin_us.filter(|begin| is_of_job(*begin)).unwrap_or(first);
        self.end_us = job.end_us.filter(|end| *end >= self.begin_us).unwrap_or(last).max(self.begin_us);
        job.facts(&mut run.facts);
        run.facts.insert(Fact::Duration, human::stretch(self.duration_us()));
        Ok(run)
    }

    /// The metrics that `chosen` selects, by the time since the start in stretches of `width_us`.
    pub async fn by_time(
        &mut self,
        chosen: &[Glob],
        width_us: i64,
    ) -> Result<BTreeMap<String, DiffMetric>, CliFailure> {
        let mut found = BTreeMap::new();
        for is_counter in [false, true] {
            let mut chosen = self.chosen(chosen);
            chosen.retain(|(_, known)| known.is_counter == is_counter);
            for some in portions(&chosen, |(_, known)| known.series, SERIES_AT_ONCE) {
                let names: Vec<&str> = some.iter().map(|(name, _)| &**name).collect();
                let mut stretches = self.stretches(&names, is_counter, width_us).await?;
                for (name, known) in some {
                    if let Some(stretches) = stretches.remove(name) {
                        found.insert(name.clone(), metric_by_time(start_metric(name, known), &stretches));
                    }
                }
            }
        }
        let gauges = found.iter().filter(|(_, metric)| metric.measured == MetricNumbers::Value);
        let samples: Vec<(String, u64)> = gauges
            .map(|(name, metric)| (name.clone(), metric.figures.samples))
            .filter(|(_, count)| *count > 0)
            .collect();
        for some in portions(&samples, |(_, samples)| *samples, SAMPLES_AT_ONCE) {
            for (name, percentiles) in self.percentiles(some).await? {
                if let Some(metric) = found.get_mut(&name) {
                    [metric.figures.p50, metric.figures.p95] = percentiles;
                }
            }
        }
        Ok(found)
    }

    fn chosen(&self, chosen: &[Glob]) -> Vec<(String, KnownMetric)> {
        let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|glob| glob.matches(name));
        let all = self.metrics.iter().filter(|(name, _)| is_chosen(name));
        all.map(|(name, known)| (name.clone(), known.clone())).collect()
    }

    /// The stretches of every series of these metrics, by time.
    async fn stretches(
        &mut self,
        metrics: &[&str],
        is_counter: bool,
        width_us: i64,
    ) -> Result<BTreeMap<String, MetricStretches>, CliFailure> {
        let increase = if is_counter { "increase(value, ts)" } else { "0.0" };
        let places_max = self.duration_us() / width_us;
        let sql = format!(
            "SELECT metric, tags, place, is_nan, count(*), avg(value), max(value), first(value, ts), last(value, ts), \
             {increase}, CAST(min(ts) AS BIGINT), CAST(max(ts) AS BIGINT) FROM \
             (SELECT metric, tags, ts, value, isnan(value) AS is_nan, \
              greatest(0, least({places_max}, (CAST(ts AS BIGINT) - {begin}) / {width_us})) AS place \
              FROM samples WHERE metric IN ({metrics})) GROUP BY metric, tags, place, is_nan",
            begin = self.begin_us,
            metrics = literals(metrics),
        );
        let mut found: BTreeMap<String, MetricStretches> = BTreeMap::new();
        for batch in self.ask(&sql).await? {
            let options = FormatOptions::default();
            let tags = ArrayFormatter::try_new(batch.column(1), &options).map_err(CliFailure::failed)?;
            let names = texts(&batch, 0)?;
            let [places, counts, firsts_us, lasts_us] =
                [whole(&batch, 2)?, whole(&batch, 4)?, whole(&batch, 10)?, whole(&batch, 11)?];
            let is_nan = batch.column(3).as_boolean();
            let [means, maxima, firsts, lasts, increases] = [
                numbers(&batch, 5)?,
                numbers(&batch, 6)?,
                numbers(&batch, 7)?,
                numbers(&batch, 8)?,
                numbers(&batch, 9)?,
            ];
            for row in 0..batch.num_rows() {
                let count = u64::try_from(counts.value(row)).unwrap_or(0);
                let of = found.entry(names.value(row).to_owned()).or_default();
                if is_nan.value(row) {
                    of.nan += count;
                    continue;
                }
                of.series.entry(tags.value(row).to_string()).or_default().push(SeriesStretch {
                    place: places.value(row),
                    count,
                    mean: means.value(row),
                    max: maxima.value(row),
                    first: firsts.value(row),
                    last: lasts.value(row),
                    // NULL where there is one reading.
                    increase: if increases.is_valid(row) { increases.value(row) } else { 0.0 },
                    first_us: firsts_us.value(row),
                    last_us: lasts_us.value(row),
                });
            }
        }
        for stretches in found.values_mut().flat_map(|of| of.series.values_mut()) {
            stretches.sort_by_key(|stretch| stretch.first_us);
        }
        Ok(found)
    }

    /// The median and the 95th percentile of metrics with so many samples.
    async fn percentiles(&mut self, metrics: &[(String, u64)]) -> Result<Vec<(String, [Option<f64>; 2])>, CliFailure> {
        let is_large = metrics.iter().any(|(_, samples)| *samples > EXACT_MAX);
        let function = if is_large { "approx_percentile_cont" } else { "percentile_cont" };
        let names: Vec<&str> = metrics.iter().map(|(name, _)| &**name).collect();
        let sql = format!(
            "SELECT metric, {function}(0.5) WITHIN GROUP (ORDER BY value), {function}(0.95) WITHIN GROUP (ORDER BY value) \
             FROM samples WHERE metric IN ({}) AND NOT isnan(value) GROUP BY metric",
            literals(&names)
        );
        let mut found = Vec::new();
        for batch in self.ask(&sql).await? {
            let (names, medians, highs) = (texts(&batch, 0)?, numbers(&batch, 1)?, numbers(&batch, 2)?);
            let value = |of: &Float64Array, row: usize| of.is_valid(row).then(|| of.value(row));
            found.extend(
                (0..batch.num_rows())
                    .map(|row| (names.value(row).to_owned(), [value(&medians, row), value(&highs, row)])),
            );
        }
        Ok(found)
    }

    /// The metrics that `chosen` selects and that were logged with steps, by step.
    pub async fn by_step(&mut self, chosen: &[Glob]) -> Result<BTreeMap<String, DiffMetric>, CliFailure> {
        let mut found: BTreeMap<String, DiffMetric> = BTreeMap::new();
        let chosen = self.chosen(chosen);
        for some in portions(&chosen, |(_, known)| known.series, SERIES_AT_ONCE) {
            let names: Vec<&str> = some.iter().map(|(name, _)| &**name).collect();
            let sql = format!(
                "SELECT metric, step, avg(value) FROM samples WHERE metric IN ({}) AND step IS NOT NULL \
                 AND NOT isnan(value) GROUP BY metric, step",
                literals(&names)
            );
            for batch in self.ask(&sql).await? {
                let (names, steps, means) = (texts(&batch, 0)?, whole(&batch, 1)?, numbers(&batch, 2)?);
                for row in 0..batch.num_rows() {
                    let metric = found.entry(names.value(row).to_owned()).or_default();
                    metric.curve.insert(steps.value(row), means.value(row));
                }
            }
        }
        for (name, known) in chosen {
            if let Some(metric) = found.get_mut(&name) {
                let curve = std::mem::take(&mut metric.curve);
                let figures = DiffFigures::of_curve(&curve);
                *metric = DiffMetric { measured: MetricNumbers::Value, curve, figures, ..start_metric(&name, &known) };
            }
        }
        Ok(found)
    }

    /// The mean of each series of `metric` at these steps.
    pub async fn series_means(
        &mut self,
        metric: &str,
        steps: std::ops::RangeInclusive<i64>,
    ) -> Result<Vec<f64>, CliFailure> {
        let sql = format!(
            "SELECT avg(value) FROM samples WHERE metric = {} AND step BETWEEN {} AND {} AND NOT isnan(value) GROUP BY tags",
            literal(metric),
            steps.start(),
            steps.end()
        );
        let mut means = Vec::new();
        for batch in self.ask(&sql).await? {
            means.extend(numbers(&batch, 0)?.iter().flatten());
        }
        Ok(means)
    }

    /// When the metric first got there, if it did.
    pub async fn reached(&mut self, goal: &MetricGoal) -> Result<Option<GoalReached>, CliFailure> {
        if !self.metrics.contains_key(&goal.metric) {
            return Ok(None);
        }
        let sql = format!(
            "SELECT CAST(min(ts) AS BIGINT), min(step) FROM samples WHERE metric = {} AND NOT isnan(value) AND value {} {:e}",
            literal(&goal.metric),
            goal.side.operator(),
            goal.value
        );
        for batch in self.ask(&sql).await? {
            let (times, steps) = (whole(&batch, 0)?, whole(&batch, 1)?);
            if let Some(time) = times.iter().flatten().next() {
                let seconds = time.saturating_sub(self.begin_us).max(0) as f64 / 1e6;
                return Ok(Some(GoalReached { seconds, step: steps.iter().flatten().next() }));
            }
        }
        Ok(None)
    }

    /// Of every metric that is a power or an energy.
    pub async fn energy(&mut self) -> Result<Vec<MetricEnergy>, CliFailure> {
        let mut found = Vec::new();
        for name in self.metrics.keys().cloned().collect::<Vec<_>>() {
            let joules = if name.contains("power_watts") {
                self.integral(&name).await?
            } else if name.ends_with("_joules_total") {
                let sql = format!(
                    "SELECT sum(each) FROM (SELECT increase(value, ts) AS each FROM samples \
                     WHERE metric = {} AND NOT isnan(value) GROUP BY tags)",
                    literal(&name)
                );
                one_number(&self.ask(&sql).await?, 0)?
            } else {
                None
            };
            found.extend(joules.map(|joules| MetricEnergy { metric: name, joules }));
        }
        Ok(found)
    }

    /// Of a metric over time in seconds, by trapezoids, summed over its series. `None` without two samples of one.
    async fn integral(&mut self, metric: &str) -> Result<Option<f64>, CliFailure> {
        let sql = format!(
            "SELECT tags, CAST(ts AS BIGINT), value FROM samples WHERE metric = {} AND NOT isnan(value)",
            literal(metric)
        );
        let mut answer = self.source.rows(&sql, RowOrder::Stored).await?;
        let mut integral = SeriesIntegral::default();
        while let Some(batch) = answer.next().await? {
            let options = FormatOptions::default();
            let tags = ArrayFormatter::try_new(batch.column(0), &options).map_err(CliFailure::failed)?;
            let (times, values) = (whole(&batch, 1)?, numbers(&batch, 2)?);
            for row in 0..batch.num_rows() {
                integral.add(&tags.value(row).to_string(), times.value(row), values.value(row));
            }
        }
        Ok(integral.sum())
    }
}

#[derive(Clone, Debug, Default)]
struct JobDescription {
    begin_us: Option<i64>,
    end_us: Option<i64>,
    json: Json,
    state: Option<String>,
    command: Option<String>,
}

impl JobDescription {
    fn facts(&self, facts: &mut BTreeMap<Fact, String>) {
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let pairs = |name: &str| self.json[name].as_object().cloned().unwrap_or_default();
        facts.extend(pairs("settings").iter().map(|(key, value)| (Fact::Setting(key.clone()), text(value))));
        facts.extend(pairs("tags").iter().map(|(key, value)| (Fact::Tag(key.clone()), text(value))));
        let git = &self.json["git"];
        let commit = git.as_str().or_else(|| git["commit"].as_str()).map(str::to_owned);
        let known = [
            (Fact::Name, self.json["name"].as_str().map(str::to_owned)),
            (Fact::Command, self.command.clone()),
            (Fact::Commit, commit),
            (Fact::State, self.state.clone()),
            (Fact::ExitCode, self.json["exit_code"].as_i64().map(|code| code.to_string())),
        ];
        facts.extend(known.into_iter().filter_map(|(fact, value)| Some((fact, value?))));
    }
}

/// All but the percentiles of values, which only all of them tell.
fn metric_by_time(mut metric: DiffMetric, of: &MetricStretches) -> DiffMetric {
    metric.figures.nan = of.nan;
    metric.figures.series = of.series.len();
    metric.figures.samples = of.series.values().flatten().map(|stretch| stretch.count).sum();
    let mut by_place: BTreeMap<i64, (f64, u32)> = BTreeMap::new();
    let mut add = |place: i64, value: f64| {
        let (sum, count) = by_place.entry(place).or_default();
        *sum += value;
        *count += 1;
    };
    let mut lasts = Vec::new();
    if metric.measured == MetricNumbers::Rate {
        let mut rates = Vec::new();
        for stretches in of.series.values() {
            let of_series = CounterRates::of(stretches);
            of_series.rates.iter().for_each(|(place, rate)| add(*place, *rate));
            metric.series_means.extend(of_series.mean());
            lasts.extend(of_series.rates.last().map(|(_, rate)| *rate));
            rates.extend(of_series.rates.iter().map(|(_, rate)| *rate));
        }
        rates.sort_by(f64::total_cmp);
        metric.figures.mean = mean(&metric.series_means);
        metric.figures.p50 = quantile(&rates, 0.5);
        metric.figures.p95 = quantile(&rates, 0.95);
        metric.figures.max = rates.last().copied();
    } else {
        for stretches in of.series.values() {
            stretches.iter().for_each(|stretch| add(stretch.place, stretch.mean));
            let count: u64 = stretches.iter().map(|stretch| stretch.count).sum();
            let sum: f64 = stretches.iter().map(|stretch| stretch.mean * stretch.count as f64).sum();
            metric.series_means.push(sum / count as f64);
            lasts.extend(stretches.last().map(|stretch| stretch.last));
        }
        let all = of.series.values().flatten();
        let sum: f64 = all.clone().map(|stretch| stretch.mean * stretch.count as f64).sum();
        metric.figures.mean = (metric.figures.samples > 0).then(|| sum / metric.figures.samples as f64);
        metric.figures.max = all.map(|stretch| stretch.max).reduce(f64::max);
    }
    metric.figures.last = mean(&lasts);
    metric.curve = by_place.into_iter().map(|(place, (sum, count))| (place, sum / f64::from(count))).collect();
    metric
}

/// Neighbours, as many at once as weigh no more than that together, one at least.
fn portions<T>(all: &[T], weight: impl Fn(&T) -> u64, weight_max: u64) -> Vec<&[T]> {
    let (mut portions, mut from, mut sum) = (Vec::new(), 0, 0_u64);
    for (at, one) in all.iter().enumerate() {
        sum = sum.saturating_add(weight(one));
        if sum > weight_max && at > from {
            portions.push(&all[from..at]);
            (from, sum) = (at, weight(one));
        }
    }
    portions.push(&all[from..]);
    portions.retain(|portion| !portion.is_empty());
    portions
}

fn start_metric(name: &str, known: &KnownMetric) -> DiffMetric {
    let described = catalog::describe(name).is_some();
    DiffMetric {
        measured: if known.is_counter { MetricNumbers::Rate } else { MetricNumbers::Value },
        sender: if described { Sender::Telem } else { Sender::Program },
        unit: known.unit.clone(),
        ..DiffMetric::default()
    }
}

/// The steps that all of these curves span.
pub fn common_steps(curves: &[&BTreeMap<i64, f64>]) -> Option<std::ops::RangeInclusive<i64>> {
    let firsts: Option<BTreeSet<i64>> = curves.iter().map(|curve| curve.keys().next().copied()).collect();
    let lasts: Option<BTreeSet<i64>> = curves.iter().map(|curve| curve.keys().next_back().copied()).collect();
    let (first, last) = (firsts?.last().copied()?, lasts?.first().copied()?);
    (first <= last).then_some(first..=last)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// For `IN (...)`.
fn literals(texts: &[&str]) -> String {
    texts.iter().map(|text| literal(text)).collect::<Vec<_>>().join(", ")
}

fn one_number(batches: &[RecordBatch], column: usize) -> Result<Option<f64>, CliFailure> {
    for batch in batches {
        if let Some(value) = numbers(batch, column)?.iter().flatten().next() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
