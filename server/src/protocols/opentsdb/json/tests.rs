use proptest::prelude::*;

use super::{float, int};

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

proptest! {
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
