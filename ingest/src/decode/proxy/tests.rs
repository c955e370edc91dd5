use proptest::prelude::*;

use super::label::{FullName, group_of};
use super::*;

fn counter(name: &str, value: &str) -> Vec<u8> {
    format!(r#"{{"Value":{{"name":"{name}","value":{{"Counter":{{"ts":1795248958639409,"value":{value}}}}}}}}}"#)
        .into_bytes()
}

fn gauge(name: &str, numbers: [&str; 4]) -> Vec<u8> {
    let [min, max, hits, total] = numbers;
    format!(
        r#"{{"Value":{{"name":"{name}","value":{{"Gauge":{{"min":{min},"max":{max},"hits":{hits},"total":{total}}}}}}}}}"#
    )
    .into_bytes()
}

#[test]
fn what_the_library_writes_is_scanned() {
    let scanned = |message: &[u8]| scan_value(message).map(|found| (found.raw_name.to_vec(), found.kind, found.value));
    assert_eq!(scanned(&counter("a", "3.5")), Some((b"a".to_vec(), CounterKind::Counter, 3.5)));
    let name = r#"live_labeled{rank=\"0\",op=\"read\"}"#;
    assert_eq!(scanned(&counter(name, "-1e3")), Some((name.as_bytes().to_vec(), CounterKind::Counter, -1000.0)));
    assert_eq!(scanned(&gauge("g", ["7.0", "7.0", "1.0", "7.0"])), Some((b"g".to_vec(), CounterKind::Gauge, 7.0)));
    assert_eq!(scanned(&gauge("g", ["1.0", "3.0", "2.0", "4.0"])), Some((b"g".to_vec(), CounterKind::Gauge, 2.0)));
    assert!(scan_value(&counter("a", "null")).unwrap().value.is_nan());
}

#[test]
fn any_json_is_a_message_and_what_lacks_a_field_is_refused() {
    let other = br#" {"Value" : {"value":{"Counter":{"value":3,"extra":[1]}}, "name":"a\u0041"}} "#;
    let expected = ProxyMessage::Value { name: "aA".into(), kind: CounterKind::Counter, value: 3.0 };
    assert_eq!(parse(other).unwrap(), expected, "older clients send no ts");
    let declaration = br#"{"Desc":{"name":"g","doc":"A \"quoted\" doc","ctype":{"Gauge":{"min":0.0,"max":0.0,"hits":0.0,"total":0.0}}}}"#;
    match parse(declaration).unwrap() {
        ProxyMessage::Declaration { name, doc, kind, value } => {
            assert_eq!((&*name, &*doc, kind), ("g", "A \"quoted\" doc", CounterKind::Gauge));
            assert!(value.is_nan(), "it has no value yet");
        }
        other => panic!("{other:?}"),
    }
    let job = br#"{"JobDesc":{"jobid":"7","command":"a b","size":4,"nodelist":"","partition":"","cluster":"","run_dir":"/","start_time":1795248958,"end_time":0}}"#;
    let ProxyMessage::Job(job) = parse(job).unwrap() else { panic!("no job") };
    assert_eq!((&*job.jobid, job.size, job.start_time), ("7", 4, 1_795_248_958_000), "seconds become milliseconds");
    for bad in ["", "{}", "null", r#"{"Value":{"name":"a"}}"#, r#"{"Value":{"value":{"Counter":{"value":1}}}}"#] {
        parse(bad.as_bytes()).unwrap_err();
    }
    parse(br#"{"Value":{"name":"g","value":{"Gauge":{"min":1,"max":1,"hits":1}}}}"#).unwrap_err();
}

#[test]
fn messages_are_what_stands_between_zero_bytes_however_they_come() {
    let long = vec![b'x'; MESSAGE_BYTES_MAX + 1];
    let stream = [b"one\0\0two\0".as_slice(), &long, b"\0three\0rest"].concat();
    for step in [1, 2, 3, 7, 1_000, stream.len()] {
        let (mut splitter, mut found) = (MessageSplitter::default(), Vec::new());
        for part in stream.chunks(step) {
            splitter.split(part, |piece| {
                found.push(match piece {
                    MessagePiece::Message(message) => String::from_utf8(message.to_vec()).unwrap(),
                    MessagePiece::TooLong => "too long".to_owned(),
                });
            });
        }
        assert_eq!(found, ["one", "", "two", "too long", "three"], "in steps of {step}");
        assert!(splitter.is_within());
    }
}

#[test]
fn a_full_name_is_taken_apart_and_one_that_does_not_parse_is_a_name_as_it_stands() {
    let parts = |text: &str| {
        let name = FullName::new(text);
        let labels: Vec<String> = name.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (name.base.to_owned(), labels.join(","))
    };
    assert_eq!(parts(r#"a{rank="0",op="read"}"#), ("a".into(), "rank=0,op=read".into()));
    assert_eq!(parts(r#"a{ x="1", }"#), ("a".into(), "x=1".into()));
    assert_eq!(parts(r#"a{x="q\"\\\n"}"#), ("a".into(), "x=q\"\\\n".into()));
    for odd in ["a{b=1", "a{b=1}", r#"a{b="1""#, r#"a{b="1"}x"#, r#"{b="1"}"#, r#"a{b="1",b="2"}"#, "", r#"a{b=""}"#] {
        assert_eq!(parts(odd), (odd.to_owned(), String::new()), "{odd}");
    }
    assert_eq!(FullName::written("a", [("x", "q\"\\\n"), ("y", "1")]), r#"a{x="q\"\\\n",y="1"}"#);
    assert_eq!(FullName::written("a", [("", ""); 0]), "a");
    assert_eq!((group_of("a{b"), group_of("a")), ("a", "a"));
}

proptest! {
    #[test]
    fn scanning_and_parsing_agree(
        name in r#"[a-z{}=",\\ \n]{0,12}"#,
        value in prop_oneof![any::<f64>().prop_map(|value| format!("{value:?}")), r"-?[0-9.eE+-]{1,8}", Just("null".to_owned())],
        is_gauge in any::<bool>(),
    ) {
        let quoted = serde_json::to_string(&name).unwrap();
        let escaped = &quoted[1..quoted.len() - 1];
        let message = if is_gauge { gauge(escaped, [&value, &value, "1.0", &value]) } else { counter(escaped, &value) };
        if let Some(scanned) = scan_value(&message) {
            let raw = std::str::from_utf8(scanned.raw_name).unwrap();
            let unescaped: String = serde_json::from_str(&format!("\"{raw}\"")).unwrap();
            let ProxyMessage::Value { name, kind, value } = parse(&message).unwrap() else { panic!("no value") };
            prop_assert_eq!((unescaped.as_str(), scanned.kind), (&*name, kind));
            // serde_json's floats may be off by a few of their last bits; those of the scanner are exact.
            let is_near = (scanned.value - value).abs() <= value.abs() * (4.0 * f64::EPSILON);
            prop_assert!(is_near || (scanned.value.is_nan() && value.is_nan()), "{} {}", scanned.value, value);
        }
    }

    #[test]
    fn full_names_that_are_written_are_read_back(
        base in "[a-z_:]{1,8}",
        labels in proptest::collection::btree_map("[a-z_]{1,4}", r#"[a-z"\\\n ,={}]{1,6}"#, 0..4),
    ) {
        let text = FullName::written(&base, &labels);
        let name = FullName::new(&text);
        prop_assert_eq!(name.base, base.as_str());
        let found: Vec<(String, String)> = name.labels.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
        prop_assert_eq!(found, labels.into_iter().collect::<Vec<_>>());
    }
}
