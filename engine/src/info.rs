//! What is in a database, from what is in memory: no sample is read.

use std::path::PathBuf;

use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::meta::Meta;
use crate::time::Timestamp;

/// See [`crate::Db::info`].
#[derive(Clone, Debug, PartialEq)]
pub struct DbInfo {
    /// Where it stands; of several that are open as one, the directory around all of them.
    pub dir: PathBuf,
    pub read_only: bool,
    /// Id of this database, unlike that of any other; of several, all with commas between.
    pub database: String,
    /// Of several databases the nodes, each once, with commas between.
    pub node: String,
    pub metrics: u64,
    pub series: u64,
    /// Stored samples. One that was written again is counted again until a merge drops it.
    pub samples: u64,
    /// Of those, the ones that no segment holds yet.
    pub samples_unflushed: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Of those, the bytes of the WAL.
    pub wal_bytes: u64,
    /// Times of the earliest and the latest sample.
    pub time_bounds: Option<(Timestamp, Timestamp)>,
    /// Parquet files with samples, sorted by time.
    pub segment_files: Vec<PathBuf>,
    /// Parquet files with the keys of series, in the order of ids.
    pub series_files: Vec<PathBuf>,
    /// The description of the job, a JSON object whose fields are its writer's.
    pub job: Option<serde_json::Value>,
}

/// What [`DbInfo`] is made of.
pub struct Parts<'a> {
    pub layout: &'a Layout,
    pub manifest: &'a Manifest,
    pub meta: &'a Meta,
    pub memtables: &'a [&'a Memtable],
    pub metrics: usize,
    pub series: usize,
    pub wal_bytes: u64,
    pub read_only: bool,
}

impl DbInfo {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        let Parts { layout, manifest, memtables, .. } = parts;
        let entries = || manifest.segments.iter();
        let unflushed: u64 = memtables.iter().map(|memtable| memtable.len() as u64).sum();
        let bounds = memtables
            .iter()
            .filter_map(|memtable| memtable.time_bounds())
            .chain(entries().map(|entry| (Timestamp::from_micros(entry.first), Timestamp::from_micros(entry.last))));
        let mut segment_files: Vec<_> = entries().map(|entry| layout.named(&entry.file.file)).collect();
        segment_files.sort();
        Self {
            dir: layout.dir().to_path_buf(),
            read_only: parts.read_only,
            database: manifest.database.clone(),
            node: manifest.node.clone(),
            metrics: parts.metrics as u64,
            series: parts.series as u64,
            samples: entries().map(|entry| entry.rows).sum::<u64>() + unflushed,
            samples_unflushed: unflushed,
            bytes: manifest.files().map(|file| file.bytes).sum::<u64>() + parts.wal_bytes,
            wal_bytes: parts.wal_bytes,
            time_bounds: bounds.reduce(wider),
            segment_files,
            series_files: manifest.series.iter().map(|entry| layout.named(&entry.file.file)).collect(),
            job: parts.meta.job().cloned(),
        }
    }

    /// Adds another database of several that are open as one. A series of both counts twice here.
    pub(crate) fn add(&mut self, other: &DbInfo) {
        self.samples += other.samples;
        self.samples_unflushed += other.samples_unflushed;
        self.bytes += other.bytes;
        self.wal_bytes += other.wal_bytes;
        self.metrics += other.metrics;
        self.series += other.series;
        self.time_bounds = match (self.time_bounds, other.time_bounds) {
            (Some(a), Some(b)) => Some(wider(a, b)),
            (a, b) => a.or(b),
        };
        self.segment_files.extend_from_slice(&other.segment_files);
        self.series_files.extend_from_slice(&other.series_files);
        self.job = other.job.clone().or_else(|| self.job.take());
    }
}

fn wider(a: (Timestamp, Timestamp), b: (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
    (a.0.min(b.0), a.1.max(b.1))
}
