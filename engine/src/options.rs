//! Every limit and every choice of the engine, with its default.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, OsDisk};
use crate::lock::{Linux, LockClaim, Machine};
use crate::retention::Retention;

#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the node whose samples these are; written into a new database, checked nowhere.
    pub node: String,
    /// A flush is due when the memtable holds this much: 17 bytes a sample and some more a series. 16 MiB, so that with
    /// those that are flushed meanwhile and what encoding takes a busy telem stays small.
    pub memtable_bytes_flush: u64,
    /// A flush is due when the first sample of the memtable was appended this long ago. 1 h: where little comes in,
    /// little stays in memory, and little is left to recover.
    pub memtable_age_flush: Duration,
    /// Appends are refused (Busy) when memtables, frozen ones included, hold this much.
    pub memtable_bytes_max: u64,
    /// A flush is due when the oldest unflushed frame is this far back in the WAL.
    pub wal_bytes_flush: u64,
    /// Appends are refused (Unavailable) when the files of the database hold this much. A WAL that grows to a quarter
    /// of it is flushed, which makes it small. No limit by default.
    pub bytes_max: u64,
    /// What is dropped after a while. Nothing by default. With a limit of bytes, a WAL that grows to a quarter of it is
    /// flushed, and no merge makes a segment of more than an eighth of it.
    pub retention: Retention,
    /// Most series in one database.
    pub series_max: u32,
    /// Take over a writer lock that another host, or a live process, seems to hold.
    pub take_over: bool,
    /// Most segments that stay open with their run indexes in memory, besides those being read.
    pub segment_files_max: usize,
    /// Most memory for the run indexes and footers of those.
    pub segment_bytes_max: u64,
    /// Most memory for pages that were unpacked lately. 16 MiB: some ten million samples.
    pub pages_bytes_max: u64,
    /// Most rows of a segment that a merge makes.
    pub compact_rows_max: u64,
    /// Most bytes of the segments that go into one merge, and with them most of what it holds in memory: the new file.
    pub compact_bytes_max: u64,
    /// How long a segment that [`crate::Db::upkeep`] merged stays on the disk for other processes that have the database
    /// open for reading. At once removed where `bytes_max` is set.
    pub removed_kept: Duration,
    /// How long after a failed flush the next is due.
    pub flush_retry: Duration,
    pub disk: Arc<dyn Disk>,
    /// This process, and the other running processes: for the writer lock.
    pub machine: Arc<dyn Machine>,
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: "local".to_owned(),
            memtable_bytes_flush: 16 << 20,
            memtable_age_flush: Duration::from_secs(3_600),
            memtable_bytes_max: 384 << 20,
            wal_bytes_flush: 256 << 20,
            bytes_max: u64::MAX,
            retention: Retention::default(),
            series_max: 10_000_000,
            take_over: false,
            segment_files_max: 256,
            segment_bytes_max: 64 << 20,
            pages_bytes_max: 16 << 20,
            compact_rows_max: 32 << 20,
            compact_bytes_max: 64 << 20,
            removed_kept: Duration::from_secs(60),
            flush_retry: Duration::from_secs(1),
            disk: Arc::new(OsDisk),
            machine: Arc::new(Linux),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl Options {
    pub(crate) fn lock_claim(&self) -> LockClaim {
        if self.take_over { LockClaim::TakeOver } else { LockClaim::IfFree }
    }
}
