//! The upkeep of an open database: merges, and dropping the segments that retention does not keep.
//!
//! Upkeep does one thing at a time, under a lock of its own. A new file is written while appends and flushes go on;
//! only its commit, a new manifest, takes its turn among the flushes. No other code removes segments, so the chosen
//! segments still exist at the commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::{Db, DbState, Write, lock};
use crate::compact::choose::{Bounds, Merge, choose};
use crate::compact::due::{FILES_MIN, due, due_series};
use crate::compact::{self, CompactProgress, CompactReport, StagedFiles};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, SegmentEntry};
use crate::options::Options;
use crate::retention;
use crate::segment::Segment;
use crate::time::Timestamp;

/// What the upkeep lock guards.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Segments that cannot be read. No merge of them is tried again before the next open.
    spoiled: BTreeSet<String>,
    /// Segments that no manifest names any more, and until when (monotonic) they stay for readers in other processes.
    leaving: Vec<(Duration, Arc<Segment>)>,
    /// The generation of the manifest when files that it does not name were last removed.
    cleaned: u64,
}

impl Upkeep {
    /// Lets the last reader of each segment that left remove its file.
    pub(super) fn let_go(&mut self) {
        self.leaving.clear();
    }

    fn leaving_bytes(&self) -> u64 {
        self.leaving.iter().map(|(_, segment)| segment.entry().file.bytes).sum()
    }
}

/// What a step of [`Db::upkeep`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepReport {
    pub merged: CompactReport,
    pub dropped: DropReport,
}

/// What retention dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropReport {
    pub segments: u64,
    pub rows: u64,
    pub bytes: u64,
}

impl UpkeepReport {
    /// Whether there was nothing to do: there will be when time has passed, or after a flush.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether segments that left the manifest stay for [`crate::Options::removed_kept`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    AtOnce,
    InAWhile,
}

/// How many of the series files are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpkeepRequest {
    All,
    WhatIsDue,
}

impl Db {
    /// One step of what an open database needs from time to time: what [`crate::Options::retention`] does not keep is
    /// dropped; else one merge is made, if one is due, so that files stay few while samples come in. Call it again until
    /// it is idle, and then every few seconds. Appends, readers and flushes go on meanwhile; a flush waits for the commit
    /// of a manifest at most.
    ///
    /// Stops soon after `go_on` says no: asked before each series of a merge.
    ///
    /// # Errors
    /// As [`Db::flush`]; Corrupt when a segment is damaged, which is not tried again. Nothing is lost.
    pub fn upkeep(&self, go_on: &dyn Fn() -> bool) -> Result<UpkeepReport> {
        let inner = &*self.inner;
        let write = inner.write("merge segments")?;
        let mut upkeep = lock(&write.upkeep);
        write.spare.release_unused();
        let now = inner.options.clock.monotonic();
        upkeep.leaving.retain(|(until, _)| now < *until);
        write.counters.set_removed(upkeep.leaving_bytes());
        let mut report = UpkeepReport { dropped: inner.retain(write, &mut upkeep)?, ..UpkeepReport::default() };
        if !report.is_idle() {
            return Ok(report);
        }
        inner.merge_what_is_due(write, &mut upkeep, go_on, &mut report.merged)?;
        if report.is_idle() {
            inner.remove_unnamed(write, &mut upkeep);
        }
        Ok(report)
    }

    /// Merges segments into one for each day, or for each hour where a day has too many rows, and series files into
    /// one. What is not flushed stays as it is: for the fewest files, [`Db::flush`] before and [`Db::close`] after.
    /// Appends, readers and flushes go on meanwhile, as with [`Db::upkeep`].
    ///
    /// # Errors
    /// As [`Db::flush`]; Corrupt when a segment is damaged. What was merged before stays merged, and nothing is lost.
    pub fn compact(&self) -> Result<CompactReport> {
        self.compact_while(&|_| true)
    }

    /// As [`Db::compact`], and stops soon after `go_on` says no: asked before each series of a merge, and told how far it
    /// is.
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn compact_while(&self, go_on: &dyn Fn(CompactProgress) -> bool) -> Result<CompactReport> {
        let inner = &*self.inner;
        let write = inner.write("merge segments")?;
        let mut upkeep = lock(&write.upkeep);
        let mut report = CompactReport::default();
        inner.retain(write, &mut upkeep)?;
        let manifest = Arc::clone(&inner.view().manifest);
        let merges = choose(&manifest.segments, &inner.bounds());
        let (rows_total, mut rows_before) = (merges.iter().map(|merge| merge.rows).sum(), 0);
        for merge in merges {
            let go_on = |rows| go_on(CompactProgress { rows_done: rows_before + rows, rows_total });
            inner.merge(write, &mut upkeep, &merge, Removal::AtOnce, &go_on, &mut report)?;
            if report.stopped {
                return Ok(report);
            }
            rows_before += merge.rows;
        }
        inner.merge_series(write, UpkeepRequest::All, &mut report)?;
        inner.remove_unnamed(write, &mut upkeep);
        // What left before goes with what left now.
        upkeep.let_go();
        write.counters.set_removed(0);
        Ok(report)
    }
}

impl Db {
    /// Best effort: there is a next time.
    pub(super) fn retain_at_open(&self) {
        let Ok(write) = self.inner.write("drop segments") else { return };
        if let Err(error) = self.inner.retain(write, &mut lock(&write.upkeep)) {
            warn!(%error, "segments that retention does not keep stay for now");
        }
    }
}

impl DbState {
    fn bounds(&self) -> Bounds {
        let Options { compact_rows_max, compact_bytes_max, retention, .. } = &self.options;
        let bytes_max = retention.segment_bytes_max().min(*compact_bytes_max);
        Bounds { rows_max: *compact_rows_max, bytes_max, days: retention.allows_days() }
    }

    /// Drops the segments that are not to be kept.
    fn retain(&self, write: &Write, upkeep: &mut Upkeep) -> Result<DropReport> {
        let retention = &self.options.retention;
        if !retention.is_bounded() {
            return Ok(DropReport::default());
        }
        let manifest = Arc::clone(&self.view().manifest);
        let segments: u64 = manifest.segments.iter().map(|entry| entry.file.bytes).sum();
        let other = self.bytes(write, &manifest) - segments;
        let names = retention::choose(&manifest.segments, other, retention, self.options.clock.now());
        if names.is_empty() {
            return Ok(DropReport::default());
        }
        let gone = compact::only(&self.snapshot(), &names).segments;
        self.replace(write, upkeep, &gone, None, Removal::InAWhile)?;
        let entries = || gone.iter().map(|segment| segment.entry());
        let last = entries().map(|entry| entry.last).max().unwrap_or(i64::MIN);
        self.last.forget_until(Timestamp::from_micros(last));
        let (rows, bytes) = (entries().map(|entry| entry.rows).sum(), entries().map(|entry| entry.file.bytes).sum());
        let report = DropReport { segments: gone.len() as u64, rows, bytes };
        write.counters.dropped(&report);
        info!(segments = gone.len(), rows, bytes, "dropped segments that retention does not keep");
        Ok(report)
    }

    /// One merge of segments, or one of series files.
    fn merge_what_is_due(
        &self,
        write: &Write,
        upkeep: &mut Upkeep,
        go_on: &dyn Fn() -> bool,
        report: &mut CompactReport,
    ) -> Result<()> {
        let manifest = Arc::clone(&self.view().manifest);
        let room = self.room(write, &manifest);
        let possible =
            |merge: &Merge| merge.bytes <= room && !merge.files.iter().any(|file| upkeep.spoiled.contains(file));
        let merges = due(&manifest.segments, self.options.clock.now(), &self.bounds());
        let Some(merge) = merges.into_iter().find(possible) else {
            return self.merge_series(write, UpkeepRequest::WhatIsDue, report);
        };
        let merged = self.merge(write, upkeep, &merge, Removal::InAWhile, &|_| go_on(), report);
        if merged.as_ref().is_err_and(|error| !is_for_now(error)) {
            upkeep.spoiled.extend(merge.files);
        }
        merged
    }

    /// How many bytes may come beside those that are there.
    fn room(&self, write: &Write, manifest: &Manifest) -> u64 {
        self.options.bytes_max.saturating_sub(self.bytes(write, manifest))
    }

    /// Of all files.
    fn bytes(&self, write: &Write, manifest: &Manifest) -> u64 {
        manifest.files().map(|file| file.bytes).sum::<u64>() + write.appender().wal.bytes()
    }

    fn merge(
        &self,
        write: &Write,
        upkeep: &mut Upkeep,
        merge: &Merge,
        leave: Removal,
        go_on: &dyn Fn(u64) -> bool,
        report: &mut CompactReport,
    ) -> Result<()> {
        let source = compact::only(&self.snapshot(), &merge.files);
        let (files, sequence) = {
            let mut flusher = lock(&write.flusher);
            (flusher.files(), flusher.reserve_sequence())
        };
        let is_open = || !write.closed.load(Ordering::Acquire);
        let go_on = |rows| is_open() && go_on(rows);
        let cache = compact::cache_apart(&self.options);
        *lock(&write.merging) = Arc::downgrade(&cache);
        let read = compact::apart(&source, &cache);
        let Some(staged) = compact::write_merged(&files, read.node(), sequence, merge, &read, &go_on)? else {
            report.stopped = true;
            return Ok(());
        };
        if !is_open() {
            staged.discard(&files);
            report.stopped = true;
            return Ok(());
        }
        drop((read, cache));
        let entry = staged.entry.clone();
        self.replace(write, upkeep, &source.segments, Some(staged), leave)?;
        let mut this = CompactReport::default();
        this.count(&source, &entry);
        write.counters.merged(&this);
        report.count(&source, &entry);
        debug!(files = merge.files.len(), rows = entry.rows, into = entry.file.file, "merged segments");
        Ok(())
    }

    /// Commits that `merged`, or nothing, replaces the segments `gone`.
    fn replace(
        &self,
        write: &Write,
        upkeep: &mut Upkeep,
        gone: &[Arc<Segment>],
        merged: Option<StagedFiles<SegmentEntry>>,
        leave: Removal,
    ) -> Result<()> {
        let names: Vec<String> = gone.iter().map(|segment| segment.entry().file.file.clone()).collect();
        {
            let mut flusher = lock(&write.flusher);
            flusher.replace(&names, merged, || write.lock.check())?;
            let manifest = Arc::new(flusher.manifest().clone());
            let mut view = self.view_mut();
            let stays = |segment: &&Arc<Segment>| !names.contains(&segment.entry().file.file);
            let known: Vec<Arc<Segment>> = view.segments.iter().filter(stays).cloned().collect();
            view.segments = self.segments(&known, &manifest);
            view.manifest = manifest;
        }
        // The files are removed when the last snapshot that reads them is dropped, and this list with them.
        gone.iter().for_each(|segment| segment.retire());
        // Where there is little room, nothing is kept for others.
        if leave == Removal::InAWhile && self.options.bytes_max == u64::MAX {
            let until = self.options.clock.monotonic() + self.options.removed_kept;
            upkeep.leaving.extend(gone.iter().map(|segment| (until, Arc::clone(segment))));
            write.counters.set_removed(upkeep.leaving_bytes());
        }
        Ok(())
    }

    /// All series files, or as many as are due.
    fn merge_series(&self, write: &Write, wanted: UpkeepRequest, report: &mut CompactReport) -> Result<()> {
        let manifest = Arc::clone(&self.view().manifest);
        let few = manifest.series.len() > 1 && manifest.series_count() <= compact::SERIES_MAX;
        let before = match wanted {
            UpkeepRequest::All if few => Some(0..manifest.series.len()),
            UpkeepRequest::All => due_series(&manifest.series, 2, compact::SERIES_MAX),
            UpkeepRequest::WhatIsDue => due_series(&manifest.series, FILES_MIN, compact::SERIES_MAX),
        };
        let Some(before) = before else { return Ok(()) };
        let (files, number) = {
            let mut flusher = lock(&write.flusher);
            (flusher.files(), flusher.reserve_file())
        };
        let merged = compact::write_series(&files, number, &manifest.series[before.clone()], &self.index)?;
        let mut flusher = lock(&write.flusher);
        report.series_files = before.len() as u64;
        // Flushes only add to them.
        flusher.replace_series(before, merged, || write.lock.check())?;
        self.view_mut().manifest = Arc::new(flusher.manifest().clone());
        Ok(())
    }

    /// Removes series and metadata files that newer ones replaced, unless nothing changed since.
    fn remove_unnamed(&self, write: &Write, upkeep: &mut Upkeep) {
        if self.view().manifest.generation == upkeep.cleaned {
            return;
        }
        let flusher = lock(&write.flusher);
        flusher.remove_unnamed();
        upkeep.cleaned = flusher.manifest().generation;
    }
}

/// Whether the same may succeed later without a repair of the files.
fn is_for_now(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable) && !matches!(error, Error::Gone { .. })
}

#[cfg(test)]
mod tests;
