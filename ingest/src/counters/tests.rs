use std::thread;

use telem_engine::{Clock, SeriesId};

use super::changes::{KeptPart, StoredChange};
use super::*;

struct House {
    table: CounterTable,
    main: ScopeId,
    node: ScopeId,
}

impl House {
    fn new() -> Self {
        let table = CounterTable::default();
        let (main, node) = (table.open_sum(), table.open_sum());
        Self { table, main, node }
    }

    fn lane(&self) -> ScopeId {
        self.table.open_lane(LaneTags::default(), GaugeSource::OWN, &[self.node, self.main])
    }

    fn counter(&self, scope: ScopeId, name: &str) -> Option<f64> {
        match self.table.find(scope, name)?.value {
            CounterValue::Counter(value) => Some(value),
            CounterValue::Gauge(_) => None,
        }
    }

    fn gauge(&self, scope: ScopeId, name: &str) -> Option<GaugeValue> {
        match self.table.find(scope, name)?.value {
            CounterValue::Gauge(gauge) => Some(gauge),
            CounterValue::Counter(_) => None,
        }
    }
}

fn changes(house: &House, of: Option<ScopeId>) -> Vec<StoredChange> {
    house.table.take_changes(of, usize::MAX, &telem_engine::SystemClock::new()).1
}

fn declaration(name: &str) -> String {
    format!("{{\"Desc\":{{\"name\":\"{name}\",\"doc\":\"d\",\"ctype\":{{\"Counter\":{{\"ts\":0,\"value\":0.0}}}}}}}}\0")
}

fn increment(name: &str, value: f64) -> String {
    format!("{{\"Value\":{{\"name\":\"{name}\",\"value\":{{\"Counter\":{{\"ts\":1,\"value\":{value:?}}}}}}}}}\0")
}

fn job(id: &str) -> String {
    format!("{{\"JobDesc\":{{\"jobid\":\"{id}\"}}}}\0")
}

#[test]
fn what_is_no_number_is_added_to_no_counter_and_a_gauge_may_be_it() {
    let house = House::new();
    let (one, other) = (house.lane(), house.lane());
    for lane in [one, other] {
        house.table.declare(lane, "hits", "", CounterKind::Counter, 0.0).unwrap();
        house.table.declare(lane, "temp", "", CounterKind::Gauge, 1.0).unwrap();
        house.table.update(lane, "hits", CounterKind::Counter, 2.0).unwrap();
    }
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = house.table.update(one, "hits", CounterKind::Counter, value).unwrap_err();
        assert_eq!(CounterRefusal::REASONS[refused.reason()], "not_finite", "{refused}");
    }
    let mut feed = Feed::new(one);
    let bytes = increment("hits", f64::NAN).replace("NaN", "null") + &increment("hits", 1.0);
    let events = feed.take(bytes.as_bytes(), &house.table);
    assert!(matches!(&events[..], [FeedEvent::Refused(CounterRefusal::NotFinite { .. })]), "{events:?}");
    let declared = r#"{"Desc":{"name":"new","doc":"","ctype":{"Counter":{"ts":0,"value":null}}}}"#;
    assert_eq!(feed.take(format!("{declared}\0").as_bytes(), &house.table).len(), 1);
    assert_eq!(
        [one, other, house.node, house.main].map(|scope| house.counter(scope, "hits")),
        [3.0, 2.0, 5.0, 5.0].map(Some)
    );
    assert_eq!(house.counter(one, "new"), Some(0.0));
    house.table.update(one, "temp", CounterKind::Gauge, f64::NAN).unwrap();
    assert!(house.gauge(one, "temp").unwrap().average().is_nan());
}

#[test]
fn amounts_that_would_add_up_to_infinity_add_nothing_and_what_comes_later_counts() {
    let house = House::new();
    let (one, other) = (house.lane(), house.lane());
    for lane in [one, other] {
        house.table.declare(lane, "hits", "", CounterKind::Counter, 0.0).unwrap();
        house.table.update(lane, "hits", CounterKind::Counter, 1e308).unwrap();
    }
    house.table.update(one, "hits", CounterKind::Counter, 1e308).unwrap();
    house.table.update(one, "hits", CounterKind::Counter, -1e308).unwrap();
    house.table.update(other, "hits", CounterKind::Counter, 2.0).unwrap();
    for scope in [one, other, house.node, house.main] {
        assert!(house.counter(scope, "hits").unwrap().is_finite());
    }
    assert_eq!(house.counter(one, "hits"), Some(0.0));
}

#[test]
fn a_value_is_in_its_lane_and_in_every_sum_above_it() {
    let house = House::new();
    let (one, other) = (house.lane(), house.lane());
    for (lane, value) in [(one, 2.0), (other, 3.0), (one, -0.5)] {
        house.table.declare(lane, "a", "doc", CounterKind::Counter, 0.0).unwrap();
        house.table.update(lane, "a", CounterKind::Counter, value).unwrap();
    }
    let found = [one, other, house.node, house.main].map(|scope| house.counter(scope, "a").unwrap());
    assert_eq!(found, [1.5, 3.0, 4.5, 4.5]);
    house.table.close(one);
    assert_eq!((house.counter(one, "a"), house.counter(house.main, "a")), (None, Some(4.5)));
    let again = house.lane();
    assert_eq!(house.counter(again, "a"), None, "a new lane has nothing of one that had its place");
}

#[test]
fn sixteen_connections_lose_no_increment() {
    let house = House::new();
    let lane = house.lane();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut feed = Feed::new(lane);
                let stream = declaration("a") + &increment("a", 1.0).repeat(2_000);
                for part in stream.as_bytes().chunks(1_000) {
                    assert_eq!(feed.take(part, &house.table), []);
                }
                assert_eq!(feed.taken(), 2_001);
            });
        }
    });
    for scope in [lane, house.node, house.main] {
        assert_eq!(house.counter(scope, "a"), Some(32_000.0));
    }
}

#[test]
fn what_comes_behind_a_job_waits_for_its_lane_and_what_came_before_belongs_to_none() {
    let house = House::new();
    let (jobless, first, second) = (house.lane(), house.lane(), house.lane());
    let mut feed = Feed::new(jobless);
    let values = |value| declaration("a") + &increment("a", value);
    let stream = values(1.0) + &job("x") + &values(10.0) + &job("y") + &values(100.0) + "{\"Val";
    let events = feed.take(stream.as_bytes(), &house.table);
    assert!(matches!(&*events, [FeedEvent::Job(job)] if job.jobid == "x"), "{events:?}");
    let events = feed.switch(first, &house.table);
    assert!(matches!(&*events, [FeedEvent::Job(job)] if job.jobid == "y"), "{events:?}");
    assert_eq!(feed.switch(second, &house.table), []);
    let rest = increment("a", 1_000.0);
    assert_eq!(feed.take(&rest.as_bytes()["{\"Val".len()..], &house.table), []);
    let found = [jobless, first, second, house.main].map(|scope| house.counter(scope, "a").unwrap());
    assert_eq!(found, [1.0, 10.0, 1_100.0, 1_111.0]);
}

#[test]
fn a_message_that_cannot_be_taken_says_why_and_the_next_one_is_taken() {
    let house = House::new();
    let lane = house.lane();
    let mut feed = Feed::new(lane);
    house.table.declare(lane, "g", "", CounterKind::Gauge, f64::NAN).unwrap();
    let long = "x".repeat(2_000);
    let stream = "\0{}\0".to_owned()
        + &increment("never", 1.0)
        + &increment("g", 1.0)
        + &declaration(&long)
        + &"x".repeat(70_000)
        + "\0"
        + &declaration("a")
        + &increment("a", 1.0);
    let reasons: Vec<&str> = feed
        .take(stream.as_bytes(), &house.table)
        .into_iter()
        .map(|event| match event {
            FeedEvent::Refused(refusal) => CounterRefusal::REASONS[refusal.reason()],
            FeedEvent::Job(job) => panic!("{job:?}"),
        })
        .collect();
    assert_eq!(reasons, ["malformed", "malformed", "undeclared", "other_kind", "long_name", "long_message"]);
    assert_eq!(house.counter(house.main, "a"), Some(1.0));
}

#[test]
fn values_find_their_counters_in_any_order_and_however_their_names_are_escaped() {
    let house = House::new();
    let (lane, other) = (house.lane(), house.lane());
    let names = [r#"a{op=\"read\"}"#, r#"a{op=\"write\"}"#, r#"a{path=\"\\\\\/x\"}"#, r"b\u00e9", "c"];
    let mut feed = Feed::new(lane);
    // The sums have some of them in other rows.
    let stream = names.iter().rev().skip(1).map(|name| declaration(name)).collect::<String>();
    assert_eq!(Feed::new(other).take(stream.as_bytes(), &house.table), []);
    for name in names {
        assert_eq!(feed.take(declaration(name).as_bytes(), &house.table), []);
    }
    for (round, order) in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 4, 1]].into_iter().enumerate() {
        let stream = order.map(|at| increment(names[at], f64::from(1 << (4 * round)))).concat();
        assert_eq!(feed.take(stream.as_bytes(), &house.table), []);
    }
    let expected = [0x111, 0x111, 0x111, 0x011, 0x211].map(f64::from);
    for scope in [lane, house.node, house.main] {
        let found = [r#"a{op="read"}"#, r#"a{op="write"}"#, r#"a{path="\\/x"}"#, "bé", "c"];
        assert_eq!(found.map(|name| house.counter(scope, name).unwrap()), expected);
    }
    assert_eq!(house.counter(other, "bé"), Some(0.0));
}

#[test]
fn a_documentation_is_as_each_scope_heard_it_and_leaves_with_what_it_was_said_of() {
    let house = House::new();
    let (first, second, silent) = (house.lane(), house.lane(), house.lane());
    for (lane, doc) in [(silent, ""), (first, "one"), (second, "two")] {
        house.table.declare(lane, "a", doc, CounterKind::Counter, 0.0).unwrap();
    }
    let doc = |scope| house.table.find(scope, "a").unwrap().doc.to_string();
    assert_eq!([silent, first, second, house.main].map(doc), ["", "one", "two", ""]);
    assert_eq!(house.table.first_doc("a").as_deref(), Some("one"));
    // Many are said of one counter in turn, and no more than some of them are held.
    house.table.declare(first, "b", "of b", CounterKind::Counter, 0.0).unwrap();
    for number in 0..10_000 {
        house.table.replace(first, house.main, "b", &format!("said {number}"), 1.0).unwrap();
    }
    assert!(house.table.lock().names.docs() < 3_000);
    assert_eq!(house.table.find(house.main, "b").map(|reading| reading.doc.to_string()), Some("said 9999".to_owned()));
    assert_eq!([silent, first, second, house.main].map(doc), ["", "one", "two", ""]);
    assert_eq!(house.table.first_doc("b").as_deref(), Some("of b"));
}

#[test]
fn the_last_value_of_a_source_counts_and_sources_are_put_together() {
    let house = House::new();
    let own = house.lane();
    let child = house.table.open_lane(LaneTags::default(), GaugeSource(1), &[house.main]);
    for (lane, value) in [(own, 5.0), (own, 10.0), (child, 30.0)] {
        house.table.declare(lane, "g", "", CounterKind::Gauge, f64::NAN).unwrap();
        house.table.update(lane, "g", CounterKind::Gauge, value).unwrap();
    }
    assert_eq!(house.gauge(house.node, "g"), Some(GaugeValue::of(10.0)));
    let whole = GaugeValue { min: 10.0, max: 30.0, hits: 2.0, total: 40.0 };
    assert_eq!((house.gauge(house.main, "g"), whole.average()), (Some(whole), 20.0));
}

#[test]
fn a_sum_that_is_put_above_a_lane_has_what_that_held_and_what_it_gets() {
    let house = House::new();
    let lane = house.table.open_lane(LaneTags::default(), GaugeSource::OWN, &[house.main]);
    let mut feed = Feed::new(lane);
    let taken = |feed: &mut Feed, text: String| assert_eq!(feed.take(text.as_bytes(), &house.table), []);
    taken(&mut feed, declaration("a") + &increment("a", 1.0) + &increment("a", 1.0));
    let sum = house.table.open_sum();
    house.table.put_above(lane, sum);
    taken(&mut feed, increment("a", 1.0) + &increment("a", 1.0) + &declaration("b") + &increment("b", 1.0));
    for scope in [lane, sum, house.main] {
        assert_eq!((house.counter(scope, "a"), house.counter(scope, "b")), (Some(4.0), Some(1.0)));
    }
}

#[test]
fn a_counter_of_a_sum_can_be_given_a_value_whatever_others_counted() {
    let house = House::new();
    let (lane, http) = (house.lane(), house.table.open_lane(LaneTags::default(), GaugeSource::OWN, &[house.main]));
    house.table.declare(lane, "a", "doc", CounterKind::Counter, 0.0).unwrap();
    house.table.update(lane, "a", CounterKind::Counter, 5.0).unwrap();
    house.table.replace(http, house.main, "a", "", 2.0).unwrap();
    let reading = house.table.find(house.main, "a").unwrap();
    assert_eq!((reading.value, &*reading.doc), (CounterValue::Counter(2.0), ""));
    assert_eq!((house.counter(lane, "a"), house.counter(http, "a")), (Some(5.0), Some(-3.0)));
    house.table.update(lane, "a", CounterKind::Counter, 1.0).unwrap();
    assert_eq!(house.counter(house.main, "a"), Some(3.0));
    let refused = house.table.replace(http, house.main, "b", "", 2.0).unwrap_err();
    assert!(matches!(refused, CounterRefusal::Undeclared { .. }));
}

#[test]
fn the_name_of_a_counter_comes_back_from_its_series() {
    for prefix in ["", "copy."] {
        let tags = LaneTags {
            default: DefaultTags::of_process("n7".into(), None).in_slot(Some(3)),
            more: vec![("proxy.lane".into(), "http".into())],
            prefix,
        };
        for name in ["a", r#"a{op="read",rank="0"}"#, "a{b=1", r#"a{host="mine"}"#] {
            let key = naming::series_key(name, &tags).unwrap();
            assert_eq!((key.tags().get("proxy.lane"), key.tags().get("job.slot")), (Some("http"), Some("3")));
            assert!(key.metric().starts_with(&format!("{prefix}a")), "{}", key.metric());
            assert_eq!(naming::counter_name(&key, &tags), name);
        }
        naming::series_key("", &tags).unwrap_err();
        naming::series_key("a\nb", &tags).unwrap_err();
    }
}

#[test]
fn readings_are_copied_in_parts_and_only_lanes_are_stored() {
    let house = House::new();
    let lane = house.lane();
    for number in 0..READINGS_AT_ONCE + 10 {
        let name = format!("c{number}");
        house.table.declare(lane, &name, "", CounterKind::Counter, 0.0).unwrap();
        house.table.update(lane, &name, CounterKind::Counter, 1.0).unwrap();
        house.table.update(lane, &name, CounterKind::Counter, 1.0).unwrap();
    }
    assert_eq!(house.table.readings(house.main, 0).len(), READINGS_AT_ONCE);
    assert_eq!(house.table.all(house.main).len(), READINGS_AT_ONCE + 10);
    let taken = changes(&house, None);
    assert_eq!(taken.len(), READINGS_AT_ONCE + 10, "once each, however often it changed");
    assert!(changes(&house, None).is_empty());
    house.table.put_back(&taken[..3]);
    assert_eq!(changes(&house, None).len(), 3);
}

#[test]
fn what_a_lane_is_told_moves_its_sums_by_as_much_and_is_stored_where_it_changed() {
    let house = House::new();
    let (own, told) = (house.lane(), house.table.open_lane(LaneTags::default(), GaugeSource(1), &[house.main]));
    house.table.declare(own, "a", "doc", CounterKind::Counter, 4.0).unwrap();
    let tell = |readings: &[(&str, CounterValue)]| {
        let readings: Vec<CounterReading> = readings
            .iter()
            .map(|(name, value)| CounterReading { name: (*name).into(), doc: "d".into(), value: *value })
            .collect();
        house.table.tell(told, &readings)
    };
    let (counter, gauge) = (CounterValue::Counter, |value| CounterValue::Gauge(GaugeValue::of(value)));
    let changed = || changes(&house, Some(told)).len();
    assert!(tell(&[("a", counter(0.1)), ("alone", counter(0.3)), ("g", gauge(7.0))]).is_empty());
    assert_eq!(changed(), 3);
    tell(&[("a", counter(0.1)), ("alone", counter(0.7)), ("g", gauge(7.0))]);
    assert_eq!(changed(), 1, "what did not change is no sample");
    tell(&[("a", counter(6.0))]);
    assert_eq!(house.counter(house.main, "alone"), Some(0.7), "exactly what its only part is");
    assert_eq!((house.counter(house.main, "a"), house.counter(house.node, "a")), (Some(10.0), Some(4.0)));
    assert_eq!(tell(&[("a", gauge(1.0))]).len(), 1, "it is a counter");
    house.table.withdraw(told, Withdrawal::Gauges);
    assert_eq!(house.gauge(house.main, "g").unwrap().hits, 0.0);
    assert_eq!(house.counter(house.main, "a"), Some(10.0));
    house.table.withdraw(told, Withdrawal::All);
    assert_eq!(house.counter(house.main, "a"), Some(4.0));
}

#[test]
fn lanes_that_meet_names_in_other_orders_have_the_same_sums() {
    let house = House::new();
    let orders = [["a", "b", "c", "d"], ["a", "b", "d", "c"], ["d", "c", "b", "a"], ["b", "a", "c", "d"]];
    for (name, value) in ["a", "b", "c", "d"].into_iter().zip([1.0, 2.0, 3.0, 4.0]) {
        for (at, order) in orders.iter().enumerate() {
            let lane = if name == "a" { house.lane() } else { ScopeId(at as u32 + 2) };
            // Each lane has got some of its names when the next one comes.
            let known = order[at % 4];
            for name in [known, name] {
                house.table.declare(lane, name, "", CounterKind::Counter, 0.0).unwrap();
            }
            house.table.update(lane, name, CounterKind::Counter, value).unwrap();
            assert_eq!(house.counter(lane, name), Some(value));
        }
    }
    for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)] {
        for sum in [house.main, house.node] {
            assert_eq!(house.counter(sum, name), Some(4.0 * value), "{name}");
        }
    }
}

#[test]
fn a_lane_to_which_nothing_comes_for_a_while_takes_forty_bytes_a_counter() {
    let house = House::new();
    let names: Vec<String> = (0..1_500).map(|number| format!("counter_{number}")).collect();
    let lanes: Vec<ScopeId> = (0..3).map(|_| house.lane()).collect();
    for (lane, name) in lanes.iter().flat_map(|lane| names.iter().map(move |name| (*lane, name))) {
        house.table.declare(lane, name, "", CounterKind::Counter, 1.0).unwrap();
    }
    changes(&house, None);
    for lane in lanes {
        house.table.shrink(lane);
        let bytes = house.table.lock().scope(lane).unwrap().bytes();
        assert!(bytes <= 40 * names.len(), "{} bytes a counter", bytes / names.len());
        house.table.update(lane, &names[7], CounterKind::Counter, 1.0).unwrap();
        house.table.declare(lane, "late", "", CounterKind::Counter, 1.0).unwrap();
    }
    assert_eq!((house.counter(house.main, &names[7]), house.counter(house.node, "late")), (Some(6.0), Some(3.0)));
}

#[test]
fn a_lane_is_stored_once_no_change_of_it_waits_and_what_it_takes_is_told() {
    let house = House::new();
    let lane = house.lane();
    let empty = house.table.bytes();
    assert!(house.table.is_stored(lane), "nothing came");
    house.table.declare(lane, "counter", "a doc", CounterKind::Counter, 1.0).unwrap();
    assert!(!house.table.is_stored(lane));
    changes(&house, None);
    assert!(house.table.is_stored(lane));
    house.table.update(lane, "counter", CounterKind::Counter, 1.0).unwrap();
    assert!(!house.table.is_stored(lane));
    assert!(house.table.bytes() > empty);
    house.table.close(lane);
    assert!(house.table.is_stored(lane), "it is closed");
}

#[test]
fn a_part_is_in_the_sum_above_it_and_is_not_stored() {
    let house = House::new();
    let part = house.table.open_part(GaugeSource(1), &[house.main]);
    let reading = CounterReading { name: "a".into(), doc: "d".into(), value: CounterValue::Counter(2.0) };
    assert!(house.table.tell(part, &[reading]).is_empty());
    assert_eq!(house.counter(house.main, "a"), Some(2.0));
    assert!(changes(&house, None).is_empty());
}

#[test]
fn names_that_no_lane_has_leave_and_are_found_and_go_on_from_where_they_were() {
    let house = House::new();
    let http = house.table.open_lane(LaneTags::default(), GaugeSource::OWN, &[house.main]);
    let (job, other) = (house.lane(), house.lane());
    for (lane, name) in [(job, "a"), (job, "b"), (other, "b"), (other, "kept"), (job, "set")] {
        house.table.declare(lane, name, "doc", CounterKind::Counter, 2.0).unwrap();
    }
    house.table.declare(job, "g", "", CounterKind::Gauge, 7.0).unwrap();
    let mut feed = Feed::new(other);
    let stream = increment("kept", 1.0).repeat(2);
    assert_eq!(feed.take(stream.as_bytes(), &house.table), [], "it knows the rows of the name now");
    let names = || house.table.all(house.main).iter().map(|reading| reading.name.to_string()).collect::<Vec<_>>();
    assert_eq!((house.table.let_idle_names_go(2), house.table.let_idle_names_go(2)), (0, 0), "lanes have them all");
    house.table.close(job);
    assert_eq!((house.table.let_idle_names_go(2), house.table.let_idle_names_go(2)), (0, 3));
    assert_eq!(names(), ["b", "kept"]);
    assert_eq!((house.table.len(house.node), house.table.len(house.main)), (2, 2));
    // Who asks for one finds it.
    assert_eq!((house.counter(house.main, "a"), house.counter(house.node, "a")), (Some(2.0), Some(2.0)));
    assert_eq!(house.gauge(house.main, "g"), Some(GaugeValue::of(7.0)));
    // Rows have moved, and connections know.
    assert_eq!(feed.take(stream.as_bytes(), &house.table), []);
    assert_eq!(house.counter(house.main, "kept"), Some(6.0));
    // Another name takes the place of one that left.
    let next = house.lane();
    house.table.declare(next, "new", "doc", CounterKind::Counter, 1.0).unwrap();
    assert_eq!((house.counter(house.main, "new"), house.counter(house.main, "a")), (Some(1.0), Some(2.0)));
    house.table.declare(next, "a", "again", CounterKind::Counter, 3.0).unwrap();
    assert_eq!((house.counter(next, "a"), house.counter(house.main, "a")), (Some(3.0), Some(5.0)));
    assert_eq!(house.counter(house.node, "a"), Some(5.0));
    house.table.replace(http, house.main, "set", "", 9.0).unwrap();
    assert_eq!((house.counter(house.main, "set"), house.counter(http, "set")), (Some(9.0), Some(7.0)));
    // What came back may leave again.
    house.table.close(next);
    assert_eq!((house.table.let_idle_names_go(1), house.counter(house.main, "a")), (2, Some(5.0)));
}

#[test]
fn what_is_kept_is_what_changed_since_and_never_what_is_stored() {
    let house = House::new();
    let lane = house.lane();
    let clock = telem_engine::SystemClock::new();
    let add = |name: &str| {
        house.table.declare(lane, name, "", CounterKind::Counter, 0.0).unwrap();
        house.table.update(lane, name, CounterKind::Counter, 1.0).unwrap();
    };
    add("a");
    add("b");
    let first = house.table.take_unkept(KeptPart::Changed, &clock);
    assert_eq!((first.values.len(), first.new.len()), (0, 2), "what was never stored becomes samples");
    let stored: Vec<_> = first.new.iter().map(|new| (new, cell::CellSeries::Stored(SeriesId(new.row)))).collect();
    house.table.note_series(&stored);
    assert!(changes(&house, None).is_empty());
    add("a");
    add("a");
    let kept = house.table.take_unkept(KeptPart::Changed, &clock);
    assert_eq!((kept.values.as_slice(), kept.new.len()), ([(SeriesId(0), 3.0)].as_slice(), 0));
    assert!(house.table.take_unkept(KeptPart::Changed, &clock).values.is_empty());
    add("b");
    assert_eq!(house.table.take_unkept(KeptPart::Whole, &clock).values, [(SeriesId(0), 3.0), (SeriesId(1), 2.0)]);
    let taken = changes(&house, None);
    assert_eq!(taken.len(), 2, "they are to be stored all the same");
    assert!(house.table.take_unkept(KeptPart::Whole, &clock).values.is_empty());
    add("a");
    let (stored_at, _) = house.table.take_changes(None, 10, &clock);
    assert!(house.table.take_unkept(KeptPart::Changed, &clock).values.is_empty(), "it is stored");
    house.table.put_back(&taken[..1]);
    let again = house.table.take_unkept(KeptPart::Changed, &clock);
    assert_eq!(again.values.len(), 1);
    assert!(again.time > stored_at, "samples that were taken before are earlier");
}

#[test]
fn what_is_found_of_a_lane_that_closed_is_not_that_of_the_lane_that_has_its_number() {
    let house = House::new();
    let old = house.lane();
    let clock = telem_engine::SystemClock::new();
    house.table.declare(old, "a", "", CounterKind::Counter, 1.0).unwrap();
    let taken = house.table.take_unkept(KeptPart::Changed, &clock).new;
    house.table.close(old);
    let new = house.lane();
    assert_eq!(new, old, "a number is given again");
    house.table.declare(new, "b", "", CounterKind::Counter, 0.0).unwrap();
    house.table.note_series(&[(&taken[0], cell::CellSeries::Stored(SeriesId(7)))]);
    assert_eq!(house.table.series_of(new), []);
    house.table.put_back(&taken);
    assert!(changes(&house, None).is_empty(), "it declared b, and never changed it");
}

/// A clock that somebody sets back.
#[derive(Debug)]
struct SetClock(std::sync::atomic::AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

#[test]
fn what_is_taken_later_is_the_later_one_also_where_the_clock_was_set_back() {
    let house = House::new();
    let lane = house.lane();
    let clock = SetClock(5_000_000.into());
    let mut times = Vec::new();
    for back in 0..4 {
        house.table.declare(lane, "a", "", CounterKind::Counter, 0.0).unwrap();
        house.table.update(lane, "a", CounterKind::Counter, 1.0).unwrap();
        if back == 1 {
            let kept = house.table.take_unkept(KeptPart::Changed, &clock);
            house.table.note_series(&[(&kept.new[0], cell::CellSeries::Stored(SeriesId(1)))]);
            times.push(kept.time);
        } else {
            times.push(house.table.take_changes(None, 10, &clock).0);
        }
        clock.0.fetch_sub(1_000_000, std::sync::atomic::Ordering::Relaxed);
    }
    assert_eq!(
        times.iter().map(|time| time.micros()).collect::<Vec<_>>(),
        [5_000_000, 5_000_001, 5_000_001, 5_000_001]
    );
}
