//! The bytes of a segment, checked as they are read.
//!
//! The run index has a CRC-32 for every [`BLOCK_BYTES`] of the data before it, and the manifest has one for the index
//! and the footer behind it. So reading one page checks one or two blocks, and a damaged byte causes an error, never a
//! wrong answer.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::disk::ReadFile;

/// About the bytes of a page.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Bytes per read for sequential readers.
const STREAM_BYTES: usize = 256 << 10;
/// Bytes that are read in one go by who knows that more comes next: some ten pages.
const AHEAD_BYTES_MAX: u64 = 256 << 10;

/// The checksums of `data`, block by block.
pub fn checksums(data: &[u8]) -> Vec<u32> {
    data.chunks(BLOCK_BYTES).map(crc32fast::hash).collect()
}

/// A file as Parquet wants to read it.
#[derive(Clone, Debug)]
pub struct Blocks(Arc<BlockFile>);

#[derive(Debug)]
struct BlockFile {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Of the blocks of the data.
    checksums: Vec<u32>,
    /// Where the data ends and the run index starts.
    data_end: u64,
    /// The checked end of the file, behind the run index.
    footer: Bytes,
}

impl Blocks {
    /// `checksums` are those of the data, which ends at `data_end`; `footer` is the checked end of `file`.
    pub fn new(path: PathBuf, file: Arc<dyn ReadFile>, checksums: Vec<u32>, data_end: u64, footer: Bytes) -> Self {
        Self(Arc::new(BlockFile { path, file, checksums, data_end, footer }))
    }

    pub fn file(&self) -> &dyn ReadFile {
        &*self.0.file
    }

    /// Memory besides the open file.
    pub fn bytes(&self) -> u64 {
        (self.0.checksums.len() * 4 + self.0.footer.len()) as u64
    }

    /// Checks all blocks of the data.
    pub fn verify(&self) -> io::Result<()> {
        let end = self.0.data_end;
        let mut starts = (0..end).step_by(STREAM_BYTES);
        starts.try_for_each(|start| self.read(start, (end - start).min(STREAM_BYTES as u64) as usize).map(drop))
    }

    /// Checked bytes: all of `start..start + len`, of the data or of the footer.
    pub fn read(&self, start: u64, len: usize) -> io::Result<Bytes> {
        let BlockFile { path, file, checksums, data_end, footer } = &*self.0;
        let footer_start = file.len().saturating_sub(footer.len() as u64);
        let outside = || io::Error::other(format!("{len} bytes at {start} of {} are no data of it", path.display()));
        let end = start.checked_add(len as u64).ok_or_else(outside)?;
        if start >= footer_start && end <= file.len() {
            let from = (start - footer_start) as usize;
            return Ok(footer.slice(from..from + len));
        }
        if end > *data_end {
            return Err(outside());
        }
        let first = start / BLOCK_BYTES as u64;
        let from = first * BLOCK_BYTES as u64;
        let to = end.next_multiple_of(BLOCK_BYTES as u64).min(*data_end);
        let mut bytes = vec![0; (to - from) as usize];
        file.read_at(from, &mut bytes)?;
        for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let (found, expected) = (crc32fast::hash(block), checksums.get(first as usize + at));
            if expected != Some(&found) {
                let at = from + (at * BLOCK_BYTES) as u64;
                let expected = expected.map_or("none".to_owned(), |crc| format!("{crc:08x}"));
                let what = format!("the block at {at} has checksum {found:08x}, the run index says {expected}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        let from = (start - from) as usize;
        Ok(Bytes::from(bytes).slice(from..from + len))
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.0.file.len()
    }
}

impl ChunkReader for Blocks {
    type T = Stream;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(Stream { blocks: self.clone(), at: start, ready: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.read(start, length)?)
    }
}

/// The same for a reader who says how far he will go: up to there, what comes next is read along with what is asked for.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    blocks: Blocks,
    held: Arc<Mutex<HeldAhead>>,
}

#[derive(Debug, Default)]
struct HeldAhead {
    /// Until where everything will be asked for.
    until: u64,
    start: u64,
    bytes: Bytes,
}

impl ReadAhead {
    pub fn new(blocks: Blocks) -> Self {
        Self { blocks, held: Arc::default() }
    }

    /// All bytes from those that are asked for next until this one will be asked for.
    pub fn until(&self, end: u64) {
        self.held().until = end;
    }

    fn held(&self) -> MutexGuard<'_, HeldAhead> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldAhead {
    fn find(&self, start: u64, len: usize) -> Option<Bytes> {
        let from = usize::try_from(start.checked_sub(self.start)?).ok()?;
        let end = from.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        Some(self.bytes.slice(from..end))
    }
}

impl Length for ReadAhead {
    fn len(&self) -> u64 {
        self.blocks.len()
    }
}

impl ChunkReader for ReadAhead {
    type T = Stream;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.blocks.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut held = self.held();
        if let Some(bytes) = held.find(start, length) {
            return Ok(bytes);
        }
        let ahead = held.until.saturating_sub(start).min(AHEAD_BYTES_MAX);
        if ahead <= length as u64 {
            return self.blocks.get_bytes(start, length);
        }
        (held.start, held.bytes) = (start, self.blocks.read(start, ahead as usize)?);
        Ok(held.bytes.slice(..length))
    }
}

/// What is read at the end: Parquet's reader, which passes over as many parts as a header says there are, does not notice
/// that there is nothing.
fn beyond_the_end(buffer: &[u8]) -> io::Result<usize> {
    if buffer.is_empty() { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A file that is held in memory, as Parquet wants to read it. Nothing is checked: the owner of the bytes did that.
#[derive(Clone, Debug)]
pub struct FileBytes(pub Bytes);

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for FileBytes {
    type T = HeldStream;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let from = usize::try_from(start).unwrap_or(usize::MAX).min(self.0.len());
        Ok(HeldStream(self.0.slice(from..)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

/// What is left of a file in memory.
#[derive(Debug)]
pub struct HeldStream(Bytes);

impl Read for HeldStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return beyond_the_end(buffer);
        }
        let len = buffer.len().min(self.0.len());
        buffer[..len].copy_from_slice(&self.0.split_to(len));
        Ok(len)
    }
}

/// A position in a file.
#[derive(Debug)]
pub struct Stream {
    blocks: Blocks,
    at: u64,
    /// Read and not yet handed out.
    ready: Bytes,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() && self.at >= self.blocks.len() {
            return beyond_the_end(buffer);
        }
        if self.ready.is_empty() {
            let BlockFile { data_end, .. } = &*self.blocks.0;
            let end = if self.at < *data_end { *data_end } else { self.blocks.len() };
            let len = end.saturating_sub(self.at).min(STREAM_BYTES as u64) as usize;
            self.ready = self.blocks.read(self.at, len)?;
            self.at += len as u64;
        }
        let len = buffer.len().min(self.ready.len());
        buffer[..len].copy_from_slice(&self.ready.split_to(len));
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
