//! A segment: one immutable Parquet file with the samples of one window of time.
//!
//! Rows are sorted by (canonical order of series, time), and every (series, time) occurs once. The columns are
//! `series u32`, `ts timestamp[us, UTC]`, `int i64?`, `scale i8?`, `float f64?`. A row with `float` is a Float. A row
//! without `float` and `scale` is the Int `int`; one with a negative `scale` is the Int `int * 2^-scale`. Any other row
//! is the Float `int / 10^scale`. Any Parquet reader can read them so; ours also uses the run index ([`index`]), which
//! is stored between the last row group and the footer.

pub(crate) mod blocks;
mod cache;
pub(crate) mod decimal;
mod delta;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
pub mod label;
mod pages;
pub mod read;
pub mod rebuild;
mod summary;
pub mod times;
mod varint;
pub mod write;

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

pub use cache::{CacheFigures, SegmentCache};
pub use decimal::power as power_of_ten;
pub use index::Run;
pub use pages::PageCache;
pub use read::Segment;
pub use summary::{Kind, Sum, Summary};
pub use write::SegmentWriter;

use crate::error::Error;

/// The version of a segment's layout. What stores no integers shifted is written as the first one.
pub const FORMAT: &str = "1";
pub const FORMAT_SHIFTED: &str = "2";
/// Rows of one page: what a reader of one series decodes at least.
pub const PAGE_ROWS: usize = 16 << 10;
/// Rows of one row group, at most.
pub const ROW_GROUP_ROWS: usize = 1 << 20;
/// Largest `scale`: 10^18 is the last power of ten that an i64 holds.
pub const SCALE_MAX: i8 = 18;
/// Integers are shifted by so many bits at the most: then one bit is left of them, and their sign.
pub const SHIFT_MAX: u8 = 62;

/// Of one database, the oldest first: by the flushes that their samples came with.
pub fn by_age(mut segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
    segments.sort_by_key(|segment| (segment.entry().sequence_max, segment.entry().window_start));
    segments
}

pub fn schema() -> SchemaRef {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")));
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        Field::new("ts", utc, false),
        Field::new("int", DataType::Int64, true),
        Field::new("scale", DataType::Int8, true),
        Field::new("float", DataType::Float64, true),
    ]))
}

fn corrupt(path: &Path, what: &str, found: String, expected: &str) -> Error {
    Error::Corrupt { path: path.to_path_buf(), what: what.to_owned(), found, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests;
