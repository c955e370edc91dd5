//! Appends to the WAL: one `write` per append; a failed append leaves no trace.
//!
//! Files are created by the first append that needs one. After a failed fsync nothing in the file is certain to reach
//! the disk, however often fsync is repeated. So the WAL is marked as failed until a flush has stored everything in
//! segments.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use super::{HEADER_BYTES, Header, WalList, WalStart, frame};
use crate::clock::Clock;
use crate::disk::{Disk, SyncFile, WriteFile};
use crate::error::{Error, Result};
use crate::layout::{Layout, WAL};

/// A place in the WAL: everything before it was appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub number: u64,
    pub end: u64,
}

/// A WAL file, up to the end of its last whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub number: u64,
    pub end: u64,
    /// What a power loss leaves of it at least: it too ends with a whole frame, or with the header.
    pub durable: u64,
    /// Whether nothing more is appended to it.
    pub closed: bool,
    /// How it begins.
    pub start: WalStart,
}

/// What an fsync needs, without the lock under which appends happen.
#[derive(Debug)]
pub struct SyncTarget {
    pub position: Position,
    pub handle: Arc<dyn SyncFile>,
    pub path: PathBuf,
}

#[derive(Debug)]
pub struct Wal {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    /// The number that the next file gets.
    next: u64,
    open: Option<OpenWal>,
    /// The file whose bytes may be lost, and why.
    failed: Option<(u64, String)>,
    /// Files that no flush has covered, ascending.
    closed: Vec<Extent>,
    /// Bytes that were appended since the open, headers included.
    written: u64,
    /// Whether the list of WAL files does not name one that was begun, because it could not be written.
    unlisted: bool,
}

#[derive(Debug)]
struct OpenWal {
    number: u64,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    handle: Arc<dyn SyncFile>,
    /// Everything before it is whole frames.
    end: u64,
    /// Everything before it survives a power loss.
    durable: u64,
    start: WalStart,
}

impl OpenWal {
    fn extent(&self, closed: bool) -> Extent {
        Extent { number: self.number, end: self.end, durable: self.durable, closed, start: self.start }
    }
}

impl Wal {
    /// A WAL whose next file gets the number `next`, behind `closed` ones that were replayed.
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, layout: Layout, next: u64, closed: Vec<Extent>) -> Self {
        Self { disk, clock, layout, next, open: None, failed: None, closed, written: 0, unlisted: false }
    }

    /// Seals `frames` and appends them in one write. `series_before` goes into the header if that needs a new file;
    /// then they are durable at once, and the list of WAL files names it.
    ///
    /// # Errors
    /// Io, and the WAL is as it was before; WalFailed when an fsync failed and no flush came since.
    pub fn append(&mut self, frames: &mut [u8], series_before: u32) -> Result<()> {
        self.check()?;
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let number = self.next;
                // Taken even if it fails: a name that could not be removed again must not be met twice.
                self.next += 1;
                let open = create(&*self.disk, &self.layout, Header::new(number, series_before, self.clock.now()))?;
                self.written += open.end;
                none.insert(open)
            }
        };
        frame::seal(frames, open.start.salt);
        match open.file.append(frames) {
            Ok(()) => {
                let is_first = open.end == HEADER_BYTES as u64;
                open.end += frames.len() as u64;
                self.written += frames.len() as u64;
                if is_first {
                    self.begun(frames);
                }
                Ok(())
            }
            Err(source) => {
                let error = Error::Io { action: "append to", path: open.path.clone(), source };
                if let Err(cause) = open.file.truncate(open.end) {
                    warn!(file = %open.path.display(), %cause, "a failed append cannot be cut off; a new WAL file follows");
                    self.finish();
                }
                Err(error)
            }
        }
    }

    /// Makes the first append to a file durable, and then its place among those that must be there.
    fn begun(&mut self, frames: &[u8]) {
        let Some(open) = &mut self.open else { return };
        let number = open.number;
        match open.file.sync() {
            Ok(()) => {
                let mut hasher = crc32fast::Hasher::new_with_initial(open.start.crc32);
                hasher.update(frames);
                open.start = WalStart { bytes: open.end, crc32: hasher.finalize(), ..open.start };
                open.durable = open.end;
            }
            Err(cause) => return self.fail(number, &cause.to_string()),
        }
        self.unlisted = true;
        if let Err(error) = self.list() {
            warn!(wal = number, %error, "this WAL file is not in the list of WAL files yet; trying again");
        }
    }

    /// Writes the list of WAL files, if it lacks one.
    ///
    /// # Errors
    /// Io.
    pub fn list(&mut self) -> Result<()> {
        if self.unlisted {
            WalList::of(&self.extents()).write(&*self.disk, &self.layout)?;
            self.unlisted = false;
        }
        Ok(())
    }

    /// Closes the file, its bytes durable or the WAL marked failed; the next append makes a new one.
    /// Gives back the number of that new one: files below it hold everything appended so far.
    pub fn finish(&mut self) -> u64 {
        if let Some(open) = self.open.take() {
            let mut extent = open.extent(true);
            if self.failed.is_none() {
                match open.file.sync() {
                    Ok(()) => extent.durable = extent.end,
                    Err(cause) => self.fail(open.number, &cause.to_string()),
                }
            }
            self.closed.push(extent);
        }
        self.next
    }

    /// Where the WAL ends, and what makes it durable up to there; `None` when all of it is durable.
    ///
    /// # Errors
    /// WalFailed.
    pub fn sync_target(&self) -> Result<Option<SyncTarget>> {
        self.check()?;
        Ok(self.open.as_ref().map(|open| SyncTarget {
            position: Position { number: open.number, end: open.end },
            handle: Arc::clone(&open.handle),
            path: open.path.clone(),
        }))
    }

    /// An fsync made everything before `position` durable.
    pub fn synced(&mut self, position: Position) {
        if let Some(open) = self.open.as_mut().filter(|open| open.number == position.number) {
            open.durable = open.durable.max(position.end);
        }
    }

    /// The files that no flush has covered, ascending.
    pub fn extents(&self) -> Vec<Extent> {
        self.closed.iter().copied().chain(self.open.as_ref().map(|open| open.extent(false))).collect()
    }

    /// An fsync of file `number` failed.
    pub fn fail(&mut self, number: u64, cause: &str) {
        warn!(wal = number, cause, "fsync of the WAL failed; appends are refused until a flush succeeds");
        self.failed.get_or_insert_with(|| (number, cause.to_owned()));
    }

    /// There is more in memory than was appended here.
    pub fn outgrown(&mut self) {
        let last = self.next.saturating_sub(1);
        self.failed.get_or_insert_with(|| (last, "samples are in memory that it could not take".to_owned()));
    }

    /// The number of a file that would follow all there are.
    pub fn after(&self) -> u64 {
        self.next
    }

    /// A flush made everything in files below `first` durable elsewhere, and removed them.
    pub fn covered(&mut self, first: u64) {
        self.closed.retain(|extent| extent.number >= first);
        self.unlisted &= !self.closed.is_empty() || self.open.is_some();
        if self.failed.as_ref().is_some_and(|(number, _)| *number < first) {
            self.failed = None;
        }
    }

    /// Whether there is a file that the next append goes to.
    pub fn is_begun(&self) -> bool {
        self.open.is_some()
    }

    pub fn is_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Bytes that were appended since the open.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of WAL that a recovery would replay.
    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|extent| extent.end).sum();
        closed + self.open.as_ref().map_or(0, |open| open.end)
    }

    fn check(&self) -> Result<()> {
        match &self.failed {
            Some((_, cause)) => Err(Error::WalFailed { path: self.layout.dir().to_path_buf(), cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

/// A new file whose name and header are durable, so that a sync of its bytes is all that `Synced` needs.
fn create(disk: &dyn Disk, layout: &Layout, header: Header) -> Result<OpenWal> {
    let path = layout.wal(header.number);
    let mut file = disk.create(&path).map_err(Error::io("create", &path))?;
    let bytes = header.encode();
    let made = (|| {
        file.append(&bytes).map_err(Error::io("write", &path))?;
        file.sync().map_err(Error::io("sync", &path))?;
        let handle = file.sync_handle().map_err(Error::io("open", &path))?;
        let dir = layout.sub(WAL);
        disk.sync_dir(&dir).map_err(Error::io("sync", &dir))?;
        Ok(handle)
    })();
    match made {
        Ok(handle) => {
            let end = HEADER_BYTES as u64;
            Ok(OpenWal {
                number: header.number,
                path,
                file,
                handle: Arc::from(handle),
                end,
                durable: end,
                start: WalStart { bytes: end, crc32: crc32fast::hash(&bytes), salt: header.salt },
            })
        }
        Err(error) => {
            // Best effort: recovery knows a file without a frame for what it is.
            let _ = disk.remove(&path);
            Err(error)
        }
    }
}
