//! The framing of wandb's files: that of LevelDB's log. Blocks of 32 KiB hold fragments of records; a fragment has a
//! checksum (CRC-32, unmasked, over its kind and its data), a length and a kind. Before the first stand seven bytes.

#[cfg(test)]
mod tests;

use std::io::{self, Read};

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
/// `:W&B`, a number, and the version that is read here.
pub const MAGIC: &[u8] = b":W&B";
const START: &[u8; HEADER_BYTES] = b":W&B\xe1\xbe\0";
/// Longest record.
const RECORD_BYTES_MAX: usize = 256 << 20;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// What stands next in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    Record(Vec<u8>),
    /// What was wrong; the next record can be read.
    Broken(&'static str),
    /// The file ends within it.
    CutOff,
    End,
}

/// Reads record by record.
#[derive(Debug)]
pub struct LogReader<R> {
    from: R,
    block: Vec<u8>,
    at: usize,
    record: Vec<u8>,
    /// Whether fragments of a record came and its last did not.
    is_within: bool,
}

impl<R: Read> LogReader<R> {
    /// # Errors
    /// Those of the file; InvalidData where it is of another version.
    pub fn new(from: R) -> io::Result<Self> {
        let mut reader = Self { from, block: Vec::new(), at: 0, record: Vec::new(), is_within: false };
        reader.next_block()?;
        if !reader.block.starts_with(START) {
            let why = "it is no file of wandb, or one of a version that is not known";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        reader.at = HEADER_BYTES;
        Ok(reader)
    }

    /// Whether there is one.
    fn next_block(&mut self) -> io::Result<bool> {
        self.block.clear();
        self.at = 0;
        (&mut self.from).take(BLOCK_BYTES as u64).read_to_end(&mut self.block)?;
        Ok(!self.block.is_empty())
    }

    /// # Errors
    /// Those of the file.
    pub fn next(&mut self) -> io::Result<LogRecord> {
        loop {
            let rest = &self.block[self.at.min(self.block.len())..];
            let is_whole = self.block.len() == BLOCK_BYTES;
            if rest.len() < HEADER_BYTES {
                let is_cut = !is_whole && !rest.is_empty();
                if is_whole && self.next_block()? {
                    continue;
                }
                self.block.clear();
                return Ok(if is_cut || std::mem::take(&mut self.is_within) {
                    LogRecord::CutOff
                } else {
                    LogRecord::End
                });
            }
            let check = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
            let (length, kind) = (usize::from(u16::from_le_bytes([rest[4], rest[5]])), rest[6]);
            if kind == 0 && length == 0 && check == 0 {
                // Room that was never written.
                self.at = self.block.len();
                continue;
            }
            let Some(data) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
                let is_last = !is_whole;
                self.at = self.block.len();
                self.is_within = false;
                if is_last {
                    self.block.clear();
                    return Ok(LogRecord::CutOff);
                }
                return Ok(LogRecord::Broken("a length goes beyond its block"));
            };
            self.at += HEADER_BYTES + length;
            let mut sum = crc32fast::Hasher::new();
            sum.update(&[kind]);
            sum.update(data);
            if sum.finalize() != check {
                self.is_within = false;
                return Ok(LogRecord::Broken("the checksum is not that of the data"));
            }
            let starts = matches!(kind, FULL | FIRST);
            if !starts && !matches!(kind, MIDDLE | LAST) {
                return Ok(LogRecord::Broken("a fragment is of no known kind"));
            }
            if starts == self.is_within {
                // Behind damage the rest of a record; it was reported with that.
                self.is_within = starts;
                self.record.clear();
                if !starts {
                    continue;
                }
            }
            if starts {
                self.record.clear();
            }
            if self.record.len() + length > RECORD_BYTES_MAX {
                self.is_within = false;
                return Ok(LogRecord::Broken("the record is longer than can be read"));
            }
            self.record.extend_from_slice(data);
            self.is_within = !matches!(kind, FULL | LAST);
            if !self.is_within {
                return Ok(LogRecord::Record(std::mem::take(&mut self.record)));
            }
        }
    }
}
