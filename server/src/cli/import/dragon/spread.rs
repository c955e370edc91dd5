//! Points of one series and second, kept apart: each has its own time if that is free, else the next free microsecond of
//! its second, in the order of arrival, which in a file is the order of its rows.
//!
//! A row that is in several files is one point: the n-th row of a file with some series, time and value is the n-th such
//! row of every other file. So all rows of a second are looked at together. They are sorted by series and second, beyond
//! [`ROWS_MAX`] on disk, so memory stays bounded, and the result does not depend on how files overlap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use telem_engine::{Timestamp, Value};

use crate::cli::CliFailure;
use crate::cli::import::Importing;
use crate::cli::import::report::{RefusedKind, RowPlace};
use crate::cli::import::store::SeriesPlace;
use crate::info::grouped;

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;
/// Rows that are sorted in memory: 80 MiB.
pub const ROWS_MAX: usize = 2 << 20;
/// Of a row on disk.
pub const ROW_BYTES: usize = 40;
/// Rows of each sorted run that are in memory when runs are merged.
const AHEAD_ROWS: usize = 2_048;
/// Rows of one series and second that are looked at together: what one file can have of them.
const TOGETHER_MAX: usize = SECOND as usize;
/// Room for points of a second that is kept for the next.
const KEPT_MAX: usize = 1_024;
/// The progress bar moves when so many more rows are placed.
const BAR_STEP: u64 = 1 << 16;

/// A row whose series, time and value are known. In the order of these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadRow {
    series: u32,
    second: i64,
    /// How many rows came before it.
    order: u64,
    /// Microseconds within the second.
    micros: u32,
    /// The file, or the part of a merged table.
    source: u32,
    is_int: bool,
    bits: u64,
}

impl SpreadRow {
    pub fn new(series: u32, source: u32, micros: i64, value: Value) -> Self {
        let (is_int, bits) = match value {
            Value::Int(int) => (true, int.cast_unsigned()),
            Value::Float(float) => (false, float.to_bits()),
        };
        let (second, micros) = (micros.div_euclid(SECOND), micros.rem_euclid(SECOND) as u32);
        Self { series, second, order: 0, micros, source, is_int, bits }
    }

    fn value(&self) -> Value {
        if self.is_int { Value::Int(self.bits.cast_signed()) } else { Value::Float(f64::from_bits(self.bits)) }
    }

    fn to_bytes(self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..4].copy_from_slice(&self.series.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.second.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.order.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.micros.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.source.to_le_bytes());
        bytes[28] = self.is_int.into();
        bytes[32..].copy_from_slice(&self.bits.to_le_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let four = |at: usize| bytes[at..at + 4].iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        let eight = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Self {
            series: four(0),
            second: eight(4).cast_signed(),
            order: eight(12),
            micros: four(20),
            source: four(24),
            is_int: bytes[28] != 0,
            bits: eight(32),
        }
    }
}

/// Rows of all files, sorted.
#[derive(Debug)]
pub struct SpreadSorter {
    rows: Vec<SpreadRow>,
    rows_max: usize,
    /// Sorted runs on disk: where each begins and ends, in rows.
    runs: Vec<(u64, u64)>,
    spilled: Option<File>,
    /// Where files may be made that nobody needs afterwards.
    scratch: PathBuf,
    count: u64,
    numbers: HashMap<SeriesPlace, u32>,
    places: Vec<SeriesPlace>,
}

impl SpreadSorter {
    pub fn new(scratch: &Path) -> Self {
        Self::of(scratch, ROWS_MAX)
    }

    fn of(scratch: &Path, rows_max: usize) -> Self {
        Self {
            rows: Vec::new(),
            rows_max,
            runs: Vec::new(),
            spilled: None,
            scratch: scratch.to_path_buf(),
            count: 0,
            numbers: HashMap::new(),
            places: Vec::new(),
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.count
    }

    /// The number of a series in rows.
    pub fn number(&mut self, place: SeriesPlace) -> u32 {
        let places = &mut self.places;
        *self.numbers.entry(place).or_insert_with(|| {
            places.push(place);
            // A store has fewer series than that on all its nodes.
            u32::try_from(places.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Takes a row, in the order of arrival.
    ///
    /// # Errors
    /// Failed when the disk fails.
    pub fn push(&mut self, row: SpreadRow) -> Result<(), CliFailure> {
        self.rows.push(SpreadRow { order: self.count, ..row });
        self.count += 1;
        if self.rows.len() >= self.rows_max { self.spill() } else { Ok(()) }
    }

    /// Writes what is in memory as a sorted run.
    fn spill(&mut self) -> Result<(), CliFailure> {
        self.rows.sort_unstable();
        let failed = |error: std::io::Error| {
            CliFailure::Failed(format!(
                "cannot sort {} rows in {}: {error}",
                grouped(self.count),
                self.scratch.display()
            ))
        };
        if self.spilled.is_none() {
            let path = self.scratch.join(".rows");
            let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
            // It goes when it is closed.
            std::fs::remove_file(&path).map_err(failed)?;
            self.spilled = Some(file);
        }
        let Some(file) = &self.spilled else { return Ok(()) };
        let mut out = BufWriter::with_capacity(1 << 20, file);
        for row in &self.rows {
            out.write_all(&row.to_bytes()).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        let begin = self.runs.last().map_or(0, |(_, end)| *end);
        self.runs.push((begin, begin + self.rows.len() as u64));
        self.rows.clear();
        Ok(())
    }

    /// Gives every point to the store.
    ///
    /// # Errors
    /// Failed when the disk fails, the store does, or the user ended it.
    pub fn finish(mut self, importing: &mut Importing) -> Result<(), CliFailure> {
        let total = self.count;
        let (mut placed, mut done) = (SpreadPlacer::new(std::mem::take(&mut self.places)), 0_u64);
        self.sorted(|row| {
            done += 1;
            if done.is_multiple_of(BAR_STEP) {
                importing.report.merging(done, total);
                importing.store.check_stop()?;
            }
            placed.push(row, importing)
        })?;
        placed.place(true, importing)?;
        let second = placed.second;
        if second.again > 0 {
            importing.report.say(&format!(
                "{} {} in more than one file and {} once",
                grouped(second.again),
                if second.again == 1 { "row is" } else { "rows are" },
                if second.again == 1 { "counts" } else { "count" }
            ));
        }
        Ok(())
    }

    /// Gives every row to `take`, sorted.
    fn sorted(&mut self, mut take: impl FnMut(SpreadRow) -> Result<(), CliFailure>) -> Result<(), CliFailure> {
        if self.runs.is_empty() {
            self.rows.sort_unstable();
            return self.rows.iter().try_for_each(|row| take(*row));
        }
        self.spill()?;
        self.rows = Vec::new();
        let Some(file) = &self.spilled else { return Ok(()) };
        let mut runs: Vec<SpilledRun> = self.runs.iter().map(|run| SpilledRun::new(*run)).collect();
        let mut next = BinaryHeap::new();
        let failed = |error: std::io::Error| CliFailure::Failed(format!("cannot read sorted rows again: {error}"));
        for (at, run) in runs.iter_mut().enumerate() {
            next.extend(run.next(file).map_err(failed)?.map(|row| Reverse((row, at))));
        }
        while let Some(Reverse((row, at))) = next.pop() {
            take(row)?;
            next.extend(runs[at].next(file).map_err(failed)?.map(|row| Reverse((row, at))));
        }
        Ok(())
    }
}

/// Places the rows of one series and second at a time.
struct SpreadPlacer {
    places: Vec<SeriesPlace>,
    second: SpreadSecond,
    rows: Vec<SpreadRow>,
    /// Whether rows before these are of the same second.
    is_rest: bool,
}

impl SpreadPlacer {
    fn new(places: Vec<SeriesPlace>) -> Self {
        Self { places, second: SpreadSecond::default(), rows: Vec::new(), is_rest: false }
    }

    /// Takes the next row, which is sorted.
    fn push(&mut self, row: SpreadRow, importing: &mut Importing) -> Result<(), CliFailure> {
        let is_other = self.rows.last().is_some_and(|last| (last.series, last.second) != (row.series, row.second));
        if is_other || self.rows.len() >= TOGETHER_MAX {
            self.place(is_other, importing)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Gives what it has to the store. `is_end` says that the second has no more.
    fn place(&mut self, is_end: bool, importing: &mut Importing) -> Result<(), CliFailure> {
        if is_end && !self.is_rest {
            fullest_first(&mut self.rows);
        }
        self.is_rest = !is_end;
        for row in self.rows.drain(..) {
            match self.second.place(&row) {
                SpreadPlace::At(micros) => {
                    let at = Timestamp::from_micros(micros);
                    importing.store.push(self.places[row.series as usize], at, row.value())?;
                }
                SpreadPlace::Again => {}
                SpreadPlace::Full => {
                    let why = "its second has no microsecond left for another point of its series";
                    importing.report.refuse(RowPlace::Row("of all rows", row.order + 1), RefusedKind::Time, why)?;
                }
            }
        }
        Ok(())
    }
}

/// The file that has most rows of a second says in which order they came: another may have lost some of them.
fn fullest_first(rows: &mut [SpreadRow]) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    if first.source == last.source {
        return;
    }
    let mut counts = HashMap::<u32, usize>::new();
    for row in &*rows {
        *counts.entry(row.source).or_default() += 1;
    }
    rows.sort_by_key(|row| (Reverse(counts.get(&row.source).copied()), row.order));
}

/// A sorted run on disk, read piece by piece.
struct SpilledRun {
    at: u64,
    end: u64,
    ahead: std::vec::IntoIter<SpreadRow>,
}

impl SpilledRun {
    fn new((at, end): (u64, u64)) -> Self {
        Self { at, end, ahead: Vec::new().into_iter() }
    }

    fn next(&mut self, file: &File) -> std::io::Result<Option<SpreadRow>> {
        if let Some(row) = self.ahead.next() {
            return Ok(Some(row));
        }
        let count = (self.end - self.at).min(AHEAD_ROWS as u64);
        let mut bytes = vec![0; count as usize * ROW_BYTES];
        file.read_exact_at(&mut bytes, self.at * ROW_BYTES as u64)?;
        self.at += count;
        let rows: Vec<SpreadRow> = bytes.chunks_exact(ROW_BYTES).map(SpreadRow::of_bytes).collect();
        self.ahead = rows.into_iter();
        Ok(self.ahead.next())
    }
}

/// Where a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpreadPlace {
    /// Microseconds since 1970.
    At(i64),
    /// Another file had it.
    Again,
    Full,
}

/// The points of one series and second so far.
#[derive(Debug, Default)]
struct SpreadSecond {
    of: Option<(u32, i64)>,
    /// Of each microsecond that is taken the next that may be free.
    taken: HashMap<u32, u32>,
    /// How many points there are of each time and value, and how many rows of this source.
    points: HashMap<(u32, bool, u64), PointCounts>,
    /// Rows that other files had.
    again: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PointCounts {
    points: u32,
    rows: u32,
    /// The source that `rows` are of.
    source: u32,
}

impl SpreadSecond {
    /// Rows come sorted.
    fn place(&mut self, row: &SpreadRow) -> SpreadPlace {
        if self.of != Some((row.series, row.second)) {
            self.of = Some((row.series, row.second));
            empty(&mut self.taken);
            empty(&mut self.points);
        }
        let point = (row.micros, row.is_int, row.bits);
        let mut counts = self.points.get(&point).copied().unwrap_or_default();
        if counts.source != row.source {
            counts = PointCounts { source: row.source, rows: 0, ..counts };
        }
        counts.rows += 1;
        if counts.rows <= counts.points {
            self.points.insert(point, counts);
            self.again += 1;
            return SpreadPlace::Again;
        }
        // Behind the last microsecond the second's first that is free: no point goes into another second.
        let Some(free) = self.free(row.micros).or_else(|| self.free(0)) else { return SpreadPlace::Full };
        self.taken.insert(free, free + 1);
        counts.points += 1;
        self.points.insert(point, counts);
        // The first second there is begins before the first microsecond, and the last one ends behind the last.
        match i64::try_from(i128::from(row.second) * i128::from(SECOND) + i128::from(free)) {
            Ok(micros) if micros != i64::MAX => SpreadPlace::At(micros),
            _ => SpreadPlace::Full,
        }
    }

    /// The first free microsecond from `from` on. What is passed is led there directly the next time.
    fn free(&mut self, from: u32) -> Option<u32> {
        let mut free = from;
        while let Some(next) = self.taken.get(&free) {
            free = *next;
        }
        let mut at = from;
        while let Some(next) = self.taken.get_mut(&at) {
            at = std::mem::replace(next, free);
        }
        (i64::from(free) < SECOND).then_some(free)
    }
}

/// Empties a map; emptying takes as long as the map ever was large.
fn empty<K, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > KEPT_MAX {
        *map = HashMap::new();
    } else {
        map.clear();
    }
}

#[cfg(test)]
mod tests;
