//! What a command inherits: exactly what it would inherit without telem.

use super::*;

/// Puts itself into the state that its first argument names, and becomes what follows. Signals 32 and 33, which the C
/// library lets nobody touch, get their defaults first: what started these tests may ignore them.
const STATE: &str = r"
import ctypes, os, platform, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
set_action = {'x86_64': 13, 'aarch64': 134}[platform.machine()]
def act(number, handler):
    action = ctypes.create_string_buffer(handler.to_bytes(8, sys.byteorder), 32)
    assert libc.syscall(set_action, number, action, None, ctypes.c_size_t(8)) == 0, number
for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP}:
    act(number, 0)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
state = sys.argv[1]
if state == 'pipe':
    act(signal.SIGPIPE, 1)
if state == 'ignored':
    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGUSR2, signal.SIGTSTP, 32, 33, 40):
        act(number, 1)
if state == 'internal':
    act(32, 1)
if state == 'blocked':
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGPIPE, signal.SIGWINCH, 41))
if state == 'limits':
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 2000))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 23))
    os.nice(5)
    os.umask(0o027)
if state == 'files':
    for number in (5, 9):
        os.dup2(os.open('/dev/null', os.O_RDONLY), number, inheritable=True)
os.execvp(sys.argv[2], sys.argv[2:])
";

/// Says what it has; changes none of it.
const ASK: [&str; 3] = [
    "cat /proc/self/status /proc/self/limits /proc/self/oom_score_adj /proc/self/stat",
    "env",
    // Without the one that it opens to look.
    "find /proc/self/fd -maxdepth 1 -type l -printf %f:%l\\n",
];

/// What stands of one process in `text`: none of its own numbers, of telem's words and of what every process has anew.
fn told(text: &str) -> String {
    let kept = ["Umask", "Uid", "Gid", "Groups", "Sig", "Shd", "Cap", "NoNewPrivs", "Seccomp", "Cpus_", "Mems_"];
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let name = line.split([':', '=', ' ']).next().unwrap();
        if line.ends_with("kB")
            || name == "SigQ"
            || name.starts_with("TELEM_")
            || name.starts_with("PROXY_")
            || line.contains("/proc/")
        {
            continue;
        }
        if let Some((_, stat)) = line.rsplit_once(") ") {
            // Priority, niceness: fields 18 and 19.
            lines.push(stat.split(' ').skip(15).take(2).collect::<Vec<_>>().join(" "));
            continue;
        }
        let is_setting = line.contains('=') || line.starts_with("Max ");
        let is_file = line.contains(":/") || line.contains(":pipe");
        if is_setting || is_file || kept.iter().any(|kept| name.starts_with(kept)) || line.parse::<i32>().is_ok() {
            lines.push(line.to_owned());
        }
    }
    lines.sort();
    // Pipes to the two runs have numbers of their own.
    regex::Regex::new(r"pipe:\[\d+\]").unwrap().replace_all(&lines.join("\n"), "pipe").into_owned()
}

#[test]
fn a_command_inherits_what_it_would_without_telem() {
    let place = Place::new();
    for state in ["plain", "pipe", "ignored", "internal", "blocked", "limits", "files"] {
        for ask in ASK {
            let run = |before: &[&str]| {
                let mut python = Command::new("python3");
                python.args(["-c", STATE, state]).args(before).args(ask.split(' '));
                crate::process::quiet(&mut python);
                place.at_home(&mut python);
                let done = output(python);
                assert!(done.status.success(), "{state}: {}", said(&done));
                told(&String::from_utf8(done.stdout).unwrap())
            };
            let plain = run(&[]);
            let under = run(&[env!("CARGO_BIN_EXE_telem"), "run", "--listen", "127.0.0.1:0", "--no-save", "--"]);
            assert!(!plain.is_empty());
            assert_eq!(under, plain, "{state}: {ask}");
        }
    }
}

#[test]
fn a_command_that_is_not_there_has_the_same_code_where_sigpipe_is_ignored() {
    let place = Place::new();
    for (command, code) in [("no-such-command-of-telem", 127), ("/etc/passwd", 126), ("true", 0)] {
        let mut python = Command::new("python3");
        python.args([
            "-c",
            STATE,
            "pipe",
            env!("CARGO_BIN_EXE_telem"),
            "run",
            "--listen",
            "127.0.0.1:0",
            "--",
            command,
        ]);
        crate::process::quiet(&mut python);
        place.at_home(&mut python);
        let done = output(python);
        assert_eq!(done.status.code(), Some(code), "{command}: {}", said(&done));
    }
}

/// A user without processes, so that a limit counts ours alone.
const NOBODY: &str = "54321";

#[test]
fn a_command_runs_where_its_user_may_have_no_more_processes() {
    let place = Place::new();
    let as_nobody = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
    let mut may = Command::new("setpriv");
    may.args(as_nobody).args(["prlimit", "--nproc=1:1", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !may.status().is_ok_and(|status| status.success()) {
        println!("skipped: this test needs root, setpriv and prlimit");
        return;
    }
    // What another user may read and write.
    let telem = std::path::Path::new(env!("CARGO_BIN_EXE_telem"));
    let binary = place.path().join("telem");
    if std::fs::hard_link(telem, &binary).is_err() {
        std::fs::copy(telem, &binary).unwrap();
    }
    let owner = Some(NOBODY.parse().unwrap());
    for dir in ["", "run", "live"] {
        std::os::unix::fs::chown(place.path().join(dir), owner, owner).unwrap();
    }
    // From room for nothing to room for everything.
    for limit in (1..=24).chain([40, 64]) {
        let mut run = Command::new("setpriv");
        run.args(as_nobody).args(["prlimit", &format!("--nproc={limit}:{limit}")]).arg(&binary);
        run.args(["run", "--listen", "127.0.0.1:0", "--no-save", "--", "sh", "-c", "exit 5"]);
        crate::process::quiet(&mut run);
        place.at_home(&mut run);
        let done = output(run);
        let said = said(&done);
        assert_eq!(done.status.code(), Some(5), "{limit}: {said}");
        assert!(!said.contains("panicked") && !said.contains("bug"), "{limit}: {said}");
        assert!(said.contains("not record") || said.contains("without telem") || said.contains("samples in"), "{said}");
        if limit == 64 {
            assert!(!said.contains("warning"), "{said}");
        }
    }
}
