//! The fuzz target of single numbers, as fields of line protocol and as values of put bodies.

use telem_engine::Value;

use super::plain_line;
use crate::decode::line::{Blind, FieldValue, LinePrecision, Lines};
use crate::decode::opentsdb::scan::{Next, PointScan};
use crate::decode::opentsdb::{self, NonFinite, Precision, PutRules};

/// Any text that could be one number is read as the standard library reads it, or not at all.
pub fn numbers(text: &[u8]) {
    let ends_a_value = |byte: &u8| matches!(byte, b',' | b' ' | b'\n' | b'\r' | b'"' | b'=' | b'\\' | b'}');
    if text.is_empty() || text.iter().any(ends_a_value) {
        return;
    }
    field(text);
    time(text);
    put_value(text);
}

fn field(text: &[u8]) {
    let line = [b"m v=".as_slice(), text, b" 1"].concat();
    let mut fields = Vec::new();
    let read = Lines::new(&line).read(&mut Blind, &mut fields).expect("a line");
    let found = read.is_ok().then(|| fields[0].value);
    assert_eq!(found, plain_line::field(text));
    if let Some(FieldValue::Number(value)) = found {
        // Telling type and bits apart: equality of values does.
        assert_eq!(Value::from_bits(value.to_bits(), value.value_type()), value);
    }
}

fn time(text: &[u8]) {
    let line = [b"m v=1 ".as_slice(), text].concat();
    let read = Lines::new(&line).read(&mut Blind, &mut Vec::new()).expect("a line");
    let plain = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    let plain: Option<i64> = plain.and_then(|text| text.parse().ok());
    let found = read.ok().map(|line| line.time.expect("something follows the fields"));
    assert_eq!(found, plain);
    for precision in [LinePrecision::Nanos, LinePrecision::Seconds, LinePrecision::Hours] {
        let exact = |count: i64| match precision {
            LinePrecision::Nanos => i128::from(count).div_euclid(1_000),
            LinePrecision::Seconds => i128::from(count) * 1_000_000,
            _ => i128::from(count) * 3_600_000_000,
        };
        if let Some(count) = found {
            let expected = i64::try_from(exact(count)).ok();
            assert_eq!(precision.time(count).map(|time| time.micros()), expected);
        }
    }
}

/// The fast reader of put bodies and the thorough one.
fn put_value(text: &[u8]) {
    let rules = PutRules { tags_max: 8, precision: Precision::BySize, non_finite: NonFinite::Keep };
    for quote in ["", "\""] {
        let mut body = format!(r#"{{"metric":"m","timestamp":1,"tags":{{"a":"b"}},"value":{quote}"#).into_bytes();
        body.extend_from_slice(text);
        body.extend_from_slice(format!("{quote}}}").as_bytes());
        let Next::Point(point) = PointScan::new(&body, &rules).next(&mut Unseen) else { continue };
        let thorough =
            opentsdb::with_points(&body, 1, |points| points.kept[0].sample(&rules).map(|sample| sample.value));
        assert_eq!(thorough.ok().and_then(Result::ok), Some(point.value));
        if quote.is_empty() {
            let plain = std::str::from_utf8(text).expect("a number of JSON is ASCII").trim_matches('\t');
            match point.value {
                Value::Int(int) => assert_eq!(plain.parse(), Ok(int)),
                Value::Float(float) => assert_eq!(plain.parse::<f64>().map(f64::to_bits), Ok(float.to_bits())),
            }
        }
    }
}

/// Has seen no names.
pub struct Unseen;

impl opentsdb::scan::PointForesight for Unseen {
    fn begin(&mut self) {}

    fn metric(&mut self, _rest: &[u8]) -> Option<usize> {
        None
    }

    fn tags(&mut self, _rest: &[u8]) -> Option<usize> {
        None
    }
}
