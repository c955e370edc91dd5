use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{ArrayRef, Float64Array};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use expect_test::expect;
use telem_engine::Value;

use super::measure::Of;
use super::*;
use crate::testing::Asked;
use datafusion::common::ScalarValue;

/// What plain additions get wrong, in an order of its own for every `seed`.
fn column(seed: usize, rows: usize) -> Vec<f64> {
    let odd = [1e16, 1.0, -1e16, 0.1, 1e-30, -0.3, 1e8];
    let mut values: Vec<f64> = (0..rows).map(|at| odd[at % odd.len()] * ((at / odd.len()) as f64 + 1.0)).collect();
    let mut state = seed as u64;
    for at in (1..values.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        values.swap(at, (state >> 33) as usize % (at + 1));
    }
    values
}

fn arrays(measure: Measure, values: &[f64]) -> Vec<ArrayRef> {
    let column = |of: fn(f64) -> f64| Arc::new(values.iter().map(|value| Some(of(*value))).collect::<Float64Array>());
    let mut arrays: Vec<ArrayRef> = vec![column(|value| value)];
    if measure.inputs() == 2 {
        arrays.push(column(|value| value.cbrt() - 7.0));
    }
    arrays
}

const MEASURES: [Measure; 17] = [
    Measure::Sum,
    Measure::Average,
    Measure::Variance(Of::Sample),
    Measure::Variance(Of::Population),
    Measure::Deviation(Of::Sample),
    Measure::Deviation(Of::Population),
    Measure::Covariance(Of::Sample),
    Measure::Covariance(Of::Population),
    Measure::Correlation,
    Measure::Slope,
    Measure::Intercept,
    Measure::RSquared,
    Measure::MeanX,
    Measure::MeanY,
    Measure::SpreadX,
    Measure::SpreadY,
    Measure::SpreadXy,
];

fn bits(value: ScalarValue) -> u64 {
    let ScalarValue::Float64(Some(value)) = value else { panic!("{value} is not a float") };
    value.to_bits()
}

#[test]
fn no_measure_depends_on_the_order_of_rows_or_on_parts() {
    for measure in MEASURES {
        let mut whole = SingleTotal::new(measure);
        whole.update_batch(&arrays(measure, &column(0, 200))).unwrap();
        let expected = bits(whole.evaluate().unwrap());
        for (seed, part) in [(1, 200), (2, 1), (3, 7), (4, 64)] {
            let mut merged = SingleTotal::new(measure);
            let mut groups = Totals::new(measure);
            for (at, values) in column(seed, 200).chunks(part).enumerate() {
                let mut one = SingleTotal::new(measure);
                one.update_batch(&arrays(measure, values)).unwrap();
                let state: Vec<ArrayRef> = one.state().unwrap().iter().map(|one| one.to_array().unwrap()).collect();
                merged.merge_batch(&state).unwrap();
                match at % 3 {
                    0 => groups.merge_batch(&state, &[1], 2).unwrap(),
                    1 => groups.update_batch(&arrays(measure, values), &vec![1; values.len()], None, 2).unwrap(),
                    _ => {
                        let states = groups.convert_to_state(&arrays(measure, values), None).unwrap();
                        groups.merge_batch(&states, &vec![1; values.len()], 2).unwrap();
                    }
                }
            }
            assert_eq!(bits(merged.evaluate().unwrap()), expected, "{measure:?} in parts of {part}");
            let found = groups.evaluate(EmitTo::All).unwrap();
            assert_eq!(bits(ScalarValue::try_from_array(&found, 1).unwrap()), expected, "{measure:?} in groups");
            assert_eq!(GroupsAccumulator::size(&groups), 0, "nothing is kept");
        }
    }
}

#[test]
fn a_window_that_slides_forgets_all_of_what_it_has_left() {
    for measure in MEASURES {
        let values = column(5, 60);
        let mut sliding = Sliding::new(measure);
        sliding.update_batch(&arrays(measure, &[f64::NAN, f64::INFINITY, 1e300])).unwrap();
        sliding.update_batch(&arrays(measure, &values)).unwrap();
        assert!(f64::from_bits(bits(sliding.evaluate().unwrap())).is_nan(), "{measure:?}");
        sliding.retract_batch(&arrays(measure, &[f64::NAN, f64::INFINITY, 1e300])).unwrap();
        if measure.sums() > 1 {
            // The square of 1e300 is no float.
            continue;
        }
        let mut fresh = SingleTotal::new(measure);
        fresh.update_batch(&arrays(measure, &values)).unwrap();
        assert_eq!(bits(sliding.evaluate().unwrap()), bits(fresh.evaluate().unwrap()), "{measure:?}");
    }
}

#[test]
fn emitting_some_groups_leaves_the_others() {
    let mut groups = Totals::new(Measure::Average);
    groups.update_batch(&arrays(Measure::Average, &[1.0, 2.0, 4.0, 8.0]), &[0, 1, 2, 2], None, 4).unwrap();
    let first: Vec<_> =
        groups.evaluate(EmitTo::First(2)).unwrap().as_primitive::<arrow::datatypes::Float64Type>().iter().collect();
    assert_eq!(first, [Some(1.0), Some(2.0)]);
    groups.update_batch(&arrays(Measure::Average, &[9.0]), &[0], None, 2).unwrap();
    let rest: Vec<_> =
        groups.evaluate(EmitTo::All).unwrap().as_primitive::<arrow::datatypes::Float64Type>().iter().collect();
    assert_eq!(rest, [Some(7.0), None]);
}

#[tokio::test]
async fn sql_has_them_under_the_names_of_always() {
    let asked = Asked::load("m{host=a} 0:1e16 1:1.0 2:-1e16\nm{host=b} 0:0.5 1:0.25 2:0.25\ni{host=a} 0:1 1:2");
    let answer = asked
        .answer(
            "SELECT host, sum(value) AS sum, avg(value) AS avg, mean(value) AS mean, sum(DISTINCT value) AS one_each,
                min(value) AS min, max(value) AS max, var_pop(value) AS var FROM m GROUP BY host ORDER BY host",
        )
        .await;
    expect![[r#"
        +------+-----+--------------------+--------------------+----------+-------+------+----------------------+
        | host | sum | avg                | mean               | one_each | min   | max  | var                  |
        +------+-----+--------------------+--------------------+----------+-------+------+----------------------+
        | a    | 1.0 | 0.3333333333333333 | 0.3333333333333333 | 1.0      | -1e16 | 1e16 | 6.666666666666667e31 |
        | b    | 1.0 | 0.3333333333333333 | 0.3333333333333333 | 0.75     | 0.25  | 0.5  | 0.013888888888888888 |
        +------+-----+--------------------+--------------------+----------+-------+------+----------------------+"#]]
    .assert_eq(&answer);
    let answer = asked.answer("SELECT sum(value_int), avg(value_int), sum(value), stddev(value) FROM i").await;
    expect![[r#"
        +------------------+------------------+--------------+--------------------+
        | sum(i.value_int) | avg(i.value_int) | sum(i.value) | stddev(i.value)    |
        +------------------+------------------+--------------+--------------------+
        | 3                | 1.5              | 3.0          | 0.7071067811865476 |
        +------------------+------------------+--------------+--------------------+"#]]
    .assert_eq(&answer);
    let window = "SELECT ts, sum(value) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two FROM m WHERE host = 'a' ORDER BY ts";
    expect![[r#"
        +----------------------+-------+
        | ts                   | two   |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 1e16  |
        | 2024-01-01T00:00:01Z | 1e16  |
        | 2024-01-01T00:00:02Z | -1e16 |
        +----------------------+-------+"#]]
    .assert_eq(&asked.answer(window).await);
    let none = asked
        .answer("SELECT sum(value), avg(value), stddev(value), min(value), corr(value, value) FROM m WHERE host = 'x'")
        .await;
    expect![[r#"
        +--------------+--------------+-----------------+--------------+-----------------------+
        | sum(m.value) | avg(m.value) | stddev(m.value) | min(m.value) | corr(m.value,m.value) |
        +--------------+--------------+-----------------+--------------+-----------------------+
        |              |              |                 |              |                       |
        +--------------+--------------+-----------------+--------------+-----------------------+"#]]
    .assert_eq(&none);
}

#[tokio::test]
async fn least_and_greatest_do_not_depend_on_where_nan_and_zeros_stand() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let asked = Asked::empty();
        let odd = [f64::NAN, -0.0, 0.0, f64::NEG_INFINITY];
        for (group, values) in [("all", &odd[..]), ("zeros", &odd[1..3])] {
            let samples = order.iter().filter(|at| **at < values.len()).enumerate();
            asked.put("m", &[("g", group)], samples.map(|(at, from)| (at as i64, Value::Float(values[*from]))));
        }
        let rows = "SELECT g, min(value), max(value) FROM m GROUP BY g ORDER BY g";
        let answer = asked.queries.sql(rows).await.unwrap();
        let text = crate::testing::rows(answer.batches).await.unwrap();
        assert_eq!(text, "all -inf NaN\nzeros -0.0 0.0", "{order:?}");
        let answer = asked.queries.sql("SELECT min(value), max(value) FROM m WHERE g = 'zeros'").await.unwrap();
        assert_eq!(crate::testing::rows(answer.batches).await.unwrap(), "-0.0 0.0", "{order:?}");
    }
}
