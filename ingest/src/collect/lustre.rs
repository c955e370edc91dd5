//! Lustre clients: bytes and operations of each file system, from `llite/FS-INSTANCE/stats`.
//!
//! Three places, by age: `/proc/fs/lustre` to Lustre 2.11, debugfs since 2.12, where only root may read; and
//! `/sys/fs/lustre`, which everybody reads and which says no more than that there is such a file system. The statistics
//! begin anew when somebody clears them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::inventory::{DeviceKind, InventoryEntry};
use super::series::{Out, Slot};
use super::source::{Source, Tree, names_in};
use super::subject::{SourceState, Subject};
use super::text::{fields, lines, number};

/// Most mounts of Lustre that are read, and most targets of metadata.
pub const LUSTRE_MAX: usize = 64;
/// Most operations of a file system that are told apart.
const OPERATIONS_MAX: usize = 128;
const READ_INTERVAL: Duration = Duration::from_secs(1);

const DEBUG: &str = "sys/kernel/debug/lustre";
const PROC: &str = "proc/fs/lustre";
/// Since 2.12; says nothing but names.
const NAMES: &str = "sys/fs/lustre";
const REMEDY: &str = "Lustre's statistics need root since 2.12: an administrator can open them (chmod a+rx \
                      /sys/kernel/debug); without, --level 4 tells what your processes read and wrote by system calls \
                      (process_io_read_chars_total)";

/// A line of `stats` or `md_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LustreCount<'a> {
    pub operation: &'a [u8],
    pub count: u64,
    /// `bytes`, `usecs`, `reqs`.
    pub unit: &'a [u8],
    /// Of all samples; some have none.
    pub sum: Option<u64>,
}

/// `read_bytes  500 samples [bytes] 4096 1048576 209715200 109951162777600`: count, unit, least, most, sum.
pub(crate) fn parse(text: &[u8]) -> impl Iterator<Item = LustreCount<'_>> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        let (operation, count) = (fields.next()?, number(fields.next()?)?);
        (fields.next() == Some(b"samples")).then_some(())?;
        let unit = fields.next()?.strip_prefix(b"[")?.strip_suffix(b"]")?;
        Some(LustreCount { operation, count, unit, sum: fields.nth(2).and_then(number) })
    })
}

/// What is summed over all mounts of a file system.
#[derive(Debug)]
struct LustreSum {
    slot: Slot,
    sum: Option<u64>,
}

/// Whether all files of a file system could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LustreWhole {
    Whole,
    /// Some of them: what the others say is no sum.
    Part,
}

impl LustreSum {
    fn new(metric: &'static str, tags: &[(&'static str, &str)]) -> Self {
        Self { slot: Slot::tagged(metric, tags), sum: None }
    }

    fn add(&mut self, count: u64) {
        self.sum = Some(self.sum.unwrap_or(0).saturating_add(count));
    }

    fn put(&mut self, whole: LustreWhole, out: &mut Out<'_>) {
        if let Some(sum) = self.sum.take().filter(|_| whole == LustreWhole::Whole) {
            out.int(&mut self.slot, sum);
        }
    }
}

/// Operations of a file system: apart, or their sum.
#[derive(Debug)]
struct LustreOperations {
    metric: &'static str,
    each: bool,
    all: BTreeMap<Box<[u8]>, LustreSum>,
}

impl LustreOperations {
    fn new(metric: &'static str, each: bool) -> Self {
        Self { metric, each, all: BTreeMap::new() }
    }

    fn add(&mut self, fs: &str, operation: &[u8], count: u64) {
        let key = if self.each { operation } else { b"" };
        if let Some(sum) = self.all.get_mut(key) {
            return sum.add(count);
        }
        if self.all.len() < OPERATIONS_MAX {
            let name = String::from_utf8_lossy(operation);
            let tags = [("fs", fs), ("operation", &*name)];
            let mut sum = LustreSum::new(self.metric, if self.each { &tags } else { &tags[..1] });
            sum.add(count);
            self.all.insert(key.into(), sum);
        }
    }
}

#[derive(Debug)]
struct LustreFileSystem {
    name: String,
    stats: Vec<Source>,
    metadata: Vec<Source>,
    /// Bytes and calls, read and written.
    bytes: [LustreSum; 2],
    calls: [LustreSum; 2],
    operations: LustreOperations,
    metadata_operations: LustreOperations,
}

impl LustreFileSystem {
    fn new(name: &str, level: u8) -> Self {
        let tags = [("fs", name)];
        let sums = |metrics: [&'static str; 2]| metrics.map(|metric| LustreSum::new(metric, &tags));
        Self {
            name: name.to_owned(),
            stats: Vec::new(),
            metadata: Vec::new(),
            bytes: sums(["lustre_client_read_bytes_total", "lustre_client_written_bytes_total"]),
            calls: sums(["lustre_client_reads_total", "lustre_client_writes_total"]),
            operations: LustreOperations::new("lustre_client_operations_total", level >= 3),
            metadata_operations: LustreOperations::new("lustre_client_metadata_operations_total", true),
        }
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut statistics = LustreWhole::Whole;
        for source in &mut self.stats {
            let Some(text) = source.read() else {
                statistics = LustreWhole::Part;
                continue;
            };
            for LustreCount { operation, count, unit, sum } in parse(text) {
                match (operation, unit) {
                    (b"read_bytes" | b"write_bytes", _) => {
                        let way = usize::from(operation == b"write_bytes");
                        self.calls[way].add(count);
                        if let Some(bytes) = sum {
                            self.bytes[way].add(bytes);
                        }
                    }
                    // Sizes of what is counted elsewhere.
                    (_, b"bytes" | b"pages") => {}
                    _ => self.operations.add(&self.name, operation, count),
                }
            }
        }
        let mut metadata = LustreWhole::Whole;
        for source in &mut self.metadata {
            let Some(text) = source.read() else {
                metadata = LustreWhole::Part;
                continue;
            };
            for LustreCount { operation, count, .. } in parse(text) {
                self.metadata_operations.add(&self.name, operation, count);
            }
        }
        self.bytes.iter_mut().chain(&mut self.calls).for_each(|sum| sum.put(statistics, out));
        self.operations.all.values_mut().for_each(|sum| sum.put(statistics, out));
        self.metadata_operations.all.values_mut().for_each(|sum| sum.put(metadata, out));
    }
}

#[derive(Debug)]
pub struct Lustre {
    tree: Tree,
    level: u8,
    /// Names of mounts and targets, and which of them are read.
    known: Vec<PathBuf>,
    file_systems: Vec<LustreFileSystem>,
    found: Vec<SourceState>,
    /// As of the last search, until they are told.
    told: Option<Vec<InventoryEntry>>,
}

impl Lustre {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { tree: tree.clone(), level, known: Vec::new(), file_systems: Vec::new(), found: Vec::new(), told: None }
    }

    fn file_system(&mut self, name: &str) -> &mut LustreFileSystem {
        let at = self.file_systems.iter().position(|known| known.name == name).unwrap_or_else(|| {
            self.file_systems.push(LustreFileSystem::new(name, self.level));
            self.file_systems.len() - 1
        });
        &mut self.file_systems[at]
    }
}

/// The file system of a mount: `scratch` of `scratch-ffff8a1234567800`.
fn file_system_of(instance: &str) -> &str {
    instance.rsplit_once('-').map_or(instance, |(name, _)| name)
}

impl Subject for Lustre {
    fn search(&mut self) {
        let mut names: Vec<String> = [NAMES, PROC]
            .into_iter()
            .flat_map(|place| names_in(&self.tree.path(place).join("llite")))
            .filter(|name| name.contains('-'))
            .collect();
        names.sort();
        names.dedup();
        names.truncate(LUSTRE_MAX);
        let mut file_systems: Vec<&str> = names.iter().map(|name| file_system_of(name)).collect();
        file_systems.dedup();
        let entry = |fs: &str| InventoryEntry {
            model: "Lustre".to_owned(),
            driver: "lustre".to_owned(),
            ..InventoryEntry::new(DeviceKind::Filesystem, fs)
        };
        self.told = Some(file_systems.into_iter().map(entry).collect());
        self.found.clear();
        let mut readable = Vec::new();
        for name in names {
            let in_place = |place| Source::new(self.tree.path(place).join("llite").join(&name).join("stats"));
            let (mut old, mut new) = (in_place(PROC), in_place(DEBUG));
            let source = match (new.check(), old.check()) {
                (Ok(()), _) => new,
                (_, Ok(())) => old,
                (Err(error), Err(_)) => {
                    let path = self.tree.path(DEBUG).join("llite").join(&name).join("stats");
                    self.found.push(SourceState::Refused { path, why: error.to_string(), remedy: REMEDY });
                    continue;
                }
            };
            self.found.push(SourceState::Present);
            readable.push((file_system_of(&name).to_owned(), source));
        }
        let mut metadata = Vec::new();
        if self.level >= 3 && !readable.is_empty() {
            for place in [DEBUG, PROC].map(|place| self.tree.path(place).join("mdc")) {
                for name in names_in(&place) {
                    let Some((fs, _)) = name.split_once("-MDT") else { continue };
                    metadata.push((fs.to_owned(), Source::new(place.join(&name).join("md_stats"))));
                }
            }
            metadata.truncate(LUSTRE_MAX);
        }
        let paths: Vec<PathBuf> =
            readable.iter().chain(&metadata).map(|(_, source)| source.path().to_path_buf()).collect();
        if paths == self.known {
            return;
        }
        self.known = paths;
        for fs in &mut self.file_systems {
            fs.stats.clear();
            fs.metadata.clear();
        }
        for (fs, source) in readable {
            self.file_system(&fs).stats.push(source);
        }
        for (fs, source) in metadata {
            self.file_system(&fs).metadata.push(source);
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        if self.found.is_empty() { SourceState::alone(SourceState::Absent) } else { Cow::Borrowed(&self.found) }
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.told.take()
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Filesystem)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        self.file_systems.iter_mut().for_each(|fs| fs.sample(out));
    }
}
