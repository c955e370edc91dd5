//! What Dragon's class sends, and what else may come to its port.

use telem_engine::{Timestamp, Value};

use super::{DragonBody, DragonTime};

fn time(json: &str) -> Result<DragonTime, String> {
    let body = format!("{{\"dps\": [], \"timestamp\": {json}}}");
    DragonBody::parse(body.as_bytes()).map(|body| body.time).map_err(|error| error.to_string())
}

/// The one point of a body, as `metric {tags} value`, or why there is none.
fn point(json: &str) -> String {
    let body = format!("{{\"dps\": [{json}]}}");
    let body = DragonBody::parse(body.as_bytes()).unwrap();
    match body.points().next().unwrap() {
        Ok(point) => format!("{} {:?} {:?}", point.metric, point.tags, point.value),
        Err(error) => format!("{}: {error}", error.kind()),
    }
}

fn value(json: &str) -> String {
    point(&format!("{{\"metric\": \"m\", \"value\": {json}}}")).replace("m [] ", "")
}

#[test]
fn what_the_class_sends_is_a_time_and_its_points() {
    let body = br#"{"dps": [{"metric": "loss", "value": 0.1}, {"metric": "acc", "value": 3, "tags": {"rank": 3}},
        {"metric": "x", "value": 1, "tags": {"gpu id": "cuda:0", "z": 1.50, "t": true, "gone": null}}],
        "timestamp": 1733466126}"#;
    let body = DragonBody::parse(body).unwrap();
    assert_eq!((body.time, body.len()), (DragonTime::Second(1_733_466_126), 3));
    let points: Vec<_> = body.points().map(Result::unwrap).collect();
    assert_eq!((&*points[0].metric, points[0].value, points[0].tags.len()), ("loss", Value::Float(0.1), 0));
    assert_eq!((points[1].value, points[1].tags[0].1.as_str()), (Value::Int(3), "3"));
    let tags: Vec<String> = points[2].tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(tags, ["gpu id=cuda:0", "z=1.50", "t=true"], "as they were sent, and null is no tag");
}

#[test]
fn whole_seconds_are_told_from_moments() {
    assert_eq!(time("1733466126"), Ok(DragonTime::Second(1_733_466_126)));
    assert_eq!(time("1733466126.0"), Ok(DragonTime::Second(1_733_466_126)));
    assert_eq!(time("\"1733466126\""), Ok(DragonTime::Second(1_733_466_126)));
    assert_eq!(time("-5"), Ok(DragonTime::Second(-5)));
    assert_eq!(time("1733466126.25"), Ok(DragonTime::Moment(Timestamp::from_micros(1_733_466_126_250_000))));
    assert_eq!(time("1733466126250"), Ok(DragonTime::Moment(Timestamp::from_micros(1_733_466_126_250_000))));
    assert_eq!(time("null"), Ok(DragonTime::Unsaid));
    let unsaid = DragonBody::parse(b"{\"dps\": []}").unwrap();
    assert!(unsaid.is_empty() && unsaid.time == DragonTime::Unsaid);
    for wrong in ["true", "[]", "\"soon\"", "1e300", "-99999999999999999999", "\"NaN\""] {
        let why = time(wrong).unwrap_err();
        assert!(why.starts_with("the timestamp is ") && why.contains("expected seconds"), "{wrong}: {why}");
    }
}

#[test]
fn a_value_is_a_number_in_the_end_or_is_refused_with_its_reason() {
    assert_eq!(value("7"), "Int(7)");
    assert_eq!(value("0.1"), "Float(0.1)");
    assert_eq!(value("5e-324"), "Float(5e-324)", "every bit is kept");
    assert_eq!(value("true"), "Int(1)");
    assert_eq!(value("false"), "Int(0)");
    assert_eq!(value("\" 12.5 \""), "Float(12.5)");
    assert_eq!(value("\"12\""), "Int(12)");
    assert_eq!(value("100000000000000000000"), "Float(1e20)");
    assert_eq!(value("null"), "null: the value of m is null: expected a number");
    assert_eq!(value("\"abc\""), "value: the value of m is \"abc\": expected a number");
    assert_eq!(value("\"NaN\""), "value: the value of m is \"NaN\": expected a number");
    assert_eq!(value("[1]"), "value: the value of m is [1]: expected a number");
    assert_eq!(value("1e999"), "not finite: the value of m is not finite: expected a number that 64 bits can hold");
}

#[test]
fn what_is_missing_is_named_in_the_words_of_dragon() {
    assert_eq!(point("{\"metric\": \"m\"}"), "no value: 'value'");
    assert_eq!(point("{\"value\": 1}"), "no metric: 'metric'");
    assert_eq!(DragonBody::parse(b"{\"timestamp\": 1}").unwrap_err().to_string(), "'dps'");
    assert_eq!(point("[1]"), "no object: a point is [1]: expected an object with 'metric' and 'value'");
    assert_eq!(point("{\"metric\": 5, \"value\": 1}"), "metric: the metric is 5: expected a text");
    assert!(point("{\"metric\": \"m\", \"value\": 1, \"tags\": [1]}").starts_with("tags: the tags of m are [1]"));
    let nested = point("{\"metric\": \"m\", \"value\": 1, \"tags\": {\"a\": {}}}");
    assert_eq!(nested, "tag: the tag a of m is {}: expected a text or a number");
}

#[test]
fn a_body_that_is_none_is_refused_as_a_whole() {
    for body in ["", "hello", "[]", "{\"dps\": 5}", "{\"dps\": [}", "{\"dps\": []} {}", "{\"dps\": [1], \"dps\": []}"] {
        let why = DragonBody::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(why.starts_with("the body is no JSON object of the form {\"dps\": "), "{body}: {why}");
    }
    assert!(DragonBody::parse(b"{\"dps\": [{\"metric\": \"\xff\", \"value\": 1}]}").is_err());
}
