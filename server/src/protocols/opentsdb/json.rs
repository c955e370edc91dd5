//! Writes JSON directly as bytes: answers are large and their shape is fixed, so no tree of values is built.

use std::io::Write;

/// A quoted string. By hand, because serde_json writes `\b` and `\f` where this writes `\u0008` and `\u000c`, and leaves
/// U+007F to U+009F as they are.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_control()) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let Some(special) = rest[at..].chars().next() else { break };
        match special {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // A Vec takes every write. Control characters lie below U+00A0, within four digits.
            control => drop(write!(out, "\\u{:04x}", u32::from(control))),
        }
        rest = &rest[at + special.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// Whether nothing is to be written otherwise, as in nearly all names. Without an early end, so that many bytes are looked
/// at at once.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| (b' '..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
    text.bytes().fold(true, |all, byte| all & plain(byte))
}

pub fn int(out: &mut Vec<u8>, int: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes());
}

pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Two digits each, the first in the lower byte.
const PAIRS: [u16; 100] = {
    let mut pairs = [0; 100];
    let mut at = 0;
    while at < pairs.len() {
        pairs[at] = u16::from_le_bytes([b'0' + at as u8 / 10, b'0' + at as u8 % 10]);
        at += 1;
    }
    pairs
};

/// The four digits of a number below 10,000, the first in the lowest byte.
fn four_digits(number: u32) -> u32 {
    u32::from(PAIRS[number as usize / 100]) | u32::from(PAIRS[number as usize % 100]) << 16
}

/// Integers between the same texts, one after another. Mostly one has all but the last digits of the one before it, as
/// times have: then only these are written anew.
pub struct SurroundedInts {
    before: &'static [u8],
    behind: &'static [u8],
    /// The last one without its last four digits; `None` where it has no others.
    upper: Option<i64>,
    /// It and what surrounds it.
    text: [u8; Self::BYTES],
    /// Where its last digits stand in the text, and where that ends.
    last: usize,
    len: usize,
}

impl SurroundedInts {
    const BYTES: usize = 32;

    /// Texts of up to six bytes each.
    pub fn new(before: &'static [u8], behind: &'static [u8]) -> Self {
        debug_assert!(before.len() <= 6 && behind.len() <= 6);
        Self { before, behind, upper: None, text: [0; Self::BYTES], last: 0, len: 0 }
    }

    pub fn write(&mut self, out: &mut Vec<u8>, int: i64) {
        let upper = int / 10_000;
        if self.upper == Some(upper)
            && let Some(digits) = self.text[self.last..].first_chunk_mut()
        {
            *digits = four_digits((int % 10_000) as u32).to_le_bytes();
        } else {
            self.begin(int);
            // Below zero digits count the other way.
            self.upper = (upper > 0).then_some(upper);
        }
        // All of the array is written, which is faster than a part of it.
        let len = out.len() + self.len;
        out.extend_from_slice(&self.text);
        out.truncate(len);
    }

    #[cold]
    fn begin(&mut self, int: i64) {
        let mut buffer = itoa::Buffer::new();
        self.len = 0;
        for part in [self.before, buffer.format(int).as_bytes(), self.behind] {
            self.text[self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
        }
        self.last = (self.len - self.behind.len()).saturating_sub(4);
    }
}

/// From here on floats are written with an exponent.
const EXPONENT_MIN: f64 = 1e16;

/// A finite float with a fraction or an exponent, so that it reads as a float: `5.0`, `1e16`. Every bit comes back.
pub fn float(out: &mut Vec<u8>, float: f64) {
    debug_assert!(float.is_finite());
    if short_decimal(out, float) {
        return;
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(float);
    if float.abs() < EXPONENT_MIN {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    // `1e+16` there.
    for part in text.split('+') {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Floats from half of it below until half of it above are one apart.
const MIDDLE: f64 = 6_755_399_441_055_744.0;
/// Integers of seven digits.
const SHORT_MAX: f64 = 1e7;

/// Writes what is an integer of seven digits over a thousand, as most of what is measured; false for all else. No other
/// text of so few digits is that float, so it is the shortest.
#[inline]
fn short_decimal(out: &mut Vec<u8>, float: f64) -> bool {
    let scaled = float * 1e3;
    if scaled.abs() >= SHORT_MAX {
        return false;
    }
    // Rounded to an integer. -0.0 is none.
    let moved = scaled + MIDDLE;
    if ((moved - MIDDLE) / 1e3).to_bits() != float.to_bits() {
        return false;
    }
    let int = moved.to_bits().wrapping_sub(MIDDLE.to_bits()).cast_signed();
    let size = int.unsigned_abs() as u32;
    let (whole, thousandths) = (four_digits(size / 1_000), size % 1_000);
    let (two, one) = (PAIRS[thousandths as usize / 10], b'0' + (thousandths % 10) as u8);
    let text = u64::from(whole) | u64::from(b'.') << 32 | u64::from(two) << 40 | u64::from(one) << 56;
    // Bytes that are zeros at both ends: one digit stays on each side of the point.
    let others = text ^ u64::from_le_bytes(*b"0000.000") | 1 << 24 | 1 << 40;
    let (before, behind) = (others.trailing_zeros() / 8, others.leading_zeros() / 8);
    if int < 0 {
        out.push(b'-');
    }
    let len = out.len() + (8 - before - behind) as usize;
    out.extend_from_slice(&(text >> (8 * before)).to_le_bytes());
    out.truncate(len);
    true
}

/// Items with commas between them.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (at, value) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item(out, value);
    }
    out.push(b']');
}

/// An object of strings.
pub fn string_map<'a>(out: &mut Vec<u8>, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        string(out, key);
        out.push(b':');
        string(out, value);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
