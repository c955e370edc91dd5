use proptest::prelude::*;

use super::*;

fn any_float() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MAX];
    prop_oneof![proptest::sample::select(special.to_vec()), any::<u64>().prop_map(f64::from_bits), -3.0..3.0]
}

fn any_bound() -> impl Strategy<Value = Bound<f64>> {
    prop_oneof![any_float().prop_map(Bound::Included), any_float().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

proptest! {
    #[test]
    fn a_value_is_in_a_range_where_the_total_order_with_one_zero_says_so(
        from in any_bound(), to in any_bound(), value in any_float(),
    ) {
        let range = ValueRange::new(from, to);
        let contains = range.contains(value);
        let unsigned = |value: f64| if value == 0.0 { 0.0 } else { value };
        let (from, to, value) = (from.map(unsigned), to.map(unsigned), unsigned(value));
        let is_inside = match from {
            Bound::Included(from) => value.total_cmp(&from).is_ge(),
            Bound::Excluded(from) => value.total_cmp(&from).is_gt(),
            Bound::Unbounded => true,
        } && match to {
            Bound::Included(to) => value.total_cmp(&to).is_le(),
            Bound::Excluded(to) => value.total_cmp(&to).is_lt(),
            Bound::Unbounded => true,
        };
        prop_assert_eq!(contains, is_inside);
        prop_assert!(!is_inside || !range.is_empty());
        // What its bounds say is the same range.
        let (least, greatest) = range.bounds();
        prop_assert_eq!(ValueRange::new(Bound::Included(least), Bound::Included(greatest)), range);
    }

    #[test]
    fn a_range_overlaps_the_extremes_of_any_value_in_it(
        from in any_bound(), to in any_bound(), values in proptest::collection::vec(any_float(), 1..5),
    ) {
        let range = ValueRange::new(from, to);
        let values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        // As summaries find them, which take zeros for equal.
        let min = values.iter().copied().reduce(|least, value| if value < least { value } else { least });
        let max = values.iter().copied().reduce(|most, value| if value > most { value } else { most });
        if let (Some(min), Some(max)) = (min, max) && values.iter().any(|value| range.contains(*value)) {
            prop_assert!(range.overlaps(min, max));
        }
    }
}

#[test]
fn a_range_is_shown_as_it_was_asked_for() {
    let shown = |from, to| ValueRange::new(from, to).to_string();
    assert_eq!(shown(Bound::Excluded(90.0), Bound::Unbounded), "value > 90.0");
    assert_eq!(shown(Bound::Included(0.1), Bound::Excluded(2.0)), "value >= 0.1 AND value < 2.0");
    assert_eq!(shown(Bound::Unbounded, Bound::Included(-3.5)), "value <= -3.5");
    assert_eq!(shown(Bound::Unbounded, Bound::Unbounded), "");
}
