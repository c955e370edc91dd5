//! What Dragon's keys mean to a service.

use std::path::Path;

use super::{DragonHost, TunnelEnd, notes, tunnel};
use crate::protocols::dragon::config::DragonConfig;

const ALL: &str = "aggregator_port: 4300\ntsdb_server_port: 4301\ncollector_rate: 0.5\ndefault_tmdb_window: 600\n\
                   default_tmdb_dir: /x\ndelete_tmdb: 1\nremote_tunnel_node: login1\nremote_tunnel_port: 4400\n\
                   dump_node: n1\ndump_dir: /y\nauth_key: hush\n";

fn config(text: &str) -> DragonConfig {
    DragonConfig::parse(Path::new("t.yaml"), text).unwrap()
}

fn told(text: &str, host: DragonHost) -> Vec<String> {
    let key = |note: String| note.strip_prefix("t.yaml: ").unwrap().split(' ').next().unwrap().to_owned();
    notes(&config(text), host).into_iter().map(key).collect()
}

#[test]
fn keys_without_a_meaning_are_named_with_the_reason() {
    let of_run = ["default_tmdb_window", "delete_tmdb", "dump_node", "dump_dir", "auth_key"];
    assert_eq!(told(ALL, DragonHost::Run), of_run);
    let of_serve = ["default_tmdb_window", "delete_tmdb", "remote_tunnel_node", "dump_node", "dump_dir", "auth_key"];
    assert_eq!(told(ALL, DragonHost::Serve), of_serve);
    let of_replay = [&["collector_rate", "default_tmdb_window", "default_tmdb_dir"], &of_serve[1..]].concat();
    assert_eq!(told(ALL, DragonHost::Replay), of_replay);
    assert_eq!(told("delete_tmdb: 0\ntsdb_server_port: 1\n", DragonHost::Run), [""; 0]);
    assert!(notes(&config(ALL), DragonHost::Run).iter().all(|note| !note.contains("hush")), "a key is a secret");
}

#[test]
fn a_key_that_dragon_has_not_is_named_with_those_that_it_has() {
    let notes = notes(&config("default_tmdb_directory: /x\nzeal: 1\n"), DragonHost::Run);
    assert!(
        notes[0].starts_with("warning: t.yaml: 'default_tmdb_directory' is no key") && notes[0].contains("tmdb_dir?")
    );
    assert!(notes[1].contains("'zeal' is no key of Dragon Telemetry; there are aggregator_port, tsdb_server_port, "));
}

#[test]
fn the_tunnel_has_the_port_of_the_aggregator_unless_it_has_its_own() {
    let end = |port| Some(TunnelEnd { node: "login1".to_owned(), port });
    assert_eq!(tunnel(&config(ALL)), end(Some(4400)));
    assert_eq!(tunnel(&config("remote_tunnel_node: login1\naggregator_port: 4300")), end(Some(4300)));
    assert_eq!(tunnel(&config("remote_tunnel_node: login1")), end(None));
    assert_eq!(tunnel(&config("remote_tunnel_port: 4400")), None);
}

#[test]
fn the_end_of_a_tunnel_is_a_host_that_ssh_takes_for_nothing_else() {
    let end = |node: &str, port| Ok(TunnelEnd { node: node.to_owned(), port });
    assert_eq!(TunnelEnd::parse("login1"), end("login1", None));
    assert_eq!(TunnelEnd::parse("ada@login1.site:4300"), end("ada@login1.site", Some(4300)));
    for wrong in ["", "-oX", "a b", "login1:", "login1:0", "login1:70000", "a:b:1", "x;y"] {
        assert!(TunnelEnd::parse(wrong).unwrap_err().contains("NODE:PORT"), "{wrong}");
    }
}
