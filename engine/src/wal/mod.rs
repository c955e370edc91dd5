//! The write-ahead log: the appends since the last flush, frame by frame.
//!
//! `wal/NNNNNNNN.wal` is a header (magic, format, file number, salt, number of series logged before it, CRC-32),
//! followed by frames ([`frame`]). The [`writer`] makes one `write` per append; a file is never written again after the
//! process that created it has ended. [`replay`] reads a file back; [`list`] names the files that must exist.

pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod list;
pub mod replay;
pub mod writer;

pub use frame::Record;
pub use list::{FoundList, Likeness, WalList, WalStart};
pub use writer::{Extent, Position, Wal};

use crate::time::Timestamp;

/// The header of a WAL file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    /// Series with a frame in earlier files, or in the manifest's series files. When fewer are
    /// known on replay, a file before this one was lost and ids in this one would name nothing.
    pub series_before: u32,
    /// What the checksums of the frames begin with; 0 in a file of format 1, which has none.
    pub salt: u32,
}

const MAGIC: &[u8; 8] = b"TELEMWAL";
/// With 8 bytes of number.
const FORMAT_UNSALTED: u32 = 1;
/// With 4 bytes of number and 4 of salt, which is not 0.
const FORMAT: u32 = 2;
pub const HEADER_BYTES: usize = 8 + 4 + 8 + 4 + 4;
/// Those that the CRC-32 behind them covers.
pub const HEADER_BYTES_COVERED: usize = HEADER_BYTES - 4;

impl Header {
    /// Of a file that is begun `now`: no two that are begun on a machine have one salt, but by rare chance.
    pub fn new(number: u64, series_before: u32, now: Timestamp) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&now.micros().to_le_bytes());
        hasher.update(&number.to_le_bytes());
        // A number this high comes of a name that telem never gave.
        let salt = if number > u64::from(u32::MAX) { 0 } else { hasher.finalize().max(1) };
        Self { number, series_before, salt }
    }

    pub fn encode(self) -> Vec<u8> {
        let format = if self.salt == 0 { FORMAT_UNSALTED } else { FORMAT };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&format.to_le_bytes());
        bytes.extend_from_slice(&(self.number | u64::from(self.salt) << 32).to_le_bytes());
        bytes.extend_from_slice(&self.series_before.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The salt that is in `bytes`, whatever else of them is damaged.
    pub fn salt_field(bytes: &[u8]) -> u32 {
        let field = bytes.get(MAGIC.len() + 8..).and_then(|bytes| frame::Fields::new(bytes).u32());
        field.unwrap_or(0)
    }

    /// `None` unless `bytes` start with a whole, undamaged header of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = frame::Fields::new(bytes.get(..HEADER_BYTES)?);
        let magic = fields.bytes(8)?;
        let format = fields.u32()?;
        let (number, salt) = match format {
            FORMAT_UNSALTED => (fields.u64()?, 0),
            FORMAT => (u64::from(fields.u32()?), fields.u32().filter(|salt| *salt != 0)?),
            _ => return None,
        };
        let header = Header { number, series_before: fields.u32()?, salt };
        let crc = fields.u32()?;
        let good = magic == MAGIC && crc == crc32fast::hash(&bytes[..HEADER_BYTES_COVERED]);
        good.then_some(header)
    }
}

#[cfg(test)]
mod tests;
