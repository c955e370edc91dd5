//! The writer's interface to a database. Tests replace it by one whose fsync they control.

use std::fmt::Debug;

use telem_engine::{Db, Durability, Result, SampleBatch};

pub(super) trait SampleStore: Debug + Send + Sync {
    /// All or nothing; the operating system has it afterwards.
    fn append(&self, batch: &SampleBatch) -> Result<()>;
    /// The same without the disk, for the end: only a flush makes it last, and nothing else is appended before one.
    fn append_in_memory(&self, batch: &SampleBatch) -> Result<()>;
    /// Makes durable whatever was appended before the call.
    fn sync(&self) -> Result<()>;
    fn flush_due(&self) -> bool;
    /// Whether more came than a flush should find.
    fn flush_is_behind(&self) -> bool;
    fn flush(&self) -> Result<()>;
    /// Flushes and lets go of the database.
    fn close(&self) -> Result<()>;
}

impl SampleStore for Db {
    fn append(&self, batch: &SampleBatch) -> Result<()> {
        Db::append(self, batch, Durability::Buffered)
    }

    fn append_in_memory(&self, batch: &SampleBatch) -> Result<()> {
        Db::append_in_memory(self, batch)
    }

    fn sync(&self) -> Result<()> {
        Db::sync(self)
    }

    fn flush_due(&self) -> bool {
        Db::flush_due(self)
    }

    fn flush_is_behind(&self) -> bool {
        Db::flush_is_behind(self)
    }

    fn flush(&self) -> Result<()> {
        Db::flush(self)?;
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Db::close(self)
    }
}
