//! Points in time as people write them: `2026-07-27T12:00:00Z`, `2026-07-27 12:00`, `1785153600`, `1785153600250ms`,
//! `5m-ago`, `now`.

#[cfg(test)]
mod tests;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use telem_engine::Timestamp;
use telem_query::ago;

/// Whole seconds from here on are the year 10000: a number that large is meant in other units.
const SECONDS_END: i64 = 253_402_300_800;
const EXPECTED: &str = "write RFC 3339 (2026-07-27T12:00:00Z), 2026-07-27 12:00 (of UTC), seconds (1785153600.25), 1785153600250ms, 1785153600250000us, \
                        5m-ago or now";

/// A point in time, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    At(Timestamp),
    /// So many microseconds before now.
    Ago(i64),
}

impl When {
    /// What was written, where `now` is this.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(time) => time,
            When::Ago(micros) => now.saturating_add_micros(-micros),
        }
    }
}

/// A [`date`], seconds since the epoch with or without a fraction, whole numbers with `ms` or `us`, `now`, and a number
/// with `us`, `ms`, `s`, `m`, `h`, `d` or `w` and `-ago`. What is finer than a microsecond is cut off.
///
/// # Errors
/// A sentence for the user.
pub fn when(text: &str) -> Result<When, String> {
    if let Some(micros) = ago::micros_before_now(text) {
        return micros.map(When::Ago).map_err(|_| format!("'{text}' is not a time; {EXPECTED}"));
    }
    let at = |micros| When::At(Timestamp::from_micros(micros));
    let found = if let Some(number) = text.strip_suffix("ms") {
        whole(number).and_then(|millis| millis.checked_mul(1_000)).map(at)
    } else if let Some(number) = text.strip_suffix("us") {
        whole(number).map(at)
    } else if let Some(micros) = date(text) {
        Some(at(micros))
    } else if let Some((seconds, micros)) = seconds(text) {
        if seconds.abs() >= SECONDS_END {
            return Err(format!("'{text}' is not a time: that many seconds end after the year 9999; {EXPECTED}"));
        }
        Some(at(seconds * 1_000_000 + micros))
    } else {
        None
    };
    found.ok_or_else(|| format!("'{text}' is not a time; {EXPECTED}"))
}

/// RFC 3339, also with a space in its middle, without a zone (UTC), and without a time of day.
pub fn date(text: &str) -> Option<i64> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    for format in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, format) {
            return Some(time.and_utc().timestamp_micros());
        }
    }
    for format in ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"] {
        if let Ok(time) = DateTime::parse_from_str(text, format) {
            return Some(time.timestamp_micros());
        }
    }
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(date.and_time(NaiveTime::MIN).and_utc().timestamp_micros())
}

/// Seconds and microseconds of a decimal number; of a negative one both are negative.
fn seconds(text: &str) -> Option<(i64, i64)> {
    let (whole_part, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = whole(whole_part)?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    Some((seconds, if text.starts_with('-') { -micros } else { micros }))
}

/// Digits, with or without a minus.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
