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
use parquet::file::metadata::FileMetaData;

use super::blocks::FileBytes;
use super::read::{Loaded, Piece, ValueColumns, column, corrupt};
use super::write::Encoded;
use super::{FORMAT, FORMAT_SHIFTED, Run, SegmentWriter};
use crate::disk::InMemory;
use crate::error::Result;
use crate::guarded::guarded;
use crate::manifest::{FileEntry, SegmentEntry};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 64 << 10;

/// What a segment says of itself in its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub node: String,
    pub window: TimeRange,
    pub sequence_min: u64,
    pub sequence_max: u64,
    pub rows: u64,
    /// Where its run index starts.
    pub tail: u64,
}

impl Label {
    /// What the manifest says of the same things.
    pub fn of(entry: &SegmentEntry, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            window: TimeRange::new(
                Timestamp::from_micros(entry.window_start),
                Timestamp::from_micros(entry.window_end),
            ),
            sequence_min: entry.sequence_min,
            sequence_max: entry.sequence_max,
            rows: entry.rows,
            tail: entry.tail,
        }
    }

    /// The manifest's entry of a file with this label. Its first and last time are not known yet: they are the window's.
    pub fn entry(&self, file: String, bytes: &[u8]) -> SegmentEntry {
        let tail = usize::try_from(self.tail).unwrap_or(usize::MAX);
        SegmentEntry {
            file: FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) },
            rows: self.rows,
            window_start: self.window.start.micros(),
            window_end: self.window.end.micros(),
            first: self.window.start.micros(),
            last: self.window.end.micros(),
            sequence_min: self.sequence_min,
            sequence_max: self.sequence_max,
            tail: self.tail,
            tail_crc32: crc32fast::hash(bytes.get(tail..).unwrap_or_default()),
        }
    }
}

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
            .map_err(|error| corrupt(path, "its Parquet footer", error.to_string(), "that of a segment"))?;
        label_in(path, reader.metadata().file_metadata(), bytes.len() as u64)
    })
}

/// The label in the footer of a file of `bytes`.
///
/// # Errors
/// Corrupt when it is not of format 1.
pub fn label_in(path: &Path, footer: &FileMetaData, bytes: u64) -> Result<Label> {
    let value = |key: &str| -> Result<&str> {
        let mut pairs = footer.key_value_metadata().into_iter().flatten();
        let found = pairs.find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        found.ok_or_else(|| corrupt(path, "its Parquet footer", format!("no `{key}`"), "that of a segment"))
    };
    let wrong = |key: &str| corrupt(path, key, value(key).unwrap_or_default().to_owned(), "what format 1 says");
    if ![FORMAT, FORMAT_SHIFTED].contains(&value("telem.format")?) {
        return Err(wrong("telem.format"));
    }
    let pair = |key: &str, between: &str| value(key)?.split_once(between).ok_or_else(|| wrong(key));
    let number = |key: &str, text: &str| text.parse::<u64>().map_err(|_| wrong(key));
    let time = |text: &str| text.parse::<i64>().map(Timestamp::from_micros).map_err(|_| wrong("telem.window"));
    let (start, end) = pair("telem.window", "..")?;
    let (min, max) = pair("telem.sequence", "-")?;
    let (tail, tail_len) = pair("telem.runs", "+")?;
    let label = Label {
        node: value("telem.node")?.to_owned(),
        window: TimeRange::new(time(start)?, time(end)?),
        sequence_min: number("telem.sequence", min)?,
        sequence_max: number("telem.sequence", max)?,
        rows: number("telem.rows", value("telem.rows")?)?,
        tail: number("telem.runs", tail)?,
    };
    let index_end = label.tail.checked_add(number("telem.runs", tail_len)?);
    if index_end.is_none_or(|end| end > bytes) {
        return Err(wrong("telem.runs"));
    }
    if label.window.is_empty() {
        return Err(wrong("telem.window"));
    }
    if label.sequence_min > label.sequence_max {
        return Err(wrong("telem.sequence"));
    }
    if label.rows == 0 || i64::try_from(label.rows).ok() != Some(footer.num_rows()) {
        return Err(wrong("telem.rows"));
    }
    Ok(label)
}

/// Decodes every row of `bytes` and encodes them again, with a run index. What a flush or a merge of today wrote
/// comes out byte for byte.
///
/// # Errors
/// Corrupt when a row is not what `label` and the format promise.
pub fn rewrite(path: &Path, bytes: &Bytes, label: &Label) -> Result<Encoded> {
    guarded(path, || {
        let unreadable =
            |error: &dyn std::fmt::Display| corrupt(path, "its Parquet", error.to_string(), "a segment of format 1");
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
            return wrong("the time of a row", time.to_string(), "one in its window");
        }
        if self.series != Some(series) {
            if !self.known.insert(series) {
                return wrong("its order", format!("series {} twice", series.0), "every series once");
            }
            self.series = Some(series);
        } else if time <= self.last {
            let found = format!("{time} after {} in series {}", self.last, series.0);
            return wrong("its order", found, "ascending times in every series");
        }
        self.last = time;
        Ok(())
    }
}

/// The segment whose bytes these are, held against `entry` as [`Loaded::open`] does a file.
///
/// # Errors
/// Corrupt.
pub fn load(path: &Path, bytes: &Bytes, entry: &SegmentEntry) -> Result<Loaded> {
    Loaded::parse(Arc::new(InMemory(bytes.clone())), path, entry, None)
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
pub fn read_run(loaded: &Loaded, run: &Run, take: &mut dyn FnMut(Piece) -> Result<()>) -> Result<Vec<TimeRange>> {
    let mut lost = Vec::new();
    let whole = TimeRange::new(run.first, run.last.saturating_add_micros(1));
    // Without its times there is nothing to halve.
    let divisible = loaded.read(std::slice::from_ref(run), TimeRange::new(run.first, run.first)).is_ok();
    read_stretch(loaded, run, whole, if divisible { HALVINGS_MAX } else { 0 }, take, &mut lost)?;
    Ok(lost)
}

fn read_stretch(
    loaded: &Loaded,
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
