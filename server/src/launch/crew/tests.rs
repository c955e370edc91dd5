use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use telem_engine::SystemClock;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Members as a test says them; at the end each file in `dir` that an agent waits for is made.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Vec<String>>>, std::path::PathBuf);

impl CrewMembers for Fake {
    fn present(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn end(&self) {
        std::fs::write(self.1.join("end"), "").unwrap();
        self.0.lock().unwrap().clear();
    }
}

struct Started {
    crew: Crew,
    events: Receiver<CrewEvent>,
    members: Fake,
    dir: tempfile::TempDir,
}

/// One agent a script, with the directory as `$dir`.
fn start(scripts: &[&str]) -> Started {
    let dir = tempfile::tempdir().unwrap();
    let members = Fake(Arc::default(), dir.path().to_path_buf());
    let shell = |(nth, script): (usize, &&str)| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("dir", dir.path());
        (vec![format!("n{}", nth + 1)], command)
    };
    let commands: Vec<_> = scripts.iter().enumerate().map(shell).collect();
    let logs = dir.path().join("logs");
    let (send, events) = channel();
    let crew = Crew::start(
        scripts.len(),
        move || Agents::of(commands, &logs, b"join\n"),
        Box::new(members.clone()),
        Arc::new(SystemClock::new()),
        move |event| drop(send.send(event)),
    );
    Started { crew: crew.unwrap(), events, members, dir }
}

impl Started {
    fn next(&self) -> String {
        format!("{:?}", self.events.recv_timeout(PATIENCE).unwrap())
    }

    fn logs(&self) -> bool {
        Path::new(&self.dir.path().join("logs")).exists()
    }
}

/// An agent that ends when it is told to.
const GOOD: &str = "while ! test -e $dir/end; do sleep 0.01; done";

#[test]
fn the_command_may_start_when_all_have_joined_and_the_end_is_told_when_all_have_ended() {
    let started = start(&[GOOD, GOOD]);
    *started.members.0.lock().unwrap() = vec!["n1".to_owned(), "n2".to_owned()];
    assert_eq!(started.next(), "Gathered { joined: 2, wanted: 2 }");
    started.crew.dismiss(PATIENCE);
    assert_eq!(started.next(), "Dismissed { stayed: [] }");
    assert!(!started.logs(), "what they said is of no use to anybody");
}

#[test]
fn an_agent_that_ends_early_is_told_of_and_nobody_waits_for_it() {
    let started = start(&["echo no room; exit 3"]);
    assert!(started.next().contains(r#"hosts: "n1", why: "exit code 3: no room""#));
    assert_eq!(started.next(), "Gathered { joined: 0, wanted: 1 }");
    started.crew.dismiss(PATIENCE);
    assert_eq!(started.next(), "Dismissed { stayed: [] }");
    assert!(started.logs(), "what it said stays");
}

#[test]
fn an_agent_that_does_not_end_is_ended_within_the_time_that_there_is() {
    let started = start(&["trap '' TERM; : > $dir/deaf; while :; do sleep 0.01; done", GOOD]);
    let clock = SystemClock::new();
    // Until then it ends as any other does.
    while !started.dir.path().join("deaf").exists() {
        assert!(clock.monotonic() < PATIENCE);
        thread::park_timeout(LOOK_INTERVAL);
    }
    started.members.0.lock().unwrap().extend(["n1".to_owned(), "n2".to_owned()]);
    assert_eq!(started.next(), "Gathered { joined: 2, wanted: 2 }");
    // Again and sooner, as when somebody becomes impatient.
    started.crew.dismiss(PATIENCE);
    started.crew.dismiss(Duration::from_secs(1));
    // The other one may be told to end before its script listens for that.
    let mut said = Vec::new();
    while said.last().is_none_or(|word: &String| !word.starts_with("Dismissed")) {
        said.push(started.next());
    }
    assert!(said.contains(&r#"Late("n1")"#.to_owned()), "{said:?}");
    assert_eq!(said.last().unwrap(), "Dismissed { stayed: [] }");
}
