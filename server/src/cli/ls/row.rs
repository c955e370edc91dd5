//! What is told of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use telem_engine::{DbGlance, Snapshot, Timestamp};

use crate::cli::glob::Glob;
use crate::cli::one_job::NamedRun;

/// A run without an end that had a sample so long ago runs: what is saved while it runs is up to a minute old.
pub const RUNNING_MAX_US: i64 = 180_000_000;
const RUNNING: &str = "running";
const UNFINISHED: &str = "unfinished";
/// All states.
pub const STATES: [&str; 7] = ["completed", "failed", "killed", "ended", RUNNING, UNFINISHED, "broken"];

/// The nodes of one run begin within that time.
const STARTS_APART_MAX_US: u64 = 60_000_000;

/// A saved run, as `--json` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    #[serde(with = "path_text")]
    pub dir: PathBuf,
    /// Of each node that recorded it.
    #[serde(with = "path_texts")]
    pub databases: BTreeSet<PathBuf>,
    pub job: Option<String>,
    pub name: Option<String>,
    /// One of [`STATES`].
    pub state: String,
    /// Microseconds since the epoch.
    #[serde(rename = "begin_us")]
    pub begin: Option<i64>,
    pub duration_us: Option<i64>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub user: Option<String>,
    pub command: Vec<String>,
    pub nodes: BTreeSet<String>,
    /// Not known of one job among several, as its bytes.
    pub samples: Option<u64>,
    pub bytes: Option<u64>,
    pub settings: Map<String, Json>,
    pub tags: Map<String, Json>,
    /// Last values of metrics, by name.
    pub values: BTreeMap<String, f64>,
    /// Those of all metrics that were looked for.
    #[serde(skip)]
    pub lasts: LastSamples,
    /// Why it cannot be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// The jobs that shared its database, which become rows of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<RunRow>,
}

/// A path as JSON has it: text, in which what is no UTF-8 is replaced.
mod path_text {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&path.to_string_lossy())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        String::deserialize(deserializer).map(PathBuf::from)
    }
}

mod path_texts {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(paths: &BTreeSet<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<PathBuf>, D::Error> {
        BTreeSet::deserialize(deserializer)
    }
}

/// Of each metric that was looked for its newest sample: the time in microseconds, and the value.
pub type LastSamples = BTreeMap<String, Option<(i64, f64)>>;

impl RunRow {
    /// Whether it can still change.
    pub fn is_over(&self) -> bool {
        self.broken.is_none()
            && self.state != RUNNING
            && self.state != UNFINISHED
            && self.shared.iter().all(Self::is_over)
    }

    /// What one node's database says.
    pub fn of(info: &DbGlance, now: Timestamp) -> Self {
        let bounds = info.time_bounds.map(|(first, last)| (first.micros(), last.micros()));
        let dir = run_dir(&info.dir, &info.node);
        let mut row = Self::of_job(&dir, info, info.job.as_ref().unwrap_or(&Json::Null), bounds, now);
        (row.samples, row.bytes) = (Some(info.samples), Some(info.bytes));
        // The last is what is of none of them.
        let jobs = info.parts.split_last().map_or(&[][..], |(_, jobs)| jobs);
        let shared = jobs.iter().map(|part| {
            let place = NamedRun::name_of(&info.dir.display().to_string(), &part.job);
            let description = part.description.as_deref().unwrap_or(&Json::Null);
            let last = bounds.map(|(_, last)| (last, last));
            Self { job: Some(part.job.to_string()), ..Self::of_job(Path::new(&place), info, description, last, now) }
        });
        row.shared = shared.collect();
        row
    }

    /// What a description says; `bounds` are the times of its first and last sample, in microseconds.
    fn of_job(dir: &Path, info: &DbGlance, job: &Json, bounds: Option<(i64, i64)>, now: Timestamp) -> Self {
        let text = |name: &str| job[name].as_str().map(str::to_owned);
        let object = |name: &str| job[name].as_object().cloned().unwrap_or_default();
        let time = |name: &str| {
            let time = DateTime::parse_from_rfc3339(job[name].as_str()?).ok()?;
            Some(time.timestamp_micros())
        };
        let (first, last) = bounds.unzip();
        let (begin, end) = (time("start").or(first), time("end"));
        let (exit_code, signal) = (job["exit_code"].as_i64(), job["signal"].as_i64());
        let is_fresh = last.is_some_and(|last| now.micros().saturating_sub(last) < RUNNING_MAX_US);
        let state = match (exit_code, signal, end) {
            (Some(0), _, _) => "completed",
            (Some(_), _, _) => "failed",
            (None, Some(_), _) => "killed",
            (None, None, Some(_)) => "ended",
            (None, None, None) if is_fresh => RUNNING,
            (None, None, None) => UNFINISHED,
        };
        let command = job["command"].as_array().into_iter().flatten().filter_map(Json::as_str);
        Self {
            dir: dir.to_path_buf(),
            databases: BTreeSet::from([info.dir.clone()]),
            job: text("id"),
            name: text("name"),
            state: state.to_owned(),
            begin,
            duration_us: begin.zip(end.or(last)).map(|(begin, end)| end.saturating_sub(begin).max(0)),
            exit_code,
            signal,
            user: text("user"),
            command: command.map(str::to_owned).collect(),
            nodes: BTreeSet::from([info.node.clone()]),
            samples: None,
            bytes: None,
            settings: object("settings"),
            tags: object("tags"),
            values: BTreeMap::new(),
            lasts: LastSamples::new(),
            broken: None,
            shared: Vec::new(),
        }
    }

    pub fn broken(dir: &Path, why: &str) -> Self {
        Self {
            dir: dir.to_path_buf(),
            databases: BTreeSet::from([dir.to_path_buf()]),
            job: None,
            name: None,
            state: "broken".to_owned(),
            begin: None,
            duration_us: None,
            exit_code: None,
            signal: None,
            user: None,
            command: Vec::new(),
            nodes: BTreeSet::new(),
            samples: Some(0),
            bytes: Some(0),
            settings: Map::new(),
            tags: Map::new(),
            values: BTreeMap::new(),
            lasts: LastSamples::new(),
            broken: Some(why.to_owned()),
            shared: Vec::new(),
        }
    }

    fn label(&self, name: &str) -> Option<&Json> {
        self.settings.get(name).or_else(|| self.tags.get(name))
    }

    /// Whether it has a setting or a tag of this name.
    pub fn has_label(&self, name: &str) -> bool {
        self.label(name).is_some()
    }

    /// A setting, a tag, or the last value of a metric.
    pub fn column(&self, name: &str) -> Option<Json> {
        self.label(name).cloned().or_else(|| self.values.get(name).map(|value| Json::from(*value)))
    }

    /// Whether another node recorded the same run. Of two runs with one id, as in one allocation of a scheduler, the times
    /// differ, or what they were started with.
    fn is_part_of_same(&self, other: &RunRow) -> bool {
        let is_id_alone = self.command.is_empty() || other.command.is_empty();
        let is_close =
            self.begin.zip(other.begin).is_some_and(|(one, other)| one.abs_diff(other) < STARTS_APART_MAX_US);
        let is_alike = (&self.name, &self.settings, &self.command) == (&other.name, &other.settings, &other.command);
        self.dir == other.dir
            && self.job == other.job
            && (is_id_alone || is_close && is_alike && self.nodes.is_disjoint(&other.nodes))
    }

    /// Another node's part of the same run.
    fn absorb(&mut self, other: RunRow) {
        // What failed on one node failed.
        if self.exit_code == Some(0) && (other.signal.is_some() || other.exit_code.is_some_and(|code| code != 0)) {
            (self.exit_code, self.signal, self.state) = (other.exit_code, other.signal, other.state.clone());
        }
        let runs = [&self.state, &other.state].iter().any(|state| **state == RUNNING);
        self.nodes.extend(other.nodes.iter().cloned());
        self.databases.extend(other.databases.iter().cloned());
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        (self.samples, self.bytes) = (sum(self.samples, other.samples), sum(self.bytes, other.bytes));
        self.shared.extend(other.shared.iter().cloned());
        for (metric, last) in &other.lasts {
            let known = self.lasts.entry(metric.clone()).or_default();
            if known.is_none_or(|(known, _)| last.is_some_and(|(last, _)| last >= known)) && last.is_some() {
                *known = *last;
            }
        }
        // The head's database alone says what ran.
        if self.command.is_empty() && !other.command.is_empty() {
            let (nodes, samples, bytes) = (std::mem::take(&mut self.nodes), self.samples, self.bytes);
            let (databases, lasts) = (std::mem::take(&mut self.databases), std::mem::take(&mut self.lasts));
            let shared = std::mem::take(&mut self.shared);
            *self = RunRow { databases, nodes, samples, bytes, lasts, shared, ..other };
        }
        // Samples of any node say that it goes on.
        if runs && self.state == UNFINISHED {
            self.state = RUNNING.to_owned();
        }
    }
}

/// The rows of all runs.
#[derive(Debug, Default)]
pub struct RunList {
    /// What nodes say that know the id of their job alone: of which run they are is known when all are there.
    alone: Vec<RunRow>,
    rows: Vec<RunRow>,
    /// Those of each directory: several runs may be saved into one.
    of_dir: HashMap<PathBuf, Vec<usize>>,
}

impl RunList {
    /// Adds what a database says; those of one run in one directory are one row.
    pub fn add(&mut self, row: RunRow) {
        match row.command.is_empty() && row.broken.is_none() {
            true => self.alone.push(row),
            false => self.put(row),
        }
    }

    /// Adds the part of a node to the run that went on when its samples began.
    fn attribute(&mut self, alone: RunRow) {
        let of_dir = self.of_dir.get(&alone.dir).map(Vec::as_slice).unwrap_or_default();
        let is_candidate = |at: &&usize| {
            let row = &self.rows[**at];
            let has_begun = row.begin.zip(alone.begin).is_none_or(|(run, node)| {
                run <= node.saturating_add(i64::try_from(STARTS_APART_MAX_US / 2).unwrap_or(i64::MAX))
            });
            let is_described = !row.command.is_empty() && row.broken.is_none();
            is_described && row.job == alone.job && has_begun && row.nodes.is_disjoint(&alone.nodes)
        };
        match of_dir.iter().filter(is_candidate).max_by_key(|at| self.rows[**at].begin).copied() {
            Some(at) => self.rows[at].absorb(alone),
            None => self.put(alone),
        }
    }

    fn put(&mut self, row: RunRow) {
        let known = self.of_dir.entry(row.dir.clone()).or_default();
        let same = known.iter().rev().find(|at| {
            let known = &self.rows[**at];
            known.broken.is_none() && row.broken.is_none() && known.is_part_of_same(&row)
        });
        match same {
            Some(at) => self.rows[*at].absorb(row),
            None => {
                known.push(self.rows.len());
                self.rows.push(row);
            }
        }
    }

    /// The rows, with a value for each of `columns` that is no setting and no tag. Jobs that shared a database come last.
    pub fn finish(mut self, columns: &[String]) -> Vec<RunRow> {
        for alone in std::mem::take(&mut self.alone) {
            self.attribute(alone);
        }
        for row in &mut self.rows {
            let values = columns.iter().filter(|name| row.label(name).is_none());
            row.values = values.filter_map(|name| Some((name.clone(), row.lasts.get(name)?.as_ref()?.1))).collect();
        }
        let shared: Vec<RunRow> = self.rows.iter_mut().flat_map(|row| std::mem::take(&mut row.shared)).collect();
        self.rows.extend(shared);
        self.rows
    }
}

/// The directory of the run: that around its nodes, where the database is called by its node.
pub fn run_dir(database: &Path, node: &str) -> PathBuf {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    let is_of_node = name.strip_prefix(node).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    match database.parent() {
        Some(parent) if is_of_node => parent.to_path_buf(),
        _ => database.to_path_buf(),
    }
}

/// The newest value of each of `metrics` over all its series, and its time in microseconds.
///
/// # Errors
/// Those of the engine.
pub fn last_values(snapshot: &Snapshot, metrics: &[String]) -> telem_engine::Result<LastSamples> {
    let mut found = LastSamples::new();
    for metric in metrics {
        let mut newest: Option<(i64, f64)> = None;
        for series in snapshot.select(metric, &[]) {
            if let Some((time, value)) = snapshot.last(series)?
                && newest.is_none_or(|(known, _)| time.micros() >= known)
            {
                newest = Some((time.micros(), value.as_f64()));
            }
        }
        found.insert(metric.clone(), newest);
    }
    Ok(found)
}

/// One `--where`.
#[derive(Clone, Debug)]
pub struct RunFilter {
    key: String,
    value: Glob,
}

impl FromStr for RunFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}': expected KEY=VALUE"))?;
        let value = value.parse().map_err(|error: Infallible| error.to_string())?;
        Ok(Self { key: key.to_owned(), value })
    }
}

impl fmt::Display for RunFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl RunFilter {
    /// Whether it asks for a state that no run can be in.
    pub fn asks_for_no_state(&self) -> bool {
        self.key == "state" && !STATES.iter().any(|state| self.value.matches(state))
    }

    pub fn passes(&self, row: &RunRow) -> bool {
        let own = match &*self.key {
            "name" => row.name.clone(),
            "state" => Some(row.state.clone()),
            "user" => row.user.clone(),
            "job" => row.job.clone(),
            _ => None,
        };
        let told = row.column(&self.key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        own.or(told).is_some_and(|found| self.value.matches(&found))
    }
}
