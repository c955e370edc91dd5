use super::*;
use crate::segment::times::Times;

/// The rows before which row groups end, of runs of so many rows each with times of their own (a number stands for
/// them).
fn ends(runs: impl IntoIterator<Item = (i64, usize)>, ticks: bool) -> Vec<usize> {
    let (mut period, mut row, mut start, mut ends) = (Period::default(), 0, 0, Vec::new());
    for (first, rows) in runs {
        let times = if ticks { Times::Regular { step: 7 } } else { Times::Shared { list: first as u32, from: 0 } };
        if period.ends_group(TimesPart { times, first, rows }, ticks, row, row - start) {
            ends.push(row);
            start = row;
        }
        row += rows;
        while row - start >= ROW_GROUP_ROWS {
            start += ROW_GROUP_ROWS;
        }
    }
    ends
}

/// Of `metrics`, one after the other, the runs of nodes.
fn nodes(metrics: usize, nodes: i64, rows: usize) -> impl Iterator<Item = (i64, usize)> {
    (0..metrics).flat_map(move |_| (0..nodes).map(move |node| (node, rows)))
}

#[test]
fn a_large_period_has_a_row_group_of_its_own() {
    let rows = 100 * 3_600;
    assert_eq!(ends(nodes(4, 100, 3_600), false), [rows, 2 * rows, 3 * rows]);
}

#[test]
fn of_small_periods_as_many_as_fit_share_a_row_group() {
    // 58 of 18,000 rows.
    assert_eq!(ends(nodes(120, 5, 3_600), false), [58 * 18_000, 116 * 18_000]);
    assert_eq!(ends(nodes(58, 5, 3_600), false), [0; 0]);
}

#[test]
fn times_that_tick_end_a_row_group_only_where_it_is_full() {
    // 29 of 36,000 rows, 291 runs of 3,600.
    assert_eq!(ends(nodes(60, 10, 3_600), true), [29 * 36_000, 58 * 36_000]);
    assert_eq!(ends((0..600).map(|_| (0, 3_600)), true), [291 * 3_600, 582 * 3_600]);
}

#[test]
fn a_period_of_many_row_groups_begins_with_one() {
    let rows = 100 * 86_400;
    assert_eq!(ends(nodes(3, 100, 86_400), false), [rows, 2 * rows]);
}

#[test]
fn times_that_never_come_again_end_nothing() {
    assert_eq!(ends((0..1_000).map(|run| (run, 3_600)), false), [0; 0]);
}

#[test]
fn a_series_of_its_own_that_comes_first_does_no_harm() {
    let rows = 100 * 3_600;
    let runs = std::iter::once((-1, 50)).chain(nodes(4, 100, 3_600));
    assert_eq!(ends(runs, false), [50 + rows, 50 + 2 * rows, 50 + 3 * rows]);
}

#[test]
fn metrics_of_several_series_a_node_have_a_period_too() {
    // Eight processors a node.
    let processors = || (0..100).flat_map(|node| (0..8).map(move |_| (node, 3_600)));
    let rows = 800 * 3_600;
    assert_eq!(ends((0..4).flat_map(|_| processors()), false), [rows, 2 * rows, 3 * rows]);
}
