//! A disk of a few files that never change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::SystemClock;
use crate::db::Db;
use crate::disk::{Disk, InMemory, ReadFile, WriteFile};
use crate::error::Result;
use crate::options::Options;

/// Where the files stand.
pub const DIR: &str = "/db";

#[derive(Clone, Debug)]
pub struct Files(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Files with these names below [`DIR`].
    pub fn new<const N: usize>(files: [(&str, &[u8]); N]) -> Self {
        Self(files.into_iter().map(|(name, bytes)| (Path::new(DIR).join(name), bytes.to_vec())).collect())
    }

    /// The database that they are.
    pub fn database(self) -> Result<Db> {
        let clock = Arc::new(SystemClock::default());
        Db::open_read_only(Path::new(DIR), Options { disk: Arc::new(self), clock, ..Options::default() })
    }
}

impl Disk for Files {
    fn create(&self, _path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn reopen(&self, _path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(InMemory(self.0.get(path).cloned().ok_or(io::ErrorKind::NotFound)?)))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
}
