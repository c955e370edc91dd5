//! The storage engine of telem: one directory, one node, one writer.
//!
//! Synchronous: no tokio, no DataFusion, no HTTP. Read [`db`] first: it is the way in
//! (`append -> WAL -> memtable -> flush -> segment`), and [`snapshot`] is the way out.
//! The domain types of the whole product live here: [`Timestamp`], [`Value`], [`SeriesKey`].

pub mod check;
pub mod clock;
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
mod guarded;
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
pub mod progress;
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

pub use clock::{Clock, SystemClock};
pub use compact::{CompactProgress, CompactReport};
pub use db::{Db, DropReport, Durability, UpkeepReport};
pub use error::{Error, ErrorKind, Result, is_out_of_room};
pub use exact::ExactSum;
pub use flush::FlushReport;
pub use index::{MergedIndex, NameKind, SeriesIndex, TagPredicate};
pub use info::{DbInfo, StorageFigures, WrittenFigures};
pub use layout::{CONNECTION as CONNECTION_FILE, SAVE_NOTE};
pub use meta::{Annotation, Meta, MetaChange, MetricKind, MetricMeta};
pub use mirror::{Mirror, MirrorReport};
pub use options::Options;
pub use recover::RecoveryReport;
pub use retention::Retention;
pub use sample::SampleBatch;
pub use segment::CacheFigures;
pub use series::{SeriesId, SeriesKey, TagSet};
pub use snapshot::{JobPart, ScanColumn, ScanRequest, SeriesPoints, Snapshot, ValueFigures};
pub use time::{Step, TimeRange, Timestamp};
pub use together::Unopened;
pub use value::{Value, ValueType, Values};
