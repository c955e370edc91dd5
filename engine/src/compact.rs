//! Merges of small segments into large ones. They keep the number of a database's files small.
//!
//! [`choose`] and [`due`] decide which segments to merge, and say why that is allowed. The new file is written while
//! appends and flushes go on. It is committed as a flush is: a manifest names it in place of the old segments. Those
//! are removed when the last snapshot that reads them is gone.
//!
//! A merge holds in memory one row group of the new file while it is encoded, as all before it is on the disk, what a
//! snapshot's reader holds, and at most [`SERIES_ROWS_MAX`] rows of one series if its times are spread evenly. It reads
//! apart from all others: what queries ask again and again stays in memory, and what a merge unpacked goes with it.

pub mod choose;
pub mod due;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::flush::{Files, Flusher};
use crate::index::SeriesIndex;
use crate::layout::{self, SEGMENTS, SERIES};
use crate::manifest::{SegmentEntry, SeriesEntry};
use crate::options::Options;
use crate::segment::write::{EncodedSegment, RunValues};
use crate::segment::{SegmentCache, SegmentWriter};
use crate::series::{SeriesId, SeriesKey};
use crate::series_file;
use crate::snapshot::{SeriesPoints, Snapshot};
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;
use choose::Merge;

/// A series with more rows in one merge is read in stretches of time that hold about this many.
const SERIES_ROWS_MAX: u64 = 1 << 20;
/// Pages that a merge keeps unpacked for the next series. It goes through each file from its start to its end: these are
/// several of each of the files that one merge normally has.
const PAGES_BYTES_MAX: u64 = 4 << 20;
/// Series files are merged up to this many series: all their keys are in memory then.
pub const SERIES_MAX: u64 = 256 << 10;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Segments that were merged, and those that came in their place.
    pub segments_before: u64,
    pub segments_after: u64,
    /// Rows of both; the difference was written again later.
    pub rows_before: u64,
    pub rows_after: u64,
    /// Bytes of both.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Series files that became one.
    pub series_files: u64,
    /// Whether it was stopped before its end. Work that was done counts.
    pub stopped: bool,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Rows of all segments that are merged: those that were read, and all of them.
    pub rows_done: u64,
    pub rows_total: u64,
}

impl CompactReport {
    /// Counts a merge of the segments of `source`.
    pub(crate) fn count(&mut self, source: &Snapshot, merged: &SegmentEntry) {
        for segment in source.segments.iter() {
            self.segments_before += 1;
            self.rows_before += segment.entry().rows;
            self.bytes_before += segment.entry().file.bytes;
        }
        self.segments_after += 1;
        self.rows_after += merged.rows;
        self.bytes_after += merged.file.bytes;
    }
}

/// Files on the disk, each durable, that no manifest names yet.
#[derive(Debug)]
pub struct StagedFiles<T> {
    pub entry: T,
    written: Vec<String>,
}

impl<T> StagedFiles<T> {
    /// Removes them: there is something better.
    pub fn discard(self, files: &Files) {
        files.discard(&self.written);
    }
}

/// Writes one segment from those of `merge`, which are the segments of `source`, under the number `sequence` that no
/// file had. `None` when `go_on`, which gets the number of rows that were read, returned false; nothing is left then.
///
/// # Errors
/// Io and Corrupt; nothing is left then, as far as the disk allows.
pub fn write_merged(
    files: &Files,
    node: &str,
    sequence: u64,
    merge: &Merge,
    source: &Snapshot,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<Option<StagedFiles<SegmentEntry>>> {
    let (min, max) = (merge.sequence_min, merge.sequence_max);
    let name = layout::segment_name(merge.window, sequence);
    let staged = stage(files, |written| {
        let mut writer = SegmentWriter::new(node, merge.window, min, max)?;
        files.write_growing(name.clone(), &mut writer, written);
        let Some(encoded) = encode(writer, merge.window, source, go_on)? else { return Ok(None) };
        let entry = files.write_segment(name, merge.window, (min, max), encoded, written)?;
        files.sync_dir(SEGMENTS)?;
        Ok(Some(entry))
    })?;
    let StagedFiles { entry, written } = staged;
    if entry.is_none() {
        files.discard(&written);
    }
    Ok(entry.map(|entry| StagedFiles { entry, written }))
}

/// All that is in `source`; `None` when `go_on` returned false, and without samples.
fn encode(
    mut writer: SegmentWriter,
    window: TimeRange,
    source: &Snapshot,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<Option<EncodedSegment>> {
    let mut rows = 0;
    for MergePortion { series, range, is_all } in portions(source, window)? {
        for points in source.points(series, range) {
            if !go_on(rows) {
                return Ok(None);
            }
            let SeriesPoints { series, times, values } = points?;
            rows += times.len() as u64;
            if is_all {
                let times: Vec<i64> = times.into_iter().map(Timestamp::micros).collect();
                writer.push_run(series, &times, RunValues::from(&values))?;
            } else {
                let samples: Vec<(Timestamp, Value)> = times.into_iter().zip(values.iter()).collect();
                writer.push(series, &samples)?;
            }
        }
    }
    writer.finish()
}

/// Writes one series file from `before`, which follow each other, under the number `file` that no file had.
///
/// # Errors
/// Io; nothing is left then, as far as the disk allows.
pub fn write_series(
    files: &Files,
    file: u64,
    before: &[SeriesEntry],
    index: &SeriesIndex,
) -> Result<StagedFiles<SeriesEntry>> {
    let first_id = before.first().map_or(0, |entry| entry.first_id);
    let end = before.last().map_or(first_id, |entry| entry.first_id + entry.count);
    let keys: Vec<SeriesKey> = (first_id..end).filter_map(|id| index.key(SeriesId(id))).collect();
    let bytes = series_file::encode(first_id, &keys)?;
    stage(files, |written| {
        let file = files.write_file(layout::series_name(file), &bytes, written)?;
        files.sync_dir(SERIES)?;
        Ok(SeriesEntry { file, first_id, count: end - first_id })
    })
}

fn stage<T>(files: &Files, write: impl FnOnce(&mut Vec<String>) -> Result<T>) -> Result<StagedFiles<T>> {
    let mut written = Vec::new();
    match write(&mut written) {
        Ok(entry) => Ok(StagedFiles { entry, written }),
        Err(error) => {
            files.discard(&written);
            Err(error)
        }
    }
}

impl Flusher {
    /// Puts `merged`, or nothing, in the place of the segments called `gone`.
    ///
    /// # Errors
    /// Io; or what `guard` says. Nothing became true then, and `merged` is removed.
    pub fn replace(
        &mut self,
        gone: &[String],
        merged: Option<StagedFiles<SegmentEntry>>,
        guard: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.change(guard, |_, next, written| {
            next.segments.retain(|segment| !gone.contains(&segment.file.file));
            if let Some(staged) = merged {
                written.extend(staged.written);
                next.segments.push(staged.entry);
            }
            Ok(Some(()))
        })?;
        Ok(())
    }

    /// Puts `merged` in the place of the series files `before`, of which none is gone since.
    ///
    /// # Errors
    /// As [`Flusher::replace`].
    pub fn replace_series(
        &mut self,
        before: std::ops::Range<usize>,
        merged: StagedFiles<SeriesEntry>,
        guard: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.change(guard, |_, next, written| {
            written.extend(merged.written);
            next.series.splice(before, [merged.entry]);
            Ok(Some(()))
        })?;
        Ok(())
    }
}

/// What is read at a time: series in the order of rows, in a range.
struct MergePortion {
    series: Vec<SeriesId>,
    range: TimeRange,
    /// Whether the range is all of the window.
    is_all: bool,
}

/// What to read of `source`, portion by portion.
fn portions(source: &Snapshot, window: TimeRange) -> Result<Vec<MergePortion>> {
    let mut rows: BTreeMap<SeriesId, u64> = BTreeMap::new();
    let mut bounds = (window.end, window.start);
    for segment in source.segments.iter() {
        for run in segment.load()?.runs() {
            *rows.entry(run.series).or_default() += u64::from(run.rows);
            bounds = (bounds.0.min(run.first), bounds.1.max(run.last));
        }
    }
    let mut series: Vec<SeriesId> = rows.keys().copied().collect();
    source.index.sort_canonical(&mut series);
    let mut portions = Vec::new();
    for part in series.chunk_by(|a, b| rows[a] <= SERIES_ROWS_MAX && rows[b] <= SERIES_ROWS_MAX) {
        let most = part.iter().map(|id| rows[id]).max().unwrap_or(0);
        let is_all = most <= SERIES_ROWS_MAX;
        let ranges = if is_all { vec![window] } else { stretches(bounds, most) };
        portions.extend(ranges.into_iter().map(|range| MergePortion { series: part.to_vec(), range, is_all }));
    }
    Ok(portions)
}

/// The time from `first` to `last` in equal parts, as many as give each [`SERIES_ROWS_MAX`] of `rows` rows.
fn stretches((first, last): (Timestamp, Timestamp), rows: u64) -> Vec<TimeRange> {
    let parts = rows.div_ceil(SERIES_ROWS_MAX).max(1) as i64;
    let width = (last.micros() - first.micros()) / parts + 1;
    let at = |part: i64| first.saturating_add_micros(part * width);
    (0..parts).map(|part| TimeRange::new(at(part), at(part + 1))).collect()
}

/// A snapshot of some of the segments, without anything else.
pub fn only(snapshot: &Snapshot, files: &[String]) -> Snapshot {
    let wanted = |file: &String| files.contains(file);
    let segments: Vec<_> =
        snapshot.segments.iter().filter(|segment| wanted(&segment.entry().file.file)).cloned().collect();
    Snapshot { segments: Arc::from(segments), memtables: Vec::new(), ..snapshot.clone() }
}

/// What a merge keeps of the segments that it reads.
pub fn cache_apart(options: &Options) -> Arc<SegmentCache> {
    Arc::new(SegmentCache::new(options.segment_bytes_max, options.segment_files_max, PAGES_BYTES_MAX))
}

/// The same segments with run indexes and pages of their own, in `cache`. `source` is held as long as they are read: it
/// keeps the files.
pub fn apart(source: &Snapshot, cache: &Arc<SegmentCache>) -> Snapshot {
    let segments = source.segments.iter().map(|segment| Arc::new(segment.apart(cache))).collect();
    Snapshot { segments, ..source.clone() }
}

#[cfg(test)]
mod tests;
