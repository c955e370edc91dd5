//! TSUIDs: the numbers by which OpenTSDB identifies a series. Three bytes for the metric, then three for each tag key
//! and three for its value, keys ordered by their number, in upper-case hexadecimal digits.
//!
//! The number of a name is one more than its ordinal in telem, because OpenTSDB never assigns 0.

use std::sync::Arc;

use telem_engine::{NameKind, SeriesIndex, SeriesKey, TagSet};

/// Digits of one number.
pub const DIGITS: usize = 6;
/// The largest number that has no more than these.
const NARROW_MAX: u64 = 0xFF_FFFF;

/// A number as it is shown.
pub fn digits(number: u64) -> String {
    let mut digits = String::with_capacity(DIGITS);
    push_digits(&mut digits, number);
    digits
}

/// By hand: as many series as there are may be told with a dozen numbers each, and a formatter takes ten times as long.
fn push_digits(digits: &mut String, number: u64) {
    let needed = (u64::BITS - number.leading_zeros()).div_ceil(4) as usize;
    for place in (0..needed.max(DIGITS)).rev() {
        let digit = (number >> (4 * place)) as usize % 16;
        digits.push(char::from(b"0123456789ABCDEF"[digit]));
    }
}

/// The number of a name that a series carries.
pub fn number(index: &SeriesIndex, kind: NameKind, name: &str) -> Option<u64> {
    index.ordinal(kind, name).map(|ordinal| u64::from(ordinal) + 1)
}

/// The name of a number, if a series carries it.
pub fn name(index: &SeriesIndex, kind: NameKind, number: u64) -> Option<Arc<str>> {
    index.name(kind, u32::try_from(number.checked_sub(1)?).ok()?)
}

/// The TSUID of a series. Numbers beyond three bytes take more digits, so that they stay distinct.
pub fn of(index: &SeriesIndex, key: &SeriesKey) -> String {
    let number = |kind, name| number(index, kind, name).unwrap_or(0);
    let mut tags: Vec<(u64, u64)> = key
        .tags()
        .iter()
        .map(|(name, value)| (number(NameKind::TagKey, name), number(NameKind::TagValue, value)))
        .collect();
    tags.sort_unstable();
    let mut tsuid = String::with_capacity(DIGITS * (1 + 2 * tags.len()));
    push_digits(&mut tsuid, number(NameKind::Metric, key.metric()));
    for (name, value) in tags {
        push_digits(&mut tsuid, name);
        push_digits(&mut tsuid, value);
    }
    tsuid
}

/// That after a metric come whole pairs of key and value.
///
/// # Errors
/// Says what is wrong, in OpenTSDB's words.
pub fn check_width(tsuid: &str) -> Result<(), String> {
    match tsuid.len().saturating_sub(DIGITS) {
        0 => Err("TSUID is too short, may be missing tags".to_owned()),
        tags if !tags.is_multiple_of(2 * DIGITS) => {
            Err("The TSUID appears to be malformed, improper tag width".to_owned())
        }
        _ => Ok(()),
    }
}

/// The series that `tsuid` names, if any.
///
/// # Errors
/// Says what is wrong with a text that can be no TSUID.
pub fn find(index: &SeriesIndex, tsuid: &str) -> Result<Option<SeriesKey>, String> {
    if tsuid.len() < DIGITS {
        return Err(format!("begin 0, end {DIGITS}, length {}", tsuid.len()));
    }
    if !tsuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("TSUID '{tsuid}' holds more than hexadecimal digits"));
    }
    let wanted = tsuid.to_ascii_uppercase();
    let is_wanted = |key: &SeriesKey| index.id(key).is_some() && of(index, key) == wanted;
    if let Some(key) = spelled(index, &wanted).filter(is_wanted) {
        return Ok(Some(key));
    }
    // Only where there are numbers of more digits can it mean another series.
    let wide = |kind| name(index, kind, NARROW_MAX + 1).is_some();
    if ![NameKind::Metric, NameKind::TagKey, NameKind::TagValue].into_iter().any(wide) {
        return Ok(None);
    }
    let metrics = (DIGITS..=wanted.len().min(2 * DIGITS)).filter_map(|digits| {
        let number = u64::from_str_radix(&wanted[..digits], 16).ok()?;
        name(index, NameKind::Metric, number)
    });
    let ids = metrics.flat_map(|metric| index.select(&metric, &[]));
    Ok(ids.filter_map(|id| index.key(id)).find(|key| of(index, key) == wanted))
}

/// The series whose numbers have the usual width.
fn spelled(index: &SeriesIndex, tsuid: &str) -> Option<SeriesKey> {
    let numbers = tsuid.as_bytes().chunks(DIGITS).map(|digits| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == DIGITS)?;
        u64::from_str_radix(digits, 16).ok()
    });
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let (metric, tags) = numbers.split_first()?;
    let tags = tags.chunks(2).map(|pair| match pair {
        [key, value] => Some((name(index, NameKind::TagKey, *key)?, name(index, NameKind::TagValue, *value)?)),
        _ => None,
    });
    let tags: Vec<(Arc<str>, Arc<str>)> = tags.collect::<Option<_>>()?;
    SeriesKey::new(&name(index, NameKind::Metric, *metric)?, TagSet::new(tags).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits_and_more_where_they_need_them() {
        for number in [0, 1, 0xA, 0xFF_FFFF, 0x100_0000, 0xABC_DEF0_1234, u64::MAX] {
            assert_eq!(digits(number), format!("{number:06X}"));
        }
    }
}
