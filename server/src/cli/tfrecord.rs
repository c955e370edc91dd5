//! The framing of TensorBoard's event files (TFRecord): length, checksum of the length, data, checksum of the data. The
//! checksums are CRC-32C, masked so that data which holds checksums itself does not disturb them.

use std::io::{self, ErrorKind, Read, Write};

/// Longest record: pictures may be large, and a broken length must not fill the memory.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// Castagnoli's polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Whether a file that starts so holds records.
pub fn is_start(bytes: &[u8]) -> bool {
    let Some((head, _)) = bytes.split_first_chunk::<12>() else { return false };
    let [length, check] = split(head);
    length > 0 && length <= RECORD_BYTES_MAX && u64::from(masked(&head[..8])) == check
}

/// What stands next in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramedRecord {
    Record(Vec<u8>),
    /// Its data are not what was written; the next record can be read.
    Broken,
    /// The file ends within it: its writer was killed, or still writes.
    CutOff,
    /// Where the next record begins is not known.
    Lost,
    End,
}

/// # Errors
/// Those of the file.
pub fn read(from: &mut impl Read) -> io::Result<FramedRecord> {
    let mut head = [0; 12];
    match fill(from, &mut head)? {
        0 => return Ok(FramedRecord::End),
        12 => {}
        _ => return Ok(FramedRecord::CutOff),
    }
    let [length, check] = split(&head);
    if u64::from(masked(&head[..8])) != check || length > RECORD_BYTES_MAX {
        return Ok(FramedRecord::Lost);
    }
    let mut data = Vec::new();
    let read = from.take(length + 4).read_to_end(&mut data)? as u64;
    if read < length + 4 {
        return Ok(FramedRecord::CutOff);
    }
    let check = data.split_off(data.len() - 4);
    Ok(match check == masked(&data).to_le_bytes() {
        true => FramedRecord::Record(data),
        false => FramedRecord::Broken,
    })
}

/// Length and checksum.
fn split(head: &[u8; 12]) -> [u64; 2] {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    [number(&head[..8]), number(&head[8..])]
}

/// How many bytes came.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// # Errors
/// Those of the file.
pub fn write(to: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    to.write_all(&length)?;
    to.write_all(&masked(&length).to_le_bytes())?;
    to.write_all(data)?;
    to.write_all(&masked(data).to_le_bytes())
}

#[cfg(test)]
mod tests;
