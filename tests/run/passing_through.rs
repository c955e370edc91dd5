//! Exit codes, streams, signals and the environment: as if telem were not there.

use std::io::Write;

use serde_json::Value as Json;

use super::*;

#[test]
fn the_exit_code_of_the_command_is_telems() {
    let place = Place::new();
    let code = |command: &[&str]| {
        let done = place.output(&[], command);
        (done.status.code(), said(&done))
    };
    assert_eq!(code(&["true"]).0, Some(0));
    assert_eq!(code(&["sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(code(&["sh", "-c", "exit 255"]).0, Some(255));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]).0, Some(128 + 9));
    assert_eq!(code(&["sh", "-c", "kill -SEGV $$"]).0, Some(128 + 11));
    let (not_found, why) = code(&["no-such-command-of-telem", "-x"]);
    assert_eq!(not_found, Some(127), "{why}");
    assert!(why.contains("cannot run 'no-such-command-of-telem'"), "{why}");
    assert_eq!(code(&["/etc/passwd"]).0, Some(126));
}

#[test]
fn a_script_without_an_interpreter_line_runs_as_in_a_shell() {
    let place = Place::new();
    let script = place.path().join("job");
    std::fs::write(&script, "echo \"$0 $1\"; exit 5\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = place.output(&[], &["./job", "one"]);
    assert_eq!((done.status.code(), done.stdout.as_slice()), (Some(5), b"./job one\n".as_slice()), "{}", said(&done));
}

#[test]
fn what_follows_the_command_is_the_commands_own() {
    let place = Place::new();
    let done = place.output(&[], &["echo", "--level", "9", "-q", "--", "-x"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "--level 9 -q -- -x\n", "{}", said(&done));
    let mut without_dashes = telem(["run", "--listen", "127.0.0.1:0", "echo", "-n", "--help"]);
    place.at_home(&mut without_dashes);
    assert_eq!(String::from_utf8_lossy(&output(without_dashes).stdout), "--help");
}

#[test]
fn bytes_pass_through_stdin_and_stdout_untouched_and_telem_prints_nothing_there() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut running = Running::start(place.run(&[], &["cat"]));
    let mut stdin = running.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut came = Vec::new();
    running.stdout.read_to_end(&mut came).unwrap();
    writer.join().unwrap();
    assert!(came == bytes, "{} bytes went in, {} came out", bytes.len(), came.len());
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
}

#[test]
fn a_reader_that_leaves_is_the_commands_business_and_every_line_of_telem_is_named() {
    let place = Place::new();
    let mut running = Running::start(place.run(&[], &["sh", "-c", "echo one; yes >&1; echo $? >&2; exit 3"]));
    assert_eq!(running.line(), "one");
    // `yes` dies of SIGPIPE, as it would without telem.
    running.stdout = BufReader::new(Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap());
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.lines().any(|line| line == "141"), "{said}");
    let others: Vec<_> = said.lines().filter(|line| *line != "141" && !line.starts_with("telem: ")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(said.contains("ssh command: ssh -NL localhost:") && said.contains("listening on http://127.0.0.1:"));
    assert!(said.contains(" · page http://127.0.0.1:"), "{said}");
}

#[test]
fn who_reads_the_output_sees_its_end_when_the_command_closes_it() {
    let place = Place::new();
    let goes_on = place.path().join("goes-on");
    let script = format!("echo all; exec >&-; until [ -e '{}' ]; do sleep 0.02; done; exit 3", goes_on.display());
    let mut running = Running::start(place.run(&[], &["sh", "-c", &script]));
    let mut came = String::new();
    running.stdout.read_to_string(&mut came).unwrap();
    assert_eq!(came, "all\n");
    std::fs::write(goes_on, "").unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");
}

#[test]
fn closed_streams_do_not_disturb_anybody() {
    let place = Place::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" <&- >&- 2>&-", "sh", env!("CARGO_BIN_EXE_telem")]);
    shell.args(["run", "--listen", "127.0.0.1:0", "--", "sh", "-c", "exit 4"]);
    place.at_home(&mut shell);
    assert_eq!(output(shell).status.code(), Some(4));
}

#[test]
fn the_command_is_told_where_the_service_is_and_never_the_token() {
    let place = Place::new();
    let print = "import json,os; print(json.dumps(dict(os.environ)))";
    let run = place.run(&["--job", "j1", "--level", "1"], &["python3", "-c", print]);
    let done = output(run);
    let env: Json = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&env["TELEM_JOB"], &env["TELEM_LEVEL"]), (&"j1".into(), &"1".into()), "{}", said(&done));
    assert!(env["TELEM_URL"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    assert!(env["TELEM_SOCKET"].as_str().unwrap().starts_with('/'));
    assert!(env["TELEM_CONNECTION"].as_str().unwrap().ends_with("/connection.json"));
    assert!(env.get("TELEM_TOKEN").is_none());
    assert!(env["TELEM_SAVED"].as_str().unwrap().ends_with("/telem-j1"), "{}", env["TELEM_SAVED"]);
    for (options, ending) in [(["--save", "out"].as_slice(), "/out\n"), (&["--no-save"], "\n")] {
        let done = place.output(options, &["sh", "-c", "echo $TELEM_SAVED"]);
        let line = String::from_utf8(done.stdout).unwrap();
        assert!(line.ends_with(ending) && (options.len() == 2 || line == "\n"), "{line}");
    }
    // A job without an id gets one made of the time.
    let done = place.output(&[], &["sh", "-c", "echo $TELEM_JOB $TELEM_LEVEL"]);
    let line = String::from_utf8(done.stdout).unwrap();
    assert!(regex::Regex::new(r"^\d{8}-\d{6}-\d+ 2\n$").unwrap().is_match(&line), "{line}");
}

#[test]
fn the_connection_file_says_all_that_a_client_needs() {
    let place = Place::new();
    let done = place.output(&["--level", "3", "--node", "n7"], &["sh", "-c", "cat $TELEM_CONNECTION"]);
    let file: Json = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&file["level"], &file["node"]), (&3.into(), &"n7".into()));
    assert!(file["token"].as_str().unwrap().len() > 20 && file["url"].is_string() && file["socket"].is_string());
}

#[test]
fn the_command_inherits_no_limit_and_no_priority_of_telems() {
    let place = Place::new();
    let ask = "ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj; cut -d' ' -f19 /proc/self/stat; \
        grep -E 'SigIgn|SigBlk' /proc/self/status; umask; ls /proc/self/fd | wc -l";
    let limited = "ulimit -Sn 300; trap '' USR2; exec \"$@\"";
    let ask_under = |telem: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", limited, "sh"]).args(telem).args(["bash", "-c", ask]);
        place.at_home(&mut shell);
        let done = output(shell);
        String::from_utf8(done.stdout).unwrap()
    };
    let plain = ask_under(&["env"]);
    let under = ask_under(&[env!("CARGO_BIN_EXE_telem"), "run", "--listen", "127.0.0.1:0", "--"]);
    assert_eq!(under, plain);
    assert!(plain.contains("300\n"), "{plain}");
}

/// Says what it gets, until its stdin ends; then exits with 9.
const LISTENER: &str = "
import signal, sys
def got(number, frame):
    print(signal.Signals(number).name, flush=True)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), got)
print('ready', flush=True)
sys.stdin.read()
sys.exit(9)
";

#[test]
fn signals_sent_to_telem_reach_the_command_once_and_telem_lives_on() {
    let names = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU", "SIGURG"];
    let signals = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::XCPU,
        Signal::URG,
    ];
    let place = Place::new();
    let mut command = vec!["python3", "-c", LISTENER];
    command.extend(names);
    let mut running = Running::start(place.run(&[], &command));
    assert_eq!(running.line(), "ready");
    for (signal, name) in signals.into_iter().zip(names) {
        running.signal(signal);
        assert_eq!(running.line(), name);
    }
    drop(running.stdin.take());
    assert_eq!(running.line(), "", "a signal came twice");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(9), "{said}");
}

#[test]
fn a_command_that_dies_of_a_signal_sent_to_telem_gives_its_code() {
    let place = Place::new();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::USR1, 138), (Signal::HUP, 129)] {
        let mut running = Running::start(place.run(&[], &["sh", "-c", "echo ready; exec sleep 600"]));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        let (status, said) = running.end();
        assert_eq!(status.code(), Some(code), "{signal:?}: {said}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored_for_the_command() {
    let place = Place::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_telem"), "run"]);
    shell.args(["--listen", "127.0.0.1:0", "--", "python3", "-c", LISTENER, "SIGUSR1"]);
    place.at_home(&mut shell);
    let mut running = Running::start(shell);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::HUP);
    running.signal(Signal::INT);
    running.signal(Signal::USR1);
    assert_eq!(running.line(), "SIGUSR1");
    assert_eq!(running.end().0.code(), Some(9));
}

/// Runs its arguments at a terminal of their own, types what stands in stdin once they are ready, prints what they print.
const TERMINAL: &str = r"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b''
typed = False
while True:
    try:
        some = os.read(terminal, 4096)
    except OSError:
        some = b''
    if not some:
        break
    seen += some
    if not typed and b'ready' in seen:
        os.write(terminal, sys.stdin.buffer.read())
        typed = True
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.buffer.write(seen)
sys.exit(status)
";

#[test]
fn ctrl_c_at_the_terminal_reaches_the_command_once_and_what_is_typed_is_its_input() {
    let place = Place::new();
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_telem"), "run", "--listen", "127.0.0.1:0", "--"]);
    let count = "
import signal, sys
def got(number, frame):
    print('interrupted', flush=True)
signal.signal(signal.SIGINT, got)
assert sys.stdin.isatty() and sys.stdout.isatty()
print('ready', flush=True)
print('typed', sys.stdin.readline())
sys.exit(6)
";
    python.args(["python3", "-c", count]);
    place.at_home(&mut python);
    let mut running = Running::start(python);
    running.stdin.take().unwrap().write_all(b"\x03hello\n").unwrap();
    let mut seen = String::new();
    running.stdout.read_to_string(&mut seen).unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(6), "{seen}{said}");
    assert_eq!(seen.matches("interrupted").count(), 1, "{seen}");
    assert!(seen.contains("typed hello"), "{seen}");
}

/// What stands in the description of the one job that was saved.
fn saved_job(place: &Place) -> Json {
    let done = super::saving::asked(&["info", "--json"], &place.path().join("out/n1"), "");
    let info: Json = serde_json::from_slice(&done.stdout).unwrap_or_default();
    info["job"].clone()
}

const SAVING: [&str; 4] = ["--save", "out", "--node", "n1"];

#[test]
fn a_command_goes_on_and_is_recorded_to_its_end_when_its_parent_is_killed() {
    let place = Place::new();
    let mut running = Running::start(place.run(&SAVING, &["sh", "-c", "echo ready; read line; echo \"still $line\""]));
    assert_eq!(running.line(), "ready");
    poll("the recorder to know of the command", || place.path().join("out/n1/MANIFEST").exists());
    running.signal(Signal::KILL);
    running.telem.wait().unwrap();
    running.stdin.take().unwrap().write_all(b"here\n").unwrap();
    assert_eq!(running.line(), "still here");
    let mut said = String::new();
    running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("saved in"), "{said}");
    let job = saved_job(&place);
    assert!(job["end"].is_string() && job["exit_code"].is_null(), "{job}, {said}");
}

#[test]
fn the_death_of_the_recorder_is_a_warning_and_nothing_else() {
    let place = Place::new();
    let mut running = Running::start(place.run(&SAVING, &["sh", "-c", "echo ready; read line; echo $line; exit 5"]));
    assert_eq!(running.line(), "ready");
    kill_process(recorder(&place), Signal::KILL).unwrap();
    let mut stderr = BufReader::new(running.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("telem no longer records it: its recorder was killed by signal 9") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    running.stdin.take().unwrap().write_all(b"on\n").unwrap();
    assert_eq!(running.line(), "on");
    drop(running.stdin.take());
    let mut more = String::new();
    stderr.read_to_string(&mut more).unwrap();
    assert_eq!((running.telem.wait().unwrap().code(), more.as_str()), (Some(5), ""));
}

#[test]
fn what_is_sent_to_the_group_reaches_the_command_once() {
    let names = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU"];
    let signals =
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::XCPU];
    let place = Place::new();
    let mut command = vec!["python3", "-c", LISTENER, "SIGURG"];
    command.extend(names);
    let mut running = Running::start(place.run(&[], &command));
    assert_eq!(running.line(), "ready");
    let telem = running.telem.id();
    let children = format!("/proc/{telem}/task/{telem}/children");
    let mut witness = String::new();
    for (signal, name) in signals.into_iter().zip(names) {
        // The recorder, the command, and the witness of what is sent to the group, which is another each time.
        poll("a witness", || {
            let children = std::fs::read_to_string(&children).unwrap();
            let found = children.split_whitespace().nth(2).filter(|found| **found != witness);
            found.map(|found| witness = found.to_owned()).is_some()
        });
        kill_process_group(pid(telem), signal).unwrap();
        assert_eq!(running.line(), name);
    }
    // They are passed on in order, and so this is behind whatever else telem might pass on.
    running.signal(Signal::URG);
    assert_eq!(running.line(), "SIGURG", "a signal came twice");
    drop(running.stdin.take());
    assert_eq!(running.line(), "", "a signal came twice");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(9), "{said}");
}

#[test]
fn a_command_is_run_where_nothing_is_left_for_telem() {
    let place = Place::new();
    for limit in ["-n 5", "-n 6", "-n 8", "-n 10", "-n 14"] {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "bash", env!("CARGO_BIN_EXE_telem"), "run"]);
        bash.args(["--listen", "127.0.0.1:0", "--", "sh", "-c", "exit 5"]);
        place.at_home(&mut bash);
        let done = output(bash);
        assert_eq!(done.status.code(), Some(5), "{limit}: {}", said(&done));
        assert!(!said(&done).contains("panicked"), "{limit}: {}", said(&done));
    }
}

#[test]
fn a_service_that_cannot_start_is_a_warning_and_with_strict_an_error() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let blocked = place.path().join("file");
    std::fs::write(&blocked, "in the way").unwrap();
    for options in [["--listen", &taken], ["--data", blocked.to_str().unwrap()]] {
        let run = |strict: &[&str]| {
            let mut run = telem(["run"]);
            run.args(options).args(strict).args(["--", "sh", "-c", "echo \"url=$TELEM_URL\"; exit 3"]);
            place.at_home(&mut run);
            output(run)
        };
        let without = run(&[]);
        assert_eq!(without.status.code(), Some(3), "{}", said(&without));
        assert_eq!(without.stdout, b"url=\n");
        assert!(said(&without).contains("telem: warning: the command runs, but telem does not record it"));
        assert!(said(&without).contains(options[1]), "{}", said(&without));
        let strict = run(&["--strict"]);
        assert_eq!((strict.status.code(), strict.stdout.len()), (Some(1), 0), "{}", said(&strict));
    }
}

#[test]
fn quiet_is_quiet() {
    let place = Place::new();
    let mut run = telem(["-q", "run", "--listen", "127.0.0.1:0", "--", "sh", "-c", "echo out; echo err >&2"]);
    place.at_home(&mut run);
    let done = output(run);
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
}

/// Runs its arguments with every signal blocked, as some launchers start their processes.
const BLOCKED: &str = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn the_end_of_the_command_is_seen_where_every_signal_is_blocked() {
    let place = Place::new();
    let mut python = Command::new("python3");
    python.args(["-c", BLOCKED, env!("CARGO_BIN_EXE_telem"), "run", "--listen", "127.0.0.1:0"]);
    python.args(["--", "sh", "-c", "exit 7"]);
    place.at_home(&mut python);
    let done = output(python);
    assert_eq!(done.status.code(), Some(7), "{}", said(&done));
}

#[test]
fn a_container_whose_session_began_outside_of_it_is_nothing_special() {
    let place = Place::new();
    // Where this is not allowed, there is nothing to be seen either.
    let allowed = Command::new("unshare").args(["-rpf", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("skipped: no PID namespaces here");
        return;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["-rpf", "--mount-proc", env!("CARGO_BIN_EXE_telem"), "run", "--listen", "127.0.0.1:0"]);
    unshare.args(["--", "sh", "-c", "exit 7"]);
    place.at_home(&mut unshare);
    let done = output(unshare);
    assert_eq!(done.status.code(), Some(7), "{}", said(&done));
}
