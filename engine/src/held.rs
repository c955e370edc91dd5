//! What a database holds in memory, part by part, by its own count.

use crate::index::IndexBytes;

/// Bytes of each part, with the room that they have for more. What the allocator adds is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbFootprint {
    /// Samples that no segment holds yet, also those that are being flushed.
    pub memtables: u64,
    /// The names of metrics, of tags and of their values.
    pub names: u64,
    /// What leads from names to series and back.
    pub index: u64,
    pub last_values: u64,
    /// Descriptions of metrics and jobs, annotations and records.
    pub metadata: u64,
    /// Footers and run indexes of segments, also those that a merge reads.
    pub footers: u64,
    /// Pages of segments that are kept as they were unpacked, by queries and by a merge.
    pub pages: u64,
    /// Room for the next frames of the WAL.
    pub wal_buffer: u64,
}

impl DbFootprint {
    pub(crate) fn of_index(index: IndexBytes) -> Self {
        Self { names: index.names as u64, index: index.series as u64, ..Self::default() }
    }
}
