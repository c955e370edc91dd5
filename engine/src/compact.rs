//! A merge of small segments into large ones: what makes a saved database a handful of files.
//!
//! [`choose`] decides which, and says why that is allowed. Each merge is committed as a flush is:
//! the new file is durable, then a manifest names it in the place of the old ones. Those are
//! removed when the last snapshot that reads them is gone.
//!
//! Memory: the new file while it is encoded (1 to 3 bytes a row as a rule, 20 at the worst, for
//! [`Options::compact_rows_max`](crate::Options) rows), what a snapshot's reader holds, and at most
//! [`SERIES_ROWS_MAX`] rows of one series where its times are spread evenly.

pub mod choose;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::flush::{Flusher, take};
use crate::index::SeriesIndex;
use crate::layout::{self, SEGMENTS, SERIES};
use crate::manifest::{Manifest, SegmentEntry, SeriesEntry};
use crate::segment::SegmentWriter;
use crate::series::{SeriesId, SeriesKey};
use crate::series_file;
use crate::snapshot::Snapshot;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;
use choose::Merge;

/// A series with more rows in one merge is read in stretches of time that hold about this many.
const SERIES_ROWS_MAX: u64 = 1 << 20;
/// Series files are merged up to this many series: all their keys are in memory then.
const SERIES_MAX: u64 = 256 << 10;

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
    /// Whether it was told to stop before its end. What it had done counts.
    pub stopped: bool,
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

impl Flusher {
    /// Puts one segment in the place of those of `merge`, which are the segments of `source`. False when `go_on` said no.
    ///
    /// # Errors
    /// Io and Corrupt; or what `guard` says. Nothing became true then.
    pub fn merge(
        &mut self,
        merge: &Merge,
        source: &Snapshot,
        guard: impl FnOnce() -> Result<()>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        self.change(guard, |flusher, next, written| {
            let Some(entry) = flusher.write_merged(merge, source, next, written, go_on)? else { return Ok(None) };
            next.segments.retain(|segment| !merge.files.contains(&segment.file.file));
            next.segments.push(entry);
            Ok(Some(()))
        })
        .map(|done| done.is_some())
    }

    fn write_merged(
        &self,
        merge: &Merge,
        source: &Snapshot,
        next: &mut Manifest,
        written: &mut Vec<String>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentEntry>> {
        let (min, max) = (merge.sequence_min, merge.sequence_max);
        let mut writer = SegmentWriter::new(&next.node, merge.window, min, max)?;
        for (series, range) in portions(source, merge.window)? {
            for points in source.points(series, range) {
                if !go_on() {
                    return Ok(None);
                }
                let points = points?;
                let values = (0..points.values.len()).map(|at| points.values.get(at));
                let samples: Vec<(Timestamp, Value)> = points.times.iter().copied().zip(values).collect();
                writer.push(points.series, &samples)?;
            }
        }
        // The merged range is that of several flushes; the name needs a number that no file had.
        let name = layout::segment_name(merge.window, take(&mut next.next_sequence));
        let Some(encoded) = writer.finish()? else { return Ok(None) };
        let entry = self.write_segment(name, merge.window, (min, max), &encoded, written)?;
        self.sync_dir(SEGMENTS)?;
        Ok(Some(entry))
    }

    /// Puts one series file in the place of many. Gives back how many these were: none when there is nothing to gain.
    ///
    /// # Errors
    /// Io; or what `guard` says. Nothing became true then.
    pub fn merge_series(&mut self, index: &SeriesIndex, guard: impl FnOnce() -> Result<()>) -> Result<u64> {
        let files = self.manifest().series.len() as u64;
        let count = self.manifest().series_count();
        if files < 2 || count > SERIES_MAX {
            return Ok(0);
        }
        self.change(guard, |flusher, next, written| {
            let keys: Vec<SeriesKey> = (0..count as u32).filter_map(|id| index.key(SeriesId(id))).collect();
            let name = layout::series_name(take(&mut next.next_file));
            let file = flusher.write_file(name, &series_file::encode(0, &keys)?, written)?;
            flusher.sync_dir(SERIES)?;
            next.series = vec![SeriesEntry { file, first_id: 0, count: keys.len() as u32 }];
            Ok(Some(()))
        })?;
        Ok(files)
    }
}

/// What to read of `source` at a time: series in the order of rows, and a range.
fn portions(source: &Snapshot, window: TimeRange) -> Result<Vec<(Vec<SeriesId>, TimeRange)>> {
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
        let ranges = if most <= SERIES_ROWS_MAX { vec![window] } else { stretches(bounds, most) };
        portions.extend(ranges.into_iter().map(|range| (part.to_vec(), range)));
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

#[cfg(test)]
mod tests;
