//! What storage costs in addition to the samples: amplification, tiers, the cache. `docs/storage.md` defines every
//! figure.

use std::fmt;

use serde::{Deserialize, Serialize};
use telem_engine::{CacheFigures, DbInfo, WrittenFigures};

use super::human::{counted, grouped};

/// Of a server since its start; of a directory what its files say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Storage {
    /// Segments over an hour, over a day, and over more.
    pub segments_hour: u64,
    pub segments_day: u64,
    pub segments_wide: u64,
    /// Bytes of all segments.
    pub segment_bytes: u64,
    /// Bytes of merged or dropped segments that stay for other readers for a moment.
    pub removed_bytes: u64,
    /// Bytes on disk for each byte of segments; null without segments.
    pub space_amplification: Option<f64>,
    /// Bytes written for each byte that flushes wrote; null where nothing is written, and before the first flush.
    pub write_amplification: Option<f64>,
    /// Since the start; null where nothing is written.
    pub written: Option<WrittenFigures>,
    /// Run indexes and footers in memory.
    pub cache: CacheFigures,
}

impl Storage {
    pub fn of(info: &DbInfo) -> Storage {
        let figures = &info.storage;
        let written = figures.written.as_ref();
        Storage {
            segments_hour: figures.segments_hour,
            segments_day: figures.segments_day,
            segments_wide: figures.segments_wide,
            segment_bytes: figures.segment_bytes,
            removed_bytes: figures.removed_bytes,
            space_amplification: info.space_amplification().map(rounded),
            write_amplification: written.and_then(|written| written.amplification()).map(rounded),
            written: figures.written,
            cache: figures.cache,
        }
    }
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 1_000.0).round() / 1_000.0
}

/// What follows the number of segments: the rest of that line, and the lines after it.
impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [hours, days, wide] = [self.segments_hour, self.segments_day, self.segments_wide].map(grouped);
        write!(f, ": {hours} of an hour, {days} of a day, {wide} of more")?;
        if let Some(space) = self.space_amplification {
            write!(f, "\nspace      {space:.2} bytes on disk a byte of segments")?;
        }
        if let Some(written) = &self.written {
            let [wal, flush, merge] = [written.wal_bytes, written.flush_bytes, written.merge_bytes].map(grouped);
            write!(f, "\nwritten    ")?;
            if let Some(write) = self.write_amplification {
                write!(f, "{write:.2} bytes a flushed byte: ")?;
            }
            write!(f, "{wal} to the WAL, {flush} by flushes, {merge} by {}", counted(written.merges, "merge"))?;
            if written.segments_dropped > 0 {
                let segments = counted(written.segments_dropped, "segment");
                write!(f, "\ndropped    {segments} with {}", counted(written.samples_dropped, "sample"))?;
            }
        }
        let CacheFigures { hits, misses, evictions, segments, bytes } = self.cache;
        if hits + misses > 0 {
            let misses = format!("{} miss{}", grouped(misses), if misses == 1 { "" } else { "es" });
            let (hits, evictions) = (counted(hits, "hit"), counted(evictions, "eviction"));
            let (bytes, segments) = (counted(bytes, "byte"), counted(segments, "segment"));
            write!(f, "\ncache      {hits}, {misses}, {evictions}, {bytes} of {segments}")?;
        }
        Ok(())
    }
}
