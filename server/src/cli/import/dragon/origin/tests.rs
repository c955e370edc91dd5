//! Which node a name tells, and what else says it.

use super::*;

fn node(file: &str, hosts: &[&str], users: &[&str]) -> String {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let users = KnownUsers(users.iter().map(ToString::to_string).collect());
    DragonName::of(file).unwrap().node(&hosts, &users).0
}

#[test]
fn a_name_tells_the_node_behind_the_user() {
    for (file, expected) in [
        ("ts_alice_n1.db", "n1"),
        ("ts_n1.db", "n1"),
        ("ts_1000_n1.example.org.db", "n1.example.org"),
        ("ts_alice_n1_20261123_160102.db", "n1"),
        ("ts_n1_20261123_160102.db", "n1"),
        ("ts_alice_n1_2026_16.db", "16"),
        ("ts_jane_doe_n1.db", "n1"),
        ("ts_jane_doe_n1_20261123_160102.db", "n1"),
    ] {
        assert_eq!(node(file, &[], &[]), expected, "{file}");
    }
    for none in ["copy.db", "ts_alice_n1.sqlite", "ts_.db", "ts__n1.db", "ts_alice_.db", "ts_20261123_160102"] {
        assert_eq!(DragonName::of(none), None, "{none}");
    }
}

#[test]
fn hosts_of_rows_and_known_users_tell_where_the_user_ends() {
    for (hosts, users, expected) in [
        (&[][..], &[][..], "host"),
        (&["my_host"], &[], "my_host"),
        (&["doe_my_host"], &["jane_doe"], "doe_my_host"),
        (&["other"], &["jane"], "doe_my_host"),
        (&[], &["jane", "jane_doe"], "my_host"),
        (&[], &["jane", "jane_doe", "jane_doe_my"], "host"),
        (&[], &["doe", "somebody"], "host"),
    ] {
        assert_eq!(node("ts_jane_doe_my_host.db", hosts, users), expected, "{hosts:?} {users:?}");
    }
    assert_eq!(node("ts_my_host.db", &["my_host"], &[]), "my_host");
}

#[test]
fn users_are_known_from_other_files_and_from_directories() {
    let names: Vec<DragonName> =
        ["ts_jane_n1.db", "ts_jane_doe_n2.db"].iter().filter_map(|name| DragonName::of(name)).collect();
    let users = KnownUsers::of(&names, [Path::new("/scratch/mary_ann/dumps/ts_mary_ann_my_host.db")]);
    assert!(users.0.contains("jane") && users.0.contains("mary_ann") && !users.0.contains("jane_doe"));
}

#[test]
fn a_run_is_called_by_what_its_names_have_in_common() {
    let run = |files: &[&str]| run_name(&files.iter().map(|file| DragonName::of(file)).collect::<Vec<_>>());
    assert_eq!(run(&["ts_alice_n1_20261123_160102.db"]).as_deref(), Some("ts_alice_n1"));
    assert_eq!(run(&["ts_alice_n1.db", "ts_alice_n2.db"]).as_deref(), Some("ts_alice"));
    assert_eq!(run(&["ts_alice_n1.db", "ts_bob_n1.db"]), None);
    assert_eq!(run(&["ts_alice_n1.db", "copy.db"]), None);
}
