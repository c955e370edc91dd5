//! Copies one file from one disk to another, as a whole or not at all.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{self, Disk, ReadFile, WriteFile};
use crate::error::{Error, Result};
use crate::layout;

/// Bytes read and written at a time.
const COPY_BYTES: usize = 1 << 20;

/// Why a copy ended early.
#[derive(Debug)]
pub enum CopyStop {
    /// The source has no such file any more: its manifest moved.
    Vanished(Error),
    Failed(Error),
}

impl From<Error> for CopyStop {
    fn from(error: Error) -> Self {
        CopyStop::Failed(error)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Copying<'a> {
    pub from: &'a dyn Disk,
    pub to: &'a dyn Disk,
}

impl Copying<'_> {
    /// Puts the first `bytes` of `from` in the place of `to`; with `crc32` they are all of it and have that checksum.
    /// The name is durable after `sync_dir`.
    ///
    /// # Errors
    /// Vanished; Io; Corrupt. `to` is then what it was.
    pub fn whole(&self, from: &Path, to: &Path, bytes: u64, crc32: Option<u32>) -> Result<(), CopyStop> {
        let source = self.open(from)?;
        if source.len() < bytes || (crc32.is_some() && source.len() != bytes) {
            return Err(corrupt(from, "its length", format!("{} bytes", source.len()), format!("{bytes} bytes")));
        }
        let temporary = layout::unfinished(to);
        disk::remove_if_there(self.to, &temporary)?;
        let mut copy = self.to.create(&temporary).map_err(Error::io("create", &temporary))?;
        let found = pour(&*source, from, 0..bytes, &mut *copy, &temporary)?;
        if let Some(expected) = crc32.filter(|expected| *expected != found) {
            return Err(corrupt(from, "its checksum", format!("{found:08x}"), format!("{expected:08x}")));
        }
        copy.sync().map_err(Error::io("sync", &temporary))?;
        self.to.rename(&temporary, to).map_err(Error::io("rename", &temporary))?;
        Ok(())
    }

    /// Appends the bytes `stretch` of `from` to `to` and makes them durable.
    ///
    /// # Errors
    /// Vanished, and nothing was written; Io, and any part of them may be there.
    pub fn append(&self, from: &Path, to: &Path, stretch: Range<u64>) -> Result<(), CopyStop> {
        let source = self.open(from)?;
        let mut copy = self.to.reopen(to).map_err(Error::io("open", to))?;
        pour(&*source, from, stretch, &mut *copy, to)?;
        copy.sync().map_err(Error::io("sync", to))?;
        Ok(())
    }

    /// Whether the copy `to` is there and has this length.
    pub fn holds(&self, to: &Path, len: u64) -> bool {
        self.to.open(to).is_ok_and(|file| file.len() == len)
    }

    fn open(&self, from: &Path) -> Result<Arc<dyn ReadFile>, CopyStop> {
        self.from.open(from).map_err(|source| {
            let vanished = source.kind() == io::ErrorKind::NotFound;
            let error = Error::io("open", from)(source);
            if vanished { CopyStop::Vanished(error) } else { CopyStop::Failed(error) }
        })
    }
}

/// Appends a stretch of `source` to `copy`; gives back its CRC-32.
fn pour(source: &dyn ReadFile, from: &Path, stretch: Range<u64>, copy: &mut dyn WriteFile, to: &Path) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; (stretch.end - stretch.start).min(COPY_BYTES as u64) as usize];
    let mut at = stretch.start;
    while at < stretch.end {
        let part = &mut buffer[..(stretch.end - at).min(COPY_BYTES as u64) as usize];
        source.read_at(at, part).map_err(Error::io("read", from))?;
        hasher.update(part);
        copy.append(part).map_err(Error::io("write", to))?;
        at += part.len() as u64;
    }
    Ok(hasher.finalize())
}

fn corrupt(path: &Path, what: &str, found: String, expected: String) -> CopyStop {
    CopyStop::Failed(Error::Corrupt { path: path.to_path_buf(), what: what.to_owned(), found, expected })
}
