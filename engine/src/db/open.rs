//! Opening databases: one directory to write or to read, or several that are read as one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tracing::{info, warn};

use super::counters::DbCounters;
use super::{AppendState, Db, DbState, DbView, Write};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::flush::Flusher;
use crate::index::Nodes;
use crate::last::LastValues;
use crate::layout::Layout;
use crate::lock::WriterLock;
use crate::manifest::Manifest;
use crate::memtable::SparePages;
use crate::options::Options;
use crate::recover::{self, RecoveredDatabase, RecoveryReport};
use crate::segment::SegmentCache;
use crate::together::{Together, UnopenedDatabase, Unsound};
use crate::wal::Wal;

impl Db {
    /// Opens the database in `dir` for writing; creates it if it does not exist.
    ///
    /// # Errors
    /// Unavailable when another writer has it or the disk fails; Corrupt; NotFound when `dir` holds something else.
    pub fn open(dir: &Path, options: Options) -> Result<Db> {
        let layout = Layout::new(dir);
        options.disk.create_dir(dir).map_err(Error::io("create", dir))?;
        let lock = WriterLock::acquire(&options.disk, &*options.machine, &layout, options.lock_claim())?;
        let recovered = recover::for_writing(&options, &layout).inspect_err(|_| {
            if let Err(error) = lock.release() {
                warn!(%error, "the writer lock stays");
            }
        })?;
        let mut db = DbState::new(options, layout, recovered, Some(lock));
        if let Some(lock) = db.write.as_ref().and_then(|write| write.lock.taken_over_from.clone()) {
            db.recovery.taken_over_from = Some(lock);
        }
        info!(dir = %dir.display(), recovery = %db.recovery, "opened a database");
        let db = Db { inner: Arc::new(db) };
        db.retain_at_open();
        Ok(db)
    }

    /// Opens the database in `dir` without writing anything, not even a lock: it may lie where nobody
    /// may write, and another process may be writing it. What that one appends later is not seen;
    /// when it merges segments, reading one that is gone is Io, and opening again helps.
    ///
    /// # Errors
    /// NotFound when there is none; Io; Corrupt.
    pub fn open_read_only(dir: &Path, options: Options) -> Result<Db> {
        let layout = Layout::new(dir);
        let recovered = recover::read_only(&options, &layout)?;
        Ok(Db { inner: Arc::new(DbState::new(options, layout, recovered, None)) })
    }

    /// Whether `dir` holds a database, in whatever state. What is in it is not looked at.
    ///
    /// # Errors
    /// Unavailable when that cannot be determined, for example without permission.
    pub fn stands_in(dir: &Path, disk: &dyn Disk) -> Result<bool> {
        let manifest = Layout::new(dir).manifest();
        match disk.open(&manifest) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(Error::io("open", &manifest)(error)),
        }
    }

    /// Opens the databases in `dirs` as one, as [`Db::open_read_only`] does each of them. Equal keys are one series;
    /// of two samples of one series and time the one of the later directory counts.
    ///
    /// # Errors
    /// Invalid when `dirs` is empty; that of the first database that cannot be opened.
    pub fn open_together(dirs: &[PathBuf], options: Options) -> Result<Db> {
        Self::open_several(dirs, options, Unsound::Fail)
    }

    /// As [`Db::open_together`], and a database that cannot be opened is left out: which, and why, is said beside.
    ///
    /// # Errors
    /// Invalid when `dirs` is empty; that of the first database when none can be opened.
    pub fn open_together_but(dirs: &[PathBuf], options: Options) -> Result<(Db, Vec<UnopenedDatabase>)> {
        let mut unopened = Vec::new();
        let db = Self::open_several(dirs, options, Unsound::LeaveOut(&mut unopened))?;
        Ok((db, unopened))
    }

    fn open_several(dirs: &[PathBuf], options: Options, unsound: Unsound<'_>) -> Result<Db> {
        match dirs {
            [] => Err(Error::EmptyName { what: "the list of databases" }),
            [dir] => Self::open_read_only(dir, options),
            dirs => {
                let cache = Arc::new(segment_cache(&options));
                let together = Together::open(dirs, &options, &cache, unsound)?;
                Ok(Db { inner: Arc::new(DbState::of_several(options, cache, together)) })
            }
        }
    }

    /// What opening found; of several databases everything that opening any of them found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// What opening each of several databases found, in their order; of a single one that.
    pub fn recoveries(&self) -> Vec<(&Path, &RecoveryReport)> {
        let inner = &self.inner;
        if inner.members.is_empty() {
            return vec![(inner.layout.dir(), &inner.recovery)];
        }
        inner.members.iter().map(|member| (&*member.info.dir, &member.recovery)).collect()
    }
}

impl DbState {
    fn new(options: Options, layout: Layout, recovered: RecoveredDatabase, lock: Option<WriterLock>) -> Self {
        let RecoveredDatabase { manifest, index, meta, meta_changed, memtable, next_wal, wal, report } = recovered;
        let cache = Arc::new(segment_cache(&options));
        let series = u32::try_from(index.len()).unwrap_or(u32::MAX);
        let write = lock.map(|lock| Write {
            lock,
            closed: AtomicBool::new(false),
            upkeep: Mutex::default(),
            merging: Mutex::default(),
            spare: Arc::new(SparePages::new(options.memtable_bytes_flush)),
            flusher: Mutex::new(Flusher::new(Arc::clone(&options.disk), layout.clone(), manifest.clone())),
            synced: Mutex::default(),
            append: Mutex::new(AppendState {
                wal: Wal::new(Arc::clone(&options.disk), Arc::clone(&options.clock), layout.clone(), next_wal, wal),
                series_logged: series,
                meta_changed,
                active_since: None,
                frames: Vec::new(),
            }),
            flush_not_before: AtomicU64::new(0),
            full: AtomicBool::new(false),
            counters: DbCounters::default(),
        });
        let mut inner = Self {
            nodes: Nodes::One(Arc::from(&*manifest.node)),
            recovery: report,
            members: Vec::new(),
            parts: None,
            index: Arc::new(index),
            last: LastValues::new(series),
            cache,
            view: RwLock::new(DbView {
                segments: Arc::new([]),
                between: Arc::new([]),
                frozen: Vec::new(),
                active: Arc::new(memtable),
                meta: Arc::new(meta),
                manifest: Arc::new(Manifest::new(String::new(), String::new())),
            }),
            write,
            options,
            layout,
        };
        let segments = inner.segments(&[], &manifest);
        let view = inner.view.get_mut().unwrap_or_else(PoisonError::into_inner);
        view.segments = segments;
        view.manifest = Arc::new(manifest);
        inner
    }

    /// Several databases as one, for reading.
    fn of_several(options: Options, cache: Arc<SegmentCache>, together: Together) -> Self {
        let Together { members, dir, index, meta, nodes, segments, memtables, parts } = together;
        let series = u32::try_from(index.len()).unwrap_or(u32::MAX);
        Self {
            layout: Layout::new(&dir),
            recovery: RecoveryReport::of_several(members.iter().map(|member| &member.recovery)),
            index: Arc::new(index),
            last: LastValues::new(series),
            cache,
            view: RwLock::new(DbView {
                segments: segments.into(),
                between: memtables.into(),
                frozen: Vec::new(),
                active: Arc::default(),
                meta: Arc::new(meta),
                // Each of them has its own; see `members`.
                manifest: Arc::new(Manifest::new(String::new(), nodes.all().to_owned())),
            }),
            nodes,
            members,
            parts: Some(parts.into()),
            write: None,
            options,
        }
    }
}

fn segment_cache(options: &Options) -> SegmentCache {
    SegmentCache::new(options.segment_bytes_max, options.segment_files_max, options.pages_bytes_max)
}
