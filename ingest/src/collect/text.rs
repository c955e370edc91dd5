//! Lines, fields and numbers of the kernel's text files, as bytes: no allocation, no panic.
//!
//! No crate for `/proc` is used: those build maps and strings at every read, and several of their parsers panic on a
//! line that is cut short.

use atoi::FromRadix10Checked;

/// The text between line feeds, of which there are many in files of which a few lines are wanted.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'\n', text).chain(std::iter::once(text.len()));
    ends.scan(0, |begin, end| Some(&text[std::mem::replace(begin, end + 1)..end]))
}

/// The text between blanks.
pub fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// A whole number without a sign. A number beyond [`i64::MAX`] is not a count: it is damage, or below zero.
pub fn number(field: &[u8]) -> Option<u64> {
    match u64::from_radix_10_checked(field) {
        (Some(number), digits) if digits == field.len() && digits > 0 && number <= i64::MAX as u64 => Some(number),
        _ => None,
    }
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
