use super::*;
use crate::ExactSum;

#[test]
fn an_integer_is_found_only_where_it_gives_back_every_bit() {
    for (float, scale, expected) in [
        (12.34, 2, Some(1_234)),
        (12.34, 1, None),
        (-0.0005, 4, Some(-5)),
        (0.0, 0, Some(0)),
        (-0.0, 0, None),
        (0.1 + 0.2, 9, None),
        (f64::NAN, 0, None),
        (f64::INFINITY, 0, None),
        (9_007_199_254_740_991.0, 0, Some(9_007_199_254_740_991)),
        (9_007_199_254_740_992.0, 0, None),
        (5e-324, 9, None),
        (0.49999999999999994, 0, None),
    ] {
        assert_eq!(to_int(float, scale), expected, "{float} at {scale}");
        if let Some(int) = expected {
            assert_eq!(to_float(int, scale).to_bits(), float.to_bits());
            assert_eq!(to_floats(&[int], scale)[0].to_bits(), float.to_bits());
        }
    }
}

#[test]
fn every_decimal_of_up_to_nine_digits_is_its_integer() {
    // Every scale, numbers spread over all magnitudes that fit.
    for scale in 0..=SCALE_WRITTEN_MAX {
        for at in 0..100_000_u64 {
            let int = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (13 + at % 50)).cast_signed();
            let float = to_float(int, scale);
            assert_eq!(to_int(float, scale).map(|found| to_float(found, scale)), Some(float), "{int} at {scale}");
        }
    }
}

#[test]
fn integers_become_the_same_floats_many_at_a_time_as_one_by_one() {
    let check = |ints: &[i64], scale: u8| {
        let mut floats = vec![f64::NAN; ints.len()];
        fill_floats(&mut floats, ints, scale);
        for (float, int) in floats.iter().zip(ints) {
            assert_eq!(float.to_bits(), to_float(*int, scale).to_bits(), "{int} at {scale}");
        }
    };
    let at_the_ends = |end: i64| [end - 2, end - 1, end, end.wrapping_add(1), -end, 1 - end, -end - 1];
    for scale in 0..=18 {
        for from in (-200_000..200_000).step_by(1_000) {
            check(&(from..from + 1_000).collect::<Vec<i64>>(), scale);
        }
        for bits in [30, 31, 32, 50, 51, 52, 53, 62] {
            // One that does not fit is enough.
            at_the_ends(1 << bits).iter().for_each(|int| check(&[*int], scale));
            check(&at_the_ends(1 << bits), scale);
        }
        check(&[i64::MIN, i64::MAX, 0], scale);
        let of = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as i64 - (1 << 31);
        check(&(0..300_000).map(of).collect::<Vec<i64>>(), scale);
    }
}

#[test]
fn decimals_add_up_to_what_their_floats_do() {
    let check = |ints: &[i64], scale: u8| {
        let mut expected = ExactSum::default();
        ints.iter().for_each(|int| expected.add(to_float(*int, scale)));
        let is_it = |(high, low): (f64, f64)| {
            let mut left = expected.clone();
            left.take_away(high);
            left.take_away(low);
            // Nothing is left, and the sum is no -0.0.
            assert_eq!(left.value(), 0.0, "{ints:?} at {scale}");
            assert_eq!((high + low).to_bits(), expected.value().to_bits(), "{ints:?} at {scale}");
        };
        assert!(can_sum(ints, scale));
        is_it(sum(ints, scale));
        if !ints.is_empty() {
            sums_of_shares::<3>(&[ints; 3].concat(), scale).into_iter().for_each(is_it);
        }
    };
    let end = 1 << ADDED_BITS;
    for scale in 1..6 {
        for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 60, 63, 100, 255, ADDED_MAX] {
            for one in [0, 1, -1, end - 1, 1 - end, -end, 3, end - 3, 4_194_297, 2_796_201] {
                check(&vec![one; count], scale);
            }
            for seed in 0..300 {
                let of = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (42 + seed % 20)) as i64;
                let from = seed * 1_000_003;
                let small: Vec<i64> = (from..from + count as u64).map(of).collect();
                check(&small, scale);
                check(&small.iter().map(|int| -int).collect::<Vec<i64>>(), scale);
                let both = |(at, int): (usize, &i64)| if at % 3 == 1 { -int } else { *int };
                check(&small.iter().enumerate().map(both).collect::<Vec<i64>>(), scale);
            }
        }
        assert!(
            !can_sum(&[0, end, 0], scale) && !can_sum(&[-end - 1], scale) && !can_sum(&[i64::MIN, i64::MAX], scale)
        );
    }
    assert!(!can_sum(&[0], 6));
}

#[test]
fn the_scale_is_the_smallest_at_which_most_values_are_integers() {
    let of = |floats: &[f64]| scale_of(floats);
    assert_eq!(of(&[1.0, 2.0]), Some(0));
    assert_eq!(of(&[1.5, 2.0]), Some(1));
    assert_eq!(of(&[f64::NAN, 2.0]), None);
    assert_eq!(of(&[f64::NAN, 2.0, 2.25, 7.125]), Some(3));
    assert_eq!(of(&[std::f64::consts::PI]), None);
    assert_eq!(of(&[]), None);
    let mut late: Vec<f64> = (0..1_000).map(|at| at as f64).collect();
    late[501] = 0.125;
    assert_eq!(of(&late), Some(3), "one value between those that are tried first");
    late[501] = f64::NAN;
    assert_eq!(of(&late), Some(0));
}

#[test]
fn integers_of_many_floats_are_those_of_each() {
    let check = |floats: &[f64]| {
        let mut ints = vec![1];
        let scale = to_ints(floats, &mut ints);
        let of_each = |scale: u8| floats.iter().map(|float| to_int(*float, scale)).collect::<Option<Vec<i64>>>();
        let expected = (0..=SCALE_WRITTEN_MAX).find_map(|scale| Some((scale, of_each(scale)?)));
        assert_eq!(scale.map(|scale| (scale, ints)), expected, "{floats:?}");
    };
    // A half at every scale and size, what surrounds it, and the ends of what is rounded and of what is an integer.
    for exponent in -40..54 {
        let at = 2_f64.powi(exponent);
        for middle in [at, at + 0.5, at - 0.5, at + 0.25, at * 3.0 / 10.0, at / 1e9] {
            for near in [middle, middle.next_up(), middle.next_down()] {
                check(&[near]);
                check(&[-near]);
                check(&[near, 1.0, 0.5]);
            }
        }
    }
    for odd in [f64::NAN, -f64::NAN, f64::INFINITY, -0.0, 5e-324, f64::MAX] {
        check(&[odd]);
        let mut floats: Vec<f64> = (0..1_000).map(|at| f64::from(at) / 100.0).collect();
        check(&floats);
        floats[777] = odd;
        let mut ints = Vec::new();
        assert_eq!(to_ints(&floats, &mut ints), None, "{odd} is no decimal");
    }
    assert_eq!(to_ints(&[], &mut Vec::new()), None);
    for scale in 0..=SCALE_WRITTEN_MAX {
        let of = |at: u64| to_float((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (13 + at % 50)).cast_signed(), scale);
        let floats: Vec<f64> = (0..10_000).map(of).collect();
        for floats in floats.chunks(60) {
            check(floats);
        }
    }
}
