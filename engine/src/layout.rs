//! The place of each file of a database, and how its name is made and parsed.
//!
//! No other module of the engine joins paths. Names are made of numbers and times only: no metric and no tag ever
//! becomes part of a path.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::temporal_conversions::timestamp_s_to_datetime;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::time::{TimeRange, Timestamp};

pub const MANIFEST: &str = "MANIFEST";
pub const MANIFEST_NEW: &str = "MANIFEST.new";
pub const WRITER: &str = "WRITER";
/// Names the WAL files that were begun.
pub const WAL_LIST: &str = "WAL_FILES";
/// Not the engine's file: a server writes here how it is reached.
pub const CONNECTION: &str = "connection.json";
/// Not the engine's either: where a job that runs is being saved.
pub const SAVE_NOTE: &str = "saving.json";
/// Not the engine's either: what counters reached since their last samples.
pub const COUNTERS_TAIL: &str = "counters.tail";
/// What is to take its place.
pub const COUNTERS_TAIL_NEW: &str = "counters.tail.new";
pub const WAL: &str = "wal";
pub const SEGMENTS: &str = "segments";
pub const SERIES: &str = "series";
pub const META: &str = "meta";
/// Where a repair keeps files that are damaged, or of no use any more, with their folder and name.
pub const DAMAGED: &str = "damaged";
/// In [`DAMAGED`]: what a repair has to say that did not come to its end.
pub const UNFINISHED: &str = "UNFINISHED.json";

/// Ends the name of a file that is not whole yet.
pub const NEW_SUFFIX: &str = ".new";
const MICROS_PER_SECOND: i64 = 1_000_000;
/// Seconds since 1970 of the years 0 to 9999.
const FOUR_DIGIT_YEARS: Range<i64> = -62_167_219_200..253_402_300_800;

/// The paths of one database.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn manifest(&self) -> PathBuf {
        self.dir.join(MANIFEST)
    }

    pub fn manifest_new(&self) -> PathBuf {
        self.dir.join(MANIFEST_NEW)
    }

    pub fn writer(&self) -> PathBuf {
        self.dir.join(WRITER)
    }

    pub fn wal_list(&self) -> PathBuf {
        self.dir.join(WAL_LIST)
    }

    pub fn sub(&self, folder: &str) -> PathBuf {
        self.dir.join(folder)
    }

    pub fn wal(&self, number: u64) -> PathBuf {
        self.dir.join(WAL).join(format!("{number:08}.wal"))
    }

    /// The file that a manifest names: a folder and a name.
    pub fn named(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// The files in `folder`, sorted by name; none if it does not exist.
    ///
    /// # Errors
    /// Io when the folder cannot be read.
    pub fn list(&self, disk: &dyn Disk, folder: &str) -> Result<Vec<PathBuf>> {
        let dir = if folder.is_empty() { self.dir.clone() } else { self.sub(folder) };
        match disk.list(&dir) {
            Ok(mut files) => {
                files.sort();
                Ok(files)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io("list", &dir)(error)),
        }
    }

    /// The WAL files in the directory with their numbers, ascending.
    ///
    /// # Errors
    /// Io when the folder cannot be read.
    pub fn wal_files(&self, disk: &dyn Disk) -> Result<Vec<(u64, PathBuf)>> {
        let files = self.list(disk, WAL)?;
        let mut numbered: Vec<(u64, PathBuf)> =
            files.into_iter().filter_map(|path| wal_number(&path).map(|number| (number, path))).collect();
        numbered.sort();
        Ok(numbered)
    }
}

/// Whether the directory holds something of a database, be it damaged: a manifest, or files where only ours stand.
///
/// # Errors
/// Io when a folder cannot be read.
pub fn holds_database(disk: &dyn Disk, layout: &Layout) -> Result<bool> {
    for path in [layout.manifest(), layout.manifest_new()] {
        match disk.open(&path) {
            Ok(_) => return Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(Error::io("open", &path)(error)),
        }
    }
    for (folder, suffix) in [(SEGMENTS, ".parquet"), (SERIES, ".parquet"), (META, ".json"), (WAL, ".wal")] {
        let is_ours = |path: &PathBuf| path.as_os_str().as_encoded_bytes().ends_with(suffix.as_bytes());
        if layout.list(disk, folder)?.iter().any(is_ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether `file` is what a manifest may call a file in `folder`: that folder and a plain name.
pub fn is_named_in(folder: &str, file: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain))
}

/// The name of a file while a mirror copies it: no reader takes it for one of the database.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(NEW_SUFFIX);
    PathBuf::from(name)
}

pub fn is_unfinished(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(NEW_SUFFIX.as_bytes())
}

/// The number of a WAL file; `None` for any other file.
pub fn wal_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".wal")?.parse().ok()
}

/// The number at the end of the name of a segment, series or metadata file.
pub fn number_in(name: &str) -> Option<u64> {
    let stem = name.rsplit('/').next()?.split('.').next()?;
    stem.rsplit('-').next()?.parse().ok()
}

/// The manifest's name of a segment over `window`: sorts by time, then by sequence.
pub fn segment_name(window: TimeRange, sequence: u64) -> String {
    format!("{}{sequence:06}.parquet", segment_stem(window))
}

/// What the names of all segments over `window` begin with.
pub fn segment_stem(window: TimeRange) -> String {
    let last = Timestamp::from_micros(window.end.micros().saturating_sub(1));
    format!("{SEGMENTS}/{}-{}-", stamp(window.start), stamp(last))
}

/// Whether this is the name of a segment over `window`.
pub fn is_segment_over(window: TimeRange, file: &str) -> bool {
    let number = file.strip_prefix(&segment_stem(window)).and_then(|rest| rest.strip_suffix(".parquet"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

pub fn series_name(number: u64) -> String {
    format!("{SERIES}/{number:06}.parquet")
}

pub fn meta_name(number: u64) -> String {
    format!("{META}/{number:06}.json")
}

/// `20260102T030000Z` for the years 0 to 9999. Earlier times become `-` and later ones `z`, with sixteen hex digits that sort as the times do.
pub fn stamp(time: Timestamp) -> String {
    let seconds = time.micros().div_euclid(MICROS_PER_SECOND);
    match timestamp_s_to_datetime(seconds).filter(|_| FOUR_DIGIT_YEARS.contains(&seconds)) {
        Some(time) => time.format("%Y%m%dT%H%M%SZ").to_string(),
        None => {
            // `-` sorts before every digit, `z` after.
            let side = if seconds < FOUR_DIGIT_YEARS.start { '-' } else { 'z' };
            let order = time.micros().cast_unsigned() ^ (1 << 63);
            format!("{side}{order:016x}")
        }
    }
}

#[cfg(test)]
mod tests;
