use super::super::choose::tests::{TEN_ROWS, entries, lines};
use super::*;
use crate::manifest::FileEntry;

/// At hour `now`, with at most `rows_max` rows in a file: the merges.
fn check(now: i64, rows_max: u64, text: &str, expected: &[&str]) {
    let bounds = Bounds { rows_max, ..TEN_ROWS };
    assert_eq!(lines(&due(&entries(text), Timestamp::from_micros(now * HOUR), &bounds)), expected, "{text}");
}

#[test]
fn an_hour_becomes_one_file_when_it_is_over_and_a_flush_came_without_it() {
    let hour = "a 5 3 1 \n b 5 3 2 \n c 5 1 3 \n d 6 1 3";
    check(6, 99, hour, &[]);
    check(5, 99, &format!("{hour} \n e 6 2 4"), &[]);
    check(6, 99, &format!("{hour} \n e 6 2 4"), &["5-6: a b c (1-3)"]);
    check(99, 99, "a 5 3 1", &[]);
    check(99, 99, "", &[]);
}

#[test]
fn a_day_becomes_one_file_when_it_is_over_and_small_enough() {
    let day = "a 0 30 1-4 \n b 1 30 5-6 \n c 23 30 7 \n d 24 1 7 \n e 24 1 8";
    check(24, 99, day, &["0-24: a b c (1-7)"]);
    check(23, 99, day, &[]);
    check(24, 80, day, &[]);
    check(24, 80, &format!("{day} \n f 1 9 8 \n g 25 1 9"), &["1-2: b f (5-8)"]);
}

#[test]
fn days_are_made_only_where_they_may_be() {
    let bounds = Bounds { days: false, ..TEN_ROWS };
    let text = "a 0 1 1 \n b 1 1 2 \n c 1 1 3 \n d 30 1 4";
    let merges = due(&entries(text), Timestamp::from_micros(99 * HOUR), &bounds);
    assert_eq!(lines(&merges), ["1-2: b c (2-3)"]);
}

#[test]
fn what_comes_late_waits_until_it_is_worth_the_rewriting_of_what_is_there() {
    let rest = "x 60 1 9";
    check(99, 999, &format!("a 0-24 80 1-5 \n b 3 9 6 \n {rest}"), &[]);
    check(99, 999, &format!("a 0-24 80 1-5 \n b 3 10 6 \n {rest}"), &["0-24: a b (1-6)"]);
    check(99, 50, &format!("a 3 45 1-5 \n b 3 4 6 \n c 9 9 6 \n {rest}"), &[]);
    check(99, 53, &format!("a 3 45 1-5 \n b 3 6 6 \n c 9 9 6 \n {rest}"), &["3-4: a b (1-6)"]);
}

#[test]
fn a_file_that_no_merge_made_is_taken_in_whatever_comes_late() {
    check(99, 999, "a 3 800 1 \n b 3 1 2 \n x 60 1 3", &["0-24: a b (1-2)"]);
    check(99, 800, "a 3 800 1 \n b 3 1 2 \n x 60 1 3", &[]);
    check(99, 801, "a 3 800 1 \n b 3 1 2 \n c 4 1 2 \n x 60 1 3", &["3-4: a b (1-2)"]);
}

#[test]
fn many_files_of_an_hour_that_goes_on_become_one_when_that_makes_a_much_larger_one() {
    let seven: String = (1..8).map(|number| format!("f{number} 5 2 {number}\n")).collect();
    check(5, 999, &seven, &[]);
    let all = "5-6: f1 f2 f3 f4 f5 f6 f7 g (1-8)";
    check(5, 999, &format!("{seven} g 5 2 8"), &[all]);
    check(5, 999, &format!("{seven} g 5 4 8"), &[all]);
    check(5, 999, &format!("{seven} g 5 5 8"), &[]);
    check(
        5,
        999,
        &format!("big 5 99 1-3 \n {} g 5 4 18", later(&seven)),
        &["5-6: f11 f12 f13 f14 f15 f16 f17 g (11-18)"],
    );
    check(5, 15, &format!("{seven} g 5 2 8"), &[]);
}

fn later(seven: &str) -> String {
    seven.replace('f', "f1").lines().map(|line| line.replacen(" 5 2 ", " 5 2 1", 1) + "\n").collect()
}

#[test]
fn many_files_over_more_than_a_day_become_one_of_their_window() {
    let all: String = (1..9).map(|number| format!("f{number} all 1 {number}\n")).collect();
    let merges = due(&entries(&all), Timestamp::from_micros(0), &TEN_ROWS);
    assert_eq!((merges.len(), merges[0].window, merges[0].files.len()), (1, TimeRange::ALL, 8));
    let days: String = (1..9).map(|number| format!("f{number} 0-24 1 {number}\n")).collect();
    check(3, 10, &days, &["0-24: f1 f2 f3 f4 f5 f6 f7 f8 (1-8)"]);
}

#[test]
fn nothing_is_merged_across_a_file_over_more_time_that_lies_between() {
    check(99, 99, "a 0 1 1 \n x all 1 2 \n b 0 1 3 \n y 60 1 4", &[]);
    check(99, 99, "a 0 1 1 \n b 0 1 2 \n x all 1 3 \n c 0 1 4 \n y 60 1 5", &["0-24: a b (1-2)"]);
}

#[test]
fn small_merges_come_first() {
    let text = "a 0 5 1 \n b 0 5 2 \n c 1 1 2 \n d 1 1 3 \n e 2 2 4 \n f 2 2 5 \n g 90 1 6";
    check(99, 11, text, &["1-2: c d (2-3)", "2-3: e f (4-5)", "0-1: a b (1-2)"]);
}

/// Flushes of `minutes` each, of the rows that `rows` says, and all merges that are due after each. Gives back the most
/// files that there were after a day, and how often a row was written by merges.
fn play(flushes: i64, minutes: i64, rows: impl Fn(i64) -> u64, late: impl Fn(i64) -> Option<i64>) -> (usize, f64) {
    const MINUTE: i64 = HOUR / 60;
    let bounds = Bounds { rows_max: 8 << 20, bytes_max: u64::MAX, days: true };
    let mut all: Vec<SegmentEntry> = Vec::new();
    let (mut most, mut flushed, mut merged) = (0, 0, 0);
    for flush in 0..flushes {
        let (start, end) = (flush * minutes * MINUTE, (flush + 1) * minutes * MINUTE);
        let hours = start.div_euclid(HOUR)..=(end - 1).div_euclid(HOUR);
        for hour in hours.chain(late(flush)) {
            let entry = entry(window(hour, HOUR), rows(flush), (flush as u64, flush as u64));
            flushed += entry.rows;
            all.push(entry);
        }
        while let Some(merge) = due(&all, Timestamp::from_micros(end), &bounds).into_iter().next() {
            assert_eq!(all.iter().filter(|entry| merge.files.contains(&entry.file.file)).count(), merge.files.len());
            all.retain(|entry| !merge.files.contains(&entry.file.file));
            all.push(entry(merge.window, merge.rows, (merge.sequence_min, merge.sequence_max)));
            merged += merge.rows;
        }
        let days = end.div_euclid(DAY);
        most = most.max(all.len().saturating_sub(usize::try_from(days).unwrap_or(0)));
    }
    (most, merged as f64 / flushed as f64)
}

fn entry(window: TimeRange, rows: u64, (sequence_min, sequence_max): (u64, u64)) -> SegmentEntry {
    let (start, end) = (window.start.micros(), window.end.micros());
    SegmentEntry {
        file: FileEntry { file: format!("{start}-{end}-{sequence_min}-{sequence_max}"), bytes: rows, crc32: 0 },
        rows,
        window_start: start,
        window_end: end,
        first: start,
        last: end - 1,
        sequence_min,
        sequence_max,
        tail: 0,
        tail_crc32: 0,
    }
}

#[test]
fn files_stay_few_and_every_row_is_written_few_times_however_often_a_flush_comes() {
    let never = |_| None;
    for (minutes, files_max, written_max) in [(60, 30, 1.0), (20, 30, 2.0), (7, 40, 2.5), (1, 50, 4.0)] {
        let flushes = 3 * 24 * 60 / minutes;
        let (files, written) = play(flushes, minutes, |_| 1_000, never);
        println!("a flush every {minutes} minutes: {files} files besides whole days, rows merged {written:.2} times");
        assert!(files <= files_max && written <= written_max, "{minutes}: {files} files, {written}");
    }
}

#[test]
fn late_samples_neither_pile_up_nor_make_days_be_written_again_and_again() {
    // Each flush brings something of some hour of the day before, too.
    let late = |flush: i64| (flush > 24 * 6).then_some(flush / 6 - 24 + flush * 7 % 24);
    let (files, written) = play(5 * 24 * 6, 10, |_| 1_000, late);
    println!("{files} files besides whole days, rows merged {written:.2} times");
    assert!(files <= 250 && written <= 8.0, "{files} files, {written}");
}

#[test]
fn large_flushes_of_a_backfill_are_merged_once_or_not_at_all() {
    // All of it is long over when it comes.
    let bounds = Bounds { rows_max: 8 << 20, bytes_max: u64::MAX, days: true };
    let mut all = Vec::new();
    for flush in 0..6 {
        all.push(entry(window(0, HOUR), 3 << 20, (flush, flush)));
        assert_eq!(due(&all, Timestamp::from_micros(99 * DAY), &bounds), [], "more may come");
    }
    all.push(entry(window(1, HOUR), 3 << 20, (6, 6)));
    assert_eq!(due(&all, Timestamp::from_micros(99 * DAY), &bounds).len(), 3, "pairs, as more have too many rows");
}

#[test]
fn series_files_become_one_when_there_are_many_and_the_older_are_not_larger_than_what_came_since() {
    let entries = |counts: &[u32]| -> Vec<SeriesEntry> {
        let file = FileEntry { file: String::new(), bytes: 1, crc32: 0 };
        counts.iter().map(|count| SeriesEntry { file: file.clone(), first_id: 0, count: *count }).collect()
    };
    assert_eq!(due_series(&entries(&[1, 1, 1]), 4, 99), None);
    assert_eq!(due_series(&entries(&[1, 1, 1, 1]), 4, 99), Some(0..4));
    assert_eq!(due_series(&entries(&[50, 1, 1, 1]), 4, 99), Some(1..4));
    assert_eq!(due_series(&entries(&[8, 4, 2, 1]), 4, 99), None);
    assert_eq!(due_series(&entries(&[7, 4, 2, 1]), 4, 99), Some(0..4));
    assert_eq!(due_series(&entries(&[7, 4, 2, 1]), 4, 13), None);
    assert_eq!(due_series(&entries(&[]), 0, 99), None);
}
