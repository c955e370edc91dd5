//! What is worth a word in a run, judged from the answers to its views alone. Every threshold stands here.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::robust::{median, outlier, slope};
use super::view::{ReportRow, ViewAnswers};
use crate::info::human;

/// Fewer samples say nothing about a run.
const SAMPLES_MIN: f64 = 10.0;
/// A node with less memory left swaps or kills with the next larger batch.
const MEMORY_SHARE_MAX: f64 = 0.9;
/// Memory grows in every phase of a start; a leak goes on. The first part of a run is not looked at.
const WARM_UP: f64 = 0.25;
/// Places of the curve, and seconds, that a judgement on growth needs: programs fill their memory in less.
const GROWTH_PLACES_MIN: usize = 12;
const GROWTH_SECONDS_MIN: f64 = 60.0;
/// Growth over what is looked at, of what was there: less is noise, or a cache that fills.
const GROWTH_SHARE_MIN: f64 = 0.2;
const GROWTH_BYTES_MIN: f64 = 32.0 * 1024.0 * 1024.0;
/// A cache fills and stops; a leak grows in its last third about as fast as before.
const GROWTH_LAST_MIN: f64 = 0.5;
/// Pages that were swapped out: a few are what the kernel does with what nobody used for hours.
const SWAPPED_PAGES_MIN: f64 = 256.0;
/// Writes that are smaller and more frequent cost a parallel file system more than the data.
const WRITE_BYTES_MIN: f64 = 16_384.0;
const WRITES_PER_SECOND_MAX: f64 = 500.0;
/// A GPU that is used less waits for something else, or was asked for in vain.
const GPU_SHARE_MIN: f64 = 0.1;
/// A CPU that is throttled has a clock well below that of its neighbours.
const CLOCK_SHARE_MIN: f64 = 0.85;
/// The clocks of cores that have nothing to do are low: a node that works less than this, of what the others do, is not
/// compared.
const CLOCK_LOAD_MIN: f64 = 0.7;
/// A rank that is behind, or that works less: further from the median than this, relative to it.
const STRAGGLER_SHARE_MIN: f64 = 0.15;
const WAITING_SHARE_MIN: f64 = 0.5;
/// The tag with the node of a sample.
const HOST: &str = "host";
/// Words in names of metrics of which more is worse, and those of which less is worse.
const SLOW_WORDS: [&str; 7] = ["time", "seconds", "secs", "duration", "latency", "elapsed", "ms"];
const FAST_WORDS: [&str; 3] = ["throughput", "flops", "per"];

/// What a warning is about, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
// A list of all, which the page is held against.
#[cfg_attr(test, derive(clap::ValueEnum))]
pub enum WarningCode {
    OutOfMemory,
    MemoryNearlyFull,
    MemoryLeak,
    Swap,
    Throttled,
    Straggler,
    WaitingRank,
    IdleGpu,
    SmallWrites,
    /// Of the report, not of the run.
    NotAnswered,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportWarning {
    pub code: WarningCode,
    /// The node, rank or GPU.
    pub subject: String,
    pub value: f64,
    /// What the others have, or the limit.
    pub expected: f64,
    pub text: String,
}

impl ReportWarning {
    /// A section that is missing.
    pub fn not_answered(title: &str, why: &str) -> Self {
        let text = format!("the section '{title}' is missing: {why}");
        Self { code: WarningCode::NotAnswered, subject: title.to_owned(), value: 0.0, expected: 0.0, text }
    }

    /// From what is expected, relative to that where it is not 0.
    fn distance(&self) -> f64 {
        (self.value - self.expected).abs() / if self.expected == 0.0 { 1.0 } else { self.expected.abs() }
    }
}

/// Those of a run, in the order of their codes, the worst of each first.
pub fn of(answers: &ViewAnswers) -> Vec<ReportWarning> {
    let mut found = Vec::new();
    nodes(answers, &mut found);
    memory(answers, &mut found);
    trouble(answers, &mut found);
    clocks(answers, &mut found);
    stragglers(answers, &mut found);
    waiting(answers, &mut found);
    gpus(answers, &mut found);
    writes(answers, &mut found);
    found.sort_by(|a, b| a.code.cmp(&b.code).then_with(|| b.distance().total_cmp(&a.distance())));
    found
}

fn rows<'a>(answers: &'a ViewAnswers, view: &str) -> Vec<ReportRow<'a>> {
    answers.get(view).into_iter().flat_map(|table| table.rows()).collect()
}

fn has_samples(row: ReportRow<'_>) -> bool {
    row.number("samples").is_some_and(|samples| samples >= SAMPLES_MIN)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn nodes(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    for row in rows(answers, "report_nodes").into_iter().filter(|row| has_samples(*row)) {
        let (Some(node), Some(share)) = (row.text("node"), row.number("peak_share")) else { continue };
        if share >= MEMORY_SHARE_MAX {
            found.push(ReportWarning {
                code: WarningCode::MemoryNearlyFull,
                subject: format!("node {node}"),
                value: share,
                expected: MEMORY_SHARE_MAX,
                text: format!("memory of node {node} was {} full", percent(share)),
            });
        }
    }
}

/// The memory of a node, or of a rank, over time.
#[derive(Default)]
struct MemoryCurve {
    subject: String,
    points: Vec<(f64, f64)>,
    /// Of its node, and what it came from.
    limit: Option<f64>,
}

fn memory(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    let limits: Vec<(&str, f64)> = rows(answers, "report_nodes")
        .into_iter()
        .filter_map(|row| Some((row.text("node")?, row.number("memory_bytes")?)))
        .collect();
    let mut curves: Vec<MemoryCurve> = Vec::new();
    for row in rows(answers, "report_memory") {
        let (Some(node), Some(bytes), Some(since)) =
            (row.text("node"), row.number("resident_bytes"), row.number("since_us"))
        else {
            continue;
        };
        let subject = row.text("rank").map_or_else(|| format!("node {node}"), |rank| format!("rank {rank} on {node}"));
        let limit = limits.iter().find(|(name, _)| *name == node).map(|(_, bytes)| *bytes);
        if curves.last().is_none_or(|curve| curve.subject != subject) {
            curves.push(MemoryCurve { subject, limit, ..MemoryCurve::default() });
        }
        if let Some(curve) = curves.last_mut() {
            curve.points.push((since / 1e6, bytes));
        }
    }
    let mut leaks: Vec<(String, ReportWarning)> =
        curves.iter().filter_map(|curve| Some((curve.subject.clone(), leak(curve)?))).collect();
    // A rank that leaks makes its node grow: the rank is the one to name.
    let of_ranks: Vec<String> =
        leaks.iter().filter_map(|(subject, _)| Some(subject.split_once(" on ")?.1.to_owned())).collect();
    leaks.retain(|(subject, _)| {
        subject.strip_prefix("node ").is_none_or(|node| !of_ranks.iter().any(|known| known == node))
    });
    found.extend(leaks.into_iter().map(|(_, warning)| warning));
}

fn leak(curve: &MemoryCurve) -> Option<ReportWarning> {
    let (first, last) = (curve.points.first()?.0, curve.points.last()?.0);
    let from = first + (last - first) * WARM_UP;
    let points: Vec<(f64, f64)> = curve.points.iter().copied().filter(|(at, _)| *at >= from).collect();
    let (start, end) = (*points.first()?, *points.last()?);
    if points.len() < GROWTH_PLACES_MIN || end.0 - start.0 < GROWTH_SECONDS_MIN {
        return None;
    }
    let per_second = slope(&points)?;
    // Along the line, and from end to end.
    let grown = (per_second * (end.0 - start.0)).min(end.1 - start.1);
    let late = slope(&points[points.len() * 2 / 3..])?;
    if grown < GROWTH_BYTES_MIN || grown < start.1 * GROWTH_SHARE_MIN || late < per_second * GROWTH_LAST_MIN {
        return None;
    }
    let full = curve.limit.filter(|limit| *limit > end.1).map(|limit| {
        let seconds = (limit - end.1) / per_second;
        format!("; at this pace the node's memory is full after another {}", human::stretch((seconds * 1e6) as i64))
    });
    Some(ReportWarning {
        code: WarningCode::MemoryLeak,
        subject: curve.subject.clone(),
        value: per_second,
        expected: 0.0,
        text: format!(
            "memory of {} grew by {} a minute to the end, from {} to {}{}",
            curve.subject,
            human::bytes(per_second * 60.0),
            human::bytes(start.1),
            human::bytes(end.1),
            full.unwrap_or_default()
        ),
    })
}

fn trouble(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    for row in rows(answers, "report_trouble") {
        let (Some(node), Some(metric), Some(count)) = (row.text("node"), row.text("metric"), row.number("count"))
        else {
            continue;
        };
        let (code, least, text) = match metric {
            "node_vmstat_oom_kill" => (
                WarningCode::OutOfMemory,
                1.0,
                format!("the kernel of node {node} killed processes for want of memory: {count}"),
            ),
            "node_vmstat_pswpout" => {
                (WarningCode::Swap, SWAPPED_PAGES_MIN, format!("node {node} swapped {count} pages out"))
            }
            "node_cpu_core_throttles_total" | "node_cpu_package_throttles_total" => {
                (WarningCode::Throttled, 1.0, format!("CPUs of node {node} were throttled {count} times"))
            }
            "gpu_throttled_seconds_total" => (
                WarningCode::Throttled,
                1.0,
                format!("GPUs of node {node} were throttled for {} s", human::short(count)),
            ),
            _ => continue,
        };
        // That processes were killed is told of the shortest run.
        if count >= least && (has_samples(row) || code == WarningCode::OutOfMemory) {
            found.push(ReportWarning { code, subject: format!("node {node}"), value: count, expected: 0.0, text });
        }
    }
}

fn clocks(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    let loads: Vec<(&str, f64)> = rows(answers, "report_nodes")
        .into_iter()
        .filter_map(|row| Some((row.text("node")?, row.number("used_share")?)))
        .collect();
    let shares: Vec<f64> = loads.iter().map(|(_, share)| *share).collect();
    let usual = median(&shares).unwrap_or(0.0);
    let idles = |node: &str| loads.iter().any(|(name, share)| *name == node && *share < usual * CLOCK_LOAD_MIN);
    let named: Vec<(&str, f64)> = rows(answers, "report_clocks")
        .into_iter()
        .filter(|row| has_samples(*row))
        .filter_map(|row| Some((row.text("node")?, row.number("clock_hertz")?)))
        .filter(|(node, _)| !idles(node))
        .collect();
    let clocks: Vec<f64> = named.iter().map(|(_, clock)| *clock).collect();
    let Some((at, usual)) = outlier(&clocks, |value, median| value < median * CLOCK_SHARE_MIN) else { return };
    let (node, clock) = named[at];
    found.push(ReportWarning {
        code: WarningCode::Throttled,
        subject: format!("node {node}"),
        value: clock,
        expected: usual,
        text: format!(
            "CPUs of node {node} ran at {:.2} GHz where the others had {:.2} GHz ({} less)",
            clock / 1e9,
            usual / 1e9,
            percent(1.0 - clock / usual)
        ),
    });
}

/// Which way a metric is worse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorseSide {
    More,
    Less,
}

impl WorseSide {
    /// By the words of its name; `None` of a metric that is no measure of pace.
    fn of(metric: &str) -> Option<Self> {
        let name = metric.to_lowercase();
        let has = |words: &[&str]| name.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word));
        if has(&FAST_WORDS) { Some(Self::Less) } else { has(&SLOW_WORDS).then_some(Self::More) }
    }
}

/// Tags that say which rank it is, in other words than its number: several have one, and no two share a value.
fn tags_of_ranks<'a>(rows: &[ReportRow<'a>]) -> BTreeSet<&'a str> {
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut ranks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut shared: BTreeSet<&str> = BTreeSet::new();
    let pairs = rows.iter().filter_map(|row| Some((row.text("rank")?, row.map("tags")?)));
    for (rank, tags) in pairs {
        for (key, value) in tags {
            let value = value.as_str().unwrap_or_default();
            ranks.entry(key).or_default().insert(rank);
            if *owners.entry((key, value)).or_insert(rank) != rank {
                shared.insert(key);
            }
        }
    }
    let are_several =
        |(key, ranks): (&'a str, BTreeSet<&str>)| (ranks.len() > 1 && !shared.contains(key)).then_some(key);
    ranks.into_iter().filter_map(are_several).collect()
}

/// What a rank says under one name and the same other tags is compared: a phase that one rank alone logs has no match.
fn stragglers(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    let rows: Vec<ReportRow<'_>> =
        rows(answers, "report_rank_metrics").into_iter().filter(|row| has_samples(*row)).collect();
    for of_metric in rows.chunk_by(|a, b| a.text("metric") == b.text("metric")) {
        let Some(metric) = of_metric[0].text("metric") else { continue };
        let Some(side) = WorseSide::of(metric) else { continue };
        let of_ranks = tags_of_ranks(of_metric);
        let mut phases: BTreeMap<Vec<(&str, &str)>, Vec<ReportRow<'_>>> = BTreeMap::new();
        for row in of_metric {
            let tags = row.map("tags").into_iter().flatten();
            // A host has several ranks, and says nothing of the phase.
            let tags = tags.filter(|(key, _)| !of_ranks.contains(&***key) && *key != HOST);
            let phase = tags.map(|(key, value)| (&**key, value.as_str().unwrap_or_default())).collect();
            phases.entry(phase).or_default().push(*row);
        }
        let worst = phases.iter().filter_map(|(phase, rows)| straggler(metric, side, phase, rows));
        found.extend(worst.max_by(|a, b| a.distance().total_cmp(&b.distance())));
    }
}

fn straggler(metric: &str, side: WorseSide, phase: &[(&str, &str)], rows: &[ReportRow<'_>]) -> Option<ReportWarning> {
    let named: Vec<(String, f64)> = rows
        .iter()
        .filter_map(|row| Some((format!("rank {} on {}", row.text("rank")?, row.text("node")?), row.number("mean")?)))
        .collect();
    let means: Vec<f64> = named.iter().map(|(_, mean)| *mean).collect();
    // Of amounts around nothing none is a multiple of another.
    let worse = |value: f64, median: f64| match side {
        WorseSide::More => median > 0.0 && value > median * (1.0 + STRAGGLER_SHARE_MIN),
        WorseSide::Less => median > 0.0 && value < median / (1.0 + STRAGGLER_SHARE_MIN),
    };
    let (at, median) = outlier(&means, worse)?;
    let (rank, mean) = &named[at];
    let phase: Vec<String> = phase.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let phase = if phase.is_empty() { String::new() } else { format!(" ({})", phase.join(", ")) };
    Some(ReportWarning {
        code: WarningCode::Straggler,
        subject: rank.clone(),
        value: *mean,
        expected: median,
        text: format!(
            "{rank} is the straggler: {metric}{phase} was {} in the mean, {:.2} times the median of the ranks ({})",
            human::short(*mean),
            mean / median,
            human::short(median)
        ),
    })
}

fn waiting(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    let named: Vec<(String, f64)> = rows(answers, "report_ranks")
        .into_iter()
        .filter(|row| has_samples(*row))
        .filter_map(|row| {
            Some((format!("rank {} on {}", row.text("rank")?, row.text("node")?), row.number("cores_used")?))
        })
        .collect();
    let used: Vec<f64> = named.iter().map(|(_, used)| *used).collect();
    let Some((at, median)) = outlier(&used, |value, median| value < median * (1.0 - WAITING_SHARE_MIN)) else { return };
    let (rank, cores) = &named[at];
    found.push(ReportWarning {
        code: WarningCode::WaitingRank,
        subject: rank.clone(),
        value: *cores,
        expected: median,
        text: format!(
            "{rank} waited: it used {cores:.2} cores where the median of the ranks is {median:.2} ({} less)",
            percent(1.0 - cores / median)
        ),
    });
}

fn gpus(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    for row in rows(answers, "report_gpus").into_iter().filter(|row| has_samples(*row)) {
        let (Some(node), Some(share)) = (row.text("node"), row.number("used_share")) else { continue };
        if share < GPU_SHARE_MIN {
            let gpu = row.text("gpu").unwrap_or("?");
            found.push(ReportWarning {
                code: WarningCode::IdleGpu,
                subject: format!("GPU {gpu} on {node}"),
                value: share,
                expected: GPU_SHARE_MIN,
                text: format!("GPU {gpu} of node {node} was used {} of the time", percent(share)),
            });
        }
    }
}

fn writes(answers: &ViewAnswers, found: &mut Vec<ReportWarning>) {
    for row in rows(answers, "report_traffic").into_iter().filter(|row| has_samples(*row)) {
        let (Some(node), Some(size), Some(pace)) =
            (row.text("node"), row.number("write_size_bytes"), row.number("writes_per_second"))
        else {
            continue;
        };
        if size < WRITE_BYTES_MIN && pace > WRITES_PER_SECOND_MAX {
            found.push(ReportWarning {
                code: WarningCode::SmallWrites,
                subject: format!("node {node}"),
                value: size,
                expected: WRITE_BYTES_MIN,
                text: format!("node {node} made {pace:.0} writes a second of {} each", human::bytes(size)),
            });
        }
    }
}
