//! A copy of a live database in another directory, usually on a shared file system. It stays whole when either machine
//! crashes.
//!
//! A [`Mirror::step`] does what a writer does, in the same order. It copies the files that the source's manifest names,
//! each under a temporary name until it is whole and durable. Then the manifest replaces the old one. Then the copy's
//! WAL grows by what is durable in the source. Last, the files that no manifest needs are removed. If a step is
//! interrupted anywhere, the copy opens read-only and holds a prefix of the appends, with everything that was durable
//! in the source when the last whole step began.
//!
//! The source is read while its writer works, and the mirror holds none of the writer's append locks while it waits. If
//! a flush or a merge removes a file meanwhile, the step starts over with the newer manifest.

mod copy;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tracing::warn;

use crate::db::{Db, Durable};
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::flush::Flusher;
use crate::layout::{self, Layout, MANIFEST, META, SEGMENTS, SERIES, WAL, WAL_LIST, WRITER};
use crate::lock::WriterLock;
use crate::manifest::{FileEntry, Manifest};
use crate::recover;
use crate::wal::{Extent, HEADER_BYTES, WalList};
use copy::{CopyStop, Copying};

/// How often a step starts over because the source was flushed or merged meanwhile.
const TRIES: u32 = 8;

/// What a step, or the last one, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorReport {
    /// Segments, series and metadata files that were copied, and manifests.
    pub files: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes by which the WAL of the copy grew.
    pub wal_bytes: u64,
    /// Files that the copy does not need any more and that were removed.
    pub removed: u64,
}

/// Keeps a copy of a database. Dropped without [`Mirror::finish`], it leaves the copy as the last step made it.
#[derive(Debug)]
pub struct Mirror {
    source: Db,
    disk: Arc<dyn Disk>,
    layout: Layout,
    /// `None` after the end.
    lock: Option<WriterLock>,
    /// The manifest that the copy surely has.
    manifest: Option<Arc<Manifest>>,
    /// Named files that are durable in the copy.
    files: BTreeSet<String>,
    /// WAL files of the copy that are what the source's are, and up to where they are durable. One that is missing here
    /// is written anew: it is not there, or a failed write left unknown bytes behind its end.
    wal: BTreeMap<u64, u64>,
    /// The list of WAL files that the copy surely has; `None` where that is not known.
    list: Option<WalList>,
    /// Whether there may be files that are no longer needed.
    untidy: bool,
}

impl Mirror {
    /// Prepares the copy of `db` in `dir`, which must be empty or not there; its writer lock is held from here on.
    /// There is something to open after the first [`Mirror::step`]. `db` stays open as long as the mirror lives.
    ///
    /// # Errors
    /// Invalid when `dir` holds anything, or `db` is read-only; Unavailable when somebody else writes in `dir`, or
    /// its disk fails.
    pub fn begin(db: &Db, dir: &Path, disk: Arc<dyn Disk>) -> Result<Mirror> {
        db.durable()?;
        let layout = Layout::new(dir);
        // Before the lock, so that a copy which is there already keeps the lock that it has.
        require_empty(&*disk, &layout)?;
        disk.create_dir(dir).map_err(Error::io("create", dir))?;
        let options = db.options();
        let lock = WriterLock::acquire(&disk, &*options.machine, &layout, options.lock_claim())?;
        let mirror = Mirror {
            source: db.clone(),
            disk,
            layout,
            lock: Some(lock),
            manifest: None,
            files: BTreeSet::new(),
            wal: BTreeMap::new(),
            list: None,
            untidy: false,
        };
        // Dropping it on an error gives the lock back.
        require_empty(&*mirror.disk, &mirror.layout)?;
        mirror.make_names_durable()?;
        Ok(mirror)
    }

    /// As [`Mirror::begin`], and where `dir` holds a copy of `db` that another process began, goes on with that: what
    /// it has is not copied again. A copy of an unclosed WAL is, because it is unknown what lies behind its durable
    /// end.
    ///
    /// # Errors
    /// Invalid when `dir` holds anything else; Unavailable and Corrupt as [`Mirror::begin`].
    pub fn resume(db: &Db, dir: &Path, disk: Arc<dyn Disk>) -> Result<Mirror> {
        let source = db.durable()?;
        let layout = Layout::new(dir);
        let Some(own) = Manifest::load(&*disk, &layout)? else { return Self::begin(db, dir, disk) };
        if own.database != source.manifest.database {
            let found = format!("a {MANIFEST} of another database");
            return Err(Error::NotEmpty { path: dir.to_path_buf(), found });
        }
        let options = db.options();
        let lock = WriterLock::acquire(&disk, &*options.machine, &layout, options.lock_claim())?;
        let is_whole = |entry: &&FileEntry| {
            let copied = disk.open(&layout.named(&entry.file));
            copied.is_ok_and(|file| file.len() == entry.bytes)
        };
        let files = own.files().filter(is_whole).map(|entry| entry.file.clone()).collect();
        let mirror = Mirror {
            source: db.clone(),
            disk,
            layout,
            lock: Some(lock),
            manifest: Some(Arc::new(own)),
            files,
            wal: BTreeMap::new(),
            list: None,
            untidy: true,
        };
        mirror.make_names_durable()?;
        Ok(mirror)
    }

    fn make_names_durable(&self) -> Result<()> {
        recover::sync_own_name(&*self.disk, self.layout.dir())?;
        if let Some(parent) = self.layout.dir().parent() {
            recover::sync_own_name(&*self.disk, parent)?;
        }
        recover::make_folders(&*self.disk, &self.layout)
    }

    /// The directory of the copy.
    pub fn dir(&self) -> &Path {
        self.layout.dir()
    }

    /// Brings the copy up to what is durable in the source now ([`Db::sync`] and [`Db::flush`] make it more).
    /// After an error the copy is as good as before, and the next step repairs and goes on.
    ///
    /// # Errors
    /// Unavailable when one of the disks fails, another process took the copy over, or the mirror has ended; Corrupt
    /// when a file of the source is not what its manifest says; Busy when the source changes faster than it is read.
    pub fn step(&mut self) -> Result<MirrorReport> {
        if self.lock.is_none() {
            return Err(Error::Closed { path: self.layout.dir().to_path_buf() });
        }
        let mut report = MirrorReport::default();
        for _ in 0..TRIES {
            let durable = self.source.durable()?;
            let stop = match self.bring_to(&durable, &mut report) {
                Ok(()) => return Ok(report),
                Err(stop) => stop,
            };
            self.untidy = true;
            match stop {
                CopyStop::Failed(error) => return Err(error),
                CopyStop::Vanished(error) => {
                    // The code that removed it may not have named its replacement yet.
                    self.source.wait_for_flush();
                    if self.source.durable()?.manifest.generation == durable.manifest.generation {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::Moving { path: self.source.layout().dir().to_path_buf(), tries: TRIES })
    }

    /// The last step; then the lock is given back. Meant for after [`Db::close`], which leaves no WAL to copy.
    ///
    /// # Errors
    /// As [`Mirror::step`]; it may be called again.
    pub fn finish(&mut self) -> Result<MirrorReport> {
        self.untidy = true;
        let report = self.step()?;
        if let Some(lock) = &self.lock {
            lock.release()?;
        }
        self.lock = None;
        Ok(report)
    }

    /// The last step instead of [`Mirror::finish`], for a source that could not be closed, as on a full disk or when its
    /// directory was removed: what it has in memory, all that was appended since its last flush, is written into the
    /// copy as segments. Then the lock is given back.
    ///
    /// # Errors
    /// Unavailable when the disk of the copy fails, or another process took it over: it may be called again. Gone when
    /// files of the source were removed before they were copied: the rest is saved then, and the mirror has ended.
    pub fn rescue(&mut self) -> Result<MirrorReport> {
        let Some(lock) = &self.lock else {
            return Err(Error::Closed { path: self.layout.dir().to_path_buf() });
        };
        lock.check()?;
        let mut report = MirrorReport::default();
        let (manifest, unflushed) = self.source.unflushed()?;
        let copied = match self.copy_files(&manifest, &mut report) {
            Ok(()) => Ok(manifest),
            Err(CopyStop::Vanished(error) | CopyStop::Failed(error)) => Err(error),
        };
        let base = match (&copied, &self.manifest) {
            (Ok(manifest), _) => Manifest::clone(manifest),
            (Err(_), Some(own)) => Manifest::clone(own),
            // Nothing was ever copied: it begins with what is in memory.
            (Err(_), None) => {
                let of_source = self.source.unflushed()?.0;
                Manifest::new(of_source.database.clone(), of_source.node.clone())
            }
        };
        let mut flusher = Flusher::new(Arc::clone(&self.disk), self.layout.clone(), base);
        for frozen in unflushed {
            let lock = self.lock.as_ref();
            let guard = || lock.map_or(Ok(()), WriterLock::check);
            let (_, done) = flusher.write(&frozen, self.source.index(), guard)?;
            report.files += done.segments + 1;
            report.bytes += done.bytes;
        }
        let own = Arc::new(flusher.manifest().clone());
        self.files = own.files().map(|entry| entry.file.clone()).collect();
        self.manifest = Some(Arc::clone(&own));
        self.tidy(&own, &mut report)?;
        self.list_wal(&WalList::default())?;
        if let Some(lock) = &self.lock {
            lock.release()?;
        }
        self.lock = None;
        match copied {
            Ok(_) => Ok(report),
            Err(Error::Io { path, .. }) => Err(Error::Gone { path }),
            Err(error) => Err(error),
        }
    }

    /// Bytes that the copy lacks of what is durable in the source now.
    ///
    /// # Errors
    /// Invalid when the source is read-only.
    pub fn lacking(&self) -> Result<u64> {
        let durable = self.source.durable()?;
        let files = durable.manifest.files().filter(|entry| !self.files.contains(&entry.file)).map(|entry| entry.bytes);
        let known = |extent: &Extent| self.wal.get(&extent.number).copied().unwrap_or(0);
        let wal = wanted(&durable.wal).into_iter().map(|extent| extent.durable.saturating_sub(known(&extent)));
        Ok(files.chain(wal).sum())
    }

    /// Whether another process writes the copy, or it was removed: it will never be brought up to date again, and
    /// another one must be begun elsewhere.
    pub fn is_lost(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| matches!(lock.check(), Err(Error::Locked { .. })))
    }

    fn bring_to(&mut self, durable: &Durable, report: &mut MirrorReport) -> Result<(), CopyStop> {
        let wal = wanted(&durable.wal);
        let moved = self.manifest.as_ref().is_none_or(|own| own.generation != durable.manifest.generation)
            // A copy that another process began may lack what its manifest names.
            || durable.manifest.files().any(|entry| !self.files.contains(&entry.file));
        let grown = wal.iter().any(|extent| self.wal.get(&extent.number) != Some(&extent.durable));
        if !(moved || grown || self.untidy) {
            return Ok(());
        }
        if let Some(lock) = &self.lock {
            lock.check()?;
        }
        if moved {
            self.copy_files(&durable.manifest, report)?;
            self.install(&durable.manifest, report)?;
            self.untidy = true;
        }
        for extent in &wal {
            self.copy_wal(*extent, report)?;
        }
        self.list_wal(&WalList::of(&wal))?;
        if self.untidy {
            self.tidy(&durable.manifest, report)?;
            self.untidy = false;
        }
        Ok(())
    }

    /// Copies the files that `manifest` names and the copy has not, and makes them durable.
    fn copy_files(&mut self, manifest: &Manifest, report: &mut MirrorReport) -> Result<(), CopyStop> {
        let missing: Vec<&FileEntry> = manifest.files().filter(|entry| !self.files.contains(&entry.file)).collect();
        for folder in [SERIES, META, SEGMENTS] {
            let dir = self.layout.sub(folder);
            let mut copied = Vec::new();
            for entry in missing.iter().filter(|entry| Path::new(&entry.file).starts_with(folder)) {
                let (from, to) = (self.source.layout().named(&entry.file), self.layout.named(&entry.file));
                self.copying().whole(&from, &to, entry.bytes, Some(entry.crc32))?;
                report.files += 1;
                report.bytes += entry.bytes;
                copied.push(entry.file.clone());
            }
            if !copied.is_empty() {
                self.disk.sync_dir(&dir).map_err(Error::io("sync", &dir))?;
                self.files.extend(copied);
            }
        }
        Ok(())
    }

    fn install(&mut self, manifest: &Arc<Manifest>, report: &mut MirrorReport) -> Result<()> {
        // Until it surely has the new one, a reader may find either, and files of both stay.
        report.bytes += manifest.prepare(&*self.disk, &self.layout)?;
        Manifest::install(&*self.disk, &self.layout)?;
        report.files += 1;
        self.manifest = Some(Arc::clone(manifest));
        Ok(())
    }

    fn copy_wal(&mut self, extent: Extent, report: &mut MirrorReport) -> Result<(), CopyStop> {
        let Extent { number, durable: end, .. } = extent;
        let (from, to) = (self.source.layout().wal(number), self.layout.wal(number));
        let known = self.wal.get(&number).copied();
        if known == Some(end) {
            return Ok(());
        }
        // Not until it is durable is it what this says.
        self.wal.remove(&number);
        if let Some(start) = known
            && self.copying().holds(&to, start)
        {
            match self.copying().append(&from, &to, start..end) {
                Err(CopyStop::Vanished(error)) => {
                    // Nothing was written.
                    self.wal.insert(number, start);
                    return Err(CopyStop::Vanished(error));
                }
                done => done?,
            }
            report.wal_bytes += end - start;
        } else {
            self.copying().whole(&from, &to, end, None)?;
            let dir = self.layout.sub(WAL);
            self.disk.sync_dir(&dir).map_err(Error::io("sync", &dir))?;
            report.wal_bytes += end - known.unwrap_or(0);
        }
        self.wal.insert(number, end);
        Ok(())
    }

    /// Says which WAL files the copy has, now that they are durable.
    fn list_wal(&mut self, list: &WalList) -> Result<()> {
        if self.list.as_ref() == Some(list) {
            return Ok(());
        }
        self.list = None;
        if list.is_empty() {
            let path = self.layout.wal_list();
            // A write of it that failed may have left one that is not whole.
            disk::remove_if_there(&*self.disk, &layout::unfinished(&path))?;
            disk::remove_if_there(&*self.disk, &path)?;
        } else {
            list.write(&*self.disk, &self.layout)?;
        }
        self.list = Some(list.clone());
        Ok(())
    }

    /// Removes what `manifest`, which the copy has now, does not need.
    fn tidy(&mut self, manifest: &Manifest, report: &mut MirrorReport) -> Result<()> {
        let named: BTreeSet<String> = manifest.files().map(|entry| entry.file.clone()).collect();
        for folder in [SEGMENTS, SERIES, META] {
            let paths: BTreeSet<_> = named.iter().map(|file| self.layout.named(file)).collect();
            for path in self.layout.list(&*self.disk, folder)? {
                if !paths.contains(&path) {
                    self.remove(&path, report)?;
                }
            }
        }
        self.files.retain(|file| named.contains(file));
        for path in self.layout.list(&*self.disk, WAL)? {
            if layout::wal_number(&path).is_none_or(|number| number < manifest.first_wal) {
                self.remove(&path, report)?;
            }
        }
        self.wal.retain(|number, _| *number >= manifest.first_wal);
        disk::remove_if_there(&*self.disk, &self.layout.manifest_new())
    }

    fn remove(&self, path: &Path, report: &mut MirrorReport) -> Result<()> {
        report.removed += 1;
        disk::remove_if_there(&*self.disk, path)
    }

    fn copying(&self) -> Copying<'_> {
        Copying { from: &*self.source.options().disk, to: &*self.disk }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock
            && let Err(error) = lock.release()
        {
            warn!(%error, "the writer lock of the copy stays");
        }
    }
}

/// The folders in the directory of a copy.
pub const FOLDERS: [&str; 4] = [WAL, SEGMENTS, SERIES, META];
/// The longest name of a file in one of them, or beside them.
const NAME_BYTES_MAX: usize = 128;

/// Whether a mirror makes files of this name in the directory of a copy: none of another name is taken from somebody
/// who keeps a copy here, and none leads elsewhere.
pub fn may_hold(name: &str) -> bool {
    let of_list = || name.strip_suffix(layout::NEW_SUFFIX).unwrap_or(name) == WAL_LIST;
    let of_root = || [MANIFEST, layout::MANIFEST_NEW, WRITER].contains(&name) || of_list() || is_lock_aside(name);
    name.len() <= NAME_BYTES_MAX && (FOLDERS.iter().any(|folder| layout::is_named_in(folder, name)) || of_root())
}

/// The CRC-32 by which a part of a copy that travels is known to be what was sent.
pub fn checksum(part: &[u8]) -> u32 {
    crc32fast::hash(part)
}

/// A lock while it is judged: `WRITER.PID`.
fn is_lock_aside(name: &str) -> bool {
    let pid = name.strip_prefix(WRITER).and_then(|rest| rest.strip_prefix('.'));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The id of the database in `dir`, or of the source of the copy there; `None` without a manifest.
///
/// # Errors
/// Io; Corrupt; Unavailable when a newer telem wrote it.
pub fn database_in(dir: &Path, disk: &dyn Disk) -> Result<Option<String>> {
    Ok(Manifest::load(disk, &Layout::new(dir))?.map(|manifest| manifest.database))
}

/// The WAL files that are worth copying, ascending. Behind one whose end a failed fsync lost comes no other: the
/// copy would have a hole.
fn wanted(wal: &[Extent]) -> Vec<Extent> {
    let holed = wal.iter().position(|extent| extent.closed && extent.durable < extent.end);
    let sound = holed.map_or(wal, |at| &wal[..=at]);
    sound.iter().filter(|extent| extent.durable > HEADER_BYTES as u64).copied().collect()
}

/// # Errors
/// Io; Invalid when anything but a writer lock is there.
fn require_empty(disk: &dyn Disk, layout: &Layout) -> Result<()> {
    for folder in ["", SEGMENTS, SERIES, META, WAL] {
        for path in layout.list(disk, folder)? {
            let name = path.strip_prefix(layout.dir()).unwrap_or(&path).to_string_lossy().into_owned();
            if !name.starts_with(WRITER) {
                return Err(Error::NotEmpty { path: layout.dir().to_path_buf(), found: name });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
