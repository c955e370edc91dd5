use super::*;

#[test]
fn a_time_is_written_as_people_read_it() {
    for (micros, expected) in [
        (1_767_261_720_000_000, "2026-01-01T10:02:00Z"),
        (1_767_261_720_250_000, "2026-01-01T10:02:00.250Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (i64::MIN, "-9223372036854775808us"),
        (i64::MAX, "9223372036854775807us"),
    ] {
        assert_eq!(Timestamp::from_micros(micros).utc(), expected);
    }
}
