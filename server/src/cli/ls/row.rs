//! What is told of a run.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chrono::DateTime;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use telem_engine::{DbInfo, Snapshot, Timestamp};

use super::LastOf;
use crate::cli::glob::Glob;

/// A run without an end that had a sample so long ago runs.
const RUNNING_MAX_US: i64 = 60_000_000;

/// The nodes of one run begin within that time.
const STARTS_APART_MAX_US: u64 = 60_000_000;

/// A saved run, as `--json` has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    pub dir: PathBuf,
    pub job: Option<String>,
    pub name: Option<String>,
    /// `completed`, `failed`, `killed`, `ended`, `running`, `unfinished`, `broken`.
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
    pub samples: u64,
    pub bytes: u64,
    pub settings: Map<String, Json>,
    pub tags: Map<String, Json>,
    pub values: LastOf,
    /// Why it cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

impl RunRow {
    /// What one node's database says.
    pub fn of(info: &DbInfo, now: Timestamp) -> Self {
        let job = info.job.as_ref().unwrap_or(&Json::Null);
        let text = |name: &str| job[name].as_str().map(str::to_owned);
        let object = |name: &str| job[name].as_object().cloned().unwrap_or_default();
        let time = |name: &str| {
            let time = DateTime::parse_from_rfc3339(job[name].as_str()?).ok()?;
            Some(time.timestamp_micros())
        };
        let (first, last) = match info.time_bounds {
            Some((first, last)) => (Some(first.micros()), Some(last.micros())),
            None => (None, None),
        };
        let (begin, end) = (time("start").or(first), time("end"));
        let (exit_code, signal) = (job["exit_code"].as_i64(), job["signal"].as_i64());
        let is_fresh = last.is_some_and(|last| now.micros().saturating_sub(last) < RUNNING_MAX_US);
        let state = match (exit_code, signal, end) {
            (Some(0), _, _) => "completed",
            (Some(_), _, _) => "failed",
            (None, Some(_), _) => "killed",
            (None, None, Some(_)) => "ended",
            (None, None, None) if is_fresh => "running",
            (None, None, None) => "unfinished",
        };
        Self {
            dir: run_dir(&info.dir, &info.node),
            job: text("id"),
            name: text("name"),
            state: state.to_owned(),
            begin,
            duration_us: begin.zip(end.or(last)).map(|(begin, end)| end.saturating_sub(begin).max(0)),
            exit_code,
            signal,
            user: text("user"),
            command: job["command"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
                .map(str::to_owned)
                .collect(),
            nodes: BTreeSet::from([info.node.clone()]),
            samples: info.samples,
            bytes: info.bytes,
            settings: object("settings"),
            tags: object("tags"),
            values: LastOf::new(),
            broken: None,
        }
    }

    pub fn broken(dir: &Path, why: &str) -> Self {
        Self {
            dir: dir.to_path_buf(),
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
            samples: 0,
            bytes: 0,
            settings: Map::new(),
            tags: Map::new(),
            values: LastOf::new(),
            broken: Some(why.to_owned()),
        }
    }

    /// A setting, a tag, or the last value of a metric.
    pub fn column(&self, name: &str) -> Option<Json> {
        let told = self.settings.get(name).or_else(|| self.tags.get(name)).cloned();
        told.or_else(|| self.values.get(name).map(|value| Json::from(*value)))
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
        self.nodes.extend(other.nodes);
        self.samples += other.samples;
        self.bytes += other.bytes;
        // The head's database alone says what ran.
        if self.command.is_empty() && !other.command.is_empty() {
            let (nodes, samples, bytes) = (std::mem::take(&mut self.nodes), self.samples, self.bytes);
            *self = RunRow { nodes, samples, bytes, ..other };
        }
    }
}

/// Adds rows, those of one run in one directory as one.
pub fn add(rows: &mut Vec<RunRow>, more: Vec<RunRow>) {
    for row in more {
        let same = |known: &&mut RunRow| known.broken.is_none() && known.is_part_of_same(&row);
        match rows.iter_mut().rev().take(SIDE_BY_SIDE).find(same) {
            Some(known) if row.broken.is_none() => known.absorb(row),
            _ => rows.push(row),
        }
    }
}

/// The runs of one directory come one after the other.
const SIDE_BY_SIDE: usize = 64;

/// The directory of the run: that around its nodes, where the database is called by its node.
fn run_dir(database: &Path, node: &str) -> PathBuf {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    let is_of_node = name.strip_prefix(node).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    match database.parent() {
        Some(parent) if is_of_node => parent.to_path_buf(),
        _ => database.to_path_buf(),
    }
}

/// Of each of `columns` that is no setting or tag and is a metric the newest value over all its series.
///
/// # Errors
/// Those of the engine.
pub fn last_values(snapshot: &Snapshot, row: &RunRow, columns: &[String]) -> telem_engine::Result<LastOf> {
    let mut found = LastOf::new();
    let metrics: Vec<&String> = columns.iter().filter(|name| row.column(name).is_none()).collect();
    let Some(job) = row.job.as_deref().filter(|_| !metrics.is_empty()) else { return Ok(found) };
    let samples = snapshot.of_job(job);
    for metric in metrics {
        let mut newest: Option<(Timestamp, f64)> = None;
        for series in samples.select(metric, &[]) {
            if let Some((time, value)) = samples.last(series)?
                && newest.is_none_or(|(known, _)| time >= known)
            {
                newest = Some((time, value.as_f64()));
            }
        }
        if let Some((_, value)) = newest {
            found.insert(metric.clone(), value);
        }
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

impl RunFilter {
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
