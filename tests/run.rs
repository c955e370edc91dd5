//! `telem run` with real commands: they must not notice telem, and the metrics that they sent must be there afterwards.
//!
//! Every run has a directory of its own, which is the working directory and holds the live data and the socket.

mod inherited;
mod kill;
mod passing_through;
mod processes;
mod replaying;
pub mod saving;
mod strangers;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use tempfile::TempDir;

use crate::process::{PATIENCE, poll, telem};

/// Where a run happens.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let owner_only = std::fs::Permissions::from_mode(0o700);
        // Short enough for the path of a socket.
        let dir = tempfile::Builder::new().permissions(owner_only).tempdir_in("/tmp").unwrap();
        for name in ["run", "live"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `telem run` on a free port, with `options`, before the command.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = telem(["run", "--listen", "127.0.0.1:0"]);
        run.args(options).arg("--").args(command);
        self.at_home(&mut run);
        run
    }

    pub fn at_home(&self, command: &mut Command) {
        command.current_dir(self.path());
        command.env("XDG_RUNTIME_DIR", self.path().join("run")).env("TMPDIR", self.path().join("live"));
    }

    pub fn output(&self, options: &[&str], command: &[&str]) -> Output {
        output(self.run(options, command))
    }
}

/// Runs its arguments with no signal ignored or blocked.
const UNDISTURBED: &str = "
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_DFL)
    except OSError:
        pass
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execvp(sys.argv[1], sys.argv[1:])
";

/// The same command, also where these tests run under `nohup` or in a shell's background: what they ignore, it would.
fn undisturbed(command: Command) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    // SIGPIPE is ignored by every Rust program, and by none that it starts.
    if ignored.is_none_or(|mask| u64::from_str_radix(mask, 16) == Ok(1 << 12)) {
        return command;
    }
    let mut python = Command::new("python3");
    python.args(["-c", UNDISTURBED]).arg(command.get_program()).args(command.get_args());
    command.get_current_dir().map(|dir| python.current_dir(dir));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => python.env(name, value),
            None => python.env_remove(name),
        };
    }
    python
}

/// What `command` printed, until its end.
pub fn output(command: Command) -> Output {
    output_within(PATIENCE, command)
}

/// As [`output`], of what may take so long.
pub fn output_within(patience: Duration, command: Command) -> Output {
    let mut command = undisturbed(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let _guard = Guard::of(&child, patience);
    child.wait_with_output().unwrap()
}

/// Kills a process group that lives longer than anything here may take, so that no test waits for ever.
struct Guard {
    over: Option<Sender<()>>,
    watch: Option<JoinHandle<()>>,
}

impl Guard {
    /// Of the group that `leader` leads.
    fn of(leader: &Child, patience: Duration) -> Self {
        let group = pid(leader.id());
        let (over, ended) = channel::<()>();
        let watch = std::thread::spawn(move || {
            if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        Self { over: Some(over), watch: Some(watch) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.over.take());
        let _ = self.watch.take().map(JoinHandle::join);
    }
}

/// A run whose streams are held. It leads a process group, which dies with this value.
pub struct Running {
    _guard: Guard,
    pub telem: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Running {
    pub fn start(command: Command) -> Self {
        let mut command = undisturbed(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut telem = command.spawn().unwrap();
        let guard = Guard::of(&telem, PATIENCE);
        let stdout = BufReader::new(telem.stdout.take().unwrap());
        Self { _guard: guard, stdin: telem.stdin.take(), stderr: telem.stderr.take(), stdout, telem }
    }

    /// The next line that the command printed; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads what is printed on stderr up to the line that holds `text`.
    pub fn wait_to_hear(&mut self, text: &str) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        // What follows is for `end`, so nothing may be read ahead.
        while self.stderr.as_mut().unwrap().read(&mut byte).unwrap() == 1 {
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let said = String::from_utf8(std::mem::take(&mut line)).unwrap();
            if said.contains(text) {
                return said;
            }
        }
        panic!("telem never said '{text}'");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid(self.telem.id()), signal).unwrap();
    }

    /// Kills the process that records, as its connection file names it, and telem itself.
    fn kill_telem(&self, place: &Place) {
        let recorder = recorder(place);
        self.signal(Signal::KILL);
        kill_process(recorder, Signal::KILL).unwrap();
        poll("the recorder to be gone", || test_kill_process(recorder).is_err());
    }

    /// Waits for the end. Also what was printed on stderr.
    pub fn end(mut self) -> (ExitStatus, String) {
        drop(self.stdin.take());
        let mut said = String::new();
        self.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let mut status = None;
        poll("telem run to end", || {
            status = self.telem.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(pid(self.telem.id()), Signal::KILL);
        let _ = self.telem.wait();
    }
}

pub fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// The process that records the one run of a place.
pub fn recorder(place: &Place) -> Pid {
    let live = place.path().join("live");
    let mut found = None;
    poll("a connection file", || {
        found = connection_file(&live).and_then(|path| std::fs::read(path).ok());
        found.is_some()
    });
    let file: serde_json::Value = serde_json::from_slice(&found.unwrap()).unwrap();
    pid(file["pid"].as_u64().unwrap().try_into().unwrap())
}

/// That below a directory.
fn connection_file(dir: &Path) -> Option<std::path::PathBuf> {
    let here = dir.join("connection.json");
    if here.exists() {
        return Some(here);
    }
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).find_map(|path| connection_file(&path))
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
