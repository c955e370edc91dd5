//! Encodes a segment: a flush's in memory, as it is small beside the memtable that it comes from, a merge's to a disk as
//! it grows.
//!
//! Each run is examined as a whole before its rows are encoded: whether its floats are decimals, whether it is regular,
//! and what its summary is. Row groups and pages are cut by number of rows alone.

mod chunk;
mod delta;
mod file;
mod group;
mod growing;
mod packing;
mod period;
mod presence;
mod split;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use super::decimal;
use super::index::{self, NewRun, Run};
use super::summary::{Kind, Summary, Summing};
use super::times::{SharedTimes, Times, regular_step};
use super::{FORMAT, FORMAT_SHIFTED, SHIFT_MAX};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::{Value, Values};
use file::ParquetFile;
use group::{Group, RunStretch, TimesInFile, TimesPart};
use growing::WrittenPart;
use packing::Packing;
use period::Period;

/// Fewer low bits than these are not worth a column that says how many they are.
const SHIFT_MIN: u8 = 4;
/// Integers of shorter runs are not shifted: a byte or two of their entry in the run index would eat it up.
const SHIFTED_ROWS_MIN: usize = 16;
/// Samples of one series that are looked at as a whole; a longer run is cut, and shares no times.
const RUN_ROWS_MAX: usize = 1 << 20;

/// Takes samples in the order of rows.
pub struct SegmentWriter {
    file: ParquetFile,
    group: Option<Group>,
    times_in_file: TimesInFile,
    period: Period,
    window: TimeRange,
    node: String,
    sequence: (u64, u64),
    rows: u32,
    bounds: Option<(Timestamp, Timestamp)>,
    /// Samples of the newest series that are not encoded yet.
    series: SeriesId,
    times: Vec<i64>,
    values: Vec<Value>,
    runs: Vec<OpenRun>,
    shared_times: SharedTimes,
    scratch: Scratch,
    /// Whether any integers are stored shifted.
    has_shifts: bool,
}

/// A run to which more samples may come.
struct OpenRun {
    run: Run,
    summing: Summing,
}

/// A finished segment, not yet a durable file.
#[derive(Debug)]
pub struct EncodedSegment {
    /// What is on the disk already, where [`SegmentWriter::write_to`] was called.
    pub written: Option<WrittenPart>,
    /// All other bytes.
    pub bytes: Vec<u8>,
    pub rows: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Where the run index starts; it and all that follows have this CRC-32.
    pub tail: u64,
    pub tail_crc32: u32,
}

impl SegmentWriter {
    /// What holds more than one flush is a merge's, and packed densely.
    ///
    /// # Errors
    /// Internal when Parquet refuses our schema.
    pub fn new(node: &str, window: TimeRange, sequence_min: u64, sequence_max: u64) -> Result<Self> {
        let packing = if sequence_min < sequence_max { Packing::Dense } else { Packing::Quick };
        Ok(Self {
            file: ParquetFile::new(packing)?,
            group: None,
            times_in_file: TimesInFile::default(),
            period: Period::default(),
            window,
            node: node.to_owned(),
            sequence: (sequence_min, sequence_max),
            rows: 0,
            bounds: None,
            series: SeriesId(0),
            times: Vec::new(),
            values: Vec::new(),
            runs: Vec::new(),
            shared_times: SharedTimes::default(),
            scratch: Scratch::default(),
            has_shifts: false,
        })
    }

    /// Row groups go to a new file, `path`, as they end; small segments do not, nor does an empty one.
    pub fn write_to(&mut self, disk: Arc<dyn Disk>, path: PathBuf) {
        self.file.write_to(disk, path);
    }

    /// Appends samples of one series: sorted by time, every time once and in the window. All those
    /// of a series come one after the other.
    ///
    /// # Errors
    /// Internal when Parquet refuses them.
    pub fn push(&mut self, series: SeriesId, samples: &[(Timestamp, Value)]) -> Result<()> {
        if series != self.series {
            self.encode_pending()?;
            self.series = series;
        }
        for part in samples.chunks(RUN_ROWS_MAX) {
            if self.times.len() + part.len() > RUN_ROWS_MAX {
                self.encode_pending()?;
            }
            for (time, value) in part {
                assert!(self.window.contains(*time), "the caller cuts samples at windows");
                self.times.push(time.micros());
                self.values.push(*value);
            }
        }
        Ok(())
    }

    /// The bytes of the file; `None` when no sample was pushed.
    ///
    /// # Errors
    /// Internal when Parquet refuses them.
    pub fn finish(mut self) -> Result<Option<EncodedSegment>> {
        self.encode_pending()?;
        self.end_group()?;
        chunk::forget_dense();
        let Some((first, last)) = self.bounds else { return Ok(None) };
        self.file.keep_groups_inside()?;
        let tail = self.file.bytes().len() as u64;
        let checksums = self.file.bytes().checksums();
        let runs = self.runs.into_iter().map(OpenRun::finish).collect();
        let index = index::encode(runs, self.shared_times, tail, &checksums)?;
        let (start, end) = (self.window.start.micros(), self.window.end.micros());
        let labels = [
            ("telem.format", if self.has_shifts { FORMAT_SHIFTED } else { FORMAT }.to_owned()),
            ("telem.node", self.node),
            ("telem.sequence", format!("{}-{}", self.sequence.0, self.sequence.1)),
            ("telem.window", format!("{start}..{end}")),
            ("telem.rows", self.rows.to_string()),
            ("telem.runs", format!("{tail}+{}", index.len())),
        ];
        let labels = labels.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let (written, bytes) = self.file.finish(&index, labels.to_vec())?;
        let start = written.as_ref().map_or(0, WrittenPart::len);
        let tail_crc32 = crc32fast::hash(&bytes[tail as usize - start..]);
        Ok(Some(EncodedSegment { written, bytes, rows: u64::from(self.rows), first, last, tail, tail_crc32 }))
    }

    /// Appends all samples of one series: as with [`SegmentWriter::push`], but as columns, and none of this series came
    /// before or comes after.
    ///
    /// # Errors
    /// Internal when Parquet refuses them.
    pub fn push_run(&mut self, series: SeriesId, times: &[i64], values: RunValues<'_>) -> Result<()> {
        self.encode_pending()?;
        self.series = series;
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
        let (first, last) = (Timestamp::from_micros(*first), Timestamp::from_micros(*last));
        assert!(self.window.contains(first) && self.window.contains(last), "the caller cuts samples at windows");
        assert_eq!(times.len(), values.len(), "a sample has a time and a value");
        for from in (0..times.len()).step_by(RUN_ROWS_MAX) {
            let part = from..times.len().min(from + RUN_ROWS_MAX);
            self.encode(&times[part.clone()], values.part(part))?;
        }
        Ok(())
    }

    fn encode_pending(&mut self) -> Result<()> {
        let (mut times, mut values) = (std::mem::take(&mut self.times), std::mem::take(&mut self.values));
        self.encode(&times, RunValues::Any(&values))?;
        // Their room is used again.
        times.clear();
        values.clear();
        (self.times, self.values) = (times, values);
        Ok(())
    }

    /// Samples of the newest series.
    fn encode(&mut self, times: &[i64], values: RunValues<'_>) -> Result<()> {
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
        let (first, last) = (Timestamp::from_micros(*first), Timestamp::from_micros(*last));
        self.bounds = Some(match self.bounds {
            Some((before, after)) => (before.min(first), after.max(last)),
            None => (first, last),
        });
        let too_many = || Error::Internal { what: "a segment of more than 2^32 rows".to_owned() };
        let rows = u32::try_from(times.len()).map_err(|_| too_many())?;
        self.rows.checked_add(rows).ok_or_else(too_many)?;
        let step = regular_step(times);
        let mut scratch = std::mem::take(&mut self.scratch);
        let open = self.runs.last().filter(|open| open.run.series == self.series);
        let stored = scratch.store(values, open.map(|open| open.run.kind));
        self.has_shifts |= matches!(stored, Stored::Shifted { .. });
        let known = self.note_run(times, &stored, step);
        let part = TimesPart { times: known, first: times[0], rows: times.len() };
        let grouped = self.group.as_ref().map_or(0, Group::rows);
        if self.period.ends_group(part, step.is_some(), self.rows as usize, grouped) {
            self.end_group()?;
        }
        let stretch = RunStretch { series: self.series, times, stored, step, known };
        let mut from = 0;
        while from < times.len() {
            let group = match &mut self.group {
                Some(group) => group,
                empty => empty.insert(Group::new(&self.file)),
            };
            from += group.push(&stretch, from)?;
            if group.is_full() {
                self.end_group()?;
            }
        }
        self.rows += rows;
        // Its room is used again.
        self.scratch = scratch;
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        match self.group.take() {
            Some(group) => group.finish(&mut self.file, &mut self.times_in_file, &self.shared_times),
            None => Ok(()),
        }
    }

    /// Makes the entry of the run index, or goes on with that of a run that was cut. Gives back where these times are.
    fn note_run(&mut self, times: &[i64], stored: &Stored<'_>, step: Option<i64>) -> Times {
        let (first, last) = (Timestamp::from_micros(times[0]), Timestamp::from_micros(times[times.len() - 1]));
        if let Some(open) = self.runs.last_mut().filter(|open| open.run.series == self.series) {
            stored.add_to(&mut open.summing, 0);
            let same = |before: i64| {
                let gap = first.micros().checked_sub(open.run.last.micros());
                let width = last.micros().checked_sub(open.run.first.micros());
                gap == Some(before) && width.is_some() && (step == Some(before) || times.len() == 1)
            };
            let regular = matches!(open.run.times, Times::Regular { step } if step > 0 && same(step));
            if !regular {
                open.run.times = Times::Column;
            }
            open.run.rows += times.len() as u32;
            open.run.last = last;
            return step.map_or(Times::Column, |step| Times::Regular { step });
        }
        let own = match step {
            Some(step) => Times::Regular { step },
            None => self.shared_times.find(times).unwrap_or(Times::Column),
        };
        let (value, kind) = stored.first();
        let mut summing = Summing::start(value, kind);
        stored.add_to(&mut summing, 1);
        let run = Run {
            series: self.series,
            row: self.rows,
            rows: times.len() as u32,
            first,
            last,
            times: own,
            kind,
            constant: false,
            summary_at: 0,
        };
        self.runs.push(OpenRun { run, summing });
        own
    }
}

impl OpenRun {
    fn finish(self) -> NewRun {
        let (kind, summary, constant): (Kind, Option<Summary>, bool) = self.summing.finish();
        NewRun { run: Run { kind, constant, ..self.run }, summary }
    }
}

/// How the values of a run are stored: mostly all in one way.
enum Stored<'a> {
    Ints(&'a [i64]),
    /// Integers without their low bits, and with them.
    Shifted {
        shift: u8,
        shifted: &'a [i64],
        ints: &'a [i64],
    },
    /// Floats as integers, and the floats.
    Decimals {
        scale: u8,
        ints: &'a [i64],
        floats: &'a [f64],
    },
    Floats(&'a [f64]),
    Mixed(&'a [Each]),
}

/// How one value is stored.
#[derive(Clone, Copy)]
struct Each {
    value: Value,
    kind: Kind,
    /// The contents of the column `int`, unless the kind is Float.
    int: i64,
}

impl Stored<'_> {
    /// There is one.
    fn first(&self) -> (Value, Kind) {
        match self {
            Stored::Ints(ints) => (Value::Int(ints[0]), Kind::Int),
            Stored::Shifted { shift, ints, .. } => (Value::Int(ints[0]), Kind::Shifted(*shift)),
            Stored::Decimals { scale, floats, .. } => (Value::Float(floats[0]), Kind::Scaled(*scale)),
            Stored::Floats(floats) => (Value::Float(floats[0]), Kind::Float),
            Stored::Mixed(each) => (each[0].value, each[0].kind),
        }
    }

    /// Takes the values from `from` on in.
    fn add_to(&self, summing: &mut Summing, from: usize) {
        match self {
            Stored::Ints(ints) => summing.add_ints(&ints[from..], Kind::Int),
            Stored::Shifted { shift, ints, .. } => summing.add_ints(&ints[from..], Kind::Shifted(*shift)),
            Stored::Decimals { scale, floats, .. } => summing.add_floats(&floats[from..], Kind::Scaled(*scale)),
            Stored::Floats(floats) => summing.add_floats(&floats[from..], Kind::Float),
            Stored::Mixed(each) => each[from..].iter().for_each(|each| summing.add(each.value, each.kind)),
        }
    }
}

/// The values of a run, before it is known how they are stored.
#[derive(Clone, Copy, Debug)]
pub enum RunValues<'a> {
    Ints(&'a [i64]),
    Floats(&'a [f64]),
    /// Of one type or of both.
    Any(&'a [Value]),
}

impl<'a> RunValues<'a> {
    pub fn len(self) -> usize {
        match self {
            RunValues::Ints(ints) => ints.len(),
            RunValues::Floats(floats) => floats.len(),
            RunValues::Any(values) => values.len(),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            RunValues::Ints(ints) => RunValues::Ints(&ints[range]),
            RunValues::Floats(floats) => RunValues::Floats(&floats[range]),
            RunValues::Any(values) => RunValues::Any(&values[range]),
        }
    }
}

impl<'a> From<&'a Values> for RunValues<'a> {
    fn from(values: &'a Values) -> Self {
        match values {
            Values::Int(ints) => RunValues::Ints(ints),
            Values::Float(floats) => RunValues::Floats(floats),
            Values::Mixed(values) => RunValues::Any(values),
        }
    }
}

/// Room for the values of a run that is used again for the next.
#[derive(Default)]
struct Scratch {
    /// Of one type, taken out of what may be of both.
    own_ints: Vec<i64>,
    own_floats: Vec<f64>,
    /// What is stored: integers without their low bits, or those that floats are.
    ints: Vec<i64>,
    each: Vec<Each>,
}

impl Scratch {
    /// Finds the scale of the floats among the values of a run, and what becomes of each. The rest of a run that was cut
    /// is stored as what came `before` of it, where it can be.
    fn store<'a>(&'a mut self, values: RunValues<'a>, before: Option<Kind>) -> Stored<'a> {
        let Self { own_ints, own_floats, ints: stored, each } = self;
        let (ints, floats, values): (&[i64], &[f64], &[Value]) = match values {
            RunValues::Ints(ints) => (ints, &[], &[]),
            RunValues::Floats(floats) => (&[], floats, &[]),
            RunValues::Any(values) => {
                own_ints.clear();
                own_floats.clear();
                for value in values {
                    match value {
                        Value::Int(int) => own_ints.push(*int),
                        Value::Float(float) => own_floats.push(*float),
                    }
                }
                (own_ints, own_floats, values)
            }
        };
        if floats.is_empty() {
            let shift = shift_of(ints, before);
            if shift == 0 {
                return Stored::Ints(ints);
            }
            stored.clear();
            stored.extend(ints.iter().map(|int| int >> shift));
            return Stored::Shifted { shift, shifted: stored, ints };
        }
        if !ints.is_empty() {
            return Self::store_each(each, values.iter().copied(), decimal::scale_of(floats));
        }
        if let Some(scale) = decimal::to_ints(floats, stored) {
            return Stored::Decimals { scale, ints: stored, floats };
        }
        match decimal::scale_of(floats) {
            None => Stored::Floats(floats),
            scale => Self::store_each(each, floats.iter().copied().map(Value::Float), scale),
        }
    }

    fn store_each(each: &mut Vec<Each>, values: impl Iterator<Item = Value>, scale: Option<u8>) -> Stored<'_> {
        each.clear();
        each.extend(values.map(|value| match value {
            Value::Int(int) => Each { value, kind: Kind::Int, int },
            Value::Float(float) => {
                let scaled = scale.and_then(|scale| Some((Kind::Scaled(scale), decimal::to_int(float, scale)?)));
                let (kind, int) = scaled.unwrap_or((Kind::Float, 0));
                Each { value, kind, int }
            }
        }));
        Stored::Mixed(each)
    }
}

/// By how many bits all of `ints` are shifted: as many as are 0 in each of them, where that is worth it.
fn shift_of(ints: &[i64], before: Option<Kind>) -> u8 {
    let zeros = ints.iter().fold(0, |bits, int| bits | int).trailing_zeros();
    let zeros = u8::try_from(zeros).unwrap_or(u8::MAX).min(SHIFT_MAX);
    match before {
        Some(Kind::Shifted(shift)) if shift <= zeros => shift,
        Some(_) => 0,
        None => {
            let varies = || ints.windows(2).any(|pair| pair[0] != pair[1]);
            if zeros >= SHIFT_MIN && ints.len() >= SHIFTED_ROWS_MIN && varies() { zeros } else { 0 }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn internal(error: ParquetError) -> Error {
    Error::Internal { what: format!("a segment cannot be encoded: {error}") }
}

/// What is written to here is memory.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn no_room(error: std::io::Error) -> Error {
    Error::Internal { what: format!("a segment cannot be kept in memory: {error}") }
}

#[cfg(test)]
mod tests;
