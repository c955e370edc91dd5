use proptest::prelude::*;
use telem_engine::{Durability, Value};

use super::*;
use crate::accept::Accepted;
use crate::accept::receiver::Receiver;
use crate::decode::Incoming;
use crate::decode::opentsdb::{self, NonFinite, Precision};

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const RULES: PutRules = PutRules { tags_max: 64, precision: Precision::BySize, non_finite: NonFinite::Refuse };

/// Metric and tags, time, value.
type Sample = (String, Timestamp, Value);

impl Receiver {
    fn fast(&mut self, rules: &PutRules, body: &[u8]) -> Option<Vec<Sample>> {
        let Self { db, memory, limits, counters, .. } = self;
        accept(db, NOW, limits, counters, &mut memory.points, rules, body).map(|batch| self.samples(&batch))
    }

    /// What the way that knows everything makes of `body`, if all of it is good.
    fn thorough(&self, rules: &PutRules, body: &[u8]) -> Option<Vec<Sample>> {
        let accepted = opentsdb::with_points(body, self.limits.batch_samples_max, |points| {
            let samples: Result<Vec<Incoming<'_>>, _> = points.kept.iter().map(|point| point.sample(rules)).collect();
            let samples = samples.ok().filter(|samples| !samples.is_empty() && points.beyond == 0)?;
            let counters = AcceptCounters::default();
            let tags = self.memory.points.tags();
            Some(crate::accept::accept(&self.db, NOW, &self.limits, &counters, tags, samples.into_iter().enumerate()))
        });
        let accepted: Accepted = accepted.ok()??;
        (accepted.rejected == 0).then(|| self.samples(&accepted.batch))
    }

    fn samples(&self, batch: &SampleBatch) -> Vec<Sample> {
        let name = |series| self.db.index().key(series).unwrap().to_string();
        batch.iter().map(|(series, time, value)| (name(series), time, value)).collect()
    }
}

fn point(metric: &str, value: &str, tags: &str) -> String {
    format!(r#"{{"metric":"{metric}","timestamp":1356998400,"value":{value},"tags":{tags}}}"#)
}

#[test]
fn the_usual_body_is_read_without_the_thorough_way() {
    let mut receiver = Receiver::new();
    let tags = r#"{"host":"a","cpu":"0"}"#;
    let spaced = "[ {\"tags\": { \"host\" : \"a\" },\r\n\t\"value\": \"42\" , \"timestamp\": 1356998400123, \"metric\": \"m\"} ]";
    for (body, expected) in [
        (point("m", "1", tags), vec![("m{cpu=0,host=a}", 1_356_998_400_000, Value::Int(1))]),
        (point("sys.cpu", "-1.5", tags), vec![("sys.cpu{cpu=0,host=a}", 1_356_998_400_000, Value::Float(-1.5))]),
        (point("té", "1e3", tags), vec![("té{cpu=0,host=a}", 1_356_998_400_000, Value::Float(1e3))]),
        (point("m", "-0", tags), vec![("m{cpu=0,host=a}", 1_356_998_400_000, Value::Int(0))]),
        (point("m", "-9223372036854775808", tags), vec![("m{cpu=0,host=a}", 1_356_998_400_000, Value::Int(i64::MIN))]),
        (
            point("m", "0.12345678901234567890", tags),
            vec![("m{cpu=0,host=a}", 1_356_998_400_000, Value::Float(0.123_456_789_012_345_68))],
        ),
        (spaced.to_owned(), vec![("m{host=a}", 1_356_998_400_123, Value::Int(42))]),
        (
            format!("[{},{}] garbage", point("m", "1", tags), point("m", "2", tags)),
            vec![
                ("m{cpu=0,host=a}", 1_356_998_400_000, Value::Int(1)),
                ("m{cpu=0,host=a}", 1_356_998_400_000, Value::Int(2)),
            ],
        ),
    ] {
        let expected: Vec<Sample> = expected
            .into_iter()
            .map(|(name, ms, value)| (name.to_owned(), Timestamp::from_millis(ms), value))
            .collect();
        for _ in 0..2 {
            assert_eq!(receiver.fast(&RULES, body.as_bytes()), Some(expected.clone()), "{body}");
        }
        assert_eq!(receiver.thorough(&RULES, body.as_bytes()), Some(expected), "{body}");
    }
}

#[test]
fn whatever_is_unusual_or_wrong_is_left_to_the_thorough_way_and_leaves_nothing_behind() {
    let good = point("m", "1", r#"{"host":"a"}"#);
    for body in [
        "".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        format!("[{good},]"),
        format!("[{good} {good}]"),
        format!("[{good}"),
        format!("[{good},{{}}]"),
        format!("[{good},null]"),
        point("m", "1", "{}"),
        point("", "1", r#"{"host":"a"}"#),
        point("a b", "1", r#"{"host":"a"}"#),
        point("m", "01", r#"{"host":"a"}"#),
        point("m", "1.", r#"{"host":"a"}"#),
        point("m", ".5", r#"{"host":"a"}"#),
        point("m", "+1", r#"{"host":"a"}"#),
        point("m", "1e", r#"{"host":"a"}"#),
        point("m", "1e999", r#"{"host":"a"}"#),
        point("m", "NaN", r#"{"host":"a"}"#),
        point("m", "\"NaN\"", r#"{"host":"a"}"#),
        point("m", "true", r#"{"host":"a"}"#),
        point("m", "9223372036854775808", r#"{"host":"a"}"#),
        point("m", "1", r#"{"host":"a",}"#),
        point("m", "1", r#"{"host" "a"}"#),
        point("m", "1", r#"{"host":["a"]}"#),
        point("m", "1", r#"{"host":null}"#),
        good.replace("1356998400", "0"),
        good.replace("1356998400", "-1"),
        good.replace("1356998400", "13569984001234567"),
        good.replace("1356998400", "2000000000"),
        good.replace("1356998400", "1.5"),
        good.replace("1356998400", "1356998400.5"),
        good.replace("1356998400", "1356998400e0"),
        good.replace("\"value\":1", "\"value\":1,\"value\":2"),
        good.replace("\"value\":1", "\"value\":1,\"note\":2"),
        good.replace("\"value\":1,", ""),
        good.replace("\"m\"", "\"\\u006d\""),
        good.replace("\"m\"", "\"m\n\""),
    ] {
        let mut receiver = Receiver::new();
        assert_eq!(receiver.fast(&RULES, body.as_bytes()), None, "{body}");
        let both = format!("[{},{body}]", point("new", "1", r#"{"host":"a"}"#));
        assert_eq!(receiver.fast(&RULES, both.as_bytes()), None, "{body}");
        assert_eq!(receiver.db.index().len(), 0, "{body}");
        assert_eq!(receiver.counters.accepted(), 0, "{body}");
    }
    let mut receiver = Receiver::new();
    assert_eq!(receiver.fast(&RULES, &good.replace("\"a\"", "\"\u{1}\"").into_bytes()), None);
    assert_eq!(receiver.fast(&RULES, &[&good.as_bytes()[..12], b"\xFF", &good.as_bytes()[12..]].concat()), None);
}

#[test]
fn points_of_several_shapes_may_stand_in_one_body() {
    let usual = |value: i64| point("m", &value.to_string(), r#"{"host":"a"}"#);
    let turned = r#"{"tags":{"host":"b"},"timestamp":1356998400, "value" : 7,"metric":"n"}"#;
    let spaced = "{ \"metric\": \"m\", \"timestamp\": 1356998401, \"value\": 8, \"tags\": {\"host\": \"a\"} }";
    let bodies = [
        format!("[{},{},{turned},{turned},{},{spaced}]", usual(1), usual(-2), usual(3)),
        format!("[{spaced}, {spaced} ,{},{turned}]", usual(4)),
        format!("[{turned},{}]", turned.replace(" : 7", " : 7.25e1")),
    ];
    let mut receiver = Receiver::new();
    for body in bodies.iter().chain(&bodies) {
        let samples = receiver.fast(&RULES, body.as_bytes());
        assert!(samples.is_some(), "{body}");
        assert_eq!(samples, receiver.thorough(&RULES, body.as_bytes()), "{body}");
    }
}

#[test]
fn a_known_series_with_too_many_tags_for_a_request_is_left_to_the_thorough_way() {
    let mut receiver = Receiver::new();
    let body = point("m", "1", r#"{"a":"1","b":"2","c":"3"}"#);
    for _ in 0..2 {
        assert!(receiver.fast(&RULES, body.as_bytes()).is_some());
        assert!(receiver.fast(&PutRules { tags_max: 2, ..RULES }, body.as_bytes()).is_none());
    }
    receiver.limits.tags_max = 2;
    assert!(receiver.fast(&RULES, body.as_bytes()).is_none());
}

#[test]
fn a_batch_is_taken_up_to_its_limit() {
    let mut receiver = Receiver::new();
    receiver.limits.batch_samples_max = 2;
    let good = point("m", "1", r#"{"host":"a"}"#);
    assert_eq!(receiver.fast(&RULES, format!("[{good},{good}]").as_bytes()).map(|samples| samples.len()), Some(2));
    assert_eq!(receiver.fast(&RULES, format!("[{good},{good},{good}]").as_bytes()), None);
}

#[test]
fn timestamps_count_what_the_request_says() {
    let mut receiver = Receiver::new();
    let body = point("m", "1", r#"{"host":"a"}"#);
    for (precision, micros) in [
        (Precision::Seconds, 1_356_998_400_000_000),
        (Precision::Millis, 1_356_998_400_000),
        (Precision::Micros, 1_356_998_400),
    ] {
        let samples = receiver.fast(&PutRules { precision, ..RULES }, body.as_bytes()).unwrap();
        assert_eq!(samples[0].1, Timestamp::from_micros(micros));
    }
}

#[test]
fn an_accepted_batch_can_be_appended() {
    let Receiver { db, memory, limits, counters, .. } = &mut Receiver::new();
    let body = point("m", "1", r#"{"host":"a"}"#);
    let batch = accept(db, NOW, limits, counters, &mut memory.points, &RULES, body.as_bytes()).unwrap();
    db.append(&batch, Durability::Buffered).unwrap();
    assert_eq!(counters.accepted(), 1);
    assert_eq!(db.last(SeriesId(0)).unwrap(), Some((Timestamp::from_seconds(1_356_998_400), Value::Int(1))));
}

/// Pieces of bodies that are mostly good.
fn body() -> impl Strategy<Value = String> {
    let metric = prop_oneof![8 => Just("\"m\""), 4 => Just("\"sys.cpu\""), 1 => Just("\"a b\""), 1 => Just("5"), 1 => Just("\"\\u006d\"")];
    let time = prop_oneof![8 => Just("1356998400"), 4 => Just("1356998400123"), 1 => Just("\"1356998400\""), 1 => Just("1e9"), 1 => Just("0")];
    let value = prop_oneof![
        any::<i64>().prop_map(|int| int.to_string()),
        any::<f64>().prop_map(|float| format!("{float:?}")),
        (-100_000..100_000_i64, 0..6_usize).prop_map(|(int, digits)| format!("{:.digits$}", int as f64 / 100.0)),
        "-?[0-9.eE+-]{1,6}",
        "\"-?[0-9.eE+-]{1,4}\"",
    ];
    let tags = prop_oneof![
        8 => Just("{\"host\":\"a\"}"),
        4 => Just("{\"host\":\"b\",\"cpu\":\"0\"}"),
        2 => Just("{ \"cpu\" : \"0\" , \"host\" : \"b\" }"),
        1 => Just("{\"host\":\"a\",\"host\":\"b\"}"),
        1 => Just("{\"host\":1}"),
        1 => Just("{}"),
        1 => Just("{\"host\":\"a}\"}"),
        1 => Just("{\"host\":\"a\"\"b\":\"c\"}"),
    ];
    let point = (metric, time, value, tags, 0..4_usize).prop_map(|(metric, time, value, tags, order)| {
        let mut fields = [
            format!("\"metric\":{metric}"),
            format!("\"timestamp\": {time}"),
            format!("\"value\":{value}"),
            format!("\"tags\":{tags}"),
        ];
        fields.rotate_left(order);
        format!("{{{}}}", fields.join(","))
    });
    proptest::collection::vec(point, 1..4).prop_map(|points| format!("[{}]", points.join(",")))
}

proptest! {
    #[test]
    fn what_is_read_here_is_what_the_thorough_way_reads(bodies in proptest::collection::vec(body(), 1..6), keep in any::<bool>()) {
        let rules = PutRules { non_finite: if keep { NonFinite::Keep } else { NonFinite::Refuse }, ..RULES };
        let mut receiver = Receiver::new();
        for body in bodies.iter().chain(&bodies) {
            if let Some(samples) = receiver.fast(&rules, body.as_bytes()) {
                prop_assert_eq!(Some(samples), receiver.thorough(&rules, body.as_bytes()), "{}", body);
            }
        }
    }

    #[test]
    fn a_body_with_any_byte_changed_is_read_the_same_or_left_to_the_thorough_way(
        body in body(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = body.clone().into_bytes();
        let mut receiver = Receiver::new();
        receiver.fast(&RULES, &bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(samples) = receiver.fast(&RULES, &bytes) {
            prop_assert_eq!(Some(samples), receiver.thorough(&RULES, &bytes));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        Receiver::new().fast(&RULES, &bytes);
    }
}

#[test]
fn points_get_the_tags_of_their_sender_and_its_bytes_mean_its_own_series() {
    let mut receiver = Receiver::new();
    let body = point("m", "1", r#"{"a":"b"}"#);
    let of_rank = |rank| DefaultTags::of_process("n7".into(), rank);
    for (tags, expected) in [
        (of_rank(Some(3)), "m{a=b,host=n7,rank=3}"),
        (DefaultTags::default(), "m{a=b}"),
        (of_rank(None), "m{a=b,host=n7}"),
        (of_rank(Some(4)), "m{a=b,host=n7,rank=4}"),
        (of_rank(Some(3)), "m{a=b,host=n7,rank=3}"),
    ] {
        receiver.memory.points.serve(&tags);
        for _ in 0..2 {
            let fast = receiver.fast(&RULES, body.as_bytes()).unwrap();
            assert_eq!(fast[0].0, expected);
            assert_eq!(receiver.thorough(&RULES, body.as_bytes()), Some(fast));
        }
    }
    // As many tags as may be sent are no fault of the sender's, whatever is added.
    let exactly = PutRules { tags_max: 1, ..RULES };
    assert_eq!(receiver.fast(&exactly, body.as_bytes()).unwrap()[0].0, "m{a=b,host=n7,rank=3}");
}
