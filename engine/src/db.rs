//! A database: open it, append to it, take snapshots of it, close it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey};
use crate::snapshot::Snapshot;

/// What an acknowledged append survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The death of the process at once; the death of the machine once [`Db::sync`] ran.
    Buffered,
    /// The death of the machine.
    Synced,
}

/// A handle; clones share one database.
#[derive(Clone, Debug)]
pub struct Db {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    index: Arc<SeriesIndex>,
    memtable: Arc<Memtable>,
    append: Mutex<()>,
}

impl Db {
    /// Opens the database in `dir` for writing, made if there is none.
    ///
    /// # Errors
    /// Unavailable when another writer has it or the disk fails; Corrupt; NotFound when `dir` holds something else.
    pub fn open(dir: &Path, options: Options) -> Result<Db> {
        options.disk.create_dir(dir).map_err(Error::io("create", dir))?;
        Ok(Db {
            inner: Arc::new(Inner {
                options,
                index: Arc::default(),
                memtable: Arc::default(),
                append: Mutex::default(),
            }),
        })
    }

    /// The id of a series, given out now if it is new.
    ///
    /// # Errors
    /// Unavailable when the database is full of series.
    pub fn series(&self, key: &SeriesKey) -> Result<SeriesId> {
        Ok(self.inner.index.get_or_insert(key, self.inner.options.series_max)?.0)
    }

    /// Appends all of `batch` or nothing.
    ///
    /// # Errors
    /// NotFound when a series is unknown; Busy when the memtable is full; Unavailable when the disk fails.
    pub fn append(&self, batch: &SampleBatch, _durability: Durability) -> Result<()> {
        let known = self.inner.index.len();
        if let Some((series, _, _)) = batch.iter().find(|(series, _, _)| series.0 as usize >= known) {
            return Err(Error::UnknownSeries { id: series.0 });
        }
        let _one_appender = self.inner.append.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.memtable.append(batch);
        Ok(())
    }

    /// Makes everything appended before the call durable.
    ///
    /// # Errors
    /// Unavailable when the disk fails.
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Whether memory or the WAL hold enough that [`Db::flush`] should run.
    pub fn flush_due(&self) -> bool {
        false
    }

    /// # Errors
    /// Unavailable when the disk fails.
    pub fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Flushes and lets go of the database.
    ///
    /// # Errors
    /// Unavailable when the disk fails.
    pub fn close(&self) -> Result<()> {
        self.flush()
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            node: Arc::from(&*self.inner.options.node),
            index: Arc::clone(&self.inner.index),
            memtables: vec![(Arc::clone(&self.inner.memtable), self.inner.memtable.rows())],
        }
    }

    pub fn index(&self) -> &Arc<SeriesIndex> {
        &self.inner.index
    }
}
