//! The write-ahead log: the appends since the last flush, frame by frame.
//!
//! `wal/NNNNNNNN.wal` is a header (magic, format, file number, number of series logged before it, CRC-32), followed by
//! frames ([`frame`]). The [`writer`] makes one `write` per append; a file is never written again after the process
//! that created it has ended. [`replay`] reads a file back; [`list`] names the files that must exist.

pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod list;
pub mod replay;
pub mod writer;

pub use frame::Record;
pub use list::{FoundList, Likeness, WalList, WalStart};
pub use writer::{Extent, Position, Wal};

/// The header of a WAL file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    /// Series with a frame in earlier files, or in the manifest's series files. When fewer are
    /// known on replay, a file before this one was lost and ids in this one would name nothing.
    pub series_before: u32,
}

const MAGIC: &[u8; 8] = b"TELEMWAL";
const FORMAT: u32 = 1;
pub const HEADER_BYTES: usize = 8 + 4 + 8 + 4 + 4;

impl Header {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.series_before.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` unless `bytes` start with a whole, undamaged header of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = frame::Fields::new(bytes.get(..HEADER_BYTES)?);
        let magic = fields.bytes(8)?;
        let format = fields.u32()?;
        let header = Header { number: fields.u64()?, series_before: fields.u32()? };
        let crc = fields.u32()?;
        let good = magic == MAGIC && format == FORMAT && crc == crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        good.then_some(header)
    }
}

#[cfg(test)]
mod tests;
