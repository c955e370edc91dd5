//! Verifies a database: every checksum and every invariant that a reader relies on.
//!
//! The check writes nothing and trusts nothing. A damaged file is one finding, and the check goes on with the next
//! file. It is safe beside a writer; if that writer flushes meanwhile, the check starts over.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::layout::{self, DAMAGED, Layout, META, SEGMENTS, SERIES, UNFINISHED, WAL};
use crate::manifest::{JobCopy, Manifest, SegmentEntry};
use crate::meta::Meta;
use crate::options::Options;
use crate::progress::Progress;
use crate::recover::{ANOTHER_FILE, HEADER_DAMAGED, TOO_SHORT, read_entry};
use crate::segment::Run;
use crate::segment::label::Label;
use crate::segment::read::LoadedSegment;
use crate::series_file;
use crate::time::Timestamp;
use crate::wal::replay::{End, Replay};
use crate::wal::{FoundList, Likeness, Record, WalList};

/// How often a check starts over because a writer flushed meanwhile.
const TRIES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is lost; the next open for writing tidies up.
    Warning,
    /// Samples are lost or cannot be trusted.
    Error,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub file: PathBuf,
    pub what: String,
    pub found: String,
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let Finding { file, what, found, expected, .. } = self;
        write!(f, "{severity}: {}: {what}: found {found}, expected {expected}", file.display())
    }
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub findings: Vec<Finding>,
    pub files: u64,
    pub bytes: u64,
    pub series: u64,
    pub segments: u64,
    /// Samples in good segments and in whole WAL frames.
    pub samples: u64,
}

impl CheckReport {
    /// Whether nothing is lost; there may be warnings.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Warning)
    }
}

/// Whether `dir` holds a database, be it one that has lost its manifest.
///
/// # Errors
/// Io when that cannot be determined.
pub fn stands_in(dir: &Path, disk: &dyn Disk) -> Result<bool> {
    layout::holds_database(disk, &Layout::new(dir))
}

/// Checks the database in `dir`.
///
/// # Errors
/// NotFound when `dir` holds no database; Io when it cannot be listed. What is wrong inside is in the report.
pub fn check(dir: &Path, options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<CheckReport> {
    let layout = Layout::new(dir);
    let disk = &*options.disk;
    let mut tries = 0;
    loop {
        tries += 1;
        let (manifest, report) = match Manifest::load(disk, &layout) {
            Ok(Some(manifest)) => (Some(manifest), CheckReport::default()),
            Ok(None) if layout::holds_database(disk, &layout)? => {
                let mut report = CheckReport::default();
                report.add(
                    Severity::Error,
                    &layout.manifest(),
                    "the file",
                    "none",
                    "the manifest of the files beside it",
                );
                (None, report)
            }
            Ok(None) => {
                let why = format!("it has no {}", layout::MANIFEST);
                return Err(Error::NotADatabase { path: dir.to_path_buf(), why });
            }
            Err(error) => {
                let mut report = CheckReport::default();
                report.error(&layout.manifest(), &error);
                (None, report)
            }
        };
        let generation = manifest.as_ref().map(|manifest| manifest.generation);
        let mut check = Check { disk, layout: &layout, report, bytes_total: 0, index: SeriesIndex::default() };
        check.run(manifest.as_ref(), progress)?;
        let now = Manifest::load(disk, &layout).ok().flatten().map(|manifest| manifest.generation);
        if now == generation || check.report.findings.is_empty() || tries == TRIES {
            return Ok(check.report);
        }
    }
}

struct Check<'a> {
    disk: &'a dyn Disk,
    layout: &'a Layout,
    report: CheckReport,
    bytes_total: u64,
    index: SeriesIndex,
}

impl Check<'_> {
    fn run(&mut self, manifest: Option<&Manifest>, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
        // Before the files are: a writer beside us begins one before it is listed.
        let list = self.wal_list()?;
        let wal = self.layout.wal_files(self.disk)?;
        let wal_bytes = wal.iter().filter_map(|(_, path)| self.disk.open(path).ok()).map(|file| file.len());
        let named_bytes = manifest.map_or(0, |manifest| manifest.files().map(|file| file.bytes).sum());
        self.bytes_total = wal_bytes.sum::<u64>() + named_bytes;
        let first_wal = manifest.map_or(0, |manifest| manifest.first_wal);
        if let Some(manifest) = manifest {
            self.series_files(manifest, progress);
            self.meta_file(manifest, progress);
            for entry in &manifest.segments {
                self.segment(manifest, entry);
                self.done(&self.layout.named(&entry.file.file), entry.file.bytes, progress);
            }
            self.sequences(manifest);
            self.names(manifest);
            self.unnamed(manifest)?;
        }
        self.strange()?;
        let last = wal.last().map(|(number, _)| *number);
        for (number, path) in &wal {
            if *number < first_wal {
                self.warn(
                    path,
                    "a WAL file",
                    "one whose samples are in segments already",
                    "none: the flush should have removed it",
                );
                continue;
            }
            let bytes = self.wal_file(path, *number, Some(*number) == last, &list);
            self.done(path, bytes, progress);
        }
        if let Some(manifest) = manifest {
            self.missing_wal(manifest, &wal, &list);
        }
        for path in self.layout.list(self.disk, WAL)? {
            if layout::is_unfinished(&path) {
                self.warn(&path, "a file", "a copy that did not come to its end", "none");
            } else if layout::wal_number(&path).is_none() {
                let found = "damaged bytes set aside, a note that a file was lost, or no file of ours";
                self.warn(&path, "a file beside the WAL", found, "none");
            }
        }
        self.report.series = self.index.len() as u64;
        Ok(())
    }

    /// The list of WAL files. Without one that can be read, nothing is asked of the WAL.
    fn wal_list(&mut self) -> Result<WalList> {
        let list = FoundList::load(self.disk, self.layout)?;
        if let FoundList::Damaged(Error::Corrupt { path, what, found, .. }) = &list {
            self.warn(path, what, found, "a list by which a file of the WAL that is gone is missed");
        }
        Ok(list.into_list())
    }

    /// WAL files that were begun and are not there.
    fn missing_wal(&mut self, manifest: &Manifest, found: &[(u64, PathBuf)], list: &WalList) {
        let newest = manifest.segments.iter().map(|entry| entry.last).max();
        let since = newest.map_or("all that was ever appended".to_owned(), |last| {
            let last = Timestamp::from_micros(last).utc();
            format!("what was appended since the last flush; the newest sample that is left in segments is of {last}")
        });
        for entry in list.from(manifest.first_wal) {
            if !found.iter().any(|(number, _)| *number == entry.number) {
                let expected = format!("a WAL file of at least {} bytes, with {since}", entry.bytes);
                self.wrong(&self.layout.wal(entry.number), "the file", "none", &expected);
            }
        }
    }

    fn done(&mut self, path: &Path, bytes: u64, progress: &mut dyn FnMut(Progress<'_>)) {
        self.report.files += 1;
        self.report.bytes += bytes;
        progress(Progress { file: path, bytes_done: self.report.bytes, bytes_total: self.bytes_total });
    }

    fn warn(&mut self, path: &Path, what: &str, found: &str, expected: &str) {
        self.report.add(Severity::Warning, path, what, found, expected);
    }

    fn wrong(&mut self, path: &Path, what: &str, found: &str, expected: &str) {
        self.report.add(Severity::Error, path, what, found, expected);
    }

    fn series_files(&mut self, manifest: &Manifest, progress: &mut dyn FnMut(Progress<'_>)) {
        let mut next = 0;
        for entry in &manifest.series {
            let path = self.layout.named(&entry.file.file);
            if entry.first_id != next {
                self.wrong(&path, "its first id", &entry.first_id.to_string(), &next.to_string());
            }
            next = entry.first_id.saturating_add(entry.count);
            let read = read_entry(self.disk, self.layout, &entry.file).and_then(|bytes| {
                series_file::decode(&path, bytes, entry.first_id, entry.count, |id, key| {
                    let (found, _) = self.index.get_or_insert(&key, u32::MAX)?;
                    if found == id {
                        return Ok(());
                    }
                    let what = format!("the id of {key}");
                    let (found, expected) = (id.0.to_string(), found.0.to_string());
                    Err(Error::Corrupt { path: path.clone(), what, found, expected })
                })
            });
            if let Err(error) = read {
                self.report.error(&path, &error);
            }
            self.done(&path, entry.file.bytes, progress);
        }
    }

    fn meta_file(&mut self, manifest: &Manifest, progress: &mut dyn FnMut(Progress<'_>)) {
        let Some(entry) = &manifest.meta else { return };
        let path = self.layout.named(&entry.file);
        match read_entry(self.disk, self.layout, entry) {
            Err(error) => self.report.error(&path, &error),
            Ok(bytes) => match serde_json::from_slice::<Meta>(&bytes) {
                Err(error) => self.wrong(&path, "its JSON", &error.to_string(), "metadata"),
                Ok(meta) if manifest.job.is_some() && manifest.job != JobCopy::of(&entry.file, &meta) => {
                    let expected = format!("that of {}, which counts", entry.file);
                    self.warn(&self.layout.manifest(), "its copy of the job's description", "another one", &expected);
                }
                Ok(_) => {}
            },
        }
        self.done(&path, entry.bytes, progress);
    }

    /// Bytes, Parquet, columns, run index, order by time, window and values: [`LoadedSegment`] checks those. Order by key: here.
    fn segment(&mut self, manifest: &Manifest, entry: &SegmentEntry) {
        self.report.segments += 1;
        let path = self.layout.named(&entry.file.file);
        let loaded = match LoadedSegment::open(self.disk, &path, entry) {
            Ok(loaded) => loaded,
            Err(error) => return self.report.error(&path, &error),
        };
        if let Err(error) = loaded.verify(entry) {
            return self.report.error(&path, &error);
        }
        self.report.samples += entry.rows;
        let mut runs: Vec<Run> = loaded.runs().to_vec();
        runs.sort_unstable_by_key(|run| run.row);
        let first = runs.iter().map(|run| run.first).min();
        let last = runs.iter().map(|run| run.last).max();
        let expected = (Some(Timestamp::from_micros(entry.first)), Some(Timestamp::from_micros(entry.last)));
        if (first, last) != expected {
            let show = |(first, last): (Option<Timestamp>, Option<Timestamp>)| {
                let [first, last] = [first, last].map(|time| time.map_or("none".to_owned(), Timestamp::utc));
                format!("{first} to {last}")
            };
            self.wrong(&path, "its first and last time", &show((first, last)), &show(expected));
        }
        self.label(manifest, entry, &path, &loaded);
        let count = manifest.series_count();
        if let Some(run) = runs.iter().find(|run| u64::from(run.series.0) >= count) {
            let found = format!("series {}", run.series.0);
            return self.wrong(&path, "its series", &found, &format!("ids below {count}"));
        }
        let keys: Option<Vec<_>> = runs.iter().map(|run| self.index.key(run.series)).collect();
        // Without all keys a series file is damaged, which is a finding already.
        let Some(keys) = keys else { return };
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            self.wrong(&path, "its order", &format!("{} before {}", pair[0], pair[1]), "the order of keys");
        }
    }

    /// What the file says of itself is what the manifest says of it, and its name too.
    fn label(&mut self, manifest: &Manifest, entry: &SegmentEntry, path: &Path, loaded: &LoadedSegment) {
        let expected = Label::of(entry, &manifest.node);
        match loaded.label() {
            Err(error) => self.report.error(path, &error),
            Ok(found) if found != expected => {
                self.wrong(path, "its label", &format!("{found:?}"), &format!("{expected:?}, as the manifest says"));
            }
            Ok(_) => {}
        }
        if !layout::is_segment_over(expected.window, &entry.file.file) {
            let stem = layout::segment_stem(expected.window);
            self.wrong(path, "its name", &entry.file.file, &format!("{stem}NUMBER.parquet, after its window"));
        }
    }

    /// Every file once, and none with a number that is still to be given out.
    fn names(&mut self, manifest: &Manifest) {
        let path = self.layout.manifest();
        let mut names: Vec<&str> = manifest.files().map(|entry| &*entry.file).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            self.wrong(&path, "its files", &format!("{} twice", pair[0]), "every file once");
        }
        for name in names {
            let (what, next) = if name.starts_with(SEGMENTS) {
                ("next_sequence", manifest.next_sequence)
            } else {
                ("next_file", manifest.next_file)
            };
            if layout::number_in(name).is_some_and(|number| number >= next) {
                self.wrong(&path, what, &next.to_string(), &format!("more than the number of {name}"));
            }
        }
    }

    /// Entries of the directory that are not part of a database.
    fn strange(&mut self) -> Result<()> {
        for path in self.layout.list(self.disk, "")? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match name {
                layout::MANIFEST | layout::WAL_LIST => {}
                // Where a server can be reached that serves this database, or was killed when it did.
                layout::CONNECTION | layout::SAVE_NOTE => {}
                // What counters reached that it took: the next one makes samples of it.
                layout::COUNTERS_TAIL | layout::COUNTERS_TAIL_NEW => {}
                // Also that of a process that died while it took one over.
                _ if name.starts_with(layout::WRITER) => {}
                _ if path == layout::unfinished(&self.layout.wal_list()) => {
                    self.warn(&path, "a file", "a list of WAL files that did not come to its place", "none");
                }
                layout::MANIFEST_NEW => {
                    self.warn(&path, "a file", "a manifest that did not come to its place", "none");
                }
                _ => self.warn(&path, "a file", "one that is not part of a database", "none"),
            }
        }
        let unfinished = self.layout.sub(DAMAGED).join(UNFINISHED);
        if self.disk.open(&unfinished).is_ok() {
            self.wrong(&unfinished, "a repair", "one that was cut off", "one that came to its end: run it again");
        }
        Ok(())
    }

    fn sequences(&mut self, manifest: &Manifest) {
        let mut entries: Vec<&SegmentEntry> = manifest.segments.iter().collect();
        for entry in &entries {
            let path = self.layout.named(&entry.file.file);
            let found = format!("{} to {}", entry.sequence_min, entry.sequence_max);
            if entry.sequence_min > entry.sequence_max || entry.sequence_max >= manifest.next_sequence {
                let expected = format!("ascending and below {}", manifest.next_sequence);
                self.wrong(&path, "its sequence", &found, &expected);
            }
        }
        // Two segments that share a flush must share no time, or it is unknown which sample is newer.
        entries.sort_by_key(|entry| (entry.window_start, entry.sequence_min));
        let mut before: Vec<&SegmentEntry> = Vec::new();
        for entry in entries {
            before.retain(|earlier| entry.window_start < earlier.window_end);
            let meets = |other: &&&SegmentEntry| {
                entry.sequence_min <= other.sequence_max && other.sequence_min <= entry.sequence_max
            };
            if let Some(other) = before.iter().find(meets) {
                let path = self.layout.named(&entry.file.file);
                self.wrong(&path, "its sequence", &format!("that of {}", other.file.file), "one of its own");
            }
            before.push(entry);
        }
    }

    fn unnamed(&mut self, manifest: &Manifest) -> Result<()> {
        let mut named: Vec<PathBuf> = manifest.files().map(|entry| self.layout.named(&entry.file)).collect();
        named.sort();
        for folder in [SEGMENTS, SERIES, META] {
            for path in self.layout.list(self.disk, folder)? {
                if named.binary_search(&path).is_err() {
                    self.warn(
                        &path,
                        "a file",
                        "one that the manifest does not name (a flush that did not finish leaves such)",
                        "none",
                    );
                }
            }
        }
        Ok(())
    }

    fn wal_file(&mut self, path: &Path, number: u64, is_last: bool, list: &WalList) -> u64 {
        match self.read_wal(path, number, list) {
            Err(error) => {
                self.report.error(path, &error);
                0
            }
            Ok((bytes, end, at)) => {
                let listed = list.entry(number).filter(|listed| at < listed.bytes);
                match end {
                    End::Whole | End::Torn { .. } if let Some(listed) = listed => {
                        let found = format!("{at} of {bytes} bytes that can be read: {TOO_SHORT}");
                        let expected = format!("{} at least", listed.bytes);
                        self.wrong(path, "its length", &found, &expected);
                    }
                    End::Whole => {}
                    End::Torn { at } => {
                        let found = format!("{} bytes of a frame that was cut short, at {at}", bytes - at);
                        let severity = if is_last { Severity::Warning } else { Severity::Error };
                        self.report.add(severity, path, "its end", &found, "whole frames");
                    }
                    End::Damaged { at: 0 } if bytes > 0 => {
                        self.wrong(path, "the file", ANOTHER_FILE, "what was written");
                    }
                    End::Headless => self.wrong(path, "the file", HEADER_DAMAGED, "what was written"),
                    End::Damaged { at } => {
                        self.wrong(path, "a frame", &format!("damage at {at}"), "what was written");
                    }
                }
                bytes
            }
        }
    }

    /// Its length, how it ends, and up to where it can be used.
    fn read_wal(&mut self, path: &Path, number: u64, list: &WalList) -> Result<(u64, End, u64)> {
        let mut file = Replay::open(self.disk, path)?;
        let likeness = list.entry(number).map(|listed| file.likeness(listed)).transpose()?;
        if likeness == Some(Likeness::Another) {
            return Ok((file.len(), file.refuse(0), 0));
        }
        let fits = |known: usize| {
            file.header().is_none_or(|header| header.number == number && header.series_before as usize <= known)
        };
        if !fits(self.index.len()) {
            return Ok((file.len(), file.refuse(0), 0));
        }
        loop {
            let at = file.at();
            let Some(record) = file.next()? else { return Ok((file.len(), file.end()?, at)) };
            let known = self.index.len();
            let good = match record {
                Record::Meta(_) => true,
                Record::Samples(batch) => {
                    let good = batch.iter().all(|(id, time, _)| (id.0 as usize) < known && time != Timestamp::MAX);
                    self.report.samples += if good { batch.len() as u64 } else { 0 };
                    good
                }
                Record::Series { id, key } => match self.index.id(&key) {
                    Some(found) => found == id,
                    None => id.0 as usize == known && self.index.get_or_insert(&key, u32::MAX)?.0 == id,
                },
            };
            if !good {
                return Ok((file.len(), file.refuse(at), at));
            }
        }
    }
}

impl CheckReport {
    fn add(&mut self, severity: Severity, path: &Path, what: &str, found: &str, expected: &str) {
        self.findings.push(Finding {
            severity,
            file: path.to_path_buf(),
            what: what.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        });
    }

    fn error(&mut self, path: &Path, error: &Error) {
        match error {
            Error::Corrupt { path, what, found, expected } => self.add(Severity::Error, path, what, found, expected),
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                self.add(Severity::Error, path, "the file", "none", "the file that the manifest names");
            }
            other => self.add(Severity::Error, path, "the file", &other.to_string(), "a readable file"),
        }
    }
}

#[cfg(test)]
mod tests;
