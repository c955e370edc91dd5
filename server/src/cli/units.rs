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
        _ => return Err(format!("'{text}' is no number of bytes; write 1048576, 64MiB or 2GiB")),
    };
    let number: Option<usize> = number.parse().ok();
    match number.and_then(|number| number.checked_mul(scale)) {
        Some(0) | None => Err(format!("'{text}' is no number of bytes above 0; write 1048576, 64MiB or 2GiB")),
        Some(bytes) => Ok(bytes),
    }
}

/// A stretch of time above 0: a number with `ms`, `s`, `m` or `h`.
///
/// # Errors
/// A sentence for the user.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let millis_each: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("'{text}' is no time; write 500ms, 30s, 5m or 1h")),
    };
    let number: Option<u64> = number.parse().ok();
    match number.and_then(|number| number.checked_mul(millis_each)) {
        Some(0) | None => Err(format!("'{text}' is no time above 0; write 500ms, 30s, 5m or 1h")),
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}

fn split(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..digits], text[digits..].trim())
}
