use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;

fn options(fleet: Fleet, logs: &Path) -> AgentsOptions {
    AgentsOptions {
        fleet,
        binary: "/opt/telem/bin/telem".into(),
        host: "n1".to_owned(),
        data: Some("/tmp/live".into()),
        logs: logs.to_path_buf(),
        orphan_timeout: None,
    }
}

fn lines(fleet: Fleet) -> Vec<String> {
    let commands = command::of_fleet(&options(fleet, Path::new("/logs")));
    let line = |command: &Command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    commands.iter().map(|(hosts, command)| format!("{}: {}", hosts.join(" "), line(command))).collect()
}

fn hosts(text: &str) -> Vec<String> {
    hostlist::expand(text).unwrap()
}

#[test]
fn agents_are_started_by_command_lines_without_secrets() {
    assert_eq!(
        lines(Fleet::Local(NonZeroU32::new(2).unwrap())),
        [
            "n1-1: /proc/self/exe node --join - --node n1-1 --data /tmp/live/n1-1",
            "n1-2: /proc/self/exe node --join - --node n1-2 --data /tmp/live/n1-2",
        ]
    );
    assert_eq!(
        lines(Fleet::Ssh(hosts("n2"))),
        ["n2: ssh -o BatchMode=yes -o ForwardAgent=no -o ForwardX11=no -T -o ConnectTimeout=10 -- n2 exec /bin/sh -c \
          'test -x /opt/telem/bin/telem && exec /opt/telem/bin/telem node --join -; exec telem node --join -'"]
    );
    assert_eq!(
        lines(Fleet::Srun(hosts("n[2-3],gpu1"))),
        ["n2 n3 gpu1: srun --overlap --mpi=none --cpu-bind=none --mem=0 --gres=none --nodes=3 --ntasks=3 \
          --ntasks-per-node=1 --nodelist=n[2-3],gpu1 --kill-on-bad-exit=0 --wait=0 --no-kill --export=ALL \
          --job-name=telem --label -- /opt/telem/bin/telem node --join -"]
    );
}

#[test]
fn a_path_that_a_shell_might_misread_is_left_to_the_search_for_programs() {
    let strange = AgentsOptions {
        binary: "/home/o'neill/$(x)/telem".into(),
        ..options(Fleet::Ssh(hosts("n2")), Path::new("/l"))
    };
    let (_, command) = &command::of_fleet(&strange)[0];
    assert_eq!(command.get_args().last().unwrap(), "exec telem node --join -");
}

/// Waits until `agents` have no process that runs; what ended.
fn until_ended(agents: &mut Agents) -> Vec<Ended> {
    let mut ended = Vec::new();
    for _ in 0..6_000 {
        ended.extend(agents.ended());
        if agents.running() == 0 {
            return ended;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("they never ended");
}

/// A shell that stands for an agent.
fn shell(dir: &Path, script: &str) -> Agents {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Agents::of(vec![(hosts("n2"), command)], &dir.join("logs"), b"secret\n").unwrap()
}

#[test]
fn the_end_of_an_agent_is_told_once_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut agents = shell(dir.path(), "read told; echo \"got $told\"; echo 'no room' >&2; exit 3");
    let ended = until_ended(&mut agents);
    assert_eq!(ended, [Ended { hosts: "n2".to_owned(), why: "exit code 3: no room".to_owned(), in_order: false }]);
    assert_eq!(agents.ended(), []);
    let log = agents.logs().join("n2.log");
    assert_eq!(fs::read_to_string(&log).unwrap(), "got secret\nno room\n");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    agents.remove_logs();
    assert!(!agents.logs().exists());
}

#[test]
fn a_program_that_is_not_there_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let none = vec![(hosts("n[2-4]"), Command::new("no-such-program-of-telem"))];
    let mut agents = Agents::of(none, dir.path(), b"").unwrap();
    let ended = agents.ended();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].hosts, "n[2-4]");
    assert!(ended[0].why.starts_with("it cannot be started: no-such-program-of-telem: No such file"), "{ended:?}");
    assert_eq!((agents.running(), agents.ended()), (0, vec![]));
}

#[test]
fn agents_that_are_told_to_end_do_and_with_them_what_they_started() {
    let dir = tempfile::tempdir().unwrap();
    let mut agents = shell(dir.path(), "sleep 1000 & echo $!; wait");
    let log = agents.logs().join("n2.log");
    let mut said = String::new();
    while !said.ends_with('\n') {
        std::thread::park_timeout(Duration::from_millis(5));
        said = fs::read_to_string(&log).unwrap();
    }
    agents.terminate();
    let ended = until_ended(&mut agents);
    assert!(ended[0].why.starts_with("signal 15"), "{ended:?}");
    let sleeper = format!("/proc/{}/stat", said.trim());
    let gone = || fs::read_to_string(&sleeper).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
