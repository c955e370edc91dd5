use std::os::unix::fs::PermissionsExt;

use telem_engine::{Db, Options};
use tempfile::TempDir;

use super::*;

const PROFILE: &str = r#"{"desc": {"jobid": "4", "command": "./a", "size": 2, "nodelist": "", "partition": "", "cluster": "",
    "run_dir": "/", "start_time": 1700000000, "end_time": 1700000060},
    "counters": [{"name": "hits", "doc": "", "ctype": {"Counter": {"ts": 1700000060, "value": 7.0}}}]}"#;

fn nowhere(_: &str) -> Option<String> {
    None
}

fn at_home(home: &Path) -> impl Fn(&str) -> Option<String> {
    let home = home.to_string_lossy().into_owned();
    move |name| (name == "HOME").then(|| home.clone())
}

/// What the original leaves of one job.
fn leave(dir: &Path) {
    fs::create_dir_all(dir.join("profiles")).unwrap();
    fs::create_dir_all(dir.join("traces")).unwrap();
    fs::write(dir.join("profiles/4.profile"), PROFILE).unwrap();
    fs::write(dir.join("profiles/0123456789abcdef0123456789abcdef.jsonl"), "{}\n").unwrap();
}

fn samples(dir: &Path) -> u64 {
    Db::open_read_only(dir, Options::default()).unwrap().info().unwrap().samples
}

#[test]
fn by_default_a_node_has_one_directory_in_home_whatever_the_job_is() {
    let home = TempDir::new().unwrap();
    let dir = settle(None, "n1", None, at_home(home.path())).unwrap();
    assert_eq!(dir, home.path().join(".proxyprofiles/telem/n1"));
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(settle(None, "n1", None, at_home(home.path())).unwrap(), dir);
    assert_eq!(settle(None, "n2", None, at_home(home.path())).unwrap(), home.path().join(".proxyprofiles/telem/n2"));
}

#[test]
fn a_directory_that_is_named_is_the_database_unless_nodes_share_it() {
    let dir = TempDir::new().unwrap();
    let named = dir.path().join("new");
    assert_eq!(settle(Some(&named), "n1", None, nowhere).unwrap(), named);
    drop(Db::open(&named, Options::default()).unwrap());
    fs::create_dir(named.join("traces")).unwrap();
    assert_eq!(settle(Some(&named), "n1", None, nowhere).unwrap(), named);
    let shared = dir.path().join("shared");
    fs::create_dir_all(shared.join("telem")).unwrap();
    for node in ["n1", "n2"] {
        assert_eq!(settle(Some(&shared), node, None, nowhere).unwrap(), shared.join("telem").join(node));
    }
}

#[test]
fn what_the_original_left_is_taken_over_once_by_each_node_and_stays() {
    let dir = TempDir::new().unwrap();
    leave(dir.path());
    for node in ["n1", "n2"] {
        let data = settle(Some(dir.path()), node, None, nowhere).unwrap();
        assert_eq!((&data, samples(&data)), (&dir.path().join("telem").join(node), 1));
    }
    let left = fs::read_to_string(dir.path().join("profiles/4.profile")).unwrap();
    assert_eq!(left, PROFILE);
    fs::copy(dir.path().join("profiles/4.profile"), dir.path().join("profiles/5.profile")).unwrap();
    assert_eq!(samples(&settle(Some(dir.path()), "n1", None, nowhere).unwrap()), 1);
    let names: Vec<_> =
        fs::read_dir(dir.path().join("telem")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_take_over_that_was_ended_begins_anew() {
    let dir = TempDir::new().unwrap();
    leave(dir.path());
    let ours = dir.path().join("telem");
    for left in [".n1.import", "..n1.import.telem-import.77.part"] {
        fs::create_dir_all(ours.join(left).join("n1/wal")).unwrap();
    }
    // Of other nodes: one that begins now as well, and some whose names begin so.
    let others = ["..n1.import.import.telem-import.78.part", ".n11.import", "n1.important", "n1.import"];
    for other in others {
        fs::create_dir_all(ours.join(other)).unwrap();
    }
    assert_eq!(samples(&settle(Some(dir.path()), "n1", None, nowhere).unwrap()), 1);
    let mut names: Vec<_> = fs::read_dir(&ours).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["..n1.import.import.telem-import.78.part", ".n11.import", "n1", "n1.import", "n1.important"]);
}

#[test]
fn half_a_profile_costs_itself_only_and_one_without_a_value_is_nothing_to_take_over() {
    let dir = TempDir::new().unwrap();
    leave(dir.path());
    fs::write(dir.path().join("profiles/5.profile"), &PROFILE[..40]).unwrap();
    assert_eq!(samples(&settle(Some(dir.path()), "n1", None, nowhere).unwrap()), 1);
    fs::remove_file(dir.path().join("profiles/4.profile")).unwrap();
    let data = settle(Some(dir.path()), "n2", None, nowhere).unwrap();
    assert_eq!(fs::read_dir(data).unwrap().count(), 0);
}
