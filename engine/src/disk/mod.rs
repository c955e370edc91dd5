//! The engine's only access to a file system. Tests replace it by a simulated disk.
//!
//! Paths are full paths, not relative to the database. This module neither maps memory nor takes file locks, because it
//! must work on Lustre, NFS and GPFS. A write is durable after `sync` of its file; a created, renamed or removed name
//! is durable after `sync_dir` of its directory.

#[cfg(test)]
pub(crate) mod sim;

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

pub trait Disk: Debug + Send + Sync {
    /// A new, empty file of mode 0600. Fails with `AlreadyExists` when the name is taken.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// An existing file, to append to what it holds or to cut it.
    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// A file to read at any offset; its length is taken at this moment.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;
    /// Replaces `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// File names in a directory, unsorted; directories are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Creates a directory of mode 0700 and its parents; an existing one is fine.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

pub trait WriteFile: Debug + Send + Sync {
    /// Appends all of `bytes` or fails; after a failure any part of them may be in the file.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to `len` bytes: takes back what a failed append left.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes everything appended so far durable.
    fn sync(&self) -> io::Result<()>;
    /// A second handle on the same file whose only use is `sync`, so that others may append meanwhile.
    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>>;
}

pub trait SyncFile: Debug + Send + Sync {
    fn sync(&self) -> io::Result<()>;
    /// Whether `path` still names this file. Of a disk that cannot tell, yes.
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

pub trait ReadFile: Debug + Send + Sync {
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fills `buffer` from `offset`. Fails with `UnexpectedEof` when the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Debug)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = fs::OpenOptions::new().append(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        // A pipe in the place of a file would be waited for until somebody writes to it. To a file it makes no difference.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() && !found.is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Arc::new(OsReadFile { file, len: found.len() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::File::open(dir)?.sync_all() {
            // Some network and user-space file systems make names durable by themselves and have no fsync for them.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    }
}

#[derive(Debug)]
struct OsFile(fs::File);

impl WriteFile for OsFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut self.0, bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>> {
        Ok(Box::new(OsFile(self.0.try_clone()?)))
    }
}

impl SyncFile for OsFile {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        // Not the number of links: NFS keeps a removed file that is open under another name.
        let own = self.0.metadata()?;
        match fs::metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug)]
struct OsReadFile {
    file: fs::File,
    len: u64,
}

impl ReadFile for OsReadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// A file that was read whole, or that never was on a disk.
#[derive(Debug)]
pub struct InMemory<B>(pub B);

impl<B: AsRef<[u8]> + Debug + Send + Sync> ReadFile for InMemory<B> {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.0.as_ref().get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Writes a whole new file and makes its bytes durable; its name is durable after `sync_dir`.
///
/// # Errors
/// Io; a part of the file may then be there.
pub(crate) fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = disk.create(path).map_err(Error::io("create", path))?;
    file.append(bytes).map_err(Error::io("write", path))?;
    file.sync().map_err(Error::io("sync", path))
}

/// Reads a whole file.
///
/// # Errors
/// Io; Corrupt when it has more than `bytes_max`.
pub(crate) fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = disk.open(path).map_err(Error::io("open", path))?;
    let len = usize::try_from(file.len().min(bytes_max.saturating_add(1))).unwrap_or(usize::MAX);
    if file.len() > bytes_max {
        let (found, expected) = (format!("{} bytes", file.len()), format!("at most {bytes_max}"));
        return Err(Error::Corrupt { path: path.to_path_buf(), what: "its length".to_owned(), found, expected });
    }
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// # Errors
/// Io, unless the file was not there to begin with.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
