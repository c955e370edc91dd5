//! The bytes of a file that grows at its end, in memory or mostly on a disk.
//!
//! A merge makes files that are larger than all else it holds. What is done of them goes to the disk at once, block by
//! block, and is read again from there where a later part has to be compared with it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, WriteFile};
use crate::error::{Error, Result};
use crate::segment::blocks::{self, BLOCK_BYTES};

/// Bytes that are written at once, at least.
const WRITE_BYTES_MIN: usize = 256 << 10;

#[derive(Debug)]
pub struct GrowingFile {
    written: Option<WrittenPart>,
    /// Those behind what was written.
    newest: Vec<u8>,
}

/// The beginning of a file that is on a disk, in whole blocks. It is not durable yet.
#[derive(Debug)]
pub struct WrittenPart {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Made with the first bytes.
    file: Option<Box<dyn WriteFile>>,
    bytes: usize,
    crc32: crc32fast::Hasher,
    checksums: Vec<u32>,
}

impl GrowingFile {
    /// One that stays in memory.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { written: None, newest: bytes }
    }

    /// From now on what is done goes to a new file, `path`.
    pub fn write_to(&mut self, disk: Arc<dyn Disk>, path: PathBuf) {
        let crc32 = crc32fast::Hasher::new();
        self.written = Some(WrittenPart { disk, path, file: None, bytes: 0, crc32, checksums: Vec::new() });
    }

    /// Where those in memory start.
    fn start(&self) -> usize {
        self.written.as_ref().map_or(0, |written| written.bytes)
    }

    pub fn len(&self) -> usize {
        self.start() + self.newest.len()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.newest.extend_from_slice(bytes);
    }

    /// Puts a copy of earlier bytes at the end.
    ///
    /// # Errors
    /// Io when they cannot be read.
    pub fn push_again(&mut self, range: Range<usize>) -> Result<()> {
        let bytes = self.read(range)?;
        self.push(&bytes);
        Ok(())
    }

    /// Whether these bytes are `bytes`.
    ///
    /// # Errors
    /// Io when they cannot be read.
    pub fn has_at(&self, start: usize, bytes: &[u8]) -> Result<bool> {
        Ok(match start.checked_sub(self.start()) {
            Some(from) => &self.newest[from..from + bytes.len()] == bytes,
            None => self.read(start..start + bytes.len())? == bytes,
        })
    }

    fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        let split = self.start().clamp(range.start, range.end) - range.start;
        let (before, newest) = bytes.split_at_mut(split);
        if let Some(WrittenPart { disk, path, .. }) = &self.written
            && !before.is_empty()
        {
            let file = disk.open(path).map_err(Error::io("open", path))?;
            file.read_at(range.start as u64, before).map_err(Error::io("read", path))?;
        }
        if !newest.is_empty() {
            let from = range.end - newest.len() - self.start();
            newest.copy_from_slice(&self.newest[from..from + newest.len()]);
        }
        Ok(bytes)
    }

    /// Writes what is done so far, if it goes to a disk and is enough.
    ///
    /// # Errors
    /// Io.
    pub fn settle(&mut self) -> Result<()> {
        if let Some(written) = &mut self.written
            && self.newest.len() >= WRITE_BYTES_MIN
        {
            let end = self.newest.len() / BLOCK_BYTES * BLOCK_BYTES;
            written.append(&self.newest[..end])?;
            written.checksums.extend(blocks::checksums(&self.newest[..end]));
            self.newest.drain(..end);
        }
        Ok(())
    }

    /// Those of all blocks up to here.
    pub fn checksums(&self) -> Vec<u32> {
        let mut checksums = self.written.as_ref().map_or_else(Vec::new, |written| written.checksums.clone());
        checksums.extend(blocks::checksums(&self.newest));
        checksums
    }

    /// What was written, and the bytes behind it.
    pub fn finish(self) -> (Option<WrittenPart>, Vec<u8>) {
        (self.written, self.newest)
    }
}

impl WrittenPart {
    pub fn len(&self) -> usize {
        self.bytes
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.disk.create(&self.path).map_err(Error::io("create", &self.path))?),
        };
        file.append(bytes).map_err(Error::io("write", &self.path))?;
        self.crc32.update(bytes);
        self.bytes += bytes.len();
        Ok(())
    }

    /// Writes the rest, and makes all of it durable; gives back length and CRC-32 of the file.
    ///
    /// # Errors
    /// Io.
    pub fn end(mut self, rest: &[u8]) -> Result<(u64, u32)> {
        self.append(rest)?;
        if let Some(file) = &self.file {
            file.sync().map_err(Error::io("sync", &self.path))?;
        }
        Ok((self.bytes as u64, self.crc32.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::OsDisk;

    #[test]
    fn a_file_on_a_disk_grows_as_one_in_memory_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grown");
        let mut on_disk = GrowingFile::new(b"PAR1".to_vec());
        on_disk.write_to(Arc::new(OsDisk), path.clone());
        let mut in_memory = GrowingFile::new(b"PAR1".to_vec());
        for part in 0..40_u32 {
            let bytes: Vec<u8> = (0..20_000 + 37 * part).flat_map(|at| (at * part).to_le_bytes()).collect();
            for file in [&mut on_disk, &mut in_memory] {
                let start = file.len();
                file.push(&bytes);
                file.settle().unwrap();
                assert!(file.has_at(start, &bytes).unwrap());
                assert!(!file.has_at(start - 1, &bytes).unwrap());
            }
            assert!(on_disk.newest.len() < WRITE_BYTES_MIN, "{} bytes are held", on_disk.newest.len());
        }
        for file in [&mut on_disk, &mut in_memory] {
            let end = file.len();
            // Of the disk, of memory, and of both.
            for range in [3..77_777, end - 5..end, end - 1_000_000..end] {
                file.push_again(range).unwrap();
            }
        }
        assert_eq!((on_disk.len(), on_disk.checksums()), (in_memory.len(), in_memory.checksums()));
        let (written, rest) = on_disk.finish();
        let (none, expected) = in_memory.finish();
        assert!(none.is_none());
        assert_eq!(written.unwrap().end(&rest).unwrap(), (expected.len() as u64, crc32fast::hash(&expected)));
        assert!(std::fs::read(&path).unwrap() == expected);
    }
}
