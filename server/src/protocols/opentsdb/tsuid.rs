//! TSUIDs: the numbers by which OpenTSDB knows a series. Three bytes for the metric, then three for
//! each tag key and three for its value, keys by their number, in upper-case hexadecimal digits.
//!
//! A name's number is one more than its ordinal here: OpenTSDB gives out no 0.

use std::sync::Arc;

use telem_engine::{NameKind, SeriesIndex, SeriesKey};

/// Digits of one number.
pub const DIGITS: usize = 6;

/// A number as it is shown.
pub fn digits(number: u64) -> String {
    format!("{number:06X}")
}

/// The number of a name that a series carries.
pub fn number(index: &SeriesIndex, kind: NameKind, name: &str) -> Option<u64> {
    index.ordinal(kind, name).map(|ordinal| u64::from(ordinal) + 1)
}

/// The name of a number, if a series carries it. Looks at every name of its kind.
pub fn name(index: &SeriesIndex, kind: NameKind, number: u64) -> Option<String> {
    let names = index.suggest(kind, "", usize::MAX);
    names.into_iter().find(|name| self::number(index, kind, name) == Some(number))
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
    let metric = format!("{:06X}", number(NameKind::Metric, key.metric()));
    tags.into_iter().fold(metric, |tsuid, (name, value)| format!("{tsuid}{name:06X}{value:06X}"))
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
    let number = u32::from_str_radix(&wanted[..DIGITS], 16).unwrap_or(0);
    let of_number =
        |metric: &Arc<str>| index.ordinal(NameKind::Metric, metric).map(|ordinal| ordinal + 1) == Some(number);
    let Some(metric) = index.metrics().into_iter().find(of_number) else { return Ok(None) };
    let keys = index.select(&metric, &[]).into_iter().filter_map(|id| index.key(id));
    Ok(keys.into_iter().find(|key| of(index, key) == wanted))
}
