//! The directory of one node at the head: operations on its files, one request after the other.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use telem_engine::disk::{Disk, OsDisk};
use telem_engine::mirror;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Most bytes of a file that are given back: a lock, a manifest.
pub const READ_BYTES_MAX: u64 = 16 << 20;
/// Most files of one folder that are listed.
const LISTED_MAX: usize = 100_000;

/// A name is refused, or the disk fails.
pub type StoreResult<T> = Result<T, StoreError>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("'{name}' is not a file of a database")]
    BadName { name: String },
    #[error("{} has {found} bytes, not the {expected} before this part; send the file again", path.display())]
    Hole { path: PathBuf, found: u64, expected: u64 },
    #[error("the part has the checksum {found:08x}, not {expected:08x}: it was damaged in transit; send it again")]
    Damaged { found: u32, expected: u32 },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct UploadStore {
    dir: PathBuf,
    /// Of a request that was given up something may still run: the next waits its turn.
    turn: Arc<Mutex<()>>,
}

impl UploadStore {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, turn: Arc::default() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `None` while another request of the node is worked on.
    pub fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    fn path(&self, name: &str) -> StoreResult<PathBuf> {
        if mirror::may_hold(name) {
            return Ok(self.dir.join(name));
        }
        Err(StoreError::BadName { name: name.chars().take(200).collect() })
    }

    /// The directory itself, or one of the folders in it.
    fn folder(&self, name: &str) -> StoreResult<PathBuf> {
        if name.is_empty() || mirror::FOLDERS.contains(&name) {
            return Ok(self.dir.join(name));
        }
        Err(StoreError::BadName { name: name.chars().take(200).collect() })
    }

    /// A new, empty file.
    pub fn create(&self, name: &str) -> StoreResult<()> {
        let path = self.path(name)?;
        OsDisk.create(&path).map(drop).map_err(failed("create", &path))
    }

    /// Puts `part` behind the first `at` bytes of a file; what stood there before goes, so that a part may come twice.
    pub fn write(&self, name: &str, at: u64, crc32: u32, part: &[u8]) -> StoreResult<()> {
        let path = self.path(name)?;
        let found = mirror::checksum(part);
        if found != crc32 {
            return Err(StoreError::Damaged { found, expected: crc32 });
        }
        let len = OsDisk.open(&path).map_err(failed("open", &path))?.len();
        if len < at {
            return Err(StoreError::Hole { path, found: len, expected: at });
        }
        let mut file = OsDisk.reopen(&path).map_err(failed("open", &path))?;
        if len > at {
            file.truncate(at).map_err(failed("truncate", &path))?;
        }
        file.append(part).map_err(failed("write", &path))
    }

    pub fn truncate(&self, name: &str, bytes: u64) -> StoreResult<()> {
        let path = self.path(name)?;
        let mut file = OsDisk.reopen(&path).map_err(failed("open", &path))?;
        file.truncate(bytes).map_err(failed("truncate", &path))
    }

    pub fn sync(&self, name: &str) -> StoreResult<()> {
        let path = self.path(name)?;
        let file = OsDisk.reopen(&path).map_err(failed("open", &path))?;
        file.sync().map_err(failed("sync", &path))
    }

    pub fn len(&self, name: &str) -> StoreResult<u64> {
        let path = self.path(name)?;
        Ok(OsDisk.open(&path).map_err(failed("open", &path))?.len())
    }

    pub fn read(&self, name: &str, from: u64, bytes: u64) -> StoreResult<Vec<u8>> {
        let path = self.path(name)?;
        let file = OsDisk.open(&path).map_err(failed("open", &path))?;
        let bytes = bytes.min(READ_BYTES_MAX).min(file.len().saturating_sub(from));
        let mut found = vec![0; usize::try_from(bytes).unwrap_or(0)];
        file.read_at(from, &mut found).map_err(failed("read", &path))?;
        Ok(found)
    }

    pub fn rename(&self, name: &str, to: &str) -> StoreResult<()> {
        let (path, to) = (self.path(name)?, self.path(to)?);
        OsDisk.rename(&path, &to).map_err(failed("rename", &path))
    }

    pub fn remove(&self, name: &str) -> StoreResult<()> {
        let path = self.path(name)?;
        OsDisk.remove(&path).map_err(failed("remove", &path))
    }

    /// Names, without that of the folder.
    pub fn list(&self, folder: &str) -> StoreResult<Vec<String>> {
        let path = self.folder(folder)?;
        let files = OsDisk.list(&path).map_err(failed("list", &path))?;
        let names = files.iter().filter_map(|file| file.file_name()?.to_str().map(str::to_owned));
        Ok(names.take(LISTED_MAX).collect())
    }

    pub fn make_folder(&self, folder: &str) -> StoreResult<()> {
        let path = self.folder(folder)?;
        OsDisk.create_dir(&path).map_err(failed("create", &path))
    }

    pub fn sync_folder(&self, folder: &str) -> StoreResult<()> {
        let path = self.folder(folder)?;
        OsDisk.sync_dir(&path).map_err(failed("sync", &path))
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + use<'a> {
    move |source| StoreError::Io { action, path: path.to_path_buf(), source }
}
