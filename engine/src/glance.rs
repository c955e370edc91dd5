//! What a closed database says of itself in its manifest and its metadata: two small files, whatever its size. For lists
//! of many databases, on file systems where each file that is opened costs a message.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::info::{DbInfo, wider};
use crate::layout::Layout;
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
    /// `None` of a database that has something in its WAL, or may have: only an open tells what.
    ///
    /// # Errors
    /// Io; Corrupt when the manifest or the metadata are not what was written. Other files are not looked at.
    pub fn read(dir: &Path, disk: &dyn Disk) -> Result<Option<Self>> {
        let layout = Layout::new(dir);
        let Some(manifest) = Manifest::load(disk, &layout)? else { return Ok(None) };
        let has_list = match disk.open(&layout.wal_list()) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(Error::io("open", &layout.wal_list())(error)),
        };
        if has_list || !layout.wal_files(disk)?.is_empty() {
            return Ok(None);
        }
        let meta = recover::read_meta(disk, &layout, &manifest)?;
        let bounds = manifest.segments.iter();
        let bounds = bounds.map(|entry| (Timestamp::from_micros(entry.first), Timestamp::from_micros(entry.last)));
        Ok(Some(Self {
            dir: dir.to_path_buf(),
            samples: manifest.segments.iter().map(|entry| entry.rows).sum(),
            bytes: manifest.files().map(|file| file.bytes).sum(),
            time_bounds: bounds.reduce(wider),
            job: meta.job().cloned(),
            parts: JobPart::shared(&meta, &manifest.node),
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
