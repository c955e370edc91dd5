//! Rebuilds a segment from its Parquet data alone, if its run index is damaged or the manifest is lost.
//!
//! The bytes read here have not been checked block by block. So the caller states which proof they have, and every rule
//! of the format is checked row by row. The Parquet library may panic on bytes that no writer made; that counts as
//! damage too.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{TimestampMicrosecondArray, UInt32Array};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::blocks::FileBytes;
use super::label::{Label, label_in};
use super::read::{LoadedSegment, Piece, ValueColumns, column};
use super::write::EncodedSegment;
use super::{Run, SegmentWriter, corrupt};
use crate::disk::InMemory;
use crate::error::Result;
use crate::guarded::{guarded, plainly};
use crate::manifest::SegmentEntry;
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 64 << 10;

/// Parquet's own schema says enough; one of Arrow's beside it, which we do not write, could hold anything.
fn options() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

/// Reads the label of a segment.
///
/// # Errors
/// Corrupt without a footer of format 1.
pub fn label(path: &Path, bytes: &Bytes) -> Result<Label> {
    guarded(path, || {
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(FileBytes(bytes.clone()), options())
            .map_err(|error| corrupt(path, "its Parquet footer", plainly(&error), "that of a segment"))?;
        label_in(path, reader.metadata().file_metadata(), bytes.len() as u64)
    })
}

/// Decodes every row of `bytes` and encodes them again, with a run index. What a flush or a merge of today wrote
/// comes out byte for byte.
///
/// # Errors
/// Corrupt when a row is not what `label` and the format promise.
pub fn rewrite(path: &Path, bytes: &Bytes, label: &Label) -> Result<EncodedSegment> {
    guarded(path, || {
        let unreadable =
            |error: &dyn std::fmt::Display| corrupt(path, "its Parquet", plainly(error), "a segment of format 1");
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(FileBytes(bytes.clone()), options())
            .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
            .map_err(|error| unreadable(&error))?;
        let mut writer = SegmentWriter::new(&label.node, label.window, label.sequence_min, label.sequence_max)?;
        let mut run = RebuiltRun { path, label, series: None, known: HashSet::new(), last: Timestamp::MIN };
        let mut samples: Vec<(Timestamp, Value)> = Vec::new();
        for batch in reader {
            let batch = batch.map_err(|error| unreadable(&error))?;
            let series: &UInt32Array = column(&batch, "series", path)?;
            let times: &TimestampMicrosecondArray = column(&batch, "ts", path)?;
            let values = ValueColumns::of(path, &batch)?;
            for row in 0..batch.num_rows() {
                let id = SeriesId(series.value(row));
                if run.series.is_some_and(|open| open != id) {
                    push(&mut writer, run.series, &mut samples)?;
                }
                let time = Timestamp::from_micros(times.value(row));
                run.check(id, time)?;
                samples.push((time, values.value(row)?.0));
                if samples.len() >= BATCH_ROWS {
                    push(&mut writer, run.series, &mut samples)?;
                }
            }
        }
        push(&mut writer, run.series, &mut samples)?;
        let found = writer.finish()?.filter(|encoded| encoded.rows == label.rows);
        found.ok_or_else(|| corrupt(path, "its rows", "others".to_owned(), &label.rows.to_string()))
    })
}

fn push(writer: &mut SegmentWriter, series: Option<SeriesId>, samples: &mut Vec<(Timestamp, Value)>) -> Result<()> {
    if let Some(series) = series {
        writer.push(series, samples)?;
    }
    samples.clear();
    Ok(())
}

/// The promises that a row is held against.
struct RebuiltRun<'a> {
    path: &'a Path,
    label: &'a Label,
    series: Option<SeriesId>,
    /// Every series that has begun.
    known: HashSet<SeriesId>,
    last: Timestamp,
}

impl RebuiltRun<'_> {
    fn check(&mut self, series: SeriesId, time: Timestamp) -> Result<()> {
        let wrong = |what: &str, found: String, expected: &str| Err(corrupt(self.path, what, found, expected));
        if !self.label.window.contains(time) {
            return wrong("the time of a row", time.utc(), "one in its window");
        }
        if self.series != Some(series) {
            if !self.known.insert(series) {
                return wrong("its order", format!("series {} twice", series.0), "every series once");
            }
            self.series = Some(series);
        } else if time <= self.last {
            let found = format!("{} after {} in series {}", time.utc(), self.last.utc(), series.0);
            return wrong("its order", found, "ascending times in every series");
        }
        self.last = time;
        Ok(())
    }
}

/// The segment whose bytes these are, held against `entry` as [`LoadedSegment::open`] does a file.
///
/// # Errors
/// Corrupt.
pub fn load(path: &Path, bytes: &Bytes, entry: &SegmentEntry) -> Result<LoadedSegment> {
    LoadedSegment::parse(Arc::new(InMemory(bytes.clone())), path, entry, None)
}

/// Halvings of the time of a run at most, to find what of it can be read.
const HALVINGS_MAX: u32 = 12;
/// A stretch of so few rows is read or lost as a whole.
const STRETCH_ROWS: u64 = 512;

/// Reads of `run` what can be read, in the order of time: pages whose blocks are damaged are left out.
/// Gives back the stretches of time in which rows were left out.
///
/// # Errors
/// Those of `take`.
pub fn read_run(
    loaded: &LoadedSegment,
    run: &Run,
    take: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<Vec<TimeRange>> {
    let mut lost = Vec::new();
    let whole = TimeRange::new(run.first, run.last.saturating_add_micros(1));
    // Without its times there is nothing to halve.
    let divisible = loaded.read(std::slice::from_ref(run), TimeRange::new(run.first, run.first)).is_ok();
    read_stretch(loaded, run, whole, if divisible { HALVINGS_MAX } else { 0 }, take, &mut lost)?;
    Ok(lost)
}

fn read_stretch(
    loaded: &LoadedSegment,
    run: &Run,
    range: TimeRange,
    halvings: u32,
    take: &mut dyn FnMut(Piece) -> Result<()>,
    lost: &mut Vec<TimeRange>,
) -> Result<()> {
    let read = guarded(Path::new(""), || loaded.read(std::slice::from_ref(run), range));
    if let Ok(pieces) = read {
        return pieces.into_iter().filter(|piece| !piece.times.is_empty()).try_for_each(take);
    }
    let (start, end) = (range.start.micros(), range.end.micros());
    let middle = Timestamp::from_micros(((i128::from(start) + i128::from(end)) / 2) as i64);
    if halvings == 0 || loaded.rows_in(run, range) <= STRETCH_ROWS || middle == range.start {
        match lost.last_mut() {
            Some(before) if before.end == range.start => before.end = range.end,
            _ => lost.push(range),
        }
        return Ok(());
    }
    read_stretch(loaded, run, TimeRange::new(range.start, middle), halvings - 1, take, lost)?;
    read_stretch(loaded, run, TimeRange::new(middle, range.end), halvings - 1, take, lost)
}

#[cfg(test)]
mod tests;
