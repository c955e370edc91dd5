//! Amounts as people write them, and their meaning.

use super::*;

#[test]
fn bytes_come_with_and_without_units() {
    for (text, expected) in [
        ("1", Some(1)),
        ("64KiB", Some(64 << 10)),
        ("2 G", Some(2 << 30)),
        ("512mb", Some(512 << 20)),
        ("3t", Some(3 << 40)),
    ] {
        assert_eq!(bytes(text).ok(), expected, "{text}");
    }
    for bad in ["", "0", "-1", "1.5G", "G", "5X", "99999999999999999999", "99999999T", "é"] {
        assert!(bytes(bad).is_err(), "{bad}");
    }
}

#[test]
fn times_come_with_units() {
    let units = [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000)];
    let seconds_and_decimals = [("1", 1_000), ("1.5s", 1_500), ("0.5", 500), ("0.5m", 30_000), ("1.001s", 1_001)];
    for (text, millis) in units.into_iter().chain(seconds_and_decimals) {
        assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
    }
    for bad in ["", "0", "0s", "1d", "s", ".", "1.", ".5", "-3s", "1.2.3s", "1.0001s", "0.5ms", "18446744073709551615h"]
    {
        assert!(duration(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_kept_is_kept_for_days_and_weeks_too() {
    const DAY: u64 = 86_400;
    for (text, seconds) in [("30d", 30 * DAY), ("2 w", 14 * DAY), ("1.5d", DAY * 3 / 2), ("12h", DAY / 2), ("90", 90)] {
        assert_eq!(age(text).unwrap(), Duration::from_secs(seconds), "{text}");
    }
    for bad in ["", "d", "0d", "-1d", "1y", "3dd", "99999999999999999w"] {
        assert!(age(bad).is_err(), "{bad}");
    }
}
