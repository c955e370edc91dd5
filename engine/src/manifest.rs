//! The manifest: the one mutable root of a database. It names every file that belongs to it.
//!
//! A file that the manifest does not name is not part of the database. A change of many files takes effect at one
//! moment, when a new manifest replaces the old one. The first line has the format, and the CRC-32 and length of the
//! rest; the rest is JSON.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod job_copy;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::layout::{self, Layout};
use crate::meta::Meta;
use crate::time::{TimeRange, Timestamp};
pub use job_copy::{JOB_COPY_BYTES_MAX, JobCopy};

/// The version of the whole directory's layout that this code writes, and the newest it reads.
pub const FORMAT: u32 = 1;
const MAGIC: &str = "telem-database";
/// What stood there before format 1 was final; nothing reads those any more.
const MAGIC_BEFORE: &str = "telem-manifest";
/// A manifest of a million segments has some 300 MB; beyond this it is not one of ours.
pub const BYTES_MAX: u64 = 1 << 30;
/// No database lives long enough to count further, so code may add one without a check.
const COUNTER_MAX: u64 = 1 << 62;
/// As much of what was found as an error shows.
const SHOWN_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Id of this database: tells two directories of one node apart.
    pub database: String,
    pub node: String,
    /// Grows with every commit.
    pub generation: u64,
    /// What the next flush gets.
    pub next_sequence: u64,
    /// What the next series or meta file gets.
    pub next_file: u64,
    /// WAL files below this number are covered by the files named here.
    pub first_wal: u64,
    pub meta: Option<FileEntry>,
    /// What `meta` says of the job, where that is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobCopy>,
    pub series: Vec<SeriesEntry>,
    pub segments: Vec<SegmentEntry>,
}

/// A file and what its bytes must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Folder and name, relative to the database.
    pub file: String,
    pub bytes: u64,
    pub crc32: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesEntry {
    #[serde(flatten)]
    pub file: FileEntry,
    /// Its ids are `first_id .. first_id + count`.
    pub first_id: u32,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentEntry {
    #[serde(flatten)]
    pub file: FileEntry,
    pub rows: u64,
    /// Half-open, microseconds: every row lies in it.
    pub window_start: i64,
    pub window_end: i64,
    /// Times of the earliest and the latest row, microseconds.
    pub first: i64,
    pub last: i64,
    /// The flushes whose samples are in it, both included. Of two samples with the same series
    /// and time the one of the higher sequence was written later.
    pub sequence_min: u64,
    pub sequence_max: u64,
    /// Where its run index starts, and the CRC-32 from there to the end of the file: opening one reads no more.
    pub tail: u64,
    pub tail_crc32: u32,
}

impl SegmentEntry {
    pub fn overlaps(&self, range: TimeRange) -> bool {
        range.overlaps_closed(Timestamp::from_micros(self.first), Timestamp::from_micros(self.last))
    }
}

impl Manifest {
    pub fn new(database: String, node: String) -> Self {
        Self {
            format: FORMAT,
            database,
            node,
            generation: 0,
            next_sequence: 1,
            next_file: 1,
            first_wal: 1,
            meta: None,
            job: None,
            series: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// Names the metadata file, which holds `meta`.
    pub fn set_meta(&mut self, entry: FileEntry, meta: &Meta) {
        self.job = JobCopy::of(&entry.file, meta);
        self.meta = Some(entry);
    }

    /// How many series the series files hold.
    pub fn series_count(&self) -> u64 {
        self.series.iter().map(|entry| u64::from(entry.count)).sum()
    }

    /// Every file named here.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        let segments = self.segments.iter().map(|entry| &entry.file);
        self.series.iter().map(|entry| &entry.file).chain(&self.meta).chain(segments)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Internal { what: format!("the manifest cannot be written as JSON: {error}") })?;
        body.push('\n');
        let crc = crc32fast::hash(body.as_bytes());
        Ok(format!("{MAGIC} {FORMAT} {crc:08x} {}\n{body}", body.len()).into_bytes())
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str, found: String, expected: String| Error::Corrupt {
            path: path.to_path_buf(),
            what: what.to_owned(),
            found,
            expected,
        };
        let head_expected = || format!("'{MAGIC} {FORMAT} CRC LENGTH'");
        let end = bytes.iter().take(128).position(|byte| *byte == b'\n');
        let head = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok()).unwrap_or_default();
        let words: Vec<&str> = head.split(' ').collect();
        let ([magic, format, crc, len], Some(end)) = (words.as_slice(), end) else {
            return Err(corrupt("its first line", format!("'{}'", head.escape_debug()), head_expected()));
        };
        let (format, crc, len) = (format.parse::<u32>(), u32::from_str_radix(crc, 16), len.parse::<usize>());
        let (Ok(format), Ok(crc), Ok(len)) = (format, crc, len) else {
            return Err(corrupt("its first line", format!("'{}'", head.escape_debug()), head_expected()));
        };
        if *magic == MAGIC_BEFORE {
            return Err(Error::Unfinished { path: path.to_path_buf() });
        }
        if *magic != MAGIC {
            return Err(corrupt("its first word", format!("'{}'", magic.escape_debug()), format!("'{MAGIC}'")));
        }
        if format != FORMAT {
            return Err(Error::Format { path: path.to_path_buf(), found: format, max: FORMAT });
        }
        // Digits in another case are numbers too, and not what was written.
        let written = format!("{MAGIC} {FORMAT} {crc:08x} {len}");
        if head != written {
            return Err(corrupt("its first line", format!("'{}'", head.escape_debug()), format!("'{written}'")));
        }
        let body = &bytes[end + 1..];
        if body.len() != len {
            return Err(corrupt("its length", format!("{} bytes", body.len()), format!("{len} bytes")));
        }
        let found = crc32fast::hash(body);
        if found != crc {
            return Err(corrupt("its checksum", format!("{found:08x}"), format!("{crc:08x}")));
        }
        let manifest: Self = serde_json::from_slice(body)
            .map_err(|error| corrupt("its JSON", shortened(error.to_string()), "a manifest".to_owned()))?;
        match manifest.fault() {
            Some((what, found, expected)) => Err(corrupt(what, shortened(found), expected.to_owned())),
            None => Ok(manifest),
        }
    }

    /// What no telem writes: what it is, what was found and what was expected. A manifest with a good checksum that
    /// somebody else made must not lead to files outside of the database, which a merge would remove.
    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let files = self.series.iter().map(|entry| (layout::SERIES, &entry.file));
        let files = files.chain(self.meta.iter().map(|file| (layout::META, file)));
        let mut files = files.chain(self.segments.iter().map(|entry| (layout::SEGMENTS, &entry.file)));
        if let Some((_, bad)) = files.find(|(folder, entry)| !layout::is_named_in(folder, &entry.file)) {
            return Some(("a file's name", format!("'{}'", bad.file.escape_debug()), "a name in its folder"));
        }
        let counters = [self.generation, self.next_sequence, self.next_file, self.first_wal];
        if let Some(beyond) = counters.into_iter().find(|counter| *counter > COUNTER_MAX) {
            return Some(("a counter", beyond.to_string(), "at most 2^62"));
        }
        None
    }

    /// The manifest of a directory, if it has one.
    ///
    /// # Errors
    /// Io; Corrupt when it is not what was written; Unavailable when a newer telem wrote it.
    pub fn load(disk: &dyn Disk, layout: &Layout) -> Result<Option<Self>> {
        Self::read(disk, &layout.manifest())
    }

    /// The manifest in one file, if it exists.
    ///
    /// # Errors
    /// As [`Manifest::load`].
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>> {
        match disk::read_file(disk, path, BYTES_MAX) {
            Ok(bytes) => Self::decode(path, &bytes).map(Some),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// First half of a commit: makes the new manifest durable beside the old one. Returns its bytes.
    ///
    /// # Errors
    /// Io; the old manifest is then untouched and nothing became true.
    pub fn prepare(&self, disk: &dyn Disk, layout: &Layout) -> Result<u64> {
        let path = layout.manifest_new();
        disk::remove_if_there(disk, &path)?;
        let bytes = self.encode()?;
        disk::write_file(disk, &path, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Second half: it takes the old one's name.
    ///
    /// # Errors
    /// Io; either manifest may then be the one that a reader finds, so files of both must stay.
    pub fn install(disk: &dyn Disk, layout: &Layout) -> Result<()> {
        let (from, to) = (layout.manifest_new(), layout.manifest());
        disk.rename(&from, &to).map_err(Error::io("rename", &from))?;
        disk.sync_dir(layout.dir()).map_err(Error::io("sync", layout.dir()))
    }
}

/// The end stays: it may say where.
fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= SHOWN_CHARS_MAX {
        return text;
    }
    let half = SHOWN_CHARS_MAX / 2;
    let (start, end): (String, String) = (text.chars().take(half).collect(), text.chars().skip(count - half).collect());
    format!("{start}...{end}")
}

#[cfg(test)]
mod tests;
