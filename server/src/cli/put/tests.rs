//! Lines as people and programs write them, and the server's answers to them.

use std::io::Cursor;

use serde_json::json;

use super::line::parse;
use super::service::refused;
use super::*;

/// A line as `metric value {tags} time`.
fn shown(text: &str) -> String {
    match parse(text) {
        Ok(PutLine::Nothing) => "nothing".to_owned(),
        Ok(PutLine::Sample(PutSample { metric, value, tags, time })) => {
            let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let time = time.map_or("now".to_owned(), |time| time.at(Timestamp::from_seconds(1_000)).to_string());
            format!("{metric} {value} {{{}}} {time}", tags.join(","))
        }
        Err(reason) => format!("error: {reason}"),
    }
}

#[test]
fn a_line_is_a_sample_in_our_form_or_in_that_of_opentsdb() {
    for (text, expected) in [
        ("loss 0.3", "loss 0.3 {} now"),
        ("  loss\t0.3  rank=1 run=a=b \r\n", "loss 0.3 {rank=1,run=a=b} now"),
        ("loss -5", "loss -5 {} now"),
        ("put sys.cpu 1356998400 42 host=a", "sys.cpu 42 {host=a} 1356998400000000us"),
        ("put sys.cpu 1356998400001 42 host=a", "sys.cpu 42 {host=a} 1356998400001000us"),
        ("put sys.cpu 1356998400.5 42", "sys.cpu 42 {} 1356998400500000us"),
        ("put sys.cpu 2013-01-01T00:00:00Z 42", "sys.cpu 42 {} 1356998400000000us"),
        ("put sys.cpu 10s-ago 42", "sys.cpu 42 {} 990000000us"),
        ("put 5", "put 5 {} now"),
        ("put 5 hole=3 par=4", "put 5 {hole=3,par=4} now"),
        ("", "nothing"),
        ("   \n", "nothing"),
        ("# loss 0.3", "nothing"),
        ("loss", "error: 'loss' has no value; write METRIC VALUE [TAG=VALUE...]"),
        ("loss 0.3 rank", "error: 'rank' is not a tag; write TAG=VALUE"),
        ("loss NaN =", "loss NaN {=} now"),
        ("loss 1 run=1 run=1", "loss 1 {run=1} now"),
        ("loss 1 run=1 run=2", "error: tag 'run' is given twice, as '1' and as '2'"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
    assert!(shown("put m yesterday 1 a=b").starts_with("error: 'yesterday' is not a time; write RFC 3339"));
}

#[test]
fn a_line_may_have_as_many_bytes_as_allowed_and_the_next_one_is_read_whatever_it_had() {
    let (send, lines) = sync_channel(8);
    let longest = "x".repeat(LINE_BYTES_MAX - 1);
    let text = format!("{longest}\n{longest}y\na 1\n\u{fffd}b 2");
    let mut bytes = text.into_bytes();
    let at = bytes.len() - "\u{fffd}b 2".len();
    bytes.splice(at..at + 3, [0xff]);
    read_into(&mut Cursor::new(bytes), &send);
    drop(send);
    let read: Vec<Read> = lines.iter().collect();
    assert_eq!(read[0].as_ref().unwrap().len(), LINE_BYTES_MAX);
    assert_eq!(read[1], Err(format!("{} bytes; a line has at most {LINE_BYTES_MAX}", LINE_BYTES_MAX + 1)));
    assert_eq!(read[2].as_ref().unwrap(), "a 1\n");
    assert!(read[3].as_ref().unwrap_err().starts_with("no UTF-8"));
    assert_eq!(read.len(), 4);
}

#[test]
fn a_batch_is_full_at_its_limit_and_ends_with_its_input() {
    let (send, lines) = sync_channel(BATCH_SAMPLES_MAX + 1);
    for _ in 0..=BATCH_SAMPLES_MAX {
        send.send(Ok("a 1".to_owned())).unwrap();
    }
    drop(send);
    let (first, ended) = batch_of(&lines, &SystemClock::new());
    assert_eq!((first.len(), ended), (BATCH_SAMPLES_MAX, false));
    let (second, ended) = batch_of(&lines, &SystemClock::new());
    assert_eq!((second.len(), ended), (1, true));
    assert_eq!(batch_of(&lines, &SystemClock::new()).0.len(), 0);
}

#[test]
fn each_bad_point_of_an_answer_is_found_in_its_line() {
    let sample = |line: usize, value: &str| NumberedSample {
        line,
        sample: PutSample { metric: "m".to_owned(), value: value.to_owned(), tags: Vec::new(), time: None },
        time: Timestamp::from_micros(7),
    };
    let samples = [sample(3, "x"), sample(4, "1"), sample(9, "x")];
    let point = |value: &str| json!({"metric": "m", "timestamp": 7, "value": value, "tags": {"host": "n"}});
    let points = [point("x"), json!({"metric": "m", "timestamp": 8, "value": "1", "tags": {"host": "n"}}), point("x")];
    let error = json!({"datapoint": point("x"), "error": "no number"});
    let answer = json!({"success": 1, "failed": 2, "errors": [error, error]}).to_string();
    let found = refused(&samples, &points, answer.as_bytes()).unwrap();
    assert_eq!(found.reasons, [(3, "no number".to_owned()), (9, "no number".to_owned())]);
    assert_eq!(found.count, 2);
    // An answer shows no more tags of a point than a point may have.
    let many = json!({"metric": "m", "timestamp": 7, "value": "x", "tags": {"a": "1", "b": "2", "host": "n"}});
    let error = json!({"datapoint": {"metric": "m", "timestamp": 7, "value": "x", "tags": {"a": "1", "b": "2"}},
        "error": "too many tags"});
    let answer = json!({"success": 1, "failed": 1, "errors": [error]}).to_string();
    let found = refused(&samples, &[point("x"), point("1"), many], answer.as_bytes()).unwrap();
    assert_eq!(found.reasons, [(9, "too many tags".to_owned())]);
    assert_eq!(refused(&samples, &points, b"{\"error\":{}}"), None);
    assert_eq!(refused(&samples, &points, b"<html>"), None);
}

#[test]
fn samples_of_one_time_are_kept_apart_where_their_series_is_the_same() {
    let sample = |text: &str| match parse(text) {
        Ok(PutLine::Sample(sample)) => sample,
        other => panic!("{text}: {other:?}"),
    };
    let mut said = SeriesTimes::default();
    let mut free = |text: &str, micros| said.free(&sample(text), Timestamp::from_micros(micros)).micros();
    assert_eq!([free("a 1", 50), free("a 2", 50), free("b 1", 50), free("a 3", 50)], [50, 51, 50, 52]);
    assert_eq!([free("a 1 x=1 y=2", 50), free("a 1 y=2 x=1", 50), free("a 1 x=1", 50)], [50, 51, 50]);
    assert_eq!([free("a 1", 60), free("a 2", 50)], [60, 61]);
}

#[test]
fn as_many_series_are_remembered_as_the_limit_says_and_then_all_are_later() {
    let sample = |n: usize| PutSample { metric: format!("m{n}"), value: String::new(), tags: Vec::new(), time: None };
    let mut said = SeriesTimes::default();
    let mut free = |n: usize| said.free(&sample(n), Timestamp::from_micros(50)).micros();
    assert!((0..SERIES_MAX).all(|n| free(n) == 50));
    assert_eq!([free(0), free(SERIES_MAX), free(0), free(1)], [51, 52, 52, 52]);
}

#[test]
fn an_infinity_below_zero_is_a_value_and_options_may_stand_anywhere() {
    use clap::Parser;
    let parsed = |words: &[&str]| crate::cli::Cli::try_parse_from(["telem", "put"].iter().chain(words));
    for words in [
        &["m", "-inf", "a=b", "--time", "5"][..],
        &["--time", "5", "m", "-inf", "a=b"],
        &["m", "--time", "5", "-inf", "a=b"],
    ] {
        let crate::cli::Command::Put(args) = parsed(words).unwrap().command else { panic!("{words:?}") };
        assert_eq!((args.metric.as_str(), args.value.as_deref(), args.tags.len()), ("m", Some("-inf"), 1));
        assert!(args.time.is_some());
    }
    for words in [&["-"][..], &["-", "--wait", "5s"], &["m", "-4.5"], &["m", "1"]] {
        assert!(parsed(words).is_ok(), "{words:?}");
    }
}
