//! What is in a database, from what is in memory: no sample is read.

use std::path::PathBuf;

use crate::time::Timestamp;

/// See [`crate::Db::info`].
#[derive(Clone, Debug, PartialEq)]
pub struct DbInfo {
    pub dir: PathBuf,
    pub read_only: bool,
    /// Id of this database, unlike that of any other.
    pub database: String,
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
}
