//! Dragon's YAML, right and wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DragonConfig, KEYS};

fn parse(text: &str) -> Result<DragonConfig, String> {
    DragonConfig::parse(Path::new("telemetry.yaml"), text).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_read_with_its_type() {
    let config = parse(
        "aggregator_port: 4300\ntsdb_server_port: \"4301\"\ncollector_rate: 0.5\ndefault_tmdb_window: 600\n\
         default_tmdb_dir: /scratch/db\ndelete_tmdb: 0\nremote_tunnel_node: ada@login1\nremote_tunnel_port: 4400\n\
         dump_node: n1\ndump_dir: /lus/dump\nauth_key: hush\n",
    )
    .unwrap();
    assert_eq!((config.aggregator_port, config.tsdb_server_port), (Some(4300), Some(4301)));
    assert_eq!(config.collector_rate, Some(Duration::from_millis(500)));
    assert_eq!(config.default_tmdb_window, Some(Duration::from_secs(600)));
    assert_eq!((config.default_tmdb_dir, config.delete_tmdb), (Some(PathBuf::from("/scratch/db")), Some(false)));
    assert_eq!((config.remote_tunnel_node.as_deref(), config.remote_tunnel_port), (Some("ada@login1"), Some(4400)));
    assert_eq!((config.dump_node.as_deref(), config.dump_dir.as_deref()), (Some("n1"), Some("/lus/dump")));
    assert_eq!((config.auth_key.as_deref(), config.unknown.len(), config.keys.len()), (Some("hush"), 0, KEYS.len()));
}

#[test]
fn what_is_missing_or_null_is_missing_and_strange_keys_are_named() {
    assert_eq!(parse("").unwrap(), DragonConfig { path: "telemetry.yaml".into(), ..DragonConfig::default() });
    let config = parse("tsdb_server_port: ~\ndefault_tmdb_directory: /x\nzeal: 3\n").unwrap();
    assert_eq!((config.tsdb_server_port, config.unknown), (None, vec!["default_tmdb_directory".into(), "zeal".into()]));
}

#[test]
fn a_wrong_type_is_told_with_file_key_found_and_expected() {
    for (text, why) in [
        ("tsdb_server_port: many", "tsdb_server_port is \"many\": expected a port"),
        ("tsdb_server_port: 70000", "tsdb_server_port is 70000: expected a port"),
        ("aggregator_port: 1.5", "aggregator_port is 1.5: expected a port"),
        ("collector_rate: fast", "collector_rate is \"fast\": expected a number of seconds above 0"),
        ("collector_rate: 0", "collector_rate is 0: expected a number of seconds above 0"),
        ("default_tmdb_window: [1]", "default_tmdb_window is [1]: expected a number"),
        ("default_tmdb_dir: 5", "default_tmdb_dir is 5: expected a directory"),
        ("delete_tmdb: 2", "delete_tmdb is 2: expected 0 or 1"),
        ("remote_tunnel_node: -oProxyCommand=x", "remote_tunnel_node is \"-oProxyCommand=x\": expected the name"),
        ("remote_tunnel_node: a b", "remote_tunnel_node is \"a b\": expected the name of a host"),
        ("dump_dir: {}", "dump_dir is {}: expected a directory"),
        ("auth_key: [hush]", "auth_key is something else: expected a text"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("the telemetry config telemetry.yaml: ") && error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_file_that_is_none_is_told_with_its_name() {
    assert!(parse("a: [").unwrap_err().contains("telemetry.yaml is no YAML"));
    assert!(parse("- 1").unwrap_err().contains("telemetry.yaml holds no keys but [1]"));
    let dir = tempfile::tempdir().unwrap();
    assert!(DragonConfig::read(dir.path()).unwrap_err().to_string().contains("is no regular file"));
    let missing = DragonConfig::read(&dir.path().join("missing.yaml")).unwrap_err().to_string();
    assert!(missing.contains("missing.yaml cannot be read: "), "{missing}");
    let large = dir.path().join("large.yaml");
    std::fs::File::create(&large).unwrap().set_len(super::FILE_BYTES_MAX + 1).unwrap();
    assert!(DragonConfig::read(&large).unwrap_err().to_string().contains("at most 1048576 are read"));
}
