//! Points in time, and texts that are not.

use super::*;

fn micros(text: &str) -> i64 {
    when(text).unwrap().at(Timestamp::from_seconds(1_000_000)).micros()
}

#[test]
fn a_time_is_a_date_a_number_or_a_distance_from_now() {
    for (text, expected) in [
        ("2013-01-01T00:00:00Z", 1_356_998_400_000_000),
        ("2013-01-01T01:00:00.000001+01:00", 1_356_998_400_000_001),
        ("2013-01-01 00:00:00.0000019Z", 1_356_998_400_000_001),
        ("1969-12-31T23:59:59.5Z", -500_000),
        // As telem itself prints times: in UTC, without saying so.
        ("2013-01-01", 1_356_998_400_000_000),
        ("2013-01-01 01:02", 1_357_002_120_000_000),
        ("2013-01-01 00:00:00.000001", 1_356_998_400_000_001),
        ("2013-01-01T00:00:00", 1_356_998_400_000_000),
        ("0", 0),
        ("1356998400", 1_356_998_400_000_000),
        ("1356998400.25", 1_356_998_400_250_000),
        ("1356998400.0000019", 1_356_998_400_000_001),
        ("-1.5", -1_500_000),
        ("-0.5", -500_000),
        ("1356998400250ms", 1_356_998_400_250_000),
        ("-1us", -1),
        ("now", 1_000_000_000_000),
        ("5m-ago", 999_700_000_000),
        ("1w-ago", 395_200_000_000),
        ("250ms-ago", 999_999_750_000),
    ] {
        assert_eq!(micros(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_time_is_told_how_times_are_written() {
    for text in [
        "",
        "yesterday",
        "2013-01",
        "2013-01-32",
        "2013-01-01 25:00",
        "1.",
        ".5",
        "1e9",
        "5m",
        "m-ago",
        "-5m-ago",
        "5y-ago",
        "1 ms",
        "+1",
        "9223372036854775807ms",
        "9223372036854775807w-ago",
        "99999999999999999999",
        "é-ago",
        "-",
    ] {
        let error = when(text).unwrap_err();
        assert!(error.contains("is not a time") && error.contains("2026-07-27T12:00:00Z"), "{text}: {error}");
    }
    let error = when("1356998400000").unwrap_err();
    assert!(error.contains("year 9999") && error.contains("ms"), "milliseconds without their unit: {error}");
}
