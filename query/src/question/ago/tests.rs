//! Relative times, and texts that are not.

use super::*;

#[test]
fn a_distance_is_digits_a_unit_and_ago() {
    for (text, expected) in [
        ("now", 0),
        ("0s-ago", 0),
        ("7us-ago", 7),
        ("250ms-ago", 250_000),
        ("30s-ago", 30_000_000),
        ("5m-ago", 300_000_000),
        ("2h-ago", 7_200_000_000),
        ("1d-ago", 86_400_000_000),
        ("1w-ago", 604_800_000_000),
    ] {
        assert_eq!(micros_before_now(text), Some(Ok(expected)), "{text}");
        assert!(may_hold(&format!("ts > '{text}'")), "{text}");
    }
}

#[test]
fn what_ends_in_ago_and_cannot_be_read_is_told_how_it_is_written() {
    for text in ["-ago", "m-ago", "5-ago", "5y-ago", "1n-ago", "-5m-ago", "1.5h-ago", "5 m-ago", "5M-ago", "é-ago"] {
        let error = micros_before_now(text).unwrap().unwrap_err();
        assert!(error.contains(&format!("'{text}' is not a time")) && error.contains("5m-ago"), "{text}: {error}");
    }
    assert!(micros_before_now("9223372036854775807w-ago").unwrap().is_err());
}

#[test]
fn other_texts_are_none() {
    for text in ["", "5m", "ago", "NOW", "2026-01-31", "5m-ago "] {
        assert_eq!(micros_before_now(text), None, "{text}");
    }
}
