//! A database that nobody writes, held as it is: for removing and for moving it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{self, Layout};
use crate::lock::WriterLock;
use crate::options::Options;

/// What stands in the directory of a database.
const FILES: [&str; 8] = [
    layout::MANIFEST_NEW,
    layout::WAL_LIST,
    layout::CONNECTION,
    layout::SAVE_NOTE,
    layout::COUNTERS_TAIL_NEW,
    layout::COUNTERS_TAIL,
    layout::MANIFEST,
    layout::WRITER,
];
/// Folders of a database: what is in them is its own.
pub const FOLDERS: [&str; 5] = [layout::SEGMENTS, layout::SERIES, layout::META, layout::WAL, layout::DAMAGED];

/// The right to write a database, which keeps others from it until this is dropped.
#[derive(Debug)]
pub struct DbClaim {
    layout: Layout,
    lock: WriterLock,
}

impl DbClaim {
    /// # Errors
    /// Locked, naming the owner, when another process writes or may write; Io.
    pub fn new(dir: &Path, options: &Options) -> Result<Self> {
        let layout = Layout::new(dir);
        let lock = WriterLock::acquire(&options.disk, &*options.machine, &layout, options.lock_claim())?;
        Ok(Self { layout, lock })
    }

    pub fn dir(&self) -> &Path {
        self.layout.dir()
    }

    /// The database was moved, together with its lock.
    pub fn follow(&mut self, dir: &Path) {
        self.layout = Layout::new(dir);
        self.lock.follow(&self.layout);
    }

    /// Files and folders of the database, those that are there.
    pub fn entries(&self) -> Vec<PathBuf> {
        let names = FOLDERS.iter().chain(&FILES).map(|name| self.dir().join(name));
        names.filter(|path| path.symlink_metadata().is_ok()).collect()
    }

    /// Removes the database for good, and its directory where nothing else is in it. The manifest goes first: what is
    /// left, should this process be killed, is nobody's database.
    ///
    /// # Errors
    /// Io; some files may be gone then.
    pub fn remove(self) -> Result<()> {
        let manifest = self.layout.manifest();
        self.lock.check()?;
        gone(fs::remove_file(&manifest)).map_err(Error::io("remove", &manifest))?;
        for path in self.entries() {
            let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone(removed).map_err(Error::io("remove", &path))?;
        }
        let dir = self.dir().to_path_buf();
        drop(self);
        match fs::remove_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => gone(Err(error)),
            _ => Ok(()),
        }
        .map_err(Error::io("remove", &dir))
    }
}

impl Drop for DbClaim {
    fn drop(&mut self) {
        // The lock of a database that is gone, or was moved, is gone as well.
        let _ = self.lock.release();
    }
}

/// Whether it is gone now, by whomever.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
