use proptest::prelude::*;

use super::{SurroundedInts, float, int};

#[test]
fn integers_are_written_as_they_are_spelled() {
    for one in [0, 7, -7, 10, 1_799_996_400, -1_000, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        int(&mut out, one);
        assert_eq!(out, one.to_string().into_bytes());
    }
}

fn written(value: f64) -> String {
    let mut out = Vec::new();
    float(&mut out, value);
    String::from_utf8(out).unwrap()
}

#[test]
fn floats_are_the_shortest_text_with_every_bit() {
    for (value, text) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (5.0, "5.0"),
        (-12.5, "-12.5"),
        (88.01, "88.01"),
        (0.001, "0.001"),
        (-0.05, "-0.05"),
        (0.0005, "0.0005"),
        (100.0, "100.0"),
        (1e16, "1e16"),
        (-1.5e300, "-1.5e300"),
        (1.5e-300, "1.5e-300"),
        (99_999_999_999.999, "99999999999.999"),
        (100_000_000_000.001, "100000000000.001"),
        (0.1 + 0.2, "0.30000000000000004"),
    ] {
        assert_eq!(written(value), text);
    }
}

#[test]
fn every_decimal_of_few_digits_is_written_as_ryu_writes_it() {
    for int in (0..200_000).chain((200_000..10_100_000).step_by(37)) {
        for value in [f64::from(int) / 1e3, f64::from(-int) / 1e3] {
            assert_eq!(written(value), ryu::Buffer::new().format_finite(value));
        }
    }
}

proptest! {
    #[test]
    fn integers_between_texts_are_written_as_alone(
        first in prop_oneof![any::<i64>(), -20_000..20_000_i64, Just(1_767_322_800), Just(i64::MAX - 30_000)],
        steps in proptest::collection::vec(prop_oneof![0..70_i64, -20_000..20_000_i64, any::<i64>()], 0..100),
    ) {
        let (mut between, mut alone) = (Vec::new(), Vec::new());
        let mut ints = SurroundedInts::new(b",\"", b"\":");
        let mut one = first;
        for step in steps {
            ints.write(&mut between, one);
            alone.extend_from_slice(format!(",\"{one}\":").as_bytes());
            one = one.wrapping_add(step);
        }
        prop_assert_eq!(between, alone);
    }

    #[test]
    fn floats_are_written_as_ryu_writes_them(int in any::<i64>(), bits in 0..63_u32, scale in 0..6, any in any::<f64>()) {
        let decimal = (int >> bits) as f64 / 10_f64.powi(scale);
        for value in [decimal, any, decimal.next_up(), decimal.next_down()] {
            if value.is_finite() {
                prop_assert_eq!(written(value), ryu::Buffer::new().format_finite(value).to_owned());
            }
        }
    }
}
