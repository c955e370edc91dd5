//! The fuzz target of line protocol bodies.

use telem_engine::{Db, Value};

use super::plain_line::{self, Plain};
use super::{NOW, database, named};
use crate::accept::lines::{self, AcceptedLines, LineRules, LineSeries};
use crate::accept::{AcceptCounters, Limits};
use crate::decode::line::{self, Blind, Broken, Field, FieldValue, LineError, LinePrecision, Lines, SampleLine};
use crate::known::Keys;

/// Any bytes are a body: its lines stand in it one after the other under their numbers, what is accepted means the same
/// to a second reading and when it is written again, and remembered names change nothing.
pub fn line_protocol(body: &[u8]) {
    let mut lines = Lines::new(body);
    let mut fields = Vec::new();
    let mut end_before = 0;
    let mut numbers_sent = 0;
    while let Some(read) = lines.read(&mut Blind, &mut fields) {
        let text = match &read {
            Ok(line) => line.text,
            Err(Broken { text, .. }) => text,
        };
        let start = text.as_ptr() as usize - body.as_ptr() as usize;
        assert!(start >= end_before && start + text.len() <= body.len(), "a line overlaps the one before it");
        assert_eq!(body[..start].iter().filter(|byte| **byte == b'\n').count() + 1, lines.number());
        end_before = start + text.len();
        match read {
            Ok(line) => {
                numbers_sent += fields.iter().filter(|field| matches!(field.value, FieldValue::Number(_))).count();
                check_line(&line, &fields);
            }
            Err(broken) => assert!(!broken.error.to_string().is_empty()),
        }
    }
    check_memory(body, numbers_sent);
}

/// A line that was accepted.
fn check_line(line: &SampleLine<'_>, fields: &[Field<'_>]) {
    assert!(!fields.is_empty());
    let plain = plain_line::read(line.text).expect("a line that was accepted has a plain meaning");
    assert_eq!(plain.time, line.time);
    assert_eq!(plain.fields.len(), fields.len());
    for (plain, field) in plain.fields.iter().zip(fields) {
        assert_eq!(plain.1, field.value);
        assert!(line::name(field.key).map_or(true, |name| name.as_bytes() == plain.0));
    }
    match line::series(line.series) {
        Ok((measurement, tags)) => {
            let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
            assert_eq!(plain.measurement, measurement.as_bytes());
            let plain = plain.tags.iter().flatten();
            assert!(plain.map(|(key, value)| (&**key, &**value)).eq(tags));
        }
        Err(LineError::DuplicateTag { key }) => {
            let times = |tags: &Vec<(Vec<u8>, _)>| tags.iter().filter(|(known, _)| *known == key.as_bytes()).count();
            assert!(plain.tags.as_ref().is_none_or(|tags| times(tags) > 1), "it stands once: {key}");
        }
        Err(_) => {}
    }
    check_written(line, fields, &plain);
}

/// The same line, written with every value in full.
fn check_written(line: &SampleLine<'_>, fields: &[Field<'_>], plain: &Plain) {
    let mut written = [line.series, b" "].concat();
    for (at, field) in fields.iter().enumerate() {
        written.extend_from_slice(if at == 0 { b"" } else { b"," });
        written.extend_from_slice(field.key);
        let value = match field.value {
            FieldValue::Number(Value::Int(int)) => format!("={int}i"),
            FieldValue::Number(Value::Float(float)) => format!("={float:e}"),
            FieldValue::Text => "=\"\"".to_owned(),
            FieldValue::Unsigned => format!("={}u", u64::MAX),
        };
        written.extend_from_slice(value.as_bytes());
    }
    if let Some(time) = line.time {
        written.extend_from_slice(format!(" {time}").as_bytes());
    }
    if written.len() > line::LINE_BYTES_MAX {
        return;
    }
    let mut again = Vec::new();
    let read = Lines::new(&written).read(&mut Blind, &mut again).expect("a line");
    let read = read.expect("what was accepted once is accepted when it is written in full");
    assert_eq!((read.series, read.time), (line.series, line.time));
    assert_eq!(again, fields);
    assert_eq!(plain_line::read(&written).as_ref(), Some(plain));
}

/// What becomes of a body must not depend on what the decoder remembers of it.
fn check_memory(body: &[u8], numbers_sent: usize) {
    let precisions = [
        LinePrecision::Nanos,
        LinePrecision::Seconds,
        LinePrecision::Micros,
        LinePrecision::Millis,
        LinePrecision::Minutes,
        LinePrecision::Hours,
    ];
    let rules = LineRules { precision: precisions[body.len() % precisions.len()], keep: true };
    let db = database();
    let limits = Limits { batch_samples_max: 4_096, ..Limits::default() };
    let accept = |db: &Db, keys: &mut Keys<LineSeries>, rules| {
        lines::accept(db, NOW, &limits, &AcceptCounters::default(), keys, rules, body)
    };
    let mut keys = Keys::new(1 << 20);
    let first = accept(&db, &mut keys, rules);
    assert!(first.good == first.batch.len() && first.good <= numbers_sent);
    let numbers = 1..=body.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(first.rejects.iter().all(|reject| numbers.contains(&reject.line)), "a line that is not there is named");
    let expected = told(&db, &first);
    assert_eq!(told(&db, &accept(&db, &mut keys, rules)), expected, "with everything remembered");
    assert_eq!(told(&db, &accept(&db, &mut Keys::new(600), rules)), expected, "with little remembered");
    let checked = accept(&database(), &mut Keys::new(0), LineRules { keep: false, ..rules });
    assert_eq!((checked.good, checked.rejected, checked.batch.len()), (first.good, first.rejected, 0));
}

fn told(db: &Db, accepted: &AcceptedLines) -> (Vec<String>, Vec<String>, Option<usize>) {
    let rejects = accepted.rejects.iter().map(|reject| format!("{}: {}", reject.line, reject.reason)).collect();
    (named(db, &accepted.batch), rejects, accepted.stopped_at)
}
