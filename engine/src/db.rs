//! A database: opening, appending, taking snapshots, flushing and closing.
//!
//! [`Db::append`] writes a frame to the WAL and then adds the samples to the memtable, under one lock. [`Db::flush`]
//! swaps the memtable for a fresh one under that lock, and turns the old one into segments outside of it. A
//! [`Snapshot`] copies a few pointers, and what it shows never changes.
//!
//! Locks are taken in this order: upkeep, flush, sync, append, view. No code waits for a disk under `view`.

mod counters;
mod flush;
mod open;
mod upkeep;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use tracing::{debug, warn};

use crate::disk;
use crate::error::{Error, Result};
use crate::flush::{FlushReport, Flusher, Frozen};
use crate::held::DbFootprint;
use crate::index::Nodes;
use crate::index::SeriesIndex;
use crate::info::{DbInfo, InfoParts};
use crate::last::LastValues;
use crate::layout::Layout;
use crate::lock::WriterLock;
use crate::manifest::Manifest;
use crate::memtable::{Memtable, SAMPLE_BYTES, SparePages};
use crate::meta::{Meta, MetaChange, MetricMeta, SeriesOwner};
use crate::options::Options;
use crate::recover::RecoveryReport;
use crate::retention::Retention;
use crate::sample::SampleBatch;
use crate::segment::{self, CacheFigures, Segment, SegmentCache};
use crate::series::{SeriesId, SeriesKey};
use crate::snapshot::{PlacedPart, Snapshot, Visible};
use crate::time::Timestamp;
use crate::together::{Member, Together};
use crate::value::Value;
use crate::wal::frame::{self, SAMPLES_MAX};
use crate::wal::{Extent, Position, Wal};
use counters::DbCounters;
use upkeep::Upkeep;
pub use upkeep::{DropReport, UpkeepReport};

/// What an acknowledged append survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The death of the process at once; the death of the machine once [`Db::sync`] ran.
    Buffered,
    /// The death of the machine.
    Synced,
}

/// A handle; clones share one database. When the last is dropped without [`Db::close`], the writer
/// lock is given back and the WAL keeps what was not flushed.
#[derive(Clone, Debug)]
pub struct Db {
    inner: Arc<DbState>,
}

#[derive(Debug)]
struct DbState {
    options: Options,
    layout: Layout,
    nodes: Nodes,
    recovery: RecoveryReport,
    /// The databases that are open as one; none where this is a single one.
    members: Vec<Member>,
    /// What each of several databases holds of which job.
    parts: Option<Arc<[PlacedPart]>>,
    index: Arc<SeriesIndex>,
    last: LastValues,
    cache: Arc<SegmentCache>,
    /// What there is to read.
    view: RwLock<DbView>,
    /// `None` when the database is open read-only.
    write: Option<Write>,
}

/// What a snapshot copies.
#[derive(Debug)]
struct DbView {
    /// Oldest first.
    segments: Arc<[Arc<Segment>]>,
    /// Between segments: what one of several databases has in no segment. Empty in a single one.
    between: Arc<[Visible]>,
    /// Being flushed, oldest first.
    frozen: Vec<Arc<Frozen>>,
    active: Arc<Memtable>,
    meta: Arc<Meta>,
    manifest: Arc<Manifest>,
}

/// See [`Db::durable`].
#[derive(Debug)]
pub(crate) struct Durable {
    pub manifest: Arc<Manifest>,
    /// Ascending, none below the manifest's first.
    pub wal: Vec<Extent>,
}

/// What only a writer has.
#[derive(Debug)]
struct Write {
    lock: WriterLock,
    closed: AtomicBool,
    /// Held while segments are merged or dropped. Flushes go on meanwhile.
    upkeep: Mutex<Upkeep>,
    /// What the merge that runs keeps of the segments that it reads.
    merging: Mutex<Weak<SegmentCache>>,
    /// Of memtables that were flushed.
    spare: Arc<SparePages>,
    flusher: Mutex<Flusher>,
    /// How far the WAL is durable. Held while an fsync runs, so that one fsync serves all waiting threads.
    synced: Mutex<Position>,
    append: Mutex<AppendState>,
    /// Milliseconds of the monotonic clock before which no flush is due: set by a failed one.
    flush_not_before: AtomicU64,
    /// The last append was refused because the files may not grow.
    full: AtomicBool,
    counters: DbCounters,
}

/// What the append lock guards.
#[derive(Debug)]
struct AppendState {
    wal: Wal,
    /// Series below this id have a frame in the WAL or are in a series file.
    series_logged: u32,
    /// Whether metadata changed since the last freeze.
    meta_changed: bool,
    /// When the first sample since the last freeze was appended (monotonic).
    active_since: Option<Duration>,
    /// Room for the frames of an append, used again for the next.
    frames: Vec<u8>,
}

/// Room for frames that is kept between appends: most batches have at most 10,000 samples.
const FRAMES_BYTES_KEPT: usize = 1 << 20;

impl Db {
    /// The id of a series, given out now if it is new. It is durable with its first sample.
    ///
    /// # Errors
    /// Unavailable when the database is full of series, or closed; Invalid when it is new and the database read-only.
    pub fn series(&self, key: &SeriesKey) -> Result<SeriesId> {
        if let Some(id) = self.inner.index.id(key) {
            return Ok(id);
        }
        self.inner.write("give a new series its id")?;
        Ok(self.inner.index.get_or_insert(key, self.inner.options.series_max)?.0)
    }

    /// Appends all of `batch` or nothing. After an error of `Synced`'s fsync the samples may be there.
    ///
    /// # Errors
    /// NotFound when a series is unknown; Invalid when a time or the batch's length is; Busy when the memtable is
    /// full; Unavailable when the disk fails, when an earlier fsync did and no flush came since, when the files may
    /// not grow any more, or when closed.
    pub fn append(&self, batch: &SampleBatch, durability: Durability) -> Result<()> {
        let write = self.inner.write("append")?;
        self.inner.check_batch(batch)?;
        if !batch.is_empty() {
            let mut appender = write.appender();
            write.check_open(&self.inner.layout)?;
            self.inner.check_room(batch)?;
            self.inner.check_space(write, frame::samples_len(batch) + appender.wal.bytes())?;
            let series_end = batch.highest_series().map_or(0, |id| id.0 + 1);
            self.inner.log(&mut appender, series_end, |frames| frame::put_samples(frames, batch))?;
            // Only a freeze swaps the active memtable, and that needs the append lock.
            let active = Arc::clone(&self.inner.view().active);
            active.append(batch);
            appender.active_since.get_or_insert_with(|| self.inner.options.clock.monotonic());
            self.inner.last.update(batch);
        }
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => self.inner.sync(write),
        }
    }

    /// Appends `batch` where it can be read and flushed, and not to the WAL: for samples that the WAL cannot take when
    /// the database is about to be closed. Nothing else is appended before the next flush that succeeds.
    ///
    /// # Errors
    /// As [`Db::append`], but for those of the disk.
    pub fn append_in_memory(&self, batch: &SampleBatch) -> Result<()> {
        let write = self.inner.write("append")?;
        self.inner.check_batch(batch)?;
        let mut appender = write.appender();
        write.check_open(&self.inner.layout)?;
        self.inner.check_room(batch)?;
        let active = Arc::clone(&self.inner.view().active);
        active.append(batch);
        // A WAL that went on would speak of series that it never named.
        appender.wal.outgrown();
        let series_end = batch.highest_series().map_or(0, |id| id.0 + 1);
        appender.series_logged = appender.series_logged.max(series_end);
        appender.active_since.get_or_insert_with(|| self.inner.options.clock.monotonic());
        self.inner.last.update(batch);
        Ok(())
    }

    /// Records a change of metadata.
    ///
    /// # Errors
    /// Invalid when a text is too long or the database read-only; Unavailable as with [`Db::append`].
    pub fn put_meta(&self, change: MetaChange, durability: Durability) -> Result<()> {
        let write = self.inner.write("change metadata")?;
        self.inner.log_meta(write, &mut write.appender(), change)?;
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => self.inner.sync(write),
        }
    }

    /// Adds what `said` says of a metric to what is known of it, whoever else describes it meanwhile; what is known
    /// stays. A metric of which nothing is known is taken while fewer than `metrics_max` are.
    ///
    /// # Errors
    /// As [`Db::put_meta`].
    pub fn complete_metric(&self, name: &str, said: &MetricMeta, metrics_max: usize) -> Result<()> {
        let write = self.inner.write("change metadata")?;
        let mut appender = write.appender();
        let before = Arc::clone(&self.inner.view().meta);
        let known = before.metric(name);
        let meta = known.cloned().unwrap_or_default().completed(said);
        if known == Some(&meta) || known.is_none() && before.metrics().len() >= metrics_max {
            return Ok(());
        }
        // It would be copied if it were still looked at.
        drop(before);
        self.inner.log_meta(write, &mut appender, MetaChange::Metric { name: name.into(), meta })
    }

    /// Records a change of metadata without the WAL, as [`Db::append_in_memory`] does samples.
    ///
    /// # Errors
    /// As [`Db::put_meta`], but for those of the disk.
    pub fn put_meta_in_memory(&self, change: MetaChange) -> Result<()> {
        let write = self.inner.write("change metadata")?;
        change.check(&self.inner.view().meta)?;
        let mut appender = write.appender();
        write.check_open(&self.inner.layout)?;
        appender.wal.outgrown();
        appender.meta_changed = true;
        Arc::make_mut(&mut self.inner.view_mut().meta).apply(change);
        Ok(())
    }

    /// Makes everything appended before the call durable. Appends go on meanwhile.
    ///
    /// # Errors
    /// Unavailable when the disk fails; appends are then refused until a flush succeeds.
    pub fn sync(&self) -> Result<()> {
        let write = self.inner.write("sync")?;
        self.inner.sync(write)
    }

    /// Turns everything appended before the call into segments. One runs at a time; others wait for it.
    ///
    /// # Errors
    /// Unavailable when the disk fails or another process took the database over. Nothing is lost
    /// then: the samples stay readable and in the WAL, and the next flush tries again.
    pub fn flush(&self) -> Result<FlushReport> {
        let write = self.inner.write("flush")?;
        self.inner.flush(write)
    }

    /// Whether a flush should run now: memtable or WAL are long or old enough, or an fsync failed.
    pub fn flush_due(&self) -> bool {
        let Ok(write) = self.inner.write("flush") else { return false };
        let options = &self.inner.options;
        let now = options.clock.monotonic();
        if milliseconds(now) < write.flush_not_before.load(Ordering::Relaxed) {
            return false;
        }
        let (wal_bytes, failed, old) = {
            let appender = write.appender();
            let old =
                appender.active_since.is_some_and(|since| now.saturating_sub(since) >= options.memtable_age_flush);
            (appender.wal.bytes(), appender.wal.is_failed(), old)
        };
        let (active, frozen) = {
            let view = self.inner.view();
            (view.active.bytes(), !view.frozen.is_empty())
        };
        let bytes_max = options.retention.bytes.map_or(options.bytes_max, |bytes| bytes.min(options.bytes_max));
        let wal_bytes_flush = options.wal_bytes_flush.min(bytes_max / 4);
        failed || frozen || old || active >= options.memtable_bytes_flush || wal_bytes >= wal_bytes_flush
    }

    /// Whether memtables, or the WAL of a database whose size is limited, hold twice what makes a flush due: samples come
    /// faster than they are flushed. Whoever appends does well to wait a moment, so that what is in memory stays small, and
    /// so that nothing is refused for the lack of room that a flush is about to make.
    pub fn flush_is_behind(&self) -> bool {
        let options = &self.inner.options;
        if self.inner.memtable_bytes() > 2 * options.memtable_bytes_flush {
            return true;
        }
        let wal_bytes = || self.inner.write.as_ref().map_or(0, |write| write.appender().wal.bytes());
        options.bytes_max < u64::MAX && wal_bytes() > options.bytes_max / 2
    }

    /// Flushes and gives the writer lock back. Snapshots go on working until a later writer merges their files away;
    /// everything else fails from here on.
    ///
    /// # Errors
    /// As [`Db::flush`]; the database is then still open.
    pub fn close(&self) -> Result<()> {
        let write = self.inner.write("close")?;
        {
            let _appender = write.appender();
            write.closed.store(true, Ordering::Release);
        }
        if let Err(error) = self.inner.flush(write) {
            write.closed.store(false, Ordering::Release);
            return Err(error);
        }
        // A merge that runs notices that this is the end.
        let mut upkeep = lock(&write.upkeep);
        upkeep.let_go();
        lock(&write.flusher).remove_unnamed();
        // All that it names is flushed. One that stays names nothing that counts.
        if let Err(error) = disk::remove_if_there(&*self.inner.options.disk, &self.inner.layout.wal_list()) {
            warn!(%error, "the list of WAL files stays");
        }
        write.lock.release().inspect_err(|_| write.closed.store(false, Ordering::Release))
    }

    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// The newest sample (by time) of a series: from memory, except for the first query after an open.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments that must be read.
    pub fn last(&self, series: SeriesId) -> Result<Option<(Timestamp, Value)>> {
        match self.inner.last.get(series) {
            Ok(newest) => Ok(newest),
            Err(unread) => Ok(self.inner.last.fill(series, unread, self.snapshot().last(series)?)),
        }
    }

    pub fn index(&self) -> &Arc<SeriesIndex> {
        &self.inner.index
    }

    /// What a copy of this database can rely on: the last manifest, and the WAL behind it. Also of a closed database.
    ///
    /// # Errors
    /// Invalid when the database is read-only.
    pub(crate) fn durable(&self) -> Result<Durable> {
        let path = || self.inner.layout.dir().to_path_buf();
        let action = "copying it while it grows";
        let write = self.inner.write.as_ref().ok_or_else(|| Error::ReadOnly { path: path(), action })?;
        // A manifest moves before the WAL forgets the files that it covers, so none is missing between the two.
        let appender = write.appender();
        let manifest = Arc::clone(&self.inner.view().manifest);
        let mut wal = appender.wal.extents();
        wal.retain(|extent| extent.number >= manifest.first_wal);
        Ok(Durable { manifest, wal })
    }

    /// What is in memory alone or in the WAL, oldest first, as a flush would write it; and what is flushed.
    ///
    /// # Errors
    /// Invalid when the database is read-only.
    pub(crate) fn unflushed(&self) -> Result<(Arc<Manifest>, Vec<Arc<Frozen>>)> {
        let path = || self.inner.layout.dir().to_path_buf();
        let action = "saving what is in memory";
        let write = self.inner.write.as_ref().ok_or_else(|| Error::ReadOnly { path: path(), action })?;
        let appender = write.appender();
        let view = self.inner.view();
        let active = Frozen {
            memtable: Arc::clone(&view.active),
            series_end: appender.series_logged,
            first_wal: appender.wal.after(),
            meta: Some(Arc::clone(&view.meta)),
        };
        let unflushed = view.frozen.iter().cloned().chain([Arc::new(active)]).collect();
        Ok((Arc::clone(&view.manifest), unflushed))
    }

    /// Whether [`Db::close`] was called and succeeded, or runs.
    pub fn is_closed(&self) -> bool {
        self.inner.write.as_ref().is_some_and(|write| write.closed.load(Ordering::Acquire))
    }

    /// Waits until no flush runs and no manifest is being changed.
    pub(crate) fn wait_for_flush(&self) {
        if let Some(write) = &self.inner.write {
            drop(lock(&write.flusher));
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    pub fn is_read_only(&self) -> bool {
        self.inner.write.is_none()
    }

    /// What is kept.
    pub fn retention(&self) -> Retention {
        self.inner.options.retention
    }

    /// # Errors
    /// None today; a caller must expect those of the disk.
    pub fn info(&self) -> Result<DbInfo> {
        Ok(self.inner.info())
    }

    /// The descriptions of jobs, each with the node of its database, in the order in which databases were named: of a
    /// thousand of them far less than [`Db::databases`].
    pub fn described_jobs(&self) -> Vec<(String, serde_json::Value)> {
        let of =
            |node: &str, job: Option<&serde_json::Value>, shared: &mut dyn Iterator<Item = &Arc<serde_json::Value>>| {
                let described = job.into_iter().chain(shared.map(|job| &**job));
                described.map(|job| (node.to_owned(), job.clone())).collect::<Vec<_>>()
            };
        let members = &self.inner.members;
        if members.is_empty() {
            let view = self.inner.view();
            let mut shared = view.meta.job_intervals().iter().map(|interval| &interval.job);
            return of(&view.manifest.node, view.meta.job(), &mut shared);
        }
        let infos = members.iter().map(|member| &member.info);
        infos.flat_map(|info| of(&info.node, info.job.as_ref(), &mut info.shared_jobs.iter())).collect()
    }

    /// What it holds in memory, part by part. It looks at every name and every list of series.
    pub fn held(&self) -> DbFootprint {
        self.inner.held()
    }

    /// How well the cache of run indexes and footers does.
    pub fn cache_figures(&self) -> CacheFigures {
        self.inner.cache.figures()
    }

    /// What is in each of several databases, in the order in which they were named; of a single one that.
    ///
    /// # Errors
    /// None today; a caller must expect those of the disk.
    pub fn databases(&self) -> Result<Vec<DbInfo>> {
        if self.inner.members.is_empty() {
            return Ok(vec![self.info()?]);
        }
        Ok(self.inner.members.iter().map(|member| member.info.clone()).collect())
    }
}

impl DbState {
    /// Handles for the segments of `manifest`, by sequence; those of `known` are used again.
    fn segments(&self, known: &[Arc<Segment>], manifest: &Manifest) -> Arc<[Arc<Segment>]> {
        let mut segments: Vec<Arc<Segment>> = known.to_vec();
        for entry in &manifest.segments[known.len()..] {
            let disk = Arc::clone(&self.options.disk);
            segments.push(Arc::new(Segment::new(entry.clone(), &self.layout, disk, Arc::clone(&self.cache))));
        }
        segment::by_age(segments).into()
    }

    /// What a writer has, if this is one and open.
    fn write(&self, action: &'static str) -> Result<&Write> {
        let path = || self.layout.dir().to_path_buf();
        let write = self.write.as_ref().ok_or_else(|| Error::ReadOnly { path: path(), action })?;
        write.check_open(&self.layout)?;
        Ok(write)
    }

    fn view(&self) -> RwLockReadGuard<'_, DbView> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, DbView> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_batch(&self, batch: &SampleBatch) -> Result<()> {
        if batch.len() > SAMPLES_MAX {
            return Err(Error::LargeBatch { found: batch.len(), max: SAMPLES_MAX });
        }
        let known = self.index.len();
        if let Some(id) = batch.highest_series().filter(|id| id.0 as usize >= known) {
            return Err(Error::UnknownSeries { id: id.0 });
        }
        // Half-open ranges cannot reach it.
        if let Some(at) = batch.times().iter().position(|time| *time == Timestamp::MAX) {
            return Err(Error::LastTime { id: batch.series()[at].0, time: Timestamp::MAX });
        }
        Ok(())
    }

    /// What memtables hold, also those that are being flushed.
    fn memtable_bytes(&self) -> u64 {
        let view = self.view();
        view.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum::<u64>() + view.active.bytes()
    }

    fn held(&self) -> DbFootprint {
        let wal_buffer = self.write.as_ref().map_or(0, |write| write.appender().frames.capacity() as u64);
        let merging = self.write.as_ref().and_then(|write| lock(&write.merging).upgrade());
        let caches = || merging.iter().chain([&self.cache]);
        let (between, metadata) = {
            let view = self.view();
            (view.between.iter().map(|visible| visible.memtable.bytes()).sum::<u64>(), Arc::clone(&view.meta))
        };
        DbFootprint {
            memtables: between + self.memtable_bytes() + self.write.as_ref().map_or(0, |write| write.spare.bytes()),
            last_values: self.last.bytes() as u64,
            metadata: metadata.held_bytes() as u64,
            footers: caches().map(|cache| cache.figures().bytes).sum(),
            pages: caches().map(|cache| cache.pages().bytes()).sum(),
            wal_buffer,
            ..DbFootprint::of_index(self.index.bytes())
        }
    }

    /// Asked before the WAL is written: what is refused leaves no trace.
    fn check_room(&self, batch: &SampleBatch) -> Result<()> {
        let found = self.memtable_bytes();
        let max = self.options.memtable_bytes_max;
        if found + batch.len() as u64 * SAMPLE_BYTES > max || !self.view().active.has_room(batch.len()) {
            return Err(Error::MemtableFull { found, max });
        }
        Ok(())
    }

    /// The same for the files, were the WAL to hold `wal_bytes`.
    fn check_space(&self, write: &Write, wal_bytes: u64) -> Result<()> {
        let max = self.options.bytes_max;
        if max == u64::MAX {
            return Ok(());
        }
        let found = wal_bytes + self.view().manifest.files().map(|file| file.bytes).sum::<u64>();
        if found <= max {
            write.full.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let error = Error::DatabaseFull { path: self.layout.dir().to_path_buf(), found, max };
        if !write.full.swap(true, Ordering::Relaxed) {
            // The code that appends reports this, and what becomes of the samples.
            debug!(%error, "samples are refused");
        }
        Err(error)
    }

    /// Appends the frames that `put` makes to the WAL, in the same write behind the frames of series that have none yet.
    fn log(&self, appender: &mut AppendState, series_end: u32, put: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut frames = std::mem::take(&mut appender.frames);
        frames.clear();
        // All below, so that ids are dense after a recovery too.
        for id in (appender.series_logged..series_end).map(SeriesId) {
            let key = self.index.key(id).ok_or(Error::UnknownSeries { id: id.0 })?;
            frame::put_series(&mut frames, id, &key);
        }
        put(&mut frames);
        if !appender.wal.is_begun() {
            // Another process may have this directory now, or a database of its own in its place.
            self.write.as_ref().map_or(Ok(()), |write| write.lock.check())?;
        }
        let logged = appender.wal.append(&mut frames, appender.series_logged);
        if frames.capacity() <= FRAMES_BYTES_KEPT {
            appender.frames = frames;
        }
        logged?;
        appender.series_logged = appender.series_logged.max(series_end);
        Ok(())
    }

    fn log_meta(&self, write: &Write, appender: &mut AppendState, change: MetaChange) -> Result<()> {
        change.check(&self.view().meta)?;
        // In one piece: what grows leaves behind as much as it takes.
        let mut json = Vec::with_capacity(change.json_room());
        serde_json::to_writer(&mut json, &change)
            .map_err(|error| Error::Internal { what: format!("metadata cannot be written as JSON: {error}") })?;
        write.check_open(&self.layout)?;
        self.log(appender, 0, |frames| frame::put_meta(frames, &json))?;
        appender.meta_changed = true;
        Arc::make_mut(&mut self.view_mut().meta).apply(change);
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let view = self.view();
        let newest = view.frozen.iter().map(|frozen| &frozen.memtable).chain([&view.active]).map(|memtable| Visible {
            memtable: Arc::clone(memtable),
            rows: memtable.rows(),
            segments_before: view.segments.len(),
            part: None,
        });
        let memtables = view.between.iter().cloned().chain(newest).collect();
        Snapshot {
            nodes: self.nodes.clone(),
            index: Arc::clone(&self.index),
            // After the rows: every sample among them has a series below.
            series_end: SeriesId(u32::try_from(self.index.len()).unwrap_or(u32::MAX)),
            meta: Arc::clone(&view.meta),
            segments: Arc::clone(&view.segments),
            memtables,
            parts: self.parts.clone(),
            is_narrowed: false,
            owner: SeriesOwner::Any,
        }
    }

    fn info(&self) -> DbInfo {
        if let Some(mut info) = Together::info(&self.members, self.layout.dir(), &self.index, &self.nodes) {
            info.storage.cache = self.cache.figures();
            return info;
        }
        let (wal_bytes, written) = match &self.write {
            Some(write) => {
                let appender = write.appender();
                (appender.wal.bytes(), Some(write.counters.figures(appender.wal.written())))
            }
            None => (self.recovery.bytes, None),
        };
        let view = self.view();
        let memtables: Vec<&Memtable> =
            view.frozen.iter().map(|frozen| &*frozen.memtable).chain([&*view.active]).collect();
        DbInfo::new(&InfoParts {
            layout: &self.layout,
            manifest: &view.manifest,
            meta: &view.meta,
            memtables: &memtables,
            metrics: self.index.metrics().len(),
            series: self.index.len(),
            wal_bytes,
            read_only: self.write.is_none(),
            removed_bytes: self.write.as_ref().map_or(0, |write| write.counters.removed()),
            cache: self.cache.figures(),
            written,
        })
    }
}

impl Write {
    fn appender(&self) -> MutexGuard<'_, AppendState> {
        lock(&self.append)
    }

    fn check_open(&self, layout: &Layout) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { path: layout.dir().to_path_buf() });
        }
        Ok(())
    }
}

impl Drop for Write {
    /// The samples are in the WAL; the lock must not outlive us, or a process that lives on could not open again.
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire)
            && let Err(error) = self.lock.release()
        {
            warn!(%error, "the writer lock stays");
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What these locks guard is whole before anything under them can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
