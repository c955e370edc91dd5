//! Decides what becomes of every file. Reads, and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::segments::{self, Examined, Hole, Source, why};
use super::series::{self, Found, Part};
use super::{Act, Action, DAMAGED, Loss, LossKind, LostRun, RepairReport, UNFINISHED, flip, wal};
use crate::check::Progress;
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::index::SeriesIndex;
use crate::layout::{self, Layout, META, SEGMENTS, SERIES, WAL};
use crate::manifest::{self, FORMAT, FileEntry, Manifest, SegmentEntry, SeriesEntry};
use crate::meta::Meta;
use crate::options::Options;
use crate::recover::database_id;
use crate::segment::Run;
use crate::segment::rebuild::Label;
use crate::series::SeriesId;

/// A file beyond this is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What the next manifest will say, and what is to be written for it.
#[derive(Debug)]
pub struct Plan {
    /// But for series and segments, which follow.
    pub manifest: Manifest,
    pub series: Vec<Part>,
    pub segments: Vec<SegmentPart>,
    /// Metadata to be written into a new file.
    pub new_meta: Option<Vec<u8>>,
    pub wal: Vec<WalPart>,
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
    Made { file: String, label: Label, source: Source },
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
    };
    planner.find_manifest()?;
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

    /// The bytes of a file; `None` when there is none. A disk that does not give them ends the repair.
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

    fn find_manifest(&mut self) -> Result<()> {
        let path = self.layout.manifest();
        let error = match Manifest::load(self.disk, self.layout) {
            Ok(Some(manifest)) => {
                self.manifest = Some(manifest);
                return Ok(());
            }
            Ok(None) => "there is none".to_owned(),
            Err(error @ (Error::Io { .. } | Error::Unfinished { .. })) => return Err(error),
            Err(error) => {
                let newer = matches!(error, Error::Format { .. });
                let found = body_of(self.disk, &path)?;
                if newer && found.is_none() {
                    return Err(error);
                }
                self.manifest = found;
                why(&error)
            }
        };
        if self.manifest.is_none() {
            self.manifest = self.prepared()?;
        }
        for file in [layout::MANIFEST, layout::MANIFEST_NEW] {
            if self.disk.open(&self.layout.named(file)).is_ok() {
                self.aside.insert(file.to_owned());
            }
        }
        self.act(Act::RebuildManifest, layout::MANIFEST, error);
        if self.manifest.is_none() {
            let what = "without a manifest, files are proven by their own checksums and by reading every row; \
                        whether a file is missing altogether, nobody can tell";
            self.unproven.push(what.to_owned());
        }
        Ok(())
    }

    /// A manifest that was about to take the place of the lost one, if all it names is there.
    fn prepared(&self) -> Result<Option<Manifest>> {
        let found = match Manifest::read(self.disk, &self.layout.manifest_new()) {
            Ok(found) => found,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => None,
        };
        let is_there = |entry: &FileEntry| {
            self.disk.open(&self.layout.named(&entry.file)).is_ok_and(|file| file.len() == entry.bytes)
        };
        Ok(found.filter(|manifest| manifest.files().all(is_there)))
    }

    fn judge_segments(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<(String, Examined)>> {
        let mut judged = Vec::new();
        if let Some(manifest) = self.manifest.clone() {
            for entry in &manifest.segments {
                let file = &entry.file.file;
                let examined = match self.read(file, progress)? {
                    None => {
                        let why = "there is no such file".to_owned();
                        Examined::Lost { why, entry: Some(entry.clone()), runs: Vec::new() }
                    }
                    Some(bytes) => {
                        let path = self.layout.named(file);
                        segments::examine(&path, file, &Bytes::from(bytes), Some(entry), &manifest.node)
                    }
                };
                judged.push((file.clone(), examined));
            }
            return Ok(judged);
        }
        for file in self.list(SEGMENTS)? {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            let path = self.layout.named(&file);
            judged.push((file.clone(), segments::examine(&path, &file, &Bytes::from(bytes), None, "")));
        }
        Ok(judged)
    }

    fn keys_in_wal(&mut self) -> Result<BTreeMap<u32, crate::series::SeriesKey>> {
        let mut known = BTreeMap::new();
        let files = self.wal_files()?;
        let last = files.len().saturating_sub(1);
        for (at, (_, file)) in files.iter().enumerate() {
            if let Some(bytes) = self.read(file, &mut |_| {})? {
                wal::keys(&bytes, at == last, &mut known);
            }
        }
        Ok(known)
    }

    fn wal_files(&self) -> Result<Vec<(u64, String)>> {
        let first = self.manifest.as_ref().map_or(0, |manifest| manifest.first_wal);
        let files = self.layout.wal_files(self.disk)?;
        let needed = files.into_iter().filter(|(number, _)| *number >= first);
        let relative = |path: &Path| path.file_name().map(|name| format!("{WAL}/{}", name.to_string_lossy()));
        Ok(needed.filter_map(|(number, path)| Some((number, relative(&path)?))).collect())
    }

    fn read_series(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<Found>> {
        let named: Vec<SeriesEntry> = self.manifest.as_ref().map(|found| found.series.clone()).unwrap_or_default();
        let has_manifest = self.manifest.is_some();
        let mut found = Vec::new();
        for file in self.list(SERIES)? {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            let path = self.layout.named(&file);
            let crc32 = crc32fast::hash(&bytes);
            if let Some(entry) = named.iter().find(|entry| entry.file.file == file) {
                if (entry.file.bytes, entry.file.crc32) != (bytes.len() as u64, crc32) {
                    // Its keys then are those of a file that tells them, and get a new one.
                    let good = flip::turned_back(&bytes, entry.file.crc32, flip::SHORT_BYTES_MAX)
                        .filter(|_| bytes.len() as u64 == entry.file.bytes);
                    let keys = good.and_then(|good| series::decode(&path, &good, entry.first_id, entry.count).ok());
                    found.extend(keys.map(|keys| Found { entry: entry.clone(), keys, named: false }));
                    self.set_aside(&file, "its bytes are not what the manifest says");
                    continue;
                }
                match series::decode(&path, &bytes, entry.first_id, entry.count) {
                    Ok(keys) => found.push(Found { entry: entry.clone(), keys, named: true }),
                    Err(error) => self.set_aside(&file, why(&error)),
                }
                continue;
            }
            match series::read(&path, &bytes) {
                Ok((first_id, keys)) => {
                    let file = FileEntry { file, bytes: bytes.len() as u64, crc32 };
                    let entry = SeriesEntry { file, first_id, count: keys.len() as u32 };
                    found.push(Found { entry, keys, named: !has_manifest });
                }
                Err(error) if !has_manifest => self.set_aside(&file, why(&error)),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn chain(
        &mut self,
        found: &[Found],
        in_wal: &BTreeMap<u32, crate::series::SeriesKey>,
        judged: &[(String, Examined)],
    ) -> Result<series::Chain> {
        let runs = judged.iter().flat_map(|(_, examined)| match examined {
            Examined::Sound { runs, .. } | Examined::Damaged { runs, .. } => runs.as_slice(),
            Examined::Lost { .. } => &[],
        });
        let used = runs.map(|run| run.series.0.saturating_add(1)).max().unwrap_or(0);
        let named = self.manifest.as_ref().map_or(0, |manifest| manifest.series_count());
        let end = used.max(u32::try_from(named).unwrap_or(u32::MAX));
        let chain = series::chain(found, in_wal, end)?;
        let lost_in = |first: u32, count: u32| -> Vec<u32> {
            chain.lost.iter().copied().filter(|id| *id >= first && id - first < count).collect()
        };
        for part in &chain.parts {
            let Part::Made { first_id, keys } = part else { continue };
            let entries = self.manifest.iter().flat_map(|manifest| &manifest.series);
            let file =
                entries.filter(|entry| entry.first_id <= *first_id).map(|entry| entry.file.file.clone()).next_back();
            let file = file.unwrap_or_else(|| SERIES.to_owned());
            let lost = lost_in(*first_id, keys.len() as u32);
            let known = keys.len() - lost.len();
            let why =
                format!("ids {first_id} to {}, {known} of them found elsewhere", *first_id as usize + keys.len() - 1);
            self.act(Act::RebuildSeries, &file, why);
            if lost.is_empty() {
                continue;
            }
            let series = lost.iter().map(|id| LostRun {
                id: *id,
                series: format!("series {id}"),
                first: i64::MIN,
                last: i64::MAX,
            });
            self.losses.push(Loss {
                kind: LossKind::Names,
                file,
                why: "the file that names them is damaged or lost".to_owned(),
                samples: None,
                first: None,
                last: None,
                series: series.collect(),
            });
        }
        Ok(chain)
    }

    fn choose_segments(&mut self, judged: Vec<(String, Examined)>, index: &SeriesIndex) -> Vec<SegmentPart> {
        let name = |id: SeriesId| index.key(id).map_or(format!("series {}", id.0), |key| key.to_string());
        let passed_over = if self.manifest.is_some() { BTreeMap::new() } else { superseded(&judged) };
        let mut parts = Vec::new();
        for (file, examined) in judged {
            if let Some((by, loses)) = passed_over.get(&file) {
                if *loses {
                    let entry = entry_of(&examined);
                    let why =
                        format!("{by} has samples of the same time and flush, and nobody can tell which are newer");
                    self.losses.push(segments::loss_of_all(&file, &why, entry, runs_of(&examined), &name));
                }
                self.set_aside(&file, format!("{by} came in its place"));
                continue;
            }
            match examined {
                Examined::Sound { entry, runs } if segments::in_order(&runs, index) => {
                    parts.push(SegmentPart::Kept(entry));
                }
                Examined::Sound { entry, .. } => {
                    let node = self.manifest.as_ref().map(|manifest| manifest.node.clone()).unwrap_or_default();
                    let label = Label::of(&entry, &node);
                    self.act(
                        Act::RebuildSegment,
                        &file,
                        "its series have other names now, and rows stand in their order",
                    );
                    self.aside.insert(file.clone());
                    parts.push(SegmentPart::Made { file, label, source: Source::Runs(entry) });
                }
                Examined::Damaged { why, label, source, holes, .. } => {
                    self.note_damage(&file, &why, &source, &holes, &name);
                    parts.push(SegmentPart::Made { file, label, source });
                }
                Examined::Lost { why, entry, runs } => {
                    self.losses.push(segments::loss_of_all(&file, &why, entry.as_ref(), &runs, &name));
                    if self.disk.open(&self.layout.named(&file)).is_ok() {
                        self.set_aside(&file, why);
                    } else {
                        self.act(Act::RebuildManifest, layout::MANIFEST, format!("{file}: {why}"));
                    }
                }
            }
        }
        if self.manifest.is_none() {
            self.agree_on_the_node(&mut parts);
        }
        parts
    }

    /// Without a manifest nothing proves the labels of segments: what most of them say of the node counts, and the
    /// others are written anew.
    fn agree_on_the_node(&mut self, parts: &mut [SegmentPart]) {
        let said = |part: &SegmentPart| match part {
            SegmentPart::Made { label, .. } => Some(label.node.clone()).filter(|node| !node.is_empty()),
            SegmentPart::Kept(entry) => node_of(self.disk, self.layout, entry),
        };
        let nodes: Vec<Option<String>> = parts.iter().map(said).collect();
        let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
        for node in nodes.iter().flatten() {
            *votes.entry(node).or_default() += 1;
        }
        let Some((chosen, _)) = votes.into_iter().max_by_key(|(node, count)| (*count, is_node_name(node))) else {
            return;
        };
        for (part, said) in parts.iter_mut().zip(&nodes) {
            match part {
                SegmentPart::Made { label, .. } => label.node.clone_from(chosen),
                SegmentPart::Kept(entry) if said.as_ref() != Some(chosen) => {
                    let (file, entry) = (entry.file.file.clone(), entry.clone());
                    self.act(Act::RebuildSegment, &file, "it names another node than the other files do");
                    self.aside.insert(file.clone());
                    let label = Label::of(&entry, chosen);
                    *part = SegmentPart::Made { file, label, source: Source::Runs(entry) };
                }
                SegmentPart::Kept(_) => {}
            }
        }
    }

    fn note_damage(
        &mut self,
        file: &str,
        why: &str,
        source: &Source,
        holes: &[Hole],
        name: &dyn Fn(SeriesId) -> String,
    ) {
        self.aside.insert(file.to_owned());
        if matches!(source, Source::Healed(_)) {
            self.act(Act::Heal, file, why);
        } else if holes.is_empty() {
            self.act(Act::RebuildSegment, file, why);
        } else {
            self.act(Act::SalvageSegment, file, why);
            self.losses.push(segments::loss_of(file, why, holes, name));
        }
        if self.manifest.is_none() && matches!(source, Source::Parquet(_)) {
            let what = "its rows were read without checksums, which are lost with its run index and the manifest";
            self.unproven.push(format!("{file}: {what}"));
        }
    }

    fn choose_meta(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Option<FileEntry>> {
        let named = self.manifest.as_ref().map(|manifest| manifest.meta.clone());
        if let Some(named) = named {
            let Some(entry) = named else { return Ok(None) };
            let bytes = self.read(&entry.file, progress)?;
            let good = bytes.as_ref().is_some_and(|bytes| {
                (bytes.len() as u64, crc32fast::hash(bytes)) == (entry.bytes, entry.crc32) && is_meta(bytes)
            });
            if good {
                return Ok(Some(entry));
            }
            let healed = bytes.as_ref().filter(|bytes| bytes.len() as u64 == entry.bytes);
            let healed = healed.and_then(|bytes| flip::turned_back(bytes, entry.crc32, flip::SHORT_BYTES_MAX));
            if let Some(good) = healed.filter(|good| is_meta(good)) {
                self.aside.insert(entry.file.clone());
                self.act(Act::Heal, &entry.file, "one bit is not what was written");
                self.new_meta = Some(good);
                return Ok(None);
            }
            let why =
                if bytes.is_some() { "its bytes are not what the manifest says" } else { "there is no such file" };
            self.lose_meta(&entry.file, why);
            if bytes.is_some() {
                self.set_aside(&entry.file, why);
            } else {
                self.act(Act::RebuildManifest, layout::MANIFEST, format!("{}: {why}", entry.file));
            }
            return Ok(None);
        }
        // The newest that can be read: there is more than one only where a flush was cut off.
        for file in self.list(META)?.into_iter().rev() {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            if is_meta(&bytes) {
                self.unproven.push(format!("{file}: its checksum is lost with the manifest"));
                return Ok(Some(FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(&bytes) }));
            }
            self.lose_meta(&file, "it is no JSON of ours");
            self.set_aside(&file, "it is no JSON of ours");
        }
        Ok(None)
    }

    fn lose_meta(&mut self, file: &str, why: &str) {
        let (file, why) = (file.to_owned(), why.to_owned());
        let loss =
            Loss { kind: LossKind::Metadata, file, why, samples: None, first: None, last: None, series: Vec::new() };
        self.losses.push(loss);
    }

    fn judge_wal(&mut self, index: &SeriesIndex, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<WalPart>> {
        let files = self.wal_files()?;
        let last = files.len().saturating_sub(1);
        let mut parts = Vec::new();
        for (at, (number, file)) in files.iter().enumerate() {
            let Some(bytes) = self.read(file, progress)? else { continue };
            let judged = wal::judge(file, *number, &bytes, at == last, index)?;
            if let Some(bytes) = judged.anew {
                let why = judged.losses.first().map_or("series that it speaks of are unknown", |loss| &*loss.why);
                let act = if bytes.is_empty() { Act::SetAside } else { Act::RebuildWal };
                self.act(act, file, why);
                self.aside.insert(file.clone());
                parts.push(WalPart { file: file.clone(), bytes });
            }
            self.losses.extend(judged.losses);
            if !judged.unnamed.is_empty() {
                let series = judged.unnamed.iter().map(|id| LostRun {
                    id: id.0,
                    series: format!("series {}", id.0),
                    first: i64::MIN,
                    last: i64::MAX,
                });
                self.losses.push(Loss {
                    kind: LossKind::Names,
                    file: file.clone(),
                    why: "the frames that name them are damaged or lost".to_owned(),
                    samples: None,
                    first: None,
                    last: None,
                    series: series.collect(),
                });
            }
        }
        Ok(parts)
    }

    fn finish(
        mut self,
        series: Vec<Part>,
        segments: Vec<SegmentPart>,
        meta: Option<FileEntry>,
        wal: Vec<WalPart>,
        index: SeriesIndex,
    ) -> Result<Plan> {
        for file in self.list(WAL)? {
            let path = self.layout.named(&file);
            if layout::wal_number(&path).is_none() && !layout::is_unfinished(&path) {
                self.set_aside(&file, "it is no file of the WAL: an open put damaged bytes there");
            }
        }
        let mut manifest = match self.manifest.take() {
            Some(manifest) => manifest,
            None => {
                self.set_aside_unnamed(&series, &segments, meta.as_ref())?;
                self.new_manifest(&segments)?
            }
        };
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
        let Planner { actions, losses, unproven, aside, new_meta, .. } = self;
        Ok(Plan { manifest, series, segments, new_meta, wal, aside, index, actions, losses, unproven })
    }

    /// Whatever the next manifest does not name would be removed by the next open.
    fn set_aside_unnamed(&mut self, series: &[Part], segments: &[SegmentPart], meta: Option<&FileEntry>) -> Result<()> {
        let mut named: BTreeSet<String> = meta.map(|entry| entry.file.clone()).into_iter().collect();
        for part in series {
            if let Part::Kept(entry) = part {
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
                    self.set_aside(&file, "other files hold what is in it, as far as it can be told");
                }
            }
        }
        Ok(())
    }

    /// A manifest of a database whose own is lost: what it says besides files is taken from them, or is new.
    fn new_manifest(&self, segments: &[SegmentPart]) -> Result<Manifest> {
        let hints = Hints::read(self.disk, self.layout);
        let of_segments = segments.iter().find_map(|part| match part {
            SegmentPart::Made { label, .. } => Some(label.node.clone()),
            SegmentPart::Kept(entry) => node_of(self.disk, self.layout, entry),
        });
        let node = of_segments.or(hints.node).unwrap_or_else(|| self.options.node.clone());
        let database = hints.database.unwrap_or_else(|| database_id(self.options, self.layout));
        let mut manifest = Manifest::new(database, node);
        manifest.generation = hints.generation;
        let first = self.wal_files()?.first().map(|(number, _)| *number);
        manifest.first_wal = first.unwrap_or(hints.first_wal).max(1);
        Ok(manifest)
    }
}

/// Lines of a damaged manifest that can do no harm if they are wrong.
#[derive(Debug, Default)]
struct Hints {
    database: Option<String>,
    node: Option<String>,
    generation: u64,
    first_wal: u64,
}

impl Hints {
    /// A number beyond this was never counted up to.
    const NUMBER_MAX: u64 = 1 << 40;

    fn read(disk: &dyn Disk, layout: &Layout) -> Self {
        let bytes = disk::read_file(disk, &layout.manifest(), manifest::BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let field = |name: &str| -> Option<String> {
            let start = format!("  \"{name}\": ");
            let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
            Some(line.trim_end_matches(',').trim_matches('"').to_owned())
        };
        let number = |name: &str| {
            let found = field(name).and_then(|text| text.parse::<u64>().ok());
            found.filter(|number| *number < Self::NUMBER_MAX).unwrap_or(0)
        };
        let is_id = |text: &String| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self {
            database: field("database").filter(is_id),
            node: field("node").filter(|name| is_node_name(name)),
            generation: number("generation"),
            first_wal: number("first_wal"),
        }
    }
}

fn is_node_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 255 && text.bytes().all(good)
}

fn node_of(disk: &dyn Disk, layout: &Layout, entry: &SegmentEntry) -> Option<String> {
    let path = layout.named(&entry.file.file);
    let bytes = disk::read_file(disk, &path, FILE_BYTES_MAX).ok()?;
    crate::segment::rebuild::label(&path, &Bytes::from(bytes)).ok().map(|label| label.node)
}

/// A manifest that is proven although it cannot be read as it is: one bit of it is turned around, or its first line is
/// damaged and one of the line's words is still the checksum of all the rest.
fn body_of(disk: &dyn Disk, path: &Path) -> Result<Option<Manifest>> {
    let bytes = match disk::read_file(disk, path, manifest::BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(_) => return Ok(None),
    };
    let Some(end) = bytes.iter().take(128).position(|byte| *byte == b'\n') else { return Ok(None) };
    let (head, body) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 1..]);
    let crc = crc32fast::hash(body);
    if head.split(' ').any(|word| u32::from_str_radix(word, 16) == Ok(crc)) {
        return Ok(parsed(body));
    }
    let crc = head.split(' ').nth(2).and_then(|word| u32::from_str_radix(word, 16).ok());
    let is_whole = head.split(' ').nth(3).and_then(|word| word.parse().ok()) == Some(body.len());
    let good = crc.filter(|_| is_whole).and_then(|crc| flip::turned_back(body, crc, flip::SHORT_BYTES_MAX));
    Ok(good.and_then(|body| parsed(&body)))
}

fn parsed(body: &[u8]) -> Option<Manifest> {
    serde_json::from_slice(body).ok().filter(|manifest: &Manifest| manifest.format == FORMAT)
}

fn is_meta(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Meta>(bytes).is_ok()
}

/// Files of which another holds everything, and that other; and those that collide with another, which are lost.
fn superseded(judged: &[(String, Examined)]) -> BTreeMap<String, (String, bool)> {
    // Sound files first, then by the number in their name: what was written later stands for what it was made of.
    let mut order: Vec<(&String, &SegmentEntry, bool)> = Vec::new();
    let entries: Vec<(String, SegmentEntry, bool)> = judged
        .iter()
        .filter_map(|(file, examined)| {
            let sound = matches!(examined, Examined::Sound { .. });
            let entry = match examined {
                Examined::Sound { entry, .. } => entry.clone(),
                Examined::Damaged { label, .. } => label.entry(file.clone(), &[]),
                Examined::Lost { .. } => return None,
            };
            Some((file.clone(), entry, sound))
        })
        .collect();
    order.extend(entries.iter().map(|(file, entry, sound)| (file, entry, *sound)));
    order.sort_by_key(|(file, _, sound)| (!sound, std::cmp::Reverse(layout::number_in(file))));
    let mut kept: Vec<(&String, &SegmentEntry)> = Vec::new();
    let mut passed_over = BTreeMap::new();
    for (file, entry, _) in order {
        let by = kept.iter().find(|(_, other)| segments::covers(other, entry));
        let collides = || kept.iter().find(|(_, other)| segments::collide(other, entry));
        match (by, collides()) {
            (Some((by, _)), _) => passed_over.insert(file.clone(), ((*by).clone(), false)),
            (None, Some((by, _))) => passed_over.insert(file.clone(), ((*by).clone(), true)),
            (None, None) => {
                kept.push((file, entry));
                None
            }
        };
    }
    passed_over
}

fn entry_of(examined: &Examined) -> Option<&SegmentEntry> {
    match examined {
        Examined::Sound { entry, .. } => Some(entry),
        Examined::Lost { entry, .. } => entry.as_ref(),
        Examined::Damaged { source: Source::Runs(entry) | Source::Healed(entry), .. } => Some(entry),
        Examined::Damaged { .. } => None,
    }
}

fn runs_of(examined: &Examined) -> &[Run] {
    match examined {
        Examined::Sound { runs, .. } | Examined::Damaged { runs, .. } | Examined::Lost { runs, .. } => runs,
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
