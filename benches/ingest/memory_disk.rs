//! A disk in memory, so that what encoding takes can be told from what writing takes. WAL files keep nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telem_engine::disk::{Disk, InMemory, ReadFile, SyncFile, WriteFile};

type Contents = Arc<Mutex<Vec<u8>>>;

#[derive(Debug, Default)]
pub struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Contents>>,
}

impl MemoryDisk {
    /// What the files below `folder` of a database hold.
    pub fn contents(&self, folder: &Path) -> Vec<Vec<u8>> {
        let files = lock(&self.files);
        files.iter().filter(|(path, _)| path.starts_with(folder)).map(|(_, contents)| lock(contents).clone()).collect()
    }

    fn named(&self, path: &Path) -> io::Result<Contents> {
        lock(&self.files).get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut files = lock(&self.files);
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let contents = Contents::default();
        files.insert(path.to_owned(), Arc::clone(&contents));
        let kept = path.extension().is_none_or(|extension| extension != "wal");
        Ok(Box::new(MemoryFile { contents, kept }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(MemoryFile { contents: self.named(path)?, kept: true }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(InMemory(lock(&*self.named(path)?).clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = lock(&self.files);
        let contents = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.files).remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(lock(&self.files).keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
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
    contents: Contents,
    kept: bool,
}

impl WriteFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.kept {
            lock(&self.contents).extend_from_slice(bytes);
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        lock(&self.contents).truncate(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>> {
        Ok(Box::new(NothingToSync))
    }
}

#[derive(Debug)]
struct NothingToSync;

impl SyncFile for NothingToSync {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
