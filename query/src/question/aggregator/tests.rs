use proptest::collection::vec;
use proptest::prelude::*;

use super::{Aggregator, Estimation, Interpolation, Parts, TABLE};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[track_caller]
fn check_floats(values: &[f64], expected: &[(&str, f64)]) {
    let mut scratch = Vec::new();
    for (name, expected) in expected {
        let found = name.parse::<Aggregator>().unwrap().of_floats(values, &mut scratch);
        let same = found == *expected && found.is_sign_negative() == expected.is_sign_negative();
        assert!(same || found.is_nan() && expected.is_nan(), "{name} of {values:?} is {found}, expected {expected}");
    }
}

#[track_caller]
fn check_ints(values: &[i64], expected: &[(&str, i64)]) {
    let mut scratch = Vec::new();
    for (name, expected) in expected {
        let found = name.parse::<Aggregator>().unwrap().of_ints(values, &mut scratch);
        assert_eq!(found, *expected, "{name} of {values:?}");
    }
}

#[test]
fn every_name_reads_back_and_names_are_case_sensitive() {
    for known in TABLE {
        assert_eq!(known.name.parse::<Aggregator>().unwrap(), known.aggregator);
        assert_eq!(known.aggregator.to_string(), known.name);
    }
    let names = TABLE.map(|known| known.name);
    assert_eq!(
        names.join(" "),
        "sum min max avg median none mult dev diff count zimsum mimmin mimmax first last pfsum squareSum \
         p50 p75 p90 p95 p99 p999 ep50r3 ep75r3 ep90r3 ep95r3 ep99r3 ep999r3 \
         ep50r7 ep75r7 ep90r7 ep95r7 ep99r7 ep999r7"
    );
    for unknown in ["", "SUM", "multiply", "squaresum", "p98", "ep50r1"] {
        let error = unknown.parse::<Aggregator>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("aggregator '{unknown}' is unknown; known are sum, min")), "{error}");
    }
}

/// Fails to compile for a kind of aggregator that is not looked up here.
#[test]
fn every_kind_of_aggregator_has_a_line() {
    use Aggregator::*;
    let other = Percentile(super::Percentile { per_mille: 123, estimation: Estimation::R3 });
    let kinds = [
        Sum, Min, Max, Avg, Median, None, Mult, Dev, Diff, Count, ZimSum, MimMin, MimMax, First, Last, PfSum,
        SquareSum, other,
    ];
    for kind in kinds {
        match kind {
            Sum | Min | Max | Avg | Median | None | Mult | Dev | Diff | Count | ZimSum | MimMin | MimMax | First
            | Last | PfSum | SquareSum | Percentile(_) => {}
        }
        assert!(!kind.definition().name.is_empty());
    }
    assert_eq!(other.to_string(), "percentile of 123 per mille");
}

#[test]
fn what_changes_nothing_is_nothing() {
    for parts in [Parts::Sum, Parts::SumOfSquares, Parts::SumAndCount, Parts::Count] {
        assert!(parts.identity() == 0.0 && parts.is_nothing(NAN) && !parts.is_nothing(0.0));
    }
    assert!(Parts::Least.is_nothing(INF) && !Parts::Least.is_nothing(-INF));
    assert!(Parts::Greatest.is_nothing(-INF) && !Parts::Greatest.is_nothing(INF));
    assert!(!Parts::EachSeries.is_nothing(NAN));
}

#[test]
fn what_is_filled_in_between_two_points_depends_on_the_aggregator() {
    let of = |name: &str| name.parse::<Aggregator>().unwrap().interpolation();
    for name in ["sum", "min", "max", "avg", "mult", "dev", "diff", "median", "p99", "ep50r3"] {
        assert_eq!(of(name), Interpolation::Linear, "{name}");
    }
    for name in ["zimsum", "squareSum", "count", "first", "last", "none"] {
        assert_eq!(of(name), Interpolation::Zero, "{name}");
    }
    assert_eq!(of("mimmin"), Interpolation::Max);
    assert_eq!(of("mimmax"), Interpolation::Min);
    assert_eq!(of("pfsum"), Interpolation::Previous);
}

#[test]
fn aggregators_of_floats() {
    check_floats(
        &[4.0, 1.0, 2.5, 8.0],
        &[
            ("sum", 15.5),
            ("zimsum", 15.5),
            ("pfsum", 15.5),
            ("squareSum", 16.0 + 1.0 + 6.25 + 64.0),
            ("avg", 3.875),
            ("count", 4.0),
            ("min", 1.0),
            ("mimmax", 8.0),
            ("mult", 80.0),
            ("first", 4.0),
            ("last", 8.0),
            ("diff", 4.0),
            ("median", 4.0),
            ("p50", 3.25),
            ("p99", 8.0),
        ],
    );
}

#[test]
fn deviation_is_that_of_the_population() {
    check_floats(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], &[("dev", 2.0)]);
    check_floats(&[7.5], &[("dev", 0.0)]);
    check_floats(&[NAN, 7.5, NAN], &[("dev", 0.0)]);
    check_floats(&[INF, 1.0], &[("dev", NAN)]);
    check_ints(&[1, 4], &[("dev", 1)]);
    check_ints(&[i64::MIN, i64::MAX], &[("dev", i64::MAX)]);
}

#[test]
fn nan_is_skipped_by_most_and_passed_on_by_some() {
    check_floats(
        &[NAN, 3.0, NAN],
        &[
            ("sum", 3.0),
            ("squareSum", 9.0),
            ("avg", 3.0),
            ("min", 3.0),
            ("max", 3.0),
            ("count", 1.0),
            ("median", 3.0),
            ("p99", 3.0),
            ("mult", NAN),
            ("first", NAN),
            ("last", NAN),
        ],
    );
    for name in ["sum", "zimsum", "pfsum", "squareSum", "avg", "min", "mimmin", "max", "mimmax", "dev", "median", "p50"]
    {
        check_floats(&[NAN, NAN], &[(name, NAN)]);
    }
    check_floats(&[NAN, NAN], &[("count", 0.0), ("diff", NAN), ("none", NAN)]);
}

#[test]
fn diff_skips_only_leading_nan() {
    check_floats(&[NAN, 2.0, 9.0], &[("diff", 7.0)]);
    check_floats(&[NAN, 2.0, NAN], &[("diff", NAN)]);
    check_floats(&[NAN, 2.0], &[("diff", 0.0)]);
    check_ints(&[5], &[("diff", 0)]);
    check_ints(&[5, 1, 2], &[("diff", -3)]);
}

#[test]
fn an_infinite_minimum_or_maximum_is_nothing() {
    check_floats(&[INF, INF], &[("min", NAN), ("mimmin", NAN), ("max", INF)]);
    check_floats(&[-INF], &[("max", NAN), ("mimmax", NAN), ("min", -INF)]);
}

#[test]
fn the_sum_of_one_negative_zero_is_zero() {
    check_floats(&[-0.0], &[("sum", 0.0), ("avg", 0.0), ("first", -0.0)]);
}

#[test]
fn integers_wrap_and_truncate() {
    check_ints(&[1, 2], &[("avg", 1), ("sum", 3), ("squareSum", 5), ("median", 2), ("count", 2)]);
    check_ints(&[-1, -2], &[("avg", -1)]);
    check_ints(&[i64::MAX, 1], &[("sum", i64::MIN)]);
    check_ints(&[i64::MAX, 2], &[("mult", -2)]);
}

#[test]
fn percentile_estimations_differ_on_integers_and_agree_on_floats() {
    check_ints(
        &[1, 2, 3, 4],
        &[("p50", 2), ("ep50r3", 2), ("ep50r7", 2), ("p75", 3), ("ep75r3", 3), ("ep75r7", 3), ("p999", 4)],
    );
    check_ints(&[10, 20], &[("p75", 20), ("ep75r3", 20), ("ep75r7", 17), ("ep50r3", 10), ("ep50r7", 15)]);
    check_floats(&[10.0, 20.0], &[("p75", 20.0), ("ep75r3", 20.0), ("ep75r7", 20.0), ("p50", 15.0)]);
    check_ints(&[42], &[("p50", 42), ("ep999r3", 42), ("ep999r7", 42)]);
}

proptest! {
    /// What they are of numbers in ascending order.
    #[test]
    fn medians_and_percentiles_are_those_of_sorted_values(
        values in vec(prop_oneof![any::<f64>(), (-4..4_i32).prop_map(f64::from), Just(-0.0), Just(INF), Just(NAN)], 0..80),
        per_mille in 1..1000_u16,
    ) {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let mut scratch = Vec::new();
        let median = Aggregator::Median.of_floats(&values, &mut scratch);
        prop_assert_eq!(median.to_bits(), sorted.get(sorted.len() / 2).copied().unwrap_or(NAN).to_bits());

        let of = Aggregator::Percentile(super::Percentile { per_mille, estimation: Estimation::Legacy });
        let found = of.of_floats(&values, &mut scratch);
        let position = f64::from(per_mille) / 10.0 / 100.0 * (sorted.len() as f64 + 1.0);
        let expected = match sorted.len() {
            0 => NAN,
            _ if position < 1.0 => sorted[0],
            count if position >= count as f64 => sorted[count - 1],
            _ => {
                let at = position.floor() as usize;
                sorted[at - 1] + (position - position.floor()) * (sorted[at] - sorted[at - 1])
            }
        };
        prop_assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{found} {expected}");
    }
}
