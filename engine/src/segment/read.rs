//! Reads segments: which rows belong to which series, and those rows.
//!
//! Nothing is read until the first question. Then the whole file is checked once against the
//! manifest's checksum, so that a damaged byte is an error and never a wrong answer, and its runs
//! (the rows of each series) are kept in a cache of bounded size. A read decodes the pages of the
//! series asked for and no others.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, Float64Array, Int8Array, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::reader::{ChunkReader, Length};
use tracing::warn;

use super::SCALE_MAX;
use crate::disk::{self, Disk, ReadFile};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::manifest::SegmentEntry;
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::together::Ids;
use crate::value::Value;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8_192;
/// Bytes read at a time when a file is checked.
const CHECK_BYTES: usize = 1 << 20;

/// The rows of one series in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub series: SeriesId,
    pub row: u32,
    pub rows: u32,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// A segment that the manifest names.
pub struct Segment {
    entry: SegmentEntry,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    cache: Arc<SegmentCache>,
    /// When several databases are open as one: what its ids are called there.
    ids: Option<Arc<Ids>>,
    loaded: Mutex<Option<Arc<Loaded>>>,
    /// Whether its bytes were once what the manifest says. They do not change, and once is enough.
    checked: AtomicBool,
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
        Self {
            entry,
            path,
            disk,
            cache,
            ids: None,
            loaded: Mutex::default(),
            checked: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// The same segment under the ids of several databases that are open as one.
    #[must_use]
    pub fn with_ids(mut self, ids: Arc<Ids>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// False only when it holds nothing of `series`, as far as that is known without reading.
    pub fn may_hold(&self, series: SeriesId) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.hold(series))
    }

    pub fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// No manifest names it any more: whoever reads it goes on, and the last one removes the file.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Its runs and an open file: from the cache, or read and checked now.
    ///
    /// # Errors
    /// Io; Gone; Corrupt when the file is not what the manifest says.
    pub fn load(self: &Arc<Self>) -> Result<Arc<Loaded>> {
        let mut loaded = self.slot();
        if let Some(loaded) = &*loaded {
            return Ok(Arc::clone(loaded));
        }
        let file = self.open()?;
        if !self.checked.load(Ordering::Acquire) {
            check_bytes(&*file, &self.path, self.entry.file.bytes, self.entry.file.crc32)?;
        }
        let fresh = Arc::new(Loaded::parse(file, &self.path, &self.entry, self.ids.as_deref())?);
        self.checked.store(true, Ordering::Release);
        *loaded = Some(Arc::clone(&fresh));
        // Released first: the cache may empty slots, and takes their locks while holding its own.
        drop(loaded);
        self.cache.add(self, fresh.bytes());
        Ok(fresh)
    }

    /// What [`Loaded::read`] needs, for one who knows the runs: the cache may have let them go meanwhile.
    ///
    /// # Errors
    /// Io; Gone; Corrupt when the file is not what the manifest says.
    pub fn reader(self: &Arc<Self>) -> Result<Arc<Loaded>> {
        if let Some(loaded) = &*self.slot() {
            return Ok(Arc::clone(loaded));
        }
        if !self.checked.load(Ordering::Acquire) {
            return self.load();
        }
        Loaded::footer(self.open()?, &self.path).map(Arc::new)
    }

    /// The manifest named the file when the database was opened. Who only reads does not keep it from being merged.
    fn open(&self) -> Result<Arc<dyn ReadFile>> {
        self.disk.open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Gone { path: self.path.clone() },
            _ => Error::io("open", &self.path)(error),
        })
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Loaded>>> {
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

/// Bounds what loaded segments hold: the oldest are let go first.
#[derive(Debug)]
pub struct SegmentCache {
    bytes_max: u64,
    files_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    segments: VecDeque<(Weak<Segment>, u64)>,
}

impl SegmentCache {
    /// At most `files_max` open files and `bytes_max` of their runs and footers, besides what readers hold.
    pub fn new(bytes_max: u64, files_max: usize) -> Self {
        Self { bytes_max, files_max, held: Mutex::default() }
    }

    fn add(&self, segment: &Arc<Segment>, bytes: u64) {
        let mut evicted = Vec::new();
        {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.bytes += bytes;
            held.segments.push_back((Arc::downgrade(segment), bytes));
            while held.segments.len() > 1 && (held.bytes > self.bytes_max || held.segments.len() > self.files_max) {
                let Some((oldest, bytes)) = held.segments.pop_front() else { break };
                held.bytes -= bytes;
                evicted.push(oldest);
            }
        }
        for segment in evicted.iter().filter_map(Weak::upgrade) {
            *segment.slot() = None;
        }
    }
}

/// A checked segment: where the rows of each series are.
#[derive(Debug)]
pub struct Loaded {
    path: PathBuf,
    file: Chunks,
    metadata: ArrowReaderMetadata,
    /// By row.
    runs: Vec<Run>,
    /// Indexes of `runs`, by series.
    by_series: Vec<u32>,
}

impl Loaded {
    /// Its runs are called by `ids`, if there are any.
    ///
    /// # Errors
    /// Io; Corrupt when the file is not what `entry` says.
    pub fn open(disk: &dyn Disk, path: &Path, entry: &SegmentEntry, ids: Option<&Ids>) -> Result<Self> {
        let file = disk.open(path).map_err(Error::io("open", path))?;
        check_bytes(&*file, path, entry.file.bytes, entry.file.crc32)?;
        Self::parse(file, path, entry, ids)
    }

    /// The footer alone, without runs.
    fn footer(file: Arc<dyn ReadFile>, path: &Path) -> Result<Self> {
        let file = Chunks(file);
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| unreadable(path, &error))?;
        check_schema(path, &metadata)?;
        Ok(Self { path: path.to_path_buf(), file, metadata, runs: Vec::new(), by_series: Vec::new() })
    }

    fn parse(file: Arc<dyn ReadFile>, path: &Path, entry: &SegmentEntry, ids: Option<&Ids>) -> Result<Self> {
        let mut loaded = Self::footer(file, path)?;
        loaded.runs = loaded.find_runs(entry)?;
        if let Some(ids) = ids {
            for run in &mut loaded.runs {
                let found = || format!("series {}", run.series.0);
                let known = ids.translate(run.series);
                run.series = known.ok_or_else(|| {
                    corrupt(path, "its series", found(), &format!("ids below {}", ids.series_count()))
                })?;
            }
        }
        let mut by_series: Vec<u32> = (0..loaded.runs.len() as u32).collect();
        by_series.sort_unstable_by_key(|at| loaded.runs[*at as usize].series);
        let twice = by_series.windows(2).find(|pair| loaded.run_at(pair[0]).series == loaded.run_at(pair[1]).series);
        if let Some(pair) = twice {
            let found = format!("two stretches of series {}", loaded.run_at(pair[0]).series.0);
            return Err(corrupt(path, "its order", found, "the rows of a series side by side"));
        }
        loaded.by_series = by_series;
        Ok(loaded)
    }

    fn run_at(&self, at: u32) -> &Run {
        &self.runs[at as usize]
    }

    /// By row, which is the canonical order of their series.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn run(&self, series: SeriesId) -> Option<&Run> {
        let at = self.by_series.binary_search_by_key(&series, |at| self.run_at(*at).series).ok()?;
        Some(self.run_at(self.by_series[at]))
    }

    fn bytes(&self) -> u64 {
        (self.runs.len() * (size_of::<Run>() + 4) + self.metadata.metadata().memory_size()) as u64
    }

    /// Hands the samples of `runs` (sorted by row) to `take`, with the position of their run.
    ///
    /// # Errors
    /// Io and Corrupt.
    pub fn read(&self, runs: &[Run], mut take: impl FnMut(usize, Timestamp, Value)) -> Result<()> {
        let rows = usize::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let ranges = runs.iter().map(|run| run.row as usize..(run.row + run.rows) as usize);
        let selection = RowSelection::from_consecutive_ranges(ranges, rows);
        let (mut at, mut left) = (0, runs.first().map_or(0, |run| run.rows));
        for batch in self.batches(&["ts", "int", "scale", "float"], Some(selection))? {
            let batch = batch?;
            let columns = SampleColumns::of(&self.path, &batch)?;
            for row in 0..batch.num_rows() {
                while left == 0 {
                    at += 1;
                    left = runs.get(at).map_or(u32::MAX, |run| run.rows);
                }
                left -= 1;
                take(at, columns.time(row), columns.value(row, &self.path)?);
            }
        }
        Ok(())
    }

    /// Groups rows into runs, and checks their order and window on the way.
    fn find_runs(&self, entry: &SegmentEntry) -> Result<Vec<Run>> {
        let window =
            TimeRange::new(Timestamp::from_micros(entry.window_start), Timestamp::from_micros(entry.window_end));
        let mut runs: Vec<Run> = Vec::new();
        let mut row: u32 = 0;
        for batch in self.batches(&["series", "ts"], None)? {
            let batch = batch?;
            let series: &UInt32Array = column(&batch, "series", &self.path)?;
            let times: &TimestampMicrosecondArray = column(&batch, "ts", &self.path)?;
            for (series, time) in series.values().iter().zip(times.values()) {
                let (series, time) = (SeriesId(*series), Timestamp::from_micros(*time));
                if !window.contains(time) {
                    let expected = format!("{} to {}", window.start, window.end);
                    return Err(corrupt(&self.path, "the time of a row", time.to_string(), &expected));
                }
                match runs.last_mut() {
                    Some(run) if run.series == series => {
                        if time <= run.last {
                            let found = format!("{time} after {} in series {}", run.last, series.0);
                            return Err(corrupt(&self.path, "its order", found, "ascending times in every series"));
                        }
                        run.rows += 1;
                        run.last = time;
                    }
                    _ => runs.push(Run { series, row, rows: 1, first: time, last: time }),
                }
                row += 1;
            }
        }
        if u64::from(row) != entry.rows {
            return Err(corrupt(&self.path, "its number of rows", row.to_string(), &entry.rows.to_string()));
        }
        Ok(runs)
    }

    /// The rows of `selection`, or all, with these columns.
    fn batches(
        &self,
        columns: &[&str],
        selection: Option<RowSelection>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + '_> {
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
            .with_projection(ProjectionMask::columns(self.metadata.parquet_schema(), columns.iter().copied()))
            .with_batch_size(BATCH_ROWS)
            // Selected rows come in long stretches; a mask would decode the pages between them.
            .with_row_selection_policy(RowSelectionPolicy::Selectors);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let reader = builder.build().map_err(|error| unreadable(&self.path, &error))?;
        Ok(reader.map(|batch| batch.map_err(|error| unreadable(&self.path, &error))))
    }
}

/// The columns that make a sample.
struct SampleColumns<'a> {
    times: &'a TimestampMicrosecondArray,
    ints: &'a Int64Array,
    scales: &'a Int8Array,
    floats: &'a Float64Array,
}

impl<'a> SampleColumns<'a> {
    fn of(path: &Path, batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            times: column(batch, "ts", path)?,
            ints: column(batch, "int", path)?,
            scales: column(batch, "scale", path)?,
            floats: column(batch, "float", path)?,
        })
    }

    fn time(&self, row: usize) -> Timestamp {
        Timestamp::from_micros(self.times.value(row))
    }

    fn value(&self, row: usize, path: &Path) -> Result<Value> {
        if self.floats.is_valid(row) {
            return Ok(Value::Float(self.floats.value(row)));
        }
        if self.ints.is_null(row) {
            return Err(corrupt(path, "the value of a row", "none".to_owned(), "`int` or `float`"));
        }
        let int = self.ints.value(row);
        if self.scales.is_null(row) {
            return Ok(Value::Int(int));
        }
        let scale = self.scales.value(row);
        if !(0..=SCALE_MAX).contains(&scale) {
            return Err(corrupt(path, "the scale of a row", scale.to_string(), &format!("0 to {SCALE_MAX}")));
        }
        Ok(Value::Float(int as f64 / 10_i64.pow(u32::from(scale.unsigned_abs())) as f64))
    }
}

fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a A> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| corrupt(path, "its columns", format!("no `{name}` of the right type"), "those of format 1"))
}

fn check_schema(path: &Path, metadata: &ArrowReaderMetadata) -> Result<()> {
    let (found, expected) = (metadata.schema(), super::schema());
    for field in expected.fields() {
        let good = found.field_with_name(field.name()).is_ok_and(|found| found.data_type() == field.data_type());
        if !good {
            let found = format!("{:?}", found.field_with_name(field.name()).map(|field| field.data_type()).ok());
            return Err(corrupt(path, "its columns", found, &format!("`{}` {}", field.name(), field.data_type())));
        }
    }
    Ok(())
}

/// Compares a file's length and CRC-32 with what the manifest says.
///
/// # Errors
/// Io; Corrupt.
pub fn check_bytes(file: &dyn ReadFile, path: &Path, bytes: u64, crc32: u32) -> Result<()> {
    if file.len() != bytes {
        return Err(corrupt(path, "its length", format!("{} bytes", file.len()), &format!("{bytes} bytes")));
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; CHECK_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = &mut buffer[..(bytes - at).min(CHECK_BYTES as u64) as usize];
        file.read_at(at, part).map_err(Error::io("read", path))?;
        hasher.update(part);
        at += part.len() as u64;
    }
    let found = hasher.finalize();
    if found == crc32 {
        Ok(())
    } else {
        Err(corrupt(path, "its checksum", format!("{found:08x}"), &format!("{crc32:08x}")))
    }
}

fn corrupt(path: &Path, what: &str, found: String, expected: &str) -> Error {
    Error::Corrupt { path: path.to_path_buf(), what: what.to_owned(), found, expected: expected.to_owned() }
}

/// Parquet's errors keep no kind of what the disk said; the message does.
fn unreadable(path: &Path, error: &dyn fmt::Display) -> Error {
    corrupt(path, "its Parquet", error.to_string(), "a segment of format 1")
}

/// A file as Parquet wants to read it.
#[derive(Clone, Debug)]
struct Chunks(Arc<dyn ReadFile>);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Chunks {
    type T = std::io::BufReader<FileAt>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(std::io::BufReader::new(FileAt { file: Arc::clone(&self.0), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = vec![0; length];
        self.0.read_at(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// A position in a file.
#[derive(Debug)]
struct FileAt {
    file: Arc<dyn ReadFile>,
    at: u64,
}

impl std::io::Read for FileAt {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = self.file.len().saturating_sub(self.at);
        let len = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.file.read_at(self.at, &mut buffer[..len])?;
        self.at += len as u64;
        Ok(len)
    }
}
