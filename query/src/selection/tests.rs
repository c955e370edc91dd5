use super::glob;
use crate::question::expression::{Case, Expression};
use crate::question::tsq::Matcher;

fn expression(pattern: &str) -> Expression {
    Expression::new(pattern, Case::Matters).unwrap()
}

#[track_caller]
fn check(matcher: &Matcher, accepted: &[&str], refused: &[&str]) {
    for value in accepted {
        assert!(matcher.accepts(value), "{matcher:?} refuses '{value}'");
    }
    for value in refused {
        assert!(!matcher.accepts(value), "{matcher:?} accepts '{value}'");
    }
}

fn list(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn literal_matchers() {
    let values = list(&["web01", "Web02"]);
    check(&Matcher::LiteralOr(values.clone()), &["web01", "Web02"], &["web02", "web0", ""]);
    check(&Matcher::NotLiteralOr(values.clone()), &["web02", "x"], &["web01", "Web02"]);
    check(&Matcher::ILiteralOr(values.clone()), &["WEB01", "web02"], &["web03"]);
    check(&Matcher::NotILiteralOr(values), &["web03"], &["WEB01", "web02"]);
}

#[test]
fn expressions_are_found_anywhere_in_the_value() {
    check(&Matcher::Regexp(expression("eb0[12]")), &["web01", "xweb02y"], &["web03"]);
    check(&Matcher::Regexp(expression("^web01$")), &["web01"], &["web011"]);
}

#[test]
fn globs_are_anchored_only_at_the_one_end_without_a_star() {
    for (pattern, value, expected) in [
        ("*", "anything", true),
        ("**", "anything", true),
        ("web*", "web01", true),
        ("web*", "aweb01", false),
        ("*01", "web01", true),
        ("*01", "web011", false),
        ("*eb*", "web01", true),
        ("w*1", "web01", true),
        // Neither end has a star: nothing is anchored.
        ("e*m", "db-01.example.com", true),
        ("m*e", "db-01.example.com", true),
        // The second part is searched from the length of the first, wherever that was found.
        ("*com*db*", "db-01.example.com", false),
        ("*co*01*", "db-01.example.com", true),
        ("a*a*a", "aa", false),
        ("a**b", "ab", true),
        ("*ü*", "münchen", true),
    ] {
        assert_eq!(glob(pattern, value), expected, "'{pattern}' on '{value}'");
    }
    check(&Matcher::Wildcard("Web*".to_owned()), &["Web1"], &["web1"]);
    check(&Matcher::IWildcard("Web*".to_owned()), &["Web1", "WEB1"], &["xweb1"]);
}

#[test]
fn a_filter_that_only_groups_accepts_every_value_and_needs_no_tag() {
    check(&Matcher::AnyOrNone, &["web01", "*", ""], &[]);
    assert!(!Matcher::AnyOrNone.needs_tag() && Matcher::Wildcard("*".to_owned()).needs_tag());
}
