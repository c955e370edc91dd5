//! The contents of databases, as JSON and as text; and the view through which DuckDB reads them without telem.

pub mod duckdb;
pub mod energy;
pub mod human;
mod inventory;
mod job;
pub mod memory;
mod metrics;
mod storage;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
pub use human::{counted, grouped};
pub use inventory::DeviceFacts;
use job::DescriptionSource;
pub use job::{JobNodes, jobs_of, shown};
pub use memory::ServerMemory;
pub use metrics::{MetricFigures, MetricLines};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
pub use storage::Storage;
use telem_engine::{Clock, Db, DbInfo, Timestamp, UnopenedDatabase};
use telem_query::energy::{JobEnergy, of_jobs};

use crate::launch::hostlist;

/// Jobs that are described, where there are many.
const JOBS_MAX: usize = 8;
/// How long the energy of jobs may be computed; the table `job_energy` has it without such a limit.
pub const ENERGY_TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of `GET /api/info` and of `telem info --json`. Of several databases the sum, and each of them below.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// The directory, on the machine where it was opened; of several databases the one around all of them.
    pub data: PathBuf,
    /// Of several databases the nodes, each once, with commas between.
    pub node: String,
    /// Id of this database, unlike that of any other; of several all, with commas between.
    pub database: String,
    pub metrics: u64,
    pub series: u64,
    /// Stored samples; one that was written again counts again until a merge drops it.
    pub samples: u64,
    /// Of those, the ones that are in no segment yet.
    pub samples_unflushed: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Of those, the bytes of the WAL.
    pub wal_bytes: u64,
    /// Time of the earliest sample, RFC 3339.
    pub first: Option<String>,
    /// Time of the latest sample, RFC 3339.
    pub last: Option<String>,
    pub read_only: bool,
    /// Of a server: its version, and its level if it takes samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// Of a server that takes samples: what clients dropped before they sent it, where they dropped any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_dropped: Option<ClientsDropped>,
    /// Parquet files with samples.
    pub segment_files: Vec<PathBuf>,
    /// Parquet files with the metric and tags of each series.
    pub series_files: Vec<PathBuf>,
    /// The description of the job, if there is one; of several databases the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Json>,
    /// The descriptions of jobs that shared the database, as they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_jobs: Vec<Arc<Json>>,
    /// What storing them costs. Older servers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// What the server holds in memory, where that was asked for. Older servers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ServerMemory>,
    /// What each metric has, where that was asked for. Older servers do not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_metric: Vec<MetricFigures>,
    /// The devices of its nodes, where metrics were asked for. Older servers do not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<DeviceFacts>,
    /// What jobs took of energy, in the words of the table `job_energy`, where metrics were asked for. Older servers do
    /// not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<JobEnergy>,
    /// There is no energy here because it took too long to compute.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub energy_left_out: bool,
    /// Every database, in the order in which they were named; those have no such list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<Info>,
    /// Databases among several that could not be opened: nothing of them is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unopened: Vec<LeftOut>,
}

/// Samples that clients took and dropped, by their own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsDropped {
    pub taken: u64,
    /// For want of room in the program.
    pub for_room: u64,
    /// While there was no service.
    pub without_service: u64,
    pub otherwise: u64,
}

/// A database that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub data: PathBuf,
    pub why: String,
}

impl Info {
    /// # Errors
    /// Those of the engine.
    pub fn of(db: &Db) -> telem_engine::Result<Info> {
        let mut info = Info::from(db.info()?);
        info.databases = db.databases()?.into_iter().map(Info::from).collect();
        Ok(info)
    }

    /// As [`Info::of`], with what each metric has, the inventory, and the energy of jobs: that only within
    /// [`ENERGY_TIMEOUT`] of `clock`, and while `is_stopped` does not say that nobody waits.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with_metrics(db: &Db, clock: &dyn Clock, is_stopped: &dyn Fn() -> bool) -> telem_engine::Result<Info> {
        let info = Info { by_metric: MetricFigures::all(db)?, ..Info::of(db)? };
        let snapshot = db.snapshot();
        let until = clock.monotonic() + ENERGY_TIMEOUT;
        let is_over = || is_stopped() || clock.monotonic() >= until;
        let energy = of_jobs(&snapshot, &is_over)?;
        let energy_left_out = is_over();
        let energy = if energy_left_out { Vec::new() } else { energy };
        Ok(Info { inventory: DeviceFacts::all(snapshot.meta()), energy, energy_left_out, ..info })
    }

    /// Says of which databases nothing is in it.
    #[must_use]
    pub fn without(mut self, unopened: &[UnopenedDatabase]) -> Self {
        let left_out = |one: &UnopenedDatabase| LeftOut {
            data: std::path::absolute(&one.dir).unwrap_or_else(|_| one.dir.clone()),
            why: one.error.to_string(),
        };
        self.unopened = unopened.iter().map(left_out).collect();
        self
    }

    /// A line for each job whose databases these are.
    pub fn jobs(&self) -> Vec<String> {
        job::jobs(self)
    }

    /// What people read of each database of several: what names it, and what is in it.
    fn line(&self, data: &Path) -> String {
        let name = self.data.strip_prefix(data).unwrap_or(&self.data).display().to_string();
        let (samples, series) = (counted(self.samples, "sample"), grouped(self.series));
        let bytes = human::bytes(self.bytes as f64);
        format!("  {name}: node {}, {samples}, {series} series, {bytes}, {}", self.node, self.time())
    }

    /// From when to when there are samples.
    fn time(&self) -> String {
        let short = |text: &str| match DateTime::parse_from_rfc3339(text) {
            Ok(time) => time.format("%Y-%m-%d %H:%M:%S").to_string(),
            // Beyond what a calendar holds.
            Err(_) => text.to_owned(),
        };
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => format!("{} to {} UTC", short(first), short(last)),
            _ => "no samples".to_owned(),
        }
    }

    /// What storage of the samples costs, for operators.
    pub fn storage_lines(&self) -> String {
        let mut text = format!(
            "samples    {}, {} of them not in a segment yet",
            grouped(self.samples),
            grouped(self.samples_unflushed)
        );
        text.push_str(&format!("\nbytes      {}", grouped(self.bytes)));
        if self.samples > self.samples_unflushed {
            let flushed = (self.samples - self.samples_unflushed) as f64;
            let per_sample = self.bytes.saturating_sub(self.wal_bytes) as f64 / flushed;
            text.push_str(&format!(", {per_sample:.2} a flushed sample"));
        }
        text.push_str(&format!(", {} in the WAL", grouped(self.wal_bytes)));
        text.push_str(&format!("\nsegments   {}", grouped(self.segment_files.len() as u64)));
        if let Some(storage) = &self.storage {
            text.push_str(&storage.to_string());
        }
        text
    }
}

impl From<DbInfo> for Info {
    fn from(info: DbInfo) -> Self {
        let storage = Some(Storage::of(&info));
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Self {
            data: absolute(info.dir),
            node: info.node,
            database: info.database,
            metrics: info.metrics,
            series: info.series,
            samples: info.samples,
            samples_unflushed: info.samples_unflushed,
            bytes: info.bytes,
            wal_bytes: info.wal_bytes,
            first: info.time_bounds.map(|(first, _)| rfc3339(first)),
            last: info.time_bounds.map(|(_, last)| rfc3339(last)),
            read_only: info.read_only,
            version: None,
            level: None,
            clients_dropped: None,
            segment_files: info.segment_files.into_iter().map(absolute).collect(),
            series_files: info.series_files.into_iter().map(absolute).collect(),
            job: info.job,
            shared_jobs: info.shared_jobs,
            storage,
            memory: None,
            by_metric: Vec::new(),
            inventory: Vec::new(),
            energy: Vec::new(),
            energy_left_out: false,
            databases: Vec::new(),
            unopened: Vec::new(),
        }
    }
}

/// Times beyond what a calendar holds are given in microseconds.
pub fn rfc3339(time: Timestamp) -> String {
    DateTime::from_timestamp_micros(time.micros())
        .map_or_else(|| time.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// For people: the jobs first, then a line a fact, and one a database where there are several.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = job::with_nodes(self);
        let source = match self.version.is_some() && !self.read_only {
            true => DescriptionSource::Running,
            false => DescriptionSource::Saved,
        };
        for job in jobs.iter().take(JOBS_MAX) {
            job.write(f, source, self.last.as_deref())?;
        }
        if jobs.len() > JOBS_MAX {
            writeln!(f, "           and {} more jobs", grouped((jobs.len() - JOBS_MAX) as u64))?;
        }
        if jobs.len() != 1 {
            let nodes: Vec<String> = self.node.split(',').map(str::to_owned).collect();
            match &*nodes {
                [node] => writeln!(f, "node       {node}")?,
                several => {
                    let count = grouped(several.len() as u64);
                    writeln!(f, "nodes      {count}: {}", hostlist::fold(several))?;
                }
            }
        }
        writeln!(f, "samples    {}, {} on disk", grouped(self.samples), human::bytes(self.bytes as f64))?;
        writeln!(f, "series     {} of {}", grouped(self.series), counted(self.metrics, "metric"))?;
        writeln!(f, "time       {}", self.time())?;
        for (label, line) in energy::lines(&self.energy, JOBS_MAX) {
            writeln!(f, "{label:<10} {line}")?;
        }
        if self.energy_left_out {
            let seconds = ENERGY_TIMEOUT.as_secs();
            writeln!(f, "energy     not known within {seconds} s: `SELECT * FROM job_energy` has it, by job")?;
        }
        for (at, line) in inventory::lines(&self.inventory).iter().enumerate() {
            writeln!(f, "{:<10} {line}", if at == 0 { "hardware" } else { "" })?;
        }
        let mode = if self.read_only { " (read-only)" } else { "" };
        match &*self.databases {
            [] | [_] => write!(f, "database   {}{mode}", self.data.display())?,
            several => write!(f, "databases  {} in {}{mode}", grouped(several.len() as u64), self.data.display())?,
        }
        match (&self.version, self.level) {
            (Some(version), Some(level)) => write!(f, "\nserver     telem {version}, level {level}")?,
            (Some(version), None) => write!(f, "\nserver     telem {version}")?,
            (None, _) => {}
        }
        if let several @ [_, _, ..] = &*self.databases {
            for database in several {
                write!(f, "\n{}", database.line(&self.data))?;
            }
        }
        for LeftOut { data, why } in &self.unopened {
            write!(f, "\n  {}: LEFT OUT, {why}", data.strip_prefix(&self.data).unwrap_or(data).display())?;
        }
        Ok(())
    }
}
