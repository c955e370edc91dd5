use telem_engine::SystemClock;

use super::*;

fn members() -> Members {
    Members::new(Arc::new(SystemClock::new()))
}

fn url(node: &str) -> Url {
    Url::parse(&format!("http://{node}.test:1/")).unwrap()
}

/// Series of the metric `m`, each by the value of its tag `host`.
fn delta(from: u32, hosts: &[&str]) -> KnownDelta {
    let tags = hosts.iter().map(|host| format!("host\u{1f}{host}")).collect();
    KnownDelta { edition: 1, from, series: vec![("m".to_owned(), tags)] }
}

fn asked(members: &Members, host: &str) -> Vec<String> {
    let accepts = |value: &str| value == host;
    let ids =
        members.index().select("m", &[telem_engine::TagPredicate { key: "host", accepts: &accepts, among: None }]);
    let concerned = members.concerned(Some(&ids), &|_| true);
    concerned.owners.iter().map(|owner| owner.node.to_string()).collect()
}

#[test]
fn a_node_is_asked_for_the_series_that_it_told_of() {
    let members = members();
    for node in ["a", "b"] {
        members.join(node, url(node));
    }
    assert_eq!(members.learn("a", &delta(0, &["x", "y"])).unwrap(), Some(2));
    assert_eq!(members.learn("b", &delta(0, &["z"])).unwrap(), Some(1));
    assert_eq!(asked(&members, "x"), ["a"]);
    assert_eq!(asked(&members, "z"), ["b"]);
    assert_eq!(asked(&members, "nowhere"), [] as [&str; 0]);
}

#[test]
fn a_node_that_told_nothing_yet_is_always_asked() {
    let members = members();
    members.join("a", url("a"));
    assert_eq!(asked(&members, "x"), ["a"]);
}

#[test]
fn a_node_that_told_that_it_has_nothing_is_not_asked_for_a_series() {
    let members = members();
    members.join("a", url("a"));
    assert_eq!(members.learn("a", &delta(0, &[])).unwrap(), Some(0));
    assert_eq!(asked(&members, "x"), [""; 0]);
}

#[test]
fn what_leaves_a_gap_changes_nothing_and_says_where_to_go_on() {
    let members = members();
    members.join("a", url("a"));
    assert_eq!(members.learn("a", &delta(5, &["x"])).unwrap(), Some(0));
    assert_eq!(members.learn("a", &delta(0, &["x", "y"])).unwrap(), Some(2));
    assert_eq!(members.learn("a", &delta(1, &["y", "z"])).unwrap(), Some(3));
    assert_eq!(members.learn("stranger", &delta(0, &["x"])).unwrap(), None);
}

#[test]
fn a_series_that_two_nodes_have_is_on_several() {
    let members = members();
    for node in ["a", "b"] {
        members.join(node, url(node));
        members.learn(node, &delta(0, &["x", node])).unwrap();
    }
    let all = members.index().select("m", &[]);
    let several = members.on_several(&all);
    assert_eq!(several.len(), 1);
    assert_eq!(members.index().key(several[0]).unwrap().to_string(), "m{host=x}");
    assert_eq!(asked(&members, "x"), ["a", "b"]);
}

#[test]
fn a_node_that_is_down_is_missing_where_it_would_have_been_asked() {
    let members = members();
    for node in ["a", "b"] {
        members.join(node, url(node));
        members.learn(node, &delta(0, &[node])).unwrap();
    }
    members.mark_down("a", "gone");
    let missing = |host: &str| {
        let accepts = |value: &str| value == host;
        let ids =
            members.index().select("m", &[telem_engine::TagPredicate { key: "host", accepts: &accepts, among: None }]);
        members.concerned(Some(&ids), &|_| true).missing
    };
    assert_eq!(missing("a"), [(Arc::from("a"), "gone".to_owned())]);
    assert_eq!(missing("b"), []);
    members.mark_up("a");
    assert_eq!(asked(&members, "a"), ["a"]);
    members.leave("a", "its job is over");
    members.mark_up("a");
    assert_eq!(missing("a"), [(Arc::from("a"), "its job is over".to_owned())]);
    members.join("a", url("elsewhere"));
    assert_eq!(members.list()[0].state, NodeState::Up);
    assert_eq!(members.list()[0].url, url("elsewhere"));
}
