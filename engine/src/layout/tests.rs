use super::*;

#[test]
fn a_time_is_stamped_in_utc() {
    let cases = [
        (0, "19700101T000000Z"),
        (1_767_322_800_000_000, "20260102T030000Z"),
        (951_782_400_000_000, "20000229T000000Z"),
        (-1, "19691231T235959Z"),
        (253_402_300_799_999_999, "99991231T235959Z"),
    ];
    for (micros, expected) in cases {
        assert_eq!(stamp(Timestamp::from_micros(micros)), expected);
    }
}

#[test]
fn stamps_sort_as_their_times_at_both_ends_of_what_a_time_can_be() {
    let times = [i64::MIN, i64::MIN + 1, -62_167_219_200_000_001, -62_167_219_200_000_000, 0, 253_402_300_800_000_000];
    let mut stamps: Vec<String> = times.iter().map(|micros| stamp(Timestamp::from_micros(*micros))).collect();
    stamps.push(stamp(Timestamp::MAX));
    assert!(stamps.is_sorted(), "{stamps:?}");
}

#[test]
fn a_wal_number_is_read_back_and_other_names_have_none() {
    let layout = Layout::new(Path::new("/db"));
    assert_eq!(wal_number(&layout.wal(7)), Some(7));
    assert_eq!(wal_number(Path::new("/db/wal/00000007.damaged")), None);
    assert_eq!(wal_number(Path::new("/db/wal/x.wal")), None);
}
