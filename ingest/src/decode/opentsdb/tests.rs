use proptest::prelude::*;
use telem_engine::Value;

use super::*;

/// What OpenTSDB takes.
const RECORDED: PutRules = PutRules { tags_max: TAGS_MAX, precision: Precision::BySize, non_finite: NonFinite::Refuse };

/// One line per data point of `body`: the sample, or what is wrong with it.
fn judge(body: &str) -> Vec<String> {
    judge_by(&RECORDED, body)
}

fn judge_by(rules: &PutRules, body: &str) -> Vec<String> {
    judge_bytes(rules, body.as_bytes()).unwrap_or_else(|error| vec![format!("body: {error}")])
}

fn judge_bytes(rules: &PutRules, body: &[u8]) -> Result<Vec<String>, BodyError> {
    with_points(body, usize::MAX, |points| {
        let show = |point: &DataPoint<'_>| match point.sample(rules) {
            Ok(sample) => {
                let tags: Vec<String> = sample.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("{}{{{}}} {} {}", sample.metric, tags.join(","), sample.time, sample.value)
            }
            Err(error) => error.to_string(),
        };
        points.kept.iter().map(show).collect()
    })
}

/// The same for a good point in which `field` is replaced by JSON, or left out.
fn judge_with(field: &str, json: Option<&str>) -> String {
    judge_by_with(&RECORDED, field, json)
}

fn judge_by_with(rules: &PutRules, field: &str, json: Option<&str>) -> String {
    let good = [("metric", r#""m""#), ("timestamp", "1356998400"), ("value", "1"), ("tags", r#"{"host":"a"}"#)];
    let mut fields = Vec::new();
    for (name, good) in good {
        let json = if name == field { json } else { Some(good) };
        fields.extend(json.map(|json| format!("\"{name}\":{json}")));
    }
    judge_by(rules, &format!("{{{}}}", fields.join(","))).join("; ")
}

#[test]
fn an_object_is_one_point_and_an_array_holds_many() {
    let point = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(judge(point), ["m{host=a} 1356998400000000us 1"]);
    assert_eq!(judge(&format!("[{point},{point}]")).len(), 2);
    assert_eq!(judge("[]"), [""; 0]);
}

#[test]
fn a_body_that_is_no_json_is_refused_as_a_whole() {
    for (body, expected) in [
        ("", "Missing request content"),
        ("  \n", "Missing request content"),
        ("put x 1 2 a=b", "The JSON must start as an object or an array"),
        ("null", "The JSON must start as an object or an array"),
        ("\"x\"", "The JSON must start as an object or an array"),
        ("5", "The JSON must start as an object or an array"),
        ("{\"metric\":", "Unable to parse the given JSON"),
        ("{\"metric\":\"m", "Unable to parse the given JSON"),
        ("[{]", "Unable to parse the given JSON"),
        ("[5]", "Unable to parse the given JSON"),
        ("{\"value\":{}}", "Unable to parse the given JSON"),
        ("{\"metric\":[\"m\"]}", "Unable to parse the given JSON"),
        ("{\"tags\":[]}", "Unable to parse the given JSON"),
        ("{\"tags\":\"host=a\"}", "Unable to parse the given JSON"),
        ("{\"timestamp\":\"abc\"}", "Unable to parse the given JSON"),
        ("{\"timestamp\":true}", "Unable to parse the given JSON"),
        ("{\"timestamp\":9223372036854775808}", "Unable to parse the given JSON"),
        ("{\"timestamp\":1e300}", "Unable to parse the given JSON"),
    ] {
        assert_eq!(judge(body), [format!("body: {expected}")], "{body}");
    }
}

#[test]
fn what_follows_the_json_and_unknown_fields_are_ignored() {
    let body = r#" {"metric":"m","timestamp":1,"foo":[{"a":null}],"value":1,"tags":{"host":"a"}} garbage"#;
    assert_eq!(judge(body), ["m{host=a} 1000000us 1"]);
}

#[test]
fn of_equal_keys_the_last_counts() {
    let body = r#"{"metric":"a","metric":"b","timestamp":1,"value":1,"value":2,"tags":{"h":"x","i":"y","h":"z"}}"#;
    assert_eq!(judge(body), ["b{h=z,i=y} 1000000us 2"]);
}

#[test]
fn scalars_of_any_type_are_strings_where_strings_are_wanted() {
    let body = r#"{"metric":5,"timestamp":"1356998400","value":"42","tags":{"host":7,"up":true}}"#;
    assert_eq!(judge(body), ["5{host=7,up=true} 1356998400000000us 42"]);
}

#[test]
fn names_are_unescaped() {
    let body = r#"{"metric":"t\u00e9\/m","timestamp":1,"value":1,"tags":{"host":"m\u00fcnchen"}}"#;
    assert_eq!(judge(body), ["té/m{host=münchen} 1000000us 1"]);
}

#[test]
fn a_bare_nan_costs_its_own_point_only() {
    let body = r#"[{"metric":"a-b","timestamp":1,"value":NaN,"tags":{"NaN":"I \" NaN"}},
                   {"metric":"m","timestamp":1,"value":-Infinity,"tags":{"host":"a"}},
                   {"metric":"m","timestamp":1,"value":-1,"tags":{"host":"a"}}]"#;
    let bad = "Unable to parse value to a number";
    assert_eq!(judge(body), [bad, bad, "m{host=a} 1000000us -1"]);
    assert_eq!(judge("[{NaN"), ["body: Unable to parse the given JSON"]);
}

#[test]
fn bytes_that_are_no_utf8_cost_their_own_point_only() {
    let body = b"[{\"metric\":\"m\xFF\",\"timestamp\":1,\"value\":1,\"tags\":{\"host\":\"a\"}},
                  {\"metric\":\"m\",\"timestamp\":1,\"value\":1,\"tags\":{\"host\":\"a\"}}]";
    assert_eq!(
        judge_bytes(&RECORDED, body).unwrap(),
        ["Invalid metric name (\"m\u{FFFD}\"): illegal character: \u{FFFD}", "m{host=a} 1000000us 1"]
    );
}

#[test]
fn points_beyond_the_limit_are_counted_and_not_kept() {
    let count = |body: &str| with_points(body.as_bytes(), 2, |points| (points.kept.len(), points.beyond));
    assert_eq!(count("[{},{}]").unwrap(), (2, 0));
    assert_eq!(count("[{},null,{},{\"a\":[{}]},null]").unwrap(), (2, 3));
    assert!(matches!(count("[{},{},{}"), Err(BodyError::NotJson(_))));
}

#[test]
fn a_null_among_the_points_is_a_point_without_anything() {
    assert_eq!(judge("[null]"), ["Metric name was empty"]);
}

#[test]
fn timestamps_are_seconds_or_milliseconds_by_their_size() {
    for (timestamp, expected) in [
        ("1356998400", "m{host=a} 1356998400000000us 1"),
        ("4294967295", "m{host=a} 4294967295000000us 1"),
        ("4294967296", "m{host=a} 4294967296000us 1"),
        ("13569984000", "m{host=a} 13569984000000us 1"),
        ("1356998400001", "m{host=a} 1356998400001000us 1"),
        ("9999999999999", "m{host=a} 9999999999999000us 1"),
        ("\"1356998400\"", "m{host=a} 1356998400000000us 1"),
        ("\" 1356998400 \"", "m{host=a} 1356998400000000us 1"),
        ("1356998400.9", "m{host=a} 1356998400000000us 1"),
        ("1.3569984e9", "m{host=a} 1356998400000000us 1"),
        ("0", "Invalid timestamp"),
        ("-1", "Invalid timestamp"),
        ("null", "Invalid timestamp"),
        ("\"\"", "Invalid timestamp"),
        ("\"1356998400.5\"", "body: Unable to parse the given JSON"),
        (
            "1356998400000000",
            "bad timestamp=1356998400000000 when trying to add value=[1]/0 to metric=m, tags={host=a}",
        ),
    ] {
        assert_eq!(judge_with("timestamp", Some(timestamp)), expected, "{timestamp}");
    }
    assert_eq!(judge_with("timestamp", None), "Invalid timestamp");
}

#[test]
fn timestamps_have_the_unit_that_the_sender_names() {
    for (unit, timestamp, expected) in [
        ("s", "13569984000", "m{host=a} 13569984000000000us 1"),
        ("s", "1356998400.9", "m{host=a} 1356998400000000us 1"),
        ("s", "9223372036854775807", "m{host=a} 9223372036854775807us 1"),
        ("ms", "1", "m{host=a} 1000us 1"),
        ("ms", "13569984000000", "m{host=a} 13569984000000000us 1"),
        ("us", "1", "m{host=a} 1us 1"),
        ("us", "1356998400000001", "m{host=a} 1356998400000001us 1"),
        ("us", "9007199254740993", "m{host=a} 9007199254740993us 1"),
        ("us", "0", "Invalid timestamp"),
        ("us", "-1", "Invalid timestamp"),
    ] {
        let rules = PutRules { precision: Precision::by_name(unit).unwrap(), ..RECORDED };
        assert_eq!(judge_by_with(&rules, "timestamp", Some(timestamp)), expected, "{timestamp} {unit}");
    }
    for other in ["", "ns", "S", "us "] {
        assert_eq!(Precision::by_name(other), None, "{other}");
    }
}

#[test]
fn numbers_that_are_none_are_floats_where_they_are_to_be_kept() {
    let rules = PutRules { non_finite: NonFinite::Keep, ..RECORDED };
    let bad = "Unable to parse value to a number";
    let float = |shown: &str| format!("m{{host=a}} 1356998400000000us {shown}");
    for (value, expected) in [
        ("NaN", float("NaN")),
        ("\"nan\"", float("NaN")),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
        ("\"+Infinity\"", float("inf")),
        ("\"-inf\"", float("-inf")),
        ("-INF", float("-inf")),
        ("\"in\"", bad.to_owned()),
        ("\"nano\"", bad.to_owned()),
        ("\"--inf\"", bad.to_owned()),
        ("true", bad.to_owned()),
        ("9223372036854775808", bad.to_owned()),
        (&"9".repeat(400), bad.to_owned()),
        ("1e400", "value is NaN or Infinite: Infinity for metric=m timestamp=1356998400".to_owned()),
        ("-5", float("-5")),
        ("0.5", float("0.5")),
    ] {
        assert_eq!(judge_by_with(&rules, "value", Some(value)), expected, "{value}");
    }
}

#[test]
fn values_are_integers_when_they_look_like_it_and_floats_otherwise() {
    let bad = "Unable to parse value to a number";
    for (value, expected) in [
        ("1", "1"),
        ("-5", "-5"),
        ("\"+5\"", "5"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775808", bad),
        ("\"92233720368547758080\"", bad),
        ("1.0", "1.0"),
        ("0.1", "0.1"),
        ("\"1e3\"", "1000.0"),
        ("1E3", "1000.0"),
        ("\".5\"", "0.5"),
        ("\"42.\"", "42.0"),
        ("-0.0", "-0.0"),
        ("\" 5.0 \"", "5.0"),
        ("\"1.5f\"", "1.5"),
        ("16777217.5", "16777217.5"),
        ("\" 5 \"", bad),
        ("\"1,5\"", bad),
        ("\"0x10\"", bad),
        ("\"abc\"", bad),
        ("\"e\"", bad),
        ("\".\"", bad),
        ("\"NaN\"", bad),
        ("\"Infinity\"", bad),
        ("\"-Infinity\"", bad),
        ("true", bad),
        ("1e400", "value is NaN or Infinite: Infinity for metric=m timestamp=1356998400"),
        ("null", "Empty value"),
        ("\"\"", "Empty value"),
    ] {
        let expected = if expected == bad || expected.contains(' ') {
            expected.to_owned()
        } else {
            format!("m{{host=a}} 1356998400000000us {expected}")
        };
        assert_eq!(judge_with("value", Some(value)), expected, "{value}");
    }
    assert_eq!(judge_with("value", None), "Empty value");
}

#[test]
fn metrics_need_legal_names() {
    for (metric, expected) in [
        (Some("\"\""), "Metric name was empty"),
        (Some("null"), "Metric name was empty"),
        (None, "Metric name was empty"),
        (Some("\"a b\""), "Invalid metric name (\"a b\"): illegal character:  "),
        (Some("\"a:b\""), "Invalid metric name (\"a:b\"): illegal character: :"),
        (Some("\"a{b}\""), "Invalid metric name (\"a{b}\"): illegal character: {"),
        (Some("\"a-b_c.d/e9\""), "a-b_c.d/e9{host=a} 1356998400000000us 1"),
        (Some("\"température\""), "température{host=a} 1356998400000000us 1"),
        (Some("\"主机\""), "主机{host=a} 1356998400000000us 1"),
        (Some("\"🙂\""), "Invalid metric name (\"🙂\"): illegal character: 🙂"),
    ] {
        assert_eq!(judge_with("metric", metric), expected, "{metric:?}");
    }
}

#[test]
fn tags_are_one_to_eight_with_legal_names() {
    let tags = |count: usize| {
        let tags: Vec<String> = (0..count).map(|at| format!("\"t{at}\":\"v\"")).collect();
        format!("{{{}}}", tags.join(","))
    };
    for (json, expected) in [
        (None, "Missing tags"),
        (Some("null".to_owned()), "Missing tags"),
        (Some("{}".to_owned()), "Missing tags"),
        (Some(r#"{"":"a"}"#.to_owned()), "Invalid tag name with value [a]: empty string"),
        (Some(r#"{"host":""}"#.to_owned()), "Invalid tag value with key [host]: empty string"),
        (Some(r#"{"host":null}"#.to_owned()), "Invalid tag value with key [host]: null"),
        (Some(r#"{"ho st":"a"}"#.to_owned()), "Invalid tag name with value [a] (\"ho st\"): illegal character:  "),
        (Some(r#"{"host":"a=b"}"#.to_owned()), "Invalid tag value with key [host] (\"a=b\"): illegal character: ="),
        (Some(tags(8)), "m{t0=v,t1=v,t2=v,t3=v,t4=v,t5=v,t6=v,t7=v} 1356998400000000us 1"),
        (
            Some(tags(9)),
            "Too many tags: 9 maximum allowed: 8, tags: {t4=v, t5=v, t6=v, t7=v, t8=v, t0=v, t1=v, t2=v, t3=v}",
        ),
    ] {
        assert_eq!(judge_with("tags", json.as_deref()), expected, "{json:?}");
    }
}

/// With a search through all known keys for each, this would take hours.
#[test]
fn a_million_tags_cost_their_own_point_only() {
    let tags: Vec<String> = (0..1_000_000).map(|at| format!("\"t{at}\":0")).collect();
    let point = |tags: &str| format!(r#"{{"metric":"m","timestamp":1,"value":1,"tags":{{{tags}}}}}"#);
    let judged = judge(&format!("[{},{}]", point(&tags.join(",")), point(r#""host":"a""#)));
    assert!(judged[0].starts_with("Too many tags: 1000000 maximum allowed: 8, tags: {"), "{}", judged[0]);
    assert!(judged[0].ends_with("=0, ...}"), "{}", judged[0]);
    assert_eq!(judged[1..], ["m{host=a} 1000000us 1"]);
}

#[test]
fn a_value_in_a_message_shows_the_bytes_that_opentsdb_would_store() {
    for (value, expected) in [
        (Value::Int(1), "[1]/0"),
        (Value::Int(-1), "[-1]/0"),
        (Value::Int(300), "[1, 44]/1"),
        (Value::Int(70_000), "[0, 1, 17, 112]/3"),
        (Value::Int(i64::MIN), "[-128, 0, 0, 0, 0, 0, 0, 0]/7"),
        (Value::Float(0.5), "[63, 0, 0, 0]/11"),
        (Value::Float(0.1), "[63, -71, -103, -103, -103, -103, -103, -102]/15"),
    ] {
        assert_eq!(number::stored_bytes(value), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bodies made of the pieces of good ones, in any order, and of any bytes.
    #[test]
    fn no_body_makes_the_decoder_panic(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "[", "]", "{", "}", ",", ":", "\"", "\\", "\"metric\":", "\"timestamp\":", "\"value\":", "\"tags\":",
                    "\"m\"", "1356998400", "1e999", "-", "NaN", "-Infinity", "null", "true", "\"\\u00e9\"", "\"\\ud800\"", "é", " ",
                ]).prop_map(|text| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..24,
        )
    ) {
        let body = pieces.concat();
        if let Ok(judged) = judge_bytes(&RECORDED, &body) {
            prop_assert!(judged.iter().all(|verdict| !verdict.is_empty()));
        }
        let text = String::from_utf8_lossy(&body);
        if let Some(quoted) = json::quote_non_numbers(&text) {
            prop_assert!(quoted.len() > text.len());
        }
    }
}

/// Blanks before the JSON, and the quotes that bare words get, moved the place: nothing stood where the error said.
#[test]
fn an_error_names_its_place_in_the_body_as_it_was_sent() {
    let place = |body: &str| match judge_bytes(&RECORDED, body.as_bytes()) {
        Err(BodyError::NotJson(error)) => (error.line, error.column, error.what),
        other => panic!("{other:?}"),
    };
    let expected = |line, column| (line, column, "expected value".to_owned());
    assert_eq!(place(r#"{"value":x}"#), expected(1, 10));
    assert_eq!(place(" \n\u{b}\n {\"value\":x}"), expected(3, 11));
    assert_eq!(place(" {\n\"value\":x}"), expected(2, 9));
    assert_eq!(place(r#"[{"value":NaN},{"value":x}]"#), expected(1, 25));
    assert_eq!(place(r#"[{"value":NaN,"tags":{"a":-INF}},{"value":x}]"#), expected(1, 43));
    assert_eq!(place("[{\"value\":NaN},\n {\"value\":INF},{\"value\":x}]"), expected(2, 25));
    assert_eq!(place("{\n \"metric\": \"\\ud800\"}").0, 2, "not the first line, where the string has it");
    assert!(place("{\n \"metric\": \"\\ud800\"}").2.ends_with("hex escape"));
    let error = judge_bytes(&RECORDED, b"{\"value\":\n x}").unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "expected value at line 2 column 2");
}

/// Bodies that can be read are read the same in groups of any size, and of others nothing is given.
#[test]
fn points_come_in_groups_as_they_come_all_at_once() {
    let point = |n: usize| format!(r#"{{"metric":"m","timestamp":{n},"value":{n},"tags":{{"h":"a"}}}}"#);
    let many = format!("[{}]", (1..=7).map(point).collect::<Vec<_>>().join(","));
    let bodies = [
        "".to_owned(),
        "x".to_owned(),
        "[]".to_owned(),
        "[null]".to_owned(),
        point(1),
        many.clone(),
        many.replace(":3", ":NaN"),
        many.replace(":3", ":NaN").replace(":5,", ":}5,"),
        many.replace("},{", "}{"),
        format!(" \n {many} rest"),
        many.trim_end_matches(']').to_owned(),
    ];
    for body in bodies {
        for points_max in [1, 3, 7, 8] {
            let whole = with_points(body.as_bytes(), points_max, |points| (shown(&points.kept), points.beyond));
            for group_max in [1, 2, 3, 100] {
                let mut kept = Vec::new();
                let beyond = with_groups(body.as_bytes(), points_max, group_max, |group| {
                    assert!(!group.is_empty() && group.len() <= group_max);
                    kept.extend(shown(group));
                });
                assert!(beyond.is_ok() || kept.is_empty(), "{body}");
                let read = beyond.map(|beyond| (kept, beyond)).map_err(|error| error.to_string());
                let whole = whole.as_ref().map(Clone::clone).map_err(ToString::to_string);
                assert_eq!(read, whole, "{body} by {group_max}, {points_max} at most");
            }
        }
    }
}

fn shown(points: &[DataPoint<'_>]) -> Vec<String> {
    points.iter().map(|point| format!("{point:?}")).collect()
}
