//! Numbers, sizes and times as people read them.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// A number for people: 1,048,576.
pub fn count(number: impl TryInto<u64>) -> String {
    let Ok(number) = number.try_into() else { return "none".to_owned() };
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// How many there are of what has a plural with an s: 1 sample, 1,048,576 samples.
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Bytes for people, in the largest unit that leaves no fraction: 64 MiB.
pub fn bytes(number: impl TryInto<u64>) -> String {
    let Ok(number) = number.try_into() else { return "none".to_owned() };
    match number {
        u64::MAX => "none".to_owned(),
        0 => "0 bytes".to_owned(),
        _ if number % (1 << 30) == 0 => format!("{} GiB", count(number >> 30)),
        _ if number % (1 << 20) == 0 => format!("{} MiB", count(number >> 20)),
        _ if number % (1 << 10) == 0 => format!("{} KiB", count(number >> 10)),
        _ => format!("{} bytes", count(number)),
    }
}

/// A stretch of time for people: 100 ms, 90 s, 10 min, 1 h.
pub fn time(time: Duration) -> String {
    let (millis, seconds) = (time.as_millis() as u64, time.as_secs());
    match seconds {
        _ if !millis.is_multiple_of(1_000) && seconds > 0 => format!("{} s", time.as_secs_f64()),
        _ if !millis.is_multiple_of(1_000) => format!("{millis} ms"),
        3_600.. if seconds.is_multiple_of(3_600) => format!("{} h", count(seconds / 3_600)),
        120.. if seconds.is_multiple_of(60) => format!("{} min", count(seconds / 60)),
        _ => format!("{} s", count(seconds)),
    }
}

/// One of so many: a quarter, 1 in 32.
pub fn share(of: usize) -> String {
    match of {
        2 => "half".to_owned(),
        3 => "a third".to_owned(),
        4 => "a quarter".to_owned(),
        _ => format!("1 in {}", count(of)),
    }
}
