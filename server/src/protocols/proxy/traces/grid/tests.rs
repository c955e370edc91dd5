//! Totals of several runs, and values between samples.

use proptest::prelude::*;

use super::*;

fn piece(samples: &[(i64, f64)]) -> TracePiece {
    samples.iter().map(|(seconds, value)| (Timestamp::from_seconds(*seconds), *value)).collect()
}

fn shown(points: Vec<(Timestamp, f64)>) -> Vec<(f64, f64)> {
    points.into_iter().map(|(time, value)| (time.micros() as f64 / 1e6, value)).collect()
}

#[test]
fn runs_that_begin_at_0_add_up_and_lanes_too() {
    let first = piece(&[(1, 3.0), (2, 5.0)]);
    let second = piece(&[(4, 2.0), (6, 7.0)]);
    let beside = piece(&[(2, 10.0), (5, 9.0)]);
    assert_eq!(counted(vec![first.clone()]), first);
    let expected = [(1.0, 3.0), (2.0, 15.0), (4.0, 17.0), (5.0, 16.0), (6.0, 21.0)];
    assert_eq!(shown(counted(vec![first, second, beside])), expected);
    assert_eq!(shown(counted(vec![piece(&[(1, f64::NAN), (2, 4.0)]), piece(&[(3, 1.0)])])), [(2.0, 4.0), (3.0, 5.0)]);
    assert_eq!(counted(Vec::new()), []);
}

#[test]
fn of_gauges_the_last_one_that_was_set_counts() {
    let (one, other) = (piece(&[(1, 3.0), (4, 5.0)]), piece(&[(2, 7.0), (4, 8.0)]));
    assert_eq!(shown(latest_of(vec![one, other])), [(1.0, 3.0), (2.0, 7.0), (4.0, 8.0)]);
}

fn grid(begin: i64, end: f64, points_max: usize) -> TraceGrid {
    let end = Timestamp::from_micros((end * 1e6) as i64);
    TraceGrid::new(Timestamp::from_seconds(begin), end, Duration::from_secs(1), points_max)
}

#[test]
fn there_is_a_point_each_period_and_one_at_the_end() {
    let samples = piece(&[(10, 1.0), (13, 4.0)]);
    let expected = [(10.0, 1.0), (11.0, 1.0), (12.0, 1.0), (13.0, 4.0), (14.25, 5.0)];
    assert_eq!(shown(grid(10, 14.25, 100).fill(&samples, 5.0)), expected, "the end takes the place of 14");
    let expected = [(10.0, 1.0), (11.0, 1.0), (12.0, 1.0), (13.0, 4.0), (14.0, 4.0), (14.75, 5.0)];
    assert_eq!(shown(grid(10, 14.75, 100).fill(&samples, 5.0)), expected);
    assert_eq!(shown(grid(8, 10.0, 100).fill(&samples, 1.0)), [(10.0, 1.0)], "nothing before the first sample");
    assert_eq!(shown(grid(10, 10.0, 100).fill(&[], 3.0)), [(10.0, 3.0)], "what was not stored yet has its value");
    assert_eq!(shown(grid(10, 5.0, 100).fill(&samples, 1.0)), [(10.0, 1.0)], "an end before the begin");
}

#[test]
fn a_long_trace_has_a_wider_step() {
    let samples = piece(&[(0, 1.0)]);
    let points = grid(0, 1_000.0, 10).fill(&samples, 2.0);
    assert_eq!(points.len(), 9, "{points:?}");
    assert_eq!(shown(points)[..3], [(0.0, 1.0), (128.0, 1.0), (256.0, 1.0)]);
}

proptest! {
    #[test]
    fn times_rise_and_there_are_not_too_many(
        begin in -1_000_000_000i64..1_000_000_000,
        length in 0i64..1_000_000_000_000,
        period in 1u64..100_000_000,
        points_max in 2usize..50,
    ) {
        let (begin, end) = (Timestamp::from_micros(begin), Timestamp::from_micros(begin + length));
        let grid = TraceGrid::new(begin, end, Duration::from_micros(period), points_max);
        let points = grid.fill(&[(begin, 1.0)], 2.0);
        prop_assert!(!points.is_empty() && points.len() <= points_max, "{} of {points_max}", points.len());
        prop_assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        prop_assert_eq!(points.last(), Some(&(end, 2.0)));
    }

    #[test]
    fn the_total_of_runs_is_the_sum_of_their_last_values(
        runs in proptest::collection::vec(proptest::collection::vec((0i64..100, 0i32..1000), 1..6), 1..6),
    ) {
        let runs: Vec<TracePiece> = runs
            .iter()
            .map(|run| {
                let mut times: Vec<i64> = run.iter().map(|(time, _)| *time).collect();
                times.sort_unstable();
                times.dedup();
                piece(&times.iter().zip(run).map(|(time, (_, value))| (*time, f64::from(*value))).collect::<Vec<_>>())
            })
            .collect();
        let expected: f64 = runs.iter().map(|run| run.last().unwrap().1).sum();
        let totals = counted(runs);
        prop_assert_eq!(totals.last().unwrap().1, expected);
        prop_assert!(totals.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
