//! `--local N`: agents as processes of this machine.

use rustix::process::{Signal, kill_process, kill_process_group};

use super::*;
use crate::process::SOON;
use crate::run::Running;

/// Four agents, and the socket of their head.
fn four(place: &Place, options: &[&str], code: &str) -> (Running, PathBuf) {
    started(place, options, &["sh", "-c", WAITS, code])
}

/// A job with four agents, and the socket that its command printed.
pub fn started(place: &Place, options: &[&str], command: &[&str]) -> (Running, PathBuf) {
    let options: Vec<&str> = ["--local", "4"].iter().chain(options).copied().collect();
    let mut running = Running::start(place.run(&options, command));
    let socket = PathBuf::from(running.line());
    (running, socket)
}

#[test]
fn four_agents_have_names_and_data_of_their_own_and_end_with_the_command() {
    let place = Place::new();
    let (running, socket) = four(&place, &[], "7");
    let host = short_host();
    let expected: Vec<String> =
        std::iter::once(format!("{host} up")).chain((1..=4).map(|nth| format!("{host}-{nth} up"))).collect();
    assert_eq!(states(&socket), expected, "they were there when the command began");
    let agents = agents(&socket);
    poll("every agent to have sampled its node", || {
        let sampled = |node: &Json| node["is_head"] == true || node["samples"].as_u64() > Some(0);
        nodes(&socket).iter().all(sampled)
    });
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(said.contains(", on 4 nodes") && said.contains(": 4\n"), "{said}");
    assert!(!said.contains("warning"), "{said}");
    poll_gone(&agents);
    assert_tidy(&place);
    let saved = left(place.path(), "MANIFEST");
    assert_eq!(saved.len(), 5, "each node is saved, and no live data stay: {saved:?}");
    let mut counted = telem(["sql", "--format", "csv"]);
    counted.args(saved.iter().filter_map(|manifest| manifest.parent())).arg("SELECT count(*) AS n FROM samples");
    let counted = String::from_utf8(counted.output().unwrap().stdout).unwrap();
    let told = said.split(" samples in ").next().and_then(|before| before.rsplit(' ').next()).unwrap();
    assert_eq!(counted.trim(), format!("n\n{}", told.replace(',', "")), "what was told is what is saved: {said}");
}

#[test]
fn an_agent_that_is_killed_is_told_of_and_the_others_go_on() {
    let place = Place::new();
    let (running, socket) = four(&place, &[], "0");
    let agents = agents(&socket);
    let (victim, number) = agents[1].clone();
    kill_process(pid(number), Signal::KILL).unwrap();
    poll("the head to miss the agent", || states(&socket).contains(&format!("{victim} suspect")));
    assert_eq!(states(&socket).iter().filter(|state| state.ends_with(" up")).count(), 4);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("{victim} is not recorded: signal 9")), "{said}");
    assert!(said.contains(&format!("{victim} did not report at the end")), "{said}");
    poll_gone(&agents);
}

#[test]
fn ctrl_c_ends_the_command_and_then_the_agents() {
    let place = Place::new();
    let (running, socket) = started(&place, &[], &["sh", "-c", SLEEPS]);
    let agents = agents(&socket);
    kill_process_group(pid(running.telem.id()), Signal::INT).unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(130), "{said}");
    poll_gone(&agents);
    assert_tidy(&place);
}

#[test]
fn sigterm_ends_the_head_its_agents_and_the_command_within_five_seconds() {
    let place = Place::new();
    let (running, socket) = started(&place, &[], &["sh", "-c", SLEEPS]);
    let (agents, recorder) = (agents(&socket), recorder_of(&socket));
    let clock = telem_engine::SystemClock::new();
    kill_process(pid(running.telem.id()), Signal::TERM).unwrap();
    let (status, said) = running.end();
    let took = telem_engine::Clock::monotonic(&clock);
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(took < SOON, "{took:?} {said}");
    assert!(agents.iter().all(|(_, number)| test_kill_process(pid(*number)).is_err()), "an agent outlives its head");
    // It has said its last word, and ends.
    poll("the recorder to be gone", || test_kill_process(recorder).is_err());
    assert_tidy(&place);
}

#[test]
fn agents_whose_head_was_killed_end_after_the_time_that_was_set() {
    let place = Place::new();
    let (running, socket) = four(&place, &["--head-gone-timeout", "1s"], "3");
    let agents = agents(&socket);
    kill_process(recorder_of(&socket), Signal::KILL).unwrap();
    poll_gone(&agents);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("the command continues, but telem no longer records it"), "{said}");
}

#[test]
fn agents_whose_head_was_killed_save_what_they_have_and_end_at_once() {
    let place = Place::new();
    let (running, socket) = four(&place, &["--save", "out"], "3");
    let agents = agents(&socket);
    let copy_of = |node: &str| place.path().join("out").join(node);
    // Whether an agent reaches the directory it finds out with its head.
    poll("every agent to have begun its copy", || {
        agents.iter().all(|(node, _)| crate::run::saving::info(&copy_of(node)).is_some())
    });
    kill_process(recorder_of(&socket), Signal::KILL).unwrap();
    // Long before the ten minutes that agents elsewhere may take, whose connection was lost.
    poll_gone(&agents);
    for (node, _) in &agents {
        let copy = copy_of(node);
        let info = crate::run::saving::info(&copy).unwrap();
        assert!(info.samples > 0 && info.wal_bytes == 0, "{node} was not closed in order: {info:?}");
        crate::run::saving::assert_sound(&copy, node);
    }
    // Those of the head alone stay, which was killed.
    assert_eq!(left(&place.path().join("live"), "MANIFEST").len(), 1);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");
}

fn recorder_of(socket: &Path) -> rustix::process::Pid {
    let head = nodes(socket).into_iter().find(|node| node["is_head"] == true).unwrap();
    pid(u32::try_from(head["pid"].as_u64().unwrap()).unwrap())
}

#[test]
fn an_agent_that_does_not_end_does_not_keep_telem() {
    let place = Place::new();
    let (running, socket) = started(&place, &[], &["sh", "-c", SLEEPS]);
    let agents = agents(&socket);
    kill_process(pid(agents[0].1), Signal::STOP).unwrap();
    // As Slurm does at the end of the time of a job.
    kill_process(pid(running.telem.id()), Signal::TERM).unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains(&format!("{} did not end in time", agents[0].0)), "{said}");
    poll_gone(&agents);
}
