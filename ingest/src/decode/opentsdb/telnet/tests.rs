use proptest::prelude::*;
use telem_engine::series::TAGS_MAX;

use super::*;

const SENSIBLE: TelnetRules = TelnetRules { tags_max: TAGS_MAX, fraction: Fraction::Counts };
/// As OpenTSDB has it.
const EXACT: TelnetRules = TelnetRules { tags_max: super::super::TAGS_MAX, fraction: Fraction::PointLeftOut };

/// The sample of a line, or what is wrong with it.
fn judge_by(rules: &TelnetRules, line: &str) -> String {
    match put(line, rules) {
        Ok(sample) => {
            let tags: Vec<String> = sample.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{}{{{}}} {} {}", sample.metric, tags.join(","), sample.time, sample.value)
        }
        Err(error) => error.to_string(),
    }
}

fn judge(line: &str) -> String {
    judge_by(&EXACT, line)
}

#[test]
fn a_line_is_a_metric_a_time_a_value_and_tags() {
    for (line, expected) in [
        ("put m 1356998400 42 host=a", "m{host=a} 1356998400000000us 42"),
        ("put m 1356998400 42 host=a cpu=0", "m{host=a,cpu=0} 1356998400000000us 42"),
        ("put sys.if-1/rx_b 1356998400 42 host=A.b", "sys.if-1/rx_b{host=A.b} 1356998400000000us 42"),
        ("put m 1356998400500 42 host=a", "m{host=a} 1356998400500000us 42"),
        ("put m +1356998400 42 host=a", "m{host=a} 1356998400000000us 42"),
        ("put m 4294967295 1 host=a", "m{host=a} 4294967295000000us 1"),
        ("put m 4294967296 1 host=a", "m{host=a} 4294967296000us 1"),
        ("put temperatur 1356998400 42 ort=münchen", "temperatur{ort=münchen} 1356998400000000us 42"),
        ("put m 1356998400 42   host=a  cpu=0 ", "m{host=a,cpu=0} 1356998400000000us 42"),
        ("put m 1356998400 42 host=a host=a", "m{host=a} 1356998400000000us 42"),
    ] {
        assert_eq!(judge(line), expected, "{line}");
    }
}

#[test]
fn what_looks_like_an_integer_is_one_and_everything_else_is_a_float() {
    let value = |text: &str| {
        let judged = judge(&format!("put m 1356998400 {text} host=a"));
        judged.strip_prefix("m{host=a} 1356998400000000us ").map_or(judged.clone(), str::to_owned)
    };
    for (text, expected) in [
        ("42", "42"),
        ("-42", "-42"),
        ("+5", "5"),
        ("007", "7"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("4.5", "4.5"),
        (".5", "0.5"),
        ("-1e3", "-1000.0"),
        ("1.5f", "1.5"),
        ("9223372036854775808", "invalid value: Overflow in 9223372036854775808"),
        ("+9223372036854775808", "invalid value: Overflow in +9223372036854775808"),
        ("12345678901234567890", "invalid value: Value too long: 12345678901234567890"),
        ("-", "invalid value: Just a sign, no value: -"),
        ("--5", "invalid value: Invalid character '-' in --5"),
        ("abc", "invalid value: Invalid character 'a' in abc"),
        ("NaN", "invalid value: Invalid character 'N' in NaN"),
        ("0x1F", "invalid value: Invalid character 'x' in 0x1F"),
        ("1,5", "invalid value: Invalid character ',' in 1,5"),
        ("1\t", "invalid value: Invalid character '\t' in 1\t"),
        ("true", "invalid value: For input string: \"true\""),
        ("1.2.3", "invalid value: For input string: \"1.2.3\""),
        ("1e", "invalid value: For input string: \"1e\""),
        ("1e999", "illegal argument: value is NaN or Infinite: Infinity for metric=m timestamp=1356998400"),
        ("-1e999", "illegal argument: value is NaN or Infinite: -Infinity for metric=m timestamp=1356998400"),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn a_point_in_a_timestamp_is_left_out_or_counts() {
    let time = |rules: &TelnetRules, text: &str| {
        let judged = judge_by(rules, &format!("put m {text} 1 host=a"));
        let time = judged.strip_prefix("m{host=a} ").and_then(|rest| rest.strip_suffix("us 1"));
        time.map_or(judged.clone(), str::to_owned)
    };
    for (text, exact, sensible) in [
        ("1356998401.250", "1356998401250000", "1356998401250000"),
        ("1356998401.5", "13569984015000", "1356998401500000"),
        ("1356998401.", "1356998401000000", "1356998401000000"),
        (
            "1356998401.1234567",
            "illegal argument: bad timestamp=13569984011234567 when trying to add value=[1]/0 to \
          metric=m, tags={host=a}",
            "1356998401123456",
        ),
        (
            "1356998401250.5",
            "illegal argument: bad timestamp=13569984012505 when trying to add value=[1]/0 to \
          metric=m, tags={host=a}",
            "1356998401250500",
        ),
        ("1.2.3", "123000000", "invalid value: Invalid character '.' in 1.2.3"),
        ("1.-5", "invalid value: Invalid character '-' in 1-5", "invalid value: Invalid character '-' in 1.-5"),
        (".5", "5000000", "invalid value: Empty string"),
        ("0.5", "5000000", "illegal argument: invalid timestamp: 0"),
        (".", "invalid value: Empty string", "invalid value: Empty string"),
    ] {
        assert_eq!(time(&EXACT, text), exact, "{text}");
        assert_eq!(time(&SENSIBLE, text), sensible, "{text}");
    }
}

#[test]
fn a_line_with_a_fault_is_told_as_opentsdb_tells_it() {
    let nine_tags = "t0=v t1=v t2=v t3=v t4=v t5=v t6=v t7=v t8=v";
    let nine_shown = "{t4=v, t5=v, t6=v, t7=v, t8=v, t0=v, t1=v, t2=v, t3=v}";
    for (rest, expected) in [
        ("", "illegal argument: not enough arguments (need least 4, got 0)"),
        (" ", "illegal argument: not enough arguments (need least 4, got 1)"),
        (" m 1356998400 42", "illegal argument: not enough arguments (need least 4, got 3)"),
        ("  1356998400 42 host=a", "illegal argument: empty metric name"),
        (" m abc 42 host=a", "invalid value: Invalid character 'a' in abc"),
        (" m  1356998404  1  host=a", "invalid value: Empty string"),
        (" m -5 42 host=a", "illegal argument: invalid timestamp: -5"),
        (" m 0 42 host=a", "illegal argument: invalid timestamp: 0"),
        (
            " m 10000000000000 42 host=a",
            "illegal argument: bad timestamp=10000000000000 when trying to add \
          value=[42]/0 to metric=m, tags={host=a}",
        ),
        (" m 1356998400  host=a", "illegal argument: empty value"),
        (" m 1356998400 1 host", "illegal argument: invalid tag: host"),
        (" m 1356998400 1 host=", "illegal argument: invalid tag: host="),
        (" m 1356998400 1 =a", "illegal argument: invalid tag: =a"),
        (" m 1356998400 1 host=a=b", "illegal argument: invalid tag: host=a=b"),
        (" m 1356998400 1 host=a host=b", "illegal argument: duplicate tag: host=b, tags={host=a}"),
        (" m 1356998400 1 ", "illegal argument: Need at least one tag (metric=m, tags={})"),
        (" t*m 1356998400 1 host=a", "illegal argument: Invalid metric name (\"t*m\"): illegal character: *"),
        (" m 1356998400 1 h:t=a", "illegal argument: Invalid tag name with value [a] (\"h:t\"): illegal character: :"),
        (
            " m 1356998400 1 host=a,b",
            "illegal argument: Invalid tag value with key [host] (\"a,b\"): illegal \
          character: ,",
        ),
        (
            " m 1356998400 1 host=\u{FFFD}",
            "illegal argument: Invalid tag value with key [host] (\"\u{FFFD}\"): \
          illegal character: \u{FFFD}",
        ),
        (
            &format!(" m 1356998400 1 {nine_tags}"),
            &format!(
                "illegal argument: Too many tags: 9 maximum allowed: 8, \
          tags: {nine_shown}"
            ),
        ),
        // Of two faults the one that OpenTSDB comes to first.
        (" t*m abc xyz host", "invalid value: Invalid character 'a' in abc"),
        (" t*m 1356998400 xyz host", "illegal argument: invalid tag: host"),
        (" t*m 1356998400 xyz host=a", "invalid value: Invalid character 'x' in xyz"),
    ] {
        assert_eq!(judge(&format!("put{rest}")), expected, "put{rest}");
    }
}

#[test]
fn tags_beyond_the_limit_are_counted_and_not_compared() {
    let tags = |count: usize| (0..count).map(|n| format!(" t{n}=v")).collect::<String>();
    let line = |count| format!("put m 1356998400 1{}", tags(count));
    assert_eq!(put(&line(64), &SENSIBLE).unwrap().tags.len(), 64);
    for count in [65, 20_000] {
        let told = judge_by(&SENSIBLE, &line(count));
        let begin = format!("illegal argument: Too many tags: {count} maximum allowed: 64, tags: {{");
        assert!(told.starts_with(&begin) && told.len() < 1_000 && told.ends_with(", ...}"), "{told}");
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_sample_or_a_reason(
        line in "put( [^ \n]{0,6}){0,8}|put [a-z*]{0,3} -?[0-9.]{0,20} [0-9.eE+-]{0,20}( [a-c]{0,2}=?[a-c]{0,2}){0,9}|.*",
    ) {
        for rules in [EXACT, SENSIBLE] {
            match put(&line, &rules) {
                Ok(sample) => {
                    prop_assert!(sample.time.micros() > 0);
                    prop_assert!((1..=rules.tags_max).contains(&sample.tags.len()));
                }
                Err(error) => prop_assert!(error.to_string().len() < 200 + 4 * line.len()),
            }
        }
    }
}
