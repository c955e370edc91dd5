use proptest::prelude::*;

use super::*;
use crate::accept;
use crate::accept::receiver::Receiver;
use crate::decode::opentsdb::telnet::Fraction;
use crate::default_tags::DefaultTags;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const RULES: TelnetRules = TelnetRules { tags_max: 4, fraction: Fraction::Counts };

/// Samples with their series' names, and what is said of other lines.
#[derive(Debug, Default, PartialEq)]
struct Told {
    samples: Vec<(String, Timestamp, Value)>,
    faults: Vec<(usize, String)>,
}

impl Receiver {
    /// With what is remembered of lines before.
    fn by_bytes(&mut self, lines: &[String]) -> Told {
        let Self { db, memory, limits, .. } = self;
        let lines = lines.iter().map(String::as_str).enumerate();
        let counters = AcceptCounters::default();
        let puts = accept(db, NOW, limits, &counters, &mut memory.points, &RULES, lines);
        assert_eq!(counters.accepted(), puts.accepted.batch.len() as u64);
        self.told(&puts.accepted, &puts.refused)
    }

    /// Every line taken apart.
    fn thoroughly(&self, lines: &[String]) -> Told {
        let mut refused = Vec::new();
        let samples = lines.iter().enumerate().filter_map(|(at, line)| match telnet::put(line, &RULES) {
            Ok(sample) => Some((at, sample)),
            Err(error) => {
                refused.push((at, error));
                None
            }
        });
        let tags = self.memory.points.tags();
        let counters = AcceptCounters::default();
        let accepted = accept::accept(&self.db, NOW, &self.limits, &counters, tags, samples);
        self.told(&accepted, &refused)
    }

    fn told(&self, accepted: &Accepted, refused: &[(usize, PutError)]) -> Told {
        let name = |series| self.db.index().key(series).unwrap().to_string();
        let rejects = accepted.rejects.iter().map(|reject| (reject.index, reject.reason.to_string()));
        let mut faults: Vec<_> = refused.iter().map(|(at, error)| (*at, error.to_string())).chain(rejects).collect();
        faults.sort();
        let samples = accepted.batch.iter().map(|(series, time, value)| (name(series), time, value)).collect();
        Told { samples, faults }
    }

    fn known(&self) -> usize {
        self.memory.points.len()
    }
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn lines_of_known_series_mean_what_they_mean_when_taken_apart() {
    let mut receiver = Receiver::new();
    let sent = lines(&[
        "put sys.cpu 1356998400 42 host=a cpu=0",
        "put sys.cpu 1356998400 42 host=b cpu=0",
        "put sys.mem 1356998400123 -1.50 host=a",
        "put sys.mem 1356998400.5 1e3 host=a",
        "put sys.mem 0001356998401 -0 host=a",
        "put sys.mem 1356998402 9223372036854775807 host=a",
        "put sys.mem 1356998402 9223372036854775808 host=a",
        "put sys.mem 1356998402 0.1234567890123456789012 host=a",
        "put sys.mem 1356998402 5. host=a ",
        "put sys.mem 1356998402 .5 host=a  ",
    ]);
    let expected = receiver.thoroughly(&sent);
    assert_eq!((expected.samples.len(), expected.faults.len()), (9, 1));
    for round in 0..3 {
        assert_eq!(receiver.by_bytes(&sent), expected, "round {round}");
        // The blanks at the ends make other keys.
        assert_eq!(receiver.known(), 5);
    }
}

#[test]
fn faults_are_told_as_before_also_of_known_series() {
    let mut receiver = Receiver::within(Limits { batch_samples_max: 3, ..Limits::default() });
    let good = lines(&["put m 1356998400 1 host=a"]);
    assert_eq!(receiver.by_bytes(&good).faults, []);
    let sent = lines(&[
        "put m 1356998400 1 host=a",
        "put m 1800000000 1 host=a",
        "put m 1356998400 x host=a",
        "put m 1356998400 1",
        "put m 1356998400",
        "put m 99999999999999 1 host=a",
        "put m 0 1 host=a",
        "put m -1 1 host=a",
        "put m 1356998400 1 host=a host=b",
        "put m 1356998400 1 a=1 b=2 c=3 d=4 e=5",
        "put m 1356998400 2 host=a",
        "put m 1356998400 3 host=a",
        "put m 1356998400 4 host=a",
        "put  1356998400 4 host=a",
        "put",
        "",
    ]);
    let expected = receiver.thoroughly(&sent);
    assert_eq!((expected.samples.len(), expected.faults.len()), (3, 13));
    assert_eq!(receiver.by_bytes(&sent), expected);
}

#[test]
fn the_bytes_of_a_point_are_not_taken_for_those_of_a_line() {
    let mut receiver = Receiver::new();
    let key = receiver
        .memory
        .points
        .insert(br#""m"{"a": "b"}"#, PointSeries { metric_len: 3, tags: 1, series: telem_engine::SeriesId(0) });
    receiver.memory.points.follow(key.unwrap());
    let told = receiver.by_bytes(&lines(&[r#"put "m"{"a": 1356998400 1 "b"}"#]));
    assert_eq!((told.samples.len(), told.faults.len()), (0, 1));
}

#[test]
fn what_a_sender_gets_is_of_that_sender() {
    let mut receiver = Receiver::new();
    let sent = lines(&["put m 1356998400 1 cpu=0"]);
    for host in ["a", "b", "a"] {
        receiver.memory.serve(&DefaultTags::of_process(host.into(), None));
        for _ in 0..2 {
            assert_eq!(receiver.by_bytes(&sent).samples[0].0, format!("m{{cpu=0,host={host}}}"));
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop_oneof![Just("m"), Just("sys.cpu"), Just("a=b"), Just("host=a"), Just("")].prop_map(str::to_owned),
        3 => (1_356_998_400_i64..1_356_998_403).prop_map(|time| time.to_string()),
        2 => any::<i64>().prop_map(|int| int.to_string()),
        2 => any::<f64>().prop_map(|float| float.to_string()),
        1 => "[0-9.e=+-]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_mean_the_same_by_their_bytes(
        words in prop::collection::vec(prop::collection::vec(word(), 0..3), 1..20),
    ) {
        let mut receiver = Receiver::new();
        let line = |words: &Vec<String>| match words.len() {
            0 => "put m 1356998400 1.5 host=a".to_owned(),
            1 => format!("put m 1356998400 {} host=a", words[0]),
            _ => format!("put m {} {} a=b", words[0], words[1]),
        };
        let sent: Vec<String> = words.iter().map(line).collect();
        let expected = receiver.thoroughly(&sent);
        for _ in 0..2 {
            prop_assert_eq!(receiver.by_bytes(&sent), Told { ..receiver.thoroughly(&sent) });
        }
        prop_assert_eq!(receiver.by_bytes(&sent), expected);
    }
}
