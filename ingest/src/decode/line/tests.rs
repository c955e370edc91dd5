mod recorded;

use proptest::prelude::*;

use super::*;

/// One line per line of `body`: what it says, or what is wrong with it.
fn read(body: impl AsRef<[u8]>) -> Vec<String> {
    let mut lines = Lines::new(body.as_ref());
    let mut fields = Vec::new();
    let mut shown = Vec::new();
    while let Some(read) = lines.read(&mut Blind, &mut fields) {
        let number = lines.number();
        let text = match read.and_then(|line| show(line, &fields)) {
            Ok(text) => text,
            Err(broken) => broken.error.to_string(),
        };
        shown.push(format!("{number}: {text}"));
    }
    shown
}

fn show<'a>(line: SampleLine<'a>, fields: &[Field<'_>]) -> Result<String, Broken<'a>> {
    let broken = |error| Broken { text: line.text, error };
    let (measurement, tags) = series(line.series).map_err(broken)?;
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut text = format!("{measurement}{{{}}}", tags.join(","));
    for field in fields {
        let key = name(field.key).map_err(broken)?;
        match field.value {
            FieldValue::Number(value) => text.push_str(&format!(" {key}={value}")),
            other => text.push_str(&format!(" {key}={other:?}")),
        }
    }
    if let Some(time) = line.time {
        text.push_str(&format!(" @{time}"));
    }
    Ok(text)
}

#[test]
fn a_line_holds_measurement_tags_fields_and_time() {
    assert_eq!(
        read("cpu,host=nid001,cpu=0 usage=1.25,ticks=3i 1767322800000000000"),
        ["1: cpu{host=nid001,cpu=0} usage=1.25 ticks=3 @1767322800000000000"]
    );
    assert_eq!(read("m v=1"), ["1: m{} v=1.0"]);
}

#[test]
fn a_time_that_begins_as_that_of_the_line_before_is_read_to_its_end() {
    let body = "m v=1 12\nm v=1 12 \nm v=1 123\nm v=1 12.5\nm v=1 12,\nm v=1 12a\nm v=1 12 3\nm v=1 12\r\nm v=1 12";
    let (good, bad) = ("m{} v=1.0 @12", "bad timestamp: expected a whole number");
    let trailing = "point is invalid: nothing may follow the timestamp";
    let expected = [good, good, "m{} v=1.0 @123", bad, bad, bad, trailing, good, good];
    let expected: Vec<String> = expected.iter().enumerate().map(|(at, line)| format!("{}: {line}", at + 1)).collect();
    assert_eq!(read(body), expected);
}

#[test]
fn values_are_floats_integers_unsigned_integers_booleans_and_strings() {
    for (value, expected) in [
        ("1", "1.0"),
        ("-1.5", "-1.5"),
        ("1.", "1.0"),
        (".5", "0.5"),
        ("-0", "-0.0"),
        ("1e3", "1000.0"),
        ("1E-3", "0.001"),
        ("0.1", "0.1"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
        ("5e-324", "5e-324"),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("9007199254740993", "9007199254740992.0"),
        ("1i", "1"),
        ("-9223372036854775808i", "-9223372036854775808"),
        ("9223372036854775807i", "9223372036854775807"),
        ("00000000000000000000000000001i", "1"),
        ("7u", "7"),
        ("9223372036854775807u", "9223372036854775807"),
        ("9223372036854775808u", "Unsigned"),
        ("18446744073709551615u", "Unsigned"),
        ("t", "1"),
        ("True", "1"),
        ("FALSE", "0"),
        (r#""a b, c=d""#, "Text"),
        (r#""say \"a\\""#, "Text"),
        (r#""""#, "Text"),
    ] {
        assert_eq!(read(format!("m v={value}")), [format!("1: m{{}} v={expected}")], "{value}");
    }
}

#[test]
fn what_is_no_value_is_told() {
    for (value, expected) in [
        ("", "missing field value"),
        ("-", "invalid number"),
        (".", "invalid number"),
        ("1_000", "invalid number"),
        ("0x10", "invalid number"),
        ("1i2", "invalid number"),
        ("1.5i", "invalid number"),
        ("-1u", "invalid number"),
        ("1e", "invalid number"),
        ("1e5i", "invalid number"),
        ("1.2.3", "invalid number"),
        ("9223372036854775808i", "invalid integer: beyond the 64 bits of -9223372036854775808 to 9223372036854775807"),
        ("18446744073709551616u", "invalid integer: beyond the 64 bits of -9223372036854775808 to 9223372036854775807"),
        ("1e400", "invalid float: beyond what 64 bits of float can hold"),
        ("NaN", "invalid boolean: expected t, true, f, false, a number, or a string in quotes"),
        ("yes", "invalid boolean: expected t, true, f, false, a number, or a string in quotes"),
        ("\"open", "unbalanced quotes"),
        ("\"a\"b", "invalid field format: expected key=value"),
    ] {
        assert_eq!(read(format!("m v={value}")), [format!("1: {expected}")], "{value}");
    }
}

#[test]
fn a_bad_line_costs_itself_only_and_lines_are_counted_as_editors_do() {
    let body = "m v=1\n\n# a comment\n  m v=2 5  \nbad\nm v=3\r\nm v=\"a\nb\",w=1\nm v=\nm v=4";
    assert_eq!(
        read(body),
        [
            "1: m{} v=1.0",
            "4: m{} v=2.0 @5",
            "5: missing fields",
            "6: m{} v=3.0",
            "7: m{} v=Text w=1.0",
            "9: missing field value",
            "10: m{} v=4.0",
        ]
    );
}

#[test]
fn a_quote_that_is_never_closed_costs_its_own_line_only() {
    assert_eq!(read("m v=\"a\nm v=2\nm v=3"), ["1: unbalanced quotes", "2: m{} v=2.0", "3: m{} v=3.0"]);
}

#[test]
fn names_that_are_no_utf8_cost_their_own_line_only() {
    assert_eq!(
        read(b"m\xFF v=1\nm,h=\xFF v=1\nm \xFF=1\nm v=1"),
        ["1: a name is not UTF-8", "2: a name is not UTF-8", "3: a name is not UTF-8", "4: m{} v=1.0",]
    );
}

#[test]
fn lines_and_their_fields_and_tags_are_taken_up_to_their_limits() {
    let fields = |count: usize| (0..count).map(|at| format!("f{at}=1")).collect::<Vec<_>>().join(",");
    assert!(read(format!("m {}", fields(FIELDS_MAX)))[0].starts_with("1: m{} f0=1.0"));
    let beyond = read(format!("m {}\nm v=1", fields(FIELDS_MAX + 1)));
    assert_eq!(
        beyond[0],
        "1: the line has more than 4096 fields; send the rest in another with the same tags and time"
    );
    assert_eq!(beyond[1], "2: m{} v=1.0");

    let long = |bytes: usize| format!("m s=\"{}\",v=1", "x".repeat(bytes - "m s=\"\",v=1".len()));
    assert_eq!(read(long(LINE_BYTES_MAX)), ["1: m{} s=Text v=1.0"]);
    assert_eq!(read(long(LINE_BYTES_MAX + 1)), ["1: the line has 1048577 bytes; at most 1048576 are allowed"]);

    let tags = |count: usize| (0..count).map(|at| format!(",t{at}=x")).collect::<String>();
    assert!(read(format!("m{} v=1", tags(64)))[0].ends_with("t63=x} v=1.0"));
    assert_eq!(read(format!("m{} v=1", tags(65))), ["1: 65 tags; at most 64 are allowed"]);
}

#[test]
fn timestamps_count_what_the_request_says() {
    for (name, micros) in [
        ("ns", Some(1)),
        ("n", Some(1)),
        ("us", Some(1_500)),
        ("u", Some(1_500)),
        ("ms", Some(1_500_000)),
        ("s", Some(1_500_000_000)),
        ("m", Some(90_000_000_000)),
        ("h", Some(5_400_000_000_000)),
    ] {
        let time = LinePrecision::by_name(name).unwrap().time(1_500);
        assert_eq!(time.map(Timestamp::micros), micros, "{name}");
    }
    for (count, micros) in [
        (0, 0),
        (4_999_999_999, 4_999_999_999_000_000),
        (5_000_000_000, 5_000_000_000_000),
        (-4_999_999_999_999, -4_999_999_999_999_000),
        (5_000_000_000_000, 5_000_000_000_000),
        (4_999_999_999_999_999, 4_999_999_999_999_999),
        (5_000_000_000_000_000, 5_000_000_000_000),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456),
        (i64::MIN, i64::MIN.div_euclid(1_000)),
    ] {
        assert_eq!(LinePrecision::Guessed.time(count), Some(Timestamp::from_micros(micros)), "{count}");
    }
    assert_eq!(LinePrecision::Nanos.time(-1), Some(Timestamp::from_micros(-1)));
    assert_eq!(LinePrecision::Hours.time(i64::MAX / 1_000_000_000), None);
    assert_eq!(LinePrecision::by_name("days"), None);
}

#[test]
fn the_field_value_names_the_metric_by_its_measurement_alone() {
    assert_eq!(metric("cpu", "usage"), "cpu_usage");
    assert_eq!(metric("cpu", "value"), "cpu");
}

/// Characters that mean something, and a few that do not.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        proptest::sample::select(vec![
            "m", "v", "1", "i", "u", ",", " ", "=", "\\", "\"", "\n", "\r", "#", "-", ".", "e", "t", "ü",
        ]),
        0..60,
    )
    .prop_map(|parts| parts.concat())
}

/// Believes nothing, but knows the names of the last line that was scanned: what a decoder's memory does.
#[derive(Default)]
struct LastLine {
    series: Vec<u8>,
    fields: Vec<Vec<u8>>,
    at: usize,
}

impl LineForesight for LastLine {
    fn series(&mut self, rest: &[u8]) -> Option<usize> {
        self.at = 0;
        let len = self.series.len();
        (len > 0 && rest.starts_with(&self.series) && rest.get(len) == Some(&b' ')).then_some(len)
    }

    fn scanned(&mut self, series: &[u8]) {
        self.series = series.to_vec();
        self.fields.clear();
    }

    fn field(&mut self, rest: &[u8]) -> Option<usize> {
        let name = self.fields.get(self.at)?;
        self.at += 1;
        (rest.starts_with(name) && rest.get(name.len()) == Some(&b'=')).then_some(name.len())
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_it_always_comes_to_an_end(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let lines = read(&body);
        prop_assert!(lines.len() <= body.iter().filter(|byte| **byte == b'\n').count() + 1);
    }

    #[test]
    fn no_text_of_meaningful_characters_makes_it_panic(body in text()) {
        read(&body);
    }

    #[test]
    fn what_is_foreseen_is_what_would_have_been_read(body in text()) {
        let mut seer = LastLine::default();
        let (mut seen, mut blind) = (Lines::new(body.as_bytes()), Lines::new(body.as_bytes()));
        let (mut seen_fields, mut blind_fields) = (Vec::new(), Vec::new());
        loop {
            let expected = blind.read(&mut Blind, &mut blind_fields);
            let found = seen.read(&mut seer, &mut seen_fields);
            prop_assert_eq!(&found, &expected);
            if let Some(Ok(_)) = &found {
                prop_assert_eq!(&seen_fields, &blind_fields);
                seer.fields = seen_fields.iter().map(|field| field.key.to_vec()).collect();
            }
            if found.is_none() {
                break;
            }
        }
    }

    #[test]
    fn a_float_is_read_as_the_nearest_there_is(float in any::<f64>().prop_filter("finite", |float| float.is_finite()), digits in 0..20_usize) {
        for text in [format!("{float:?}"), format!("{float:.digits$}"), format!("{:.digits$}", float % 1e6)] {
            let expected: f64 = text.parse().unwrap();
            let line = format!("m v={text}");
            let mut fields = Vec::new();
            let read = Lines::new(line.as_bytes()).read(&mut Blind, &mut fields);
            if expected.is_finite() {
                prop_assert!(matches!(read, Some(Ok(_))), "{}", text);
                prop_assert_eq!(fields[0].value, FieldValue::Number(Value::Float(expected)), "{}", text);
            }
        }
    }

    #[test]
    fn names_come_back_whatever_is_in_them(measurement in "[^\\\\\n#\r\t \u{0}][^\\\\\n]{0,8}", key in "[^\\\\\n]{1,8}", value in "[^\\\\\n]{1,8}", field in "[^\\\\\n]{1,8}") {
        let escaped = |name: &str| name.replace(',', "\\,").replace(' ', "\\ ").replace('=', "\\=");
        let line = format!("{},{}={} {}=1", escaped(&measurement), escaped(&key), escaped(&value), escaped(&field));
        prop_assert_eq!(read(&line), [format!("1: {measurement}{{{key}={value}}} {field}=1.0")]);
    }
}
