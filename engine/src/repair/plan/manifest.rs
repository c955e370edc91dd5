//! The manifest that a repair starts from: the existing one; one that cannot be read as it is, but can be proven; or a
//! new one.

use std::path::Path;

use super::node::{is_node_name, node_of};
use super::{Planner, SegmentPart};
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::layout::{self, Layout};
use crate::manifest::{self, FORMAT, FileEntry, Manifest};
use crate::recover::database_id;
use crate::repair::segments::why;
use crate::repair::{Act, flip};

impl Planner<'_> {
    pub(super) fn find_manifest(&mut self) -> Result<()> {
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

    /// A manifest of a database whose own is lost: what it says besides files is taken from them, or is new.
    pub(super) fn new_manifest(&self, segments: &[SegmentPart]) -> Result<Manifest> {
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
