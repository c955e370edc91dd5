//! The limits of the engine with their values as they are: the rows of docs/limits.md, and what a row is.
//!
//! The values come from the constants and from `Default`; a field of [`Options`] that has no row does not compile.

#[cfg(test)]
mod tests;

use crate::manifest::JOB_COPY_BYTES_MAX;
use crate::memtable::SAMPLE_BYTES;
use crate::meta::{
    JOB_BYTES_MAX, JOB_INTERVALS_BYTES_MAX, JOB_INTERVALS_MAX, RECORD_BYTES_MAX, RECORDS_BYTES_MAX, TEXT_BYTES_MAX,
};
use crate::options::Options;
use crate::retention::Retention;
use crate::series::{METRIC_BYTES_MAX, TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX};
use crate::wal::frame::SAMPLES_MAX;

pub use crate::quantity::{bytes, count, counted, share, time};

/// One limit, as its page tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// What is limited, with the name of its constant or field.
    pub what: &'static str,
    /// Its value, where nothing else is asked for.
    pub default: String,
    /// What becomes of what is over it.
    pub over_it: String,
    /// The option of the command line that sets it.
    pub flag: Option<&'static str>,
}

impl LimitRow {
    pub fn new(what: &'static str, default: impl Into<String>, over_it: impl Into<String>) -> Self {
        Self { what, default: default.into(), over_it: over_it.into(), flag: None }
    }

    /// The same limit, which an option of the command line sets.
    pub fn flag(self, flag: &'static str) -> Self {
        Self { flag: Some(flag), ..self }
    }
}

const REJECTED: &str = "the sample is rejected";

/// Limits of names, of series and of what is known of them.
pub fn names() -> Vec<LimitRow> {
    let Options { series_max, .. } = Options::default();
    vec![
        LimitRow::new("bytes of a metric (`METRIC_BYTES_MAX`)", count(METRIC_BYTES_MAX), REJECTED),
        LimitRow::new("bytes of a tag key (`TAG_KEY_BYTES_MAX`)", count(TAG_KEY_BYTES_MAX), REJECTED),
        LimitRow::new("bytes of a tag value (`TAG_VALUE_BYTES_MAX`)", count(TAG_VALUE_BYTES_MAX), REJECTED),
        LimitRow::new("tags of a series (`TAGS_MAX`)", count(TAGS_MAX), REJECTED),
        LimitRow::new(
            "series of a database (`Options::series_max`)",
            count(series_max),
            "samples of new series are rejected, those of known ones taken",
        )
        .flag("--series-max"),
        LimitRow::new("bytes of a text of metadata (`TEXT_BYTES_MAX`)", bytes(TEXT_BYTES_MAX as u64), "refused"),
        LimitRow::new("bytes of a job's description (`JOB_BYTES_MAX`)", bytes(JOB_BYTES_MAX as u64), "refused"),
        LimitRow::new(
            "bytes of a description that the manifest repeats (`JOB_COPY_BYTES_MAX`)",
            bytes(JOB_COPY_BYTES_MAX as u64),
            "`telem ls` reads the metadata file too",
        ),
        LimitRow::new(
            "jobs that shared a database (`JOB_INTERVALS_MAX`)",
            count(JOB_INTERVALS_MAX),
            "the one that ended first is forgotten, and its samples belong to no job",
        ),
        LimitRow::new(
            "memory of their descriptions (`JOB_INTERVALS_BYTES_MAX`)",
            bytes(JOB_INTERVALS_BYTES_MAX as u64),
            "the same",
        ),
        LimitRow::new(
            "a record of small state, with its names (`RECORD_BYTES_MAX`)",
            bytes(RECORD_BYTES_MAX as u64),
            "it is refused",
        ),
        LimitRow::new(
            "all of these records (`RECORDS_BYTES_MAX`)",
            bytes(RECORDS_BYTES_MAX as u64),
            "new ones are refused",
        ),
    ]
}

/// Limits of memory, of files and of what is done with them.
pub fn storage() -> Vec<LimitRow> {
    const FLUSH: &str = "a flush begins";
    let Options {
        memtable_bytes_flush,
        memtable_age_flush,
        memtable_bytes_max,
        wal_bytes_flush,
        bytes_max,
        retention: Retention { age, bytes: retention_bytes },
        segment_files_max,
        segment_bytes_max,
        pages_bytes_max,
        compact_rows_max,
        compact_bytes_max,
        removed_kept,
        flush_retry,
        // Told by `names`.
        series_max: _,
        // No limits.
        node: _,
        take_over: _,
        disk: _,
        machine: _,
        clock: _,
    } = Options::default();
    // A block's head and what is empty in it take one byte a sample more.
    let flushed = memtable_bytes_flush / (SAMPLE_BYTES + 1) / 10_000 * 10_000;
    vec![
        LimitRow::new("samples of a batch (`SAMPLES_MAX`)", count(SAMPLES_MAX), "refused"),
        LimitRow::new(
            "memtable that is flushed (`memtable_bytes_flush`)",
            format!("{}: some {} samples", bytes(memtable_bytes_flush), count(flushed)),
            FLUSH,
        ),
        LimitRow::new("age at which it is flushed (`memtable_age_flush`)", time(memtable_age_flush), FLUSH),
        LimitRow::new("memtables together (`memtable_bytes_max`)", bytes(memtable_bytes_max), "503, try again"),
        LimitRow::new("WAL that is flushed (`wal_bytes_flush`)", bytes(wal_bytes_flush), FLUSH),
        LimitRow::new("files of a database (`bytes_max`)", bytes(bytes_max), "refused until there is room")
            .flag("--data-bytes-max"),
        LimitRow::new(
            "age of samples (`Retention::age`)",
            age.map_or("none".to_owned(), time),
            "older ones are dropped, a file at a time; some stay a quarter longer, or an hour",
        )
        .flag("--retention-age"),
        LimitRow::new(
            "files of a database before the oldest samples go (`Retention::bytes`)",
            retention_bytes.map_or("none".to_owned(), bytes),
            "the oldest samples are dropped, a file at a time",
        )
        .flag("--retention-bytes"),
        LimitRow::new(
            "segments open at once (`segment_files_max`)",
            count(segment_files_max),
            "the one not used for longest is closed",
        ),
        LimitRow::new(
            "memory for their run indexes (`segment_bytes_max`)",
            bytes(segment_bytes_max),
            "the one not used for longest is dropped",
        ),
        LimitRow::new(
            "memory for pages that were unpacked lately (`pages_bytes_max`)",
            bytes(pages_bytes_max),
            "those not used again are dropped, the oldest first",
        ),
        LimitRow::new("rows of a merged segment (`compact_rows_max`)", count(compact_rows_max), "hours stay apart"),
        LimitRow::new(
            "bytes of the segments that are merged into one (`compact_bytes_max`)",
            bytes(compact_bytes_max),
            "they stay apart",
        ),
        LimitRow::new(
            "how long merged segments are kept for other processes that read them (`removed_kept`)",
            format!("{}; none where `bytes_max` is set", time(removed_kept)),
            "removed",
        ),
        LimitRow::new("between attempts to flush (`flush_retry`)", time(flush_retry), ""),
    ]
}
