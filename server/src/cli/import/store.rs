//! The database that an import makes: filled beside its final name, and there when it is complete.
//!
//! A saved job is a directory with one database a node. Most imports know one node; an export of a job has several.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value as Json;
use telem_engine::{
    CompactProgress, Db, Durability, ErrorKind, MetaChange, Options, SampleBatch, SeriesId, SeriesKey, Snapshot,
    TagSet, Timestamp, Value,
};

use super::report::{ImportReport, ImportTotals};
use crate::cli::CliFailure;
use crate::saving::claim::claim;

/// Samples that are appended at once.
const BATCH_SAMPLES: usize = 1 << 16;
/// Samples in the memtables of all nodes together; beyond, the fullest is flushed.
const UNFLUSHED_MAX: u64 = 8 << 20;
/// Series whose keys are remembered as their row had them; beyond, they are looked up again.
const KNOWN_MAX: usize = 1 << 20;
/// Most nodes of one import: as many as are opened as one.
const NODES_MAX: usize = crate::saving::saved::DATABASES_MAX;

/// What stands between the name of a directory that is being filled and the number of the process.
pub const FILLED: &str = ".telem-import.";

pub const STOPPED: &str = "interrupted; nothing was saved";

/// A series of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeriesPlace {
    node: usize,
    series: SeriesId,
}

/// Why a series cannot be had.
#[derive(Debug)]
pub enum SeriesRefusal {
    /// Its name is bad; other rows may be good.
    Name(String),
    Failed(CliFailure),
}

pub struct ImportStore {
    save: PathBuf,
    /// Goes with this, unless it was kept.
    until_then: PathBuf,
    kept: bool,
    default_node: String,
    nodes: Vec<NodeStore>,
    by_name: HashMap<String, usize>,
    /// By the bytes that a reader calls it.
    known: HashMap<Vec<u8>, SeriesPlace>,
    metrics: HashSet<String>,
    accepted: u64,
    bounds: Option<(Timestamp, Timestamp)>,
    stop: Arc<AtomicBool>,
}

struct NodeStore {
    name: String,
    db: Db,
    batch: SampleBatch,
    unflushed: u64,
}

impl ImportStore {
    /// Begins the directory `save`, which must not exist. `watch` is told what to remove where the process is ended, and
    /// has a switch that is set then.
    ///
    /// # Errors
    /// Failed when it exists, or cannot be made.
    pub fn create(
        save: &Path,
        default_node: &str,
        watch: impl FnOnce(PathBuf) -> Result<Arc<AtomicBool>, CliFailure>,
    ) -> Result<Self, CliFailure> {
        let name = save.file_name().ok_or_else(|| {
            CliFailure::Usage(format!("--save {} is not the name of a new directory", save.display()))
        })?;
        if fs::symlink_metadata(save).is_ok() {
            return Err(CliFailure::Failed(format!("{} exists; name a new directory", save.display())));
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!("{FILLED}{}.part", std::process::id()));
        let until_then = save.with_file_name(hidden);
        let stop = watch(until_then.clone())?;
        fs::create_dir_all(&until_then).map_err(cannot("create", &until_then))?;
        Ok(Self {
            save: save.to_path_buf(),
            until_then,
            kept: false,
            default_node: default_node.to_owned(),
            nodes: Vec::new(),
            by_name: HashMap::new(),
            known: HashMap::new(),
            metrics: HashSet::new(),
            accepted: 0,
            bounds: None,
            stop,
        })
    }

    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Times of the earliest and the latest sample.
    pub fn bounds(&self) -> Option<(Timestamp, Timestamp)> {
        self.bounds
    }

    /// Where readers may keep files until the end. Their names start with a dot, as no node's does, and they are gone before
    /// [`ImportStore::finish`].
    pub fn scratch_dir(&self) -> &Path {
        &self.until_then
    }

    /// The node of samples that say nothing of one: until the first of them comes, it may be told.
    pub fn set_default_node(&mut self, name: &str) {
        name.clone_into(&mut self.default_node);
    }

    pub fn default_node(&self) -> &str {
        &self.default_node
    }

    /// Keeps something beside the samples of the node that says nothing of itself.
    ///
    /// # Errors
    /// Failed when the disk fails, or the node cannot be named so.
    pub fn put_meta(&mut self, change: MetaChange) -> Result<(), CliFailure> {
        self.default_db()?.put_meta(change, Durability::Buffered).map_err(CliFailure::failed)
    }

    /// What the node that says nothing of itself has by now.
    ///
    /// # Errors
    /// Failed when the node cannot be named so.
    pub fn snapshot(&mut self) -> Result<Snapshot, CliFailure> {
        Ok(self.default_db()?.snapshot())
    }

    fn default_db(&mut self) -> Result<&Db, CliFailure> {
        let name = self.default_node.clone();
        let node = self.node(&name).map_err(|refusal| match refusal {
            SeriesRefusal::Name(why) => CliFailure::Failed(why),
            SeriesRefusal::Failed(failure) => failure,
        })?;
        Ok(&self.nodes[node].db)
    }

    /// The series that a reader called `known` before.
    pub fn known(&self, known: &[u8]) -> Option<SeriesPlace> {
        self.known.get(known).copied()
    }

    /// The series of a metric and tags, which `known` calls from here on.
    pub fn series<'t>(
        &mut self,
        known: &[u8],
        node: Option<&str>,
        metric: &str,
        tags: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<SeriesPlace, SeriesRefusal> {
        let bad = |error: telem_engine::Error| SeriesRefusal::Name(error.to_string());
        let key = SeriesKey::new(metric, TagSet::new(tags).map_err(bad)?).map_err(bad)?;
        self.series_of(known, node, &key)
    }

    /// The series of a key, which `known` calls from here on.
    pub fn series_of(
        &mut self,
        known: &[u8],
        node: Option<&str>,
        key: &SeriesKey,
    ) -> Result<SeriesPlace, SeriesRefusal> {
        let default;
        let node = match node {
            Some(node) => node,
            None => {
                default = self.default_node.clone();
                &default
            }
        };
        let node = self.node(node)?;
        let series = self.nodes[node].db.series(key).map_err(|error| match error.kind() {
            ErrorKind::Invalid => SeriesRefusal::Name(error.to_string()),
            _ => SeriesRefusal::Failed(CliFailure::failed(error)),
        })?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        if !self.metrics.contains(key.metric()) {
            self.metrics.insert(key.metric().to_owned());
        }
        let place = SeriesPlace { node, series };
        self.known.insert(known.to_vec(), place);
        Ok(place)
    }

    fn node(&mut self, name: &str) -> Result<usize, SeriesRefusal> {
        if let Some(known) = self.by_name.get(name) {
            return Ok(*known);
        }
        let mut components = Path::new(name).components();
        let is_plain =
            matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name);
        if !is_plain || name.starts_with('.') || name.chars().any(char::is_control) {
            return Err(SeriesRefusal::Name(format!("'{}' cannot name a node's directory", name.escape_debug())));
        }
        let failed = |error: &dyn std::fmt::Display| SeriesRefusal::Failed(CliFailure::failed(error));
        if self.nodes.len() >= NODES_MAX {
            return Err(failed(&format!("more than {NODES_MAX} nodes")));
        }
        let dir = claim(&self.until_then, name).map_err(|error| failed(&error))?;
        // What merges replace has no other reader.
        let options = Options { node: name.to_owned(), removed_kept: Duration::ZERO, ..Options::default() };
        let db = Db::open(&dir, options).map_err(|error| failed(&error))?;
        let batch = SampleBatch::with_capacity(BATCH_SAMPLES);
        self.nodes.push(NodeStore { name: name.to_owned(), db, batch, unflushed: 0 });
        self.by_name.insert(name.to_owned(), self.nodes.len() - 1);
        Ok(self.nodes.len() - 1)
    }

    /// Takes a sample. Its time is not the end of time.
    ///
    /// # Errors
    /// Failed when the disk fails, or the user ended it.
    pub fn push(&mut self, place: SeriesPlace, time: Timestamp, value: Value) -> Result<(), CliFailure> {
        let node = &mut self.nodes[place.node];
        node.batch.push(place.series, time, value);
        self.accepted += 1;
        self.bounds = Some(match self.bounds {
            Some((first, last)) => (first.min(time), last.max(time)),
            None => (time, time),
        });
        if node.batch.len() >= BATCH_SAMPLES { self.append(place.node) } else { Ok(()) }
    }

    /// # Errors
    /// Failed where the user ended it: readers that find nothing for long ask.
    pub fn check_stop(&self) -> Result<(), CliFailure> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(CliFailure::failed(STOPPED)),
            false => Ok(()),
        }
    }

    fn append(&mut self, at: usize) -> Result<(), CliFailure> {
        self.check_stop()?;
        let node = &mut self.nodes[at];
        node.append()?;
        if node.db.flush_due() {
            node.flush(&self.stop)?;
        }
        if self.nodes.iter().map(|node| node.unflushed).sum::<u64>() > UNFLUSHED_MAX
            && let Some(fullest) = self.nodes.iter_mut().max_by_key(|node| node.unflushed)
        {
            fullest.flush(&self.stop)?;
        }
        Ok(())
    }

    /// Puts everything in its place, with `description` as the job of every node.
    ///
    /// # Errors
    /// Failed when the disk fails, or the user ended it; then there is no directory.
    pub fn finish(mut self, description: &Json, report: &mut ImportReport) -> Result<ImportTotals, CliFailure> {
        let mut stored = ImportTotals {
            accepted: self.accepted,
            nodes: self.nodes.len() as u64,
            metrics: self.metrics.len() as u64,
            ..ImportTotals::default()
        };
        for node in &mut self.nodes {
            node.append()?;
            let mut job = description.clone();
            job["node"] = node.name.clone().into();
            node.db.put_meta(MetaChange::Job(job), Durability::Buffered).map_err(CliFailure::failed)?;
            node.db.flush().map_err(CliFailure::failed)?;
            let go_on = |CompactProgress { rows_done, rows_total }| {
                report.merging(rows_done, rows_total);
                !self.stop.load(Ordering::Relaxed)
            };
            node.db.compact_while(&go_on).map_err(CliFailure::failed)?;
            node.db.close().map_err(CliFailure::failed)?;
            let info = node.db.info().map_err(CliFailure::failed)?;
            stored.samples += info.samples;
            stored.series += info.series;
            stored.bytes += info.bytes;
        }
        self.check_stop()?;
        if fs::symlink_metadata(&self.save).is_ok() {
            return Err(CliFailure::Failed(format!("{} was made meanwhile; nothing was saved", self.save.display())));
        }
        fs::rename(&self.until_then, &self.save).map_err(cannot("create", &self.save))?;
        self.kept = true;
        Ok(stored)
    }
}

impl NodeStore {
    fn append(&mut self) -> Result<(), CliFailure> {
        self.db.append(&self.batch, Durability::Buffered).map_err(CliFailure::failed)?;
        self.unflushed += self.batch.len() as u64;
        self.batch.clear();
        Ok(())
    }

    fn flush(&mut self, stop: &AtomicBool) -> Result<(), CliFailure> {
        self.db.flush().map_err(CliFailure::failed)?;
        self.db.upkeep(&|| !stop.load(Ordering::Relaxed)).map_err(CliFailure::failed)?;
        self.unflushed = 0;
        Ok(())
    }
}

impl Drop for ImportStore {
    fn drop(&mut self) {
        if !self.kept {
            self.nodes.clear();
            // The failure that leads here is the one to report.
            fs::remove_dir_all(&self.until_then).unwrap_or_default();
        }
    }
}

fn cannot<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> CliFailure + use<'a> {
    move |error| CliFailure::Failed(format!("cannot {action} {}: {error}", path.display()))
}
