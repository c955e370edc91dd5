//! The storage engine of telem: one directory, one node, one writer.
//!
//! Synchronous: no tokio, no DataFusion, no HTTP. Read [`db`] first: it is the way in
//! (`append -> WAL -> memtable -> flush -> segment`), and [`snapshot`] is the way out.
//! The domain types of the whole product live here: [`Timestamp`], [`Value`], [`SeriesKey`].

pub mod clock;
pub mod db;
pub mod disk;
pub mod error;
pub mod index;
mod memtable;
pub mod options;
pub mod sample;
pub mod series;
pub mod snapshot;
pub mod time;
pub mod value;

pub use clock::{Clock, SystemClock};
pub use db::{Db, Durability};
pub use error::{Error, ErrorKind, Result};
pub use index::{NameKind, SeriesIndex, TagPredicate};
pub use options::Options;
pub use sample::SampleBatch;
pub use series::{SeriesId, SeriesKey, TagSet};
pub use snapshot::{ScanRequest, SeriesPoints, Snapshot, Values};
pub use time::{Step, TimeRange, Timestamp};
pub use value::Value;
