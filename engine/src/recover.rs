//! Recovery: the state of a database is the files of its manifest, then its WAL.
//!
//! An open for writing cuts torn tails, sets damaged bytes aside, and removes files that the manifest does not name. A
//! read-only open does none of that, and starts over if a writer replaces the manifest meanwhile.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::layout::{self, Layout, META, SEGMENTS, SERIES, WAL, WRITER};
use crate::manifest::{FileEntry, JobCopy, Manifest};
use crate::memtable::Memtable;
use crate::meta::Meta;
use crate::options::Options;
use crate::quantity::{count, counted};
use crate::series_file;
use crate::wal::replay::{End, Replay};
use crate::wal::{Extent, FoundList, Likeness, Record, WalList};

/// How often a read-only open starts over because a writer flushed meanwhile.
const READ_ONLY_TRIES: u32 = 16;
/// Why a WAL file is not replayed at all.
pub const ANOTHER_FILE: &str = "it is not the file that was begun under this name";
/// The same: see [`End::Headless`].
pub const HEADER_DAMAGED: &str = "its header is damaged";
/// Why the end of a WAL file was not caused by a crash.
pub const TOO_SHORT: &str = "bytes that were durable are damaged or gone";
/// A series or metadata file beyond this is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What opening a database found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// There was none before.
    pub created: bool,
    pub wal_files: u64,
    /// Whole frames replayed, with all that is in them.
    pub frames: u64,
    pub samples: u64,
    pub series: u64,
    pub bytes: u64,
    /// Ends of WAL files that a crash cut short.
    pub torn: Vec<Cut>,
    /// Bytes of WAL files that are not what was written, and where they are kept.
    pub damaged: Vec<Cut>,
    /// Files that no manifest names: what a flush left that did not finish. Their samples are in the WAL.
    pub removed: Vec<PathBuf>,
    /// Files that the manifest names, and WAL files that were begun, and that are not there: what is in them is lost.
    pub missing: Vec<PathBuf>,
    /// The dead process whose writer lock was taken over.
    pub taken_over_from: Option<String>,
}

/// The end of a WAL file that was not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: PathBuf,
    /// Offset of the first byte that was not replayed.
    pub at: u64,
    pub bytes: u64,
    /// Where they are kept; `None` when they were dropped, or left where they are (read-only).
    pub set_aside: Option<PathBuf>,
    pub why: &'static str,
}

impl RecoveryReport {
    /// What opening several databases as one found.
    pub(crate) fn of_several<'a>(reports: impl IntoIterator<Item = &'a RecoveryReport>) -> RecoveryReport {
        let mut all = RecoveryReport::default();
        for report in reports {
            all.wal_files += report.wal_files;
            all.frames += report.frames;
            all.samples += report.samples;
            all.series += report.series;
            all.bytes += report.bytes;
            all.torn.extend_from_slice(&report.torn);
            all.damaged.extend_from_slice(&report.damaged);
            all.removed.extend_from_slice(&report.removed);
            all.missing.extend_from_slice(&report.missing);
        }
        all
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            return write!(f, "a new database");
        }
        write!(
            f,
            "replayed {} and {} new series in {} ({}, {})",
            counted(self.samples, "sample"),
            count(self.series),
            counted(self.frames, "frame"),
            counted(self.bytes, "byte"),
            counted(self.wal_files, "WAL file")
        )?;
        if let Some(owner) = &self.taken_over_from {
            write!(f, "; took over from {owner}, which did not close it")?;
        }
        for cut in &self.torn {
            write!(f, "; {} bytes at {} of {} dropped: {}", cut.bytes, cut.at, cut.file.display(), cut.why)?;
        }
        for cut in &self.damaged {
            write!(f, "; {} bytes at {} of {} not replayed: {}", cut.bytes, cut.at, cut.file.display(), cut.why)?;
            if let Some(path) = &cut.set_aside {
                write!(f, ", kept in {}", path.display())?;
            }
        }
        for path in &self.removed {
            write!(f, "; removed {}, which the manifest does not name", path.display())?;
        }
        for path in &self.missing {
            write!(f, "; {} is missing, what was in it is lost", path.display())?;
        }
        Ok(())
    }
}

/// A database as its files say it is.
#[derive(Debug)]
pub struct RecoveredDatabase {
    pub manifest: Manifest,
    pub index: SeriesIndex,
    pub meta: Meta,
    /// Whether the WAL changed `meta`.
    pub meta_changed: bool,
    pub memtable: Memtable,
    /// The number of the next WAL file, and those that were replayed.
    pub next_wal: u64,
    pub wal: Vec<Extent>,
    pub report: RecoveryReport,
}

/// Whether recovery may repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Write,
    ReadOnly,
}

/// Recovers for writing; the caller holds the writer lock. Makes the database if `dir` is empty.
///
/// # Errors
/// NotFound when `dir` holds something else; Io; Corrupt.
pub fn for_writing(options: &Options, layout: &Layout) -> Result<RecoveredDatabase> {
    let disk = &*options.disk;
    // At every open: the process that made the directory may have died before it came to this.
    sync_own_name(disk, layout.dir())?;
    let Some(manifest) = Manifest::load(disk, layout)? else {
        return create(options, layout);
    };
    // A crash during creation may have left the manifest without its folders.
    make_folders(disk, layout)?;
    let mut recovered = load(disk, layout, manifest)?;
    replay(disk, layout, &mut recovered, Mode::Write)?;
    clean(disk, layout, &mut recovered)?;
    Ok(recovered)
}

/// Recovers without writing anything.
///
/// # Errors
/// NotFound when `dir` is not a database; Io; Corrupt.
pub fn read_only(options: &Options, layout: &Layout) -> Result<RecoveredDatabase> {
    let disk = &*options.disk;
    let mut tries = 0;
    loop {
        tries += 1;
        let Some(manifest) = Manifest::load(disk, layout)? else {
            let why = format!("it has no {}", layout::MANIFEST);
            return Err(Error::NotADatabase { path: layout.dir().to_path_buf(), why });
        };
        let generation = manifest.generation;
        let recovered = load(disk, layout, manifest).and_then(|mut recovered| {
            replay(disk, layout, &mut recovered, Mode::ReadOnly)?;
            Ok(recovered)
        });
        // A writer that flushed meanwhile removed WAL files that this read may have missed.
        let moved = Manifest::load(disk, layout)?.is_none_or(|now| now.generation != generation);
        if !moved {
            return recovered;
        }
        if tries == READ_ONLY_TRIES {
            return Err(Error::Moving { path: layout.dir().to_path_buf(), tries });
        }
    }
}

/// Makes the directory's name in its parent durable; what is inside is lost with it.
///
/// # Errors
/// Io, unless that directory belongs to another database.
pub fn sync_own_name(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match disk.sync_dir(parent) {
        // It belongs to others, and so does what they put there.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result.map_err(Error::io("sync", parent)),
    }
}

/// Makes the folders of a database, and their names durable.
///
/// # Errors
/// Io.
pub fn make_folders(disk: &dyn Disk, layout: &Layout) -> Result<()> {
    for folder in [WAL, SEGMENTS, SERIES, META] {
        let dir = layout.sub(folder);
        disk.create_dir(&dir).map_err(Error::io("create", &dir))?;
    }
    disk.sync_dir(layout.dir()).map_err(Error::io("sync", layout.dir()))
}

fn create(options: &Options, layout: &Layout) -> Result<RecoveredDatabase> {
    let disk = &*options.disk;
    for path in layout.list(disk, "")? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == layout::WAL_LIST {
            return Err(without_manifest(layout, &path));
        }
        if name != layout::MANIFEST_NEW && !name.starts_with(WRITER) {
            let why = format!("it has no {} but holds {name}; choose an empty directory", layout::MANIFEST);
            return Err(Error::NotADatabase { path: layout.dir().to_path_buf(), why });
        }
    }
    for folder in [WAL, SEGMENTS, SERIES, META] {
        if let Some(path) = layout.list(disk, folder)?.first() {
            return Err(without_manifest(layout, path));
        }
    }
    make_folders(disk, layout)?;
    let manifest = Manifest::new(database_id(options, layout), options.node.clone());
    manifest.prepare(disk, layout)?;
    Manifest::install(disk, layout)?;
    Ok(RecoveredDatabase {
        manifest,
        index: SeriesIndex::default(),
        meta: Meta::default(),
        meta_changed: false,
        memtable: Memtable::default(),
        next_wal: 1,
        wal: Vec::new(),
        report: RecoveryReport { created: true, ..RecoveryReport::default() },
    })
}

fn without_manifest(layout: &Layout, beside: &Path) -> Error {
    Error::Corrupt {
        path: layout.dir().to_path_buf(),
        what: "its manifest".to_owned(),
        found: format!("none beside {}", beside.display()),
        expected: format!("a file {}", layout::MANIFEST),
    }
}

/// Two databases that are made in different places, by different processes or at different times differ in it.
pub fn database_id(options: &Options, layout: &Layout) -> String {
    let process = options.machine.this_process().ok();
    let place = format!("{process:?} {} {}", options.node, layout.dir().display());
    format!("{:016x}{:08x}", options.clock.now().micros(), crc32fast::hash(place.as_bytes()))
}

/// Reads the series and metadata that the manifest names.
fn load(disk: &dyn Disk, layout: &Layout, mut manifest: Manifest) -> Result<RecoveredDatabase> {
    let index = SeriesIndex::default();
    // A damaged manifest may say anything: no more room than the files can fill.
    let bytes: u64 = manifest.series.iter().map(|entry| entry.file.bytes).sum();
    index.reserve(manifest.series_count().min(bytes) as usize);
    for entry in &manifest.series {
        let path = layout.named(&entry.file.file);
        let bytes = read_entry(disk, layout, &entry.file)?;
        series_file::decode_raw(&path, bytes, entry.first_id, entry.count, |id, key| {
            let (found, new) = index.get_or_insert_raw(key)?;
            if new && found == id {
                return Ok(());
            }
            let what = index.key(found).map_or_else(|| "an id".to_owned(), |key| format!("the id of {key}"));
            Err(Error::Corrupt { path: path.clone(), what, found: id.0.to_string(), expected: found.0.to_string() })
        })?;
    }
    let meta = read_meta(disk, layout, &manifest)?;
    // Whatever stood there: the file counts. The next manifest says so, also of a database that had no copy.
    manifest.job = manifest.meta.as_ref().and_then(|entry| JobCopy::of(&entry.file, &meta));
    let memtable = Memtable::default();
    let next_wal = manifest.first_wal;
    let report = RecoveryReport::default();
    Ok(RecoveredDatabase { manifest, index, meta, meta_changed: false, memtable, next_wal, wal: Vec::new(), report })
}

/// The metadata that the manifest names.
///
/// # Errors
/// Io; Corrupt.
pub fn read_meta(disk: &dyn Disk, layout: &Layout, manifest: &Manifest) -> Result<Meta> {
    let Some(entry) = &manifest.meta else { return Ok(Meta::default()) };
    let bytes = read_entry(disk, layout, entry)?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Corrupt {
        path: layout.named(&entry.file),
        what: "its JSON".to_owned(),
        found: error.to_string(),
        expected: "metadata".to_owned(),
    })
}

/// The bytes of a file that the manifest names, checked against it.
///
/// # Errors
/// Io; Corrupt.
pub fn read_entry(disk: &dyn Disk, layout: &Layout, entry: &FileEntry) -> Result<Vec<u8>> {
    let path = layout.named(&entry.file);
    let bytes = disk::read_file(disk, &path, FILE_BYTES_MAX)?;
    let corrupt = |what: &str, found: String, expected: String| Error::Corrupt {
        path: path.clone(),
        what: what.to_owned(),
        found,
        expected,
    };
    if bytes.len() as u64 != entry.bytes {
        return Err(corrupt("its length", format!("{} bytes", bytes.len()), format!("{} bytes", entry.bytes)));
    }
    let crc = crc32fast::hash(&bytes);
    if crc != entry.crc32 {
        return Err(corrupt("its checksum", format!("{crc:08x}"), format!("{:08x}", entry.crc32)));
    }
    Ok(bytes)
}

fn replay(disk: &dyn Disk, layout: &Layout, recovered: &mut RecoveredDatabase, mode: Mode) -> Result<()> {
    // Before the files are: a writer beside us begins one before it is listed.
    let list = FoundList::load(disk, layout)?.into_list();
    let files = layout.wal_files(disk)?;
    let first_wal = recovered.manifest.first_wal;
    recovered.next_wal = files.last().map_or(0, |(number, _)| number + 1).max(first_wal).max(list.after());
    let is_there = |number: u64| files.binary_search_by_key(&number, |(number, _)| *number).is_ok();
    let gone: Vec<u64> = list.from(first_wal).map(|entry| entry.number).filter(|number| !is_there(*number)).collect();
    let needed: Vec<_> = files.into_iter().filter(|(number, _)| *number >= recovered.manifest.first_wal).collect();
    let last = needed.len().saturating_sub(1);
    for (at, (number, path)) in needed.iter().enumerate() {
        let mut file = Replay::open(disk, path)?;
        let listed = list.entry(*number);
        let (end, why) = match listed.map(|listed| file.likeness(listed)).transpose()? {
            Some(Likeness::Another) => (file.refuse(0), Some(ANOTHER_FILE)),
            _ => replay_file(&mut file, *number, recovered)?,
        };
        let (end, why) = match end {
            End::Whole | End::Torn { .. } if listed.is_some_and(|listed| file.at() < listed.bytes) => {
                (End::Damaged { at: file.at() }, Some(why.unwrap_or(TOO_SHORT)))
            }
            end => (end, why),
        };
        recovered.report.wal_files += 1;
        recovered.report.bytes += file.at();
        let good = file.at();
        if good > 0 {
            let start = file.start()?;
            recovered.wal.push(Extent { number: *number, end: good, durable: good, closed: true, start });
        }
        let cut = |at: u64, why| Cut { file: path.clone(), at, bytes: file.len() - at, set_aside: None, why };
        match end {
            // The replayed data may be only in the page cache of the machine; from here on it counts as durable.
            End::Whole if mode == Mode::Write => {
                disk.reopen(path).map_err(Error::io("open", path))?.sync().map_err(Error::io("sync", path))?;
            }
            End::Whole => {}
            // In an earlier file it can only be a failed append that could not be cut off then.
            End::Torn { at: from } => {
                let mut cut = cut(from, why.unwrap_or("a write was cut short"));
                if mode == Mode::Write {
                    if at != last {
                        cut.set_aside = Some(set_aside(disk, layout, path, from)?);
                    }
                    cut_off(disk, path, from)?;
                }
                recovered.report.torn.push(cut);
            }
            End::Damaged { .. } | End::Headless => {
                let (from, fallback) = match end {
                    End::Damaged { at } => (at, "a frame is damaged and whole frames follow it"),
                    _ => (0, HEADER_DAMAGED),
                };
                let mut cut = cut(from, why.unwrap_or(fallback));
                if mode == Mode::Write {
                    cut.set_aside = Some(set_aside(disk, layout, path, from)?);
                    cut_off(disk, path, from)?;
                }
                recovered.report.damaged.push(cut);
            }
        }
    }
    recovered.report.missing.extend(gone.iter().map(|number| layout.wal(*number)));
    if mode == Mode::Write && !(gone.is_empty() && recovered.report.damaged.is_empty()) {
        for number in &gone {
            leave_trace(disk, layout, *number)?;
        }
        // It is reported, and the rest is the database from now on.
        WalList::of(&recovered.wal).write(disk, layout)?;
    }
    Ok(())
}

/// Says for good, beside the WAL, that a file of it was lost.
fn leave_trace(disk: &dyn Disk, layout: &Layout, number: u64) -> Result<()> {
    let path = layout.wal(number).with_extension("missing");
    match disk::write_file(disk, &path, b"this file of the WAL was begun, and was gone when the database was opened\n")
    {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            let dir = layout.sub(WAL);
            disk.sync_dir(&dir).map_err(Error::io("sync", &dir))
        }
    }
}

/// Applies the records of one file. Says why the rest is of no use, where its end alone does not.
fn replay_file(
    file: &mut Replay,
    number: u64,
    recovered: &mut RecoveredDatabase,
) -> Result<(End, Option<&'static str>)> {
    if let Some(header) = file.header() {
        if header.number != number {
            return Ok((file.refuse(0), Some("its header is that of another file")));
        }
        if header.series_before as usize > recovered.index.len() {
            return Ok((file.refuse(0), Some("series that it builds on were lost with an earlier file")));
        }
    }
    loop {
        let at = file.at();
        let Some(record) = file.next()? else { return Ok((file.end()?, None)) };
        if !apply(record, recovered)? {
            return Ok((file.refuse(at), Some("a frame contradicts what is known of series")));
        }
        recovered.report.frames += 1;
    }
}

/// False when the record contradicts what is known: applied, it would show wrong data.
fn apply(record: Record, recovered: &mut RecoveredDatabase) -> Result<bool> {
    match record {
        Record::Series { id, key } => {
            let known = recovered.index.len();
            // An append that failed half-way may have left a frame that the next append wrote again.
            let again = (id.0 as usize) < known && recovered.index.id(&key) == Some(id);
            let next = id.0 as usize == known && recovered.index.id(&key).is_none();
            if next {
                recovered.index.get_or_insert(&key, u32::MAX)?;
                recovered.report.series += 1;
            }
            Ok(again || next)
        }
        Record::Samples(batch) => {
            let known = recovered.index.len();
            let good = batch
                .iter()
                .all(|(series, time, _)| (series.0 as usize) < known && time != crate::time::Timestamp::MAX);
            if good && recovered.memtable.has_room(batch.len()) {
                recovered.report.samples += batch.len() as u64;
                recovered.memtable.append(&batch);
                return Ok(true);
            }
            Ok(false)
        }
        Record::Meta(change) => {
            recovered.meta.apply(change);
            recovered.meta_changed = true;
            Ok(true)
        }
    }
}

/// Copies a file's bytes from `from` on into a file beside it.
fn set_aside(disk: &dyn Disk, layout: &Layout, path: &Path, from: u64) -> Result<PathBuf> {
    let file = disk.open(path).map_err(Error::io("open", path))?;
    let mut bytes = vec![0; usize::try_from(file.len() - from).unwrap_or(usize::MAX)];
    file.read_at(from, &mut bytes).map_err(Error::io("read", path))?;
    for try_number in 0..u32::MAX {
        let suffix = if try_number == 0 { String::new() } else { format!(".{try_number}") };
        let aside = path.with_extension(format!("damaged{suffix}"));
        match disk::write_file(disk, &aside, &bytes) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let dir = layout.sub(WAL);
                disk.sync_dir(&dir).map_err(Error::io("sync", &dir))?;
                return Ok(aside);
            }
        }
    }
    Err(Error::Internal { what: format!("every name for the damaged bytes of {} is taken", path.display()) })
}

/// Cuts a file to `len` bytes; one without a whole header is removed.
fn cut_off(disk: &dyn Disk, path: &Path, len: u64) -> Result<()> {
    if len == 0 {
        return disk::remove_if_there(disk, path);
    }
    let mut file = disk.reopen(path).map_err(Error::io("open", path))?;
    file.truncate(len).map_err(Error::io("truncate", path))?;
    file.sync().map_err(Error::io("sync", path))
}

/// Removes what the manifest does not name, and notes what it names and is not there.
fn clean(disk: &dyn Disk, layout: &Layout, recovered: &mut RecoveredDatabase) -> Result<()> {
    for folder in [SEGMENTS, SERIES, META] {
        let found = layout.list(disk, folder)?;
        let mut named: Vec<PathBuf> = recovered.manifest.files().map(|entry| layout.named(&entry.file)).collect();
        named.sort();
        for path in &found {
            if named.binary_search(path).is_err() {
                disk::remove_if_there(disk, path)?;
                recovered.report.removed.push(path.clone());
            }
        }
        let dir = layout.sub(folder);
        let missing = named.into_iter().filter(|path| path.starts_with(&dir) && found.binary_search(path).is_err());
        recovered.report.missing.extend(missing);
    }
    for path in layout.list(disk, WAL)? {
        let covered = layout::wal_number(&path).is_some_and(|number| number < recovered.manifest.first_wal);
        if covered || layout::is_unfinished(&path) {
            disk::remove_if_there(disk, &path)?;
        }
    }
    if let FoundList::Damaged(_) = FoundList::load(disk, layout)? {
        disk::remove_if_there(disk, &layout.wal_list())?;
    }
    disk::remove_if_there(disk, &layout::unfinished(&layout.wal_list()))?;
    disk::remove_if_there(disk, &layout.manifest_new())
}

#[cfg(test)]
mod tests;
