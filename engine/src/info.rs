//! A summary of a database's contents, made from what is in memory without reading a sample.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::manifest::{Manifest, SegmentEntry};
use crate::memtable::Memtable;
use crate::meta::Meta;
use crate::segment::CacheFigures;
use crate::time::Timestamp;
use crate::time::{DAY, HOUR};

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
    /// Parquet files with samples: of two with samples of one time, the later in this list was written later.
    pub segment_files: Vec<PathBuf>,
    /// Parquet files with the keys of series, in the order of ids.
    pub series_files: Vec<PathBuf>,
    /// The description of the job, a JSON object whose fields are its writer's.
    pub job: Option<serde_json::Value>,
    /// The descriptions of jobs that shared the database, as they began.
    pub shared_jobs: Vec<Arc<serde_json::Value>>,
    pub storage: StorageFigures,
}

/// What storing the samples costs besides them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageFigures {
    /// Segments over an hour, over a day, and over more than that.
    pub segments_hour: u64,
    pub segments_day: u64,
    pub segments_wide: u64,
    /// Bytes of those.
    pub segment_bytes: u64,
    /// Bytes of segments that no manifest names any more and that stay for a while: see [`crate::Options::removed_kept`].
    pub removed_bytes: u64,
    /// Of the cache of run indexes and footers, since the open; of several databases that of all.
    pub cache: CacheFigures,
    /// `None` where nothing is written.
    pub written: Option<WrittenFigures>,
}

/// What was written and dropped since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenFigures {
    pub wal_bytes: u64,
    /// Of segments that flushes wrote.
    pub flush_bytes: u64,
    /// Of segments that merges wrote.
    pub merge_bytes: u64,
    pub merges: u64,
    /// Segments that went into merges.
    pub segments_merged: u64,
    /// What retention dropped.
    pub segments_dropped: u64,
    pub samples_dropped: u64,
    pub bytes_dropped: u64,
}

impl DbInfo {
    /// Bytes on disk, the WAL and removed segments that stay included, for each byte of segments; `None` without any.
    pub fn space_amplification(&self) -> Option<f64> {
        let StorageFigures { segment_bytes, removed_bytes, .. } = self.storage;
        (segment_bytes > 0).then(|| (self.bytes + removed_bytes) as f64 / segment_bytes as f64)
    }
}

impl WrittenFigures {
    /// Bytes written by the WAL, flushes and merges for each byte that flushes wrote; `None` before the first flush.
    pub fn amplification(&self) -> Option<f64> {
        let all = self.wal_bytes + self.flush_bytes + self.merge_bytes;
        (self.flush_bytes > 0).then(|| all as f64 / self.flush_bytes as f64)
    }
}

/// What [`DbInfo`] is made of.
pub struct InfoParts<'a> {
    pub layout: &'a Layout,
    pub manifest: &'a Manifest,
    pub meta: &'a Meta,
    pub memtables: &'a [&'a Memtable],
    pub metrics: usize,
    pub series: usize,
    pub wal_bytes: u64,
    pub read_only: bool,
    pub removed_bytes: u64,
    pub cache: CacheFigures,
    pub written: Option<WrittenFigures>,
}

impl DbInfo {
    pub(crate) fn new(parts: &InfoParts<'_>) -> Self {
        let InfoParts { layout, manifest, memtables, .. } = parts;
        let entries = || manifest.segments.iter();
        let unflushed: u64 = memtables.iter().map(|memtable| memtable.len() as u64).sum();
        let bounds = memtables
            .iter()
            .filter_map(|memtable| memtable.time_bounds())
            .chain(entries().map(|entry| (Timestamp::from_micros(entry.first), Timestamp::from_micros(entry.last))));
        let mut by_age: Vec<&SegmentEntry> = entries().collect();
        by_age.sort_by_key(|entry| (entry.sequence_max, entry.window_start));
        let segment_files = by_age.iter().map(|entry| layout.named(&entry.file.file)).collect();
        let width = |entry: &SegmentEntry| entry.window_end.saturating_sub(entry.window_start);
        let wide = entries().filter(|entry| width(entry) > DAY).count() as u64;
        let hours = entries().filter(|entry| width(entry) <= HOUR).count() as u64;
        let storage = StorageFigures {
            segments_hour: hours,
            segments_day: manifest.segments.len() as u64 - hours - wide,
            segments_wide: wide,
            segment_bytes: entries().map(|entry| entry.file.bytes).sum(),
            removed_bytes: parts.removed_bytes,
            cache: parts.cache,
            written: parts.written,
        };
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
            shared_jobs: parts.meta.job_intervals().iter().map(|interval| Arc::clone(&interval.job)).collect(),
            storage,
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
        self.shared_jobs.extend_from_slice(&other.shared_jobs);
        let (storage, more) = (&mut self.storage, &other.storage);
        storage.segments_hour += more.segments_hour;
        storage.segments_day += more.segments_day;
        storage.segments_wide += more.segments_wide;
        storage.segment_bytes += more.segment_bytes;
        storage.removed_bytes += more.removed_bytes;
    }
}

/// Both stretches, and what lies between.
pub(crate) fn wider(a: (Timestamp, Timestamp), b: (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
    (a.0.min(b.0), a.1.max(b.1))
}
