use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// As an integer of units of 2^-60; the numbers of the test are such.
fn units(value: f64) -> i128 {
    (value * 2_f64.powi(60)) as i128
}

fn by(values: &[f64], add: impl Fn(&mut ExactSum, &[f64])) -> f64 {
    let mut sum = ExactSum::default();
    add(&mut sum, values);
    sum.value()
}

/// All ways to add these up give the same bits.
fn check(values: &[f64]) -> f64 {
    let expected = by(values, |sum, values| values.iter().for_each(|value| sum.add(*value)));
    let in_wide = {
        let mut wide = Wide::default();
        let finite = values.iter().all(|value| value.is_finite());
        values.iter().filter(|_| finite).for_each(|value| wide.add(*value));
        finite.then(|| wide.round())
    };
    let same = |found: f64, how: &str| {
        assert_eq!(found.to_bits(), expected.to_bits(), "{how}: {found:e}, expected {expected:e} of {values:?}");
    };
    in_wide.into_iter().for_each(|found| same(found, "in fixed point"));
    same(by(values, ExactSum::add_all), "as a slice");
    let mut reversed = values.to_vec();
    reversed.reverse();
    same(by(&reversed, ExactSum::add_all), "backwards");
    for parts in [1, 2, 3, 7, 100] {
        let merged = by(values, |sum, values| {
            for part in values.chunks(parts) {
                let mut one = ExactSum::default();
                one.add_all(part);
                let (high, low, rest) = one.parts();
                sum.merge(&ExactSum::from_parts(high, low, rest.as_deref()).unwrap());
            }
        });
        same(merged, "in parts");
    }
    expected
}

#[test]
fn what_cancels_leaves_what_does_not() {
    assert_eq!(check(&[1e16, 1.0, -1e16]), 1.0);
    assert_eq!(check(&[1e100, 1.0, -1e100, 1e-100, -1.0]), 1e-100);
    assert_eq!(check(&[1e308, 1e308, -1e308, -1e308, 5e-324]), 5e-324);
    assert_eq!(check(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    assert_eq!(check(&[0.1; 10]), 1.0);
    // A tie, and what decides it far below.
    assert_eq!(check(&[1.0, 2_f64.powi(-53)]), 1.0);
    assert_eq!(check(&[1.0, 2_f64.powi(-53), 2_f64.powi(-1_000)]), 1.0 + f64::EPSILON);
    assert_eq!(check(&[-1.0, -(2_f64.powi(-53)), -(2_f64.powi(-1_000))]), -1.0 - f64::EPSILON);
    assert_eq!(check(&[1.0 + f64::EPSILON, 2_f64.powi(-53), -(2_f64.powi(-1_000))]), 1.0 + f64::EPSILON);
    assert_eq!(check(&[5e-324, 5e-324, f64::MIN_POSITIVE]), f64::MIN_POSITIVE + 1e-323);
}

#[test]
fn what_is_no_number_is_the_same_in_any_order() {
    assert!(check(&[1.0, f64::NAN, f64::INFINITY]).is_nan());
    assert!(check(&[f64::INFINITY, 1.0, f64::NEG_INFINITY]).is_nan());
    assert_eq!(check(&[f64::INFINITY, -1e308, -1e308]), f64::INFINITY);
    assert_eq!(check(&[f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(check(&[-f64::MAX, -f64::MAX, 1.0]), f64::NEG_INFINITY);
    assert_eq!(check(&[]).to_bits(), 0);
    assert_eq!(check(&[-0.0, -0.0]).to_bits(), 0);
    assert_eq!(check(&[1.5, -1.5]).to_bits(), 0);
}

#[test]
fn integers_and_many_of_one_value_are_added_exactly() {
    let of = |int: i128| by(&[], |sum, _| sum.add_int(int));
    for int in [0, 1, -1, i128::MAX, i128::MIN, (1 << 60) + 1, -(1 << 60) - 1, (1 << 53) + 1, (1 << 54) + 3] {
        assert_eq!(of(int), int as f64, "{int}");
    }
    for value in [0.1, -3.7e-310, 5e-324, 1e271, 1.0 / 3.0, 0.0, f64::INFINITY] {
        let times = by(&[], |sum, _| sum.add_times(value, 1_001));
        assert_eq!(times.to_bits(), check(&[value; 1_001]).to_bits(), "{value}");
    }
}

#[test]
fn bytes_that_are_no_sum_are_refused() {
    let mut sum = ExactSum::default();
    [1e16, 1e-40, 1e-100, 1e-300].iter().for_each(|value| sum.add(*value));
    let (_, _, rest) = sum.parts();
    let rest = rest.expect("more than two floats hold");
    assert!(ExactSum::from_parts(0.0, 0.0, Some(&rest)).is_some());
    assert!(ExactSum::from_parts(0.0, 0.0, Some(&rest[..rest.len() - 1])).is_none());
    assert!(ExactSum::from_parts(0.0, 0.0, Some(&[])).is_none());
    assert!(ExactSum::from_parts(0.0, 0.0, Some(&[255; 17])).is_none());
    assert!(ExactSum::from_parts(0.0, 0.0, Some(&[0; 801])).is_none());
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<i32>().prop_map(|bits| f64::from(bits).sin()),
        (-40_000..40_000_i32).prop_map(|cents| f64::from(cents) / 100.0),
        any::<f64>().prop_filter("finite", |value| value.is_finite()),
        (-1_000..1_000_i32, -60..60_i32).prop_map(|(digits, power)| f64::from(digits) * 10_f64.powi(power)),
        proptest::sample::select(vec![1e16, -1e16, 1.0, 1e308, -1e308, 5e-324, -0.0, f64::MIN_POSITIVE]),
    ]
}

proptest! {
    #[test]
    fn sums_do_not_depend_on_order_or_parts(
        values in prop_oneof![
            vec(float(), 0..60),
            vec((-40_000..40_000_i32).prop_map(|cents| f64::from(cents) / 100.0), 200..900),
            vec(any::<i32>().prop_map(|bits| f64::from(bits).sin()), 200..900),
        ],
    ) {
        check(&values);
    }

    #[test]
    fn sums_are_the_nearest_floats(values in vec((any::<i32>(), 0..60_i32), 0..400)) {
        let values: Vec<f64> = values.into_iter().map(|(digits, power)| f64::from(digits) * 2_f64.powi(-power)).collect();
        let expected = values.iter().map(|value| units(*value)).sum::<i128>() as f64 / 2_f64.powi(60);
        prop_assert_eq!(check(&values), expected);
    }

    #[test]
    fn products_are_added_exactly(pairs in vec((any::<i32>(), any::<i32>()), 0..50)) {
        let mut sum = ExactSum::default();
        let odd = |bits: i32| (i64::from(bits) << 20) + 1;
        pairs.iter().for_each(|(a, b)| sum.add_product(odd(*a) as f64, odd(*b) as f64));
        let expected: i128 = pairs.iter().map(|(a, b)| i128::from(odd(*a)) * i128::from(odd(*b))).sum();
        prop_assert_eq!(sum.value(), expected as f64);
    }
}
