//! What is known of the job on screen: answers go in, figures come out. No clock, no network, no terminal.

use std::collections::BTreeMap;

/// A node that has sent nothing for so long, and for such a part of the window, is silent.
const SILENT_US_MIN: i64 = 10_000_000;
const SILENT_PART: i64 = 12;

/// The job in a few words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopJob {
    pub id: String,
    pub name: Option<String>,
    pub state: String,
    pub command: Option<String>,
    pub begin_us: Option<i64>,
    pub end_us: Option<i64>,
}

/// What a node is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFigure {
    /// CPU seconds of cores that worked.
    Busy,
    /// And of those that did not.
    Idle,
    Memory,
    Network,
    Disk,
    Gpu,
}

/// What a point belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopSubject {
    Node { node: String, figure: NodeFigure },
    Metric(String),
}

/// The last values of all series of a subject within one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopPoint {
    pub sum: f64,
    pub mean: f64,
    pub series: i64,
    /// The time of the last of them.
    pub at_us: i64,
}

/// A metric that the program sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopMetric {
    pub is_counter: bool,
    pub unit: Option<String>,
    pub series: i64,
    /// For one that has nothing in the window.
    pub last: Option<f64>,
}

/// What one poll brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopAnswer {
    /// Up to when it tells: of a running job now, of one that is played the time of the play.
    pub now_us: i64,
    /// Of the things that change rarely, those that were asked for this time.
    pub job: Option<TopJob>,
    pub nodes: Option<Vec<String>>,
    pub metrics: Option<BTreeMap<String, TopMetric>>,
    pub metrics_left_out: usize,
    pub samples_per_second: Option<f64>,
    /// By the start of its stretch, in microseconds.
    pub points: Vec<(TopSubject, i64, TopPoint)>,
    /// Nodes that did not answer, and what else is to be said.
    pub notice: Option<String>,
}

/// Everything on screen but what the viewer chose.
#[derive(Clone, Debug, Default)]
pub struct TopState {
    pub label: String,
    /// How far back curves go.
    pub window_us: i64,
    pub now_us: i64,
    pub job: TopJob,
    pub samples_per_second: Option<f64>,
    pub notice: Option<String>,
    pub metrics_left_out: usize,
    metrics: BTreeMap<String, TopMetric>,
    nodes: BTreeMap<String, ()>,
    curves: BTreeMap<TopSubject, BTreeMap<i64, TopPoint>>,
}

/// A line of the table of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLine {
    pub node: String,
    pub cores: TopCurve,
    pub cores_all: Option<f64>,
    pub memory: TopCurve,
    pub network: TopCurve,
    pub disk: TopCurve,
    pub gpu: TopCurve,
    /// How long it has sent nothing, where that is longer than usual.
    pub silent_us: Option<i64>,
}

/// A line of the table of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricLine {
    pub metric: String,
    pub about: TopMetric,
    pub curve: TopCurve,
    pub last: Option<f64>,
}

/// Values by time in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopCurve(pub Vec<(i64, f64)>);

impl TopCurve {
    pub fn last(&self) -> Option<f64> {
        self.0.last().map(|(_, value)| *value)
    }

    /// The means in so many equal stretches of `window_us` up to `now_us`.
    pub fn cells(&self, now_us: i64, window_us: i64, count: usize) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0_u32); count];
        for (time, value) in &self.0 {
            let back = now_us.saturating_sub(*time).clamp(0, window_us);
            let place = (window_us - back) as f64 / window_us.max(1) as f64 * count as f64;
            // What is exactly now belongs to the last.
            if let Some((sum, samples)) = sums.get_mut((place as usize).min(count.saturating_sub(1))) {
                *sum += value;
                *samples += 1;
            }
        }
        sums.into_iter().map(|(sum, samples)| (samples > 0).then(|| sum / f64::from(samples))).collect()
    }
}

impl TopState {
    pub fn new(label: &str, window_us: i64) -> Self {
        Self { label: label.to_owned(), window_us, ..Self::default() }
    }

    pub fn take(&mut self, answer: TopAnswer) {
        let TopAnswer { now_us, job, nodes, metrics, metrics_left_out, samples_per_second, points, notice } = answer;
        self.now_us = now_us;
        self.job = job.unwrap_or_else(|| std::mem::take(&mut self.job));
        if let Some(nodes) = nodes {
            self.nodes = nodes.into_iter().map(|node| (node, ())).collect();
        }
        self.metrics = metrics.unwrap_or_else(|| std::mem::take(&mut self.metrics));
        self.samples_per_second = samples_per_second.or(self.samples_per_second);
        self.notice = notice;
        self.metrics_left_out = metrics_left_out;
        for (subject, time, point) in points {
            if let TopSubject::Node { node, .. } = &subject
                && !self.nodes.contains_key(node)
            {
                self.nodes.insert(node.clone(), ());
            }
            self.curves.entry(subject).or_default().insert(time, point);
        }
        let floor = now_us.saturating_sub(self.window_us);
        self.curves.retain(|_, points| {
            if points.first_key_value().is_some_and(|(time, _)| *time < floor) {
                *points = points.split_off(&floor);
            }
            !points.is_empty()
        });
    }

    pub fn nodes(&self) -> Vec<NodeLine> {
        let line = |node: &String| {
            let curve = |figure| self.curves.get(&TopSubject::Node { node: node.clone(), figure });
            let (busy, idle) = (rates(curve(NodeFigure::Busy)), rates(curve(NodeFigure::Idle)));
            let figures =
                [NodeFigure::Busy, NodeFigure::Idle, NodeFigure::Memory, NodeFigure::Network, NodeFigure::Disk];
            let last = |figure| curve(figure).and_then(|points| points.values().next_back()).map(|point| point.at_us);
            let silent = figures.into_iter().filter_map(last).max().map(|last| self.now_us.saturating_sub(last));
            NodeLine {
                silent_us: silent.filter(|silent| *silent >= (self.window_us / SILENT_PART).max(SILENT_US_MIN)),
                node: node.clone(),
                cores_all: busy.last().zip(idle.last()).map(|(busy, idle)| (busy + idle).round()),
                cores: busy,
                memory: means(curve(NodeFigure::Memory)),
                network: rates(curve(NodeFigure::Network)),
                disk: rates(curve(NodeFigure::Disk)),
                gpu: means(curve(NodeFigure::Gpu)),
            }
        };
        self.nodes.keys().map(line).collect()
    }

    pub fn metrics(&self) -> Vec<MetricLine> {
        let line = |(metric, about): (&String, &TopMetric)| {
            let points = self.curves.get(&TopSubject::Metric(metric.clone()));
            let curve = if about.is_counter { rates(points) } else { means(points) };
            let last = curve.last().or(about.last.filter(|_| !about.is_counter));
            MetricLine { metric: metric.clone(), about: about.clone(), curve, last }
        };
        self.metrics.iter().map(line).collect()
    }
}

fn means(points: Option<&BTreeMap<i64, TopPoint>>) -> TopCurve {
    TopCurve(points.into_iter().flat_map(BTreeMap::values).map(|point| (point.at_us, point.mean)).collect())
}

/// The rise of a sum of counters per second. Where series came or went, or one began again, there is none.
fn rates(points: Option<&BTreeMap<i64, TopPoint>>) -> TopCurve {
    let points: Vec<_> = points.into_iter().flatten().collect();
    let rate = |pair: &[(&i64, &TopPoint)]| {
        let [(_, one), (_, other)] = pair else { return None };
        let seconds = (other.at_us - one.at_us) as f64 / 1e6;
        let is_rise = one.series == other.series && other.sum >= one.sum && seconds > 0.0;
        is_rise.then(|| (other.at_us, (other.sum - one.sum) / seconds))
    };
    TopCurve(points.windows(2).filter_map(rate).collect())
}
