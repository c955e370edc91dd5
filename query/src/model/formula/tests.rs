//! Formulas as Extra-P prints them, and texts that are none.

use proptest::prelude::*;

use super::*;

fn at(text: &str, size: f64) -> f64 {
    text.parse::<Formula>().unwrap_or_else(|error| panic!("{text}: {error}")).at(size)
}

fn refused(text: &str) -> String {
    text.parse::<Formula>().unwrap_err().to_string()
}

#[test]
fn the_formulas_of_extra_p_are_evaluated() {
    for (text, size, expected) in [
        ("1.5 + 2 * log2(size)", 8.0, 7.5),
        ("-0.25 + 1.5e+00 * p^(1/2) * log2(p)^(2)", 16.0, 95.75),
        ("3.0", 5.0, 3.0),
        ("2 * x^(3/2) + -1.0", 4.0, 15.0),
        ("log(p)", 1000.0, 3.0),
        ("log10(p)/log2(p)", 2.0, 2f64.log10()),
        ("(ln(size)/ln(2))", 32.0, 32f64.ln() / 2f64.ln()),
        ("p**2", 3.0, 9.0),
        (" .5*( p ) ", 3.0, 1.5),
    ] {
        assert!((at(text, size) - expected).abs() <= 1e-12 * expected.abs(), "{text} at {size}: {}", at(text, size));
    }
}

#[test]
fn operators_bind_as_in_arithmetic() {
    for (text, expected) in [
        ("2 + 3 * 4", 14.0),
        ("2 - 3 - 4", -5.0),
        ("24 / 4 / 2", 3.0),
        ("2 ^ 3 ^ 2", 512.0),
        ("-2 ^ 2", -4.0),
        ("2 ^ -1", 0.5),
        ("2 ^ -3 * 8", 1.0),
        ("2 ^ -2 ^ 2", 1.0 / 16.0),
        ("2 * -3 + 1", -5.0),
        ("--3", 3.0),
        ("+3 - +2", 1.0),
        ("(2 + 3) * (4 - 1)", 15.0),
        ("log2(2 + 6) ^ 2", 9.0),
        ("1e2 + 1.e1 + 5E-1", 110.5),
    ] {
        assert_eq!(at(text, f64::NAN), expected, "{text}");
    }
    assert!(at("ln(0 - 1)", 1.0).is_nan());
    assert_eq!(at("1 / 0", 1.0), f64::INFINITY);
}

#[test]
fn logarithms_are_written_as_natural_ones_where_that_is_asked_for() {
    let written = |text: &str| text.parse::<Formula>().unwrap().in_natural_logarithms();
    assert_eq!(written("1.5 + 2 * log2(size)"), "1.5 + 2 * (ln(size)/ln(2))");
    assert_eq!(written("log(size)^(2)"), "(ln(size)/ln(10))^(2)");
    assert_eq!(written("log10( log2(p) ) + (p)"), "(ln( (ln(p)/ln(2)) )/ln(10)) + (p)");
    assert_eq!(written(" 2 * ln(p) "), "2 * ln(p)");
    assert_eq!("1 + p ".parse::<Formula>().unwrap().text(), "1 + p");
}

#[test]
fn what_is_no_formula_says_where() {
    let column = |column: usize, expected: &str, found: &str| {
        format!("column {column} of the formula: expected {expected}, found {found}")
    };
    let operand = "a number, a variable or a parenthesis";
    assert_eq!(refused(""), column(1, operand, "the end"));
    assert_eq!(refused("2 +"), column(4, operand, "the end"));
    assert_eq!(refused("()"), column(2, operand, "')'"));
    assert_eq!(refused("2 3"), column(3, "an operator, ) or the end", "'3'"));
    assert_eq!(refused("2)"), column(2, "an operator or the end", "')'"));
    assert_eq!(refused("(2"), column(3, "an operator or )", "the end"));
    assert_eq!(refused("."), column(1, "a number", "'.'"));
    assert_eq!(refused("2 * ü"), column(5, operand, "'ü'"));
    assert_eq!(refused("system(1)"), column(1, "log2, log10, log or ln before a parenthesis", "'system(1)'"));
    assert_eq!(refused("2 * q"), column(5, "a variable, such as size or p", "'q'"));
    assert_eq!(refused("log2 + 1"), column(1, "a variable, such as size or p", "'log2 + 1'"));
    assert_eq!(refused("p + x"), "column 5 of the formula: 'x' beside 'p': expected one variable");
}

#[test]
fn length_and_depth_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(at(&nested(FORMULA_DEPTH_MAX), 1.0), 1.0);
    let too_deep = format!("column {} of the formula is nested deeper than 64", FORMULA_DEPTH_MAX + 2);
    assert_eq!(refused(&nested(FORMULA_DEPTH_MAX + 1)), too_deep);
    assert!(refused(&format!("{}1", "-".repeat(4_000))).ends_with("is nested deeper than 64"));
    let long = |len: usize| format!("1{}", "+1".repeat((len - 1) / 2));
    assert_eq!(at(&format!("{} ", long(FORMULA_BYTES_MAX - 1)), 1.0), 2_048.0);
    let too_long = format!("{}  ", long(FORMULA_BYTES_MAX - 1));
    assert_eq!(refused(&too_long), "the formula has 4097 bytes, expected at most 4096");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}", size in any::<f64>()) {
        if let Ok(formula) = text.parse::<Formula>() {
            formula.at(size);
        }
    }

    #[test]
    fn no_text_of_meaningful_parts_makes_it_panic_and_what_is_read_means_the_same_with_natural_logarithms(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "1", "2.5", "e3", ".", "+", "-", "*", "/", "^", "(", ")", "log2(", "log(", "ln(", "p", " ", "1/2", "p)",
        ]), 0..16),
        size in 1.0..1e6f64,
    ) {
        let text = parts.concat();
        if let Ok(formula) = text.parse::<Formula>() {
            let (one, other) = (formula.at(size), at(&formula.in_natural_logarithms(), size));
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(1.0);
            // Powers, differences and logarithms of logarithms blow up what one was rounded to.
            let is_tame = !text.contains(['^', '*', '-', '/']) && text.matches("log").count() <= 1;
            let is_same = one == other || near(one, other) || one.is_nan() && other.is_nan();
            prop_assert!(!is_tame || is_same, "{} = {} = {}", text, one, other);
        }
    }

    #[test]
    fn sums_of_products_are_what_they_are(terms in proptest::collection::vec((-1e3..1e3f64, 1.0..1e3f64), 1..20)) {
        let text: Vec<String> = terms.iter().map(|(one, other)| format!("{one:?} * {other:?}")).collect();
        let expected = terms.iter().map(|(one, other)| one * other).reduce(|sum, product| sum + product);
        prop_assert_eq!(Some(at(&text.join(" + "), 0.0)), expected);
    }
}
