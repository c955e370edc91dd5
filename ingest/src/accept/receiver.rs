//! A database and what is remembered of what came before, for tests of the ways in.

use telem_engine::{Db, Options};
use tempfile::TempDir;

use super::{AcceptCounters, DecoderMemory, Limits};

pub struct Receiver {
    pub db: Db,
    pub memory: DecoderMemory,
    pub limits: Limits,
    pub counters: AcceptCounters,
    _dir: TempDir,
}

impl Receiver {
    pub fn new() -> Self {
        Self::within(Limits::default())
    }

    pub fn within(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
        let (memory, counters) = (DecoderMemory::new(1 << 20), AcceptCounters::default());
        Self { db, memory, limits, counters, _dir: dir }
    }
}
