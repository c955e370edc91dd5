//! Asks for what is on screen, each time for what came since the last time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arrow::array::Array;
use telem_ingest::collect::catalog;

use super::state::{NodeFigure, TopAnswer, TopJob, TopMetric, TopPoint, TopSubject};
use crate::cli::cells::{literal, numbers, texts, whole};
use crate::cli::glob::Glob;
use crate::cli::one_job::NamedRun;
use crate::cli::watch::playing::Playing;
use crate::cli::watch::{NOW_US, WatchError, WatchKind, WatchTarget, time_literal};

/// Metrics that are asked for: more do not fit a screen.
const METRICS_MAX: usize = 500;
/// What changes rarely is asked for once in so many polls.
const RARELY: u64 = 5;
/// Points in a window, about.
const POINTS: i64 = 120;
const POINT_US_MIN: i64 = 1_000_000;
/// So many points are read again: samples of many nodes do not come at once.
const AGAIN: i64 = 5;
/// Over how much time samples are counted.
const COUNTED_US: i64 = 5_000_000;

/// The state of a job that goes on.
const RUNNING: &str = "running";

const CPU: &str = "node_cpu_seconds_total";
const MEMORY: &str = "used_RAM";
const NETWORK: [&str; 4] = [
    "node_network_receive_bytes_total",
    "node_network_transmit_bytes_total",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
];
const DISK: [&str; 2] = ["node_disk_read_bytes_total", "node_disk_written_bytes_total"];

pub struct TopPoll {
    target: WatchTarget,
    kind: WatchKind,
    playing: Option<Playing>,
    window_us: i64,
    point_us: i64,
    polls: u64,
    /// Up to where points were read.
    read_us: Option<i64>,
    bounds: Option<(i64, i64)>,
    metrics: Vec<String>,
    gpu: Vec<String>,
    /// Metrics that are not asked for.
    left_out: usize,
}

impl TopPoll {
    /// # Errors
    /// [`WatchError`], where the server does not answer.
    pub async fn open(mut target: WatchTarget, window: Duration, playing: Option<Playing>) -> Result<Self, WatchError> {
        let kind = target.kind().await?;
        let stretched = window.mul_f64(playing.map_or(1.0, |playing| playing.speed.max(1.0)));
        let window_us = i64::try_from(stretched.as_micros()).unwrap_or(i64::MAX);
        let point_us = (window_us / POINTS).max(POINT_US_MIN);
        Ok(Self {
            target,
            kind,
            playing,
            window_us,
            point_us,
            polls: 0,
            read_us: None,
            bounds: None,
            metrics: Vec::new(),
            gpu: Vec::new(),
            left_out: 0,
        })
    }

    pub fn label(&self) -> &str {
        self.target.label()
    }

    pub fn window_us(&self) -> i64 {
        self.window_us
    }

    /// Whether the picture changes any more, so long after the start.
    pub fn is_over(&self, elapsed: Duration) -> bool {
        match (self.kind, self.playing, self.bounds) {
            (_, Some(playing), Some((first, last))) => playing.time_us(first, elapsed) >= last,
            (WatchKind::Saved, None, Some(_)) => true,
            _ => false,
        }
    }

    /// What came, so long after the start.
    ///
    /// # Errors
    /// [`WatchError`].
    pub async fn next(&mut self, elapsed: Duration) -> Result<TopAnswer, WatchError> {
        let mut answer = TopAnswer::default();
        if self.polls.is_multiple_of(RARELY) {
            self.ask_rarely(&mut answer).await?;
        }
        self.polls += 1;
        let (first, last) = self.bounds.unwrap_or((0, 0));
        answer.now_us = match (self.playing, self.kind) {
            (Some(playing), _) => playing.time_us(first, elapsed).min(last),
            (None, WatchKind::Saved) => last,
            (None, WatchKind::Running) => 0,
        };
        self.ask_count(&mut answer).await?;
        let oldest = answer.now_us.saturating_sub(self.window_us);
        let from = self.read_us.map_or(oldest, |read| oldest.max(read.saturating_sub(AGAIN * self.point_us)));
        // From the start of a point on: half of one would take the place of the whole.
        let from = from.div_euclid(self.point_us) * self.point_us;
        self.ask_nodes(from, &mut answer).await?;
        self.ask_metrics(from, &mut answer).await?;
        self.read_us = Some(answer.now_us);
        answer.metrics_left_out = self.left_out;
        answer.notice = self.target.missing().map(|missing| format!("nodes are missing from the answer: {missing}"));
        Ok(answer)
    }

    /// How many samples came lately; together with the time of a running job, for which that is up to now.
    async fn ask_count(&mut self, answer: &mut TopAnswer) -> Result<(), WatchError> {
        let is_running = self.kind == WatchKind::Running && self.playing.is_none();
        let lately = if is_running {
            format!("ts > '{COUNTED_US}us-ago'")
        } else {
            let from = time_literal(answer.now_us.saturating_sub(COUNTED_US));
            format!("ts > {from} AND ts <= {}", time_literal(answer.now_us))
        };
        for batch in self.target.ask(&format!("SELECT count(*), {NOW_US} FROM samples WHERE {lately}")).await? {
            let (counts, nows) = (whole(&batch, 0)?, whole(&batch, 1)?);
            let count = counts.iter().flatten().next();
            answer.samples_per_second = count.map(|count| count as f64 / (COUNTED_US as f64 / 1e6));
            if let Some(now) = nows.iter().flatten().next().filter(|_| is_running) {
                answer.now_us = now;
            }
        }
        Ok(())
    }

    async fn ask_rarely(&mut self, answer: &mut TopAnswer) -> Result<(), WatchError> {
        let mut jobs: Vec<TopJob> = Vec::new();
        let sql = "SELECT job, name, state, command, CAST(\"begin\" AS BIGINT), CAST(\"end\" AS BIGINT) FROM jobs";
        for batch in self.target.ask(sql).await? {
            let [ids, names, states] = [texts(&batch, 0)?, texts(&batch, 1)?, texts(&batch, 2)?];
            let (commands, begins, ends) = (texts(&batch, 3)?, whole(&batch, 4)?, whole(&batch, 5)?);
            for row in 0..batch.num_rows() {
                let text = |of: &arrow::array::StringArray| of.is_valid(row).then(|| of.value(row).to_owned());
                let time = |of: &arrow::array::Int64Array| of.is_valid(row).then(|| of.value(row));
                let state = text(&states).unwrap_or_default();
                let is_running = self.kind == WatchKind::Running && state == "unfinished";
                jobs.push(TopJob {
                    id: text(&ids).unwrap_or_default(),
                    name: text(&names),
                    state: if is_running { RUNNING.to_owned() } else { state },
                    command: text(&commands),
                    begin_us: time(&begins),
                    end_us: time(&ends),
                });
            }
        }
        // The head's, which knows most.
        jobs.sort_by_key(|job| (job.command.is_none(), job.begin_us.unwrap_or(i64::MAX)));
        let ids: BTreeSet<&str> = jobs.iter().map(|job| &*job.id).collect();
        answer.job = match ids.len() {
            0 | 1 => jobs.into_iter().next(),
            // What is shown is of all of them.
            _ => {
                let ids: Vec<&str> = ids.into_iter().collect();
                let name = Some(NamedRun::some_of(&ids));
                let command = Some(format!("one alone: telem top {}", self.target.run().example(&ids)));
                let running = jobs.iter().any(|job| job.state == RUNNING);
                let state = if running { RUNNING.to_owned() } else { String::new() };
                Some(TopJob { id: format!("{} jobs", ids.len()), name, state, command, ..TopJob::default() })
            }
        };
        let mut nodes = Vec::new();
        for batch in self.target.ask("SELECT node FROM nodes").await? {
            nodes.extend(texts(&batch, 0)?.iter().flatten().map(str::to_owned));
        }
        answer.nodes = Some(nodes);
        let sql = "SELECT CAST(min(first_ts) AS BIGINT), CAST(max(last_ts) AS BIGINT) FROM series";
        for batch in self.target.ask(sql).await? {
            let (firsts, lasts) = (whole(&batch, 0)?, whole(&batch, 1)?);
            self.bounds = firsts.iter().flatten().next().zip(lasts.iter().flatten().next());
        }
        // The job's own time, where its samples have it.
        let begin = answer.job.as_ref().and_then(|job| job.begin_us);
        if let (Some((first, last)), Some(begin)) = (self.bounds, begin) {
            self.bounds = Some((if (first..=last).contains(&begin) { begin } else { first }, last));
        }
        answer.metrics = Some(self.known_metrics().await?);
        Ok(())
    }

    async fn known_metrics(&mut self) -> Result<BTreeMap<String, TopMetric>, WatchError> {
        let mut known: BTreeMap<String, TopMetric> = BTreeMap::new();
        let is_gpu = |name: &str| {
            let lower = name.to_lowercase();
            let globs = ["*gpu*util*", "*util*gpu*"].map(|text| text.parse::<Glob>());
            globs.into_iter().flatten().any(|glob| glob.matches(&lower))
        };
        let sql = "SELECT metric, max(\"type\"), max(unit), sum(series) FROM metrics GROUP BY 1";
        self.gpu.clear();
        for batch in self.target.ask(sql).await? {
            let [names, kinds, units] = [texts(&batch, 0)?, texts(&batch, 1)?, texts(&batch, 2)?];
            let series = whole(&batch, 3)?;
            for row in 0..batch.num_rows() {
                let name = names.value(row);
                if is_gpu(name) {
                    self.gpu.push(name.to_owned());
                }
                if catalog::describe(name).is_some() || name.starts_with("telem_") {
                    continue;
                }
                let kind = if kinds.is_valid(row) { kinds.value(row) } else { "unknown" };
                known.insert(
                    name.to_owned(),
                    TopMetric {
                        // OpenMetrics ends the names of counters like that; nothing else does.
                        is_counter: kind == "counter" || kind == "unknown" && name.ends_with("_total"),
                        unit: units.is_valid(row).then(|| units.value(row).to_owned()).filter(|unit| !unit.is_empty()),
                        series: series.value(row),
                        last: None,
                    },
                );
            }
        }
        self.gpu.sort();
        self.left_out = known.len().saturating_sub(METRICS_MAX);
        for _ in 0..self.left_out {
            known.pop_last();
        }
        self.metrics = known.keys().cloned().collect();
        // In a job that is played these would come before their time.
        if self.playing.is_none() && !known.is_empty() {
            let sql = format!(
                "SELECT metric, avg(last_value) FROM series WHERE metric IN ({}) GROUP BY 1",
                literals(self.metrics.iter().map(String::as_str))
            );
            for batch in self.target.ask(&sql).await? {
                let (names, values) = (texts(&batch, 0)?, numbers(&batch, 1)?);
                for row in 0..batch.num_rows() {
                    if let Some(metric) = known.get_mut(names.value(row)) {
                        metric.last = values.is_valid(row).then(|| values.value(row));
                    }
                }
            }
        }
        Ok(known)
    }

    async fn ask_nodes(&mut self, from: i64, answer: &mut TopAnswer) -> Result<(), WatchError> {
        let gpu = self.gpu.iter().map(String::as_str);
        let metrics = literals([CPU, MEMORY].into_iter().chain(NETWORK).chain(DISK).chain(gpu));
        let sql = format!(
            "SELECT CASE WHEN metric = '{CPU}' AND tags['mode'] IN ('idle', 'iowait', 'steal') THEN 1 \
             WHEN metric = '{CPU}' THEN 0 WHEN metric = '{MEMORY}' THEN 2 WHEN metric IN ({}) THEN 3 \
             WHEN metric IN ({}) THEN 4 ELSE 5 END AS figure, place, sum(each), avg(each), count(*), max(at), node \
             FROM ({}) GROUP BY node, figure, place",
            literals(NETWORK),
            literals(DISK),
            self.each(&metrics, from, answer.now_us)
        );
        for batch in self.target.ask(&sql).await? {
            let (figures, nodes) = (whole(&batch, 0)?, texts(&batch, 6)?);
            for (row, (place, point)) in points(&batch)?.into_iter().enumerate() {
                let figure = match figures.value(row) {
                    0 => NodeFigure::Busy,
                    1 => NodeFigure::Idle,
                    2 => NodeFigure::Memory,
                    3 => NodeFigure::Network,
                    4 => NodeFigure::Disk,
                    _ => NodeFigure::Gpu,
                };
                let subject = TopSubject::Node { node: nodes.value(row).to_owned(), figure };
                answer.points.push((subject, place, point));
            }
        }
        Ok(())
    }

    async fn ask_metrics(&mut self, from: i64, answer: &mut TopAnswer) -> Result<(), WatchError> {
        if self.metrics.is_empty() {
            return Ok(());
        }
        let metrics = literals(self.metrics.iter().map(String::as_str));
        let sql = format!(
            "SELECT metric, place, sum(each), avg(each), count(*), max(at) FROM ({}) GROUP BY metric, place",
            self.each(&metrics, from, answer.now_us)
        );
        for batch in self.target.ask(&sql).await? {
            let names = texts(&batch, 0)?;
            for (row, (place, point)) in points(&batch)?.into_iter().enumerate() {
                answer.points.push((TopSubject::Metric(names.value(row).to_owned()), place, point));
            }
        }
        Ok(())
    }

    /// The last value of each series in each point.
    fn each(&self, metrics: &str, from: i64, until: i64) -> String {
        let width = self.point_us;
        format!(
            "SELECT metric, node, tags, CAST(ts AS BIGINT) / {width} * {width} AS place, last(value, ts) AS each, \
             CAST(max(ts) AS BIGINT) AS at FROM samples WHERE metric IN ({metrics}) AND ts >= {} AND ts <= {} \
             GROUP BY 1, 2, 3, 4",
            time_literal(from),
            time_literal(until)
        )
    }
}

fn points(batch: &arrow::array::RecordBatch) -> Result<Vec<(i64, TopPoint)>, WatchError> {
    let (places, counts, times) = (whole(batch, 1)?, whole(batch, 4)?, whole(batch, 5)?);
    let (sums, means) = (numbers(batch, 2)?, numbers(batch, 3)?);
    let point = |row: usize| {
        let (sum, mean, series, at_us) = (sums.value(row), means.value(row), counts.value(row), times.value(row));
        (places.value(row), TopPoint { sum, mean, series, at_us })
    };
    Ok((0..batch.num_rows()).map(point).collect())
}

fn literals<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(literal).collect::<Vec<_>>().join(", ")
}
