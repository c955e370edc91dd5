//! Reads segments: finds the rows of each series, and reads them.
//!
//! Nothing is read before the first query, and then only the run index: it tells which rows are needed and, for most
//! runs, their times. Values are read only from the pages that hold them, and each page is checked as it is read
//! ([`Blocks`]).

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::{Array, Float64Array, Int8Array, Int64Array};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelectionPolicy,
};
use parquet::file::metadata::PageIndexPolicy;
use tracing::warn;

use super::blocks::Blocks;
use super::cache::SegmentCache;
use super::decimal;
use super::index::{Run, RunIndex};
use super::pages::FilePages;
use super::summary::{self, Kind, Summary};
use super::times::Times;
use super::{SCALE_MAX, SHIFT_MAX, corrupt, schema};
use crate::disk::{self, Disk, ReadFile};
use crate::error::{Error, Result};
use crate::guarded::{guarded, plainly};
use crate::index::Ids;
use crate::layout::Layout;
use crate::manifest::SegmentEntry;
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;
use crate::value::Values;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 64 << 10;
/// What a parsed footer takes, measured against its bytes.
const FOOTER_MEMORY: u64 = 4;

/// A segment that the manifest names.
pub struct Segment {
    entry: SegmentEntry,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    cache: Arc<SegmentCache>,
    pages: FilePages,
    /// When several databases are open as one: what its ids are called there.
    ids: Option<Arc<Ids>>,
    loaded: Mutex<Option<Arc<LoadedSegment>>>,
    used_again: AtomicBool,
    /// Whether the file goes with the last reader: no manifest names it any more.
    retired: AtomicBool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({})", self.entry.file.file)
    }
}

impl Segment {
    pub fn new(entry: SegmentEntry, layout: &Layout, disk: Arc<dyn Disk>, cache: Arc<SegmentCache>) -> Self {
        let path = layout.named(&entry.file.file);
        let pages = cache.pages().file();
        Self {
            entry,
            path,
            disk,
            cache,
            pages,
            ids: None,
            loaded: Mutex::default(),
            used_again: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// The same segment under the ids of several databases that are open as one.
    #[must_use]
    pub fn with_ids(mut self, ids: Arc<Ids>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// The same file with a run index and pages of its own, in `cache`. It is never retired: whoever reads it so holds this
    /// one too.
    #[must_use]
    pub fn apart(&self, cache: &Arc<SegmentCache>) -> Self {
        Self {
            entry: self.entry.clone(),
            path: self.path.clone(),
            disk: Arc::clone(&self.disk),
            cache: Arc::clone(cache),
            pages: cache.pages().file(),
            ids: self.ids.clone(),
            loaded: Mutex::default(),
            used_again: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// False only when it holds nothing of `series`, as far as that is known without reading.
    pub fn may_hold(&self, series: SeriesId) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.hold(series))
    }

    /// Of `series`, sorted, those that [`Segment::may_hold`].
    pub fn may_hold_of<'a, T>(&'a self, series: &'a [(SeriesId, T)]) -> impl Iterator<Item = &'a (SeriesId, T)> {
        let all = if self.ids.is_none() { series } else { &[] };
        all.iter().chain(self.ids.iter().flat_map(|ids| ids.known(series)))
    }

    /// Of several databases that are open as one: the first id of those that came with the one that this belongs to.
    pub fn first_of_database(&self) -> Option<SeriesId> {
        self.ids.as_ref().map(|ids| ids.first_new())
    }

    pub fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// No manifest names it any more: current readers go on, and the last one removes the file. Until then it takes no more
    /// memory than they need.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.let_go();
        self.cache.forget(self);
        self.pages.forget();
    }

    /// Its run index and an open file: from the cache, or read and checked now.
    ///
    /// # Errors
    /// Io; Gone; Corrupt when they are not what the manifest says.
    pub fn load(self: &Arc<Self>) -> Result<Arc<LoadedSegment>> {
        let mut loaded = self.slot();
        if let Some(loaded) = &*loaded {
            self.used_again.store(true, Ordering::Relaxed);
            self.cache.hit();
            return Ok(Arc::clone(loaded));
        }
        let mut fresh = LoadedSegment::parse(self.open()?, &self.path, &self.entry, self.ids.as_deref())?;
        fresh.pages = Some(self.pages.clone());
        let fresh = Arc::new(fresh);
        *loaded = Some(Arc::clone(&fresh));
        // Released first: the cache may empty slots, and takes their locks.
        drop(loaded);
        self.cache.add(self, fresh.bytes());
        Ok(fresh)
    }

    /// The manifest named the file when the database was opened. A process that only reads does not keep it from being
    /// merged.
    fn open(&self) -> Result<Arc<dyn ReadFile>> {
        self.disk.open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Gone { path: self.path.clone() },
            _ => Error::io("open", &self.path)(error),
        })
    }

    /// Whether it was asked since the last such question.
    pub(super) fn was_used_again(&self) -> bool {
        self.used_again.swap(false, Ordering::Relaxed)
    }

    /// Forgets the loaded data; current readers keep theirs.
    pub(super) fn let_go(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<LoadedSegment>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Segment {
    /// Best effort: what stays is removed at the next open.
    fn drop(&mut self) {
        if self.retired.load(Ordering::Acquire)
            && let Err(error) = disk::remove_if_there(&*self.disk, &self.path)
        {
            warn!(%error, "a merged segment stays until the next open");
        }
    }
}

/// A segment whose run index was read: where the rows of each series are.
#[derive(Debug)]
pub struct LoadedSegment {
    path: PathBuf,
    index: RunIndex,
    blocks: Blocks,
    /// Parquet's own, parsed when a page is read.
    footer: OnceLock<ArrowReaderMetadata>,
    /// Those that were unpacked lately; `None` for a file that is read once.
    pages: Option<FilePages>,
}

/// Samples of one run, sorted by time.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub times: Vec<i64>,
    pub values: Values,
}

impl Piece {
    /// Adds a later one.
    pub(crate) fn append(&mut self, later: Piece) {
        self.times.extend(later.times);
        self.values.append(later.values);
    }
}

impl LoadedSegment {
    /// # Errors
    /// Io; Corrupt when the index or the footer is not what `entry` says.
    pub fn open(disk: &dyn Disk, path: &Path, entry: &SegmentEntry) -> Result<Self> {
        Self::parse(disk.open(path).map_err(Error::io("open", path))?, path, entry, None)
    }

    /// Its runs are called by `ids`, if there are any.
    pub(super) fn parse(file: Arc<dyn ReadFile>, path: &Path, entry: &SegmentEntry, ids: Option<&Ids>) -> Result<Self> {
        if file.len() != entry.file.bytes || entry.tail > entry.file.bytes {
            let expected = format!("{} bytes, the run index from {}", entry.file.bytes, entry.tail);
            return Err(corrupt(path, "its length", format!("{} bytes", file.len()), &expected));
        }
        let mut tail = vec![0; usize::try_from(entry.file.bytes - entry.tail).unwrap_or(usize::MAX)];
        file.read_at(entry.tail, &mut tail).map_err(Error::io("read", path))?;
        let found = crc32fast::hash(&tail);
        if found != entry.tail_crc32 {
            let expected = format!("{:08x}", entry.tail_crc32);
            return Err(corrupt(path, "the checksum of its run index and footer", format!("{found:08x}"), &expected));
        }
        let window =
            TimeRange::new(Timestamp::from_micros(entry.window_start), Timestamp::from_micros(entry.window_end));
        let (mut index, index_len) = RunIndex::decode(path, &tail, entry.tail, entry.rows, window)?;
        if let Some(ids) = ids {
            index.rename(|series| ids.translate(series)).map_err(|series| {
                let found = format!("series {}", series.0);
                corrupt(path, "its series", found, &format!("ids below {}", ids.series_count()))
            })?;
        }
        let checksums = std::mem::take(&mut index.checksums);
        let blocks = Blocks::new(path.to_path_buf(), file, checksums, entry.tail, tail[index_len..].to_vec().into());
        Ok(Self { path: path.to_path_buf(), index, blocks, footer: OnceLock::new(), pages: None })
    }

    /// By series.
    pub fn runs(&self) -> &[Run] {
        self.index.runs()
    }

    pub fn run(&self, series: SeriesId) -> Option<&Run> {
        self.index.run(series)
    }

    /// What the values of `run` come to; `None` for one with NaN or with values of two kinds.
    pub fn summary(&self, run: &Run) -> Option<Summary> {
        self.index.summary(run)
    }

    /// An upper bound of the rows of `run` in `range`.
    pub fn rows_in(&self, run: &Run, range: TimeRange) -> u64 {
        self.index.rows_in(run, range).map_or(u64::from(run.rows), |rows| rows.len() as u64)
    }

    fn bytes(&self) -> u64 {
        self.index.bytes() + self.blocks.bytes() * FOOTER_MEMORY
    }

    /// Whether `run` has a sample in `range`; reads no values.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn has_row(&self, run: &Run, range: TimeRange) -> Result<bool> {
        if range.contains(run.first) || range.contains(run.last) {
            return Ok(true);
        }
        if !range.overlaps_closed(run.first, run.last) {
            return Ok(false);
        }
        if let Some(rows) = self.index.rows_in(run, range) {
            return Ok(!rows.is_empty());
        }
        let times = self.ints("ts", slice::from_ref(&run.rows()))?;
        Ok(times.iter().flatten().any(|time| range.contains(Timestamp::from_micros(*time))))
    }

    /// The last sample of `run`.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn last(&self, run: &Run) -> Result<Option<(Timestamp, Value)>> {
        if let Some(summary) = self.index.summary(run) {
            return Ok(Some((run.last, summary.last)));
        }
        let last = run.rows().end - 1..run.rows().end;
        let value = match run.kind {
            Kind::Float => {
                let mut float = None;
                self.each_float("float", slice::from_ref(&last), &mut |_, _, values| float = values.last().copied())?;
                float.map(Value::Float)
            }
            _ => self.mixed(slice::from_ref(&last))?[0].first().copied(),
        };
        Ok(value.map(|value| (run.last, value)))
    }

    /// The samples of `runs` (sorted by row, each once) in `range`, run by run.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn read(&self, runs: &[Run], range: TimeRange) -> Result<Vec<Piece>> {
        let (rows, times) = self.times(runs, range)?;
        let values = self.values(runs, &rows)?;
        Ok(times.into_iter().zip(values).map(|(times, values)| Piece { times, values }).collect())
    }

    /// The samples of these rows of `run`, counted from its first, as far as they are in `range`.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn read_rows(&self, run: &Run, rows: Range<usize>, range: TimeRange) -> Result<Piece> {
        let first = run.row as usize + rows.start;
        let times = match self.index.times_of(run, rows.clone()) {
            Some(times) => times,
            None => {
                let rows = first..run.row as usize + rows.end;
                self.ints("ts", slice::from_ref(&rows))?.swap_remove(0)
            }
        };
        let (rows, times) = within(times, range);
        let rows = first + rows.start..first + rows.end;
        let mut values = self.values(slice::from_ref(run), slice::from_ref(&rows))?;
        Ok(Piece { times, values: values.swap_remove(0) })
    }

    /// The values of `rows` of each of `runs`.
    fn values(&self, runs: &[Run], rows: &[Range<usize>]) -> Result<Vec<Values>> {
        let wanted: Vec<RunRows> =
            runs.iter().zip(rows).map(|(run, rows)| RunRows { run: *run, rows: rows.clone() }).collect();
        let mut values: Vec<Option<Values>> = vec![None; wanted.len()];
        self.visit_values(&wanted, Need::Values, &mut |at, _, numbers| match &mut values[at] {
            Some(before) => before.append(numbers.into()),
            none => *none = Some(numbers.into()),
        })?;
        Ok(values.into_iter().map(|values| values.unwrap_or(Values::Int(Vec::new()))).collect())
    }

    /// The rows of each run in `range`, and their times.
    #[expect(clippy::type_complexity, reason = "two vectors that go side by side")]
    fn times(&self, runs: &[Run], range: TimeRange) -> Result<(Vec<Range<usize>>, Vec<Vec<i64>>)> {
        let in_column: Vec<Range<usize>> =
            runs.iter().filter(|run| run.times == Times::Column).map(Run::rows).collect();
        let mut from_column = self.ints("ts", &in_column)?.into_iter();
        let mut all_rows = Vec::with_capacity(runs.len());
        let mut all_times = Vec::with_capacity(runs.len());
        for run in runs {
            let (rows, times) = match self.index.times(run, range) {
                Some(known) => known,
                None => within(from_column.next().unwrap_or_default(), range),
            };
            let row = run.row as usize;
            all_rows.push(row + rows.start..row + rows.end);
            all_times.push(times);
        }
        Ok((all_rows, all_times))
    }

    /// The integers of one column in each of `ranges` (rows, sorted, apart), where none may be absent.
    fn ints(&self, name: &str, ranges: &[Range<usize>]) -> Result<Vec<Vec<i64>>> {
        let mut found: Vec<Vec<i64>> = ranges.iter().map(|range| Vec::with_capacity(range.len())).collect();
        self.each_int(name, ranges, &mut |at, _, values| found[at].extend_from_slice(values))?;
        Ok(found)
    }

    /// The values in each of `ranges`, however each is stored.
    fn mixed(&self, ranges: &[Range<usize>]) -> Result<Vec<Vec<Value>>> {
        let mut values = Vec::new();
        for batch in self.batches(&["int", "scale", "float"], ranges)? {
            let batch = batch?;
            let columns = ValueColumns::of(&self.path, &batch)?;
            for row in 0..batch.num_rows() {
                values.push(columns.value(row)?.0);
            }
        }
        let rows: usize = ranges.iter().map(Range::len).sum();
        if values.len() != rows {
            return Err(corrupt(&self.path, "its rows", values.len().to_string(), &rows.to_string()));
        }
        let mut values = values.into_iter();
        Ok(ranges.iter().map(|range| values.by_ref().take(range.len()).collect()).collect())
    }

    /// These columns of the rows of `ranges`.
    fn batches(
        &self,
        columns: &[&str],
        ranges: &[Range<usize>],
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + '_> {
        let wanted: usize = ranges.iter().map(Range::len).sum();
        let reader = if wanted == 0 {
            None
        } else {
            let footer = self.footer()?;
            let rows = usize::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
            if ranges.last().is_some_and(|range| range.end > rows) {
                return Err(corrupt(&self.path, "its rows", rows.to_string(), "those of its run index"));
            }
            let selection = RowSelection::from_consecutive_ranges(ranges.iter().cloned(), rows);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.blocks.clone(), footer.clone())
                .with_projection(ProjectionMask::columns(footer.parquet_schema(), columns.iter().copied()))
                .with_batch_size(wanted.min(BATCH_ROWS))
                // Selected rows come in long stretches; a mask would decode the pages between them.
                .with_row_selection_policy(RowSelectionPolicy::Selectors)
                .with_row_selection(selection);
            Some(guarded(&self.path, || builder.build().map_err(|error| unreadable(&self.path, &error)))?)
        };
        let mut reader = reader;
        Ok(std::iter::from_fn(move || {
            let next = |reader: &mut ParquetRecordBatchReader| reader.next().transpose();
            let batch = guarded(&self.path, || {
                reader.as_mut().map_or(Ok(None), next).map_err(|error| unreadable(&self.path, &error))
            });
            if batch.is_err() {
                reader = None;
            }
            batch.transpose()
        }))
    }

    fn footer(&self) -> Result<&ArrowReaderMetadata> {
        if let Some(footer) = self.footer.get() {
            return Ok(footer);
        }
        // Where pages are is needed, what is in them is not: the run index knows better.
        // And a schema of Arrow's beside Parquet's own, which we do not write, could hold anything.
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_offset_index_policy(PageIndexPolicy::Optional)
            .with_column_index_policy(PageIndexPolicy::Skip);
        let load = || ArrowReaderMetadata::load(&self.blocks, options);
        let footer = guarded(&self.path, || load().map_err(|error| unreadable(&self.path, &error)))?;
        check_schema(&self.path, &footer)?;
        Ok(self.footer.get_or_init(|| footer))
    }
}

/// Of `times`, ascending, those in `range`: their places, and they themselves.
fn within(mut times: Vec<i64>, range: TimeRange) -> (Range<usize>, Vec<i64>) {
    let from = times.partition_point(|time| *time < range.start.micros());
    times.truncate(times.partition_point(|time| *time < range.end.micros()));
    let rows = from.min(times.len())..times.len();
    times.drain(..rows.start);
    (rows, times)
}

/// The columns that make a value.
pub(super) struct ValueColumns<'a> {
    path: &'a Path,
    ints: &'a Int64Array,
    scales: &'a Int8Array,
    floats: &'a Float64Array,
}

impl<'a> ValueColumns<'a> {
    pub fn of(path: &'a Path, batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            path,
            ints: column(batch, "int", path)?,
            scales: column(batch, "scale", path)?,
            floats: column(batch, "float", path)?,
        })
    }

    /// The value of a row, and how it is stored.
    pub fn value(&self, row: usize) -> Result<(Value, Kind)> {
        if self.floats.is_valid(row) {
            return Ok((Value::Float(self.floats.value(row)), Kind::Float));
        }
        if self.ints.is_null(row) {
            return Err(corrupt(self.path, "the value of a row", "none".to_owned(), "`int` or `float`"));
        }
        let int = self.ints.value(row);
        if self.scales.is_null(row) {
            return Ok((Value::Int(int), Kind::Int));
        }
        let scale = self.scales.value(row);
        let shift = scale.unsigned_abs();
        match u8::try_from(scale) {
            Ok(known) if scale <= SCALE_MAX => Ok((Value::Float(decimal::to_float(int, known)), Kind::Scaled(known))),
            Err(_) if shift <= SHIFT_MAX => {
                let back = summary::shifted_back(int, shift);
                let too_large = || corrupt(self.path, "the value of a row", format!("{int} << {shift}"), "64 bits");
                Ok((Value::Int(back.ok_or_else(too_large)?), Kind::Shifted(shift)))
            }
            _ => {
                let expected = format!("-{SHIFT_MAX} to {SCALE_MAX}");
                Err(corrupt(self.path, "the scale of a row", scale.to_string(), &expected))
            }
        }
    }
}

pub(super) fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a A> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| corrupt(path, "its columns", format!("no `{name}` of the right type"), "those of format 1"))
}

fn check_schema(path: &Path, metadata: &ArrowReaderMetadata) -> Result<()> {
    let (found, expected) = (metadata.schema(), schema());
    for field in expected.fields() {
        let good = found.field_with_name(field.name()).is_ok_and(|found| found.data_type() == field.data_type());
        if !good {
            let found = format!("{:?}", found.field_with_name(field.name()).map(|field| field.data_type()).ok());
            return Err(corrupt(path, "its columns", found, &format!("`{}` {}", field.name(), field.data_type())));
        }
    }
    Ok(())
}

/// Parquet's errors keep no kind of what the disk said; the message does.
fn unreadable(path: &Path, error: &dyn fmt::Display) -> Error {
    corrupt(path, "its Parquet", plainly(error), "a segment of format 1")
}

mod pages;
mod verify;
mod visit;

pub use visit::{Need, Numbers, RunRows};
