use super::*;
use crate::manifest::FileEntry;

const DAY_S: u64 = 86_400;

/// Segments, one a line: `name first last bytes sequence`, times in days.
fn entries(text: &str) -> Vec<SegmentEntry> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap();
            let (first, last) = (number(1) * DAY, number(2) * DAY);
            SegmentEntry {
                file: FileEntry { file: words[0].to_owned(), bytes: number(3).cast_unsigned(), crc32: 0 },
                rows: 1,
                window_start: first,
                window_end: last + 1,
                first,
                last,
                sequence_min: number(4).cast_unsigned(),
                sequence_max: number(4).cast_unsigned(),
                tail: 0,
                tail_crc32: 0,
            }
        })
        .collect()
}

fn days(days: u64) -> Option<Duration> {
    Some(Duration::from_secs(days * DAY_S))
}

/// On day 100, with 10 bytes that are no segment's.
fn check(retention: Retention, text: &str, expected: &[&str]) {
    let now = Timestamp::from_micros(100 * DAY);
    assert_eq!(choose(&entries(text), 10, &retention, now), expected, "{retention:?} {text}");
}

#[test]
fn everything_is_kept_unless_somebody_says_otherwise() {
    check(Retention::default(), "a 0 1 1000000 1 \n b 99 100 1 2", &[]);
}

#[test]
fn a_segment_goes_when_its_last_sample_is_older_than_the_age() {
    let age = Retention { age: days(30), ..Retention::default() };
    check(age, "a 60 69 1 1 \n b 60 70 1 2 \n c 50 51 1 3 \n d 99 100 1 4", &["c", "a"]);
    check(age, "", &[]);
}

#[test]
fn age_counts_from_the_newest_sample_and_never_from_later_than_now() {
    let age = Retention { age: days(30), ..Retention::default() };
    check(age, "a 1 2 1 1 \n b 30 31 1 2", &[]);
    check(age, "a 1 2 1 1 \n b 32 33 1 2", &["a"]);
    check(age, "a 69 69 1 1 \n b 80 80 1 2 \n c 900 999 1 3", &["a"]);
    let forever = Retention { age: Some(Duration::MAX), ..Retention::default() };
    check(forever, "a 1 2 1 1 \n b 99 99 1 2", &[]);
}

#[test]
fn the_oldest_go_until_all_files_together_are_small_enough() {
    let bytes = |bytes| Retention { bytes: Some(bytes), ..Retention::default() };
    let text = "c 4 5 30 1 \n a 1 1 30 2 \n b 2 3 30 3";
    check(bytes(100), text, &[]);
    check(bytes(99), text, &["a"]);
    check(bytes(69), text, &["a", "b"]);
}

#[test]
fn what_is_no_segment_takes_at_most_half_of_the_bytes_from_them() {
    let bytes = Retention { bytes: Some(100), ..Retention::default() };
    let now = Timestamp::from_micros(100 * DAY);
    assert_eq!(choose(&entries("a 1 1 50 1"), 1_000, &bytes, now), Vec::<String>::new());
    assert_eq!(choose(&entries("a 1 1 51 1"), 1_000, &bytes, now), ["a"]);
}

#[test]
fn both_limits_hold() {
    let both = Retention { age: days(30), bytes: Some(60) };
    check(both, "a 1 1 10 1 \n b 80 80 30 2 \n c 90 90 30 3 \n d 99 99 20 4", &["a", "b"]);
}

#[test]
fn what_overwrote_a_segment_stays_as_long_as_it() {
    let age = Retention { age: days(30), ..Retention::default() };
    // `b` was written later, over times of `a`, which is not old enough.
    check(age, "a 60 80 1 1 \n b 61 62 1 2 \n c 61 61 1 3 \n z 99 100 1 4", &[]);
    check(age, "a 60 69 1 1 \n b 61 62 1 2 \n z 99 100 1 4", &["a", "b"]);
    // What was written before may go first.
    check(age, "b 61 62 1 1 \n a 60 80 1 2 \n z 99 100 1 4", &["b"]);
    let bytes = Retention { bytes: Some(60), ..Retention::default() };
    check(bytes, "a 60 80 20 1 \n b 61 62 20 2 \n c 70 70 20 3 \n z 99 100 20 4", &["a", "b"]);
    check(bytes, "a 60 80 20 1 \n b 61 62 20 2 \n c 50 50 20 3 \n z 99 100 20 4", &["c", "a"]);
}

#[test]
fn merged_files_are_small_and_short_beside_what_is_kept() {
    let all = Retention::default();
    assert_eq!((all.is_bounded(), all.segment_bytes_max(), all.allows_days()), (false, u64::MAX, true));
    let some = Retention { age: days(3), bytes: Some(80) };
    assert_eq!((some.is_bounded(), some.segment_bytes_max(), some.allows_days()), (true, 10, false));
    assert!(Retention { age: days(4), ..all }.allows_days());
}
