//! What is known of runs that are over, kept between two calls: a file of the user, which may be removed at any time.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::row::{LastSamples, RunRow};

/// Of what is written below; another is not read.
const VERSION: u32 = 3;
/// Databases that are kept: of more, those that this call did not meet are left out.
const KEPT_MAX: usize = 50_000;
/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Default)]
pub struct RunCache {
    path: Option<PathBuf>,
    known: HashMap<PathBuf, CachedRun>,
    met: Mutex<HashMap<PathBuf, CachedRun>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CachedRun {
    stamp: DatabaseStamp,
    row: RunRow,
    /// [`LastSamples`] with the bits of the values: JSON has no NaN.
    lasts: BTreeMap<String, Option<(i64, u64)>>,
}

impl CachedRun {
    fn new(stamp: DatabaseStamp, row: &RunRow) -> Self {
        let bits = |last: &Option<(i64, f64)>| last.map(|(time, value)| (time, value.to_bits()));
        let lasts = row.lasts.iter().map(|(metric, last)| (metric.clone(), bits(last))).collect();
        Self { stamp, row: row.clone(), lasts }
    }

    fn row(&self) -> RunRow {
        let value = |last: &Option<(i64, u64)>| last.map(|(time, bits)| (time, f64::from_bits(bits)));
        let lasts: LastSamples = self.lasts.iter().map(|(metric, last)| (metric.clone(), value(last))).collect();
        RunRow { lasts, ..self.row.clone() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct CacheFile {
    version: u32,
    runs: HashMap<PathBuf, CachedRun>,
}

/// Changes whenever somebody writes into a database without files in its WAL: inode, length and time of its manifest, and
/// the times of the folders into which files come without a new manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseStamp([i64; 8]);

impl DatabaseStamp {
    /// # Errors
    /// Io, where there is no manifest.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let manifest = fs::symlink_metadata(dir.join("MANIFEST"))?;
        let time = |folder: &str| match fs::symlink_metadata(dir.join(folder)) {
            Ok(found) => Ok((found.mtime(), found.mtime_nsec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
            Err(error) => Err(error),
        };
        let (wal, meta) = (time("wal")?, time("meta")?);
        let (inode, length) = (manifest.ino().cast_signed(), manifest.len().cast_signed());
        Ok(Self([inode, length, manifest.mtime(), manifest.mtime_nsec(), wal.0, wal.1, meta.0, meta.1]))
    }
}

impl RunCache {
    /// The one of this user: `telem/runs.json` below `$XDG_CACHE_HOME` or `~/.cache`. What cannot be read is empty.
    pub fn of_user() -> Self {
        directory().map_or_else(Self::none, |dir| Self::at(dir.join("runs.json")))
    }

    /// The one in this file, which may not be there yet.
    pub fn at(path: PathBuf) -> Self {
        let known = read(&path).unwrap_or_default();
        Self { path: Some(path), known, met: Mutex::default() }
    }

    /// One that knows nothing and keeps nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// What the database in `dir` said, where it is unchanged and knows a setting or a tag for each of `columns`, or has looked for a metric.
    pub fn get(&self, dir: &Path, columns: &[String]) -> Option<RunRow> {
        let cached = self.known.get(dir)?;
        if !columns.iter().all(|name| cached.row.has_label(name) || cached.lasts.contains_key(name))
            || DatabaseStamp::of(dir).ok()? != cached.stamp
        {
            return None;
        }
        self.meet(dir, cached.clone());
        Some(cached.row())
    }

    /// To be taken before the database in `dir` is read; `None` where nothing is kept.
    pub fn stamp(&self, dir: &Path) -> Option<DatabaseStamp> {
        self.path.as_ref().and_then(|_| DatabaseStamp::of(dir).ok())
    }

    /// Notes what a run says that is over, and [has no WAL](has_wal). `stamp` was taken before it was read.
    pub fn put(&self, dir: &Path, stamp: DatabaseStamp, row: &RunRow) {
        if self.path.is_none() || !row.is_over() || dir.to_str().is_none() {
            return;
        }
        self.meet(dir, CachedRun::new(stamp, row));
    }

    fn meet(&self, dir: &Path, run: CachedRun) {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.to_path_buf(), run);
    }

    /// Writes what this call learned. A disk that is full, or a home that cannot be written to, is no error of a list.
    pub fn save(self) {
        let Self { path: Some(path), mut known, met } = self else { return };
        let met = met.into_inner().unwrap_or_else(PoisonError::into_inner);
        let is_new = |(dir, run): (&PathBuf, &CachedRun)| {
            known.get(dir).is_none_or(|known| known.stamp != run.stamp || known.lasts.len() != run.lasts.len())
        };
        if !met.iter().any(is_new) {
            return;
        }
        if known.len() + met.len() > KEPT_MAX {
            known.clear();
        }
        known.extend(met.into_iter().take(KEPT_MAX));
        if let Err(error) = write(&path, known) {
            tracing::debug!(path = %path.display(), %error, "what is known of runs is not kept");
        }
    }
}

/// Whether samples may come into a database without a change of its stamp.
pub fn has_wal(dir: &Path) -> bool {
    let is_wal = |entry: fs::DirEntry| entry.path().extension().is_some_and(|ending| ending == "wal");
    fs::read_dir(dir.join("wal")).into_iter().flatten().flatten().any(is_wal)
}

fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("telem"))
}

fn read(path: &Path) -> Option<HashMap<PathBuf, CachedRun>> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return None;
    }
    let file: CacheFile = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (file.version == VERSION).then_some(file.runs)
}

fn write(path: &Path, runs: HashMap<PathBuf, CachedRun>) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let bytes = serde_json::to_vec(&CacheFile { version: VERSION, runs })?;
    // Of its own name, so that two calls at once do not write into one file.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        fs::rename(&new, path)
    };
    written().inspect_err(|_| drop(fs::remove_file(&new)))
}
