use proptest::prelude::*;

use super::*;

/// Of up to 19 digits the float is the one that the standard library finds.
fn check(text: &str) {
    let decimal = Decimal::read(text.as_bytes());
    assert_eq!(decimal.len, text.len());
    let found = decimal.float().map(f64::to_bits);
    let expected: f64 = text.parse().unwrap();
    assert_eq!(found, (decimal.digits <= DIGITS_MAX).then_some(expected.to_bits()), "{text}");
}

#[test]
fn a_float_is_the_nearest_one_also_halfway_between_two() {
    for text in [
        "0",
        "-0.0",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0",
        "9007199254740993.001",
        "-9007199254740995",
        "9999999999999999999",
        "0.9999999999999999999",
        ".9007199254740993",
        "1.000000000000000111",
        "1.0000000000000001111",
        "12345678901234567890",
    ] {
        check(text);
    }
}

proptest! {
    #[test]
    fn any_digits_with_a_point_anywhere_are_the_nearest_float(number in any::<u64>(), point in 0..20_usize) {
        let mut text = format!("{number:019}");
        text.insert(text.len() - point.min(text.len()), '.');
        check(&text);
    }

    #[test]
    fn a_float_that_was_written_is_read_back(float in -1e6..1e6_f64) {
        check(&format!("{float}"));
    }
}
