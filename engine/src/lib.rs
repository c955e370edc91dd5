//! The storage engine of telem, a database of telemetry: one directory, one node, one writer.
//!
//! A database stores samples: the values of series, which are identified by a metric and tags, at times in
//! microseconds. A value is an exact 64-bit integer or a bit-exact float. The engine is synchronous and knows neither
//! tokio, DataFusion nor HTTP, so that other programs can embed it. It needs no server, no configuration and no global
//! state.
//!
//! # Example
//! This is `examples/store.rs`; `cargo run -p telem-engine --example store` runs it.
//! ```
#![doc = include_str!("../examples/store.rs")]
//! ```
//!
//! # Where to begin
//! Samples go in through [`Db::append`], which writes them to the WAL and then to the memtable. [`Db::flush`] turns a
//! memtable into segments, which are Parquet files, and [`Db::upkeep`] merges segments. Samples come out through a
//! [`Snapshot`], which sees every sample that was appended before it, and none after.
//!
//! | module | contents |
//! |---|---|
//! | [`db`] | the database: opening, appending, flushing, upkeep |
//! | [`snapshot`] | one state of the database, to be read: points, scans as Arrow, last values |
//! | [`downsample`] | buckets of a fixed step |
//! | [`index`] | series by number, by name and by tags |
//! | [`series`], [`value`], [`time`], [`sample`] | the domain types of the whole product |
//! | [`meta`] | metadata of metrics, annotations, the description of a job |
//! | [`mirror`] | a copy that follows a live database |
//! | [`check`], [`repair`] | verification of every checksum, and repair of damage |
//! | [`disk`], [`clock`] | the file system and the time, which tests replace |
//! | [`exact`] | sums of floats that do not depend on the order of additions |
//! | [`options`] | every limit and every choice, with its default |
//!
//! # Errors
//! Every fallible function returns [`Error`]. Its [`ErrorKind`] tells what a caller can do: correct the input, try
//! again, run a check, or ask a person. The messages are for people and may change.
//!
//! # Features
//! `fuzzing` exposes the bodies of the fuzz targets. There are no others.
//!
//! The file format is described in `docs/format`, byte by byte.

pub mod check;
pub mod claim;
mod clock;
mod compact;
#[cfg(test)]
mod crash_tests;
pub mod db;
pub mod disk;
pub mod downsample;
pub mod error;
pub mod exact;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod glance;
mod guarded;
mod held;
pub mod index;
pub mod info;
mod last;
mod layout;
pub mod limits;
pub mod lock;
mod manifest;
mod memtable;
pub mod meta;
pub mod mirror;
pub mod options;
mod paged;
pub mod progress;
mod quantity;
mod recover;
pub mod repair;
mod retention;
pub mod sample;
mod segment;
pub mod series;
mod series_file;
pub mod snapshot;
pub mod time;
mod together;
pub mod value;
mod wal;

/// The CRC-32 of every file of a database: that of zlib and Ethernet.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

pub use claim::{DbClaim, FOLDERS as DATABASE_FOLDERS};
pub use clock::{Clock, SystemClock};
pub use compact::{CompactProgress, CompactReport};
pub use db::{Db, DropReport, Durability, UpkeepReport};
pub use error::{Error, ErrorKind, Result, is_out_of_room};
pub use exact::ExactSum;
pub use flush::FlushReport;
pub use glance::DbGlance;
pub use held::DbFootprint;
pub use index::{JOB_TAG, MergedIndex, NameKind, NumberTable, SeriesGroups, SeriesIndex, TagPredicate};
pub use info::{DbInfo, StorageFigures, WrittenFigures};
pub use layout::{
    CONNECTION as CONNECTION_FILE, COUNTERS_TAIL, COUNTERS_TAIL_NEW, MANIFEST as MANIFEST_FILE, SAVE_NOTE,
};
pub use meta::inventory::{DeviceKind, DeviceStatus, InventoryEntry};
pub use meta::{
    Annotation, JOB_INTERVALS_BYTES_MAX, JOB_INTERVALS_MAX, JOB_SLOT_TAG, JobInterval, Meta, MetaChange, MetricKind,
    MetricMeta, RECORD_BYTES_MAX, RECORDS_BYTES_MAX, StateRecord,
};
pub use mirror::{Mirror, MirrorReport};
pub use options::Options;
pub use paged::PagedTable;
pub use recover::RecoveryReport;
pub use retention::Retention;
pub use sample::SampleBatch;
pub use segment::CacheFigures;
pub use series::{SeriesId, SeriesKey, TagSet};
pub use snapshot::{
    DigestPart, DigestRequest, JobPart, JobPiece, RecordedJob, ScanColumn, ScanRequest, SeriesByJob, SeriesDigest,
    SeriesOfJob, SeriesPoints, Snapshot, ValueFigures,
};
pub use time::{Step, TimeRange, Timestamp};
pub use together::UnopenedDatabase;
pub use value::{Value, ValueRange, ValueType, Values};
