use proptest::prelude::*;
use telem_engine::{Durability, TimeRange, Value};

use super::*;
use crate::accept::DecoderMemory;
use crate::accept::receiver::Receiver;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const RULES: LineRules = LineRules { precision: LinePrecision::Seconds, keep: true };

impl Receiver {
    fn accept(&mut self, rules: LineRules, body: &str) -> AcceptedLines {
        let Self { db, memory, limits, counters, .. } = self;
        accept(db, NOW, limits, counters, &mut memory.lines, rules, body.as_bytes())
    }

    /// What is kept of `body`, and what is said about the rest.
    fn take(&mut self, body: &str) -> (Vec<String>, Vec<String>) {
        let accepted = self.accept(RULES, body);
        assert_eq!(accepted.good, accepted.batch.len());
        assert_eq!(accepted.rejected, accepted.rejects.len());
        let kept = accepted.batch.iter().map(|(series, time, value)| {
            format!("{} {} {value}", self.db.index().key(series).unwrap(), time.seconds())
        });
        let told = accepted.rejects.iter().map(|reject| format!("{}: {}", reject.line, reject.reason));
        (kept.collect(), told.collect())
    }
}

fn take(body: &str) -> (Vec<String>, Vec<String>) {
    Receiver::new().take(body)
}

#[test]
fn a_field_is_a_metric_and_tags_are_tags() {
    let (kept, told) = take("cpu,host=a,cpu=0 usage=1.5,ticks=3i,value=t 60");
    assert_eq!(kept, ["cpu_usage{cpu=0,host=a} 60 1.5", "cpu_ticks{cpu=0,host=a} 60 3", "cpu{cpu=0,host=a} 60 1"]);
    assert_eq!(told, [""; 0]);
}

#[test]
fn a_line_without_a_time_is_of_now() {
    assert_eq!(take("m value=1").0, ["m{} 1700000000 1.0"]);
}

#[test]
fn good_lines_and_good_fields_are_kept_and_each_bad_one_is_named() {
    let body = "m,host=a value=1 1\nbad\nm,host=a state=\"ok\",value=2,big=18446744073709551615u 2\n\nm,host= value=3 3\n\
                m,host=a,host=b value=4 4\nm value=5 99999999999\nm value=6 9223372036854775\nm,host=a value=7 7";
    let (kept, told) = take(body);
    assert_eq!(kept, ["m{host=a} 1 1.0", "m{host=a} 2 2.0", "m{host=a} 7 7.0"]);
    assert_eq!(
        told,
        [
            "2: unable to parse 'bad': missing fields",
            "3: field 'state' is a string; only numbers and booleans are stored (the rest of the line is)",
            "3: field 'big' is an unsigned integer beyond 9223372036854775807, the largest that is stored (the rest of \
             the line is)",
            "5: unable to parse 'm,host= value=3 3': missing tag value",
            "6: unable to parse 'm,host=a,host=b value=4 4': duplicate tags: 'host' occurs twice",
            "7: timestamp 99999999999000 ms is 98299999999.0 s ahead of this machine's clock; at most 3600 s are \
             allowed: compare the clocks",
            "8: unable to parse 'm value=6 9223372036854775': bad timestamp: beyond what microseconds in 64 bits can \
             hold",
        ]
    );
}

#[test]
fn names_that_the_database_does_not_take_cost_their_sample_only() {
    let long = "x".repeat(600);
    let (kept, told) = take(&format!("m {long}=1,v=2 1\nm,h=a\tb v=3 1"));
    assert_eq!(kept, ["m_v{} 1 2.0"]);
    assert_eq!(told.len(), 2);
    assert!(told[0].starts_with("1: metric 'm_xxxx"), "{}", told[0]);
    assert!(told[1].contains("control character"), "{}", told[1]);
}

#[test]
fn a_bad_line_leaves_no_series_behind() {
    let mut receiver = Receiver::new();
    receiver.take("m a=1,b=x 1\nm c=1 99999999999\nm d=\"s\" 1\nm e=1 1 1");
    assert_eq!(receiver.db.index().len(), 0);
}

#[test]
fn a_long_line_is_shown_in_part() {
    let (_, told) = take(&"ü".repeat(500));
    assert_eq!(told, [format!("1: unable to parse '{}...': missing fields", "ü".repeat(128))]);
}

#[test]
fn a_batch_is_taken_up_to_its_limit_and_the_rest_is_told() {
    let mut receiver = Receiver::new();
    receiver.limits.batch_samples_max = 3;
    let (kept, told) = receiver.take("m a=1,b=2 1\nm a=3 2\nm a=4 3\nm a=5 4");
    assert_eq!(kept.len(), 3);
    assert_eq!(told, ["3: the request holds more than 3 samples; send the rest in another"]);
}

#[test]
fn tags_are_taken_up_to_their_limit() {
    let mut receiver = Receiver::new();
    receiver.limits.tags_max = 2;
    let (kept, told) = receiver.take("m,a=1,b=2 v=1 1\nm,a=1,b=2,c=3 v=1 1");
    assert_eq!(kept.len(), 1);
    assert_eq!(told, ["2: 3 tags; at most 2 are allowed"]);
}

#[test]
fn of_very_many_bad_lines_the_first_are_told_and_all_are_counted() {
    let mut receiver = Receiver::new();
    let accepted = receiver.accept(RULES, &"bad\n".repeat(LINES_TOLD_MAX + 5));
    assert_eq!((accepted.rejects.len(), accepted.rejected), (LINES_TOLD_MAX, LINES_TOLD_MAX + 5));
    receiver.accept(RULES, "m v=1,s=\"\"");
    assert_eq!((receiver.counters.accepted(), receiver.counters.rejected()), (1, LINES_TOLD_MAX as u64 + 6));
}

#[test]
fn what_is_not_kept_is_checked_all_the_same() {
    let mut receiver = Receiver::new();
    let accepted = receiver.accept(LineRules { keep: false, ..RULES }, "m v=1,w=2 1\nbad\nm,h=a\u{1} v=1 1");
    assert_eq!((accepted.good, accepted.rejected, accepted.batch.len()), (2, 2, 0));
    assert_eq!(receiver.db.index().len(), 0);
}

#[test]
fn the_same_lines_again_are_the_same_series_whatever_their_order() {
    let mut receiver = Receiver::new();
    let tick = "a,h=1 x=1,y=2 1\na,h=2 x=1,y=2 1\nb,h=1 y=1,x=2 1\na,h=2,g=1 x=1 1\n";
    let (first, _) = receiver.take(tick);
    assert_eq!(receiver.take(tick).0, first);
    let lines: Vec<&str> = tick.lines().rev().collect();
    let (again, _) = receiver.take(&lines.join("\n"));
    assert_eq!(again.len(), first.len());
    assert!(again.iter().all(|sample| first.contains(sample)));
    assert_eq!(receiver.take("a,g=1,h=2 x=1 1").0, ["a_x{g=1,h=2} 1 1.0"], "tags in another order");
    assert_eq!(receiver.db.index().len(), 7);
}

#[test]
fn an_accepted_batch_can_be_appended() {
    let mut receiver = Receiver::new();
    let accepted = receiver.accept(RULES, "m,a=1 value=7i 60");
    receiver.db.append(&accepted.batch, Durability::Buffered).unwrap();
    let points: Vec<_> = receiver.db.snapshot().points(vec![SeriesId(0)], TimeRange::ALL).map(Result::unwrap).collect();
    assert_eq!(points[0].times, [Timestamp::from_seconds(60)]);
    assert_eq!(points[0].values.get(0), Value::Int(7));
}

proptest! {
    /// With little memory everything is forgotten in the midst of a line, too.
    #[test]
    fn memory_changes_nothing_but_the_cost(
        lines in proptest::collection::vec((0..4_usize, 0..4_usize, proptest::collection::vec(0..40_usize, 1..8)), 1..60),
        bytes_max in prop_oneof![Just(0_usize), 100..4_000_usize, Just(1 << 20)],
    ) {
        let body: Vec<String> = lines
            .iter()
            .map(|(m, h, fields)| {
                let fields: Vec<String> = fields.iter().map(|field| format!("f{field}={field}")).collect();
                format!("m{m},h={h} {} 1", fields.join(","))
            })
            .collect();
        let mut receiver = Receiver::new();
        receiver.memory = DecoderMemory::new(bytes_max);
        for _ in 0..2 {
            let (kept, told) = receiver.take(&body.join("\n"));
            let expected: Vec<String> = lines
                .iter()
                .flat_map(|(m, h, fields)| fields.iter().map(move |field| format!("m{m}_f{field}{{h={h}}} 1 {field}.0")))
                .collect();
            prop_assert_eq!(&kept, &expected);
            prop_assert_eq!(told.len(), 0);
        }
    }
}

#[test]
fn lines_get_the_tags_of_their_sender_and_its_bytes_mean_its_own_series() {
    let mut receiver = Receiver::new();
    let of_rank = |rank| DefaultTags::of_process("n7".into(), rank);
    for (tags, expected) in [
        (of_rank(Some(3)), "m{a=b,host=n7,rank=3} 60 1.0"),
        (DefaultTags::default(), "m{a=b} 60 1.0"),
        (of_rank(None), "m{a=b,host=n7} 60 1.0"),
        (of_rank(Some(4)), "m{a=b,host=n7,rank=4} 60 1.0"),
        (of_rank(Some(3)), "m{a=b,host=n7,rank=3} 60 1.0"),
    ] {
        receiver.memory.lines.serve(&tags);
        for _ in 0..2 {
            assert_eq!(receiver.take("m,a=b value=1 60").0, [expected]);
        }
    }
    receiver.memory.lines.serve(&of_rank(Some(3)));
    assert_eq!(
        receiver.take("m,host=mine value=1 60\nm value=1 60").0,
        ["m{host=mine,rank=3} 60 1.0", "m{host=n7,rank=3} 60 1.0"]
    );
}
