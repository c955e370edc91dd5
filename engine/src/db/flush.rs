//! The fsync of the WAL, and the flush of a memtable.
//!
//! A flush has two parts. First the memtable is frozen and a fresh one takes its place, under the append lock. Then the
//! frozen one is written while appends go on. If that fails, the frozen memtable stays readable and is written first by
//! the next flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{DbState, Write, lock, milliseconds};
use crate::error::{Error, Result};
use crate::flush::{FlushReport, Flusher, Frozen};
use crate::memtable::Memtable;

impl DbState {
    pub(super) fn sync(&self, write: &Write) -> Result<()> {
        let target = {
            let mut appender = write.appender();
            let Some(target) = appender.wal.sync_target()? else { return Ok(()) };
            // Nothing is durable in a file whose loss would go unnoticed.
            appender.wal.list()?;
            target
        };
        let mut synced = lock(&write.synced);
        if *synced >= target.position {
            return Ok(());
        }
        // Others appended while this call waited for the one before: one fsync serves them too.
        let now = match write.appender().wal.sync_target()? {
            Some(now) if now.position.number == target.position.number => now,
            // Its file was closed, which made it durable.
            _ => return Ok(()),
        };
        if let Err(source) = now.handle.sync() {
            write.appender().wal.fail(now.position.number, &source.to_string());
            return Err(Error::Io { action: "sync", path: now.path, source });
        }
        // The last write may be in a file that can no longer be found.
        if !now.handle.is_at(&now.path).map_err(Error::io("look at", &now.path))? {
            return Err(Error::Removed { path: self.layout.dir().to_path_buf() });
        }
        *synced = now.position;
        write.appender().wal.synced(now.position);
        Ok(())
    }

    pub(super) fn flush(&self, write: &Write) -> Result<FlushReport> {
        let mut flusher = lock(&write.flusher);
        let done = (|| {
            // What a failed flush left comes first: it is older.
            let before = self.flush_frozen(write, &mut flusher)?;
            self.freeze(write);
            let now = self.flush_frozen(write, &mut flusher)?;
            Ok(FlushReport {
                samples: before.samples + now.samples,
                segments: before.segments + now.segments,
                bytes: before.bytes + now.bytes,
                series: before.series + now.series,
            })
        })();
        let not_before = match &done {
            Ok(_) => 0,
            Err(_) => milliseconds(self.options.clock.monotonic() + self.options.flush_retry),
        };
        write.flush_not_before.store(not_before, Ordering::Relaxed);
        done
    }

    /// Swaps in a fresh memtable and a fresh WAL file, unless nothing was appended.
    fn freeze(&self, write: &Write) {
        // Most of the WAL is made durable here, so that little is left to wait for under the append lock.
        // A failure is noted in the WAL, and a flush is what heals it.
        let _ = self.sync(write);
        // The kernel reports a failed write to one fsync of a file: two at a time could leave one believing.
        let _one_fsync = lock(&write.synced);
        let mut appender = write.appender();
        let nothing = self.view().active.is_empty() && !appender.meta_changed && !appender.wal.is_failed();
        if nothing {
            return;
        }
        appender.active_since = None;
        let first_wal = appender.wal.finish();
        let mut view = self.view_mut();
        let meta = std::mem::take(&mut appender.meta_changed).then(|| Arc::clone(&view.meta));
        let memtable = std::mem::replace(&mut view.active, Arc::new(Memtable::with_spare(&write.spare)));
        let series_end = appender.series_logged;
        view.frozen.push(Arc::new(Frozen { memtable, series_end, first_wal, meta }));
    }

    fn flush_frozen(&self, write: &Write, flusher: &mut Flusher) -> Result<FlushReport> {
        let mut report = FlushReport::default();
        loop {
            let Some(frozen) = self.view().frozen.first().cloned() else { return Ok(report) };
            let (_, done) = flusher.write(&frozen, &self.index, || write.lock.check())?;
            let manifest = Arc::new(flusher.manifest().clone());
            {
                let mut view = self.view_mut();
                view.segments = self.segments(&view.segments, &manifest);
                view.frozen.remove(0);
                view.manifest = manifest;
            }
            write.appender().wal.covered(frozen.first_wal);
            write.counters.flushed(&done);
            report.samples += done.samples;
            report.segments += done.segments;
            report.bytes += done.bytes;
            report.series += done.series;
        }
    }
}
