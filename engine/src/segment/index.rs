//! The run index: which rows belong to which series, when they were taken, and a summary of their values.
//!
//! It is stored between the last row group and Parquet's footer, where other readers do not look. With it a reader
//! finds a series without decoding a column and reads only the pages of that series. If a run is regular or shares its
//! times with others, its times need not be read at all. `docs/format` describes every byte.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

use std::path::Path;
use std::sync::Arc;

use super::summary::{self, Kind, Summary};
use super::times::{self, SharedTimes, Ticks, Times};
use super::varint::{self, Bytes, Malformed};
use super::{SCALE_MAX, SHIFT_MAX};
use crate::error::{Error, Result};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};

const MAGIC: &[u8; 8] = b"TELEMRUN";
const VERSION: u32 = 1;
/// Of one with shifted integers.
const VERSION_SHIFTED: u32 = 2;
/// Bytes of a record and its part of the lists of times, at most: bounds what a reader makes room for.
const RECORD_BYTES_MAX: u64 = 160;
/// Bytes of a record at least: series, row, rows, flags and a time.
const RUN_BYTES_MIN: usize = 5;
/// A byte that zstd packed unpacks to at most this many: a block of 128 KiB takes four.
pub(super) const UNPACKED_PER_BYTE_MAX: usize = 32 << 10;

const TIMES: u8 = 0b11;
const TIMES_REGULAR: u8 = 0;
const TIMES_SHARED: u8 = 1;
const TIMES_COLUMN: u8 = 2;
const KIND_SHIFT: u8 = 2;
const KIND: u8 = 0b11;
const KIND_INT: u8 = 0;
const KIND_SCALED: u8 = 1;
const KIND_FLOAT: u8 = 2;
const KIND_MIXED: u8 = 3;
const CONSTANT: u8 = 1 << 4;
const SUMMARY: u8 = 1 << 5;
const SHIFTED: u8 = 1 << 6;

/// Times that runs share, ascending.
type TimeList = Arc<[i64]>;

/// The rows of one series in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub series: SeriesId,
    pub row: u32,
    pub rows: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    pub times: Times,
    pub kind: Kind,
    /// Whether all values have the same bits. There is a summary then.
    pub constant: bool,
    /// Where its summary is in the body; 0 when there is none.
    pub(super) summary_at: u32,
}

impl Run {
    pub fn rows(&self) -> std::ops::Range<usize> {
        self.row as usize..self.row as usize + self.rows as usize
    }
}

/// A run that is being written.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub run: Run,
    pub summary: Option<Summary>,
}

/// The run index of a segment.
#[derive(Debug)]
pub struct RunIndex {
    /// By series.
    runs: Vec<Run>,
    lists: Vec<TimeList>,
    /// The decoded body: summaries are read from it on demand.
    body: Vec<u8>,
    /// Of the data before the index, block by block.
    pub checksums: Vec<u32>,
}

/// Writes the index of `runs`, and `checksums` of the `data_bytes` before it.
pub fn encode(runs: Vec<NewRun>, lists: SharedTimes, data_bytes: u64, checksums: &[u32]) -> Result<Vec<u8>> {
    let is_shifted = runs.iter().any(|new| matches!(new.run.kind, Kind::Shifted(_)));
    let body = encode_body(runs, lists);
    let internal = |what: &str| Error::Internal { what: format!("a run index cannot be written: {what}") };
    let packed = zstd::bulk::compress(&body, 1).map_err(|error| internal(&error.to_string()))?;
    let size = |len: usize| u32::try_from(len).map_err(|_| internal("it is longer than 4 GiB"));
    let mut bytes = Vec::with_capacity(packed.len() + checksums.len() * 4 + 64);
    bytes.extend_from_slice(MAGIC);
    let version = if is_shifted { VERSION_SHIFTED } else { VERSION };
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&data_bytes.to_le_bytes());
    bytes.extend_from_slice(&size(checksums.len())?.to_le_bytes());
    bytes.extend_from_slice(&size(body.len())?.to_le_bytes());
    bytes.extend_from_slice(&size(packed.len())?.to_le_bytes());
    for checksum in checksums {
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes.extend_from_slice(&packed);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

fn encode_body(mut runs: Vec<NewRun>, lists: SharedTimes) -> Vec<u8> {
    runs.sort_by_key(|new| new.run.series);
    let mut body = Vec::new();
    let rows: Vec<u32> = runs.iter().map(|new| new.run.rows).collect();
    let mut times: Vec<&mut Times> = runs.iter_mut().map(|new| &mut new.run.times).collect();
    lists.finish(&mut times, &rows, &mut body);
    varint::put(&mut body, runs.len() as u64);
    let mut before = Before::default();
    for NewRun { run, summary } in &runs {
        put_run(&mut body, run, summary.as_ref(), &mut before);
    }
    body
}

/// What the record before says of the next: numbers are written as differences.
#[derive(Debug, Default)]
struct Before {
    /// The lowest id that the next record may have.
    series: u64,
    row: u64,
    first: i64,
    step: i64,
}

fn put_run(body: &mut Vec<u8>, run: &Run, summary: Option<&Summary>, before: &mut Before) {
    varint::put(body, u64::from(run.series.0) - before.series);
    varint::put_signed(body, i64::from(run.row) - before.row.cast_signed());
    varint::put(body, u64::from(run.rows));
    let (kind, scale) = match run.kind {
        Kind::Int => (KIND_INT, None),
        Kind::Shifted(shift) => (KIND_INT, Some(shift)),
        Kind::Scaled(scale) => (KIND_SCALED, Some(scale)),
        Kind::Float => (KIND_FLOAT, None),
        Kind::Mixed => (KIND_MIXED, None),
    };
    let times = match run.times {
        Times::Regular { .. } => TIMES_REGULAR,
        Times::Shared { .. } => TIMES_SHARED,
        Times::Column => TIMES_COLUMN,
    };
    let is_shifted = matches!(run.kind, Kind::Shifted(_));
    let flags = [(CONSTANT, run.constant), (SUMMARY, summary.is_some()), (SHIFTED, is_shifted)];
    let flags: u8 = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag).sum();
    body.push(times | kind << KIND_SHIFT | flags);
    body.extend(scale);
    let (first, last) = (run.first.micros(), run.last.micros());
    match run.times {
        Times::Regular { step } => {
            varint::put_signed(body, first.wrapping_sub(before.first));
            if run.rows > 1 {
                varint::put_signed(body, step.wrapping_sub(before.step));
                before.step = step;
            }
        }
        Times::Shared { list, from } => {
            varint::put(body, u64::from(list));
            varint::put(body, u64::from(from));
        }
        Times::Column => {
            varint::put_signed(body, first.wrapping_sub(before.first));
            varint::put(body, last.wrapping_sub(first).cast_unsigned());
        }
    }
    if let Some(summary) = summary {
        summary::put(body, run.kind, summary, run.constant);
    }
    before.series = u64::from(run.series.0) + 1;
    before.row = u64::from(run.row) + u64::from(run.rows);
    before.first = first;
}

impl RunIndex {
    /// Reads the index at the start of `tail`, which begins at `data_bytes` of its file, and says how long it is;
    /// every run lies in `window`, and together they are `rows`.
    ///
    /// # Errors
    /// Corrupt.
    pub fn decode(path: &Path, tail: &[u8], data_bytes: u64, rows: u64, window: TimeRange) -> Result<(Self, usize)> {
        decode(tail, data_bytes, rows, window).map_err(|malformed| malformed.corrupt(path))
    }

    /// By series.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Calls the runs by other ids; gives back the first that has none.
    pub fn rename(&mut self, id: impl Fn(SeriesId) -> Option<SeriesId>) -> std::result::Result<(), SeriesId> {
        for run in &mut self.runs {
            run.series = id(run.series).ok_or(run.series)?;
        }
        self.runs.sort_unstable_by_key(|run| run.series);
        Ok(())
    }

    pub fn run(&self, series: SeriesId) -> Option<&Run> {
        let at = self.runs.binary_search_by_key(&series, |run| run.series).ok()?;
        Some(&self.runs[at])
    }

    /// What its values come to; `None` for one with NaN or with values of two kinds.
    pub fn summary(&self, run: &Run) -> Option<Summary> {
        if run.summary_at == 0 {
            return None;
        }
        // It was read once when the index was decoded.
        summary::take(&mut Bytes::new(&self.body, run.summary_at as usize), run.kind, run.constant).ok()
    }

    /// As [`RunIndex::times`], without making any.
    pub fn ticks(&self, run: &Run, range: TimeRange) -> Option<(std::ops::Range<usize>, Ticks<'_>)> {
        let rows = self.rows_in(run, range)?;
        let ticks = self.ticks_of(run, rows.clone())?;
        Some((rows, ticks))
    }

    /// As [`RunIndex::times_of`], without making any.
    pub fn ticks_of(&self, run: &Run, rows: std::ops::Range<usize>) -> Option<Ticks<'_>> {
        match run.times {
            Times::Regular { step } => {
                let ticks = Ticks::Regular { first: run.first.micros(), step };
                Some(if rows.is_empty() { ticks } else { ticks.from(rows.start) })
            }
            Times::Shared { .. } => self.list(run)?.get(rows).map(Ticks::List),
            Times::Column => None,
        }
    }

    /// The rows of `run` in `range`, counted from its first, and their times; `None` where only the column tells.
    pub fn times(&self, run: &Run, range: TimeRange) -> Option<(std::ops::Range<usize>, Vec<i64>)> {
        let rows = self.rows_in(run, range)?;
        let times = self.times_of(run, rows.clone())?;
        Some((rows, times))
    }

    /// The times of these rows of `run`, counted from its first; `None` where only the column tells.
    pub fn times_of(&self, run: &Run, rows: std::ops::Range<usize>) -> Option<Vec<i64>> {
        let ticks = self.ticks_of(run, rows.clone())?;
        Some((0..rows.len()).map(|at| ticks.time(at)).collect())
    }

    /// The rows of `run` in `range`, counted from its first; `None` where only the column tells.
    pub fn rows_in(&self, run: &Run, range: TimeRange) -> Option<std::ops::Range<usize>> {
        let (start, end) = (range.start.micros(), range.end.micros());
        let rows = run.rows as usize;
        if range.start <= run.first && run.last < range.end {
            return Some(0..rows);
        }
        Some(match run.times {
            Times::Regular { step } => {
                let first = run.first.micros();
                let below = |time: i64| match (i128::from(time) - i128::from(first), i128::from(step)) {
                    (distance, _) if distance <= 0 => 0,
                    (_, 0) => rows,
                    (distance, step) => ((distance + step - 1) / step).min(rows as i128) as usize,
                };
                below(start)..below(end).max(below(start))
            }
            Times::Shared { .. } => {
                let times = self.list(run)?;
                let from = times.partition_point(|time| *time < start);
                from..times.partition_point(|time| *time < end).max(from)
            }
            Times::Column => return None,
        })
    }

    fn list(&self, run: &Run) -> Option<&[i64]> {
        let Times::Shared { list, from } = run.times else { return None };
        self.lists.get(list as usize)?.get(from as usize..from as usize + run.rows as usize)
    }

    /// Memory.
    pub fn bytes(&self) -> u64 {
        let lists: usize = self.lists.iter().map(|list| list.len() * 8 + 16).sum();
        (self.runs.len() * size_of::<Run>() + lists + self.body.len() + self.checksums.len() * 4) as u64
    }
}

fn decode(tail: &[u8], data_bytes: u64, rows: u64, window: TimeRange) -> Result<(RunIndex, usize), Malformed> {
    let mut bytes = Bytes::new(tail, 0);
    let magic: [u8; 8] = bytes.array()?;
    if magic != *MAGIC {
        return Err(bytes.malformed(magic.escape_ascii().to_string(), MAGIC.escape_ascii().to_string()));
    }
    let version = u32::from_le_bytes(bytes.array()?);
    if ![VERSION, VERSION_SHIFTED].contains(&version) {
        let known = format!("version {VERSION} or {VERSION_SHIFTED}");
        return Err(bytes.malformed(format!("version {version}"), known));
    }
    let before = u64::from_le_bytes(bytes.array()?);
    if before != data_bytes {
        return Err(bytes.malformed(format!("{before} bytes of data"), data_bytes.to_string()));
    }
    let [blocks, body_len, packed_len] = {
        let mut size = || bytes.array().map(u32::from_le_bytes);
        [size()?, size()?, size()?]
    };
    let expected = data_bytes.div_ceil(super::blocks::BLOCK_BYTES as u64);
    if u64::from(blocks) != expected {
        return Err(bytes.malformed(format!("{blocks} blocks"), expected.to_string()));
    }
    let body_max = rows.saturating_mul(RECORD_BYTES_MAX).saturating_add(64);
    if u64::from(body_len) > body_max {
        return Err(bytes.malformed(format!("a body of {body_len} bytes"), format!("at most {body_max}")));
    }
    let checksums = bytes.take(blocks as usize * 4)?;
    let checksums = checksums.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let checksums = checksums.collect();
    let packed = bytes.take(packed_len as usize)?;
    let found = crc32fast::hash(&tail[..bytes.at()]);
    let crc = u32::from_le_bytes(bytes.array()?);
    if found != crc {
        return Err(bytes.malformed(format!("checksum {found:08x}"), format!("{crc:08x}")));
    }
    let room = (body_len as usize).min(packed.len().saturating_mul(UNPACKED_PER_BYTE_MAX));
    let body = zstd::bulk::decompress(packed, room);
    let body = body.map_err(|error| bytes.malformed(error.to_string(), "a body packed by zstd"))?;
    let (runs, lists) = decode_body(&body, rows, window)?;
    Ok((RunIndex { runs, lists, body, checksums }, bytes.at()))
}

fn decode_body(body: &[u8], rows: u64, window: TimeRange) -> Result<(Vec<Run>, Vec<TimeList>), Malformed> {
    let mut bytes = Bytes::new(body, 0);
    let lists = times::decode(&mut bytes, rows)?;
    let count = bytes.number()?;
    if count > rows {
        return Err(bytes.malformed(format!("{count} runs"), format!("at most {rows}, one a row")));
    }
    // Room for as many as the bytes can hold: a number alone takes no memory.
    let mut runs = Vec::with_capacity((count as usize).min(bytes.left() / RUN_BYTES_MIN));
    let mut before = Before::default();
    for _ in 0..count {
        runs.push(take_run(&mut bytes, &lists, &mut before)?);
    }
    if !bytes.is_empty() {
        return Err(bytes.malformed("more bytes", "the end"));
    }
    let mut by_row: Vec<&Run> = runs.iter().collect();
    by_row.sort_unstable_by_key(|run| run.row);
    let mut row = 0;
    for run in by_row {
        if u64::from(run.row) != row {
            let found = format!("series {} from row {}", run.series.0, run.row);
            return Err(bytes.malformed(found, format!("row {row}")));
        }
        if !window.contains(run.first) || !window.contains(run.last) {
            let found = format!("series {} from {} to {}", run.series.0, run.first, run.last);
            return Err(bytes.malformed(found, format!("{} to {}", window.start, window.end)));
        }
        row += u64::from(run.rows);
    }
    if row != rows {
        return Err(bytes.malformed(format!("runs of {row} rows"), rows.to_string()));
    }
    Ok((runs, lists))
}

fn take_run(bytes: &mut Bytes<'_>, lists: &[TimeList], before: &mut Before) -> Result<Run, Malformed> {
    let series = u64::from(bytes.small()?) + before.series;
    let Ok(series) = u32::try_from(series) else {
        return Err(bytes.malformed(format!("series {series}"), "an id of 32 bits"));
    };
    let row = i128::from(bytes.signed()?) + i128::from(before.row);
    let Ok(row) = u32::try_from(row) else { return Err(bytes.malformed(format!("row {row}"), "32 bits")) };
    let rows = bytes.small()?;
    if rows == 0 || row.checked_add(rows).is_none() {
        return Err(bytes.malformed(format!("{rows} rows from {row}"), "1 to 2^32 in all"));
    }
    let flags = bytes.byte()?;
    let kind = match flags >> KIND_SHIFT & KIND {
        KIND_INT if flags & SHIFTED != 0 => {
            let shift = bytes.byte()?;
            if !(1..=SHIFT_MAX).contains(&shift) {
                return Err(bytes.malformed(format!("shift {shift}"), format!("1 to {SHIFT_MAX}")));
            }
            Kind::Shifted(shift)
        }
        KIND_INT => Kind::Int,
        KIND_SCALED => {
            let scale = bytes.byte()?;
            if scale > SCALE_MAX.unsigned_abs() {
                return Err(bytes.malformed(format!("scale {scale}"), format!("0 to {SCALE_MAX}")));
            }
            Kind::Scaled(scale)
        }
        KIND_FLOAT => Kind::Float,
        _ => Kind::Mixed,
    };
    let (times, first, last) = take_times(bytes, flags, rows, lists, before)?;
    let constant = flags & CONSTANT != 0;
    let has_summary = flags & SUMMARY != 0;
    let known = TIMES | KIND << KIND_SHIFT | CONSTANT | SUMMARY;
    let known = if matches!(kind, Kind::Shifted(_)) { known | SHIFTED } else { known };
    if flags & !known != 0 || constant && !has_summary {
        return Err(bytes.malformed(format!("flags {flags:08b}"), "known ones"));
    }
    let summary_at = if has_summary {
        let at = bytes.at();
        summary::take(bytes, kind, constant)?;
        u32::try_from(at).map_err(|_| bytes.malformed("a body of more than 4 GiB", "less"))?
    } else {
        0
    };
    before.series = u64::from(series) + 1;
    before.row = u64::from(row) + u64::from(rows);
    before.first = first;
    let (first, last) = (Timestamp::from_micros(first), Timestamp::from_micros(last));
    Ok(Run { series: SeriesId(series), row, rows, first, last, times, kind, constant, summary_at })
}

fn take_times(
    bytes: &mut Bytes<'_>,
    flags: u8,
    rows: u32,
    lists: &[TimeList],
    before: &mut Before,
) -> Result<(Times, i64, i64), Malformed> {
    match flags & TIMES {
        TIMES_REGULAR => {
            let first = before.first.wrapping_add(bytes.signed()?);
            if rows == 1 {
                return Ok((Times::Regular { step: 0 }, first, first));
            }
            let step = before.step.wrapping_add(bytes.signed()?);
            before.step = step;
            let last = step.checked_mul(i64::from(rows - 1)).and_then(|width| first.checked_add(width));
            match last.filter(|_| step > 0) {
                Some(last) => Ok((Times::Regular { step }, first, last)),
                None => {
                    Err(bytes.malformed(format!("{rows} rows {step} us apart from {}", utc(first)), "ascending times"))
                }
            }
        }
        TIMES_SHARED => {
            let (list, from) = (bytes.small()?, bytes.small()?);
            let times = lists
                .get(list as usize)
                .and_then(|times| times.get(from as usize..(from as usize).checked_add(rows as usize)?));
            match times {
                Some([first, .., last]) => Ok((Times::Shared { list, from }, *first, *last)),
                Some([one]) => Ok((Times::Shared { list, from }, *one, *one)),
                _ => Err(bytes.malformed(format!("times {from} and {rows} more of list {list}"), "times it has")),
            }
        }
        TIMES_COLUMN => {
            let first = before.first.wrapping_add(bytes.signed()?);
            let width = bytes.number()?;
            let last = i64::try_from(width).ok().and_then(|width| first.checked_add(width));
            let last = last.or_else(|| first.checked_add_unsigned(width));
            match last.filter(|last| *last > first && rows > 1) {
                Some(last) => Ok((Times::Column, first, last)),
                None => {
                    Err(bytes.malformed(format!("{rows} rows over {width} us from {}", utc(first)), "ascending times"))
                }
            }
        }
        other => Err(bytes.malformed(format!("times of form {other}"), "a known form")),
    }
}

fn utc(micros: i64) -> String {
    Timestamp::from_micros(micros).utc()
}

#[cfg(test)]
mod tests;
