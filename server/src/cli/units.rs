//! Amounts as people write them: `512MiB`, `30s`.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Bytes: a number, with or without `K`, `M`, `G` or `T` (powers of 1024; `KB` and `KiB` are the same).
///
/// # Errors
/// A sentence for the user.
pub fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let scale: usize = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(format!("'{text}' is not a number of bytes; write 1048576, 64MiB or 2GiB")),
    };
    let number: Option<usize> = number.parse().ok();
    match number.and_then(|number| number.checked_mul(scale)) {
        Some(0) | None => Err(format!("'{text}' is not a number of bytes above 0; write 1048576, 64MiB or 2GiB")),
        Some(bytes) => Ok(bytes),
    }
}

/// A stretch of time above 0: a number with `ms`, `s`, `m` or `h`, or of seconds, to the millisecond.
///
/// # Errors
/// A sentence for the user.
pub fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let millis_each: u64 = match text[end..].trim() {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("'{text}' is not a time; write 500ms, 1.5s, 30, 5m or 1h")),
    };
    match decimal(&text[..end], millis_each) {
        Some(0) | None => {
            Err(format!("'{text}' is not a time above 0, in whole milliseconds; write 500ms, 1.5s, 30, 5m or 1h"))
        }
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}

/// How long something is kept: as [`duration`], and days and weeks, `30d` and `2w`.
///
/// # Errors
/// A sentence for the user.
pub fn age(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let (number, hours) = match trimmed.strip_suffix('d') {
        Some(days) => (days, 24),
        None => (trimmed.strip_suffix('w').unwrap_or(trimmed), if trimmed.ends_with('w') { 168 } else { 0 }),
    };
    if hours == 0 {
        return duration(trimmed).map_err(|_| format!("'{text}' is not a time above 0; write 12h, 30d or 2w"));
    }
    match decimal(number.trim_end(), hours * 3_600_000) {
        Some(0) | None => Err(format!("'{text}' is not a time above 0; write 12h, 30d or 2w")),
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}

/// `number`, which may have decimals, times `scale`; `None` where that is not whole.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let ten_to = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let of_decimals = decimals.parse::<u64>().ok()?.checked_mul(scale)?;
    if !of_decimals.is_multiple_of(ten_to) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(of_decimals / ten_to)
}

fn split(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..digits], text[digits..].trim())
}
