//! Amounts for people.

/// Digits of a number that people compare.
const DIGITS: usize = 6;
/// Decimals that a large number that is not whole keeps all the same.
const DECIMALS_MIN: usize = 2;
/// Smaller and larger numbers have an exponent.
const PLAIN: std::ops::Range<f64> = 1e-4..1e15;

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    telem_engine::limits::count(number)
}

/// `1 sample`, `1,234,567 samples`: how many there are of what has a plural with an s.
pub fn counted(number: u64, one: &str) -> String {
    telem_engine::limits::counted(number, one)
}

/// A number with the digits that matter to people: six, and two decimals at least where it is not whole.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let text = format!("{value:.*e}", DIGITS - 1);
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    if !PLAIN.contains(&value.abs()) {
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    // The digits before the point less one; below 1 the zeros after it, negative.
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = i32::try_from(DIGITS).unwrap_or(0) - 1 - exponent;
    let decimals = usize::try_from(decimals).unwrap_or(0).max(DECIMALS_MIN);
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// Without zeros that say nothing behind the point.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Bytes in powers of 1,000, three digits.
pub fn bytes(count: f64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = if unit == 0 || value.abs() >= 99.95 { 0 } else { 1 };
    format!("{value:.decimals$} {}", units[unit])
}

/// How long something took, to the precision that matters for its length.
pub fn stretch(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        0..60 => format!("{:.1} s", micros as f64 / 1e6),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn bytes_have_three_digits() {
        for (count, expected) in [
            (0.0, "0 bytes"),
            (999.0, "999 bytes"),
            (1_000.0, "1.0 kB"),
            (22_389.0, "22.4 kB"),
            (999_600.0, "1.0 MB"),
            (123_456_789.0, "123 MB"),
            (25_769_803_776.0, "25.8 GB"),
            (-2_000.0, "-2.0 kB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn a_stretch_of_time_has_two_units() {
        for (seconds, expected) in
            [(0, "0.0 s"), (59, "59.0 s"), (123, "2 min 3 s"), (7_261, "2 h 1 min"), (200_000, "2 d 7 h")]
        {
            assert_eq!(stretch(seconds * 1_000_000), expected);
        }
    }

    #[test]
    fn a_number_has_the_digits_that_matter() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (17.0, "17"),
            (0.1 + 0.2, "0.3"),
            (1.0 / 3.0, "0.333333"),
            (-12.345_678_9, "-12.3457"),
            (99.999_999_9, "100"),
            (123_456.789, "123456.79"),
            (62_345_678.123_456, "62345678.12"),
            (1_763_829_123.5, "1763829123.5"),
            (1e14, "100000000000000"),
            (1.5e15, "1.5e15"),
            (0.000_123_456_789, "0.000123457"),
            (0.000_012_3, "1.23e-5"),
            (f64::MAX, "1.79769e308"),
            (5e-324, "4.94066e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(short(value), expected, "{value:?}");
        }
    }
}
