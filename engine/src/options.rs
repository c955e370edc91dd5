//! Every limit and every choice of the engine, with its default.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, OsDisk};

#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the node whose samples these are; written into a new database, checked nowhere.
    pub node: String,
    /// A flush is due when the memtable holds this much.
    pub memtable_bytes_flush: u64,
    /// Appends are refused (Busy) when memtables, frozen ones included, hold this much.
    pub memtable_bytes_max: u64,
    /// A flush is due when the oldest unflushed frame stands this far back in the WAL.
    pub wal_bytes_flush: u64,
    /// Most series in one database.
    pub series_max: u32,
    /// Take over a writer lock that another host, or a live process, seems to hold.
    pub take_over: bool,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: "local".to_owned(),
            memtable_bytes_flush: 96 << 20,
            memtable_bytes_max: 384 << 20,
            wal_bytes_flush: 256 << 20,
            series_max: 10_000_000,
            take_over: false,
            disk: Arc::new(OsDisk),
            clock: Arc::new(SystemClock::new()),
        }
    }
}
