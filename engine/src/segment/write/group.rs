//! Encodes one row group, column by column.
//!
//! Columns have pages of their own. Series and scales stay the same for whole runs: they are one page, of a dictionary
//! and how often each comes. Values have pages of [`PAGE_ROWS`] of them; many rows in a row without one are a page of
//! their own. Times are packed when the row group ends: if all of them are those of an earlier row group, they are there
//! already ([`TimesInFile`]).
//!
//! Where it is not clear which encoding of times is smaller, both are tried and the smaller one is kept. The first
//! encodes differences, bit-packed in pages of [`PAGE_ROWS`], which suits regular times. The second splits the bytes of
//! the times within one page, where the compressor finds the times that many series share; it ends as soon as it has
//! become the larger one.

use parquet::basic::Encoding;

use super::chunk::{ColumnChunk, ColumnNumber, PageEncoder};
use super::file::{ClosedChunk, ParquetFile, PlacedChunk};
use super::presence::RowPresence;
use super::{Each, Stored, delta, split};
use crate::error::Result;
use crate::segment::summary::Kind;
use crate::segment::times::{SharedTimes, Ticks, Times};
use crate::segment::{PAGE_ROWS, ROW_GROUP_ROWS};
use crate::series::SeriesId;

/// Earlier row groups whose times a row group is compared with: one metric of very many series has so many.
const GROUPS_TRIED: usize = 64;
/// Shorter stretches of one series are packed as differences.
const STRETCH_ROWS_MIN: usize = 16;

/// Samples of one series.
pub struct RunStretch<'a> {
    pub series: SeriesId,
    pub times: &'a [i64],
    pub stored: Stored<'a>,
    /// Of times that tick regularly.
    pub step: Option<i64>,
    /// Where the times are, so that equal ones may be told by that.
    pub known: Times,
}

/// The times of rows that follow each other, without a copy of them: they are equal if these are, unless only the column
/// tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimesPart {
    pub times: Times,
    pub first: i64,
    pub rows: usize,
}

/// The times of row groups that are in the file, by what they are.
#[derive(Default)]
pub struct TimesInFile {
    groups: Vec<(Vec<TimesPart>, PlacedChunk)>,
}

impl TimesInFile {
    fn find(&self, parts: &[TimesPart]) -> Option<PlacedChunk> {
        self.groups.iter().rev().take(GROUPS_TRIED).find(|(known, _)| known == parts).map(|(_, chunk)| chunk.clone())
    }
}

/// A column of what is the same for many rows.
struct StretchColumn<T> {
    /// Of the rows that have one.
    stretches: Vec<(T, usize)>,
    presence: RowPresence,
}

impl<T: ColumnNumber + Ord + std::hash::Hash + delta::DeltaInt> StretchColumn<T> {
    fn new() -> Self {
        Self { stretches: Vec::new(), presence: RowPresence::default() }
    }

    fn push(&mut self, value: Option<T>, rows: usize) {
        self.presence.push(value.is_some(), rows);
        let Some(value) = value else { return };
        match self.stretches.last_mut() {
            Some((before, count)) if *before == value => *count += rows,
            _ => self.stretches.push((value, rows)),
        }
    }

    /// `is_optional`: whether rows may be without a value.
    fn finish(&self, rows: usize, is_optional: bool, mut chunk: ColumnChunk<T>) -> Result<ClosedChunk> {
        let presence = is_optional.then_some(&self.presence);
        let present: usize = self.stretches.iter().map(|(_, count)| count).sum();
        if present > 0 && self.stretches.len() <= present / STRETCH_ROWS_MIN + 1 {
            chunk.add_stretches(rows, presence, &self.stretches)?;
            return chunk.close();
        }
        let mut values = Vec::with_capacity(present);
        for (value, count) in &self.stretches {
            values.resize(values.len() + count, *value);
        }
        chunk.add_page(rows, presence, &values, delta::pack)?;
        chunk.close()
    }
}

/// A column of values, one of which each row has in one of the columns.
struct ValueColumn<T> {
    chunk: ColumnChunk<T>,
    pack: PageEncoder<T>,
    /// The other way to pack a page, where there is one.
    other: Option<PageEncoder<T>>,
    /// The next page: rows, and the values of those that have one.
    rows: usize,
    values: Vec<T>,
    presence: RowPresence,
    /// Rows without a value behind these.
    absent: usize,
}

impl<T: ColumnNumber> ValueColumn<T> {
    fn new(chunk: ColumnChunk<T>, pack: PageEncoder<T>) -> Self {
        // Many segments are small: room is made as rows come.
        Self { chunk, pack, other: None, rows: 0, values: Vec::new(), presence: RowPresence::default(), absent: 0 }
    }

    fn push_absent(&mut self, rows: usize) {
        self.absent += rows;
    }

    fn push(&mut self, mut values: &[T]) -> Result<()> {
        self.settle_absent()?;
        while !values.is_empty() {
            let (here, later) = values.split_at(values.len().min(PAGE_ROWS - self.values.len()));
            self.values.extend_from_slice(here);
            self.presence.push(true, here.len());
            self.rows += here.len();
            if self.values.len() == PAGE_ROWS {
                self.write()?;
            }
            values = later;
        }
        Ok(())
    }

    /// Rows without a value are a page of their own if they are as many as a page has, else a part of this one.
    fn settle_absent(&mut self) -> Result<()> {
        let absent = std::mem::take(&mut self.absent);
        let is_page = absent >= PAGE_ROWS;
        if is_page {
            self.write()?;
        }
        self.presence.push(false, absent);
        self.rows += absent;
        if is_page { self.write() } else { Ok(()) }
    }

    /// Finishes a page.
    fn write(&mut self) -> Result<()> {
        if self.rows > 0 {
            let (rows, presence, values) = (self.rows, Some(&self.presence), &self.values[..]);
            match self.other {
                Some(other) => self.chunk.add_page_of(rows, presence, values, [self.pack, other])?,
                None => self.chunk.add_page(rows, presence, values, self.pack)?,
            }
        }
        self.rows = 0;
        self.values.clear();
        self.presence.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<ClosedChunk> {
        self.settle_absent()?;
        self.write()?;
        self.chunk.close()
    }
}

pub struct Group {
    rows: usize,
    /// What the times of all rows are, and the steps of those that tick.
    parts: Vec<(TimesPart, Option<i64>)>,
    /// Those that neither tick nor are in a list, in the order of rows.
    other_times: Vec<i64>,
    series: StretchColumn<u32>,
    scales: StretchColumn<i32>,
    ints: ValueColumn<i64>,
    floats: ValueColumn<f64>,
}

impl Group {
    /// The next one of `file`.
    pub fn new(file: &ParquetFile) -> Self {
        let ints = column(file, 2, Encoding::DELTA_BINARY_PACKED);
        let floats = column(file, 4, Encoding::BYTE_STREAM_SPLIT);
        Self {
            rows: 0,
            parts: Vec::new(),
            other_times: Vec::new(),
            series: StretchColumn::new(),
            scales: StretchColumn::new(),
            ints: ValueColumn { other: Some(delta::pack_in_bytes), ..ValueColumn::new(ints, delta::pack_values) },
            floats: ValueColumn::new(floats, |floats, bytes| {
                split::split(floats.len(), floats.iter().map(|float| float.to_bits()), bytes);
            }),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_full(&self) -> bool {
        self.rows >= ROW_GROUP_ROWS
    }

    /// Takes samples from `from` on, as many as have room; gives back how many these are.
    pub fn push(&mut self, stretch: &RunStretch<'_>, from: usize) -> Result<usize> {
        let count = (ROW_GROUP_ROWS - self.rows).min(stretch.times.len() - from);
        let times = &stretch.times[from..from + count];
        if stretch.step.is_none() && stretch.known == Times::Column {
            self.other_times.extend_from_slice(times);
        }
        self.parts.push((TimesPart { times: stretch.known.from(from), first: times[0], rows: count }, stretch.step));
        self.series.push(Some(stretch.series.0), count);
        match &stretch.stored {
            Stored::Ints(ints) => self.push_ints(&ints[from..from + count], None)?,
            Stored::Shifted { shift, shifted, .. } => {
                self.push_ints(&shifted[from..from + count], Some(-shift.cast_signed()))?;
            }
            Stored::Decimals { ints, scale, .. } => {
                self.push_ints(&ints[from..from + count], Some(scale.cast_signed()))?;
            }
            Stored::Floats(floats) => self.push_floats(&floats[from..from + count])?,
            Stored::Mixed(each) => each[from..from + count].iter().try_for_each(|each| self.push_value(each))?,
        }
        self.rows += count;
        Ok(count)
    }

    fn push_ints(&mut self, ints: &[i64], scale: Option<i8>) -> Result<()> {
        self.scales.push(scale.map(i32::from), ints.len());
        self.floats.push_absent(ints.len());
        self.ints.push(ints)
    }

    fn push_floats(&mut self, floats: &[f64]) -> Result<()> {
        self.scales.push(None, floats.len());
        self.ints.push_absent(floats.len());
        self.floats.push(floats)
    }

    fn push_value(&mut self, each: &Each) -> Result<()> {
        match each.kind {
            Kind::Float => self.push_floats(&[each.value.as_f64()]),
            Kind::Scaled(scale) => self.push_ints(&[each.int], Some(scale.cast_signed())),
            Kind::Int | Kind::Shifted(_) | Kind::Mixed => self.push_ints(&[each.int], None),
        }
    }

    /// The times of all parts, without a copy of those that are in a list, and how many they are.
    fn ticks<'a>(&'a self, shared: &'a SharedTimes) -> impl Iterator<Item = (Ticks<'a>, usize)> {
        let mut others = &self.other_times[..];
        self.parts.iter().map(move |(part, step)| {
            let ticks = match (*step, part.times) {
                (Some(step), _) => Ticks::Regular { first: part.first, step },
                (None, Times::Shared { list, from }) => Ticks::List(shared.times(list, from, part.rows)),
                (None, _) => {
                    let (here, later) = others.split_at(part.rows);
                    others = later;
                    Ticks::List(here)
                }
            };
            (ticks, part.rows)
        })
    }

    pub fn finish(self, file: &mut ParquetFile, in_file: &mut TimesInFile, shared: &SharedTimes) -> Result<()> {
        let series = column(file, 0, Encoding::DELTA_BINARY_PACKED);
        let scales = column(file, 3, Encoding::DELTA_BINARY_PACKED);
        let series = file.add(self.series.finish(self.rows, false, series)?)?;
        let times = self.place_times(file, in_file, shared)?;
        let columns = vec![
            series,
            times,
            file.add(self.ints.finish()?)?,
            file.add(self.scales.finish(self.rows, true, scales)?)?,
            file.add(self.floats.finish()?)?,
        ];
        file.end_group(self.rows, columns)
    }

    fn place_times(
        &self,
        file: &mut ParquetFile,
        in_file: &mut TimesInFile,
        shared: &SharedTimes,
    ) -> Result<PlacedChunk> {
        let parts: Vec<TimesPart> = self.parts.iter().map(|(part, _)| *part).collect();
        let are_known = parts.iter().all(|part| part.times != Times::Column);
        if are_known && let Some(there) = in_file.find(&parts) {
            return Ok(there);
        }
        let mut packed = column(file, 1, Encoding::DELTA_BINARY_PACKED);
        let mut page = Vec::with_capacity(PAGE_ROWS);
        for (ticks, len) in self.ticks(shared) {
            let mut at = 0;
            while at < len {
                let end = len.min(at + PAGE_ROWS - page.len());
                match ticks {
                    Ticks::Regular { .. } => page.extend((at..end).map(|at| ticks.time(at))),
                    Ticks::List(times) => page.extend_from_slice(&times[at..end]),
                }
                at = end;
                if page.len() == PAGE_ROWS {
                    packed.add_page(page.len(), None, &page, delta::pack)?;
                    page.clear();
                }
            }
        }
        if !page.is_empty() {
            packed.add_page(page.len(), None, &page, delta::pack)?;
        }
        if self.parts.iter().any(|(_, step)| step.is_none())
            && let Some(smaller) = self.smaller_than(&packed, file, shared)?
        {
            packed = smaller;
        }
        let placed = file.add_once(packed.close()?)?;
        if are_known {
            in_file.groups.push((parts, placed.clone()));
        }
        Ok(placed)
    }

    /// The times of all rows in one page, if that is less than they are `packed`.
    fn smaller_than(
        &self,
        packed: &ColumnChunk<i64>,
        file: &ParquetFile,
        shared: &SharedTimes,
    ) -> Result<Option<ColumnChunk<i64>>> {
        let ends = self.ticks(shared).map(|(ticks, rows)| (ticks.time(0), ticks.time(rows - 1)));
        let wider = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        let Some(bounds) = ends.reduce(wider) else { return Ok(None) };
        let mut whole = column(file, 1, Encoding::BYTE_STREAM_SPLIT);
        // Small pages are worth a little: a reader of few series decodes no others' times.
        let bytes_max = packed.len() - packed.len() / 9;
        let is_smaller = whole.add_page_within(bytes_max, self.rows, bounds, |bytes| {
            let times = self.ticks(shared).flat_map(|(ticks, rows)| (0..rows).map(move |at| ticks.time(at)));
            split::split(self.rows, times.map(i64::cast_unsigned), bytes);
        })?;
        Ok((is_smaller && whole.len() + whole.len() / 8 < packed.len()).then_some(whole))
    }
}

/// Column `at` of the next row group of `file`, without pages.
fn column<T: ColumnNumber>(file: &ParquetFile, at: usize, encoding: Encoding) -> ColumnChunk<T> {
    ColumnChunk::new(file.schema().column(at), encoding, file.packing())
}
