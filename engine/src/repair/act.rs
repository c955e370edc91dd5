//! Carries a repair plan out, in an order that may be interrupted anywhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::plan::{self, Plan, SegmentPart, WalPart};
use super::series::SeriesPart;
use super::{Loss, RepairReport, segments};
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::flush::take;
use crate::layout::{self, DAMAGED, Layout, META, SEGMENTS, SERIES, UNFINISHED, WAL};
use crate::lock::WriterLock;
use crate::manifest::{FileEntry, Manifest, SegmentEntry, SeriesEntry};
use crate::options::Options;
use crate::recover::make_folders;
use crate::series_file;

/// A file beyond this is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Names that are tried for a file that is set aside if earlier ones are taken.
const NAMES_MAX: u32 = 1 << 20;

/// Does what `plan` says.
///
/// # Errors
/// Unavailable when the disk fails or another process took the database over; then it can be run again.
pub fn carry_out(options: &Options, layout: &Layout, plan: &Plan, lock: &WriterLock) -> Result<RepairReport> {
    let disk = &*options.disk;
    let mut report = RepairReport { done: true, ..plan.report() };
    let before = plan::unfinished(disk, layout)?;
    if plan.report().is_nothing() && before.is_none() {
        return Ok(report);
    }
    report.losses = united(before.unwrap_or_default(), &plan.losses);
    let act = RepairRun { disk, layout };
    act.make_folders()?;
    act.note(&report)?;
    if !plan.report().is_nothing() {
        let manifest = act.write_files(plan)?;
        for file in &plan.aside {
            act.copy_aside(file)?;
        }
        // What only the list tells from a good file goes while there is a list, and what the list would not know again
        // is written when there is none.
        let (gone, anew): (Vec<&WalPart>, Vec<_>) = plan.wal.iter().partition(|part| part.bytes.is_empty());
        for part in gone {
            act.replace_wal(part)?;
        }
        if plan.drops_list {
            disk::remove_if_there(disk, &layout.wal_list())?;
            act.sync_dir(layout.dir())?;
        }
        for part in anew {
            act.replace_wal(part)?;
        }
        lock.check()?;
        manifest.prepare(disk, layout)?;
        Manifest::install(disk, layout)?;
        act.remove_copied(plan, &manifest)?;
    }
    report.report_file = Some(act.finish_note()?);
    Ok(report)
}

/// What an unfinished repair lost and what this one does, each once.
fn united(before: Vec<Loss>, now: &[Loss]) -> Vec<Loss> {
    let mut all = now.to_vec();
    let known = |one: &Loss| now.iter().any(|other| (other.kind, &other.file) == (one.kind, &one.file));
    all.extend(before.into_iter().filter(|one| !known(one)));
    all
}

struct RepairRun<'a> {
    disk: &'a dyn Disk,
    layout: &'a Layout,
}

impl RepairRun<'_> {
    fn damaged(&self) -> PathBuf {
        self.layout.sub(DAMAGED)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.disk.sync_dir(dir).map_err(Error::io("sync", dir))
    }

    fn make_folders(&self) -> Result<()> {
        make_folders(self.disk, self.layout)?;
        for folder in ["", SEGMENTS, SERIES, META, WAL] {
            let dir = self.damaged().join(folder);
            self.disk.create_dir(&dir).map_err(Error::io("create", &dir))?;
        }
        self.sync_dir(&self.damaged())?;
        self.sync_dir(self.layout.dir())
    }

    /// Puts a file of `bytes` in the place of whatever is there, in one step.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temporary = layout::unfinished(path);
        disk::remove_if_there(self.disk, &temporary)?;
        disk::write_file(self.disk, &temporary, bytes)?;
        self.disk.rename(&temporary, path).map_err(Error::io("rename", &temporary))?;
        self.sync_dir(path.parent().unwrap_or(self.layout.dir()))
    }

    /// The losses are durable before anything changes.
    fn note(&self, report: &RepairReport) -> Result<()> {
        let json = serde_json::to_vec_pretty(report)
            .map_err(|error| Error::Internal { what: format!("a report cannot be written as JSON: {error}") })?;
        self.replace(&self.damaged().join(UNFINISHED), &json)
    }

    /// The note gets the name under which it stays.
    fn finish_note(&self) -> Result<PathBuf> {
        let dir = self.damaged();
        let taken = self.layout.list(self.disk, DAMAGED)?;
        let name = |number: u32| dir.join(format!("repair-{number:04}.json"));
        let free = (1..NAMES_MAX).map(name).find(|path| !taken.contains(path));
        let path = free.ok_or_else(|| Error::Internal { what: "every name for a report is taken".to_owned() })?;
        let unfinished = dir.join(UNFINISHED);
        self.disk.rename(&unfinished, &path).map_err(Error::io("rename", &unfinished))?;
        self.sync_dir(&dir)?;
        Ok(path)
    }

    /// Writes the files that are made anew, and returns the manifest that names them.
    fn write_files(&self, plan: &Plan) -> Result<Manifest> {
        let mut manifest = plan.manifest.clone();
        manifest.series.clear();
        manifest.segments.clear();
        for part in &plan.series {
            let entry = match part {
                SeriesPart::Kept(entry) => entry.clone(),
                SeriesPart::Made { first_id, keys } => {
                    let name = layout::series_name(take(&mut manifest.next_file));
                    let file = self.write_new(name, &series_file::encode(*first_id, keys)?)?;
                    SeriesEntry { file, first_id: *first_id, count: keys.len() as u32 }
                }
            };
            manifest.series.push(entry);
        }
        self.sync_dir(&self.layout.sub(SERIES))?;
        if let Some(bytes) = &plan.new_meta {
            let name = layout::meta_name(take(&mut manifest.next_file));
            let meta = serde_json::from_slice(bytes).unwrap_or_default();
            manifest.set_meta(self.write_new(name, bytes)?, &meta);
            self.sync_dir(&self.layout.sub(META))?;
        }
        for part in &plan.segments {
            match part {
                SegmentPart::Kept(entry) => manifest.segments.push(entry.clone()),
                SegmentPart::Made { .. } => {
                    manifest.segments.extend(self.write_segment(part, plan, &mut manifest.next_sequence)?)
                }
            }
        }
        self.sync_dir(&self.layout.sub(SEGMENTS))?;
        Ok(manifest)
    }

    fn write_segment(&self, part: &SegmentPart, plan: &Plan, next: &mut u64) -> Result<Option<SegmentEntry>> {
        let SegmentPart::Made { file, label, source } = part else { return Ok(None) };
        let path = self.layout.named(file);
        let bytes = Bytes::from(disk::read_file(self.disk, &path, FILE_BYTES_MAX)?);
        let Some(encoded) = segments::write_anew(&path, &bytes, label, source, &plan.index)? else { return Ok(None) };
        let name = layout::segment_name(label.window, take(next));
        let file = self.write_new(name, &encoded.bytes)?;
        Ok(Some(SegmentEntry {
            file,
            rows: encoded.rows,
            window_start: label.window.start.micros(),
            window_end: label.window.end.micros(),
            first: encoded.first.micros(),
            last: encoded.last.micros(),
            sequence_min: label.sequence_min,
            sequence_max: label.sequence_max,
            tail: encoded.tail,
            tail_crc32: encoded.tail_crc32,
        }))
    }

    fn write_new(&self, file: String, bytes: &[u8]) -> Result<FileEntry> {
        disk::write_file(self.disk, &self.layout.named(&file), bytes)?;
        Ok(FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) })
    }

    /// Makes a durable copy of a file, under its name or, if that is taken, under that name and a number.
    fn copy_aside(&self, file: &str) -> Result<()> {
        let from = self.layout.named(file);
        let bytes = match disk::read_file(self.disk, &from, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for number in 0..NAMES_MAX {
            let suffix = if number == 0 { String::new() } else { format!(".{number}") };
            let to = self.damaged().join(format!("{file}{suffix}"));
            match disk::read_file(self.disk, &to, FILE_BYTES_MAX) {
                Ok(there) if there == bytes => return Ok(()),
                Ok(_) | Err(Error::Corrupt { .. }) => {}
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    return self.replace(&to, &bytes);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Internal { what: format!("every name for a copy of {file} is taken") })
    }

    fn replace_wal(&self, part: &WalPart) -> Result<()> {
        let path = self.layout.named(&part.file);
        if part.bytes.is_empty() {
            disk::remove_if_there(self.disk, &path)?;
            return self.sync_dir(&self.layout.sub(WAL));
        }
        self.replace(&path, &part.bytes)
    }

    /// Removes what was copied and is not named any more.
    fn remove_copied(&self, plan: &Plan, manifest: &Manifest) -> Result<()> {
        let kept: BTreeMap<&str, ()> = manifest.files().map(|entry| (&*entry.file, ())).collect();
        let replaced = |file: &str| plan.wal.iter().any(|part| part.file == file) || file == layout::MANIFEST;
        for file in plan.aside.iter().filter(|file| !kept.contains_key(&***file) && !replaced(file)) {
            disk::remove_if_there(self.disk, &self.layout.named(file))?;
        }
        for folder in [SEGMENTS, SERIES, META, WAL] {
            self.sync_dir(&self.layout.sub(folder))?;
        }
        Ok(())
    }
}
