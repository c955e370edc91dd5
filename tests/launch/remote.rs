//! Agents on other hosts, with scripts in place of `ssh` and `srun`.

use super::*;
use crate::run::{Running, said};

/// Starts what it is told to, as another host would. It knows two hosts that are not there.
const SSH: &str = r#"#!/bin/sh
echo "ssh $*" >> "$PLACE/asked"
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
    dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
    deaf) exec sleep 1000 ;;
esac
mkdir -p "$PLACE/$host/run" && chmod 700 "$PLACE/$host/run"
export XDG_RUNTIME_DIR="$PLACE/$host/run" TMPDIR="$PLACE/$host"
exec sh -c "$*"
"#;

fn run(place: &Place, options: &[&str], command: &[&str]) -> Command {
    let mut run = telem_run(place, options, command);
    put_program(place, "ssh", SSH, &mut run);
    run
}

/// On the address that telem chooses.
fn telem_run(place: &Place, options: &[&str], command: &[&str]) -> Command {
    let mut run = crate::process::telem(["run"]);
    run.args(options).arg("--").args(command);
    place.at_home(&mut run);
    run
}

#[test]
fn hosts_that_are_named_get_agents_by_ssh() {
    let place = Place::new();
    let mut running = Running::start(run(&place, &["--nodes", "n[1-2]"], &["sh", "-c", WAITS, "5"]));
    let socket = PathBuf::from(running.line());
    assert_eq!(states(&socket).len(), 3);
    assert!(states(&socket).iter().all(|state| state.ends_with(" up")), "{:?}", states(&socket));
    let agents = agents(&socket);
    for (node, number) in &agents {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&line).split('\0').skip(1).collect::<Vec<_>>().join(" "),
            "node --join - ",
            "{node}"
        );
    }
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("on 3 nodes") && !said.contains("warning"), "{said}");
    poll_gone(&agents);
    let asked = std::fs::read_to_string(place.path().join("asked")).unwrap();
    assert_eq!(asked.lines().count(), 2);
    assert!(asked.lines().all(|line| line.starts_with("ssh -o BatchMode=yes ")), "{asked}");
    assert_tidy(&place);
}

#[test]
fn a_host_that_cannot_be_reached_is_a_warning_and_with_strict_an_error() {
    let place = Place::new();
    std::fs::write(place.path().join("hosts"), "n1 slots=4\ndead\n").unwrap();
    let done = crate::run::output(run(&place, &["--hostfile", "hosts"], &["sh", "-c", "exit 4"]));
    assert_eq!(done.status.code(), Some(4), "{}", said(&done));
    assert!(
        said(&done).contains("warning: dead is not recorded: exit code 255: ssh: connect to host dead"),
        "{}",
        said(&done)
    );
    let done = crate::run::output(run(&place, &["--strict", "--nodes", "n1,dead"], &["touch", "ran"]));
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    assert!(said(&done).contains("1 of 2 agents joined: dead is not recorded: exit code 255"), "{}", said(&done));
    assert!(!place.path().join("ran").exists());
}

#[test]
fn hosts_that_were_named_wrongly_are_refused_before_anything_runs() {
    let place = Place::new();
    std::fs::write(place.path().join("bad"), "n1\na[\n").unwrap();
    std::fs::write(place.path().join("empty"), "").unwrap();
    for (options, why) in [
        (["--nodes", "a["], "--nodes: "),
        (["--hostfile", "bad"], "--hostfile: bad"),
        (["--hostfile", "missing"], "--hostfile: cannot read missing: "),
        (["--hostfile", "empty"], "--hostfile empty names no host"),
    ] {
        let done = crate::run::output(run(&place, &options, &["touch", "ran"]));
        assert_eq!(done.status.code(), Some(2), "{}", said(&done));
        assert!(said(&done).contains(why), "{}", said(&done));
    }
    assert!(!place.path().join("ran").exists() && !place.path().join("asked").exists());
    assert_tidy(&place);
}

#[test]
fn a_host_that_does_not_answer_delays_the_command_and_the_end_by_seconds() {
    let place = Place::new();
    let mut running = Running::start(run(&place, &["--nodes", "n1,deaf"], &["sh", "-c", SLEEPS]));
    let socket = PathBuf::from(running.line());
    assert_eq!(states(&socket).len(), 2);
    rustix::process::kill_process(pid(running.telem.id()), rustix::process::Signal::TERM).unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains("1 of 2 agents joined so far") && said.contains("deaf did not end in time"), "{said}");
}

#[test]
fn what_is_asked_for_wrongly_is_told_before_anything_runs() {
    let place = Place::new();
    for (options, why) in [
        (&["--nodes", "n[1-"][..], "--nodes: host list: this '[' is never closed, at character 2 of 'n[1-'"),
        (&["--nodes", ","], "--nodes ',' names no host"),
        (&["--nodes", "n2", "--launcher", "srun"], "this is not one (SLURM_JOB_ID is not set)"),
        (&["--nodes", "n2", "--local", "2"], "cannot be used with"),
        (&["--local", "65"], "65 is not in 1..=64"),
    ] {
        let done = crate::run::output(telem_run(&place, options, &["touch", "ran"]));
        assert_eq!(done.status.code(), Some(2), "{}", said(&done));
        assert!(said(&done).contains(why), "{}", said(&done));
    }
    assert!(!place.path().join("ran").exists());
}
