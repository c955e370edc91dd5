//! Lines, fields and numbers of the kernel's text files, as bytes: no allocation, no panic.
//!
//! No crate for `/proc` is used: those build maps and strings at every read, and several of their parsers panic on a
//! line that is cut short.

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// The text between blanks.
pub fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// A whole number without a sign. A number beyond [`i64::MAX`] is not a count: it is damage, or below zero.
pub fn number(field: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(field).ok().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))?;
    digits.parse().ok().filter(|number| *number <= i64::MAX as u64)
}

/// A finite number.
pub fn float(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The next `N` fields as numbers; `None` when one is missing or no number.
pub fn numbers<'a, const N: usize>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<[u64; N]> {
    let mut all = [0; N];
    for place in &mut all {
        *place = number(fields.next()?)?;
    }
    Some(all)
}
