//! Encodes one row group, column by column.
//!
//! Where it is not clear which encoding of times is smaller, both are tried and the smaller one is kept. The first
//! encodes differences, bit-packed in pages of [`PAGE_ROWS`], which suits regular times. The second splits the bytes of
//! the times within one page, where the compressor finds the times that many series share; it ends as soon as it has
//! become the larger one. Times that do not tick are packed when the row group ends: if all of them are those of an
//! earlier row group, they are there already ([`TimesInFile`]).

use parquet::basic::Encoding;
use parquet::schema::types::SchemaDescriptor;

use super::chunk::ColumnChunk;
use super::file::{ParquetFile, PlacedChunk};
use super::presence::RowPresence;
use super::{Each, Stored, delta, split};
use crate::error::Result;
use crate::segment::summary::Kind;
use crate::segment::times::Times;
use crate::segment::{PAGE_ROWS, ROW_GROUP_ROWS};
use crate::series::SeriesId;

/// Earlier row groups whose times a row group is compared with: one metric of very many series has so many.
const GROUPS_TRIED: usize = 64;

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

/// The times of rows that follow each other, without a copy of them: they are equal if these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimesPart {
    times: Times,
    first: i64,
    rows: usize,
}

/// The times of row groups that are in the file, by what they are; only of those with times that do not tick.
#[derive(Default)]
pub struct TimesInFile {
    groups: Vec<(Vec<TimesPart>, PlacedChunk)>,
}

impl TimesInFile {
    fn find(&self, parts: &[TimesPart]) -> Option<PlacedChunk> {
        self.groups.iter().rev().take(GROUPS_TRIED).find(|(known, _)| known == parts).map(|(_, chunk)| chunk.clone())
    }
}

/// The columns of a row group, as far as pages of them are finished.
struct GroupColumns {
    series: ColumnChunk<u32>,
    times: ColumnChunk<i64>,
    ints: ColumnChunk<i64>,
    scales: ColumnChunk<i32>,
    floats: ColumnChunk<f64>,
}

impl GroupColumns {
    fn new(schema: &SchemaDescriptor) -> Self {
        let packed = Encoding::DELTA_BINARY_PACKED;
        Self {
            series: ColumnChunk::new(schema.column(0), packed),
            times: ColumnChunk::new(schema.column(1), packed),
            ints: ColumnChunk::new(schema.column(2), packed),
            scales: ColumnChunk::new(schema.column(3), packed),
            floats: ColumnChunk::new(schema.column(4), Encoding::BYTE_STREAM_SPLIT),
        }
    }
}

pub struct Group {
    /// Of finished pages.
    rows: usize,
    columns: GroupColumns,
    /// The rows so far, as long as they are regular: first time, step, rows.
    ticking: Vec<(i64, i64, usize)>,
    /// All times from the first row on, once some do not tick.
    whole_times: Option<Vec<i64>>,
    /// Of all rows; `None` once there are some that only the column tells.
    parts: Option<Vec<TimesPart>>,
    /// Whether there is something in `times` that does not tick.
    irregular: bool,
    /// The next page. Of the last three columns only what is present.
    series: Vec<u32>,
    times: Vec<i64>,
    ints: Vec<i64>,
    scales: Vec<i32>,
    floats: Vec<f64>,
    has_int: RowPresence,
    has_scale: RowPresence,
    has_float: RowPresence,
}

impl Group {
    pub fn new(schema: &SchemaDescriptor) -> Self {
        Self {
            rows: 0,
            columns: GroupColumns::new(schema),
            ticking: Vec::new(),
            whole_times: None,
            parts: Some(Vec::new()),
            irregular: false,
            // Many segments are small: room is made as rows come.
            series: Vec::new(),
            times: Vec::new(),
            ints: Vec::new(),
            scales: Vec::new(),
            floats: Vec::new(),
            has_int: RowPresence::default(),
            has_scale: RowPresence::default(),
            has_float: RowPresence::default(),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows + self.times.len()
    }

    pub fn is_full(&self) -> bool {
        self.rows() >= ROW_GROUP_ROWS
    }

    /// Takes samples from `from` on, as many as have room; gives back how many these are.
    pub fn push(&mut self, stretch: &RunStretch<'_>, from: usize) -> Result<usize> {
        let buffered = self.times.len();
        let room = (PAGE_ROWS - buffered).min(ROW_GROUP_ROWS - self.rows - buffered);
        let count = room.min(stretch.times.len() - from);
        let times = &stretch.times[from..from + count];
        self.series.resize(buffered + count, stretch.series.0);
        self.times.extend_from_slice(times);
        match stretch.known {
            Times::Column => self.parts = None,
            known => {
                let part = TimesPart { times: known.from(from), first: times[0], rows: count };
                self.parts.iter_mut().for_each(|parts| parts.push(part));
            }
        }
        match stretch.step {
            Some(step) if self.whole_times.is_none() => self.ticking.push((times[0], step, count)),
            Some(_) => {}
            None => self.irregular = true,
        }
        match &stretch.stored {
            Stored::Ints(ints) => self.push_ints(&ints[from..from + count], None),
            Stored::Shifted { shift, shifted, .. } => {
                self.push_ints(&shifted[from..from + count], Some(-shift.cast_signed()));
            }
            Stored::Decimals { ints, scale, .. } => {
                self.push_ints(&ints[from..from + count], Some(scale.cast_signed()));
            }
            Stored::Floats(floats) => self.push_floats(&floats[from..from + count]),
            Stored::Mixed(each) => each[from..from + count].iter().for_each(|each| self.push_value(each)),
        }
        if self.times.len() == PAGE_ROWS {
            self.write()?;
        }
        Ok(count)
    }

    fn push_ints(&mut self, ints: &[i64], scale: Option<i8>) {
        self.ints.extend_from_slice(ints);
        if let Some(scale) = scale {
            self.scales.resize(self.scales.len() + ints.len(), i32::from(scale));
        }
        self.has_int.push(true, ints.len());
        self.has_scale.push(scale.is_some(), ints.len());
        self.has_float.push(false, ints.len());
    }

    fn push_floats(&mut self, floats: &[f64]) {
        self.floats.extend_from_slice(floats);
        self.has_int.push(false, floats.len());
        self.has_scale.push(false, floats.len());
        self.has_float.push(true, floats.len());
    }

    fn push_value(&mut self, each: &Each) {
        match each.kind {
            Kind::Float => self.push_floats(&[each.value.as_f64()]),
            Kind::Scaled(scale) => self.push_ints(&[each.int], Some(scale.cast_signed())),
            Kind::Int | Kind::Shifted(_) | Kind::Mixed => self.push_ints(&[each.int], None),
        }
    }

    /// Finishes a page of each column.
    fn write(&mut self) -> Result<()> {
        let rows = self.times.len();
        if rows == 0 {
            return Ok(());
        }
        if self.irregular && self.whole_times.is_none() {
            self.whole_times = Some(self.times_before());
        }
        let columns = &mut self.columns;
        match &mut self.whole_times {
            Some(whole) => whole.extend_from_slice(&self.times),
            None => columns.times.add_page(rows, None, &self.times, delta::pack)?,
        }
        columns.series.add_page(rows, None, &self.series, delta::pack)?;
        columns.ints.add_page(rows, Some(&self.has_int), &self.ints, delta::pack)?;
        columns.scales.add_page(rows, Some(&self.has_scale), &self.scales, delta::pack)?;
        columns.floats.add_page(rows, Some(&self.has_float), &self.floats, |floats, bytes| {
            split::split(floats.iter().map(|float| float.to_bits()), bytes);
        })?;
        self.rows += rows;
        self.irregular = false;
        self.series.clear();
        self.times.clear();
        self.ints.clear();
        self.scales.clear();
        self.floats.clear();
        self.has_int.clear();
        self.has_scale.clear();
        self.has_float.clear();
        Ok(())
    }

    /// Those of all finished pages, which tick.
    fn times_before(&mut self) -> Vec<i64> {
        let mut times = Vec::with_capacity(self.rows + PAGE_ROWS);
        for (first, step, rows) in std::mem::take(&mut self.ticking) {
            let rows = rows.min(self.rows - times.len());
            times.extend((0..rows as i64).map(|row| first + row * step));
        }
        times
    }

    pub fn finish(mut self, file: &mut ParquetFile, in_file: &mut TimesInFile) -> Result<()> {
        self.write()?;
        let GroupColumns { series, times, ints, scales, floats } = self.columns;
        let series = file.add(series.close()?)?;
        let times = match self.whole_times {
            None => file.add(times.close()?)?,
            Some(whole) => match self.parts.as_deref().and_then(|parts| in_file.find(parts)) {
                Some(there) => there,
                None => {
                    let placed = file.add_once(packed_times(times, &whole, file.schema())?.close()?)?;
                    in_file.groups.extend(self.parts.map(|parts| (parts, placed.clone())));
                    placed
                }
            },
        };
        let columns = vec![series, times, file.add(ints.close()?)?, file.add(scales.close()?)?, file.add(floats.close()?)?];
        file.end_group(self.rows, columns)
    }
}

/// All times of a row group that do not all tick, of which the first pages may be `packed`.
fn packed_times(mut packed: ColumnChunk<i64>, whole: &[i64], schema: &SchemaDescriptor) -> Result<ColumnChunk<i64>> {
    for page in whole[packed.rows()..].chunks(PAGE_ROWS) {
        packed.add_page(page.len(), None, page, delta::pack)?;
    }
    let mut shared = ColumnChunk::new(schema.column(1), Encoding::BYTE_STREAM_SPLIT);
    // Small pages are worth a little: a reader of few series decodes no others' times.
    let bytes_max = packed.len() - packed.len() / 9;
    let is_smaller = shared.add_page_within(bytes_max, whole, |times, bytes| {
        split::split(times.iter().map(|time| time.cast_unsigned()), bytes);
    })?;
    Ok(if is_smaller && shared.len() + shared.len() / 8 < packed.len() { shared } else { packed })
}
