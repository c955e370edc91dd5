use arrow::array::Float64Array;
use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::testing::Asked;

#[tokio::test]
async fn a_histogram_counts_what_is_below_within_and_above() {
    let asked = Asked::load("load{host=a} 0:-1 1:0 2:0.5 3:1 4:9.5 5:10 6:NaN 7:11");
    let answer = asked.answer("SELECT histogram(value, 0, 10, 10) AS counts FROM load").await;
    expect![[r#"
        +--------------------------------------+
        | counts                               |
        +--------------------------------------+
        | [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2] |
        +--------------------------------------+"#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let asked = Asked::load("load{host=a} 0:1");
    let mut answers = String::new();
    for call in [
        "histogram(value, 0, 10)",
        "histogram(host, 0, 10, 5)",
        "histogram(value, 10, 0, 5)",
        "histogram(value, 0, 10, 2.5)",
        "histogram(value, 0, 10, 0)",
        "histogram(value, 0, 10, 100000)",
        "histogram(value, 0, NULL, 5)",
        "histogram(value, 0, value, 5)",
        "histogram(DISTINCT value, 0, 10, 5)",
    ] {
        answers += &format!("{}\n", asked.answer(&format!("SELECT {call} FROM load")).await);
    }
    expect![[r#"
        Invalid: histogram takes a value, the lower and the upper end and how many buckets, as in histogram(value, 0, 100, 10); 3 arguments given
        Invalid: histogram: the value is a Utf8View, expected a number
        Invalid: histogram: the ends are 10 and 0, expected finite numbers, the lower one first
        Invalid: histogram: the number of buckets is 2.5, expected a whole number from 1 to 1000
        Invalid: histogram: the number of buckets is 0, expected a whole number from 1 to 1000
        Invalid: histogram: the number of buckets is 100000, expected a whole number from 1 to 1000
        Invalid: histogram: the upper end is NULL, expected a number above the lower end
        Invalid: histogram: the upper end is value@0, which differs from row to row; expected a constant, a number above the lower end
        Invalid: histogram counts every row; DISTINCT has no meaning in it
    "#]].assert_eq(&answers);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// However rows are divided, each value is counted between the edges that the documentation gives.
    #[test]
    fn parts_add_up_to_what_the_edges_say(
        lo in -1e3..1e3_f64,
        width in prop::sample::select(vec![0.1, 1.0, 7.0, 1e-9, 1e12]),
        count in 1..40_usize,
        values in prop::collection::vec((0..50_u32, -0.1..1.1_f64), 0..60),
        cut in 0..60_usize,
    ) {
        let buckets = EvenBuckets::new(lo, lo + width, count as f64).unwrap();
        let hi = lo + width;
        // Values at edges, and next to them, beside any others.
        let values: Vec<f64> = values.into_iter().map(|(kind, share)| match kind {
            0..=40 => buckets.edge(kind as usize % (count + 1)),
            41..=44 => buckets.edge(kind as usize % (count + 1)).next_down(),
            45 => f64::NAN,
            _ => lo + share * width,
        }).collect();
        let mut expected = vec![0_i64; count + 2];
        for value in values.iter().filter(|value| !value.is_nan()) {
            let edge = |at: usize| if at == count { hi } else { lo + (hi - lo) * at as f64 / count as f64 };
            let place = (0..=count).filter(|at| edge(*at) <= *value).max();
            expected[place.map_or(0, |place| place + 1)] += 1;
        }
        let (one, other) = values.split_at(cut.min(values.len()));
        let mut whole = Counts::new(buckets);
        for part in [one, other] {
            let mut counts = Counts::new(buckets);
            counts.update_batch(&[Arc::new(Float64Array::from(part.to_vec()))]).unwrap();
            let state = counts.state().unwrap();
            whole.merge_batch(&[state[0].to_array().unwrap()]).unwrap();
        }
        prop_assert_eq!(&whole.counts, &expected);
        whole.retract_batch(&[Arc::new(Float64Array::from(values))]).unwrap();
        prop_assert_eq!(whole.counts, vec![0; count + 2]);
    }
}
