//! `telem run` on many nodes, with real processes: agents on this machine; and `ssh` and `srun` as scripts, which start
//! the remote commands here, each host with a directory of its own.

mod killed;
mod local;
mod overlapping;
mod ranks;
mod remote;
mod tasks;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::test_kill_process;
use serde_json::Value as Json;

pub use self::local::started;
use crate::process::{Connection, poll, telem};
use crate::run::{Place, pid};

const TELEM: &str = env!("CARGO_BIN_EXE_telem");

/// Tells where its socket is and waits for the end of its stdin; exits with its argument.
const WAITS: &str = "echo \"$TELEM_SOCKET\"; read -r _; exit ${0#-}";
/// The same, for ever.
const SLEEPS: &str = "echo \"$TELEM_SOCKET\"; exec sleep 1000";

/// What the head that listens at `socket` says of its nodes.
fn nodes(socket: &Path) -> Vec<Json> {
    let answer = Connection::unix(socket).request("GET", "/api/nodes", &[], b"").unwrap();
    answer.expect(200).json().as_array().unwrap().clone()
}

/// Their names and states, the head's first.
fn states(socket: &Path) -> Vec<String> {
    let mut nodes = nodes(socket);
    nodes.sort_by_key(|node| (node["is_head"] != true, node["node"].as_str().unwrap().to_owned()));
    let text = |node: &Json, key: &str| node[key].as_str().unwrap().to_owned();
    nodes.iter().map(|node| format!("{} {}", text(node, "node"), text(node, "state"))).collect()
}

/// The processes of the nodes besides the head.
fn agents(socket: &Path) -> Vec<(String, u32)> {
    let others = nodes(socket).into_iter().filter(|node| node["is_head"] != true);
    let number = |node: &Json| u32::try_from(node["pid"].as_u64().unwrap()).unwrap();
    others.map(|node| (node["node"].as_str().unwrap().to_owned(), number(&node))).collect()
}

fn poll_gone(pids: &[(String, u32)]) {
    for (node, number) in pids {
        poll(&format!("agent {node} to be gone"), || test_kill_process(pid(*number)).is_err());
    }
}

/// What lies below `dir` whose name ends so.
pub fn left(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().ends_with(end) {
            found.push(path.clone());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(left(&path, end));
        }
    }
    found
}

/// Nothing is left that a process of this place used: no socket, no secret, no log.
fn assert_tidy(place: &Place) {
    for end in [".sock", ".join", "connection.json", ".agents", ".keeper", "head"] {
        assert_eq!(left(place.path(), end), Vec::<PathBuf>::new(), "{end}");
    }
}

fn short_host() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    host.split('.').next().unwrap().to_owned()
}

/// Puts a program into `place` that is found before others of its name.
pub fn put_program(place: &Place, name: &str, text: &str, command: &mut Command) {
    let bin = place.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), text).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display())).env("PLACE", place.path());
}
