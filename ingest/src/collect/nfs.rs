//! `/proc/self/mountstats`: bytes and requests of NFS mounts. The kernel answers from its memory, also for a mount whose
//! server hangs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::inventory::{DeviceKind, InventoryEntry};
use super::mounts::unescape;
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use super::text::{fields, lines, number};

/// Most NFS mounts that are told of.
pub const NFS_MOUNTS_MAX: usize = 64;
/// Most operations of a mount; version 4 has some 70.
const OPERATIONS_MAX: usize = 128;
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NfsMount<'a> {
    /// As the kernel writes them, blanks escaped.
    pub export: &'a [u8],
    pub mountpoint: &'a [u8],
    /// Seconds since it was mounted: those of one mount that stands at two places are the same.
    pub age: Option<u64>,
    /// From the server and to it.
    pub bytes: Option<[u64; 2]>,
    pub requests: Vec<(&'a [u8], u64)>,
}

/// The mounts of kind `nfs` and `nfs4`.
pub(crate) fn parse(text: &[u8]) -> Vec<NfsMount<'_>> {
    let mut mounts: Vec<NfsMount<'_>> = Vec::new();
    // Whether lines belong to the last of them, and to its operations.
    let (mut inside, mut per_operation) = (false, false);
    for line in lines(text) {
        let mut parts = fields(line);
        let Some(first) = parts.next() else { continue };
        if first == b"device" {
            let export = parts.next();
            let mountpoint = parts.nth(2);
            let kind = parts.nth(2);
            (inside, per_operation) = (false, false);
            if let (Some(export), Some(mountpoint), Some(b"nfs" | b"nfs4")) = (export, mountpoint, kind)
                && mounts.len() < NFS_MOUNTS_MAX
            {
                mounts.push(NfsMount { export, mountpoint, age: None, bytes: None, requests: Vec::new() });
                inside = true;
            }
            continue;
        }
        let Some(mount) = mounts.last_mut().filter(|_| inside) else { continue };
        match first {
            b"age:" => mount.age = parts.next().and_then(number),
            b"bytes:" => {
                let ways = (parts.nth(4).and_then(number), parts.next().and_then(number));
                mount.bytes = if let (Some(read), Some(written)) = ways { Some([read, written]) } else { None };
            }
            b"per-op" => per_operation = true,
            name if per_operation && mount.requests.len() < OPERATIONS_MAX => {
                let operation = name.strip_suffix(b":").filter(|name| !name.is_empty());
                if let (Some(operation), Some(requests)) = (operation, parts.next().and_then(number)) {
                    mount.requests.push((operation, requests));
                }
            }
            _ => {}
        }
    }
    mounts
}

/// The series of a mount.
#[derive(Debug)]
struct NfsSlots {
    mountpoint: Box<[u8]>,
    export: Box<[u8]>,
    tags: [(&'static str, String); 2],
    bytes: [Slot; 2],
    operations: BTreeMap<Box<[u8]>, Slot>,
}

impl NfsSlots {
    fn new(mount: &NfsMount<'_>) -> Self {
        let text = |escaped| String::from_utf8_lossy(&unescape(escaped)).into_owned();
        let tags = [("export", text(mount.export)), ("mountpoint", text(mount.mountpoint))];
        let of = tags.each_ref().map(|(key, value)| (*key, value.as_str()));
        let metrics = ["node_mountstats_nfs_total_read_bytes_total", "node_mountstats_nfs_total_write_bytes_total"];
        Self {
            mountpoint: mount.mountpoint.into(),
            export: mount.export.into(),
            bytes: metrics.map(|metric| Slot::tagged(metric, &of)),
            tags,
            operations: BTreeMap::new(),
        }
    }

    fn operation(&mut self, name: &[u8]) -> &mut Slot {
        self.operations.entry(name.into()).or_insert_with(|| {
            let [export, mountpoint] = self.tags.each_ref().map(|(key, value)| (*key, value.as_str()));
            let name = String::from_utf8_lossy(name);
            Slot::tagged("node_mountstats_nfs_operations_requests_total", &[export, mountpoint, ("operation", &*name)])
        })
    }
}

#[derive(Debug)]
pub struct Nfs {
    file: Source,
    each: bool,
    /// As of the last search: without a mount the file is not read at ticks.
    found: SourceState,
    /// As of the last search, until they are told.
    told: Option<Vec<InventoryEntry>>,
    mounts: Vec<NfsSlots>,
}

impl Nfs {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self {
            file: tree.file_of_self("mountstats"),
            each: level >= 3,
            found: SourceState::Absent,
            told: None,
            mounts: Vec::new(),
        }
    }
}

impl Subject for Nfs {
    fn search(&mut self) {
        let mounts = self.file.read().map(parse).unwrap_or_default();
        self.found = if mounts.is_empty() { SourceState::Absent } else { SourceState::Present };
        let mut exports: Vec<&[u8]> = mounts.iter().map(|mount| mount.export).collect();
        exports.sort();
        exports.dedup();
        let entry = |export: &[u8]| InventoryEntry {
            model: "NFS".to_owned(),
            driver: "nfs".to_owned(),
            ..InventoryEntry::new(DeviceKind::Filesystem, String::from_utf8_lossy(&unescape(export)))
        };
        self.told = Some(exports.into_iter().map(entry).collect());
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.told.take()
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        Cow::Borrowed(std::slice::from_ref(&self.found))
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        if self.found == SourceState::Absent {
            return;
        }
        let Self { file, each, mounts, .. } = self;
        let Some(text) = file.read() else { return };
        let told = parse(text);
        for (at, mount) in told.iter().enumerate() {
            // One mount at two places has one set of counters.
            let same =
                |other: &NfsMount<'_>| mount.age.is_some() && (other.export, other.age) == (mount.export, mount.age);
            if told[..at].iter().any(same) {
                continue;
            }
            let is_known = |known: &NfsSlots| *known.mountpoint == *mount.mountpoint && *known.export == *mount.export;
            let at = mounts.iter().position(is_known).unwrap_or_else(|| {
                mounts.push(NfsSlots::new(mount));
                mounts.len() - 1
            });
            let slots = &mut mounts[at];
            for (slot, bytes) in slots.bytes.iter_mut().zip(mount.bytes.into_iter().flatten()) {
                out.int(slot, bytes);
            }
            // What was never asked has no series: there are some 70.
            for (name, requests) in mount.requests.iter().filter(|(_, requests)| *each && *requests > 0) {
                out.int(slots.operation(name), *requests);
            }
        }
        mounts.retain(|known| told.iter().any(|mount| *known.mountpoint == *mount.mountpoint));
    }
}
