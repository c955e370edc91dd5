use super::*;

/// The rows before which row groups end, of runs of so many rows each with times of their own (a number stands for
/// them).
fn ends(runs: impl IntoIterator<Item = (i64, u64)>) -> Vec<u64> {
    let (mut period, mut row, mut start, mut ends) = (Period::default(), 0, 0, Vec::new());
    for (times, rows) in runs {
        if period.ends_group(&[times], row, row - start) {
            ends.push(row);
            start = row;
        }
        row += rows;
        while row - start >= ROW_GROUP_ROWS as u64 {
            start += ROW_GROUP_ROWS as u64;
        }
    }
    ends
}

/// Of `metrics`, one after the other, the runs of nodes.
fn nodes(metrics: u64, nodes: i64, rows: u64) -> impl Iterator<Item = (i64, u64)> {
    (0..metrics).flat_map(move |_| (0..nodes).map(move |node| (node, rows)))
}

#[test]
fn a_large_period_has_a_row_group_of_its_own() {
    let rows = 100 * 3_600;
    assert_eq!(ends(nodes(4, 100, 3_600)), [rows, 2 * rows, 3 * rows]);
}

#[test]
fn of_small_periods_as_many_as_fit_share_a_row_group() {
    // 29 of 36,000 rows.
    assert_eq!(ends(nodes(60, 10, 3_600)), [29 * 36_000, 58 * 36_000]);
    assert_eq!(ends(nodes(29, 10, 3_600)), [0; 0]);
}

#[test]
fn a_period_of_many_row_groups_begins_with_one() {
    let rows = 100 * 86_400;
    assert_eq!(ends(nodes(3, 100, 86_400)), [rows, 2 * rows]);
}

#[test]
fn times_that_never_come_again_end_nothing() {
    assert_eq!(ends((0..1_000).map(|run| (run, 3_600))), [0; 0]);
}

#[test]
fn a_series_of_its_own_that_comes_first_does_no_harm_for_long() {
    let rows = 100 * 3_600;
    let runs = std::iter::once((-1, 50)).chain(nodes(6, 100, 3_600));
    assert_eq!(ends(runs), [50 + 3 * rows, 50 + 4 * rows, 50 + 5 * rows]);
}

#[test]
fn metrics_of_several_series_a_node_have_a_period_too() {
    // Eight processors a node.
    let processors = || (0..100).flat_map(|node| (0..8).map(move |_| (node, 3_600)));
    let rows = 800 * 3_600;
    let found = ends((0..4).flat_map(|_| processors()));
    let of_metric = |metric: u64| {
        found.iter().filter(move |row| **row / rows == metric).map(move |row| row % rows).collect::<Vec<_>>()
    };
    assert!(!of_metric(2).is_empty());
    assert_eq!(of_metric(2), of_metric(3));
}
