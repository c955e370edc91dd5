//! What a closed database says of itself in its manifest: one small file, whatever the size of the database. For lists of
//! many databases, on file systems where each file that is opened costs a message.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::Result;
use crate::info::{DbInfo, wider};
use crate::layout::{Layout, WAL_LIST};
use crate::manifest::Manifest;
use crate::recover;
use crate::snapshot::{JobPart, Snapshot};
use crate::time::Timestamp;

/// The part of a [`DbInfo`] that needs no open.
#[derive(Clone, Debug, PartialEq)]
pub struct DbGlance {
    pub dir: PathBuf,
    pub node: String,
    /// Stored samples, as in [`DbInfo::samples`].
    pub samples: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Times of the earliest and the latest sample.
    pub time_bounds: Option<(Timestamp, Timestamp)>,
    /// The description of the job.
    pub job: Option<serde_json::Value>,
    /// The jobs that shared it as they began, then the part of none of them; nothing where it is of one job.
    pub parts: Vec<JobPart>,
}

impl DbGlance {
    /// `None` of a database that has something in its WAL, or may have: only an open tells what. Opens the manifest
    /// alone where that repeats the description of the job, and else the metadata file too; lists two directories.
    ///
    /// # Errors
    /// Io; Corrupt when the manifest or the metadata are not what was written. Other files are not looked at.
    pub fn read(dir: &Path, disk: &dyn Disk) -> Result<Option<Self>> {
        let files = Layout::new(dir).list(disk, "")?;
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).map(OsString::from).collect();
        Self::read_among(dir, &names, disk)
    }

    /// As [`DbGlance::read`], for whoever has listed `dir` already: with the names of the files in it.
    ///
    /// # Errors
    /// As [`DbGlance::read`].
    pub fn read_among(dir: &Path, files: &[OsString], disk: &dyn Disk) -> Result<Option<Self>> {
        let layout = Layout::new(dir);
        if files.iter().any(|name| name == WAL_LIST) || !layout.wal_files(disk)?.is_empty() {
            return Ok(None);
        }
        // After that: a writer that began meanwhile has left at least what it found.
        let Some(mut manifest) = Manifest::load(disk, &layout)? else { return Ok(None) };
        let copy = manifest.job.take().filter(|job| manifest.meta.as_ref().is_some_and(|entry| job.is_of(&entry.file)));
        let (job, parts) = match copy {
            Some(copy) => (Some(copy.into_description()), Vec::new()),
            None => {
                let meta = recover::read_meta(disk, &layout, &manifest)?;
                (meta.job().cloned(), JobPart::shared(&meta, &manifest.node))
            }
        };
        let bounds = manifest.segments.iter();
        let bounds = bounds.map(|entry| (Timestamp::from_micros(entry.first), Timestamp::from_micros(entry.last)));
        Ok(Some(Self {
            dir: dir.to_path_buf(),
            samples: manifest.segments.iter().map(|entry| entry.rows).sum(),
            bytes: manifest.files().map(|file| file.bytes).sum(),
            time_bounds: bounds.reduce(wider),
            job,
            parts,
            node: manifest.node,
        }))
    }
}

impl DbGlance {
    /// The same of a database that is open.
    pub fn of(info: DbInfo, snapshot: &Snapshot) -> Self {
        let parts = JobPart::shared(snapshot.meta(), &info.node);
        Self { parts, ..Self::from(info) }
    }
}

/// Without the jobs that shared it.
impl From<DbInfo> for DbGlance {
    fn from(info: DbInfo) -> Self {
        let DbInfo { dir, node, samples, bytes, time_bounds, job, .. } = info;
        Self { dir, node, samples, bytes, time_bounds, job, parts: Vec::new() }
    }
}
