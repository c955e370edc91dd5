//! The list of the WAL files that were created. Without it, a file that is missing, empty or replaced would look like
//! one that never existed.
//!
//! The list is a file beside the manifest, and is replaced as a whole whenever a WAL file is created. The new file and
//! its first append are durable first; then the list names the file. So a file that the list names was durable, and a
//! file that it does not name may exist all the same. Files below the manifest's first WAL file no longer count,
//! whether the list names them or not.
//!
//! Databases of earlier versions and databases that were closed have no list: then no file counts as missing.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Extent;
use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::layout::{self, Layout};

const MAGIC: &str = "telem-wal-files";
const FORMAT: u32 = 1;
/// A list of a million files has some 100 MB; beyond this it is not one of ours.
const BYTES_MAX: u64 = 1 << 30;

/// How a WAL file begins: its header, and all up to the end of its first frame that names no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalStart {
    #[serde(rename = "start_bytes")]
    pub bytes: u64,
    #[serde(rename = "start_crc32")]
    pub crc32: u32,
    /// That of the header, by which frames can be told where the header is damaged.
    #[serde(rename = "start_salt", default)]
    pub salt: u32,
}

/// A WAL file that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalEntry {
    pub number: u64,
    #[serde(flatten)]
    pub start: WalStart,
    /// At least this many bytes of it were durable.
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalList {
    files: Vec<WalEntry>,
}

/// What there is of a list.
#[derive(Debug)]
pub enum FoundList {
    None,
    Whole(WalList),
    /// It is not what was written, and why: nothing can be said of the WAL by it.
    Damaged(Error),
}

impl FoundList {
    /// # Errors
    /// Io.
    pub fn load(disk: &dyn Disk, layout: &Layout) -> Result<Self> {
        let path = layout.wal_list();
        match disk::read_file(disk, &path, BYTES_MAX) {
            Ok(bytes) => Ok(WalList::decode(&path, &bytes).map_or_else(Self::Damaged, Self::Whole)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Self::None),
            Err(error @ Error::Corrupt { .. }) => Ok(Self::Damaged(error)),
            Err(error) => Err(error),
        }
    }

    /// Its contents; nothing if it does not exist or cannot be read.
    pub fn into_list(self) -> WalList {
        match self {
            Self::Whole(list) => list,
            Self::None | Self::Damaged(_) => WalList::default(),
        }
    }
}

impl WalList {
    /// Those of `extents` whose first append is durable.
    pub fn of(extents: &[Extent]) -> Self {
        let begun = extents.iter().filter(|extent| extent.durable >= extent.start.bytes);
        let entry = |extent: &Extent| WalEntry {
            number: extent.number,
            start: extent.start,
            bytes: if extent.closed { extent.durable } else { extent.start.bytes },
        };
        Self { files: begun.map(entry).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files that count where the manifest's first WAL file is `first`.
    pub fn from(&self, first: u64) -> impl Iterator<Item = &WalEntry> {
        self.files.iter().filter(move |entry| entry.number >= first)
    }

    pub fn entry(&self, number: u64) -> Option<&WalEntry> {
        self.files.iter().find(|entry| entry.number == number)
    }

    /// A number that no file in it has, and none before.
    pub fn after(&self) -> u64 {
        self.files.iter().map(|entry| entry.number.saturating_add(1)).max().unwrap_or(0)
    }

    /// Puts it in the place of the list that was there, durably.
    ///
    /// # Errors
    /// Io; the one or the other is there then.
    pub fn write(&self, disk: &dyn Disk, layout: &Layout) -> Result<()> {
        let path = layout.wal_list();
        let temporary = layout::unfinished(&path);
        disk::remove_if_there(disk, &temporary)?;
        disk::write_file(disk, &temporary, &self.encode()?)?;
        disk.rename(&temporary, &path).map_err(Error::io("rename", &temporary))?;
        disk.sync_dir(layout.dir()).map_err(Error::io("sync", layout.dir()))
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Internal { what: format!("the list of the WAL cannot be written: {error}") })?;
        body.push('\n');
        let crc = crc32fast::hash(body.as_bytes());
        Ok(format!("{MAGIC} {FORMAT} {crc:08x} {}\n{body}", body.len()).into_bytes())
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str, found: String, expected: String| Error::Corrupt {
            path: path.to_path_buf(),
            what: what.to_owned(),
            found,
            expected,
        };
        let end = bytes.iter().take(128).position(|byte| *byte == b'\n').unwrap_or(0);
        let (head, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
        let crc = crc32fast::hash(body);
        let expected = format!("{MAGIC} {FORMAT} {crc:08x} {}", body.len());
        if head != expected.as_bytes() {
            let found = format!("'{}'", String::from_utf8_lossy(head).escape_debug());
            return Err(corrupt("its first line", found, format!("'{expected}'")));
        }
        serde_json::from_slice(body)
            .map_err(|error| corrupt("its JSON", error.to_string(), "a list of WAL files".to_owned()))
    }
}

/// What a WAL file that was begun is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It begins as it did.
    Same,
    /// Its frames are whole, and are not those that it began with.
    Another,
    /// It does not hold its first append any more: damaged bytes, or too few.
    Broken,
}
