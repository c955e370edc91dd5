//! A simulated disk in memory that loses power, fills up and fails on demand, deterministically by its seed.
//!
//! Every file and every directory has two images: the live one, which processes see, and the durable one, which syncs
//! move forward. [`SimDisk::kill`] returns the disk as the next process finds it: the whole live image.
//! [`SimDisk::power_loss`] returns the disk as the next boot finds it: the durable image, and the part of the rest that
//! [`crash`] lets through. Both detach the old disk, so that a database which still has it open cannot change the new
//! one.

mod crash;
mod fault;
mod file;
mod names;
mod random;
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::{Disk, ReadFile, SyncFile, WriteFile};
use fault::Faults;
use file::File;
use names::{DirectoryNames, FileId};

pub use fault::{Failure, Fault, Operation};
pub use random::Random;

#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
}

#[derive(Clone, Debug)]
struct SimState {
    names: DirectoryNames,
    files: Vec<File>,
    faults: Faults,
    random: Random,
    /// Every operation but reads, in order: how a failing test is understood.
    journal: Vec<(Operation, PathBuf)>,
    dead: bool,
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self::from_state(SimState {
            names: DirectoryNames::default(),
            files: Vec::new(),
            faults: Faults::default(),
            random: Random::new(seed),
            journal: Vec::new(),
            dead: false,
        })
    }

    fn from_state(state: SimState) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk after the death of every process: nothing is lost, nothing more is durable, no fault waits.
    pub fn kill(&self) -> SimDisk {
        let mut state = self.lock();
        let mut next = state.clone();
        state.dead = true;
        next.dead = false;
        next.faults = Faults::default();
        next.journal.clear();
        Self::from_state(next)
    }

    /// The disk after a power loss; `random` decides what of the unsynced changes is there.
    pub fn power_loss(&self, random: &mut Random) -> SimDisk {
        let mut state = self.lock();
        state.dead = true;
        Self::from_state(state.after_power_loss(random))
    }

    /// Lets `fault` lie in wait, beside those that do already.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.add(fault);
    }

    /// Space is free again and nothing lies in wait.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How many operations failed by an injected fault.
    pub fn faults_struck(&self) -> u64 {
        self.lock().faults.struck()
    }

    /// Whether a fault lies in wait or goes on.
    pub fn has_faults(&self) -> bool {
        !self.lock().faults.is_empty()
    }

    /// Whether a file holds bytes that a failed sync lost: readable, and gone with the page cache.
    pub fn has_lost_pages(&self) -> bool {
        let state = self.lock();
        state.names.files().any(|(_, file)| state.files[file.0].has_lost_pages())
    }

    /// Whether [`Failure::Death`] struck, or another disk took this one's place.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Every operation but reads since this disk was made.
    pub fn journal(&self) -> Vec<(Operation, PathBuf)> {
        self.lock().journal.clone()
    }

    /// Every file there is, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock().names.files().map(|(name, _)| name.clone()).collect()
    }

    /// The contents of a file; `None` if it does not exist.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.lock();
        let file = state.names.file(path)?;
        Some(state.files[file.0].live().to_vec())
    }

    /// Changes a file as decay of the medium does, unnoticed by processes that have it open.
    pub fn decay(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        let file = state.names.file(path).expect("only a file that exists can decay");
        let mut bytes = state.files[file.0].live().to_vec();
        change(&mut bytes);
        state.files[file.0] = File::durable(bytes);
    }

    /// Another disk in the same state; this one goes on.
    pub fn fork(&self) -> SimDisk {
        Self::from_state(self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimState {
    /// Counts an operation and lets the faults have their say. `Err` says how it fails.
    fn begin(&mut self, operation: Operation, path: &Path) -> Result<(), Failure> {
        if self.dead {
            return Err(Failure::Death);
        }
        if !operation.is_read() {
            self.journal.push((operation, path.to_path_buf()));
        }
        match self.faults.strike(operation) {
            Some(failure) => {
                self.dead = failure == Failure::Death;
                Err(failure)
            }
            None => Ok(()),
        }
    }

    /// Does `change` unless a fault prevents it; death may come before it or after it.
    fn change(&mut self, operation: Operation, path: &Path, change: impl FnOnce(&mut SimState)) -> io::Result<()> {
        let was_dead = self.dead;
        match self.begin(operation, path) {
            Ok(()) => {
                change(self);
                Ok(())
            }
            Err(failure) => {
                if failure == Failure::Death && !was_dead && self.random.coin() {
                    change(self);
                }
                Err(failure.error())
            }
        }
    }

    fn append(&mut self, file: FileId, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let was_dead = self.dead;
        match self.begin(Operation::Append, path) {
            Ok(()) => {
                self.files[file.0].append(bytes);
                Ok(())
            }
            Err(failure) => {
                if !was_dead {
                    let part = self.random.between(0, bytes.len());
                    self.files[file.0].append(&bytes[..part]);
                }
                Err(failure.error())
            }
        }
    }

    fn sync(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let was_dead = self.dead;
        match self.begin(Operation::Sync, path) {
            Ok(()) => {
                self.files[file.0].sync();
                Ok(())
            }
            Err(failure) => {
                // A dying process takes no pages with it: they are as unsynced as before.
                if !was_dead && failure != Failure::Death {
                    self.files[file.0].fail_sync(&mut self.random);
                }
                Err(failure.error())
            }
        }
    }

    fn existing(&self, path: &Path) -> io::Result<FileId> {
        match self.names.file(path) {
            Some(file) => Ok(file),
            None if self.names.is_dir(path) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn require_dir(&self, dir: &Path) -> io::Result<()> {
        if self.names.is_dir(dir) { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    fn after_power_loss(&self, random: &mut Random) -> SimState {
        let for_all = crash::draw_for_all(random);
        let names = self.names.after_power_loss(for_all, random);
        let mut files = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let survival = for_all.unwrap_or_else(|| crash::draw(random));
            let stale = self.files[random.below(self.files.len())].live();
            files.push(File::durable(file.after_power_loss(survival, stale, random)));
        }
        let next = Random::new(random.next());
        SimState { names, files, faults: Faults::default(), random: next, journal: Vec::new(), dead: false }
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.lock();
        state.require_dir(&names::parent(path))?;
        if state.names.file(path).is_some() || state.names.is_dir(path) {
            return Err(Errno::EXIST.into());
        }
        let file = FileId(state.files.len());
        state.change(Operation::Create, path, |state| {
            state.files.push(File::default());
            state.names.link(path, file);
        })?;
        Ok(self.handle(file, path))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.lock();
        state.begin(Operation::Read, path).map_err(Failure::error)?;
        let file = state.existing(path)?;
        Ok(self.handle(file, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let mut state = self.lock();
        state.begin(Operation::Read, path).map_err(Failure::error)?;
        let file = state.existing(path)?;
        let len = state.files[file.0].live().len() as u64;
        Ok(Arc::new(SimReadFile { disk: self.clone(), file, path: path.to_path_buf(), len }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let file = state.existing(from)?;
        state.require_dir(&names::parent(to))?;
        if state.names.is_dir(to) {
            return Err(Errno::ISDIR.into());
        }
        state.change(Operation::Rename, to, |state| state.names.rename(from, to, file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.existing(path)?;
        state.change(Operation::Remove, path, |state| state.names.unlink(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.lock();
        state.begin(Operation::Read, dir).map_err(Failure::error)?;
        state.require_dir(dir)?;
        let here = state.names.files().filter(|(name, _)| name.parent() == Some(dir));
        // Newest first, because a real directory promises no order and sorted would hide that.
        let mut here: Vec<PathBuf> = here.map(|(name, _)| name.clone()).collect();
        here.reverse();
        Ok(here)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !state.names.is_dir(dir)).collect();
        for dir in missing.into_iter().rev() {
            if state.names.file(dir).is_some() {
                return Err(Errno::NOTDIR.into());
            }
            state.change(Operation::CreateDir, dir, |state| state.names.make_dir(dir))?;
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.require_dir(dir)?;
        state.change(Operation::SyncDir, dir, |state| state.names.sync_dir(dir))
    }
}

impl SimDisk {
    fn handle(&self, file: FileId, path: &Path) -> Box<SimFile> {
        Box::new(SimFile { disk: self.clone(), file, path: path.to_path_buf() })
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    file: FileId,
    /// The name it was opened by, for the journal.
    path: PathBuf,
}

impl WriteFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.lock().append(self.file, &self.path, bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let file = self.file.0;
        let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        let mut state = self.disk.lock();
        state.change(Operation::Truncate, &self.path, |state| state.files[file].truncate(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.lock().sync(self.file, &self.path)
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>> {
        Ok(self.disk.handle(self.file, &self.path))
    }
}

impl SyncFile for SimFile {
    fn sync(&self) -> io::Result<()> {
        WriteFile::sync(self)
    }
}

#[derive(Debug)]
struct SimReadFile {
    disk: SimDisk,
    file: FileId,
    path: PathBuf,
    len: u64,
}

impl ReadFile for SimReadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.begin(Operation::Read, &self.path).map_err(Failure::error)?;
        let bytes = state.files[self.file.0].live();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let stretch = start.checked_add(buffer.len()).and_then(|end| bytes.get(start..end));
        match stretch {
            Some(stretch) => {
                buffer.copy_from_slice(stretch);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
