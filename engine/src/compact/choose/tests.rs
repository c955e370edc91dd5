use super::*;
use crate::manifest::FileEntry;

/// Segments, one a line: `name window rows sequence`; a window is hours (`5`, `0-24` for the first day) or `all`.
pub fn entries(text: &str) -> Vec<SegmentEntry> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let range = |text: &str| -> (i64, i64) {
                match text.split_once('-') {
                    Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                    None => (text.parse().unwrap(), text.parse().unwrap()),
                }
            };
            let (start, end) = match words[1] {
                "all" => (i64::MIN, i64::MAX),
                hour if !hour.contains('-') => (range(hour).0 * HOUR, (range(hour).0 + 1) * HOUR),
                hours => (range(hours).0 * HOUR, range(hours).1 * HOUR),
            };
            let (sequence_min, sequence_max) = range(words[3]);
            SegmentEntry {
                file: FileEntry { file: words[0].to_owned(), bytes: 1, crc32: 0 },
                rows: words[2].parse().unwrap(),
                window_start: start,
                window_end: end,
                first: start,
                last: end - 1,
                sequence_min: sequence_min.cast_unsigned(),
                sequence_max: sequence_max.cast_unsigned(),
                tail: 0,
                tail_crc32: 0,
            }
        })
        .collect()
}

/// At most 10 rows in a file.
pub const TEN_ROWS: Bounds = Bounds { rows_max: 10, bytes_max: u64::MAX, days: true };

/// The merges, one a line: `window: files (sequence)`, windows in hours.
pub fn lines(merges: &[Merge]) -> Vec<String> {
    let line = |merge: &Merge| {
        let hours = |time: Timestamp| time.micros() / HOUR;
        let (start, end) = (hours(merge.window.start), hours(merge.window.end));
        let (min, max) = (merge.sequence_min, merge.sequence_max);
        format!("{start}-{end}: {} ({min}-{max})", merge.files.join(" "))
    };
    merges.iter().map(line).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(lines(&choose(&entries(text), &TEN_ROWS)), expected);
}

#[test]
fn the_hours_of_a_day_become_one_file() {
    check("a 0 3 1 \n b 1 3 2 \n c 23 3 3", &["0-24: a b c (1-3)"]);
    check("b 1 3 2 \n a 0 3 1", &["0-24: a b (1-2)"]);
}

#[test]
fn every_day_is_a_file_of_its_own() {
    check("a 22 3 1 \n b 23 3 1 \n c 24 3 1 \n d 25 3 2 \n e 50 3 3", &["0-24: a b (1-1)", "24-48: c d (1-2)"]);
}

#[test]
fn a_file_that_is_alone_in_its_day_stays() {
    check("", &[]);
    check("a 0 3 1", &[]);
    check("a 0-24 3 1-5 \n b 30 2 6", &[]);
}

#[test]
fn a_day_of_an_earlier_merge_takes_later_files_in() {
    check("a 0-24 3 1-5 \n b 3 2 6", &["0-24: a b (1-6)"]);
}

#[test]
fn a_day_with_too_many_rows_is_merged_by_the_hour() {
    check("a 0 4 1 \n b 0 4 2 \n c 1 2 2 \n d 1 1 3", &["0-1: a b (1-2)", "1-2: c d (2-3)"]);
    check("a 0 5 1 \n b 0 5 2", &["0-24: a b (1-2)"]);
    check("a 0 5 1 \n b 0 6 2", &[]);
}

#[test]
fn an_hour_with_too_many_rows_is_cut_between_flushes() {
    check("a 0 4 1 \n b 0 4 2 \n c 0 4 3 \n d 0 4 4 \n e 0 4 5", &["0-1: a b (1-2)", "0-1: c d (3-4)"]);
}

#[test]
fn nothing_is_merged_across_a_file_over_more_time_that_lies_between() {
    check("a 0 1 1 \n b 1 1 2 \n x all 1 3 \n c 0 1 4 \n d 1 1 5", &["0-24: a b (1-2)", "0-24: c d (4-5)"]);
    check("a 0 1 1 \n x 0-48 1 2 \n b 1 1 3", &[]);
    check("x 0-48 1 1 \n a 0 1 2 \n b 1 1 3", &["0-24: a b (2-3)"]);
}

#[test]
fn a_file_over_other_times_may_have_any_sequence() {
    check("a 0 1 1 \n x 24-48 1 2 \n b 1 1 3", &["0-24: a b (1-3)"]);
    check("a 0 6 1 \n b 5 6 2 \n c 0 4 3", &["0-1: a c (1-3)"]);
}

#[test]
fn what_one_flush_wrote_stays_together() {
    check("a 0 4 1 \n b 1 4 1 \n x all 1 2 \n c 0 1 3", &["0-24: a b (1-1)"]);
}

#[test]
fn a_file_has_no_more_bytes_than_it_may_and_days_only_where_they_may_be() {
    let text = "a 0 1 1 \n b 0 1 2 \n c 0 1 3 \n d 1 1 4";
    let all = entries(text);
    let two = choose(&all, &Bounds { bytes_max: 2, ..TEN_ROWS });
    assert_eq!(lines(&two), ["0-1: a b (1-2)"]);
    let hours = choose(&all, &Bounds { days: false, ..TEN_ROWS });
    assert_eq!(lines(&hours), ["0-1: a b c (1-3)"]);
}

#[test]
fn hours_before_1970_have_days_too() {
    let mut old = entries("a 0 1 1 \n b 1 1 2");
    for entry in &mut old {
        entry.window_start -= DAY;
        entry.window_end -= DAY;
    }
    let merges = choose(&old, &TEN_ROWS);
    assert_eq!((merges.len(), merges[0].window), (1, window(-1, DAY)));
}
