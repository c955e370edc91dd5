//! Decides what becomes of every file. It reads, and writes nothing.
//!
//! [`Planner`] handles the kinds of files one after the other, in an order in which each tells what the next needs to
//! know. Each submodule handles one kind.

mod manifest;
mod meta;
mod node;
mod segments;
mod series;
mod wal;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::segments::RepairSource;
use super::series::SeriesPart;
use super::{Act, Action, Loss, LossKind, LostRun, RepairReport};
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::layout::{self, DAMAGED, Layout, META, SEGMENTS, SERIES, UNFINISHED, WAL};
use crate::manifest::{FileEntry, Manifest, SegmentEntry};
use crate::options::Options;
use crate::progress::Progress;
use crate::segment::label::Label;
use crate::wal::WalList;

/// A file beyond this is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What the next manifest will say, and what is to be written for it.
#[derive(Debug)]
pub struct Plan {
    /// But for series and segments, which follow.
    pub manifest: Manifest,
    pub series: Vec<SeriesPart>,
    pub segments: Vec<SegmentPart>,
    /// Metadata to be written into a new file.
    pub new_meta: Option<Vec<u8>>,
    pub wal: Vec<WalPart>,
    /// Whether the list of WAL files says what will not be true any more.
    pub drops_list: bool,
    /// Files to keep in `damaged/`, relative to the database. Those that nothing replaces go.
    pub aside: BTreeSet<String>,
    /// All series, for the order of rows.
    pub index: SeriesIndex,
    pub actions: Vec<Action>,
    pub losses: Vec<Loss>,
    pub unproven: Vec<String>,
}

#[derive(Debug)]
pub enum SegmentPart {
    Kept(SegmentEntry),
    Made { file: String, label: Label, source: RepairSource },
}

/// A WAL file and the bytes that take its place; none: it goes.
#[derive(Debug)]
pub struct WalPart {
    pub file: String,
    pub bytes: Vec<u8>,
}

impl Plan {
    pub fn report(&self) -> RepairReport {
        RepairReport {
            actions: self.actions.clone(),
            losses: self.losses.clone(),
            unproven: self.unproven.clone(),
            ..RepairReport::default()
        }
    }
}

/// # Errors
/// NotFound when the directory holds nothing of a database.
pub fn is_database(options: &Options, layout: &Layout) -> Result<()> {
    if layout::holds_database(&*options.disk, layout)? {
        return Ok(());
    }
    let why = format!("it has no {}", layout::MANIFEST);
    Err(Error::NotADatabase { path: layout.dir().to_path_buf(), why })
}

/// # Errors
/// NotFound; Io; Format when a newer telem wrote it.
pub fn make(options: &Options, layout: &Layout, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Plan> {
    is_database(options, layout)?;
    let disk = &*options.disk;
    let mut planner = Planner {
        options,
        layout,
        disk,
        bytes_done: 0,
        bytes_total: bytes_of_all(disk, layout)?,
        manifest: None,
        actions: Vec::new(),
        losses: Vec::new(),
        unproven: Vec::new(),
        aside: BTreeSet::new(),
        new_meta: None,
        list: WalList::default(),
        drops_list: false,
    };
    planner.find_manifest()?;
    planner.find_list()?;
    let judged = planner.judge_segments(progress)?;
    let in_wal = planner.keys_in_wal()?;
    let found = planner.read_series(progress)?;
    let chain = planner.chain(&found, &in_wal, &judged)?;
    let index = SeriesIndex::default();
    for key in &chain.keys {
        index.get_or_insert(key, u32::MAX)?;
    }
    let segments = planner.choose_segments(judged, &index);
    let meta = planner.choose_meta(progress)?;
    let wal = planner.judge_wal(&index, progress)?;
    planner.finish(chain.parts, segments, meta, wal, index)
}

struct Planner<'a> {
    options: &'a Options,
    layout: &'a Layout,
    disk: &'a dyn Disk,
    bytes_done: u64,
    bytes_total: u64,
    /// One that can be believed.
    manifest: Option<Manifest>,
    actions: Vec<Action>,
    losses: Vec<Loss>,
    unproven: Vec<String>,
    aside: BTreeSet<String>,
    new_meta: Option<Vec<u8>>,
    list: WalList,
    drops_list: bool,
}

impl Planner<'_> {
    fn act(&mut self, act: Act, file: &str, why: impl Into<String>) {
        self.actions.push(Action { act, file: file.to_owned(), why: why.into() });
    }

    fn set_aside(&mut self, file: &str, why: impl Into<String>) {
        if self.aside.insert(file.to_owned()) {
            self.act(Act::SetAside, file, why);
        }
    }

    /// Their samples stay, under names that say so.
    fn lose_names(&mut self, file: String, why: &str, ids: impl Iterator<Item = u32>) {
        let lost = |id| LostRun { id, series: format!("series {id}"), first: i64::MIN, last: i64::MAX };
        self.losses.push(Loss {
            kind: LossKind::Names,
            file,
            why: why.to_owned(),
            samples: None,
            first: None,
            last: None,
            series: ids.map(lost).collect(),
        });
    }

    /// The bytes of a file, if it exists. A disk that fails to read ends the repair.
    fn read(&mut self, file: &str, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Option<Vec<u8>>> {
        let path = self.layout.named(file);
        let bytes = match disk::read_file(self.disk, &path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        self.bytes_done += bytes.len() as u64;
        progress(Progress {
            file: &path,
            bytes_done: self.bytes_done.min(self.bytes_total),
            bytes_total: self.bytes_total,
        });
        Ok(Some(bytes))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let files = self.layout.list(self.disk, folder)?;
        let name =
            |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(|name| format!("{folder}/{name}"));
        Ok(files.iter().filter_map(name).collect())
    }

    fn finish(
        mut self,
        series: Vec<SeriesPart>,
        segments: Vec<SegmentPart>,
        meta: Option<FileEntry>,
        wal: Vec<WalPart>,
        index: SeriesIndex,
    ) -> Result<Plan> {
        for file in self.list(WAL)? {
            let path = self.layout.named(&file);
            if layout::wal_number(&path).is_none() && !layout::is_unfinished(&path) {
                self.set_aside(&file, "it is not a file of the WAL: an open put damaged bytes there");
            }
        }
        let mut manifest = match self.manifest.take() {
            Some(manifest) => manifest,
            None => {
                self.set_aside_unnamed(&series, &segments, meta.as_ref())?;
                self.new_manifest(&segments)?
            }
        };
        // Of another file, or of one that is lost, it is a copy of nothing.
        manifest.job = manifest.job.filter(|job| meta.as_ref().is_some_and(|entry| job.is_of(&entry.file)));
        manifest.meta = meta;
        let (mut sequence, mut file) = (manifest.next_sequence, manifest.next_file);
        for folder in [SEGMENTS, SERIES, META] {
            for name in self.list(folder)? {
                let number = layout::number_in(&name).map_or(0, |number| number.saturating_add(1));
                let next = if folder == SEGMENTS { &mut sequence } else { &mut file };
                *next = (*next).max(number);
            }
        }
        for part in &segments {
            let max = match part {
                SegmentPart::Kept(entry) => entry.sequence_max,
                SegmentPart::Made { label, .. } => label.sequence_max,
            };
            sequence = sequence.max(max.saturating_add(1));
        }
        (manifest.next_sequence, manifest.next_file) = (sequence, file);
        manifest.generation += 1;
        let Planner { actions, losses, unproven, aside, new_meta, drops_list, .. } = self;
        Ok(Plan { manifest, series, segments, new_meta, wal, drops_list, aside, index, actions, losses, unproven })
    }

    /// Whatever the next manifest does not name would be removed by the next open.
    fn set_aside_unnamed(
        &mut self,
        series: &[SeriesPart],
        segments: &[SegmentPart],
        meta: Option<&FileEntry>,
    ) -> Result<()> {
        let mut named: BTreeSet<String> = meta.map(|entry| entry.file.clone()).into_iter().collect();
        for part in series {
            if let SeriesPart::Kept(entry) = part {
                named.insert(entry.file.file.clone());
            }
        }
        for part in segments {
            match part {
                SegmentPart::Kept(entry) => named.insert(entry.file.file.clone()),
                SegmentPart::Made { file, .. } => named.insert(file.clone()),
            };
        }
        for folder in [SEGMENTS, SERIES, META] {
            for file in self.list(folder)? {
                if !named.contains(&file) {
                    self.set_aside(&file, "other files hold its contents, as far as can be determined");
                }
            }
        }
        Ok(())
    }
}

fn bytes_of_all(disk: &dyn Disk, layout: &Layout) -> Result<u64> {
    let mut bytes = 0;
    for folder in [SEGMENTS, SERIES, META, WAL] {
        for path in layout.list(disk, folder)? {
            bytes += disk.open(&path).map_or(0, |file| file.len());
        }
    }
    Ok(bytes)
}

/// What an earlier repair that was cut off had lost; `None` when there was none.
///
/// # Errors
/// Io.
pub fn unfinished(disk: &dyn Disk, layout: &Layout) -> Result<Option<Vec<Loss>>> {
    let path = layout.sub(DAMAGED).join(UNFINISHED);
    match disk::read_file(disk, &path, FILE_BYTES_MAX) {
        Ok(bytes) => {
            let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            Ok(Some(serde_json::from_value(json["losses"].clone()).unwrap_or_default()))
        }
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
