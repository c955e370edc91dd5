//! Integers in as few bytes as they need: seven bits per byte, the lowest first.

use crate::error::Error;

/// Signed numbers near zero become small unsigned ones: 0, -1, 1, -2, ...
pub const fn zigzag(signed: i64) -> u64 {
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

pub const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub fn put_signed(bytes: &mut Vec<u8>, signed: i64) {
    put(bytes, zigzag(signed));
}

/// How many bytes [`put_signed`] puts.
pub const fn len_signed(signed: i64) -> usize {
    (u64::BITS - (zigzag(signed) | 1).leading_zeros()).div_ceil(7) as usize
}

/// As [`put_signed`], for sums of integers.
pub fn put_wide(bytes: &mut Vec<u8>, signed: i128) {
    let mut number = ((signed << 1) ^ (signed >> 127)).cast_unsigned();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// What is wrong with bytes that cannot be decoded, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub at: usize,
    pub found: String,
    pub expected: String,
}

impl Malformed {
    pub fn corrupt(self, path: &std::path::Path) -> Error {
        let what = format!("byte {} of its run index", self.at);
        Error::Corrupt { path: path.to_path_buf(), what, found: self.found, expected: self.expected }
    }
}

/// Reads what the functions above wrote, and refuses everything else.
#[derive(Debug)]
pub struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Bytes that were not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub fn malformed(&self, found: impl Into<String>, expected: impl Into<String>) -> Malformed {
        Malformed { at: self.at, found: found.into(), expected: expected.into() }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(self.malformed(format!("{} bytes", rest.len()), format!("{len} bytes")));
        };
        self.at += len;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        let wide = self.wide_number()?;
        u64::try_from(wide).map_err(|_| self.malformed(wide.to_string(), "a number of 64 bits"))
    }

    /// A number of at most 32 bits.
    pub fn small(&mut self) -> Result<u32, Malformed> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.malformed(number.to_string(), "a number of 32 bits"))
    }

    pub fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(unzigzag(self.number()?))
    }

    pub fn wide(&mut self) -> Result<i128, Malformed> {
        let number = self.wide_number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub fn float(&mut self) -> Result<f64, Malformed> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    fn wide_number(&mut self) -> Result<u128, Malformed> {
        let mut number: u128 = 0;
        for shift in (0..=126).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.malformed("a number that does not end", "at most 128 bits"))
    }
}
