//! A flush turns a frozen memtable into segments, in an order that a crash may interrupt anywhere.
//!
//! First the series increment, the metadata file and the segments become durable, then the manifest that names them.
//! Only then is the WAL that they cover removed. Until the manifest is replaced, the new files are not part of the
//! database.

use std::sync::Arc;

use tracing::warn;

use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::layout::{self, Layout, META, SEGMENTS, SERIES};
use crate::manifest::{FileEntry, Manifest, SegmentEntry, SeriesEntry};
use crate::memtable::{ChainColumns, Memtable};
use crate::meta::Meta;
use crate::segment::SegmentWriter;
use crate::segment::write::{EncodedSegment, RunValues};
use crate::series::SeriesId;
use crate::series_file;
use crate::time::{DAY, HOUR, TimeRange, Timestamp};

/// Hour windows up to this many hours; a backfill of more would make thousands of files.
const HOURS_MAX: usize = 48;
/// Day windows up to this many days, then windows of [`WIDE`], then one window of all time.
const DAYS_MAX: usize = 400;
const WIDE: i64 = 256 * DAY;
/// Segments that are encoded at the same time: each holds a page and its compressed pages.
const WINDOWS_AT_ONCE: usize = 16;

/// Series whose samples are brought near at the same time: with some hundred samples each, a share of a core's cache.
const READ_TOGETHER: usize = 16;

/// What one flush writes: everything in the WAL below `first_wal`.
#[derive(Debug)]
pub struct Frozen {
    pub memtable: Arc<Memtable>,
    /// Series with a lower id are in the WAL or in series files.
    pub series_end: u32,
    /// The first WAL file whose frames are not covered.
    pub first_wal: u64,
    /// All metadata, if any of it changed.
    pub meta: Option<Arc<Meta>>,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushReport {
    pub samples: u64,
    pub segments: u64,
    /// Bytes of those segments.
    pub bytes: u64,
    pub series: u64,
}

/// Writes the files of a database, each whole and durable before a manifest names it.
#[derive(Clone, Debug)]
pub struct Files {
    disk: Arc<dyn Disk>,
    layout: Layout,
}

/// Writes flushes and commits manifests; there is one at a time.
#[derive(Debug)]
pub struct Flusher {
    files: Files,
    /// What is durable. Its numbers for the next files grow with every attempt, also a failed one.
    manifest: Manifest,
    /// Whether a commit that failed may have put another manifest in its place: a reader may find files that
    /// `manifest` does not name.
    in_doubt: bool,
}

impl Files {
    pub fn write_segment(
        &self,
        name: String,
        window: TimeRange,
        (sequence_min, sequence_max): (u64, u64),
        encoded: EncodedSegment,
        written: &mut Vec<String>,
    ) -> Result<SegmentEntry> {
        let file = match encoded.written {
            None => self.write_file(name, &encoded.bytes, written)?,
            Some(part) => {
                let (bytes, crc32) = part.end(&encoded.bytes)?;
                FileEntry { file: name, bytes, crc32 }
            }
        };
        Ok(SegmentEntry {
            file,
            rows: encoded.rows,
            window_start: window.start.micros(),
            window_end: window.end.micros(),
            first: encoded.first.micros(),
            last: encoded.last.micros(),
            sequence_min,
            sequence_max,
            tail: encoded.tail,
            tail_crc32: encoded.tail_crc32,
        })
    }

    pub fn write_file(&self, file: String, bytes: &[u8], written: &mut Vec<String>) -> Result<FileEntry> {
        written.push(file.clone());
        disk::write_file(&*self.disk, &self.layout.named(&file), bytes)?;
        Ok(FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) })
    }

    /// Lets `writer` write to the file as it grows.
    pub fn write_growing(&self, file: String, writer: &mut SegmentWriter, written: &mut Vec<String>) {
        writer.write_to(Arc::clone(&self.disk), self.layout.named(&file));
        written.push(file);
    }

    pub fn sync_dir(&self, folder: &str) -> Result<()> {
        let dir = self.layout.sub(folder);
        self.disk.sync_dir(&dir).map_err(Error::io("sync", &dir))
    }

    /// Best effort, to give a full disk its space back; what stays is removed at the next open.
    pub fn discard(&self, written: &[String]) {
        for file in written {
            if let Err(error) = disk::remove_if_there(&*self.disk, &self.layout.named(file)) {
                warn!(%error, "a file of a failed flush or merge stays until the next open");
            }
        }
    }
}

impl Flusher {
    pub fn new(disk: Arc<dyn Disk>, layout: Layout, manifest: Manifest) -> Self {
        Self { files: Files { disk, layout }, manifest, in_doubt: false }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// For code that writes a file which a later [`Flusher::change`] names.
    pub fn files(&self) -> Files {
        self.files.clone()
    }

    /// A number for the name of a segment that is written while flushes go on.
    pub fn reserve_sequence(&mut self) -> u64 {
        take(&mut self.manifest.next_sequence)
    }

    /// The same for a series file.
    pub fn reserve_file(&mut self) -> u64 {
        take(&mut self.manifest.next_file)
    }

    /// Makes `frozen` durable outside the WAL; gives back the new segments.
    /// `guard` is asked right before the manifest moves.
    ///
    /// # Errors
    /// Io, or what `guard` says; nothing became true then, or it is in doubt.
    pub fn write(
        &mut self,
        frozen: &Frozen,
        index: &SeriesIndex,
        guard: impl FnOnce() -> Result<()>,
    ) -> Result<(Vec<SegmentEntry>, FlushReport)> {
        let before = self.manifest.segments.len();
        let report =
            self.change(guard, |flusher, next, written| flusher.write_files(frozen, index, next, written).map(Some))?;
        self.remove_wal();
        Ok((self.manifest.segments[before..].to_vec(), report.unwrap_or_default()))
    }

    /// Lets `make` write files and name them in the next manifest, and commits that; `None` from it is a change of mind.
    /// `guard` is asked right before the manifest moves.
    ///
    /// # Errors
    /// Io, or what the two say; nothing became true then, or it is in doubt.
    pub fn change<T>(
        &mut self,
        guard: impl FnOnce() -> Result<()>,
        make: impl FnOnce(&Self, &mut Manifest, &mut Vec<String>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut next = self.manifest.clone();
        next.generation += 1;
        let mut written = Vec::new();
        let prepared = make(self, &mut next, &mut written).and_then(|made| {
            if made.is_some() {
                guard()?;
                next.prepare(&*self.files.disk, &self.files.layout)?;
            }
            Ok(made)
        });
        // Numbers are used up even by a failed attempt: its files may be there.
        self.manifest.next_sequence = next.next_sequence;
        self.manifest.next_file = next.next_file;
        self.manifest.generation = next.generation;
        let made = match prepared {
            Ok(Some(made)) => made,
            other => {
                self.files.discard(&written);
                return other;
            }
        };
        // From here on a reader may find either manifest, so no file of either is removed.
        self.in_doubt = true;
        Manifest::install(&*self.files.disk, &self.files.layout)?;
        self.in_doubt = false;
        self.manifest = next;
        Ok(Some(made))
    }

    fn write_files(
        &self,
        frozen: &Frozen,
        index: &SeriesIndex,
        next: &mut Manifest,
        written: &mut Vec<String>,
    ) -> Result<FlushReport> {
        let mut report = FlushReport::default();
        next.first_wal = frozen.first_wal;
        let first_id = u32::try_from(next.series_count()).unwrap_or(u32::MAX);
        if frozen.series_end > first_id {
            let count = frozen.series_end - first_id;
            report.series = u64::from(count);
            let name = layout::series_name(take(&mut next.next_file));
            let keys = (first_id..frozen.series_end).map_while(|id| index.key(SeriesId(id)));
            let file = self.files.write_file(name, &series_file::encode(first_id, keys)?, written)?;
            self.files.sync_dir(SERIES)?;
            next.series.push(SeriesEntry { file, first_id, count });
        }
        if let Some(meta) = &frozen.meta {
            let json = serde_json::to_vec_pretty(&**meta)
                .map_err(|error| Error::Internal { what: format!("metadata cannot be written as JSON: {error}") })?;
            let name = layout::meta_name(take(&mut next.next_file));
            // The file before it stays until the next open: a reader of the old manifest may want it.
            next.set_meta(self.files.write_file(name, &json, written)?, meta);
            self.files.sync_dir(META)?;
        }
        let sequence = take(&mut next.next_sequence);
        let mut entries = self.write_segments(&frozen.memtable, index, sequence, &next.node, written)?;
        if !entries.is_empty() {
            self.files.sync_dir(SEGMENTS)?;
        }
        for entry in &entries {
            report.segments += 1;
            report.samples += entry.rows;
            report.bytes += entry.file.bytes;
        }
        next.segments.append(&mut entries);
        Ok(report)
    }

    fn write_segments(
        &self,
        memtable: &Memtable,
        index: &SeriesIndex,
        sequence: u64,
        node: &str,
        written: &mut Vec<String>,
    ) -> Result<Vec<SegmentEntry>> {
        let mut series = memtable.series();
        index.sort_canonical(&mut series);
        let mut entries = Vec::new();
        for windows in windows(memtable).chunks(WINDOWS_AT_ONCE) {
            let mut writers = Vec::with_capacity(windows.len());
            for window in windows {
                writers.push((*window, SegmentWriter::new(node, *window, sequence, sequence)?));
            }
            let span = TimeRange::new(windows[0].start, windows[windows.len() - 1].end);
            let (mut columns, mut samples) = (ChainColumns::default(), Vec::new());
            for (at, id) in series.iter().enumerate() {
                if at % READ_TOGETHER == 0 {
                    memtable.bring_near(&series[at..series.len().min(at + READ_TOGETHER)]);
                }
                if memtable.read_columns(*id, memtable.rows(), &mut columns) {
                    for (window, writer) in &mut writers {
                        push_columns(writer, *id, *window, &columns)?;
                    }
                    continue;
                }
                memtable.read_into(*id, span, memtable.rows(), &mut samples);
                for (window, writer) in &mut writers {
                    let from = samples.partition_point(|(time, _)| *time < window.start);
                    let to = samples.partition_point(|(time, _)| *time < window.end);
                    if from < to {
                        writer.push(*id, &samples[from..to])?;
                    }
                }
            }
            for (window, writer) in writers {
                if let Some(encoded) = writer.finish()? {
                    let name = layout::segment_name(window, sequence);
                    entries.push(self.files.write_segment(name, window, (sequence, sequence), encoded, written)?);
                }
            }
        }
        Ok(entries)
    }

    /// Removes the series and metadata files that the manifest does not name any more: a reader of an older manifest
    /// that misses one starts over. Best effort; none while it is in doubt which manifest that is.
    pub fn remove_unnamed(&self) {
        if self.in_doubt {
            return;
        }
        for folder in [SERIES, META] {
            for path in self.files.layout.list(&*self.files.disk, folder).unwrap_or_default() {
                let named = self.manifest.files().any(|entry| self.files.layout.named(&entry.file) == path);
                if !named && let Err(error) = disk::remove_if_there(&*self.files.disk, &path) {
                    warn!(%error, "a file that is not needed any more stays until the next open");
                }
            }
        }
    }

    /// Best effort: recovery skips what stays, and tries again.
    fn remove_wal(&self) {
        let files = self.files.layout.wal_files(&*self.files.disk).unwrap_or_default();
        for (_, path) in files.iter().filter(|(number, _)| *number < self.manifest.first_wal) {
            if let Err(error) = disk::remove_if_there(&*self.files.disk, path) {
                warn!(%error, "a WAL file that is not needed any more stays until the next open");
            }
        }
    }
}

pub fn take(number: &mut u64) -> u64 {
    let taken = *number;
    *number += 1;
    taken
}

/// Those of `columns` in `window`, which are sorted.
fn push_columns(writer: &mut SegmentWriter, id: SeriesId, window: TimeRange, columns: &ChainColumns) -> Result<()> {
    let ChainColumns { times, ints, floats } = columns;
    let before = |end: Timestamp| times.partition_point(|time| *time < end.micros());
    let rows = before(window.start)..before(window.end);
    if rows.is_empty() {
        return Ok(());
    }
    let values =
        if ints.is_empty() { RunValues::Floats(&floats[rows.clone()]) } else { RunValues::Ints(&ints[rows.clone()]) };
    writer.push_run(id, &times[rows], values)
}

/// The windows that hold samples of `memtable`, ascending, as short as their number allows.
fn windows(memtable: &Memtable) -> Vec<TimeRange> {
    let by = |width: i64, max: usize| -> Option<Vec<TimeRange>> {
        let buckets = memtable.time_buckets(width, max)?;
        Some(buckets.into_iter().map(|bucket| window(bucket, width)).collect())
    };
    by(HOUR, HOURS_MAX)
        .or_else(|| by(DAY, DAYS_MAX))
        .or_else(|| by(WIDE, DAYS_MAX))
        .unwrap_or_else(|| vec![TimeRange::ALL])
}

/// Bucket `bucket` of those that are `width` long and aligned to the epoch; cut off at the ends of all time.
pub fn window(bucket: i64, width: i64) -> TimeRange {
    let start = bucket.saturating_mul(width);
    let end = bucket.saturating_add(1).saturating_mul(width);
    TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end))
}

/// The windows that a segment with a sample of this time may have, the shortest first.
pub fn windows_with(time: Timestamp) -> impl Iterator<Item = TimeRange> {
    let of = move |width: i64| window(time.micros().div_euclid(width), width);
    [HOUR, DAY, WIDE].into_iter().map(of).chain([TimeRange::ALL])
}

#[cfg(test)]
mod tests;
