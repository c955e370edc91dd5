use arrow::array::StringViewArray;
use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::testing::Asked;

const REQUESTS: &str = "
    request_bucket{host=a,le=0.1} 0:2
    request_bucket{host=a,le=0.5} 0:6
    request_bucket{host=a,le=1} 0:8
    request_bucket{host=a,le=+Inf} 0:10
    request_bucket{host=b,le=0.1} 0:0
    request_bucket{host=b,le=0.5} 0:0
    request_bucket{host=b,le=1} 0:10
    request_bucket{host=b,le=+Inf} 0:10
    no_infinity_bucket{le=1} 0:5
    empty_bucket{le=1} 0:0
    empty_bucket{le=+Inf} 0:0
";

#[tokio::test]
async fn quantiles_lie_on_a_line_within_their_bucket() {
    let asked = Asked::load(REQUESTS);
    let mut answers = String::new();
    for sql in [
        "SELECT host, histogram_quantile(0.5, le, value) AS p50, histogram_quantile(0.99, le, value) AS p99 \
         FROM request_bucket GROUP BY host ORDER BY host",
        "SELECT histogram_quantile(0.5, le, value) AS of_both FROM request_bucket",
        "SELECT histogram_quantile(0.5, le, value) AS none FROM no_infinity_bucket",
        "SELECT histogram_quantile(0.5, le, value) AS none FROM empty_bucket",
        "SELECT histogram_quantile(0.5, le, value) AS none FROM request_bucket WHERE host = 'c'",
        "SELECT histogram_quantile(1, le::double, value) AS bound FROM request_bucket WHERE host = 'b'",
    ] {
        answers += &format!("{}\n", asked.answer(sql).await);
    }
    expect![[r#"
        +------+------+-------+
        | host | p50  | p99   |
        +------+------+-------+
        | a    | 0.4  | 1.0   |
        | b    | 0.75 | 0.995 |
        +------+------+-------+
        +--------------------+
        | of_both            |
        +--------------------+
        | 0.6666666666666666 |
        +--------------------+
        +------+
        | none |
        +------+
        |      |
        +------+
        +------+
        | none |
        +------+
        |      |
        +------+
        +------+
        | none |
        +------+
        |      |
        +------+
        +-------+
        | bound |
        +-------+
        | 1.0   |
        +-------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let asked = Asked::load("m_bucket{le=much} 0:1\nm_bucket{le=NaN} 0:1");
    let mut answers = String::new();
    for call in [
        "histogram_quantile(0.5, value)",
        "histogram_quantile(0.5, ts, value)",
        "histogram_quantile(0.5, le, le)",
        "histogram_quantile(99, le, value)",
        "histogram_quantile(value, le, value)",
        "histogram_quantile(0.5, le, value)",
    ] {
        answers += &format!("{}\n", asked.answer(&format!("SELECT {call} FROM m_bucket WHERE le = 'much'")).await);
    }
    answers += &asked.answer("SELECT histogram_quantile(0.5, le, value) FROM m_bucket WHERE le = 'NaN'").await;
    expect![[r#"
        Invalid: histogram_quantile takes a quantile, the upper bound of a bucket and its count, as in histogram_quantile(0.99, le, value); 2 arguments given
        Invalid: histogram_quantile: the bound is a Timestamp(µs, "UTC"), expected a number or the text of one
        Invalid: histogram_quantile: the count is a Utf8View, expected a number
        Invalid: histogram_quantile: the quantile is 99, expected a number from 0 to 1
        Invalid: histogram_quantile: the quantile is value@0, which differs from row to row; expected a constant, a number from 0 to 1
        Invalid: histogram_quantile: a bound is 'much', expected a number or +Inf, as in the tag le of NAME_bucket
        Invalid: histogram_quantile: a bound is NaN, expected a number or +Inf"#]].assert_eq(&answers);
}

#[test]
fn bounds_are_read_as_clients_write_them() {
    let texts = ["0.5", "+Inf", "Inf", "inf", "_Inf", "1e+06", "1e_06", "-2.5", " 3 "];
    let bounds: Vec<f64> = texts.iter().map(|text| parse_bound(text).unwrap()).collect();
    let infinity = f64::INFINITY;
    assert_eq!(bounds, [0.5, infinity, infinity, infinity, infinity, 1e6, 1e6, -2.5, 3.0]);
}

#[test]
fn a_histogram_of_too_many_bounds_is_refused() {
    let mut sums = BucketSums { quantile: 0.5, sums: BTreeMap::new(), heap_bytes: 0 };
    for bound in 0..BOUNDS_MAX {
        sums.change(bound as f64, |sum| sum.add(1.0)).unwrap();
    }
    sums.change(0.0, |sum| sum.add(1.0)).unwrap();
    let error = sums.change(-1.0, |sum| sum.add(1.0)).unwrap_err().to_string();
    assert!(error.contains("more than 10000 buckets"), "{error}");
}

/// What Prometheus documents, over single values: each is spread evenly within its bucket.
fn by_rank(quantile: f64, bounds: &[f64], within: &[u32], above: u32) -> Option<f64> {
    let all = within.iter().sum::<u32>() + above;
    if all == 0 {
        return None;
    }
    let rank = quantile * f64::from(all);
    let mut seen = 0;
    for (at, (bound, count)) in bounds.iter().zip(within).enumerate() {
        if *count > 0 && f64::from(seen + count) >= rank {
            let lower = if at == 0 { if *bound <= 0.0 { return Some(*bound) } else { 0.0 } } else { bounds[at - 1] };
            let share = (rank - f64::from(seen)) / f64::from(*count);
            return Some(lower + (bound - lower) * share);
        }
        seen += count;
    }
    bounds.last().copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// In whatever order the buckets of several series come, and however they are divided.
    #[test]
    fn parts_give_the_quantile_of_all_values(
        quantile in prop::sample::select(vec![0.0, 0.25, 0.5, 0.9, 0.99, 1.0]),
        bounds in prop::collection::btree_set(-40..40_i32, 1..8),
        series in prop::collection::vec((prop::collection::vec(0..20_u32, 8), 0..5_u32), 1..5),
        order in any::<u64>(),
    ) {
        let bounds: Vec<f64> = bounds.into_iter().map(|bound| f64::from(bound) / 8.0).collect();
        let (mut within, mut above, mut rows) = (vec![0; bounds.len()], 0, Vec::new());
        for (counts, more) in &series {
            let mut cumulative = 0;
            for (at, bound) in bounds.iter().enumerate() {
                within[at] += counts[at];
                cumulative += counts[at];
                rows.push((bound.to_string(), f64::from(cumulative)));
            }
            above += more;
            rows.push(("+Inf".to_owned(), f64::from(cumulative + more)));
        }
        rows.sort_by_key(|(bound, count)| (bound.len() as u64 + *count as u64).wrapping_mul(order | 1));
        let new = || BucketSums { quantile, sums: BTreeMap::new(), heap_bytes: 0 };
        let mut whole = new();
        for part in rows.chunks(rows.len().div_ceil(3)) {
            let mut sums = new();
            let bounds: StringViewArray = part.iter().map(|(bound, _)| Some(bound)).collect();
            let counts = Float64Array::from_iter_values(part.iter().map(|(_, count)| *count));
            let none: ArrayRef = Arc::new(Float64Array::new_null(part.len()));
            sums.update_batch(&[none, Arc::new(bounds), Arc::new(counts)]).unwrap();
            let state: Vec<ArrayRef> = sums.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
            whole.merge_batch(&state).unwrap();
        }
        let ScalarValue::Float64(found) = whole.evaluate().unwrap() else { panic!("a float was expected") };
        let expected = by_rank(quantile, &bounds, &within, above);
        match (found, expected) {
            (Some(found), Some(expected)) => prop_assert!((found - expected).abs() < 1e-9, "{found} {expected}"),
            (found, expected) => prop_assert_eq!(found, expected),
        }
    }
}
