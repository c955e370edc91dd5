//! Which node gets which name, which is refused and why, and which counts as silent, with a simulated clock.

use std::path::PathBuf;

use super::*;

fn at(seconds: f64) -> Moment {
    let steady = Duration::from_secs_f64(seconds);
    Moment { wall: Timestamp::from_micros(1_767_225_600_000_000 + steady.as_micros() as i64), steady }
}

fn registry() -> Registry {
    Registry::with_limit(
        HeadName { job: "7".into(), node: "login1".into(), version: "0.1.4".into(), incarnation: "h".into() },
        4,
    )
}

/// A node called `node`, of the machine `host`, in its life `incarnation`.
fn from(node: &str, host: &str, incarnation: &str) -> JoinRequest {
    JoinRequest {
        dragon_moved: None,
        job: "7".to_owned(),
        version: "0.1.0".to_owned(),
        node: node.to_owned(),
        is_fixed: false,
        home: format!("{host}:/tmp"),
        incarnation: incarnation.to_owned(),
        url: "http://10.0.0.2:4242".to_owned(),
        pid: 17,
        host: host.to_owned(),
        data: PathBuf::from("/tmp/7"),
        now_us: 0,
    }
}

fn report(node: &str, incarnation: &str, seq: u64) -> NodeReport {
    NodeReport {
        node: node.to_owned(),
        incarnation: incarnation.to_owned(),
        seq,
        known: None,
        figures: Figures { samples: 10 + seq, ..Figures::default() },
        has_counters: false,
        now_us: 0,
        round_trip_us: None,
        last_error: None,
    }
}

fn leave(node: &str, incarnation: &str) -> Leave {
    Leave { node: node.to_owned(), incarnation: incarnation.to_owned(), reason: "SIGTERM".to_owned(), figures: None }
}

/// Name and state of each node.
fn states(registry: &Registry, now: f64) -> String {
    let listed = registry.list(at(now));
    listed.iter().map(|one| format!("{} {}", one.node, one.state)).collect::<Vec<_>>().join(", ")
}

#[test]
fn names_are_lower_case_and_unique() {
    let mut registry = registry();
    for (node, host, incarnation, given) in [
        ("N01", "n01.a", "1", "n01"),
        ("n01", "n01.b", "2", "n01-2"),
        ("LOGIN1", "login1.b", "3", "login1-2"),
        // The same processes again, one of which the head had called otherwise.
        ("n01", "n01.a", "1", "n01"),
        ("n01-2", "n01.b", "2", "n01-2"),
        ("n01", "n01.b", "2", "n01-2"),
    ] {
        let joined = registry.join(&from(node, host, incarnation), at(0.0)).unwrap();
        assert_eq!(joined.node, given, "{node} of {host}");
    }
    assert_eq!(states(&registry, 0.0), "login1-2 up, n01 up, n01-2 up");
}

#[test]
fn a_node_that_was_started_again_gets_its_name_back_and_its_past_life_is_unknown() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "first"), at(0.0)).unwrap();
    registry.report(report("n1", "first", 5), at(1.0)).unwrap();
    assert_eq!(registry.join(&from("n1", "n1", "second"), at(2.0)).unwrap().node, "n1");
    assert_eq!(registry.report(report("n1", "first", 6), at(2.1)), Err(NodeRefusal::Unknown));
    assert_eq!(registry.leave(&leave("n1", "first"), at(2.2)), Err(NodeRefusal::Unknown));
    registry.report(report("n1", "second", 0), at(3.0)).unwrap();
    assert_eq!(registry.list(at(3.0))[0].figures.samples, 10);
    assert_eq!(registry.list(at(3.0)).len(), 1);
}

#[test]
fn a_name_that_a_database_has_is_given_or_refused_but_never_changed() {
    let mut registry = registry();
    let fixed = |node, host, incarnation| JoinRequest { is_fixed: true, ..from(node, host, incarnation) };
    assert_eq!(registry.join(&fixed("n1", "a", "1"), at(0.0)).unwrap().node, "n1");
    let refusal = registry.join(&fixed("n1", "b", "2"), at(0.0)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "there is another node 'n1' on a, with data in /tmp/7; start this one with another --node NAME"
    );
    assert!(matches!(registry.join(&fixed("login1", "b", "2"), at(0.0)), Err(NodeRefusal::Taken { .. })));
    // Two databases of one machine, with names of their own.
    assert_eq!(registry.join(&fixed("n2", "a", "3"), at(0.0)).unwrap().node, "n2");
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let mut registry = registry();
    let good = from("n1", "n1", "1");
    for (request, said) in [
        (JoinRequest { version: "0.2.0".into(), ..good.clone() }, "runs telem 0.2.0, and this head runs telem 0.1.4"),
        (JoinRequest { version: String::new(), ..good.clone() }, "runs telem , and"),
        (JoinRequest { job: "8".into(), ..good.clone() }, "belongs to job '8', and this is the head of job '7'"),
        (JoinRequest { node: "../n".into(), ..good.clone() }, "node '../n' is not a name"),
        (JoinRequest { node: String::new(), ..good.clone() }, "is not a name"),
        (JoinRequest { url: "10.0.0.1:4242".into(), ..good.clone() }, "gives '10.0.0.1:4242' as its address"),
        (JoinRequest { url: "ftp://n1:1".into(), ..good.clone() }, "is not an http or https URL"),
        (JoinRequest { url: "http://n1".into(), ..good.clone() }, "is not an http or https URL"),
    ] {
        let refusal = registry.join(&request, at(0.0)).unwrap_err().to_string();
        assert!(refusal.contains(said), "{said}: {refusal}");
    }
    assert_eq!(states(&registry, 0.0), "");
}

#[test]
fn an_address_of_ipv6_is_an_address() {
    let mut registry = registry();
    let url = "https://[fd00::7]:4242".to_owned();
    registry.join(&JoinRequest { url, ..from("n1", "n1", "1") }, at(0.0)).unwrap();
    assert_eq!(registry.list(at(0.0))[0].url, "https://[fd00::7]:4242/");
}

#[test]
fn a_job_has_as_many_nodes_as_it_may_and_no_more() {
    let mut registry = registry();
    for n in 1..=4 {
        registry.join(&from("n", &format!("host{n}"), &n.to_string()), at(0.0)).unwrap();
    }
    assert_eq!(registry.join(&from("n", "host5", "5"), at(0.0)), Err(NodeRefusal::Full { nodes_max: 4 }));
    registry.join(&from("n", "host2", "again"), at(0.0)).expect("one that is there already takes no place");
}

#[test]
fn a_node_that_does_not_report_is_suspect_once_and_up_with_its_next_report() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "1"), at(0.0)).unwrap();
    registry.join(&from("n2", "n2", "2"), at(0.0)).unwrap();
    registry.report(report("n2", "2", 0), at(4.0)).unwrap();
    assert_eq!(registry.overdue(at(5.0)), []);
    assert_eq!(registry.overdue(at(5.5)), [("n1".to_owned(), Duration::from_millis(5_500))]);
    assert_eq!(registry.overdue(at(6.0)), [], "it is told once");
    assert_eq!(states(&registry, 6.0), "n1 suspect, n2 up");
    let listed = &registry.list(at(7.0))[0];
    assert_eq!((listed.since_us, listed.reported_ms), (at(5.5).wall.micros(), Some(7_000)));
    assert!(registry.report(report("n1", "1", 0), at(8.0)).unwrap().is_back);
    assert!(!registry.report(report("n1", "1", 1), at(8.0)).unwrap().is_back);
    assert_eq!(states(&registry, 8.0), "n1 up, n2 up");
    assert_eq!(registry.list(at(8.0))[0].since_us, at(8.0).wall.micros());
}

#[test]
fn a_node_that_left_is_listed_with_its_reason_and_may_come_back() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "1"), at(0.0)).unwrap();
    registry.leave(&leave("n1", "1"), at(1.0)).unwrap();
    assert_eq!(registry.overdue(at(60.0)), [], "nobody waits for it");
    let listed = &registry.list(at(60.0))[0];
    assert_eq!((listed.state, listed.reason.as_deref()), (Liveness::Left, Some("SIGTERM")));
    assert_eq!(registry.present(), [""; 0]);
    registry.join(&from("n1", "n1", "2"), at(61.0)).unwrap();
    assert_eq!(registry.present(), ["n1"]);
}

#[test]
fn a_report_that_was_overtaken_is_passed_over() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "1"), at(0.0)).unwrap();
    registry.report(report("n1", "1", 2), at(1.0)).unwrap();
    registry.report(report("n1", "1", 1), at(2.0)).unwrap();
    assert_eq!(registry.list(at(2.0))[0].figures.samples, 12);
    assert_eq!(registry.report(report("n2", "1", 0), at(2.0)), Err(NodeRefusal::Unknown));
}

#[test]
fn every_node_is_told_when_the_job_is_over() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "1"), at(0.0)).unwrap();
    assert!(!registry.report(report("n1", "1", 0), at(1.0)).unwrap().answer.end);
    registry.end();
    assert!(registry.report(report("n1", "1", 1), at(2.0)).unwrap().answer.end);
}

#[test]
fn the_quickest_exchange_says_how_far_a_clock_is_off() {
    let mut registry = registry();
    registry.join(&from("n1", "n1", "1"), at(0.0)).unwrap();
    // Its clock is 3 s ahead; the second report waited long on its way.
    for (seq, seconds, on_its_way_us, round_trip_us) in [(0, 1.0, 200, 400), (1, 2.0, 900_000, 901_000)] {
        let now_us = at(seconds).wall.micros() + 3_000_000 - on_its_way_us;
        let report = NodeReport { now_us, round_trip_us: Some(round_trip_us), ..report("n1", "1", seq) };
        registry.report(report, at(seconds)).unwrap();
    }
    assert_eq!(registry.list(at(2.0))[0].clock_offset_us, Some(3_000_000));
    // What was quick is forgotten after eight others.
    for seq in 2..10 {
        let report = NodeReport { now_us: at(3.0).wall.micros(), round_trip_us: Some(600), ..report("n1", "1", seq) };
        registry.report(report, at(3.0)).unwrap();
    }
    assert_eq!(registry.list(at(3.0))[0].clock_offset_us, Some(300));
}
