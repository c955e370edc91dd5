//! A disk that is a map from paths to bytes, so that a database can be created a thousand times a second.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telem_engine::disk::{Disk, InMemory, ReadFile, SyncFile, WriteFile};
use telem_engine::lock::{Machine, Process};

#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>);

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, path: &Path) -> MemoryFile {
        MemoryFile { disk: self.clone(), path: path.to_path_buf() }
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if self.files().contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files().insert(path.to_path_buf(), Vec::new());
        Ok(Box::new(self.handle(path)))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if !self.files().contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(self.handle(path)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let bytes = self.files().get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(InMemory(bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let bytes = self.files().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files().insert(to.to_path_buf(), bytes);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.files().keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    path: PathBuf,
}

impl WriteFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.files().entry(self.path.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.disk.files().entry(self.path.clone()).or_default().truncate(len);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>> {
        Ok(Box::new(Synced))
    }
}

#[derive(Debug)]
struct Synced;

impl SyncFile for Synced {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Always the same process.
#[derive(Debug)]
pub struct NoMachine;

impl Machine for NoMachine {
    fn this_process(&self) -> io::Result<Process> {
        Ok(Process { host: "fuzz".to_owned(), pid: 1, boot: String::new(), started: 0 })
    }

    fn started(&self, _pid: u32) -> Option<u64> {
        Some(0)
    }
}
